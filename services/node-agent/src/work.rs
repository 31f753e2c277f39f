//! What is to be run, and within what.

use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a tenant wants to have run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The program and its arguments. A name without a slash is looked for in the `PATH` of the work.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Absent: a directory of the run's own, which goes with its log.
    pub working_dir: Option<PathBuf>,
    /// What the command reads from its standard input.
    pub payload: Vec<u8>,
    /// Needs the plug-in of the site.
    pub image: Option<String>,
}

/// What a run may use. How far it is held to it is a matter of the [`Means`](crate::Means).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What it was promised.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// What it may use at most; 0: no more than it was promised.
    pub cpu_milli_limit: u64,
    pub memory_bytes_limit: u64,
    /// The CPUs that it may run on; absent: all.
    pub cpus: Option<CpuSet>,
    /// Indices of the devices that it may use, in the order of the PCI bus.
    pub gpus: Vec<u32>,
    /// Added to the agent's own; 0 to 19.
    pub nice: u8,
    /// Of its output, the newest so many bytes are kept.
    pub log_bytes_max: u64,
    /// Greatest number of its processes and threads; 0: no limit.
    #[serde(default)]
    pub processes_max: u32,
}

/// The kernel knows no greater one.
pub const NICE_MAX: u8 = 19;

impl Bounds {
    /// None: no limit.
    pub(crate) fn cpu_milli_max(&self) -> Option<u64> {
        limit(self.cpu_milli, self.cpu_milli_limit)
    }

    /// None: no limit.
    pub(crate) fn memory_bytes_max(&self) -> Option<u64> {
        limit(self.memory_bytes, self.memory_bytes_limit)
    }
}

fn limit(promised: u64, limit: u64) -> Option<u64> {
    let max = if limit == 0 { promised } else { limit };
    (max > 0).then_some(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_it_gets_what_it_was_promised() {
        let check = |promised, limit, expected| {
            let bounds = Bounds {
                cpu_milli: promised,
                cpu_milli_limit: limit,
                memory_bytes: promised,
                memory_bytes_limit: limit,
                ..Bounds::default()
            };
            assert_eq!(bounds.cpu_milli_max(), expected);
            assert_eq!(bounds.memory_bytes_max(), expected);
        };
        check(500, 0, Some(500));
        check(500, 800, Some(800));
        check(0, 800, Some(800));
        check(0, 0, None);
    }
}
