//! On what it was measured, and what else that was doing.

use serde::{Deserialize, Serialize};
use std::{fs, thread};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub kernel: String,
    /// Averages over 1, 5 and 15 minutes.
    pub load_before: [f64; 3],
    pub load_after: [f64; 3],
}

/// Returns the number of cores that this process may use: of the machine, its affinity or its cgroup.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

/// Runs the same work on each of the threads at the same time, until all have returned.
pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

impl Machine {
    pub fn look() -> Self {
        let load = load();
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: cores(),
            memory_mb: memory_mb(),
            kernel: read("/proc/sys/kernel/osrelease"),
            load_before: load,
            load_after: load,
        }
    }

    pub fn and_after(self) -> Self {
        Self {
            load_after: load(),
            ..self
        }
    }
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// What stands behind the first colon of the line that begins so.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| Some(line.split_once(':')?.1.trim()));
    value.unwrap_or_default().to_owned()
}

fn memory_mb() -> u64 {
    let text = field("/proc/meminfo", "MemTotal");
    let kib = text.trim_end_matches(" kB").parse::<u64>();
    kib.unwrap_or(0) / 1024
}

fn load() -> [f64; 3] {
    let text = read("/proc/loadavg");
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0.0));
    [(); 3].map(|()| numbers.next().unwrap_or(0.0))
}
