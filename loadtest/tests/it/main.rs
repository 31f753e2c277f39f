//! The integration tests of this crate, in one program: each more is linked with all dependencies again.

mod e2e;
mod guard;
mod metrics_doc;
mod program;
mod rows;
mod states;
