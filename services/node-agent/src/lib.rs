//! Runs the commands of tenants on one machine, and finds out what the machine has.
//!
//! [`Runs`] starts, stops and watches runs. Each has a process of its own beside it, the shim, so that a run and its end
//! outlive the agent. [`discover`] reads the capacity of the machine. Only `agent` speaks to the bus.

mod agent;
mod cgroup;
mod cpus;
pub mod discover;
mod ended;
mod environment;
mod fifo;
mod key;
mod lease;
mod log;
mod lost;
mod means;
mod plugin;
mod processes;
pub mod protocol;
mod room;
mod run_dir;
mod runs;
mod shim;
mod stage;
mod start;
mod user;
mod work;

pub use agent::{METRICS, NodeAgent, OnStop, Settings as AgentSettings};
pub use cgroup::NoCgroup;
pub use cpus::{CpuSet, NoCpuList};
pub use ended::{End, Ended, Exit, Reason, Usage};
pub use key::{NoUuid, RunKey};
pub use lease::{Lease, Moment};
pub use log::LogPart;
pub use means::{Detected, Means};
pub use run_dir::Damaged;
pub use runs::{Found, OpenError, RunError, Runs, Settings};
pub use shim::shim;
pub use stage::stage;
pub use start::StartError;
pub use user::{NoRunUsers, RunUsers};
pub use work::{Bounds, NICE_MAX, Work};
