//! Looks at how far everything is: the ledger's end, what the read models have applied, what is on the bill.

use super::{BenchError, audit::AuditError, counts::Counts, load::Load};
use crate::kit::usage::SERVICES;
use chassis::{Stopwatch, stack::Stack};
use ledger::Bus;
use ledger_nats::jetstream::JetStreamBus;
use replay::{drive::projected_lsn, reach::ledger};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

const PERIOD: Duration = Duration::from_millis(500);
const DRAIN_PERIOD: Duration = Duration::from_millis(50);
const DRAIN_SOON: Duration = Duration::from_secs(4);
/// This long without any progress is the end of patience.
const STALL_MAX: Duration = Duration::from_secs(30);
/// A rate is given up when this many seconds' worth of load have no outcome, or this many are not on the bill.
const OPEN_OUTCOMES_S_MAX: f64 = 3.0;
const OPEN_TASKS_S_MAX: f64 = 4.0;

pub struct Observer<'s> {
    stack: &'s Stack,
    bus: JetStreamBus,
    bill: clickhouse::Client,
    /// What was on the bill before the case began.
    billed_before: u64,
}

/// One look, with what the driver had counted then.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    pub at: Duration,
    pub answered: u64,
    pub accepted: u64,
    /// Of the run: over, and on the bill.
    pub billed: u64,
    pub ledger_end: u64,
    /// The slowest read model.
    pub applied: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct LedgerSize {
    pub bytes: u64,
    pub frames: u64,
}

impl LedgerSize {
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            frames: self.frames - before.frames,
        }
    }
}

impl<'s> Observer<'s> {
    pub async fn open(stack: &'s Stack) -> Result<Self, BenchError> {
        let mut observer = Self {
            bus: ledger(stack).await?,
            billed_before: 0,
            bill: stack.bill()?,
            stack,
        };
        let since = Stopwatch::start();
        loop {
            match observer.billed().await {
                Ok(billed) => {
                    observer.billed_before = billed;
                    return Ok(observer);
                }
                Err(error) if since.elapsed() > STALL_MAX => return Err(error),
                // On a stack that has just been started the tables may be yet to come.
                Err(_) => tokio::time::sleep(PERIOD).await,
            }
        }
    }

    /// The engine knows the number of its rows without reading them.
    async fn billed(&self) -> Result<u64, BenchError> {
        let query = self.bill.query("SELECT count() FROM allocation_intervals");
        let all = query.fetch_one::<u64>().await.map_err(AuditError::from)?;
        Ok(all.saturating_sub(self.billed_before))
    }

    pub async fn look(&self, since: Stopwatch, counts: &Counts) -> Result<Sample, BenchError> {
        // First what may lag, then what it lags behind: never better than it is.
        let applied = self.applied().await;
        let billed = self.billed().await?;
        let ledger_end = self
            .bus
            .end()
            .await
            .map_err(replay::reach::ReachError::from)?;
        Ok(Sample {
            at: since.elapsed(),
            answered: counts.answered.get(),
            accepted: counts.accepted(),
            billed,
            ledger_end: ledger_end.0,
            applied,
        })
    }

    async fn applied(&self) -> u64 {
        let mut slowest = u64::MAX;
        for service in SERVICES {
            let Some(address) = self.stack.services.get(service) else {
                continue;
            };
            slowest = slowest.min(projected_lsn(address.http).await.unwrap_or(0));
        }
        slowest
    }

    /// Looks on until `over`; sets `stop` when too much piles up.
    pub async fn watch(
        &self,
        since: Stopwatch,
        counts: &Counts,
        due: impl Fn(Duration) -> f64,
        per_s: f64,
        (over, stop): (Duration, &Cell<bool>),
        samples: &RefCell<Vec<Sample>>,
    ) -> Result<(), BenchError> {
        let answered_before = counts.answered.get();
        while since.elapsed() < over && !stop.get() {
            let sample = self.look(since, counts).await?;
            let open = due(sample.at) - (sample.answered - answered_before) as f64;
            let open_tasks = sample.accepted.saturating_sub(sample.billed) as f64;
            // A little load may well be all in one message.
            let too_many = |open: f64, seconds: f64| open > per_s * seconds + 1000.0;
            stop.set(too_many(open, OPEN_OUTCOMES_S_MAX) || too_many(open_tasks, OPEN_TASKS_S_MAX));
            samples.borrow_mut().push(sample);
            let left = over.saturating_sub(since.elapsed());
            tokio::time::sleep(PERIOD.min(left)).await;
        }
        Ok(())
    }

    /// Until all that was accepted is on the bill, and every read model has it.
    pub async fn drained(&self, since: Stopwatch, load: &Load<'_>) -> Result<Sample, BenchError> {
        let over = |now: &Sample| now.billed >= now.accepted;
        self.settled(since, &load.counts, over).await
    }

    /// Until everything has an outcome, it is `over`, and every read model is where the ledger ended before the last look.
    pub async fn settled(
        &self,
        since: Stopwatch,
        counts: &Counts,
        over: impl Fn(&Sample) -> bool,
    ) -> Result<Sample, BenchError> {
        let draining = Stopwatch::start();
        let mut last = self.look(since, counts).await?;
        let mut still = Stopwatch::start();
        loop {
            // Once it has taken too long, a little more or less says nothing, and looking is not free.
            let soon = draining.elapsed() < DRAIN_SOON;
            tokio::time::sleep(if soon { DRAIN_PERIOD } else { PERIOD }).await;
            let now = self.look(since, counts).await?;
            if counts.under_way() == 0 && over(&now) && now.applied >= last.ledger_end {
                return Ok(now);
            }
            let moved = (now.billed, now.applied) != (last.billed, last.applied);
            if moved || now.answered != last.answered {
                still = Stopwatch::start();
            }
            if still.elapsed() > STALL_MAX {
                return Err(BenchError::Stalled {
                    accepted: now.accepted,
                    billed: now.billed,
                    ledger_end: now.ledger_end,
                    applied: now.applied,
                });
            }
            last = now;
        }
    }

    /// The ledger's stream loses nothing, so that it only grows.
    pub async fn ledger_size(&self) -> Result<LedgerSize, BenchError> {
        let name = self.bus.subjects().ledger_stream();
        let stream = self.bus.context().get_stream(name).await;
        let stream = stream.map_err(|error| BenchError::Ledger(error.to_string()))?;
        let state = &stream.cached_info().state;
        Ok(LedgerSize {
            bytes: state.bytes,
            frames: state.messages,
        })
    }
}
