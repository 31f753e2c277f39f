//! Waits until everything has ended and the bill has caught up. Every wait has an end that says what is missing.

use super::{
    bill::{Bill, BillError, Standing},
    gauges,
    operator::OperatorError,
    scene::Scene,
};
use analytics::store::{Imbalance, ReconciledMonth};
use chassis::Stopwatch;
use chassis::stack::{Stack, StackError};
use std::{ops::RangeInclusive, time::Duration};
use vocab::Month;

const PERIOD: Duration = Duration::from_millis(100);
/// This long without any progress is the end of patience.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Longer than a batch takes to be sent.
const BALANCE_MAX: Duration = Duration::from_secs(10);
const SAMPLES_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(
        "{open} allocations had not ended {} s after the last one that did, among them {sample}",
        STALL_MAX.as_secs()
    )]
    NotEnded { open: usize, sample: String },
    #[error(
        "ClickHouse stands at position {} of {wanted} with {} intervals of {intervals}, and had not moved for {} s",
        standing.through_lsn, standing.intervals, STALL_MAX.as_secs()
    )]
    BillBehind {
        wanted: u64,
        intervals: u64,
        standing: Standing,
    },
    #[error(
        "the read model of {service} stands at position {stands} of {wanted}, and had not moved for {} s",
        STALL_MAX.as_secs()
    )]
    WarmStateBehind {
        service: &'static str,
        wanted: u64,
        stands: u64,
    },
    #[error("ClickHouse had not heard for {} s that {month} is closed", STALL_MAX.as_secs())]
    NotClosed { month: Month },
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Bill(#[from] BillError),
}

/// Until every allocation that was accepted, or that any feed has shown, is over in its tenant's feed.
pub async fn all_ended(scene: &Scene) -> Result<(), SettleError> {
    let mut last = 0;
    let mut still = Stopwatch::start();
    loop {
        let open = open_allocations(scene);
        if open.is_empty() {
            return Ok(());
        }
        let (_, _, ended) = scene.witness().progress();
        // Before the recorded end there may be nothing to see for long.
        if ended != last || scene.clock.now_ms() < scene.workload.last_ms() {
            last = ended;
            still = Stopwatch::start();
        }
        if still.elapsed() > STALL_MAX {
            let sample: Vec<&str> = open.iter().take(SAMPLES_MAX).map(String::as_str).collect();
            return Err(SettleError::NotEnded {
                open: open.len(),
                sample: sample.join(", "),
            });
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn open_allocations(scene: &Scene) -> Vec<String> {
    let accepted: Vec<String> = scene.desk().allocations().map(str::to_owned).collect();
    let witness = scene.witness();
    let unseen = accepted
        .into_iter()
        .filter(|id| !witness.stories().contains_key(id));
    let shown = witness.stories().iter();
    let running = shown
        .filter(|(_, story)| story.ended.is_empty())
        .map(|(id, _)| id.clone());
    unseen.chain(running).collect()
}

/// Until ClickHouse holds every run that the feeds have shown the end of. Errors on the way are waited out.
pub async fn bill_caught_up(scene: &Scene, bill: &Bill) -> Result<Standing, SettleError> {
    // What comes later on the ledger may be nothing to a projection, and then it does not move.
    let wanted = scene.witness().last_run_end().lsn;
    let intervals = scene.witness().intervals(&scene.workload).len() as u64;
    bill_at(wanted, intervals, bill).await
}

/// Until ClickHouse stands at the position, where there are so many intervals.
pub async fn bill_at(wanted: u64, intervals: u64, bill: &Bill) -> Result<Standing, SettleError> {
    let mut last = Standing::default();
    let mut still = Stopwatch::start();
    loop {
        match bill.standing().await {
            Ok(standing) if standing.through_lsn >= wanted => return Ok(standing),
            Ok(standing) if standing != last => {
                last = standing;
                still = Stopwatch::start();
            }
            Ok(standing) if still.elapsed() > STALL_MAX => {
                return Err(SettleError::BillBehind {
                    wanted,
                    intervals,
                    standing,
                });
            }
            Err(error) if still.elapsed() > STALL_MAX => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// The books of everything, asked for again for a while when they do not balance: the comparison is exact only when
/// nothing is being sent, and other facts than the last run's end may still be on their way.
pub async fn balance(bill: &Bill) -> Result<Vec<Imbalance>, SettleError> {
    let since = Stopwatch::start();
    loop {
        let books = bill.conservation().await?;
        if books.iter().all(|line| line.error == 0) || since.elapsed() > BALANCE_MAX {
            return Ok(books);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// What became of the months, once ClickHouse has heard that the last one that was closed is.
pub async fn months_closed(
    bill: &Bill,
    months: RangeInclusive<Month>,
    closed: Option<Month>,
) -> Result<Vec<ReconciledMonth>, SettleError> {
    let since = Stopwatch::start();
    let names = months.start().to_string()..=months.end().to_string();
    loop {
        let mut found = bill.months().await?;
        found.retain(|line| names.contains(&line.month));
        let Some(month) = closed else {
            return Ok(found);
        };
        let name = month.to_string();
        if found.iter().any(|line| line.closed && line.month == name) {
            return Ok(found);
        }
        if since.elapsed() > STALL_MAX {
            return Err(SettleError::NotClosed { month });
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Until the read models in Postgres that every end of a run changes have seen the last one.
pub async fn warm_state_caught_up(scene: &Scene, stack: &Stack) -> Result<(), SettleError> {
    let wanted = scene.witness().last_run_end().lsn;
    for service in ["quota", "scheduler"] {
        let Some(address) = stack.services.get(service) else {
            continue;
        };
        let mut last = None;
        let mut still = Stopwatch::start();
        loop {
            let now = gauges::projected_lsn(address.http).await;
            if now.is_some_and(|lsn| lsn >= wanted) {
                break;
            }
            if now != last {
                last = now;
                still = Stopwatch::start();
            }
            if still.elapsed() > STALL_MAX {
                return Err(SettleError::WarmStateBehind {
                    service,
                    wanted,
                    stands: last.unwrap_or(0),
                });
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
    Ok(())
}
