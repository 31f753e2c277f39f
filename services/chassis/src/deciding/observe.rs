//! Leaders and projectors as instruments and health see them.

use ledger::{BusError, Figures, Frame};
use ledger_nats::{Observer, ProjectorObserver, Standing};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use std::collections::BTreeMap;
use tokio::sync::watch;
use vocab::{Event, EventKind, Lsn, Refusal};

use super::JourneyTap;
use crate::clock::{Stamp, Stopwatch};
use crate::health::ComponentHandle;
use crate::metrics::{Metric, Metrics, Shown};
use crate::projection::Progress;
use crate::query::Mark;
use crate::service::Context;
use crate::watch::{Behind, CLOCK_AHEAD_SECONDS, CLOCK_STEPS, Follower};

const BYTES: [f64; 7] = [256.0, 1e3, 4e3, 16e3, 64e3, 256e3, 1e6];
const SECONDS: [f64; 9] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0];

/// Real milliseconds between looks at what the state shows, at the least.
const LOOK_EVERY_MS: u64 = 2000;
/// A look takes no more than one part in so many of the leader's time.
const LOOK_SHARE: u64 = 500;

const FRAMES: Metric = Metric::counter("apportion_frames_total", "Frames appended to the ledger");
const EVENTS: Metric = Metric::counter(
    "apportion_events_total",
    "Events appended to the ledger, by kind",
)
.by(&["kind"]);
const DECISIONS: Metric = Metric::counter(
    "apportion_decisions_total",
    "What became of requests: of allocations that were requested and of other operations, and of allocations later. \
     `outcome` is requested or refused (admission), reserved or denied (quota), placed, waiting, started, preempted, requeued \
     or ended (scheduler)",
)
.by(&["outcome"]);
const REFUSALS: Metric = Metric::counter(
    "apportion_refusals_total",
    "Operations that were refused on the ledger, by the broken rule",
)
.by(&["rule"]);
const ENDS: Metric = Metric::counter(
    "apportion_allocations_ended_total",
    "Allocations that ended, by cause (the scheduler's)",
)
.by(&["cause"]);
const PREEMPTIONS: Metric = Metric::counter(
    "apportion_preemptions_total",
    "Allocations that were made to go, by for whose sake (the scheduler's)",
)
.by(&["cause"]);
const FENCED: Metric = Metric::counter(
    "apportion_fenced_total",
    "Times that another leader was found at work",
);
const BUS_RETRIES: Metric = Metric::counter(
    "apportion_bus_retries_total",
    "Times that a leader tried the bus again",
);
const LEADING: Metric = Metric::gauge(
    "apportion_leading",
    "1 while this process decides, 0 while it stands by",
);
const FRAME_LSN: Metric = Metric::gauge(
    "apportion_frame_lsn",
    "Position on the ledger of the last own frame",
);
const FRAME_BYTES: Metric = Metric::histogram("apportion_frame_bytes", "Size of frames");
const APPEND_SECONDS: Metric =
    Metric::histogram("apportion_append_seconds", "Real time of one append");

/// What a service exports that decides.
pub const OF_DECIDERS: &[&Metric] = &[
    &FRAMES,
    &EVENTS,
    &DECISIONS,
    &REFUSALS,
    &ENDS,
    &PREEMPTIONS,
    &FENCED,
    &BUS_RETRIES,
    &LEADING,
    &FRAME_LSN,
    &FRAME_BYTES,
    &APPEND_SECONDS,
    &CLOCK_AHEAD_SECONDS,
    &CLOCK_STEPS,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCause {
    cause: &'static str,
}

/// The decisions of a writer, by what they are, and those of them that refuse something, by the rule.
struct Decisions {
    events: Family<OfKind, Counter>,
    outcomes: Family<OfOutcome, Counter>,
    refusals: Family<OfRule, Counter>,
    ends: Family<OfCause, Counter>,
    preemptions: Family<OfCause, Counter>,
}

impl Decisions {
    fn new(m: &Metrics) -> Self {
        Self {
            events: m.register(&EVENTS, Family::default()),
            outcomes: m.register(&DECISIONS, Family::default()),
            refusals: m.register(&REFUSALS, Family::default()),
            ends: m.register(&ENDS, Family::default()),
            preemptions: m.register(&PREEMPTIONS, Family::default()),
        }
    }

    fn count(&self, frame: &Frame) {
        let mut kinds: BTreeMap<EventKind, u64> = BTreeMap::new();
        for (_, event) in frame.placed() {
            *kinds.entry(event.kind()).or_default() += 1;
            self.single(event);
        }
        for (of, count) in kinds {
            let kind = of.name();
            self.events.get_or_create(&OfKind { kind }).inc_by(count);
            if let Some(outcome) = outcome(of) {
                let of = OfOutcome { outcome };
                self.outcomes.get_or_create(&of).inc_by(count);
            }
        }
    }

    /// What the kind does not say.
    fn single(&self, event: &Event) {
        match event {
            Event::OperationRefused(it) => self.refused(&it.refusal),
            Event::QuotaDenied(it) => self.refused(&it.refusal),
            Event::AllocationEnded(it) => {
                let cause = it.cause.name();
                self.ends.get_or_create(&OfCause { cause }).inc();
            }
            Event::AllocationPreempted(it) => {
                let cause = it.cause.name();
                self.preemptions.get_or_create(&OfCause { cause }).inc();
            }
            _ => {}
        }
    }

    /// The rule by which it refuses an operation.
    fn refused(&self, refusal: &Refusal) {
        let rule = refusal.rule.name();
        self.refusals.get_or_create(&OfRule { rule }).inc();
    }
}

/// What a decision of the kind is for who has asked.
fn outcome(kind: EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::AllocationRequested => "requested",
        EventKind::OperationRefused => "refused",
        EventKind::QuotaReserved => "reserved",
        EventKind::QuotaDenied => "denied",
        EventKind::AllocationPlaced => "placed",
        EventKind::AllocationWaiting => "waiting",
        EventKind::AllocationStarted => "started",
        EventKind::AllocationPreempted => "preempted",
        EventKind::AllocationRequeued => "requeued",
        EventKind::AllocationEnded => "ended",
        _ => return None,
    })
}

pub(super) struct LeaderShell {
    frames: Counter,
    decisions: Decisions,
    fenced: Counter,
    retries: Counter,
    leading: Gauge,
    lsn: Gauge,
    frame_bytes: Histogram,
    append_seconds: Histogram,
    health: ComponentHandle,
    follower: Follower,
    tap: JourneyTap,
    leads: watch::Sender<bool>,
    append: Option<(Stopwatch, Stamp)>,
    shown: Shown,
}

impl LeaderShell {
    pub fn new<T>(ctx: &Context<T>) -> Self {
        let m = &ctx.metrics;
        Self {
            frames: m.counter(&FRAMES),
            decisions: Decisions::new(m),
            fenced: m.counter(&FENCED),
            retries: m.counter(&BUS_RETRIES),
            leading: m.gauge(&LEADING),
            lsn: m.gauge(&FRAME_LSN),
            frame_bytes: m.histogram(&FRAME_BYTES, &BYTES),
            append_seconds: m.histogram(&APPEND_SECONDS, &SECONDS),
            health: ctx.health.component("leader"),
            follower: ctx.follower("leader", Behind::NotReady),
            tap: ctx.tap.clone(),
            leads: ctx.leads.clone(),
            append: None,
            shown: m.shown(),
        }
    }
}

impl Observer for LeaderShell {
    fn standing(&mut self, standing: Standing) {
        self.leading.set(i64::from(standing == Standing::Leading));
        if standing != Standing::Leading {
            self.leads.send_replace(false);
            self.shown.set(Figures::default());
        }
        match standing {
            Standing::Recovering => self.health.not_ready("folding the ledger"),
            Standing::Leading => self.health.ready(),
            Standing::Standby => self.health.degraded("standing by behind another leader"),
        }
        tracing::info!(?standing, "leader");
    }

    fn read(&mut self, through: Lsn) {
        self.follower.read(through);
    }

    fn received(&mut self, frame: &Frame) {
        self.tap.received(frame);
    }

    fn appending(&mut self, bytes: usize) {
        self.frame_bytes.observe(bytes as f64);
        self.append = Some((Stopwatch::start(), Stamp::now()));
    }

    fn committed(&mut self, frame: &Frame) {
        self.frames.inc();
        self.decisions.count(frame);
        self.lsn.set(i64::try_from(frame.lsn.0).unwrap_or(i64::MAX));
        if !*self.leads.borrow() {
            self.leads.send_replace(true);
        }
        if let Some((watch, start)) = self.append.take() {
            self.append_seconds.observe(watch.elapsed().as_secs_f64());
            self.tap.committed(start, frame);
        }
        self.health.ready();
    }

    fn fenced(&mut self) {
        self.fenced.inc();
    }

    fn retrying(&mut self, why: &BusError) {
        self.retries.inc();
        self.health.not_ready(why.to_string());
    }

    fn look(&mut self, read: &dyn Fn(&mut Figures)) -> Option<u64> {
        let (watch, mut figures) = (Stopwatch::start(), Figures::default());
        read(&mut figures);
        self.shown.set(figures);
        let took_ms = u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(LOOK_EVERY_MS.max(took_ms.saturating_mul(LOOK_SHARE)))
    }
}

pub(super) struct ProjectorShell {
    name: &'static str,
    progress: Progress,
    health: ComponentHandle,
    mark: Mark,
    follower: Follower,
}

impl ProjectorShell {
    pub fn new<T>(
        projection: &'static str,
        ctx: &Context<T>,
        mark: Mark,
        follower: Follower,
    ) -> Self {
        Self {
            name: projection,
            progress: ctx.progress(projection),
            health: ctx.health.component(projection),
            mark,
            follower,
        }
    }
}

impl ProjectorObserver for ProjectorShell {
    fn borne_out(&mut self) {
        self.health.degraded("catching up");
        self.mark.looked();
    }

    fn received(&mut self, frame: &Frame) {
        self.follower.read(frame.lsn);
    }

    fn applied(&mut self, to: Lsn, changes: usize) {
        self.follower.read(to);
        self.progress.applied(to, changes);
        self.health.ready();
    }

    fn reached(&mut self, to: Lsn) {
        self.mark.set(to);
    }

    fn retrying(&mut self, why: &str) {
        self.progress.retries();
        self.mark.looked();
        self.health.degraded(why.to_owned());
        tracing::warn!(projection = self.name, why, "retrying");
    }
}
