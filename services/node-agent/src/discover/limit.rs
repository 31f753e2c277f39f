//! What the cgroup of this process lets it use, as in a container.

use std::{fs, path::Path};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// The lowest of its own and of all cgroups above it. Only version 2 is read.
pub(super) fn of_cgroup(root: &Path) -> Limit {
    let mount = root.join("sys/fs/cgroup");
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.map(|path| mount.join(path));
    let mut limit = Limit::default();
    let levels = own.iter().flat_map(|own| own.ancestors());
    for level in levels.take_while(|level| level.starts_with(&mount)) {
        let text = |file: &str| fs::read_to_string(level.join(file)).unwrap_or_default();
        limit.cpu_milli = lower(limit.cpu_milli, cpu_milli(&text("cpu.max")));
        limit.memory_bytes = lower(limit.memory_bytes, text("memory.max").trim().parse().ok());
    }
    limit
}

fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// A quota and its period, or `max` without a limit.
fn cpu_milli(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let quota: u64 = quota.parse().ok()?;
    quota.checked_mul(1000)?.checked_div(period.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::machine_of;

    #[test]
    fn the_lowest_limit_on_the_way_up_holds() {
        let check = |own: &str, expected: (Option<u64>, Option<u64>)| {
            let root = machine_of(&[
                ("proc/self/cgroup", own),
                ("sys/fs/cgroup/a/cpu.max", "200000 100000\n"),
                ("sys/fs/cgroup/a/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "4096\n"),
                ("sys/fs/cgroup/a/c/cpu.max", "50000 0\n"),
                ("sys/fs/cgroup/a/c/memory.max", "garbage\n"),
            ]);
            let limit = of_cgroup(root.path());
            assert_eq!((limit.cpu_milli, limit.memory_bytes), expected, "{own}");
        };
        check("0::/a/b\n", (Some(2000), Some(4096)));
        check("1:cpu:/x\n0::/a\n", (Some(2000), None));
        check("0::/a/c\n", (Some(2000), None));
        check("0::/\n", (None, None));
        check("1:cpu:/a\n", (None, None));
        check("", (None, None));
    }
}
