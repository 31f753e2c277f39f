//! The integration tests of this crate, in one program: each more is linked with all dependencies again.

mod bill;
mod common;
mod exactly_once;
mod forecast;
mod projector;
mod questions;
mod report;
mod samples;
mod schema;
