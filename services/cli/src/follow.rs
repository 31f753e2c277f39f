//! What a run writes, and how it ends.

use crate::{
    Failure,
    context::{Context, Whose},
    get, list, look,
    names::{Named, Several},
    print::{bytes, note},
    submit::{how, waits},
    wait,
};
use clap::Args;
use client::{Client, QueryError};
use schemas::v1::{AllocationState, AllocationView, EndCause, LogsQuery, RunExit};
use std::{process::ExitCode, time::Duration};
use tokio::sync::Semaphore;
use vocab::Rule;

/// While nothing happens.
const PAUSE: Duration = Duration::from_millis(500);
/// How often in a row what was just accepted may not be found, or the cell may not answer.
const MISSED_MAX: u32 = 20;
/// What a shell adds to the number of a signal that has ended a command.
const BY_SIGNAL: u8 = 128;

/// Show the output of runs. With several allocations, each line begins with the name of its allocation.
#[derive(Args)]
pub struct Logs {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    several: Several,
    /// Go on until the allocations have ended, and end with the exit code of the command; of several as `wait` does.
    #[arg(long, short)]
    follow: bool,
}

/// Logs that are followed at a time: each may be open for as long as its run lasts.
const FOLLOWED_MAX: usize = 1000;

impl Logs {
    pub async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        let found = self.several.found(&client).await?;
        let is_one = found.len() == 1;
        let sink = |one: &Named| match is_one {
            true => Sink::default(),
            false => Sink::of(&one.title),
        };
        if self.follow {
            return follow_all(&client, &found, sink).await;
        }
        let mut has_run = false;
        for one in &found {
            let view = get::of_id(&client, &one.id).await?.view;
            let view = view.ok_or(QueryError::Empty)?;
            if view.node.is_empty() {
                if !is_one {
                    note!("{} has not run", one.title);
                }
                continue;
            }
            has_run = true;
            let (mut log, mut sink) = (Log::default(), sink(one));
            while let Some(data) = log.next(&client, &view).await? {
                sink.write(&data)?;
            }
            sink.end()?;
        }
        match (has_run, &found[..]) {
            (true, _) => Ok(ExitCode::SUCCESS),
            (false, [one]) => Err(format!("{} has not run", one.title).into()),
            (false, _) => Err("none of them has run".into()),
        }
    }
}

/// Follows the logs of all of these at the same time.
async fn follow_all(
    client: &Client,
    all: &[Named],
    sink: impl Fn(&Named) -> Sink,
) -> Result<ExitCode, Failure> {
    if all.len() > FOLLOWED_MAX {
        let of = all.len();
        return Err(Failure::usage(format!(
            "--follow: {of} allocations, and at most {FOLLOWED_MAX} can be followed; name fewer, or leave --follow out"
        )));
    }
    let turns = Semaphore::new(wait::LOOKS);
    let followed = all.iter().map(|one| {
        let (mut sink, turns) = (sink(one), &turns);
        async move {
            let until = Until::EndedWithLog;
            let view = reached(client, &one.id, until, turns, &mut sink).await?;
            sink.end()?;
            Ok::<_, Failure>(view)
        }
    });
    let views = futures::future::try_join_all(followed).await?;
    Ok(ExitCode::from(wait::all(&views, Until::EndedWithLog)))
}

/// Writer of a log to standard output: unchanged, or line by line after a name.
#[derive(Default)]
pub struct Sink {
    prefix: Option<String>,
    /// Beginning of a line that is not complete yet.
    rest: Vec<u8>,
}

impl Sink {
    fn of(name: &str) -> Self {
        let prefix = Some(format!("{name}: "));
        Self {
            prefix,
            ..Self::default()
        }
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        bytes(&self.lines(data))
    }

    /// Writes the last line, which may lack an end.
    fn end(&mut self) -> Result<(), Failure> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => self.write(b"\n"),
        }
    }

    /// Returns what to write now: with a prefix the lines that are complete.
    fn lines(&mut self, data: &[u8]) -> Vec<u8> {
        let Some(prefix) = &self.prefix else {
            return data.to_vec();
        };
        let mut text = Vec::new();
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend(part);
            if part.ends_with(b"\n") {
                text.extend(prefix.as_bytes());
                text.append(&mut self.rest);
            }
        }
        text
    }
}

/// How far a log was read.
#[derive(Default)]
struct Log {
    run: u64,
    offset: u64,
}

impl Log {
    /// What there is behind that; none: no more is there now.
    async fn next(
        &mut self,
        client: &Client,
        view: &AllocationView,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        loop {
            let query = LogsQuery {
                allocation_id: view.allocation_id.clone(),
                node: view.node.clone(),
                offset: self.offset,
                max_bytes: 0,
            };
            let part = client.logs(&query).await?;
            if part.run != self.run {
                let another = self.run != 0 && self.offset != 0;
                (self.run, self.offset) = (part.run, 0);
                // What was asked for was of the run before.
                if another {
                    continue;
                }
            }
            if part.data.is_empty() {
                return Ok(None);
            }
            if part.offset > self.offset {
                note!("({} bytes were dropped)", part.offset - self.offset);
            }
            self.offset = part.offset + part.data.len() as u64;
            return Ok(Some(part.data));
        }
    }
}

/// Until when an allocation is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The cell knows of it.
    Accepted,
    Started,
    Ended,
    /// And what it writes goes to standard output meanwhile.
    EndedWithLog,
}

/// Follows one allocation until it is there. Its log goes to standard output as it is.
pub async fn follow(
    client: &Client,
    allocation_id: &str,
    until: Until,
) -> Result<AllocationView, Failure> {
    let turns = Semaphore::new(1);
    reached(client, allocation_id, until, &turns, &mut Sink::default()).await
}

/// Of one that has ended, the exit code is its command's own; 128 and its number for a signal, as in a shell.
pub fn ends_with(view: &AllocationView, until: Until) -> u8 {
    let is_there = match until {
        Until::Accepted => true,
        Until::Started => list::started_ms(view) > 0,
        Until::Ended | Until::EndedWithLog => false,
    };
    match view.ended {
        _ if is_there => 0,
        Some(ended) => code(ended.cause(), ended.exit),
        // Quota has denied it.
        None => 1,
    }
}

/// The exit code of a run's own command; none if a signal ended it, or it never ran.
pub fn exit_code(exit: Option<RunExit>) -> Option<u32> {
    exit.filter(|exit| exit.signal == 0).map(|exit| exit.code)
}

/// The signal that ended a run.
pub fn signal(exit: Option<RunExit>) -> Option<u32> {
    exit.map(|exit| exit.signal).filter(|signal| *signal != 0)
}

/// How it stands then. Where it stands meanwhile goes to standard error; it is never older than what this connection was told.
/// Of several that are waited for, as many are asked for at a time as there are `turns`. The log goes to `sink`.
pub async fn reached(
    client: &Client,
    allocation_id: &str,
    until: Until,
    turns: &Semaphore,
    sink: &mut Sink,
) -> Result<AllocationView, Failure> {
    let at_lsn = client.decided_lsn();
    let mut log = Log::default();
    let mut told = String::new();
    let mut missed = 0;
    'looks: loop {
        let turn = turns.acquire().await?;
        let looked = client.allocation(allocation_id, at_lsn).await;
        drop(turn);
        let view = match looked {
            // The read model follows what was just accepted, and a cell that is away may come back.
            Err(error) if may_pass(&error) && missed < MISSED_MAX => {
                missed += 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            view => view?,
        };
        if until == Until::Accepted {
            return Ok(view);
        }
        let stands = stands(&view);
        // How it ended is told behind all that it has written.
        let ends = until == Until::EndedWithLog && view.ended.is_some();
        if stands != told && !ends {
            note!("{allocation_id} {stands}");
            told.clone_from(&stands);
        }
        let runs = matches!(
            view.state(),
            AllocationState::Started | AllocationState::Stopping | AllocationState::Ended
        );
        if until == Until::EndedWithLog && runs && !view.node.is_empty() {
            loop {
                match log.next(client, &view).await {
                    Ok(Some(data)) => sink.write(&data)?,
                    Ok(None) => break,
                    // It may come back; of a run that is over nothing more is known.
                    Err(error) if error.rule() == Some(Rule::LogUnavailable) => {
                        if view.ended.is_some() {
                            note!("the rest of the log is not available");
                        }
                        break;
                    }
                    Err(error) if may_pass(&error) && missed < MISSED_MAX => {
                        missed += 1;
                        tokio::time::sleep(PAUSE).await;
                        continue 'looks;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        missed = 0;
        if stands != told {
            note!("{allocation_id} {stands}");
            told = stands;
        }
        let has_started = until == Until::Started && list::started_ms(&view) > 0;
        // Also where quota has denied it.
        if has_started || view.state() == AllocationState::Ended {
            return Ok(view);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn may_pass(error: &QueryError) -> bool {
    let later = [Some(Rule::AllocationNotFound), Some(Rule::NotApplied)];
    later.contains(&error.rule())
        || matches!(error, QueryError::Request(_) | QueryError::Unavailable(_))
}

fn stands(view: &AllocationView) -> String {
    match (&view.ended, &view.waiting, view.state()) {
        (Some(ended), ..) => format!("ended: {}", how(ended.cause(), ended.exit)),
        (None, Some(waiting), _) => waits(waiting),
        (None, None, AllocationState::Started) => format!("runs {}", place(view)),
        (None, None, AllocationState::Stopping) => format!("is being stopped {}", place(view)),
        (None, None, AllocationState::Placed) => format!("starts {}", place(view)),
        (None, None, _) => "waits for quota or its turn".to_owned(),
    }
}

fn place(view: &AllocationView) -> String {
    look::place(&view.node, &view.gpus)
}

/// What the command line ends with.
fn code(cause: EndCause, exit: Option<RunExit>) -> u8 {
    let low = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    match (exit, cause) {
        (Some(exit), _) if exit.signal > 0 => BY_SIGNAL.saturating_add(low(exit.signal)),
        (Some(exit), _) if exit.code > 0 => low(exit.code),
        (_, EndCause::Finished) => 0,
        // Cancelled, preempted or lost: whatever its command ended with, it has not done its work.
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_an_exit_code_or_a_signal_if_it_ran() {
        let check = |exit: Option<(u32, u32)>, expected| {
            let exit = exit.map(|(code, signal)| RunExit {
                code,
                signal,
                ..RunExit::default()
            });
            assert_eq!((exit_code(exit), signal(exit)), expected);
        };
        check(None, (None, None));
        check(Some((0, 0)), (Some(0), None));
        check(Some((7, 0)), (Some(7), None));
        check(Some((0, 15)), (None, Some(15)));
    }

    #[test]
    fn lines_of_several_logs_begin_with_their_names() {
        let written = |sink: &mut Sink, parts: &[&str]| {
            let parts = parts.iter().map(|part| sink.lines(part.as_bytes()));
            let parts: Vec<_> = parts.map(|it| String::from_utf8(it).unwrap()).collect();
            parts.join("|")
        };
        let mut alone = Sink::default();
        assert_eq!(written(&mut alone, &["a\nb", "c\n"]), "a\nb|c\n");
        assert!(alone.rest.is_empty());
        let mut one = Sink::of("s-1");
        let expected = "s-1: a\n|s-1: bc\ns-1: \n|";
        assert_eq!(written(&mut one, &["a\nb", "c\n\n", "end"]), expected);
        assert_eq!(one.rest, b"end");
    }

    #[test]
    fn the_exit_code_is_the_commands() {
        let check = |cause, exit: Option<(u32, u32)>, expected| {
            let exit = exit.map(|(code, signal)| RunExit {
                code,
                signal,
                ..RunExit::default()
            });
            assert_eq!(code(cause, exit), expected, "{cause:?} {exit:?}");
        };
        check(EndCause::Finished, None, 0);
        check(EndCause::Finished, Some((0, 0)), 0);
        check(EndCause::Failed, Some((3, 0)), 3);
        check(EndCause::Failed, Some((0, 9)), 137);
        check(EndCause::Failed, None, 1);
        check(EndCause::Cancelled, Some((0, 0)), 1);
        check(EndCause::Cancelled, Some((0, 15)), 143);
        check(EndCause::NodeLost, None, 1);
        check(EndCause::Failed, Some((999, 0)), 255);
    }
}
