//! All runs of a node.

use crate::{
    Bounds, Damaged, Ended, LogPart, Means, Moment, NoRunUsers, RunKey, RunUsers, Work, fifo,
    lease, log,
    lost::{conclude, end_lost},
    processes,
    room::{self, Disk, Limits, Room},
    run_dir::{RunDir, Stop, StopReason},
    start::{Start, StartError, UNFINISHED, remove_if_there, spawn_shim},
    user::RunUser,
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, TryLockError},
    future::pending,
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Child,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    net::unix::pipe,
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};

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
    /// Where the working directories of runs are; `None`: each in its run's directory.
    pub work_dir: Option<PathBuf>,
    /// Users of runs; `None`: commands run as the agent's user.
    pub users: Option<RunUsers>,
    /// Time between the end of a grace and the moment when a shim that has not ended its run is killed with it.
    pub margin: Duration,
}

impl Settings {
    pub const OWN_PROGRAM: &str = "/proc/self/exe";
    /// A shim kills a run within milliseconds; on a machine that is short of time it may take longer.
    pub const MARGIN: Duration = Duration::from_secs(5);
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
    #[error(transparent)]
    Users(#[from] NoRunUsers),
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

#[derive(Debug, Default)]
struct State {
    /// Tasks that wait for the end of each shim.
    watchers: JoinSet<()>,
    /// Runs with a shim.
    living: BTreeMap<RunKey, Living>,
    user_last_given: Option<u32>,
}

#[derive(Debug)]
struct Living {
    user: Option<u32>,
    /// Moment when its shim is killed if it has not ended; `None`: it was not told to stop.
    end_by: watch::Sender<Option<Moment>>,
}

/// Lives in a Tokio runtime. The runs do not: dropped, it leaves them running, and finds them when it is opened anew.
#[derive(Debug)]
pub struct Runs {
    settings: Settings,
    state: Arc<Mutex<State>>,
    ended: mpsc::UnboundedSender<Ended>,
    endings: tokio::sync::Mutex<mpsc::UnboundedReceiver<Ended>>,
    locks: Vec<File>,
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
        if let Some(work_dir) = &mut settings.work_dir {
            *work_dir = open_work_dir(work_dir, settings.users.is_some())?;
        }
        if let Some(users) = &settings.users {
            users.check(settings.work_dir.as_deref(), settings.exec_plugin.is_some())?;
        }
        let locks = [Some(&settings.dir), settings.work_dir.as_ref()];
        let locks = locks.into_iter().flatten().map(|dir| lock(dir));
        let locks = locks.collect::<Result<_, _>>()?;
        let (ended, endings) = mpsc::unbounded_channel();
        let runs = Runs {
            settings,
            state: Arc::default(),
            ended,
            endings: tokio::sync::Mutex::new(endings),
            locks,
        };
        let found = runs.look_around().map_err(failed)?;
        runs.remove_strays().map_err(failed)?;
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
        let mut state = self.state();
        let start = Start {
            key,
            work,
            bounds,
            extra_env,
            means: &self.settings.means,
            plugin: self.settings.exec_plugin.as_deref(),
            scratch: self.scratch(key),
            user: state.user(self.settings.users.as_ref())?,
        };
        start.check()?;
        let dir = self.dir_of(key);
        start.make_dir(&dir)?;
        let started = fifo::reader(&dir.alive()).and_then(|reader| {
            let reader = pipe::Receiver::from_file(reader)?;
            let shim = spawn_shim(&self.settings.program, &dir)?;
            Ok((reader, shim))
        });
        match started {
            Ok((reader, shim)) => {
                let user = start.user.map(|user| user.id);
                self.watch(&mut state, key, user, reader, Some(shim));
            }
            Err(error) => {
                let _ = self.remove(key, &dir);
                return Err(StartError::Shim(error));
            }
        }
        Ok(())
    }

    /// SIGTERM to all of the run, and SIGKILL once the grace is over. The shim sees to both, whatever becomes of the agent. Does
    /// nothing to a run that is over. Said again, it can shorten the grace.
    ///
    /// A shim that has not ended its run a margin after the grace is killed, and the run is lost: it may have been stopped by its
    /// own run.
    pub fn stop(&self, key: RunKey, grace: Duration) -> Result<(), RunError> {
        self.stop_because(key, grace, StopReason::Told)
    }

    fn stop_because(&self, key: RunKey, grace: Duration, why: StopReason) -> Result<(), RunError> {
        let dir = self.there(key)?;
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        // The shim may not have heard the last word yet, and would miss that it was a shorter one.
        let earlier = dir.stop().ok().flatten();
        let stop = Stop {
            grace_ms: earlier.map_or(grace_ms, |earlier| earlier.grace_ms.min(grace_ms)),
            why: earlier.map_or(why, |earlier| earlier.why.max(why)),
        };
        if let Some(living) = self.state().living.get(&key) {
            let end_by = Moment::now().after(grace.saturating_add(self.settings.margin));
            living.end_by.send_if_modified(|before| {
                let sooner = before.is_none_or(|before| end_by < before);
                if sooner {
                    *before = Some(end_by);
                }
                sooner
            });
        }
        let told = dir
            .write_stop(stop)
            .and_then(|()| fifo::poke(&dir.control()));
        told.map_err(|source| RunError::Io { key, source })
    }

    /// Ends the runs that use more room on the disk than they may, or of all the most where the disk is short of it; `bytes_max` 0:
    /// a quarter of the file system. Reads all their directories.
    pub fn end_excesses(&self, bytes_max: u64, pressure_percent: u8) -> io::Result<()> {
        let on_disk = self
            .settings
            .work_dir
            .as_ref()
            .unwrap_or(&self.settings.dir);
        let disk = rustix::fs::statvfs(on_disk)?;
        let disk = Disk {
            size: disk.f_frsize * disk.f_blocks,
            free: disk.f_frsize * disk.f_bavail,
        };
        let limits = Limits::new(bytes_max, pressure_percent, disk);
        let keys: Vec<RunKey> = self.state().living.keys().copied().collect();
        for (key, excess) in room::excesses(&self.rooms(&keys), limits, disk) {
            tracing::warn!(%key, %excess, "a run is ended");
            if let Err(error) = self.stop_because(key, Duration::ZERO, StopReason::OutOfDisk) {
                tracing::error!(%key, %error, "a run cannot be stopped");
            }
        }
        Ok(())
    }

    fn rooms(&self, keys: &[RunKey]) -> Vec<(RunKey, Room)> {
        let shim = |key: &RunKey| self.dir_of(*key).shim().ok().flatten();
        let shims: Vec<u32> = keys
            .iter()
            .map(|key| shim(key).map_or(0, |shim| shim.pid))
            .collect();
        let processes = processes::descendants_of(&shims);
        let rooms = keys.iter().zip(processes).map(|(key, processes)| {
            let scratch = self.scratch(*key);
            let scratch = scratch.unwrap_or_else(|| self.dir_of(*key).scratch());
            (*key, room::measure(&scratch, &processes))
        });
        rooms.collect()
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
        if let Some(run) = dir.run().ok().flatten() {
            if let Some(cgroup) = run.cgroup {
                crate::cgroup::remove(&cgroup);
            }
            room::remove(&run.scratch.unwrap_or_else(|| dir.scratch()))?;
        }
        let gone = self.settings.dir.join(format!("{GONE}{key}"));
        remove_if_there(&gone)?;
        fs::rename(dir.path(), &gone)?;
        fs::remove_dir_all(gone)
    }

    fn dir_of(&self, key: RunKey) -> RunDir {
        RunDir::new(self.settings.dir.join(key.to_string()))
    }

    /// `None`: it is in the run's directory.
    fn scratch(&self, key: RunKey) -> Option<PathBuf> {
        let work_dir = self.settings.work_dir.as_ref()?;
        Some(work_dir.join(key.to_string()))
    }

    /// Working directories whose runs are not there any more.
    fn remove_strays(&self) -> io::Result<()> {
        let Some(work_dir) = &self.settings.work_dir else {
            return Ok(());
        };
        for entry in fs::read_dir(work_dir)?.flatten() {
            let key = RunKey::from_name(&entry.file_name().to_string_lossy());
            let stray = key.filter(|key| !self.state().living.contains_key(key));
            if stray.is_some()
                && let Err(error) = room::remove(&entry.path())
            {
                tracing::warn!(path = %entry.path().display(), %error, "cannot be removed");
            }
        }
        Ok(())
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
        let mut state = self.state();
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
            let one = one.and_then(|key| self.examine(&mut state, key, &path));
            found.push(one.unwrap_or_else(|error| Found::Damaged { path, key, error }));
        }
        Ok(found)
    }

    fn examine(&self, state: &mut State, key: RunKey, path: &Path) -> Result<Found, Damaged> {
        let dir = RunDir::new(path.to_owned());
        let reader =
            living(&dir).and_then(|reader| reader.map(pipe::Receiver::from_file).transpose());
        let reader = reader.map_err(|source| Damaged::Read {
            path: dir.alive(),
            source,
        })?;
        match reader {
            Some(reader) => {
                let user = dir.run()?.and_then(|run| run.user).map(|user| user.id);
                self.watch(state, key, user, reader, None);
                Ok(Found::Running(key))
            }
            None => {
                let end = conclude(key, &dir)?;
                remove_scratch(key, &dir);
                Ok(Found::Ended(Ended { key, end }))
            }
        }
    }

    fn watch(
        &self,
        state: &mut State,
        key: RunKey,
        user: Option<u32>,
        reader: pipe::Receiver,
        shim: Option<Child>,
    ) {
        // Those that are done would be kept until they are asked for.
        while state.watchers.try_join_next().is_some() {}
        let (dir, ended) = (self.dir_of(key), self.ended.clone());
        let (end_by, deadline) = watch::channel(None);
        state.living.insert(key, Living { user, end_by });
        // The task ends with the state, which has it.
        let all = Arc::downgrade(&self.state);
        state.watchers.spawn(async move {
            tokio::select! {
                () = until_closed(&reader) => {}
                () = until_due(deadline) => {
                    kill_shim(key, &dir);
                    until_closed(&reader).await;
                }
            }
            let scratch = dir.clone();
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
                        end_lost(key, &dir, None, user)
                    })
                })
            });
            // From here on another run may have its user.
            if let Some(all) = all.upgrade() {
                unpoisoned(&all).living.remove(&key);
            }
            match concluded.await {
                // Whoever receives it is gone only together with this.
                Ok(Some(end)) => drop(ended.send(Ended { key, end })),
                Ok(None) => {}
                Err(error) => tracing::error!(%key, %error, "how a run ended was not found out"),
            }
            let removed = tokio::task::spawn_blocking(move || remove_scratch(key, &scratch));
            drop(removed.await);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }
}

/// Nothing that panics leaves it half changed.
fn unpoisoned(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// `None`: commands run as the agent's user.
    fn user(&mut self, users: Option<&RunUsers>) -> Result<Option<RunUser>, StartError> {
        let Some(users) = users else {
            return Ok(None);
        };
        let used = self.living.values().filter_map(|living| living.user);
        let user = users.pick(self.user_last_given, &used.collect());
        let user = user.ok_or(StartError::NoUserLeft { count: users.count })?;
        self.user_last_given = Some(user.id);
        Ok(Some(user))
    }
}

/// `for_others`: other users may enter it, though not list it.
fn open_work_dir(path: &Path, for_others: bool) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::Directory {
        path: path.to_owned(),
        source,
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    builder.mode(if for_others { 0o711 } else { 0o700 });
    builder.create(path).map_err(failed)?;
    path.canonicalize().map_err(failed)
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Directory {
        path: dir.to_owned(),
        source,
    };
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(dir.join(LOCK)).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// What a run has written to its working directory is not kept.
fn remove_scratch(key: RunKey, dir: &RunDir) {
    let scratch = dir.run().ok().flatten().and_then(|run| run.scratch);
    let scratch = scratch.unwrap_or_else(|| dir.scratch());
    if let Err(error) = room::remove(&scratch) {
        tracing::warn!(%key, path = %scratch.display(), %error, "cannot be removed");
    }
}

/// The number of the shim is still its own, because its pipe is open.
fn kill_shim(key: RunKey, dir: &RunDir) {
    tracing::error!(%key, "a shim has not ended its run in time, and is killed with it");
    match dir.shim() {
        Ok(Some(shim)) => processes::signal(shim.pid, shim.started_ticks, Signal::KILL),
        Ok(None) => tracing::error!(%key, "the shim has not said which process it is"),
        Err(error) => tracing::error!(%key, %error, "the shim is not known"),
    }
}

/// The moment may come closer while it is waited for.
async fn until_due(mut deadline: watch::Receiver<Option<Moment>>) {
    loop {
        let due = *deadline.borrow_and_update();
        let due = async {
            match due {
                Some(due) => sleep(due.until()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = due => return,
            changed = deadline.changed() => if changed.is_err() {
                pending::<()>().await;
            },
        }
    }
}

impl Drop for Runs {
    /// A process that is just being started by another thread has the file, too, until it has become its program.
    fn drop(&mut self) {
        for lock in &self.locks {
            if let Err(error) = lock.unlock() {
                tracing::warn!(%error, "a directory of runs stays locked");
            }
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
