//! Recorded workloads against a live stack. A library as well, so that integration tests use the same parts: the
//! workload, the simulated fleet, the OTLP receiver, the witness.

pub mod bench;
pub mod chaos;
pub mod core;
pub mod drive;
pub mod fleet;
pub mod flood;
pub mod history;
mod machine;
pub mod measure;
pub mod otlp;
pub mod peers;
pub mod placement;
pub mod plan;
pub mod queueing;
pub mod quota;
pub mod reserve;
pub mod simulate;
pub mod wire;
pub mod workload;
