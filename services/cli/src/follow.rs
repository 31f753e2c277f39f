//! What a run writes, and how it ends.

use crate::{
    Failure,
    context::{Context, Whose},
    get, list, look, names,
    print::{bytes, note},
    submit::{how, waits},
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

/// Show what a run has written.
#[derive(Args)]
pub struct Logs {
    #[command(flatten)]
    whose: Whose,
    /// Its id or name, or the beginning of one.
    allocation_id: String,
    /// Go on until the allocation has ended, and end with the exit code of its command.
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        if self.follow {
            let id = names::allocation(&client, &self.allocation_id).await?;
            return follow(&client, &id, Until::EndedWithLog).await;
        }
        let view = get::allocation(&client, &self.allocation_id).await?;
        if view.node.is_empty() {
            return Err(format!("{} has not run", self.allocation_id).into());
        }
        let mut log = Log::default();
        while let Some(data) = log.next(&client, &view).await? {
            bytes(&data)?;
        }
        Ok(ExitCode::SUCCESS)
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

/// What the command line ends with, once it is there: see [`ends_with`].
pub async fn follow(
    client: &Client,
    allocation_id: &str,
    until: Until,
) -> Result<ExitCode, Failure> {
    let view = reached(client, allocation_id, until, &Semaphore::new(1)).await?;
    Ok(ExitCode::from(ends_with(&view, until)))
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
/// Whoever waits for others, too, looks at so many at once as there are `turns`.
pub async fn reached(
    client: &Client,
    allocation_id: &str,
    until: Until,
    turns: &Semaphore,
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
                    Ok(Some(data)) => bytes(&data)?,
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
