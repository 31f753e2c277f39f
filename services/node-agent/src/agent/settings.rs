//! What a site says of its agent.

use crate::RunUsers;
use serde::Deserialize;
use std::{collections::BTreeMap, path::PathBuf};

/// The table `[service]` of the agent's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The node's name, a token; empty: the machine's.
    pub node: String,
    /// Where runs, their logs and the node's identity are. Another one for each agent of a machine.
    pub state_dir: PathBuf,
    /// The token that `apportion node approve` has printed. The creds of `[nats]` are then those of `join`. Without it they
    /// are the node's own.
    pub token_file: Option<PathBuf>,
    /// What the system keeps for itself of its cores.
    pub reserved_cpu_milli: u64,
    /// And of its memory.
    pub reserved_memory_bytes: u64,
    /// Allocations that the node takes at once, at the most, whatever they ask for; 0: as many as there is room for.
    pub max_runs: u32,
    /// Where less than so many hundredths of the memory are left, the node takes nothing new until twice as many are; 0: it
    /// always does.
    pub memory_pressure_percent: u8,
    /// The same of the file system of `state_dir`. With half of that left, the run that uses the most room is ended.
    pub disk_pressure_percent: u8,
    /// The node's labels, as they were approved.
    pub labels: BTreeMap<String, String>,
    /// `arch`, `hostname` and `os` are labels, too. Where nodes have to join, they have to be approved like all others.
    pub machine_labels: bool,
    /// Where the working directories of runs are, each until its run has ended; absent: in `state_dir`. Another one for each
    /// agent of a machine, and best on a file system of its own.
    pub work_dir: Option<PathBuf>,
    /// Room on the disk that a run may use, in bytes, before it is ended; 0: a quarter of the file system.
    pub work_bytes_max: u64,
    /// Processes and threads of a run; 0: no limit. It needs `run_users` or cgroups.
    pub processes_max: u32,
    /// Users of which each run gets one; absent: commands run as the agent's user.
    pub run_users: Option<RunUsers>,
    /// Of what a run writes to its output, as much of the newest is kept.
    pub log_bytes_max: u64,
    /// Logs of so many runs that are over are kept.
    pub logs_max: usize,
    /// And none of them is kept for longer.
    pub log_age_ms: i64,
    /// Between being told to stop and being killed, where the cell sets no moment.
    pub grace_ms: i64,
    /// The site's own starter of containers: it runs instead of the command and gets the assignment as JSON.
    pub exec_plugin: Option<PathBuf>,
    /// What becomes of runs when the agent is stopped.
    pub on_stop: OnStop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStop {
    /// They are stopped, and returned to the queue.
    Drain,
    /// They go on, and the agent finds them when it is started again before its lease is over.
    Leave,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: String::new(),
            state_dir: PathBuf::from("/var/lib/apportion-node-agent"),
            token_file: None,
            reserved_cpu_milli: 0,
            reserved_memory_bytes: 0,
            max_runs: 512,
            memory_pressure_percent: 5,
            disk_pressure_percent: 5,
            labels: BTreeMap::new(),
            machine_labels: false,
            work_dir: None,
            work_bytes_max: 0,
            processes_max: 16_384,
            run_users: None,
            log_bytes_max: 16 << 20,
            logs_max: 1000,
            log_age_ms: 24 * 3_600_000,
            grace_ms: 30_000,
            exec_plugin: None,
            on_stop: OnStop::Drain,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sample_configuration_is_accepted() {
        chassis::check_sample::<super::Settings>(include_str!("../../config.example.toml"));
    }
}
