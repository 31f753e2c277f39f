//! Users of runs: each command runs as a numeric user that no other process of the machine has. It can neither signal nor read
//! the agent, its shim or another run, and sees a `/tmp`, `/var/tmp` and `/dev/shm` of its own.

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::prctl::set_no_new_privs,
    unistd::{Gid, Uid, fchown, setgroups, setresgid, setresuid},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileTypeExt, MetadataExt, chown},
    },
    path::{Path, PathBuf},
};

/// Range of users, of which each run gets one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunUsers {
    /// Lowest number. Users and groups of the range must not be used for anything else.
    pub first: u32,
    /// Number of users: at least as many as runs at a time.
    pub count: u32,
    /// Supplementary groups of every run, such as the group of GPU device files.
    #[serde(default)]
    pub groups: Vec<u32>,
}

/// User of one run; its group has the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunUser {
    pub id: u32,
    pub groups: Vec<u32>,
}

/// Reason why runs cannot have users of their own.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoRunUsers {
    #[error(
        "run_users: first = {first} and count = {count} is not a range of users: first is at least 1, count at least 1, and the \
         last user at most 4294967294"
    )]
    Range { first: u32, count: u32 },
    #[error(
        "run_users needs the capability {missing}, which this process lacks: start the agent as root, or remove run_users, and \
         commands run as the agent's user"
    )]
    Capability { missing: &'static str },
    #[error(
        "run_users: users {first} to {last} do not exist in this user namespace, see /proc/self/uid_map: choose a range that does"
    )]
    NotMapped { first: u32, last: u32 },
    #[error(
        "run_users: this machine refuses namespaces for runs: {0}; allow them, or remove run_users, and commands run as the agent's \
         user"
    )]
    NoNamespaces(String),
    #[error(
        "run_users needs work_dir: a directory outside of state_dir, which other users may not enter"
    )]
    NoWorkDir,
    #[error(
        "run_users: other users may not enter {0}, which is above work_dir: `chmod o+x` it, or choose another work_dir"
    )]
    Closed(PathBuf),
    #[error(
        "run_users and exec_plugin exclude each other: a plug-in chooses the user of its container"
    )]
    Plugin,
}

/// Capabilities that the stage and the shim need, by their bits.
const CAPABILITIES: [(u32, &str); 7] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
];

impl RunUsers {
    fn last(&self) -> Option<u32> {
        let last = self.first.checked_add(self.count.checked_sub(1)?)?;
        // The highest number means "no user".
        (self.first > 0 && last < u32::MAX).then_some(last)
    }

    /// Checks that runs on this machine can have these users.
    pub(crate) fn check(&self, work_dir: Option<&Path>, plugin: bool) -> Result<(), NoRunUsers> {
        let (first, count) = (self.first, self.count);
        let last = self.last().ok_or(NoRunUsers::Range { first, count })?;
        if plugin {
            return Err(NoRunUsers::Plugin);
        }
        let work_dir = work_dir.ok_or(NoRunUsers::NoWorkDir)?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(missing) = missing_capability(&status) {
            return Err(NoRunUsers::Capability { missing });
        }
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if !is_mapped(&map, first, last) {
            return Err(NoRunUsers::NotMapped { first, last });
        }
        namespaces_are_allowed()?;
        let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|it| it.mode() & 0o001 == 0);
        match work_dir.ancestors().find(is_closed) {
            Some(closed) => Err(NoRunUsers::Closed(closed.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns the first free user after the last one that was given; a number is given again as late as possible.
    pub(crate) fn pick(&self, last_given: Option<u32>, used: &BTreeSet<u32>) -> Option<RunUser> {
        let last = self.last()?;
        let next = last_given.filter(|given| (self.first..last).contains(given));
        let next = next.map_or(self.first, |given| given + 1);
        let id = (next..=last)
            .chain(self.first..next)
            .find(|id| !used.contains(id))?;
        let groups = self.groups.clone();
        Some(RunUser { id, groups })
    }
}

/// Tries it in a thread, which has the namespaces alone and takes them with it.
fn namespaces_are_allowed() -> Result<(), NoRunUsers> {
    let tried = std::thread::spawn(enter_namespaces).join();
    let tried = tried.unwrap_or_else(|_| Err(io::Error::other("the try panicked")));
    tried.map_err(|error| NoRunUsers::NoNamespaces(error.to_string()))
}

fn enter_namespaces() -> io::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC)?;
    // What the machine unmounts later is unmounted here, too, and nothing the other way round.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    Ok(mount(NONE, "/", NONE, flags, NONE)?)
}

fn missing_capability(status: &str) -> Option<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0);
    let missing = |(bit, _): &&(u32, _)| effective >> bit & 1 == 0;
    CAPABILITIES.iter().find(missing).map(|(_, name)| *name)
}

/// Lines of `map` are: first number here, first number outside, count.
fn is_mapped(map: &str, first: u32, last: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>());
        let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        inside <= first.into() && u64::from(last) < inside + count
    })
}

/// Directories that every user of a machine may write, and that a run has for itself.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];
const SHARED_MEMORY: &str = "/dev/shm";

/// Directories of a run: `work`, where its command works, and `tmp`, which it has as [`SHARED`].
pub(crate) fn make_scratch(scratch: &Path, user: Option<&RunUser>) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let make = |path: &Path, mode| fs::DirBuilder::new().mode(mode).create(path);
    let Some(user) = user else {
        make(scratch, 0o700)?;
        return make(&scratch.join(WORK), 0o700);
    };
    make(scratch, 0o711)?;
    // A mask of the agent's starter does not count.
    fs::set_permissions(scratch, std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    for name in [WORK, TMP] {
        let path = scratch.join(name);
        make(&path, 0o700)?;
        chown(&path, Some(user.id), Some(user.id))?;
    }
    Ok(())
}

pub(crate) const WORK: &str = "work";
const TMP: &str = "tmp";

/// Makes this process, which has one thread, a process of the run's user. What it may write from now on is below `scratch`, and
/// in a file system in memory of `shm_bytes` at most; `None`: half of the machine's memory.
pub(crate) fn enter(user: &RunUser, scratch: &Path, shm_bytes: Option<u64>) -> io::Result<()> {
    own_directories(scratch, shm_bytes)?;
    let id = user.id;
    // A command may open `/dev/stdout`, which is this pipe.
    own(io::stdin(), id)?;
    own(io::stdout(), id)?;
    own(io::stderr(), id)?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups)?;
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    // No program that is set-uid makes it another user.
    set_no_new_privs()?;
    Ok(())
}

fn own_directories(scratch: &Path, shm_bytes: Option<u64>) -> io::Result<()> {
    const NONE: Option<&str> = None;
    enter_namespaces()?;
    let whole = File::open(scratch)?;
    let tmp = File::open(scratch.join(TMP))?;
    let bind = |source: &File, target: &Path| -> io::Result<()> {
        let source = format!("/proc/self/fd/{}", source.as_raw_fd());
        let flags = MsFlags::MS_BIND;
        Ok(mount(Some(source.as_str()), target, NONE, flags, NONE)?)
    };
    let real = |path: &str| fs::symlink_metadata(path).is_ok_and(|it| it.is_dir());
    for shared in SHARED.into_iter().filter(|path| real(path)) {
        bind(&tmp, Path::new(shared))?;
        if scratch.starts_with(shared) {
            // It would be hidden by what now is above it.
            fs::create_dir_all(scratch)?;
            bind(&whole, scratch)?;
        }
    }
    if real(SHARED_MEMORY) {
        let size = shm_bytes.map_or("50%".to_owned(), |bytes| bytes.to_string());
        let options = format!("mode=1777,size={size}");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let kind = Some("tmpfs");
        mount(kind, SHARED_MEMORY, kind, flags, Some(options.as_str()))?;
    }
    Ok(())
}

/// Devices such as `/dev/null` belong to everybody.
fn own(stream: impl AsFd, id: u32) -> io::Result<()> {
    let file = File::from(stream.as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        fchown(file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(first: u32, count: u32) -> RunUsers {
        let groups = Vec::new();
        RunUsers {
            first,
            count,
            groups,
        }
    }

    #[test]
    fn users_are_given_again_as_late_as_possible() {
        let check = |given: Option<u32>, used: &[u32], expected: Option<u32>| {
            let used = used.iter().copied().collect();
            let picked = users(100, 3).pick(given, &used);
            assert_eq!(picked.map(|user| user.id), expected, "{given:?} {used:?}");
        };
        check(None, &[], Some(100));
        check(Some(100), &[], Some(101));
        check(Some(102), &[], Some(100));
        check(Some(100), &[101], Some(102));
        check(Some(101), &[102], Some(100));
        check(Some(101), &[102, 100], Some(101));
        check(None, &[100, 101, 102], None);
        // The range was another one before.
        check(Some(7), &[], Some(100));
        check(Some(u32::MAX), &[], Some(100));
    }

    #[test]
    fn ranges_have_users_and_not_root() {
        let check = |first, count, expected| assert_eq!(users(first, count).last(), expected);
        check(1, 1, Some(1));
        check(100, 50, Some(149));
        check(0, 5, None);
        check(5, 0, None);
        check(u32::MAX, 1, None);
        check(u32::MAX - 1, 1, Some(u32::MAX - 1));
        check(u32::MAX - 1, 2, None);
        let none = users(0, 5).check(Some(Path::new("/")), false);
        assert_eq!(none, Err(NoRunUsers::Range { first: 0, count: 5 }));
        let none = users(1, 5).check(None, false);
        assert_eq!(none, Err(NoRunUsers::NoWorkDir));
        let none = users(1, 5).check(Some(Path::new("/")), true);
        assert_eq!(none, Err(NoRunUsers::Plugin));
    }

    #[test]
    fn what_the_kernel_says_of_the_agent_is_read() {
        let check = |status: &str, expected| assert_eq!(missing_capability(status), expected);
        check("Name:\ta\nCapEff:\t000001ffffffffff\n", None);
        check("CapEff:\t0000000000000000\n", Some("CAP_CHOWN"));
        check("CapEff:\t00000000000000e3\n", Some("CAP_SYS_PTRACE"));
        check("CapEff:\t00000000a80c25fb\n", Some("CAP_SYS_ADMIN"));
        check("", Some("CAP_CHOWN"));
        let check = |map: &str, first, last, expected| {
            assert_eq!(
                is_mapped(map, first, last),
                expected,
                "{map} {first} {last}"
            );
        };
        check("         0          0 4294967295\n", 1, u32::MAX - 1, true);
        check("0 1000 1\n1 100000 65536\n", 1, 65_536, true);
        check("0 1000 1\n1 100000 65536\n", 65_000, 65_537, false);
        check("garbage\n\n", 1, 2, false);
    }
}
