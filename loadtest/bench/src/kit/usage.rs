//! What the stack's processes use of the machine: CPU seconds by the kernel, frames and bytes by themselves.

use super::figures::round;
use chassis::{Stopwatch, stack::Stack};
use replay::drive::gauge;
use serde::Serialize;
use std::{collections::BTreeMap, fs, iter::successors};

/// The kernel's unit of CPU time; Linux has had the same for user space on all its ports for decades.
const TICKS_PER_S: f64 = 100.0;
/// Services that decide: their frames are counted.
pub const WRITERS: [&str; 4] = ["admission", "quota", "scheduler", "node-heartbeat"];

/// The processes of services: one for each, or one for all.
pub const SERVICES: [&str; 6] = [
    "admission",
    "quota",
    "scheduler",
    "node-heartbeat",
    "analytics",
    TOGETHER,
];
/// The one process of all services, where they run together.
pub const TOGETHER: &str = "services";
/// The name that the kernel knows the simulated agents' thread by.
pub const AGENTS: &str = "agents";

pub struct Usage {
    since: Stopwatch,
    /// Processes that are not the launcher's.
    others: Vec<(String, u32)>,
    ticks: BTreeMap<String, u64>,
    frames: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
pub struct Used {
    pub wall_s: f64,
    /// By process, the driver included.
    pub cpu_s: BTreeMap<String, f64>,
    /// Of one core, by all of them together.
    pub cpu_cores: f64,
    pub frames: BTreeMap<&'static str, u64>,
    /// Resident memory in the end, by process.
    pub rss_mb: BTreeMap<String, f64>,
}

impl Used {
    pub fn cpu_s_of(&self, names: &[&str]) -> f64 {
        names.iter().filter_map(|name| self.cpu_s.get(*name)).sum()
    }
}

impl Usage {
    pub async fn begin(stack: &Stack) -> Self {
        Self::begin_with(stack, Vec::new()).await
    }

    /// With processes that the measure has started itself.
    pub async fn begin_with(stack: &Stack, others: Vec<(String, u32)>) -> Self {
        Self {
            since: Stopwatch::start(),
            ticks: ticks(&pids(stack, &others)),
            others,
            frames: frames(stack).await,
        }
    }

    pub async fn end(self, stack: &Stack) -> Used {
        let took = self.since.elapsed();
        let seconds = |(name, now): (String, u64)| {
            let before = self.ticks.get(&name).copied().unwrap_or(0);
            (name, now.saturating_sub(before) as f64 / TICKS_PER_S)
        };
        let pids = pids(stack, &self.others);
        let cpu_s: BTreeMap<_, _> = ticks(&pids).into_iter().map(seconds).collect();
        let frames = frames(stack).await.into_iter().map(|(name, now)| {
            let before = self.frames.get(name).copied().unwrap_or(0);
            (name, now.saturating_sub(before))
        });
        Used {
            wall_s: round(took.as_secs_f64(), 2),
            cpu_cores: round(cpu_s.values().sum::<f64>() / took.as_secs_f64(), 2),
            frames: frames.collect(),
            rss_mb: rss_mb(&pids),
            cpu_s,
        }
    }
}

async fn frames(stack: &Stack) -> BTreeMap<&'static str, u64> {
    let mut frames = BTreeMap::new();
    for name in WRITERS {
        let Some(service) = stack.services.get(name) else {
            continue;
        };
        let count = gauge(service.http, "apportion_frames_total").await;
        frames.insert(name, count.unwrap_or(0));
    }
    frames
}

/// The stack's processes, the others, and this one.
fn pids(stack: &Stack, others: &[(String, u32)]) -> Vec<(String, u32)> {
    let own = ("loadtest".to_owned(), std::process::id());
    let others = others.iter().cloned();
    stack
        .pids()
        .into_iter()
        .chain(others)
        .chain([own])
        .collect()
}

/// With all that are below each now: Postgres does its work in processes of its own.
fn ticks(pids: &[(String, u32)]) -> BTreeMap<String, u64> {
    let named = pids.iter().map(|(name, pid)| (*pid, name.clone()));
    let named: BTreeMap<u32, String> = named.collect();
    let processes = processes();
    let mut ticks: BTreeMap<String, u64> = BTreeMap::new();
    for (pid, process) in &processes {
        let mut above = successors(Some(*pid), |pid| Some(processes.get(pid)?.parent));
        if let Some(name) = above.find_map(|pid| named.get(&pid)) {
            *ticks.entry(name.clone()).or_default() += process.ticks;
        }
    }
    let agents = agents_ticks();
    if agents > 0 {
        let all = ticks.entry("loadtest".to_owned()).or_default();
        *all = all.saturating_sub(agents);
        ticks.insert(AGENTS.to_owned(), agents);
    }
    ticks
}

/// The simulated agents, where they have a thread of their own in this process.
fn agents_ticks() -> u64 {
    let Ok(entries) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let stats =
        entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let agents = stats.filter(|stat| stat.contains(&format!("({AGENTS})")));
    agents.filter_map(|stat| Some(parse(&stat)?.ticks)).sum()
}

/// Without their children.
fn rss_mb(pids: &[(String, u32)]) -> BTreeMap<String, f64> {
    let rss = |(name, pid): &(String, u32)| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some((name.clone(), round(kib / 1024.0, 1)))
    };
    pids.iter().filter_map(rss).collect()
}

struct Process {
    parent: u32,
    /// User and system time of all its threads.
    ticks: u64,
}

fn processes() -> BTreeMap<u32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse(&stat)?))
    })
    .collect()
}

fn parse(stat: &str) -> Option<Process> {
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let stat = "17 (a) b (c) S 4 17 17 0 -1 4194304 1 2 3 4 250 50 9 9 20 0 1 0 5";
        let process = parse(stat).expect("a line as the kernel writes it");
        assert_eq!((process.parent, process.ticks), (4, 300));
        assert!(parse("17 (cut").is_none());
    }
}
