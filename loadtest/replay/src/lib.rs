//! Recorded workloads against a running stack, and what everything that drives one is made of: the way to it, the simulated
//! fleet, the OTLP receiver, the witness.

pub mod command;
pub mod drive;
pub mod fleet;
pub mod latency;
pub mod machine;
pub mod otlp;
pub mod plan;
pub mod reach;
pub mod wire;
pub mod workload;
