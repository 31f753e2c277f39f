//! Sends tasks and counts what becomes of them.
//!
//! Open loop: each message's moment is fixed before, and the time of its tasks is counted from there, however late it
//! is sent. Closed loop: a bounded number of tasks is under way.

use super::{
    counts::{Counts, add},
    scene::Scene,
    task::Tasks,
};
use chassis::Stopwatch;
use client::{Client, NoOutcome, Operation, Outcome, Pending};
use futures::{StreamExt, stream::FuturesUnordered};
use hdrhistogram::Histogram;
use replay::latency::{histogram, micros};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use uuid::Uuid;

/// Sendings of one operation until it is given up.
const ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A closed loop looks this often whether there is room again.
const LOOK: Duration = Duration::from_millis(1);
/// Messages under way when there is no other bound.
const CLUMPS_MAX: usize = 40;
/// Single requests in one clump of a closed loop.
const SINGLES: u64 = 20;
/// Single requests that fall due within this time are sent, and waited for, together.
const TICK: Duration = Duration::from_millis(1);

/// The load of one case.
pub struct Load<'s> {
    pub scene: &'s Scene,
    pub counts: Counts,
    pub tasks: Tasks,
    /// Requests in one message, at the most.
    batch: u64,
    next: Cell<usize>,
    /// One message in so many is traced; 0: none.
    pub trace_one_in: Cell<u64>,
}

/// Tasks that are sent together; the first falls due at `due`, each other one `step` later.
#[derive(Debug, Clone, Copy)]
struct Clump {
    due: Duration,
    step: Duration,
    size: u64,
}

/// A fixed rate for a time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub per_s: f64,
    /// Counts as warming up until then.
    pub warm_up: Duration,
    pub window: Duration,
}

impl Pace {
    pub fn end(&self) -> Duration {
        self.warm_up + self.window
    }

    /// What has fallen due by then.
    pub fn due(&self, at: Duration) -> f64 {
        self.per_s * at.min(self.end()).as_secs_f64()
    }
}

impl<'s> Load<'s> {
    pub fn new(scene: &'s Scene, tasks: Tasks, batch: u64) -> Self {
        Self {
            tasks,
            counts: Counts::default(),
            batch,
            next: Cell::new(0),
            trace_one_in: Cell::new(0),
            scene,
        }
    }

    /// How many requests go in one message: what comes within ten milliseconds, up to the batch.
    pub fn message(&self, per_s: f64) -> u64 {
        ((per_s / 100.0) as u64).clamp(1, self.batch)
    }

    fn clump(&self, pace: &Pace, sent: u64) -> Clump {
        let per_task = Duration::from_secs_f64(1.0 / pace.per_s);
        let due = Duration::from_secs_f64(sent as f64 / pace.per_s);
        if self.batch > 1 {
            let (size, step) = (self.message(pace.per_s), Duration::ZERO);
            return Clump { due, step, size };
        }
        let size = (TICK.as_secs_f64() * pace.per_s) as u64;
        Clump {
            due,
            step: per_task,
            size: size.max(1),
        }
    }

    /// Sends at the pace, until all that was sent has an outcome or `stop` says that there are too many without. Micros
    /// of what fell due in the window.
    pub async fn paced(&self, pace: &Pace, since: Stopwatch, stop: &Cell<bool>) -> Histogram<u64> {
        let seen = RefCell::new(histogram());
        let mut under_way = FuturesUnordered::new();
        let mut sent = 0;
        loop {
            let clump = self.clump(pace, sent);
            if clump.due >= pace.end() || stop.get() {
                break;
            }
            // A clump of single requests goes when its last one is due; each is late by its own share of the tick.
            let due = clump.due + clump.step.mul_f64((clump.size - 1) as f64);
            // A timer sleeps to the end of its millisecond at the least, so what is late must not sleep at all.
            while let Some(ahead) = due.checked_sub(since.elapsed()) {
                let pause = tokio::time::sleep(ahead);
                tokio::pin!(pause);
                tokio::select! {
                    biased;
                    () = &mut pause => {}
                    Some(()) = under_way.next() => {}
                }
            }
            let counted = clump.due >= pace.warm_up;
            let seen = counted.then_some(&seen);
            sent += clump.size;
            // The first poll sends it; the client's own tasks have their turn even when all is late.
            let mut sent_now = Box::pin(self.clump_sent(clump, since, seen));
            if futures::future::poll_immediate(&mut sent_now)
                .await
                .is_none()
            {
                under_way.push(sent_now);
            }
            tokio::task::yield_now().await;
        }
        while under_way.next().await.is_some() {}
        drop(under_way);
        seen.into_inner()
    }

    /// As fast as it goes with at most `tasks_max` that have no outcome, or have not ended on their node.
    pub async fn bounded(&self, tasks_max: u64, window: Duration) {
        let since = Stopwatch::start();
        let mut under_way = FuturesUnordered::new();
        let before = self.counts.accepted() - self.ended();
        while since.elapsed() < window {
            let size = if self.batch > 1 { self.batch } else { SINGLES };
            let unended = || self.counts.accepted().saturating_sub(self.ended() + before);
            while unended() + self.counts.under_way() + size <= tasks_max {
                let (due, step) = (since.elapsed(), Duration::ZERO);
                let clump = Clump { due, step, size };
                under_way.push(self.clump_sent(clump, since, None));
                // The first poll sends it, and counts it.
                futures::future::poll_immediate(under_way.next()).await;
            }
            let pause = tokio::time::sleep(LOOK);
            tokio::pin!(pause);
            tokio::select! {
                () = &mut pause => {}
                Some(()) = under_way.next() => {}
            }
        }
        while under_way.next().await.is_some() {}
    }

    /// So many tasks, as fast as they are answered.
    pub async fn all(&self, count: u64) {
        let since = Stopwatch::start();
        let clump = |_| {
            let (due, step, size) = (Duration::ZERO, Duration::ZERO, self.batch);
            self.clump_sent(Clump { due, step, size }, since, None)
        };
        let clumps = futures::stream::iter(0..count.div_ceil(self.batch)).map(clump);
        clumps.buffer_unordered(CLUMPS_MAX).collect::<()>().await;
    }

    fn ended(&self) -> u64 {
        self.scene.agents.tally().finished
    }

    /// Sends a clump and waits for its outcomes, one after the other: an outcome is never taken for earlier than it was.
    async fn clump_sent(
        &self,
        clump: Clump,
        since: Stopwatch,
        seen: Option<&RefCell<Histogram<u64>>>,
    ) {
        let clients = &self.scene.clients;
        let client = &clients[self.next.replace(self.next.get() + 1) % clients.len()];
        let traceparent = self.traceparent();
        let traced = |operation: Operation| operation.traced(traceparent.clone());
        let operations: Vec<Operation> = self.tasks.take(clump.size).map(traced).collect();
        add(&self.counts.sent, clump.size);
        let due = |at: usize| clump.due + clump.step.mul_f64(at as f64);
        if self.batch > 1 {
            let sent = client.send_all(&operations).await;
            for (at, (operation, pending)) in operations.iter().zip(sent).enumerate() {
                let outcome = self.definite(client, operation, pending).await;
                self.answered(outcome, due(at), since, seen);
            }
            return;
        }
        // Each by itself: what is sent waits for its acknowledgement only while it is polled, and only so many may wait.
        let each = operations
            .iter()
            .enumerate()
            .map(|(at, operation)| async move {
                let pending = client.send(operation).await;
                let outcome = self.definite(client, operation, pending).await;
                self.answered(outcome, due(at), since, seen);
            });
        futures::future::join_all(each).await;
    }

    /// For the next clump, if it is its turn.
    fn traceparent(&self) -> Option<String> {
        let one_in = self.trace_one_in.get() as usize;
        let turn = one_in > 0 && self.next.get().is_multiple_of(one_in);
        turn.then(|| {
            let (trace, span) = Uuid::new_v4().as_u64_pair();
            format!("00-{trace:016x}{span:016x}-{span:016x}-01")
        })
    }

    fn answered(
        &self,
        outcome: Result<Outcome, NoOutcome>,
        due: Duration,
        since: Stopwatch,
        seen: Option<&RefCell<Histogram<u64>>>,
    ) {
        self.counts.outcome(outcome);
        if let Some(seen) = seen {
            let took = since.elapsed().saturating_sub(due);
            seen.borrow_mut().saturating_record(micros(took));
        }
    }

    async fn definite(
        &self,
        client: &Client,
        operation: &Operation,
        pending: Result<Pending, NoOutcome>,
    ) -> Result<Outcome, NoOutcome> {
        let mut outcome = match pending {
            Ok(pending) => pending.outcome().await,
            Err(none) => Err(none),
        };
        for _ in 1..ATTEMPTS {
            match outcome {
                Err(error) if error.retryable() => {
                    add(&self.counts.again, 1);
                    *self.counts.trouble.borrow_mut() = error.to_string();
                }
                done => return done,
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            outcome = client.call(operation).await;
        }
        outcome
    }
}
