//! The projection as instruments, health and sampled journeys see it.

use crate::metrics::Instruments;
use chassis::{
    Clock, ComponentHandle, Follower, Journey, Progress, SpanKind, Stamp, TraceParent, query::Mark,
};
use ledger::Frame;
use ledger_nats::ProjectorObserver;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use vocab::fact::{
    AllocationEnded, AllocationRequested, AllocationRequeued, AllocationStarted, Inputs,
    QuotaDenied,
};
use vocab::inputs;
use vocab::subjects::Subjects;
use vocab::{AllocationNo, At, CellNo, Lsn, Millis, Token, Writer};

/// Sampled allocations followed at the same time; more are not followed.
const FOLLOWED_MAX: usize = 10_000;

/// What the sink tells the observer: everything up to here was in the tables when the projection began.
pub type ResumedThrough = Arc<AtomicU64>;

inputs! {
    /// What a run begins and ends with.
    enum Run {
        AllocationRequested,
        AllocationStarted,
        QuotaDenied,
        AllocationRequeued,
        AllocationEnded,
    }
}

struct Followed {
    tenant: Token,
    /// Of the client's request.
    parent: TraceParent,
    started: bool,
}

/// A sampled run that is over and not yet in the tables.
struct Billing {
    lsn: Lsn,
    allocation: AllocationNo,
    tenant: Token,
    /// The span of the event that says that the run is over.
    parent: TraceParent,
    since: Stamp,
}

/// Counts, and ends the journey of a sampled request with the span `bill allocation`.
pub struct Shell {
    instruments: Instruments,
    progress: Progress,
    health: ComponentHandle,
    follower: Follower,
    journey: Journey,
    ledger: String,
    cell: CellNo,
    clock: Clock,
    resumed: ResumedThrough,
    mark: Mark,
    followed: BTreeMap<AllocationNo, Followed>,
    billing: VecDeque<Billing>,
    newest: Millis,
}

impl Shell {
    pub fn new(
        instruments: Instruments,
        health: ComponentHandle,
        (follower, progress): (Follower, Progress),
        (journey, subjects, cell): (Journey, Subjects, CellNo),
        clock: Clock,
        resumed: ResumedThrough,
        mark: Mark,
    ) -> Self {
        Self {
            instruments,
            progress,
            health,
            follower,
            journey,
            ledger: subjects.ledger(Writer::Scheduler.name()),
            cell,
            clock,
            resumed,
            mark,
            followed: BTreeMap::new(),
            billing: VecDeque::new(),
            newest: Millis::default(),
        }
    }

    fn follow(&mut self, at: &At, run: Run<'_>) {
        match run {
            Run::AllocationRequested(AllocationRequested { operation, .. }) => {
                let parent = operation.trace.and_then(|trace| {
                    TraceParent::new(trace.trace_id, trace.span_id, trace.flags & 1 == 1)
                });
                if let Some(parent) = parent.filter(TraceParent::sampled)
                    && self.followed.len() < FOLLOWED_MAX
                {
                    let followed = Followed {
                        tenant: operation.tenant.clone(),
                        parent,
                        started: false,
                    };
                    self.followed.insert(AllocationNo(at.no.0), followed);
                }
            }
            Run::AllocationStarted(AllocationStarted { allocation, .. }) => {
                if let Some(followed) = self.followed.get_mut(allocation) {
                    followed.started = true;
                }
            }
            Run::QuotaDenied(QuotaDenied { allocation, .. }) => {
                self.followed.remove(allocation);
            }
            Run::AllocationRequeued(AllocationRequeued { allocation, .. }) => {
                if let Some(followed) = self.followed.get_mut(allocation) {
                    let ran = std::mem::take(&mut followed.started);
                    let of = (followed.parent, followed.tenant.clone());
                    self.over(at, *allocation, ran.then_some(of));
                }
            }
            Run::AllocationEnded(AllocationEnded { allocation, .. }) => {
                let last = self.followed.remove(allocation);
                let last = last.filter(|last| last.started);
                self.over(at, *allocation, last.map(|last| (last.parent, last.tenant)));
            }
        }
    }

    /// A run is over; what was in the tables when the projection began has had its span.
    fn over(&mut self, at: &At, allocation: AllocationNo, of: Option<(TraceParent, Token)>) {
        let known = at.lsn.0 <= self.resumed.load(Ordering::Relaxed);
        if let Some((parent, tenant)) = of.filter(|_| !known) {
            self.billing.push_back(Billing {
                lsn: at.lsn,
                allocation,
                tenant,
                parent: parent.of_event(Writer::Scheduler.name(), at.no.0),
                since: Stamp::now(),
            });
        }
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl ProjectorObserver for Shell {
    fn borne_out(&mut self) {
        self.health.degraded("catching up");
    }

    fn received(&mut self, frame: &Frame) {
        self.instruments.received.set(gauge(frame.lsn.0));
        self.follower.read(frame.lsn);
        self.newest = frame.now;
        if self.journey.enabled() {
            for (at, event) in frame.placed() {
                if let Some(run) = Run::of(event) {
                    self.follow(&at, run);
                }
            }
        }
    }

    fn applied(&mut self, to: Lsn, changes: usize) {
        self.instruments.batches.inc_by(u64::from(changes > 0));
        self.progress.applied(to, changes);
        self.follower.read(to);
        self.mark.set(to);
        let lag_ms = self.clock.now_ms().saturating_sub(self.newest.0);
        let age = &self.instruments.applied_age_seconds;
        age.set(lag_ms as f64 / 1000.0);
        self.health.ready();
        let end = Stamp::now();
        while let Some(billing) = self.billing.pop_front_if(|billing| billing.lsn <= to) {
            // Another projector has written it, and made its span.
            if changes == 0 {
                continue;
            }
            let kind = SpanKind::Consumer;
            let id = billing.allocation.id(self.cell).to_string();
            self.journey.span(
                "bill allocation",
                kind,
                &billing.parent,
                billing.since,
                end,
                &[
                    ("messaging.system", "nats".into()),
                    ("messaging.destination.name", self.ledger.as_str().into()),
                    ("messaging.operation.name", "bill".into()),
                    ("messaging.operation.type", "process".into()),
                    ("apportion.service", "analytics".into()),
                    ("apportion.tenant", billing.tenant.as_str().into()),
                    ("apportion.allocation.id", id.as_str().into()),
                    ("apportion.lsn", billing.lsn.0.into()),
                ],
            );
        }
    }

    fn retrying(&mut self, why: &str) {
        self.progress.retries();
        self.health.degraded(why.to_owned());
        tracing::warn!(projection = "analytics", why, "retrying");
    }
}
