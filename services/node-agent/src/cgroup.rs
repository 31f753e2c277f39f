//! Cgroups, version 2: a folder for each run, whose files limit and count.

use crate::{Bounds, RunKey};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The agent's own place below what was delegated to it.
const AGENT: &str = "agent";
/// Of a limit of CPU time, in µs.
const PERIOD_US: u64 = 100_000;
/// The kernel takes no smaller quota.
const QUOTA_US_MIN: u64 = 1000;
/// The kernel's weights; a cgroup has 100 unless told otherwise, so that is what a whole CPU gets.
const WEIGHT_MAX: u64 = 10_000;

/// Why runs get no cgroups.
#[derive(Debug, thiserror::Error)]
pub enum NoCgroup {
    #[error("cgroup v2 is not what the machine has at {0}")]
    NotUnified(PathBuf),
    #[error("the agent's cgroup {cgroup} has no controller {missing}")]
    NoController {
        cgroup: PathBuf,
        missing: &'static str,
    },
    #[error("{path}: {source}")]
    NotDelegated { path: PathBuf, source: io::Error },
}

fn not_delegated(path: PathBuf) -> impl FnOnce(io::Error) -> NoCgroup {
    move |source| NoCgroup::NotDelegated { path, source }
}

/// The cgroup of this process.
pub(crate) fn own(proc: &Path, mount: &Path) -> Result<PathBuf, NoCgroup> {
    let not_unified = || NoCgroup::NotUnified(mount.to_owned());
    if !mount.join("cgroup.controllers").is_file() {
        return Err(not_unified());
    }
    let text = fs::read_to_string(proc.join("self/cgroup")).map_err(|_| not_unified())?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(mount.join(path.ok_or_else(not_unified)?))
}

/// Makes the place for the cgroups of runs, and gives them their controllers.
pub(crate) fn prepare(own: &Path) -> Result<PathBuf, NoCgroup> {
    let settled = own.file_name().is_some_and(|name| name == AGENT);
    let base = own.parent().filter(|_| settled).unwrap_or(own);
    let path = base.join("cgroup.controllers");
    let controllers = fs::read_to_string(&path).map_err(not_delegated(path))?;
    let has = |name: &str| controllers.split_whitespace().any(|one| one == name);
    for missing in ["cpu", "memory"] {
        if !has(missing) {
            let cgroup = base.to_owned();
            return Err(NoCgroup::NoController { cgroup, missing });
        }
    }
    if !settled {
        let agent = base.join(AGENT);
        fs::create_dir_all(&agent).map_err(not_delegated(agent.clone()))?;
        set(&agent, "cgroup.procs", &std::process::id().to_string())?;
    }
    let optional = ["cpuset", "pids"].into_iter().filter(|name| has(name));
    let wanted: Vec<_> = ["cpu", "memory"].into_iter().chain(optional).collect();
    let wanted = format!("+{}", wanted.join(" +"));
    set(base, "cgroup.subtree_control", &wanted)?;
    let runs = base.join("runs");
    fs::create_dir_all(&runs).map_err(not_delegated(runs.clone()))?;
    set(&runs, "cgroup.subtree_control", &wanted)?;
    Ok(runs)
}

/// The cgroup of a run, with its limits and without processes.
pub(crate) fn make(runs: &Path, key: RunKey, bounds: &Bounds) -> Result<PathBuf, NoCgroup> {
    let cgroup = runs.join(key.to_string());
    fs::create_dir_all(&cgroup).map_err(not_delegated(cgroup.clone()))?;
    if bounds.cpu_milli > 0 {
        let weight = (bounds.cpu_milli / 10).clamp(1, WEIGHT_MAX);
        set(&cgroup, "cpu.weight", &weight.to_string())?;
    }
    if let Some(milli) = bounds.cpu_milli_max() {
        let quota_us = milli.saturating_mul(PERIOD_US / 1000).max(QUOTA_US_MIN);
        set(&cgroup, "cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
    }
    if let Some(bytes) = bounds.memory_bytes_max() {
        set(&cgroup, "memory.max", &bytes.to_string())?;
        // Only where the kernel counts swap. Without it, a run would go on beyond its limit on the disk.
        if cgroup.join("memory.swap.max").exists() {
            set(&cgroup, "memory.swap.max", "0")?;
        }
    }
    // Half a run is no run: all of it is ended, or its command would wait for what is gone.
    set(&cgroup, "memory.oom.group", "1")?;
    if bounds.processes_max > 0 && cgroup.join("pids.max").exists() {
        set(&cgroup, "pids.max", &bounds.processes_max.to_string())?;
    }
    if let Some(cpus) = &bounds.cpus
        && cgroup.join("cpuset.cpus").exists()
    {
        set(&cgroup, "cpuset.cpus", &cpus.to_string())?;
    }
    Ok(cgroup)
}

fn set(cgroup: &Path, file: &str, value: &str) -> Result<(), NoCgroup> {
    let path = cgroup.join(file);
    fs::write(&path, value).map_err(not_delegated(path))
}

/// Ends all that is in it. Kernels before 5.14 cannot; then the processes are looked for one by one.
pub(crate) fn kill(cgroup: &Path) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(cgroup.join("cgroup.kill"));
    let _ = file.and_then(|mut file| io::Write::write_all(&mut file, b"1"));
}

/// Once nothing is left in it, and in what the run has made below it.
pub(crate) fn remove(cgroup: &Path) {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(cgroup);
}

/// What the kernel has counted, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub cpu_us: Option<u64>,
    pub memory_bytes_peak: Option<u64>,
    pub out_of_memory: bool,
}

pub(crate) fn counted(cgroup: &Path) -> Counted {
    let text = |file: &str| fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    Counted {
        cpu_us: field(&text("cpu.stat"), "usage_usec"),
        memory_bytes_peak: text("memory.peak").trim().parse().ok(),
        out_of_memory: field(&text("memory.events"), "oom_kill").is_some_and(|times| times > 0),
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = fields.find(|(one, _)| *one == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What stands in the files of a run's cgroup whose parent has cpusets and counts swap.
    fn check(bounds: Bounds, expected: &[(&str, &str)]) {
        let folder = tempfile::tempdir().expect("a folder");
        let key = RunKey::new("0190f1c2-7e3a-7000-8000-00000000000a", 3).expect("a key");
        let cgroup = folder.path().join(key.to_string());
        fs::create_dir(&cgroup).expect("made");
        for file in ["cpuset.cpus", "memory.swap.max", "pids.max"] {
            fs::write(cgroup.join(file), "").expect("written");
        }
        let made = make(folder.path(), key, &bounds).expect("made");
        assert_eq!(made, cgroup);
        let mut found = Vec::new();
        for entry in fs::read_dir(&cgroup).expect("listed") {
            let entry = entry.expect("an entry");
            let value = fs::read_to_string(entry.path()).expect("read");
            let name = entry.file_name().into_string().expect("text");
            found.push((name, value));
        }
        found.retain(|(_, value)| !value.is_empty());
        found.sort();
        let found: Vec<_> = found
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn bounds_are_written_as_the_kernel_reads_them() {
        let whole = Bounds {
            cpu_milli: 1500,
            memory_bytes: 64 * MIB,
            cpu_milli_limit: 4000,
            memory_bytes_limit: 128 * MIB,
            cpus: Some((0..4).collect()),
            processes_max: 4096,
            ..Bounds::default()
        };
        let expected = [
            ("cpu.max", "400000 100000"),
            ("cpu.weight", "150"),
            ("cpuset.cpus", "0-3"),
            ("memory.max", "134217728"),
            ("memory.oom.group", "1"),
            ("memory.swap.max", "0"),
            ("pids.max", "4096"),
        ];
        check(whole, &expected);
        let least = Bounds {
            cpu_milli: 1,
            ..Bounds::default()
        };
        let expected = [
            ("cpu.max", "1000 100000"),
            ("cpu.weight", "1"),
            ("memory.oom.group", "1"),
        ];
        check(least, &expected);
        let most = Bounds {
            cpu_milli: u64::MAX,
            ..Bounds::default()
        };
        let expected = [
            ("cpu.max", "18446744073709551615 100000"),
            ("cpu.weight", "10000"),
            ("memory.oom.group", "1"),
        ];
        check(most, &expected);
        check(Bounds::default(), &[("memory.oom.group", "1")]);
    }

    #[test]
    fn what_the_kernel_counts_is_read_and_what_it_does_not_is_unknown() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(counted(folder.path()), Counted::default());
        let files = [
            ("cpu.stat", "usage_usec 1234\nuser_usec 1000\n"),
            ("memory.peak", "4096\n"),
            (
                "memory.events",
                "low 0\noom 1\noom_kill 1\noom_group_kill 1\n",
            ),
        ];
        for (file, text) in files {
            fs::write(folder.path().join(file), text).expect("written");
        }
        let expected = Counted {
            cpu_us: Some(1234),
            memory_bytes_peak: Some(4096),
            out_of_memory: true,
        };
        assert_eq!(counted(folder.path()), expected);
        fs::write(folder.path().join("memory.events"), "oom 1\noom_kill 0\n").expect("written");
        fs::write(folder.path().join("cpu.stat"), "garbage").expect("written");
        let counted = counted(folder.path());
        assert_eq!((counted.cpu_us, counted.out_of_memory), (None, false));
    }
}
