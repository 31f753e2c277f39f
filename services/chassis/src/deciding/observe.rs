//! Leaders and projectors as instruments and health see them.

use ledger::{BusError, Frame, Observer, ProjectorObserver, Standing};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use std::collections::BTreeMap;
use tokio::sync::watch;
use vocab::{Event, EventKind, Lsn, Rule, Writer};

use super::JourneyTap;
use crate::clock::{Stamp, Stopwatch};
use crate::health::ComponentHandle;
use crate::query::Mark;
use crate::service::Context;
use crate::watch::{Behind, Follower};

const BYTES: [f64; 7] = [256.0, 1e3, 4e3, 16e3, 64e3, 256e3, 1e6];
const SECONDS: [f64; 9] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: &'static str,
}

/// The decisions of a writer, by what they are, and those of them that refuse something, by the rule.
struct Decisions {
    events: Family<OfKind, Counter>,
    refusals: Family<OfRule, Counter>,
}

impl Decisions {
    fn count(&self, frame: &Frame) {
        let mut kinds: BTreeMap<EventKind, u64> = BTreeMap::new();
        let mut rules: BTreeMap<Rule, u64> = BTreeMap::new();
        for (_, event) in frame.placed() {
            *kinds.entry(event.kind()).or_default() += 1;
            if let Some(rule) = broken(event) {
                *rules.entry(rule).or_default() += 1;
            }
        }
        for (kind, count) in kinds {
            let kind = kind.name();
            self.events.get_or_create(&OfKind { kind }).inc_by(count);
        }
        for (rule, count) in rules {
            let rule = rule.name();
            self.refusals.get_or_create(&OfRule { rule }).inc_by(count);
        }
    }
}

/// The rule by which it refuses an operation.
fn broken(event: &Event) -> Option<Rule> {
    match event {
        Event::OperationRefused(refused) => Some(refused.refusal.rule),
        Event::QuotaDenied(denied) => Some(denied.refusal.rule),
        _ => None,
    }
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
}

impl LeaderShell {
    pub fn new<T>(writer: Writer, ctx: &Context<T>) -> Self {
        let m = &ctx.metrics;
        Self {
            frames: m.counter("frames", "Frames appended to the ledger"),
            decisions: Decisions {
                events: m.register(
                    "events",
                    "Events appended to the ledger, by kind",
                    Family::default(),
                ),
                refusals: m.register(
                    "refusals",
                    "Operations that were refused on the ledger, by the broken rule",
                    Family::default(),
                ),
            },
            fenced: m.counter("fenced", "Times that another leader was found at work"),
            retries: m.counter("bus_retries", "Times that the bus was tried again"),
            leading: m.gauge(
                "leading",
                "1 while this process decides, 0 while it stands by",
            ),
            lsn: m.gauge("frame_lsn", "Position of the last own frame"),
            frame_bytes: m.histogram("frame_bytes", "Size of frames", &BYTES),
            append_seconds: m.histogram("append_seconds", "Real time of one append", &SECONDS),
            health: ctx.health.component("leader"),
            follower: ctx.follower("leader", Behind::NotReady),
            tap: JourneyTap::new(writer.name(), ctx.journey.clone()),
            leads: ctx.leads.clone(),
            append: None,
        }
    }
}

impl Observer for LeaderShell {
    fn standing(&mut self, standing: Standing) {
        self.leading.set(i64::from(standing == Standing::Leading));
        if standing != Standing::Leading {
            self.leads.send_replace(false);
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
}

pub(super) struct ProjectorShell {
    name: &'static str,
    applied: Counter,
    retries: Counter,
    lsn: Gauge,
    health: ComponentHandle,
    mark: Mark,
    follower: Follower,
}

/// Instruments of a projection carry its name; one process may run several.
fn instrument(projection: &'static str, what: &'static str) -> &'static str {
    match (projection, what) {
        ("feed", "changes") => "feed_changes",
        ("feed", "retries") => "feed_retries",
        ("feed", "lsn") => "feed_lsn",
        (_, "changes") => "projection_changes",
        (_, "retries") => "projection_retries",
        _ => "projection_lsn",
    }
}

impl ProjectorShell {
    pub fn new<T>(
        projection: &'static str,
        ctx: &Context<T>,
        mark: Mark,
        follower: Follower,
    ) -> Self {
        let m = &ctx.metrics;
        let name = |what| instrument(projection, what);
        Self {
            name: projection,
            applied: m.counter(name("changes"), "Changes applied by the projection"),
            retries: m.counter(name("retries"), "Times that sink or bus were tried again"),
            lsn: m.gauge(name("lsn"), "Position that the projection has applied"),
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
        self.applied.inc_by(changes as u64);
        self.lsn.set(i64::try_from(to.0).unwrap_or(i64::MAX));
        self.mark.set(to);
        self.health.ready();
    }

    fn retrying(&mut self, why: &str) {
        self.retries.inc();
        self.mark.looked();
        self.health.degraded(why.to_owned());
        tracing::warn!(projection = self.name, why, "retrying");
    }
}
