//! By what runs are held to their bounds on this machine.

use crate::cgroup::{self, NoCgroup};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// A cgroup for each run, made below this one. The kernel counts and limits the run as a whole.
    CgroupV2(PathBuf),
    /// A session for each run, with limits on each of its processes. Nothing limits their sum.
    ProcessGroup,
}

/// The best means that there is.
#[derive(Debug)]
pub struct Detected {
    pub means: Means,
    /// Why it is no cgroup.
    pub why_not: Option<NoCgroup>,
}

impl Means {
    /// Moves the agent into a cgroup of its own, `agent`, if it may: processes and limited cgroups cannot be side by side.
    pub fn detect() -> Detected {
        Means::detect_under(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn detect_under(proc: &Path, mount: &Path) -> Detected {
        match cgroup::own(proc, mount).and_then(|own| cgroup::prepare(&own)) {
            Ok(runs) => Detected {
                means: Means::CgroupV2(runs),
                why_not: None,
            },
            Err(why_not) => Detected {
                means: Means::ProcessGroup,
                why_not: Some(why_not),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What the controllers of the agent's cgroup are, and what comes of it: the controllers that runs get, or why none.
    fn check(own: &str, controllers: Option<&str>, expected: Result<&str, &str>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (proc, mount) = (folder.path().join("proc"), folder.path().join("cgroup"));
        fs::create_dir_all(proc.join("self")).expect("made");
        fs::write(proc.join("self/cgroup"), own).expect("written");
        let base = mount.join("system.slice/apportion.service");
        fs::create_dir_all(&base).expect("made");
        if let Some(controllers) = controllers {
            fs::write(mount.join("cgroup.controllers"), controllers).expect("written");
            fs::write(base.join("cgroup.controllers"), controllers).expect("written");
        }
        let detected = Means::detect_under(&proc, &mount);
        match expected {
            Ok(enabled) => {
                assert!(detected.why_not.is_none(), "{:?}", detected.why_not);
                assert_eq!(detected.means, Means::CgroupV2(base.join("runs")));
                for parent in [&base, &base.join("runs")] {
                    let read = fs::read_to_string(parent.join("cgroup.subtree_control"));
                    assert_eq!(read.expect("enabled"), enabled);
                }
                let moved = fs::read_to_string(base.join("agent/cgroup.procs"));
                assert_eq!(moved.is_ok(), !own.ends_with("/agent\n"));
            }
            Err(reason) => {
                assert_eq!(detected.means, Means::ProcessGroup);
                let why_not = detected.why_not.expect("a reason").to_string();
                assert!(why_not.contains(reason), "{why_not}");
            }
        }
    }

    #[test]
    fn a_cgroup_that_was_delegated_is_used() {
        let own = "0::/system.slice/apportion.service\n";
        check(
            own,
            Some("cpuset cpu io memory pids\n"),
            Ok("+cpu +memory +cpuset +pids"),
        );
        check(own, Some("cpu memory\n"), Ok("+cpu +memory"));
        check(
            "0::/system.slice/apportion.service/agent\n",
            Some("cpu memory\n"),
            Ok("+cpu +memory"),
        );
        check(own, Some("cpu io pids\n"), Err("memory"));
        check(own, Some("\n"), Err("cpu"));
        check(own, None, Err("cgroup v2"));
        check("3:cpuset:/\n", Some("cpu memory\n"), Err("cgroup v2"));
        check("0::/elsewhere\n", Some("cpu memory\n"), Err("elsewhere"));
        check("", Some("cpu memory\n"), Err("cgroup v2"));
    }
}
