//! The measures: one module for each, and what they are reported with.

pub mod agent;
pub mod bill;
pub mod core;
pub mod flood;
pub mod heartbeat;
mod kit;
pub mod lease;
pub mod peers;
pub mod placement;
pub mod query;
pub mod queueing;
pub mod quota;
pub mod throughput;
