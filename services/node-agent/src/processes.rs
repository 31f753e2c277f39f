//! The processes of a run, found in `/proc`.
//!
//! A number of a process may be another one's a moment later. So it is compared with the time of the start just before a
//! signal is sent.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Says in the environment of each process of a run whose it is, also when it has left its session.
pub(crate) const MARKER: &str = "APPORTION_RUN_DIR";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub pid: u32,
    parent: u32,
    pub group: u32,
    session: u32,
    /// Since the machine's start, in ticks.
    started: u64,
}

impl Process {
    /// None: it is not there, or has ended and waits to be noticed.
    fn of(pid: u32) -> Option<Process> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// One that is gone needs no signal, and one that we may not reach cannot have one.
    pub fn signal(self, signal: Signal) {
        let same = Process::of(self.pid).is_some_and(|now| now.started == self.started);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| same) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether it is a process of this user. A process that has ended is not.
    fn is_of(self, user: Option<u32>) -> bool {
        let status = || fs::read_to_string(format!("/proc/{}/status", self.pid)).ok();
        user.is_some_and(|user| status().is_some_and(|status| real_user(&status) == Some(user)))
    }

    fn is_marked(self, mark: &[u8]) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == mark)
    }
}

fn real_user(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    numbers.split_whitespace().next()?.parse().ok()
}

/// The name of a program may hold blanks and brackets, so it is the last bracket that closes it.
fn parse(stat: &str) -> Option<Process> {
    let (pid, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    let state = *fields.first()?;
    let process = Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    };
    (!matches!(state, "Z" | "X")).then_some(process)
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::of).collect()
}

/// Ticks between the machine's start and that of this process; 0 if `/proc` does not have them.
pub(crate) fn own_start() -> u64 {
    Process::of(std::process::id()).map_or(0, |own| own.started)
}

/// Sends a signal to the process with this number that started then.
pub(crate) fn signal(pid: u32, started_ticks: u64, signal: Signal) {
    if let Some(process) = Process::of(pid).filter(|it| it.started == started_ticks) {
        process.signal(signal);
    }
}

/// Numbers of all processes that these have begotten, at any remove, by the process that has begotten them.
pub(crate) fn descendants_of(roots: &[u32]) -> Vec<Vec<u32>> {
    let all = all();
    let pids = |root: &u32| below(*root, &all).iter().map(|one| one.pid).collect();
    roots.iter().map(pids).collect()
}

/// All that this process has begotten, at any remove.
pub(crate) fn descendants() -> Vec<Process> {
    below(std::process::id(), &all())
}

fn below(root: u32, all: &[Process]) -> Vec<Process> {
    let mut children = BTreeMap::<u32, Vec<Process>>::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Taken out, so that it ends whatever the numbers say.
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            parents.push(child.pid);
        }
    }
    found
}

/// Ends what a dead shim has left: the members of its session, all processes of the run's own user, and those that have its mark
/// in the environment. Returns how many there were. A process that is sent SIGKILL begets no more, so it is over when nobody new is found.
pub(crate) fn kill_orphans(shim: Option<u32>, user: Option<u32>, run_dir: &Path) -> usize {
    let mark = [
        MARKER.as_bytes(),
        b"=",
        run_dir.as_os_str().as_encoded_bytes(),
    ]
    .concat();
    let mut killed = BTreeSet::new();
    loop {
        let all = all();
        // The number of a session is free again once all its members are gone. If a process has it, the session is that one's.
        let session = shim.filter(|shim| all.iter().all(|one| one.pid != *shim));
        let ours =
            |one: &Process| Some(one.session) == session || one.is_of(user) || one.is_marked(&mark);
        let fresh: Vec<_> = all
            .iter()
            .filter(|one| !killed.contains(&(one.pid, one.started)) && ours(one))
            .collect();
        if fresh.is_empty() {
            return killed.len();
        }
        for one in fresh {
            one.signal(Signal::KILL);
            killed.insert((one.pid, one.started));
        }
    }
}

/// Changes with each start of the machine.
pub(crate) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32) -> Process {
        Process {
            pid,
            parent,
            group: 0,
            session: 0,
            started: 0,
        }
    }

    #[test]
    fn a_line_of_proc_is_read_whatever_the_program_is_called() {
        let rest = "1 42 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9876 10 11";
        let check = |line: String, expected: Option<(u32, u32, u64)>| {
            let found = parse(&line).map(|one| (one.pid, one.session, one.started));
            assert_eq!(found, expected, "{line}");
        };
        check(format!("7 (sh) S {rest}"), Some((7, 41, 9876)));
        check(format!("7 (a) S 1 (b) R {rest}"), Some((7, 41, 9876)));
        check(format!("7 (sh) Z {rest}"), None);
        check("7 (sh) S 1 42 41".to_owned(), None);
        check("7 sh".to_owned(), None);
        check(String::new(), None);
    }

    #[test]
    fn whoever_descends_is_found_and_no_other() {
        let all = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 2)];
        let all = all.map(|(pid, parent)| process(pid, parent));
        let mut found: Vec<_> = below(2, &all).iter().map(|one| one.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4, 6]);
        assert!(below(7, &all).is_empty());
        let circle = [process(2, 3), process(3, 2)];
        assert_eq!(below(2, &circle).len(), 2);
    }
}
