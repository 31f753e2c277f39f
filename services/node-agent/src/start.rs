//! Everything that a shim needs is in the run's directory before it starts.

use crate::{
    Bounds, Means, RunKey, Work,
    cgroup::{self, NoCgroup},
    environment::{self, Variables},
    fifo,
    plugin::Assignment,
    room,
    run_dir::{Run, RunDir, private},
    user::{RunUser, WORK, make_scratch},
    work::NICE_MAX,
};
use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Directories that are not whole yet begin so.
pub(crate) const UNFINISHED: &str = ".new-";

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0} is there already")]
    AlreadyThere(RunKey),
    #[error("there is no command")]
    NoCommand,
    #[error("an image needs the plug-in of the site, and none is configured")]
    ImageNeedsPlugin,
    #[error("an argument or the working directory has a NUL byte")]
    NulByte,
    #[error("no variable of an environment: {name:?}")]
    Variable { name: String },
    #[error("nice is {nice}, and at most {NICE_MAX}")]
    Nice { nice: u8 },
    #[error("a set of no CPUs")]
    NoCpus,
    #[error(
        "all {count} users of run_users have runs: enlarge the range, or lower max_runs below it"
    )]
    NoUserLeft { count: u32 },
    #[error("cannot make the cgroup: {0}")]
    Cgroup(#[from] NoCgroup),
    #[error("cannot make the run's directory: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot start the shim: {0}")]
    Shim(#[source] io::Error),
}

impl StartError {
    /// Whether the work itself is at fault, so that it fails in the same way everywhere.
    pub fn is_of_the_work(&self) -> bool {
        match self {
            StartError::NoCommand
            | StartError::NulByte
            | StartError::Variable { .. }
            | StartError::Nice { .. }
            | StartError::NoCpus => true,
            StartError::AlreadyThere(_)
            | StartError::ImageNeedsPlugin
            | StartError::NoUserLeft { .. }
            | StartError::Cgroup(_)
            | StartError::Directory(_)
            | StartError::Shim(_) => false,
        }
    }
}

/// What is to be started, and with what of the node.
pub(crate) struct Start<'a> {
    pub key: RunKey,
    pub work: &'a Work,
    pub bounds: &'a Bounds,
    pub extra_env: &'a [(String, String)],
    pub means: &'a Means,
    pub plugin: Option<&'a Path>,
    /// Directory with all that the command may write; `None`: one in the run's directory.
    pub scratch: Option<PathBuf>,
    pub user: Option<RunUser>,
}

impl Start<'_> {
    pub fn check(&self) -> Result<(), StartError> {
        let Work {
            command,
            env,
            working_dir,
            image,
            ..
        } = self.work;
        if command.first().is_none_or(|program| program.is_empty()) {
            return Err(StartError::NoCommand);
        }
        if image.is_some() && self.plugin.is_none() {
            return Err(StartError::ImageNeedsPlugin);
        }
        let working_dir = working_dir
            .as_ref()
            .map(|path| path.as_os_str().as_encoded_bytes());
        let arguments = command.iter().map(String::as_bytes).chain(working_dir);
        if arguments.flatten().any(|byte| *byte == 0) {
            return Err(StartError::NulByte);
        }
        let mut variables = env.iter().chain(self.extra_env);
        if let Some((name, _)) = variables.find(|(n, v)| !environment::is_possible(n, v)) {
            return Err(StartError::Variable { name: name.clone() });
        }
        if self.bounds.nice > NICE_MAX {
            return Err(StartError::Nice {
                nice: self.bounds.nice,
            });
        }
        if self
            .bounds
            .cpus
            .as_ref()
            .is_some_and(|cpus| cpus.is_empty())
        {
            return Err(StartError::NoCpus);
        }
        Ok(())
    }

    /// The directory `dir`, whole or not at all.
    pub fn make_dir(&self, dir: &RunDir) -> Result<(), StartError> {
        if dir.path().exists() {
            return Err(StartError::AlreadyThere(self.key));
        }
        let beside = dir
            .path()
            .with_file_name(format!("{UNFINISHED}{}", self.key));
        let unfinished = RunDir::new(beside);
        let cgroup = match self.means {
            Means::CgroupV2(runs) => Some(cgroup::make(runs, self.key, self.bounds)?),
            Means::ProcessGroup => None,
        };
        let run = self.run(dir, cgroup.clone());
        let made = self
            .fill(&unfinished, dir, &run)
            .and_then(|()| fs::rename(unfinished.path(), dir.path()));
        made.map_err(|error| {
            let _ = fs::remove_dir_all(unfinished.path());
            if let Some(scratch) = &run.scratch {
                let _ = room::remove(scratch);
            }
            if let Some(cgroup) = &cgroup {
                cgroup::remove(cgroup);
            }
            StartError::Directory(error)
        })
    }

    fn run(&self, dir: &RunDir, cgroup: Option<PathBuf>) -> Run {
        let of_plugin = self.plugin.map(|path| path.to_string_lossy().into_owned());
        let by_plugin = of_plugin.is_some();
        let scratch = self.scratch.as_ref();
        let own_dir = scratch.map_or_else(|| dir.scratch(), |scratch| scratch.join(WORK));
        let work = self.work;
        let home = self.user.as_ref().map(|_| own_dir.as_path());
        let inherited = environment::inherited(home);
        Run {
            key: self.key,
            env: if by_plugin {
                // Of the work, it hears on its standard input: a variable of a tenant could lead the plug-in astray.
                environment::complete(inherited, &[], &[], &self.bounds.gpus, dir.path())
            } else {
                self.complete(inherited, dir)
            },
            command: of_plugin.map_or_else(|| work.command.clone(), |program| vec![program]),
            working_dir: match (&work.working_dir, by_plugin) {
                (_, true) => None,
                (Some(path), false) => Some(path.clone()),
                (None, false) => Some(own_dir),
            },
            told: self.extra_env.to_vec(),
            bounds: self.bounds.clone(),
            cgroup,
            by_plugin,
            scratch: self.scratch.clone(),
            user: self.user.clone(),
        }
    }

    fn complete(&self, inherited: Variables, dir: &RunDir) -> Variables {
        let (env, gpus) = (&self.work.env, &self.bounds.gpus);
        environment::complete(inherited, env, self.extra_env, gpus, dir.path())
    }

    /// `dir` is what the directory will be called.
    fn fill(&self, unfinished: &RunDir, dir: &RunDir, run: &Run) -> io::Result<()> {
        remove_if_there(unfinished.path())?;
        DirBuilder::new().mode(0o700).create(unfinished.path())?;
        match &run.scratch {
            Some(scratch) => {
                room::remove(scratch)?;
                make_scratch(scratch, run.user.as_ref())?;
            }
            None => DirBuilder::new().mode(0o700).create(unfinished.scratch())?,
        }
        let write = |path: &Path, bytes: &[u8]| private().open(path)?.write_all(bytes);
        let payload = &self.work.payload;
        let has_payload = !payload.is_empty();
        if run.by_plugin {
            if has_payload {
                write(&unfinished.payload(), payload)?;
            }
            let payload_file = dir.payload();
            let payload_file = has_payload.then_some(payload_file.as_path());
            let env = self.complete(Variables::new(), dir);
            let assignment = Assignment::new(self.key, self.work, &env, payload_file, self.bounds);
            write(&unfinished.stdin(), &serde_json::to_vec(&assignment)?)?;
        } else if has_payload {
            write(&unfinished.stdin(), payload)?;
        }
        fifo::make(&unfinished.alive())?;
        fifo::make(&unfinished.control())?;
        unfinished.write_run(run)
    }
}

/// Of the agent's environment: a library that sets its clock wrong, for tests, sets that of its shims wrong, too.
const WRONG_CLOCK: [&str; 2] = ["LD_PRELOAD", "APPORTION_CLOCK_OFFSET"];

/// `program` is the one that has the subcommand `shim`. The writing end of `alive` is the shim's from before it runs, so it is
/// known to live until it does not.
pub(crate) fn spawn_shim(program: &Path, dir: &RunDir) -> io::Result<Child> {
    let alive = OpenOptions::new().write(true).open(dir.alive())?;
    let wrong_clock = WRONG_CLOCK.map(|name| Some((name, std::env::var_os(name)?)));
    let wrong_clock = wrong_clock.into_iter().collect::<Option<Vec<_>>>();
    Command::new(program)
        .arg("shim")
        .arg(dir.path())
        .env_clear()
        .envs(wrong_clock.unwrap_or_default())
        .current_dir("/")
        .stdin(alive)
        .stdout(Stdio::null())
        .stderr(private().append(true).open(dir.complaints())?)
        .spawn()
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
