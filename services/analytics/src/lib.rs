//! What was used, and what does it cost?

pub mod domain;
mod metrics;
pub mod store;
