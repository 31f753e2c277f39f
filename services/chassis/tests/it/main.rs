//! The integration tests of this crate, in one program: each more is linked with all dependencies again.

mod boot;
mod common;
mod config;
mod level;
mod nats;
mod otlp;
mod reader;
mod schema;
mod store;
mod warm;
