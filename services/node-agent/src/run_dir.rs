//! The directory of a run: what the agent and the shim tell each other outlives both.

use crate::{
    Bounds, End, RunKey,
    user::{RunUser, WORK},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

const NOT_STARTED: &str = "not_started.json";
/// No file of ours comes near; a larger one was written by somebody else.
const JSON_BYTES_MAX: u64 = 16 << 20;

/// The content of `run.json`: all that the shim needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub key: RunKey,
    pub command: Vec<String>,
    /// The whole environment, not an addition to another one.
    pub env: Vec<(String, String)>,
    /// Absent: the root directory.
    pub working_dir: Option<PathBuf>,
    /// What the agent has told it of itself, however it is started.
    pub told: Vec<(String, String)>,
    pub bounds: Bounds,
    /// Made by the agent, with its limits set.
    pub cgroup: Option<PathBuf>,
    /// A plug-in stands for the command: what it runs need not be what is limited.
    pub by_plugin: bool,
    /// Directory with all that the command may write; `None`: `work` in the run's directory.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
    /// User of the command; `None`: the agent's.
    #[serde(default)]
    pub user: Option<RunUser>,
}

impl Run {
    /// Limit of each process's data, where no cgroup limits the run as a whole; `None`: no limit. A plug-in's own memory is not what
    /// the bounds are about.
    pub fn data_bytes_max(&self) -> Option<u64> {
        let by_itself = self.cgroup.is_none() && !self.by_plugin;
        self.bounds.memory_bytes_max().filter(|_| by_itself)
    }
}

/// The content of `shim.json`: whom to look for when the shim is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shim {
    pub pid: u32,
    /// Start of the process since the machine's start, in ticks: it tells the shim from a later process with its number. 0: an
    /// earlier version has written it.
    #[serde(default)]
    pub started_ticks: u64,
    /// Numbers of processes mean nothing after the machine has started anew.
    pub boot_id: String,
    pub started_ms: i64,
}

/// The content of `stop.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub grace_ms: u64,
    #[serde(default)]
    pub why: StopReason,
}

/// Reason why a run is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    /// The cell or the agent wants it to end.
    #[default]
    Told,
    /// It uses more room on the disk than it may.
    OutOfDisk,
}

/// The content of `not_started.json`: why the command never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotStarted {
    pub code: u8,
}

#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not what was written: {source}")]
    Content {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{0} is no run's directory")]
    Name(PathBuf),
}

#[derive(Clone, Debug)]
pub(crate) struct RunDir(PathBuf);

impl RunDir {
    pub fn new(path: PathBuf) -> RunDir {
        RunDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Directory with all that the command may write, unless it is elsewhere.
    pub fn scratch(&self) -> PathBuf {
        self.0.join(WORK)
    }

    /// Has a writer for as long as the shim lives, and so tells of its death.
    pub fn alive(&self) -> PathBuf {
        self.0.join("alive")
    }

    /// A byte in it makes the shim look for `stop.json`.
    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// What the command reads.
    pub fn stdin(&self) -> PathBuf {
        self.0.join("stdin")
    }

    pub fn payload(&self) -> PathBuf {
        self.0.join("payload")
    }

    /// What a shim says that cannot go on.
    pub fn complaints(&self) -> PathBuf {
        self.0.join("shim.log")
    }

    pub fn write_run(&self, run: &Run) -> io::Result<()> {
        self.write("run.json", run, no_sync)
    }

    pub fn run(&self) -> Result<Option<Run>, Damaged> {
        self.read("run.json")
    }

    pub fn write_shim(&self, shim: &Shim) -> io::Result<()> {
        self.write("shim.json", shim, no_sync)
    }

    pub fn shim(&self) -> Result<Option<Shim>, Damaged> {
        self.read("shim.json")
    }

    pub fn write_stop(&self, stop: Stop) -> io::Result<()> {
        self.write("stop.json", &stop, no_sync)
    }

    pub fn stop(&self) -> Result<Option<Stop>, Damaged> {
        self.read("stop.json")
    }

    /// Opened before the stage becomes another user, and written if the command cannot be run. Empty: it could.
    pub fn create_not_started(&self) -> io::Result<File> {
        private().truncate(true).open(self.0.join(NOT_STARTED))
    }

    pub fn not_started(&self) -> Result<Option<NotStarted>, Damaged> {
        match fs::metadata(self.0.join(NOT_STARTED)) {
            Ok(metadata) if metadata.len() == 0 => Ok(None),
            _ => self.read(NOT_STARTED),
        }
    }

    /// Durable once it is there: the end of a run is said only once.
    pub fn write_end(&self, end: &End) -> io::Result<()> {
        self.write("end.json", end, File::sync_all)?;
        File::open(&self.0)?.sync_all()
    }

    pub fn end(&self) -> Result<Option<End>, Damaged> {
        self.read("end.json")
    }

    /// Whole or not at all, and readable by nobody else: an environment may hold secrets.
    fn write(
        &self,
        name: &str,
        content: &impl Serialize,
        sync: fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let unfinished = self.0.join(format!("{name}.new"));
        let text = serde_json::to_vec(content)?;
        let mut file = private().truncate(true).open(&unfinished)?;
        file.write_all(&text)?;
        sync(&file)?;
        fs::rename(unfinished, self.0.join(name))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Damaged> {
        let path = self.0.join(name);
        let mut text = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(JSON_BYTES_MAX).read_to_end(&mut text));
        match read {
            Ok(_) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| Damaged::Content { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Damaged::Read { path, source }),
        }
    }
}

/// What need not outlive the machine: neither does the run.
fn no_sync(_: &File) -> io::Result<()> {
    Ok(())
}

/// For writing, and made if need be.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, RunDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = RunDir::new(folder.path().to_owned());
        (folder, dir)
    }

    #[test]
    fn what_is_written_is_read() {
        let (_folder, dir) = dir();
        assert!(dir.stop().expect("nothing is no damage").is_none());
        for grace_ms in [5, 0] {
            let stop = Stop {
                grace_ms,
                why: StopReason::OutOfDisk,
            };
            dir.write_stop(stop).expect("written");
            assert_eq!(dir.stop().expect("read"), Some(stop));
        }
    }

    #[test]
    fn garbage_is_damage_and_not_nothing() {
        let (_folder, dir) = dir();
        for garbage in [&b""[..], b"{}", b"{\"exit\":", b"\xff\xfe", b"[1,2]"] {
            fs::write(dir.path().join("end.json"), garbage).expect("written");
            assert!(
                matches!(dir.end(), Err(Damaged::Content { .. })),
                "{garbage:?}"
            );
        }
        fs::create_dir(dir.path().join("run.json")).expect("made");
        assert!(matches!(dir.run(), Err(Damaged::Read { .. })));
    }
}
