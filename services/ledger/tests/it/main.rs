//! The integration tests of this crate, in one program: each more is linked with all dependencies again.

mod golden;
mod rules;
