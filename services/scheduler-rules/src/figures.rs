//! What the scheduler's state shows: who waits where, for what and how long, what the nodes have, and how long placing takes.

use super::{
    Scheduler,
    allocation::{Live, Phase, Stop},
    fleet::Node,
    gang::GangNo,
    queues::QueueNo,
    scoring::DEVICE_MILLI,
};
use ledger::{Figures, Metric, Times};
use std::{cmp::Reverse, collections::BTreeMap};
use vocab::{At, Millis, PendingGroupNo, WaitingReason};

/// Queues that are told by name: those with most waiting. There may be thousands, and a metrics page has a few series for
/// each.
const QUEUES_MAX: usize = 50;
/// GPU models that are told by name: those with most GPUs.
const MODELS_MAX: usize = 50;
/// The others together. No queue and no model is called that.
const OTHERS: &str = "(others)";

const PENDING: Metric = Metric::gauge(
    "apportion_pending",
    "Allocations that are not on a node, by queue and by why they wait. By name are the 50 queues with most waiting, the \
     others together are `(others)`; there are 16 reasons",
)
.by(&["queue", "reason"]);
const PENDING_OLDEST: Metric = Metric::gauge(
    "apportion_pending_oldest_seconds",
    "Time since the request of the oldest of them, by the cell's clock; the same queues",
)
.by(&["queue", "reason"]);
const ALLOCATIONS: Metric = Metric::gauge(
    "apportion_allocations",
    "Allocations that have not ended. `state` is pending, placed, running or stopping",
)
.by(&["state"]);
const GPUS: Metric = Metric::gauge(
    "apportion_gpus",
    "GPUs of all known nodes, shares counted as parts. `state` is allocated, idle, closed (free, and the node is cordoned or \
     suspected) or lost (its node is); all together are the capacity. By name are the 50 models with most GPUs, the others \
     together are `(others)`",
)
.by(&["model", "state"]);
const NODES: Metric = Metric::gauge(
    "apportion_nodes",
    "Known nodes. `state` is ready, cordoned (and ready), suspected (not heard for half a lease) or lost",
)
.by(&["state"]);
const PLACEMENT_SECONDS: Metric = Metric::histogram(
    "apportion_placement_seconds",
    "Time from a request to each placement of it, by the cell's clock: of this leader's decisions, none is carried over",
);
const WAIT_SECONDS: Metric = Metric::histogram(
    "apportion_wait_seconds",
    "Time from a request to each start of its run, by the cell's clock: of this leader's decisions, none is carried over",
);

/// What this service exports beside what all do.
pub const METRICS: &[&Metric] = &[
    &PENDING,
    &PENDING_OLDEST,
    &ALLOCATIONS,
    &GPUS,
    &NODES,
    &PLACEMENT_SECONDS,
    &WAIT_SECONDS,
];

/// How long those took that this leader has decided. What is folded of the past does not count again.
#[derive(Debug, Default)]
pub(super) struct Took {
    placement: Times,
    wait: Times,
}

impl Took {
    pub fn placed(&mut self, at: &At, live: Option<&Live>) {
        add(&mut self.placement, at, live, at.now);
    }

    pub fn started(&mut self, at: &At, live: Option<&Live>, started: Millis) {
        add(&mut self.wait, at, live, started);
    }
}

fn add(times: &mut Times, at: &At, live: Option<&Live>, until: Millis) {
    // It has a position when it is read from the ledger.
    if let Some(live) = live.filter(|_| at.lsn.0 == 0) {
        times.add(since(live.requested, until));
    }
}

fn since(from: Millis, to: Millis) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}

/// Some who wait, and since when the oldest does.
#[derive(Debug, Clone, Copy)]
struct Group {
    count: u64,
    oldest: Millis,
}

impl Group {
    fn join<K: Ord>(all: &mut BTreeMap<K, Self>, key: K, count: u64, oldest: Millis) {
        let joined = all.entry(key).or_insert(Self { count: 0, oldest });
        joined.count += count;
        joined.oldest = joined.oldest.min(oldest);
    }
}

type ByReason = BTreeMap<WaitingReason, Group>;

impl Scheduler {
    /// One pass over the allocations and one over the nodes.
    pub(super) fn figures(&self, now: Millis, figures: &mut Figures) {
        let mut groups: BTreeMap<PendingGroupNo, (QueueNo, u64, Millis)> = BTreeMap::new();
        let mut queues: BTreeMap<QueueNo, ByReason> = BTreeMap::new();
        let mut gangs = BTreeMap::new();
        let [mut pending, mut placed, mut running, mut stopping] = [0_u64; 4];
        for live in self.allocations.all().values() {
            let binding = live.binding();
            let counted = match binding {
                None => &mut pending,
                Some(binding)
                    if matches!(binding.stop, Some(Stop::Cancelled | Stop::TimeLimit)) =>
                {
                    &mut stopping
                }
                Some(binding) if binding.preempted() => &mut stopping,
                Some(binding) if binding.started.is_some() => &mut running,
                Some(_) => &mut placed,
            };
            *counted += 1;
            if binding.is_some() {
                continue;
            }
            match self.waits_in(live, &mut gangs) {
                Ok(group) => {
                    let of_group = groups.entry(group);
                    let of_group = of_group.or_insert((live.queue, 0, live.requested));
                    of_group.1 += 1;
                    of_group.2 = of_group.2.min(live.requested);
                }
                Err(reason) => {
                    let of_queue = queues.entry(live.queue).or_default();
                    Group::join(of_queue, reason, 1, live.requested);
                }
            }
        }
        for (no, (queue, count, oldest)) in groups {
            let group = self.waiting.queues().pending_group(no);
            let blocked = group.and_then(|group| self.waiting.block_of(group));
            // Nothing keeps it off: others go first.
            let reason = blocked.unwrap_or(WaitingReason::FairShare);
            Group::join(queues.entry(queue).or_default(), reason, count, oldest);
        }
        self.show_pending(&queues, now, figures);
        for (state, count) in [
            ("pending", pending),
            ("placed", placed),
            ("running", running),
            ("stopping", stopping),
        ] {
            figures.whole(&ALLOCATIONS, &[state], count);
        }
        self.show_nodes(figures);
        figures.times(&PLACEMENT_SECONDS, &self.took.placement);
        figures.times(&WAIT_SECONDS, &self.took.wait);
    }

    /// Returns the pending group that it waits in, or why it waits in none; `known` caches the reason by gang.
    fn waits_in(
        &self,
        live: &Live,
        known: &mut BTreeMap<GangNo, WaitingReason>,
    ) -> Result<PendingGroupNo, WaitingReason> {
        match &live.phase {
            Phase::AwaitingQuota(_) => Err(WaitingReason::Quota),
            Phase::AwaitingOthers => Err(WaitingReason::Dependency),
            Phase::Pausing(_) => Err(WaitingReason::Backoff),
            Phase::Nominated(_) => Err(WaitingReason::Nominated),
            Phase::Queued(group, _) => Ok(*group),
            Phase::InGang => {
                let gang = live.gang.ok_or(WaitingReason::GangIncomplete)?;
                let group = self.waiting.gangs().pending_group(gang);
                group.ok_or_else(|| {
                    let reason = known.entry(gang);
                    *reason.or_insert_with(|| self.gang_waits_for(gang))
                })
            }
            // It is on a node.
            Phase::Held(_) => Err(WaitingReason::FairShare),
        }
    }

    fn show_pending(
        &self,
        queues: &BTreeMap<QueueNo, ByReason>,
        now: Millis,
        figures: &mut Figures,
    ) {
        let of = |reasons: &ByReason| reasons.values().map(|some| some.count).sum::<u64>();
        let mut ranked: Vec<_> = queues.iter().collect();
        ranked.sort_by_key(|(queue, reasons)| (Reverse(of(reasons)), **queue));
        let others = ranked.split_off(ranked.len().min(QUEUES_MAX));
        let mut rest = ByReason::new();
        for (reason, some) in others.into_iter().flat_map(|(_, reasons)| reasons) {
            Group::join(&mut rest, *reason, some.count, some.oldest);
        }
        let name = |queue: QueueNo| self.waiting.queues().get(queue).name.as_str();
        let named = ranked
            .iter()
            .map(|(queue, reasons)| (name(**queue), *reasons));
        let rows: Vec<_> = named
            .chain([(OTHERS, &rest)])
            .flat_map(|(name, reasons)| reasons.iter().map(move |of| (name, of)))
            .collect();
        for (queue, (reason, some)) in &rows {
            figures.whole(&PENDING, &[queue, reason.name()], some.count);
        }
        for (queue, (reason, some)) in &rows {
            let age_ms = since(some.oldest, now);
            figures.milli(&PENDING_OLDEST, &[queue, reason.name()], age_ms);
        }
    }

    fn show_nodes(&self, figures: &mut Figures) {
        let mut states = [("ready", 0), ("cordoned", 0), ("suspected", 0), ("lost", 0)];
        let mut models: BTreeMap<&str, [u64; GPU_STATES.len()]> = BTreeMap::new();
        for (no, node) in self.fleet.all().zip(self.fleet.nodes()) {
            if node.past.forgotten {
                continue;
            }
            states[state(node)].1 += 1;
            let capacity = self.fleet.capacity(no);
            let Some(model) = &capacity.gpu_model else {
                continue;
            };
            let all = u64::from(capacity.gpus) * u64::from(DEVICE_MILLI);
            let free = node.room.gpu_milli_total().min(all);
            let of_model = models.entry(model.as_str()).or_default();
            match (node.ready, node.open()) {
                (true, true) => of_model[1] += free,
                (true, false) => of_model[2] += free,
                (false, _) => of_model[3] += all,
            }
            if node.ready {
                of_model[0] += all - free;
            }
        }
        for (state, count) in states {
            figures.whole(&NODES, &[state], count);
        }
        let mut ranked: Vec<_> = models.into_iter().collect();
        ranked.sort_by_key(|(model, states)| (Reverse(states.iter().sum::<u64>()), *model));
        let others = ranked.split_off(ranked.len().min(MODELS_MAX));
        if !others.is_empty() {
            let sum = |at: usize| others.iter().map(|(_, states)| states[at]).sum();
            ranked.push((OTHERS, std::array::from_fn(sum)));
        }
        for (model, states) in ranked {
            for (state, milli) in GPU_STATES.into_iter().zip(states) {
                figures.milli(&GPUS, &[model, state], milli);
            }
        }
    }
}

const GPU_STATES: [&str; 4] = ["allocated", "idle", "closed", "lost"];

/// By its place in the list above.
fn state(node: &Node) -> usize {
    match (node.ready, node.suspect, node.cordoned) {
        (false, ..) => 3,
        (true, true, _) => 2,
        (true, false, true) => 1,
        (true, false, false) => 0,
    }
}
