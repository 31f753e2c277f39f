//! The integration tests of this crate, in one program: each more is linked with all dependencies again.

mod bus_doc;
mod features;
mod generated;
mod tidy;
