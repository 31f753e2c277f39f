//! The keeper of one run: a small process that outlives the agent, so that a run and its end do.
//!
//! It waits in one `poll` for its children, their output, a word of the agent and the end of a grace, and does nothing in
//! between. When it is gone, `end.json` says how the run ended.

use crate::{
    Damaged, End, Exit, Lease, Moment, Reason, Usage, cgroup, fifo,
    log::LogWriter,
    processes,
    run_dir::{self, Run, RunDir, StopReason},
};
use chassis::Stamp;
use nix::sys::{
    resource::{UsageWho, getrusage},
    signal::{SigSet, Signal as NixSignal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper,
        setsid, wait,
    },
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_gettime, timerfd_settime,
    },
};
use std::{
    fs::{File, OpenOptions},
    io::{self, PipeReader, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

/// Where it is asked to end by a signal, as by a machine that shuts down.
const GRACE: Duration = Duration::from_secs(10);
/// As much as a pipe holds.
const OUTPUT_BYTES: usize = 64 << 10;
/// What a run that could not be begun ended with.
const NOT_EXECUTABLE: u8 = 126;

#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("{0}")]
    Damaged(#[from] Damaged),
    #[error("{0} has no run")]
    NoRun(PathBuf),
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ShimError {
    move |source| ShimError::System {
        what,
        source: source.into(),
    }
}

/// Runs what stands in the directory, and writes there how it ended.
pub fn shim(dir: &Path) -> ExitCode {
    match Shim::prepare(RunDir::new(dir.to_owned())).and_then(Shim::keep) {
        Ok(()) => ExitCode::SUCCESS,
        // The agent finds no end and takes the run for lost. This goes to `shim.log`.
        Err(error) => {
            chassis::note!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Shim {
    dir: RunDir,
    run: Run,
    log: LogWriter,
    signals: SignalFd,
    control: File,
    grace: OwnedFd,
    /// Goes off when the node's lease may be over.
    lease: OwnedFd,
    started_ms: i64,
    progress: Progress,
}

#[derive(Default)]
struct Progress {
    /// The command, which leads a process group of its own.
    command: Option<Pid>,
    /// None once nobody can write any more.
    output: Option<PipeReader>,
    status: Option<WaitStatus>,
    stopping: bool,
    killed: bool,
    out_of_disk: bool,
}

impl Shim {
    fn prepare(dir: RunDir) -> Result<Shim, ShimError> {
        close_inherited();
        // Refused to a process that leads a group already, as when it is started by hand; then it has what it needs.
        let _ = setsid();
        let signals = [
            NixSignal::SIGCHLD,
            NixSignal::SIGTERM,
            NixSignal::SIGINT,
            NixSignal::SIGHUP,
        ];
        let signals: SigSet = signals.into_iter().collect();
        signals.thread_block().map_err(cannot("keep signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&signals, flags).map_err(cannot("hear signals"))?;
        // Whoever of the run loses its parent comes to the shim, and does not escape.
        set_child_subreaper(Some(getpid())).map_err(cannot("take in orphans"))?;
        // For writing, too: then it is never at its end.
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(fifo::nonblock())
            .open(dir.control())
            .map_err(cannot("hear the agent"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let grace =
            timerfd_create(TimerfdClockId::Monotonic, flags).map_err(cannot("make a timer"))?;
        let lease = timerfd_create(TimerfdClockId::Boottime, flags)
            .map_err(cannot("make a timer of the lease"))?;
        let run = dir.run()?;
        let run = run.ok_or_else(|| ShimError::NoRun(dir.path().to_owned()))?;
        let started_ms = now_ms();
        let shim = run_dir::Shim {
            pid: std::process::id(),
            started_ticks: processes::own_start(),
            boot_id: processes::boot_id(),
            started_ms,
        };
        dir.write_shim(&shim).map_err(cannot("say who it is"))?;
        Ok(Shim {
            log: LogWriter::new(dir.path().to_owned(), run.bounds.log_bytes_max),
            dir,
            run,
            signals,
            control,
            grace,
            lease,
            started_ms,
            progress: Progress::default(),
        })
    }

    fn keep(mut self) -> Result<(), ShimError> {
        let exit = match self.start() {
            Ok(()) => {
                // It may have been told before it could hear.
                self.hear_the_agent();
                self.look_at_the_lease();
                let mut buffer = vec![0; OUTPUT_BYTES];
                while self.progress.status.is_none() {
                    self.wait(&mut buffer)?;
                }
                self.end_the_rest();
                self.drain(&mut buffer);
                self.exit()
            }
            Err(error) => {
                self.log.append(format!("apportion: {error}\n").as_bytes());
                Exit {
                    code: NOT_EXECUTABLE,
                    signal: 0,
                    reason: Reason::CouldNotStart,
                }
            }
        };
        self.write_end(exit)
    }

    fn start(&mut self) -> Result<(), ShimError> {
        let (output, stdout) = io::pipe().map_err(cannot("make a pipe"))?;
        rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)
            .map_err(cannot("read without waiting"))?;
        // One pipe for both keeps what is written in its order.
        let stderr = stdout.try_clone().map_err(cannot("share a pipe"))?;
        let stdin = match File::open(self.dir.stdin()) {
            Ok(file) => Stdio::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Stdio::null(),
            Err(error) => return Err(cannot("open what the command reads")(error)),
        };
        let child = Command::new("/proc/self/exe")
            .arg0("apportion-stage")
            .arg("stage")
            .arg(self.dir.path())
            .arg(std::process::id().to_string())
            .env_clear()
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .map_err(cannot("start a process"))?;
        // It is waited for with all others.
        self.progress.command = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.progress.output = Some(output);
        Ok(())
    }

    fn wait(&mut self, buffer: &mut [u8]) -> Result<(), ShimError> {
        let mut ready = [false; 5];
        {
            let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut fds = vec![
                readable(self.signals.as_fd()),
                readable(self.control.as_fd()),
                readable(self.grace.as_fd()),
                readable(self.lease.as_fd()),
            ];
            fds.extend(
                self.progress
                    .output
                    .iter()
                    .map(|output| readable(output.as_fd())),
            );
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(cannot("wait")(error)),
            }
            for (ready, fd) in ready.iter_mut().zip(&fds) {
                *ready = !fd.revents().is_empty();
            }
        }
        let [signals, control, grace, lease, output] = ready;
        if output {
            self.read_output(buffer);
        }
        if control {
            self.hear_the_agent();
        }
        if grace {
            self.kill();
        }
        if lease {
            let mut expirations = [0; 8];
            let _ = rustix::io::read(&self.lease, &mut expirations);
            self.look_at_the_lease();
        }
        if signals {
            self.hear_signals();
        }
        Ok(())
    }

    /// One piece; whoever writes without end must not keep the shim from all else. Returns how long it was.
    fn read_output(&mut self, buffer: &mut [u8]) -> usize {
        let Some(output) = &mut self.progress.output else {
            return 0;
        };
        match output.read(buffer) {
            Ok(length) if length > 0 => {
                self.log.append(&buffer[..length]);
                length
            }
            Err(error) if is_passing(&error) => 0,
            Ok(_) | Err(_) => {
                self.progress.output = None;
                0
            }
        }
    }

    /// What the run has written before it ended. Somebody outside may have been given the pipe, so no end is waited for.
    fn drain(&mut self, buffer: &mut [u8]) {
        let Some(output) = &self.progress.output else {
            return;
        };
        let mut left = rustix::pipe::fcntl_getpipe_size(output).unwrap_or(OUTPUT_BYTES);
        while left > 0 {
            match self.read_output(buffer) {
                0 => return,
                length => left = left.saturating_sub(length),
            }
        }
    }

    fn hear_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let signal = i32::try_from(signal.ssi_signo).map(NixSignal::try_from);
            if let Ok(Ok(NixSignal::SIGTERM | NixSignal::SIGINT)) = signal {
                self.stop(GRACE);
            }
        }
        // Several that ended are one signal.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.note(pid, status);
        }
    }

    fn note(&mut self, pid: Pid, status: WaitStatus) {
        if Some(pid) == self.progress.command {
            self.progress.status = Some(status);
        }
    }

    fn hear_the_agent(&mut self) {
        let mut word = [0; 64];
        while self.control.read(&mut word).is_ok_and(|length| length > 0) {}
        match self.dir.stop() {
            Ok(None) => {}
            Ok(Some(stop)) => {
                self.progress.out_of_disk |= stop.why == StopReason::OutOfDisk;
                self.stop(Duration::from_millis(stop.grace_ms));
            }
            // Somebody wanted something, and there is nothing else to want.
            Err(error) => {
                chassis::note!("{error}");
                self.stop(GRACE);
            }
        }
    }

    /// The agent writes down each renewal. When none came, what runs here may be placed elsewhere soon, whether the agent lives or
    /// not. Runs of whoever holds no lease, as in tests, have no such end.
    fn look_at_the_lease(&mut self) {
        let Some(lease) = self.dir.path().parent().and_then(Lease::read) else {
            return;
        };
        if lease.stop().is_over() {
            return self.stop(lease.grace());
        }
        let due = Itimerspec {
            it_interval: Timespec::default(),
            it_value: lease.stop().timespec(),
        };
        if timerfd_settime(&self.lease, TimerfdTimerFlags::ABSTIME, &due).is_err() {
            self.stop(GRACE);
        }
    }

    /// A second word can shorten the grace and not lengthen it.
    fn stop(&mut self, grace: Duration) {
        if self.progress.status.is_some() || self.progress.killed {
            return;
        }
        if !std::mem::replace(&mut self.progress.stopping, true) {
            self.signal(Signal::TERM);
            // One that stands still hears nothing.
            self.signal(Signal::CONT);
        } else if timerfd_gettime(&self.grace).is_ok_and(|left| duration(left.it_value) <= grace) {
            return;
        }
        // A timer of nothing would never go off.
        let due = Timespec::try_from(grace.max(Duration::from_nanos(1)));
        let due = due.map(|it_value| Itimerspec {
            it_interval: Timespec::default(),
            it_value,
        });
        let set = due
            .map(|due| timerfd_settime(&self.grace, TimerfdTimerFlags::empty(), &due).map(|_| ()));
        if !matches!(set, Ok(Ok(()))) {
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.progress.killed = true;
        let mut expirations = [0; 8];
        let _ = rustix::io::read(&self.grace, &mut expirations);
        self.kill_all();
    }

    fn kill_all(&self) {
        if let Some(cgroup) = &self.run.cgroup {
            cgroup::kill(cgroup);
        }
        self.signal(Signal::KILL);
    }

    /// To the command's group at once, and to whoever has left it.
    fn signal(&self, signal: Signal) {
        let group = self
            .progress
            .command
            .filter(|_| self.progress.status.is_none());
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
        let outside = |group: u32| {
            let command = self.progress.command.map(Pid::as_raw_pid);
            i32::try_from(group).ok() != command || self.progress.status.is_some()
        };
        for process in processes::descendants() {
            if outside(process.group) {
                process.signal(signal);
            }
        }
    }

    /// A run is over when its command is: nothing of it goes on, and all that it used is counted.
    fn end_the_rest(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.note(pid, status),
                Err(Errno::CHILD) => return,
                Err(Errno::INTR) => {}
                Err(_) => return,
                Ok(None) => {
                    self.kill_all();
                    // Whatever they begot in the meantime is found in the next round.
                    if let Ok(Some((pid, status))) = wait(WaitOptions::empty()) {
                        self.note(pid, status);
                    }
                }
            }
        }
    }

    fn exit(&self) -> Exit {
        let status = self.progress.status;
        let number = |part: Option<i32>| part.and_then(|part| u8::try_from(part).ok()).unwrap_or(0);
        let mut exit = Exit {
            code: number(status.and_then(WaitStatus::exit_status)),
            signal: number(status.and_then(WaitStatus::terminating_signal)),
            reason: Reason::None,
        };
        if self.progress.out_of_disk && exit != Exit::default() {
            exit.reason = Reason::OutOfDisk;
        // One that ended by itself in the last moment was not killed.
        } else if self.progress.killed && status.is_some_and(WaitStatus::signaled) {
            exit.reason = Reason::Killed;
        } else if matches!(self.dir.not_started(), Ok(Some(why)) if why.code == exit.code) {
            exit.reason = Reason::CouldNotStart;
        } else if exit != Exit::default() && self.is_out_of_memory() {
            exit.reason = Reason::OutOfMemory;
        }
        exit
    }

    /// Returns whether the kernel ended the run at its memory limit. Without a cgroup each process has its own limit, and the kernel
    /// does not report that it refused memory: then returns whether the largest process was at the limit, unless the run was stopped.
    fn is_out_of_memory(&self) -> bool {
        if let Some(cgroup) = &self.run.cgroup {
            return cgroup::counted(cgroup).out_of_memory;
        }
        let peaks = [UsageWho::RUSAGE_CHILDREN, UsageWho::RUSAGE_SELF].map(max_rss);
        let limit = self
            .run
            .data_bytes_max()
            .filter(|_| !self.progress.stopping);
        limit.is_some_and(|limit| is_at_limit(peaks, limit))
    }

    fn write_end(&mut self, exit: Exit) -> Result<(), ShimError> {
        let end = End {
            exit,
            usage: self.usage(),
            started_ms: self.started_ms,
            ended_ms: now_ms(),
            ended_at: Some(Moment::now()),
        };
        if self.dir.write_end(&end).is_err() {
            // On a full disk, how it ended is worth more than what it said.
            self.log.drop_all();
            self.dir.write_end(&end).map_err(cannot("write the end"))?;
        }
        if let Some(cgroup) = &self.run.cgroup {
            cgroup::remove(cgroup);
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        let counted = self
            .run
            .cgroup
            .as_deref()
            .map(cgroup::counted)
            .unwrap_or_default();
        let children = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
        let cpu_us = children.map(|usage| {
            let (user, system) = (usage.user_time(), usage.system_time());
            let seconds = user.tv_sec() + system.tv_sec();
            let us = seconds * 1_000_000 + user.tv_usec() + system.tv_usec();
            u64::try_from(us).unwrap_or(0)
        });
        Usage {
            cpu_us: counted.cpu_us.or(cpu_us).unwrap_or(0),
            memory_bytes_peak: counted
                .memory_bytes_peak
                .or(max_rss(UsageWho::RUSAGE_CHILDREN))
                .unwrap_or(0),
            log_bytes: self.log.offset(),
        }
    }
}

/// What whoever started the agent had left open, and the agent with it: no run is to have it. Nothing here is open yet but
/// the three that the agent has given.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let inherited: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    for number in inherited {
        // The listing's own is among them, and closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Resident bytes of the largest process at its peak. The children are those that were waited for: at the end, all of the run.
fn max_rss(who: UsageWho) -> Option<u64> {
    let kib = u64::try_from(getrusage(who).ok()?.max_rss()).ok()?;
    Some(kib.saturating_mul(1024))
}

/// Returns whether the largest process of a run had 90 % of the limit, by the peaks of the run and of the shim. A program may fail
/// below its limit, because mapped pages count before they are used. The stage counts as a process of the run and is as large as the
/// shim, so the answer for a limit below twice that is no.
fn is_at_limit([largest, own]: [Option<u64>; 2], limit: u64) -> bool {
    let (Some(largest), Some(own)) = (largest, own) else {
        return false;
    };
    limit / 2 >= own && largest >= limit - limit / 10
}

fn now_ms() -> i64 {
    i64::try_from(Stamp::now().unix_ns() / 1_000_000).unwrap_or(i64::MAX)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_at_its_limit_from_nine_tenths_on() {
        let check = |largest_mib: u64, own_mib: u64, limit_mib: u64, expected| {
            let peaks = [largest_mib, own_mib].map(|mib| Some(mib << 20));
            let found = is_at_limit(peaks, limit_mib << 20);
            assert_eq!(found, expected, "{largest_mib} {own_mib} {limit_mib}");
        };
        check(89, 8, 100, false);
        check(90, 8, 100, true);
        check(108, 8, 100, true);
        // Of the stage, not of the command.
        check(8, 8, 8, false);
        check(15, 8, 15, false);
        check(16, 8, 16, true);
        assert!(!is_at_limit([None, Some(1)], 2));
        assert!(!is_at_limit([Some(2), None], 2));
    }
}
