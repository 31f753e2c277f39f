//! Room on the disk that runs use: how much a run has, which runs have too much, and its removal.

use crate::RunKey;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// A run with more files and directories is not counted further.
const FILES_MAX: usize = 1_000_000;
/// A run is not ended for want of room on the disk if it has less, in bytes.
const SMALL: u64 = 64 << 20;
/// Directories within each other that are removed without moving them.
const DEPTH: usize = 64;

/// Room that one run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Bytes(u64),
    /// More than [`FILES_MAX`] files, or paths that are longer than the kernel takes.
    Uncountable,
}

/// Room of the file system of the working directories, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub size: u64,
    pub free: u64,
}

/// Limits of the room that runs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of one run.
    pub run_bytes_max: u64,
    /// Bytes of the file system that stay free.
    pub kept_free: u64,
}

impl Limits {
    /// `bytes_max` 0: a quarter of the file system. Half of the room at which the node takes no new work stays free.
    pub fn new(bytes_max: u64, pressure_percent: u8, disk: Disk) -> Limits {
        let percent = disk.size / 100 * u64::from(pressure_percent);
        Limits {
            run_bytes_max: if bytes_max == 0 {
                disk.size / 4
            } else {
                bytes_max
            },
            kept_free: percent / 2,
        }
    }
}

/// Reason why a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Excess {
    #[error("its files have {bytes} bytes, and a run may have {limit}")]
    Own { bytes: u64, limit: u64 },
    #[error("it has more than {FILES_MAX} files, or paths that are too long to be counted")]
    Uncountable,
    #[error(
        "the disk of the node has {free} bytes left, {kept_free} stay free, and of all runs this one has the most: {bytes}"
    )]
    Disk {
        bytes: u64,
        free: u64,
        kept_free: u64,
    },
}

/// Returns the runs that have more room than they may, and, where the disk is short of room without them, the largest one.
pub(crate) fn excesses(
    rooms: &[(RunKey, Room)],
    limits: Limits,
    disk: Disk,
) -> Vec<(RunKey, Excess)> {
    let limit = limits.run_bytes_max;
    let own = |room| match room {
        Room::Uncountable => Some(Excess::Uncountable),
        Room::Bytes(bytes) => (bytes > limit).then_some(Excess::Own { bytes, limit }),
    };
    let mut found: Vec<_> = rooms
        .iter()
        .filter_map(|(key, room)| Some((*key, own(*room)?)))
        .collect();
    let kept_free = limits.kept_free;
    if found.is_empty() && disk.free < kept_free {
        let sizes = rooms.iter().filter_map(|(key, room)| match room {
            Room::Bytes(bytes) => Some((*bytes, *key)),
            Room::Uncountable => None,
        });
        let largest = sizes.max().filter(|(bytes, _)| *bytes >= SMALL);
        found.extend(largest.map(|(bytes, key)| {
            let free = disk.free;
            let excess = Excess::Disk {
                bytes,
                free,
                kept_free,
            };
            (key, excess)
        }));
    }
    found
}

/// Returns the room of a directory and all below it, without the targets of links. What goes away meanwhile is not counted.
///
/// `processes`: those of the run, whose open files count also when their names have been removed.
pub(crate) fn measure(dir: &Path, processes: &[u32]) -> Room {
    let (mut bytes, mut files) = (removed_but_open(dir, processes), 0usize);
    let mut linked = BTreeSet::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(dir) = rest.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
                return Room::Uncountable;
            }
            // Its user may have closed it; root reads it all the same.
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            files += 1;
            if files > FILES_MAX {
                return Room::Uncountable;
            }
            // Not followed. The kernel looks it up by its directory, so its path may be longer than it takes.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                rest.push(entry.path());
            } else if metadata.nlink() > 1 && !linked.insert(metadata.ino()) {
                continue;
            }
            bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
        }
    }
    Room::Bytes(bytes)
}

/// Bytes of files without a name, on the file system of this directory.
fn removed_but_open(dir: &Path, processes: &[u32]) -> u64 {
    let Ok(device) = fs::metadata(dir).map(|dir| dir.dev()) else {
        return 0;
    };
    let open = processes.iter().flat_map(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        open.into_iter().flatten().flatten()
    });
    let files = open.filter_map(|open| fs::metadata(open.path()).ok());
    let files = files.filter(|file| file.is_file() && file.nlink() == 0 && file.dev() == device);
    let files: BTreeMap<_, _> = files
        .map(|file| (file.ino(), file.blocks() * 512))
        .collect();
    files.values().sum()
}

/// Removes a directory with all below it, however deep a run has made it. Of a directory that is not there, nothing is left to do.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    match flatten(dir).and_then(|()| fs::remove_dir_all(dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Moves directories that are deeper than [`DEPTH`] up, so that none is too deep to be removed.
fn flatten(dir: &Path) -> io::Result<()> {
    let mut rest = VecDeque::from([(dir.to_owned(), 0)]);
    let mut moved = 0;
    while let Some((path, depth)) = rest.pop_front() {
        for entry in open(&path)?.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let below = entry.path();
            if depth < DEPTH && below.as_os_str().len() < PATH_BYTES {
                rest.push_back((below, depth + 1));
                continue;
            }
            let above: PathBuf = dir.join(format!(".apportion-removed-{moved}"));
            moved += 1;
            // One that the run has named so is in the way; then the next number is taken.
            if above.exists() {
                rest.push_back((path.clone(), depth));
                break;
            }
            fs::rename(&below, &above)?;
            rest.push_back((above, 1));
        }
    }
    Ok(())
}

/// A run may have closed its directory.
fn open(path: &Path) -> io::Result<fs::ReadDir> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            fs::read_dir(path)
        }
        opened => opened,
    }
}

/// Far below what the kernel takes, by the length of one name and more.
const PATH_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::symlink};

    fn key(revision: u64) -> RunKey {
        RunKey::new("0190f1c2-7e3a-7000-8000-00000000000a", revision).expect("a key")
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn who_has_too_much_is_ended_and_of_a_full_disk_the_largest() {
        let check = |rooms: &[Option<u64>], free_mib: u64, expected: &[u64]| {
            let disk = Disk {
                size: 10_000 * MIB,
                free: free_mib * MIB,
            };
            let room =
                |mib: &Option<u64>| mib.map_or(Room::Uncountable, |mib| Room::Bytes(mib * MIB));
            let rooms: Vec<_> = (0..).map(key).zip(rooms.iter().map(room)).collect();
            let found = excesses(&rooms, Limits::new(0, 4, disk), disk);
            let found: Vec<u64> = found.iter().map(|(key, _)| key.revision).collect();
            assert_eq!(found, expected, "{rooms:?} {free_mib}");
        };
        check(&[], 0, &[]);
        // A quarter of the disk.
        check(&[Some(2500), Some(2501), None], 5000, &[1, 2]);
        // 2 % stay free.
        check(&[Some(100), Some(300), Some(200)], 200, &[]);
        check(&[Some(100), Some(300), Some(200)], 199, &[1]);
        check(&[Some(10), Some(63)], 0, &[]);
        // The room of those that have too much is free soon.
        check(&[Some(100), Some(2501)], 0, &[1]);
        let disk = Disk {
            size: 1000,
            free: 0,
        };
        let (run_bytes_max, kept_free) = (7, 0);
        let expected = Limits {
            run_bytes_max,
            kept_free,
        };
        assert_eq!(Limits::new(7, 0, disk), expected);
    }

    #[test]
    fn files_count_once_and_those_of_links_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let bytes = |folder: &Path| match measure(folder, &[]) {
            Room::Bytes(bytes) => bytes,
            Room::Uncountable => panic!("uncountable"),
        };
        fs::create_dir(at("below")).expect("made");
        let before = bytes(folder.path());
        fs::write(at("below/file"), vec![1; 100_000]).expect("written");
        let after = bytes(folder.path());
        assert!(
            (100_000..200_000).contains(&(after - before)),
            "{before} {after}"
        );
        fs::hard_link(at("below/file"), at("same")).expect("linked");
        assert_eq!(bytes(folder.path()), after);
        fs::write(other.path().join("large"), vec![1; 1 << 20]).expect("written");
        symlink(other.path(), at("link")).expect("linked");
        assert!(bytes(folder.path()) < after + 50_000);
        let open = File::open(at("below/file")).expect("opened");
        fs::remove_file(at("below/file")).expect("removed");
        fs::remove_file(at("same")).expect("removed");
        assert!(bytes(folder.path()) < 100_000);
        let own = measure(folder.path(), &[std::process::id()]);
        assert!(
            matches!(own, Room::Bytes(bytes) if bytes >= 100_000),
            "{own:?}"
        );
        drop(open);
        assert_eq!(measure(&at("nothing"), &[]), Room::Bytes(0));
    }

    /// Makes a chain of directories that no path is long enough for, and returns the topmost.
    fn deep(folder: &Path, name: &str, depth: usize) {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        let mut dir = File::open(folder).expect("opened");
        for _ in 0..depth {
            mkdirat(&dir, name, Mode::RWXU).expect("made");
            let below = openat(&dir, name, OFlags::RDONLY, Mode::empty()).expect("opened");
            dir = File::from(below);
        }
    }

    #[test]
    fn what_is_too_deep_to_be_counted_is_removed_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("work");
        fs::create_dir(&dir).expect("made");
        deep(&dir, "d", 2500);
        deep(&dir, &"n".repeat(200), 100);
        fs::create_dir(dir.join(".apportion-removed-0")).expect("made");
        fs::write(dir.join(".apportion-removed-1"), "in the way").expect("written");
        assert_eq!(measure(&dir, &[]), Room::Uncountable);
        let closed = dir.join("closed");
        fs::create_dir_all(closed.join("below")).expect("made");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("closed");
        remove(&dir).expect("removed");
        assert!(!dir.exists());
        remove(&dir).expect("nothing is left to do");
    }
}
