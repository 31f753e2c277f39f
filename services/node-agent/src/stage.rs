//! The last thing before the command: a process that ties itself to its shim, takes on the limits of the run, and becomes
//! the command.
//!
//! It is a program of its own because a safe program cannot do this between fork and exec. So the shim itself stays outside
//! the run's cgroup and limits.

use crate::{
    run_dir::{NotStarted, Run, RunDir},
    user,
};
use nix::sys::signal::SigSet;
use rustix::{
    process::{
        Resource, Rlimit, Signal, getppid, getpriority_process, set_parent_process_death_signal,
        setpriority_process, setrlimit,
    },
    thread::sched_setaffinity,
};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// As shells have it: what is there could not be executed, or nothing is there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Debug, thiserror::Error)]
enum StageError {
    #[error("{0}")]
    Damaged(#[from] crate::Damaged),
    #[error("{0} has no run")]
    NoRun(PathBuf),
    #[error("the shim is gone")]
    Orphaned,
    #[error("cannot {what}: {source}")]
    Prepare {
        what: &'static str,
        source: io::Error,
    },
    #[error("cannot enter {path}: {source}")]
    WorkingDir { path: PathBuf, source: io::Error },
    #[error("cannot run {program}: {source}")]
    Exec { program: String, source: io::Error },
}

impl StageError {
    fn code(&self) -> u8 {
        match self {
            StageError::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                NOT_FOUND
            }
            _ => NOT_EXECUTABLE,
        }
    }
}

/// Returns only if there is no command.
pub fn stage(dir: &Path, shim: &str) -> ExitCode {
    let dir = RunDir::new(dir.to_owned());
    let not_started = dir.create_not_started();
    let Err(error) = become_the_command(&dir, shim);
    chassis::note!("apportion: {error}");
    let code = error.code();
    if let Err(error) = not_started.and_then(|file| say(file, NotStarted { code })) {
        chassis::note!("apportion: {error}");
    }
    ExitCode::from(code)
}

fn say(mut file: File, why: NotStarted) -> io::Result<()> {
    file.write_all(&serde_json::to_vec(&why)?)
}

/// Ties this process to its shim: it is killed when the shim dies.
fn tie_to(shim: &str) -> Result<(), StageError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|source| StageError::Prepare {
        what: "die with the shim",
        source: source.into(),
    })?;
    // It may have died before that.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().to_string());
    match parent.as_deref() == Some(shim) {
        true => Ok(()),
        false => Err(StageError::Orphaned),
    }
}

fn become_the_command(dir: &RunDir, shim: &str) -> Result<std::convert::Infallible, StageError> {
    let prepare = |what| {
        move |source: rustix::io::Errno| StageError::Prepare {
            what,
            source: source.into(),
        }
    };
    tie_to(shim)?;
    let run = dir.run()?;
    let run = run.ok_or_else(|| StageError::NoRun(dir.path().to_owned()))?;
    if let Some(cgroup) = &run.cgroup {
        fs::write(cgroup.join("cgroup.procs"), "0").map_err(|source| StageError::Prepare {
            what: "enter the cgroup",
            source,
        })?;
    }
    take_on(&run).map_err(prepare("take on the limits"))?;
    if let (Some(user), Some(scratch)) = (&run.user, &run.scratch) {
        let entered = user::enter(user, scratch, run.bounds.memory_bytes_max());
        entered.map_err(|source| StageError::Prepare {
            what: "become the user of the run",
            source,
        })?;
        // The kernel has untied it.
        tie_to(shim)?;
    }
    let working_dir = run.working_dir.as_deref().unwrap_or(Path::new("/"));
    std::env::set_current_dir(working_dir).map_err(|source| StageError::WorkingDir {
        path: working_dir.to_owned(),
        source,
    })?;
    // The shim keeps signals for itself by a mask, which is handed down.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|source| StageError::Prepare {
            what: "let signals through",
            source: source.into(),
        })?;
    let program = run.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command
        .args(run.command.iter().skip(1))
        .env_clear()
        .envs(run.env.iter().map(|(name, value)| (name, value)));
    // Last, because from here on memory may be short.
    limit_memory(&run).map_err(prepare("limit the memory"))?;
    let source = command.exec();
    Err(StageError::Exec { program, source })
}

/// What is handed down to all that the run starts.
fn take_on(run: &Run) -> rustix::io::Result<()> {
    let bounds = &run.bounds;
    if bounds.nice > 0 {
        let nice = getpriority_process(None)? + i32::from(bounds.nice);
        setpriority_process(None, nice.min(i32::from(crate::work::NICE_MAX)))?;
    }
    if let Some(cpus) = &bounds.cpus {
        let mut mask = rustix::thread::CpuSet::new();
        for cpu in cpus.iter().filter_map(|cpu| usize::try_from(cpu).ok()) {
            mask.set(cpu);
        }
        sched_setaffinity(None, &mask)?;
    }
    // The kernel counts those of the user, so of a user that has more than this run they are not the run's.
    if run.user.is_some() && bounds.processes_max > 0 {
        limit(Resource::Nproc, bounds.processes_max.into())?;
    }
    Ok(())
}

/// Limits the data of each process, because programs of today reserve far more addresses than they use.
fn limit_memory(run: &Run) -> rustix::io::Result<()> {
    let Some(bytes) = run.data_bytes_max() else {
        return Ok(());
    };
    limit(Resource::Data, bytes)
}

fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(resource, limit)
}
