//! The CPUs of a machine.

use super::{DiscoverError, text};
use crate::CpuSet;
use std::path::Path;

/// Those that this process may run on.
pub(super) fn affinity() -> Result<CpuSet, DiscoverError> {
    let mask = rustix::thread::sched_getaffinity(None)
        .map_err(|error| DiscoverError::Affinity(error.into()))?;
    let may = |cpu: &u32| usize::try_from(*cpu).is_ok_and(|cpu| mask.is_set(cpu));
    Ok(CpuSet::all().iter().filter(may).collect())
}

pub(super) fn online(root: &Path) -> Result<CpuSet, DiscoverError> {
    let (path, text) = text(root.join("sys/devices/system/cpu/online"))?;
    text.parse().map_err(|_| DiscoverError::Content { path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::machine_of;

    #[test]
    fn what_is_online_is_read_or_refused() {
        let check = |text: &str, expected: Option<&str>| {
            let root = machine_of(&[("sys/devices/system/cpu/online", text)]);
            let found = online(root.path()).ok().map(|cpus| cpus.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        check("0-3,6\n", Some("0-3,6"));
        check("all\n", None);
        assert!(online(Path::new("/nowhere")).is_err());
    }
}
