//! How a run ended, and what it used.

use crate::{Moment, RunKey};
use serde::{Deserialize, Serialize};

/// A run that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub key: RunKey,
    pub end: End,
}

/// The content of `end.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub exit: Exit,
    pub usage: Usage,
    /// Unix ms; 0: not known.
    pub started_ms: i64,
    /// Unix ms. Of a run that was lost: when that was noticed.
    pub ended_ms: i64,
    /// The same, whatever the wall clock shows. It means something until the machine starts anew, and for the cell so does the run.
    /// None: an earlier version has written it.
    #[serde(default)]
    pub ended_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 0 when a signal ended it.
    pub code: u8,
    /// 0 when it ended by itself.
    pub signal: u8,
    pub reason: Reason,
}

impl Exit {
    /// Of a run that never began.
    pub fn not_begun(reason: Reason) -> Self {
        Self {
            reason,
            ..Self::default()
        }
    }

    pub fn succeeded(self) -> bool {
        self == Exit::default()
    }
}

/// What the numbers do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Code and signal say all.
    #[default]
    None,
    /// The kernel ended it at its memory limit; or, without a cgroup, it failed and its largest process was at the limit.
    OutOfMemory,
    /// The command was never there: code 127 when it was not found, 126 when it could not be executed. The log says more.
    CouldNotStart,
    /// It was told to stop, and had not when the grace was over.
    Killed,
    /// Its shim is gone without a word, or had to be killed because it did not end in time.
    AgentLost,
    /// The agent was stopping: it did not begin the run, or returned it.
    Draining,
    /// The node could not set it up, for no fault of the work.
    NodeFault,
    /// It was ended because it used more room on the disk than it may.
    OutOfDisk,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time of all its processes.
    pub cpu_us: u64,
    /// In a cgroup that of all processes together, else that of the largest one.
    pub memory_bytes_peak: u64,
    /// All that it wrote, kept or not.
    pub log_bytes: u64,
}
