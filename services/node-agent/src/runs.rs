//! All runs of a node.

use crate::{
    Bounds, Damaged, Ended, LogPart, Means, RunKey, Work, fifo, lease, log,
    lost::{conclude, end_lost},
    run_dir::{RunDir, Stop},
    start::{Start, StartError, UNFINISHED, remove_if_there, spawn_shim},
};
use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{net::unix::pipe, sync::mpsc, task::JoinSet};

/// Directories that are being removed begin so.
const GONE: &str = ".gone-";
/// Two agents on one directory would each take the other's runs for their own.
const LOCK: &str = "lock";

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the directories of runs are.
    pub dir: PathBuf,
    pub means: Means,
    /// The program that has the subcommands `shim` and `stage`. [`Settings::OWN_PROGRAM`] is the agent itself, also after its
    /// file was replaced.
    pub program: PathBuf,
    /// The site's own starter of containers. With it, it is what runs for every work.
    pub exec_plugin: Option<PathBuf>,
}

impl Settings {
    pub const OWN_PROGRAM: &str = "/proc/self/exe";
}

/// A run of an earlier life of the agent.
#[derive(Debug)]
pub enum Found {
    /// Its end comes by [`Runs::next`].
    Running(RunKey),
    /// It waits to be forgotten.
    Ended(Ended),
    /// Nothing is done about it. With a key, it can be forgotten.
    Damaged {
        path: PathBuf,
        key: Option<RunKey>,
        error: Damaged,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another agent has {0}")]
    InUse(PathBuf),
    #[error("{path}: {source}")]
    Directory { path: PathBuf, source: io::Error },
}

/// What cannot be done to a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("there is no run {0}")]
    NotFound(RunKey),
    #[error("{0} still runs")]
    StillRunning(RunKey),
    #[error("{key}: {source}")]
    Io { key: RunKey, source: io::Error },
}

/// Lives in a Tokio runtime. The runs do not: dropped, it leaves them running, and finds them when it is opened anew.
#[derive(Debug)]
pub struct Runs {
    settings: Settings,
    /// Says of each shim when it is gone.
    watchers: Mutex<JoinSet<()>>,
    ended: mpsc::UnboundedSender<Ended>,
    endings: tokio::sync::Mutex<mpsc::UnboundedReceiver<Ended>>,
    lock: File,
}

impl Runs {
    /// With what an earlier life of the agent has left.
    pub fn open(mut settings: Settings) -> Result<(Runs, Vec<Found>), OpenError> {
        let path = settings.dir.clone();
        let failed = |source| OpenError::Directory {
            path: path.clone(),
            source,
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&settings.dir).map_err(failed)?;
        // Shims do not work where the agent does.
        settings.dir = settings.dir.canonicalize().map_err(failed)?;
        let lock = File::create(settings.dir.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let (ended, endings) = mpsc::unbounded_channel();
        let runs = Runs {
            settings,
            watchers: Mutex::new(JoinSet::new()),
            ended,
            endings: tokio::sync::Mutex::new(endings),
            lock,
        };
        let found = runs.look_around().map_err(failed)?;
        Ok((runs, found))
    }

    /// Where the directories of runs are.
    pub fn dir(&self) -> &Path {
        &self.settings.dir
    }

    /// What the run was told by this name when it was started; none: nothing, or there is no run.
    pub fn variable(&self, key: RunKey, name: &str) -> Option<String> {
        let run = self.dir_of(key).run().ok()??;
        let mut told = run.told.into_iter();
        told.find_map(|(variable, value)| (variable == name).then_some(value))
    }

    /// By what runs are held to their bounds.
    pub fn means(&self) -> &Means {
        &self.settings.means
    }

    /// Starts the shim, and does not wait for the command: how that fares comes by [`Runs::next`] and in the log.
    ///
    /// Some milliseconds of work with files and processes, without a wait for anybody.
    pub fn start(
        &self,
        key: RunKey,
        work: &Work,
        bounds: &Bounds,
        extra_env: &[(String, String)],
    ) -> Result<(), StartError> {
        let start = Start {
            key,
            work,
            bounds,
            extra_env,
            means: &self.settings.means,
            plugin: self.settings.exec_plugin.as_deref(),
        };
        start.check()?;
        let dir = self.dir_of(key);
        let mut watchers = self.watchers();
        start.make_dir(&dir)?;
        let started = fifo::reader(&dir.alive()).and_then(|reader| {
            let reader = pipe::Receiver::from_file(reader)?;
            let shim = spawn_shim(&self.settings.program, &dir)?;
            Ok((reader, shim))
        });
        match started {
            Ok((reader, shim)) => self.watch(&mut watchers, key, reader, Some(shim)),
            Err(error) => {
                let _ = self.remove(key, &dir);
                return Err(StartError::Shim(error));
            }
        }
        Ok(())
    }

    /// SIGTERM to all of the run, and SIGKILL once the grace is over. The shim sees to both, whatever becomes of the agent. Does
    /// nothing to a run that is over. Said again, it can shorten the grace.
    pub fn stop(&self, key: RunKey, grace: Duration) -> Result<(), RunError> {
        let dir = self.there(key)?;
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        // The shim may not have heard the last word yet, and would miss that it was a shorter one.
        let earlier = dir.stop().ok().flatten();
        let grace_ms = earlier.map_or(grace_ms, |earlier| earlier.grace_ms.min(grace_ms));
        let told = dir
            .write_stop(Stop { grace_ms })
            .and_then(|()| fifo::poke(&dir.control()));
        told.map_err(|source| RunError::Io { key, source })
    }

    /// The next run that is over, each once in the life of this. A future that is dropped loses none.
    pub async fn next(&self) -> Ended {
        let ended = self.endings.lock().await.recv().await;
        match ended {
            Some(ended) => ended,
            // The sender is ours.
            None => std::future::pending().await,
        }
    }

    /// At most `bytes_max` bytes of what the run wrote, from `from_offset` on.
    pub fn log(
        &self,
        key: RunKey,
        from_offset: u64,
        bytes_max: usize,
    ) -> Result<LogPart, RunError> {
        let dir = self.there(key)?;
        let end = dir.end().ok().flatten().map(|end| end.usage.log_bytes);
        log::read(dir.path(), from_offset, bytes_max, end)
            .map_err(|source| RunError::Io { key, source })
    }

    /// Removes what is kept of a run that is over, with its log.
    pub fn forget(&self, key: RunKey) -> Result<(), RunError> {
        let dir = self.there(key)?;
        if living(&dir).is_ok_and(|reader| reader.is_some()) {
            return Err(RunError::StillRunning(key));
        }
        self.remove(key, &dir)
            .map_err(|source| RunError::Io { key, source })
    }

    /// Half-removed is removed, also for a later life of the agent.
    fn remove(&self, key: RunKey, dir: &RunDir) -> io::Result<()> {
        let cgroup = dir.run().ok().flatten().and_then(|run| run.cgroup);
        if let Some(cgroup) = cgroup {
            crate::cgroup::remove(&cgroup);
        }
        let gone = self.settings.dir.join(format!("{GONE}{key}"));
        remove_if_there(&gone)?;
        fs::rename(dir.path(), &gone)?;
        fs::remove_dir_all(gone)
    }

    fn dir_of(&self, key: RunKey) -> RunDir {
        RunDir::new(self.settings.dir.join(key.to_string()))
    }

    fn there(&self, key: RunKey) -> Result<RunDir, RunError> {
        let dir = self.dir_of(key);
        if dir.path().is_dir() {
            Ok(dir)
        } else {
            Err(RunError::NotFound(key))
        }
    }

    fn look_around(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        let mut watchers = self.watchers();
        for entry in fs::read_dir(&self.settings.dir)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name == LOCK || name == lease::FILE {
                continue;
            }
            if name == lease::PART {
                fs::remove_file(&path)?;
                continue;
            }
            if name.starts_with(UNFINISHED) || name.starts_with(GONE) {
                if let Err(error) = fs::remove_dir_all(&path) {
                    tracing::warn!(path = %path.display(), %error, "cannot be removed");
                }
                continue;
            }
            let key = RunKey::from_name(&name).filter(|_| path.is_dir());
            let one = key.ok_or_else(|| Damaged::Name(path.clone()));
            let one = one.and_then(|key| self.examine(&mut watchers, key, &path));
            found.push(one.unwrap_or_else(|error| Found::Damaged { path, key, error }));
        }
        Ok(found)
    }

    fn examine(
        &self,
        watchers: &mut JoinSet<()>,
        key: RunKey,
        path: &Path,
    ) -> Result<Found, Damaged> {
        let dir = RunDir::new(path.to_owned());
        let reader =
            living(&dir).and_then(|reader| reader.map(pipe::Receiver::from_file).transpose());
        let reader = reader.map_err(|source| Damaged::Read {
            path: dir.alive(),
            source,
        })?;
        match reader {
            Some(reader) => {
                self.watch(watchers, key, reader, None);
                Ok(Found::Running(key))
            }
            None => conclude(key, &dir).map(|end| Found::Ended(Ended { key, end })),
        }
    }

    fn watch(
        &self,
        watchers: &mut JoinSet<()>,
        key: RunKey,
        reader: pipe::Receiver,
        shim: Option<Child>,
    ) {
        // Those that are done would be kept until they are asked for.
        while watchers.try_join_next().is_some() {}
        let (dir, ended) = (self.dir_of(key), self.ended.clone());
        watchers.spawn(async move {
            until_closed(&reader).await;
            let concluded = tokio::task::spawn_blocking(move || {
                // It has closed all it had, so it is about to be gone.
                if let Some(mut shim) = shim
                    && let Err(error) = shim.wait()
                {
                    tracing::warn!(%key, %error, "a shim cannot be waited for");
                }
                // A watch that outlives what it watched has nothing to say.
                dir.path().is_dir().then(|| {
                    conclude(key, &dir).unwrap_or_else(|error| {
                        tracing::error!(%key, %error, "what a shim has left cannot be read");
                        end_lost(key, &dir, None)
                    })
                })
            });
            match concluded.await {
                // Whoever receives it is gone only together with this.
                Ok(Some(end)) => drop(ended.send(Ended { key, end })),
                Ok(None) => {}
                Err(error) => tracing::error!(%key, %error, "how a run ended was not found out"),
            }
        });
    }

    /// Nothing that panics leaves it half changed.
    fn watchers(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Runs {
    /// A process that is just being started by another thread has the file, too, until it has become its program.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the directory of runs stays locked");
        }
    }
}

/// The reading end of a pipe that the shim holds, if it does. That says more than its number: no other process can be taken
/// for it.
fn living(dir: &RunDir) -> io::Result<Option<File>> {
    let reader = match fifo::reader(&dir.alive()) {
        Ok(reader) => reader,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(fifo::has_writer(&reader)?.then_some(reader))
}

/// Nothing is ever written to it.
async fn until_closed(reader: &pipe::Receiver) {
    while reader.readable().await.is_ok() {
        match reader.try_read(&mut [0]) {
            Ok(length) if length > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return,
        }
    }
}
