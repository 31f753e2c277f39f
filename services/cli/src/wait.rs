//! Waiting for allocations.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    follow::{Sink, Until, ends_with, exit_code, reached, signal},
    list,
    names::Several,
    print::{
        Cell, Output, Page, Sheet, absent, allocation, column, earliest, moment_or_never, named,
        plain, valued, wide,
    },
    sending::Left,
};
use clap::{Args, ValueEnum};
use client::{AllocationView, Client};
use std::{process::ExitCode, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};

/// Of the exit code.
const ENDS: &str = "\
Exit codes:
  0  all are there; with --for ended, all have finished
  1  one has ended otherwise, or before it was there; of one allocation alone with --for ended, the exit code of the run's own
     command, and 128 and the number for a signal
  3  one is not there for who asks
  6  not in time: one was not there before --timeout, and goes on";

#[derive(Args)]
#[command(after_help = ENDS)]
pub struct Wait {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    several: Several,
    /// What to wait for.
    #[arg(long = "for", value_enum, value_name = "WHAT", default_value_t)]
    what: What,
    /// How long to wait: 30s, 10m, 2h; a second at least, so that the cell is asked. Without it, as long as it takes.
    #[arg(long, value_name = "DURATION", value_parser = amount::duration_ms)]
    timeout: Option<i64>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum What {
    /// The cell knows of it, also where quota has denied it.
    Accepted,
    /// Its run has started.
    Started,
    /// It has ended.
    #[default]
    Ended,
}

impl What {
    fn until(self) -> Until {
        match self {
            Self::Accepted => Until::Accepted,
            Self::Started => Until::Started,
            Self::Ended => Until::Ended,
        }
    }
}

impl Wait {
    pub async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let timeout = self
            .timeout
            .map(|ms| Duration::from_millis(ms.unsigned_abs()).max(LOOK));
        let (left, until) = (Left::of(timeout), self.what.until());
        let late = || Failure::late("not all were there in time; they go on");
        let client = left.within(context.asker_of_one(self.whose.tenant.as_deref()));
        let client = client.await.ok_or_else(late)??;
        let found = left.within(self.several.found(&client)).await;
        let ids = found.ok_or_else(late)??.into_iter().map(|one| one.id);
        let ids = ids.collect();
        let (views, is_late) = reach(&client, ids, until, &left).await?;
        let lsn = earliest(views.iter().map(|view| view.lsn));
        Page::of(sheet(&views), lsn, "none of them yet").print(self.output)?;
        match is_late {
            true => Err(late()),
            false => Ok(ExitCode::from(all(&views, until))),
        }
    }
}

/// Enough for a connection and a look.
const LOOK: Duration = Duration::from_secs(1);
/// So many are looked at at once; the cell answers fewer of a tenant's questions at a time.
pub const LOOKS: usize = 8;

/// Those that are there, in their order, and whether the time was over before all were.
pub async fn reach(
    client: &Client,
    ids: Vec<String>,
    until: Until,
    left: &Left,
) -> Result<(Vec<AllocationView>, bool), Failure> {
    let turns = Arc::new(Semaphore::new(LOOKS));
    let mut waits = JoinSet::new();
    for (at, id) in ids.into_iter().enumerate() {
        let (client, turns) = (client.clone(), turns.clone());
        waits.spawn(async move {
            let mut sink = Sink::default();
            (at, reached(&client, &id, until, &turns, &mut sink).await)
        });
    }
    let mut there = Vec::new();
    let is_late = loop {
        match left.within(waits.join_next()).await {
            Some(Some(done)) => {
                let (at, view) = done?;
                there.push((at, view?));
            }
            Some(None) => break false,
            None => break true,
        }
    };
    there.sort_by_key(|(at, _)| *at);
    Ok((there.into_iter().map(|(_, view)| view).collect(), is_late))
}

/// What the command line ends with.
pub fn all(views: &[AllocationView], until: Until) -> u8 {
    let codes: Vec<u8> = views.iter().map(|view| ends_with(view, until)).collect();
    match codes[..] {
        [one] => one,
        _ => u8::from(codes.iter().any(|code| *code != 0)),
    }
}

/// A number; none where the run did not end by itself, or never began.
fn known(number: Option<u32>) -> Cell {
    match number {
        Some(number) => valued(number.to_string(), number),
        None => absent("-"),
    }
}

pub fn sheet(views: &[AllocationView]) -> Sheet {
    let row = |one: &AllocationView| {
        let ended_ms = one.ended.as_ref().map_or(0, |ended| ended.ended_ms);
        vec![
            allocation(&one.allocation_id),
            named(&one.name),
            plain(list::state(one)).tone(list::tone(one)),
            moment_or_never(list::started_ms(one)),
            moment_or_never(ended_ms),
            known(one.ended.and_then(|ended| exit_code(ended.exit))),
            known(one.ended.and_then(|ended| signal(ended.exit))),
        ]
    };
    let columns = vec![
        column("allocation_id", "allocation"),
        column("name", "name"),
        column("state", "state"),
        column("started_ms", "started").rank(9),
        column("ended_ms", "ended").rank(8),
        column("exit_code", "exit code"),
        wide("signal", "signal"),
    ];
    Sheet::new(columns, 5, views.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{EndCause, Ended, RunExit};

    #[test]
    fn the_exit_code_is_of_the_one_or_of_any() {
        let ended = |cause: EndCause, code| {
            let exit = Some(RunExit {
                code,
                ..RunExit::default()
            });
            let ended = Ended {
                cause: cause.into(),
                started_ms: 1,
                exit,
                ..Ended::default()
            };
            AllocationView {
                ended: Some(ended),
                ..AllocationView::default()
            }
        };
        let done = ended(EndCause::Finished, 0);
        let failed = ended(EndCause::Failed, 3);
        let denied = AllocationView::default();
        let check = |views: &[&AllocationView], until, expected| {
            let views: Vec<_> = views.iter().map(|view| (*view).clone()).collect();
            assert_eq!(all(&views, until), expected);
        };
        check(&[&done], Until::Ended, 0);
        check(&[&failed], Until::Ended, 3);
        check(&[&done, &failed], Until::Ended, 1);
        check(&[&done, &done], Until::Ended, 0);
        check(&[&failed], Until::Started, 0);
        check(&[&denied], Until::Started, 1);
        check(&[&denied], Until::Accepted, 0);
    }
}
