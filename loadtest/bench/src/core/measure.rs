//! One case: fill, let wait, churn; then fold and snapshot what came of it.

use super::cluster::{Workload, node, token};
use crate::kit::figures::per_s;
use chassis::Stopwatch;
use hdrhistogram::Histogram;
use ledger::{Decider, Draft, IllegalEvent, Poison, Snapshot, memory::Seeded};
use scheduler_rules::{Config, Scheduler};
use serde::{Deserialize, Serialize};
use std::{fs, time::Duration};
use vocab::fact::{
    AllocationPlaced, AllocationRequested, NodeRegistered, QuotaReserved, RunReported,
    SchedulingSet,
};
use vocab::{
    AdminChange, AllocationNo, At, Event, EventNo, Lsn, Millis, Operation, PlacementPolicy,
    QuotaFlags, RunState, SchedulingPolicy, Token,
};

#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub nodes: u32,
    pub pending: u64,
    pub policy: PlacementPolicy,
    pub decisions: u64,
    /// Rounds with a single end, for the latency of one decision.
    pub singles: usize,
    pub seed: u64,
}

/// Runs that end before each round of decisions.
const BATCH: usize = 64;
/// [`Setting::singles`] at full size.
pub const SINGLES: usize = 20_000;

#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    #[error(transparent)]
    Poison(#[from] Poison),
    #[error("everything that waits was placed: ask for more with --pending")]
    NothingWaits,
}

/// Times are of one thread. A decision is a placement: with it come the end of a run and the start of another.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figures {
    measure: String,
    pub nodes: u32,
    pub pending: u64,
    pub policy: String,
    pub queues: u64,
    pub running: u64,
    /// Placements per second of `decide` while runs end, 64 between two rounds.
    pub decisions_per_s: u64,
    /// All events that were decided in the same time: placements, starts, ends, and who waits.
    pub events_per_s: u64,
    /// The same with the time it takes to observe what comes in.
    pub with_inputs_per_s: u64,
    /// Placements per second while the empty cluster is filled.
    pub fill_per_s: u64,
    /// One end, then one round.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub bytes_per_waiting: u64,
    pub bytes_per_node: u64,
    pub fold_events_per_s: u64,
    pub snapshot_s: f64,
    pub snapshot_mb: f64,
    pub restore_s: f64,
    pub snapshot_allocations: u64,
}

struct Bench {
    state: Scheduler,
    now: Millis,
    /// Numbers of the other writers' events and of the scheduler's own.
    next_input: u64,
    next_own: u64,
    /// Who runs where, in no order.
    running: Vec<(AllocationNo, Token)>,
    deciding: Duration,
    observing: Duration,
    /// The decisions of the churn, for the fold.
    log: Vec<(bool, At, Event)>,
    recording: bool,
}

pub fn measure(setting: Setting) -> Result<Figures, MeasureError> {
    let mut random = Seeded::new(setting.seed);
    let mut workload = Workload::new(setting.seed);
    let mut bench = Bench::new();
    let before_nodes = resident_bytes();
    bench.policy(setting.policy)?;
    for number in 0..setting.nodes {
        let (node, capacity) = node(number, &mut random);
        bench.observe(Event::NodeRegistered(NodeRegistered {
            node,
            incarnation: 1,
            boot: 1,
            capacity,
        }))?;
    }
    let bytes_per_node =
        (resident_bytes().saturating_sub(before_nodes)) / u64::from(setting.nodes.max(1));

    let mut filled = 0;
    // As long as most of what comes finds a place at once, the cluster is not full.
    loop {
        let mut asked = 0;
        while asked < u64::from(setting.nodes).max(1000) {
            asked += bench.submit(&mut workload)?;
        }
        let placed = bench.decide()?;
        filled += placed;
        if placed * 10 < asked {
            break;
        }
    }
    let fill_per_s = per_s(filled, bench.deciding);

    let waiting_before = bench.state.waiting() as u64;
    let before_waiting = resident_bytes();
    let mut asked = 0;
    while waiting_before + asked < setting.pending {
        asked += bench.submit(&mut workload)?;
        if asked % 10_000 < 8 {
            bench.decide()?;
        }
    }
    bench.decide()?;
    let more = (bench.state.waiting() as u64).saturating_sub(waiting_before);
    let bytes_per_waiting = resident_bytes().saturating_sub(before_waiting) / more.max(1);

    // A warm-up, so that what is made on first use is there.
    bench.churn(&mut workload, setting.decisions / 20, BATCH)?;
    (bench.deciding, bench.observing) = Default::default();
    let snapshot_before_churn = Snapshot::of(
        Scheduler::STATE_VERSION,
        ledger::Chain::default(),
        &bench.state,
    );
    bench.recording = true;
    let placed = bench.churn(&mut workload, setting.decisions, BATCH)?;
    bench.recording = false;
    let decisions_per_s = per_s(placed, bench.deciding);
    let own = bench.log.iter().filter(|(own, _, _)| *own).count() as u64;
    let events_per_s = per_s(own, bench.deciding);
    let with_inputs_per_s = per_s(placed, bench.deciding + bench.observing);

    let mut latency = histogram();
    for _ in 0..setting.singles {
        let before = bench.deciding;
        let placed = bench.round(&mut workload, 1)?;
        let took = (bench.deciding - before).as_nanos() / u128::from(placed.max(1));
        latency.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
    }

    let log = std::mem::take(&mut bench.log);
    let mut folded: Scheduler = snapshot_before_churn
        .state(Scheduler::STATE_VERSION)
        .unwrap_or_else(|| unreachable!("it was written by the same version"));
    let events = log.len() as u64;
    let began = Stopwatch::start();
    for (own, at, event) in &log {
        if *own {
            folded.evolve_event(at, event)?;
        } else {
            folded.observe_event(at, event)?;
        }
    }
    let fold_events_per_s = per_s(events, began.elapsed());
    drop(folded);

    let began = Stopwatch::start();
    let snapshot = Snapshot::of(
        Scheduler::STATE_VERSION,
        ledger::Chain::default(),
        &bench.state,
    );
    let snapshot_s = began.elapsed().as_secs_f64();
    let began = Stopwatch::start();
    let restored: Option<Scheduler> = snapshot.state(Scheduler::STATE_VERSION);
    let restore_s = began.elapsed().as_secs_f64();
    drop(restored);

    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(Figures {
        measure: "core".to_owned(),
        nodes: setting.nodes,
        pending: bench.state.waiting() as u64,
        policy: setting.policy.name().to_owned(),
        queues: super::cluster::QUEUES,
        running: bench.running.len() as u64,
        decisions_per_s,
        events_per_s,
        with_inputs_per_s,
        fill_per_s,
        p50_us: us(latency.value_at_quantile(0.5)),
        p99_us: us(latency.value_at_quantile(0.99)),
        p999_us: us(latency.value_at_quantile(0.999)),
        max_us: us(latency.max()),
        bytes_per_waiting,
        bytes_per_node,
        fold_events_per_s,
        snapshot_s,
        snapshot_mb: snapshot.to_bytes(ledger::LedgerId(0)).len() as f64 / 1e6,
        restore_s,
        snapshot_allocations: bench.state.live().len() as u64,
    })
}

pub fn histogram() -> Histogram<u64> {
    // Nanoseconds up to a hundred seconds, three digits.
    Histogram::new_with_bounds(1, 100_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are in order"))
}

/// The process's own memory, from the system.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

impl Bench {
    fn new() -> Self {
        Self {
            state: Scheduler::default(),
            now: Millis(1_000_000),
            next_input: 1,
            next_own: 1,
            running: Vec::new(),
            deciding: Duration::ZERO,
            observing: Duration::ZERO,
            log: Vec::new(),
            recording: false,
        }
    }

    fn observe(&mut self, event: Event) -> Result<AllocationNo, Poison> {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(self.next_input),
            now: self.now,
        };
        self.next_input += 1;
        let began = Stopwatch::start();
        self.state.observe_event(&at, &event)?;
        self.observing += began.elapsed();
        if self.recording {
            self.log.push((false, at, event));
        }
        Ok(AllocationNo(at.no.0))
    }

    fn policy(&mut self, placement: PlacementPolicy) -> Result<(), Poison> {
        let policy = SchedulingPolicy {
            placement,
            ..SchedulingPolicy::default()
        };
        self.observe(
            AdminChange::Scheduling(SchedulingSet { policy })
                .applied(operation(&token("_operator")), 1)
                .into(),
        )?;
        Ok(())
    }

    /// One request, granted by quota; how many allocations it is.
    fn submit(&mut self, workload: &mut Workload) -> Result<u64, Poison> {
        let queue = workload.queue();
        let (spec, size) = workload.draw();
        for _ in 0..size {
            let allocation = self.observe(Event::AllocationRequested(AllocationRequested {
                operation: operation(&queue),
                spec: spec.clone(),
            }))?;
            self.observe(Event::QuotaReserved(QuotaReserved {
                allocation,
                flags: QuotaFlags::default(),
                models: None,
            }))?;
        }
        Ok(size.into())
    }

    /// Rounds until nothing is left to decide; how many were placed.
    fn decide(&mut self) -> Result<u64, Poison> {
        let mut placed = 0;
        loop {
            self.now.0 += 1;
            let mut draft = Draft::new(self.now, EventNo(self.next_own));
            let began = Stopwatch::start();
            self.state.decide(&Config::default(), &mut draft);
            self.deciding += began.elapsed();
            if let Some(poison) = draft.poison() {
                return Err(poison.clone());
            }
            if draft.is_empty() {
                return Ok(placed);
            }
            let full = draft.full();
            let first = self.next_own;
            self.next_own = draft.next_no().0;
            for (event, no) in draft.events().zip(first..) {
                if let Event::AllocationPlaced(AllocationPlaced {
                    allocation, node, ..
                }) = event
                {
                    self.running.push((*allocation, node.clone()));
                    placed += 1;
                }
                if self.recording {
                    let at = At {
                        lsn: Lsn(0),
                        index: 0,
                        no: EventNo(no),
                        now: self.now,
                    };
                    self.log.push((true, at, event.clone()));
                }
            }
            if !full {
                return Ok(placed);
            }
        }
    }

    /// Rounds until `decisions` were placed; how many were.
    fn churn(
        &mut self,
        workload: &mut Workload,
        decisions: u64,
        batch: usize,
    ) -> Result<u64, MeasureError> {
        let mut placed = 0;
        while placed < decisions {
            placed += self.round(workload, batch)?;
        }
        Ok(placed)
    }

    /// Ends `batch` runs at random, asks for as many new ones, decides; how many were placed.
    fn round(&mut self, workload: &mut Workload, batch: usize) -> Result<u64, MeasureError> {
        for _ in 0..batch.min(self.running.len()) {
            let at = workload.below(self.running.len() as u64) as usize;
            let (allocation, node) = self.running.swap_remove(at);
            for state in [RunState::Started, RunState::Finished] {
                let at = self.now;
                self.observe(Event::RunReported(RunReported {
                    allocation,
                    node: node.clone(),
                    state,
                    at,
                    exit: None,
                }))?;
            }
        }
        let mut asked = 0;
        while asked < batch as u64 {
            asked += self.submit(workload)?;
        }
        let placed = self.decide()?;
        if self.running.is_empty() {
            return Err(MeasureError::NothingWaits);
        }
        Ok(placed)
    }
}

pub fn operation(tenant: &Token) -> Operation {
    Operation {
        tenant: tenant.clone(),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}
