//! The rules as a cluster sees them: nodes and jobs come and go, and agents do as they are told.

mod asked;
mod clocks;
mod conformance;
mod deadlines;
mod demand;
mod depend;
mod features;
mod figures;
mod frames;
mod gangs;
mod histories;
mod holds;
mod life;
mod models;
mod named;
mod promises;
mod properties;
mod reclaim;
mod trials;
mod victims;
mod what_if;

use super::*;
use std::collections::BTreeSet;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationReprioritised, AllocationRequested, AllocationRequeued, AllocationStarted,
    AllocationStopping, AllocationWaiting, CancelDecided, CancelRequested, CordonSet,
    JobSetCancelDecided, JobSetCancelRequested, NodeCapacityChanged, NodeConditionChanged,
    NodeLost, NodeReady, NodeRegistered, NodeSuspected, PriorityClassSet, PriorityDecided,
    PriorityRequested, QueueSet, QuotaReclaimed, QuotaReserved, ReservationDecided, RunReported,
    SchedulingSet,
};
use vocab::{
    AdminChange, AllocationSpec, EndCause, Event, Gang, GpuRequest, Lsn, ModelGrant, NodeCapacity,
    Operation, PlacementRules, PriorityClass, PriorityTarget, QueueSettings, Refusal, Requirement,
    Rule, RunExit, RunExitReason, RunState, SchedulingPolicy,
};

/// A scheduler with its ledger's clock, and agents that start, and stop, at once.
#[derive(Clone)]
pub struct World {
    pub state: Scheduler,
    next_request: u64,
    next_own: u64,
    pub now: Millis,
    /// Everything decided so far.
    pub said: Vec<Event>,
    pub config: Config,
}

pub fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

const GIB: u64 = 1 << 30;

pub fn job(cores: u64, gib: u64) -> AllocationSpec {
    AllocationSpec::plain(token("jobs"), cores * 1000, gib * GIB)
}

pub fn gpus(spec: AllocationSpec, count: u16, milli: u16) -> AllocationSpec {
    let models = Vec::new();
    AllocationSpec {
        gpu: Some(GpuRequest {
            count,
            milli,
            models,
        }),
        ..spec
    }
}

pub fn class(spec: AllocationSpec, value: i32) -> AllocationSpec {
    AllocationSpec {
        priority: value,
        priority_class: Some(token(&format!("p{value}"))),
        ..spec
    }
}

pub fn ruled(spec: AllocationSpec, rules: PlacementRules) -> AllocationSpec {
    AllocationSpec {
        rules: Some(Box::new(rules)),
        ..spec
    }
}

pub fn requires(label: &str, operator: vocab::Operator, values: &[&str]) -> PlacementRules {
    PlacementRules {
        selector: vec![Requirement {
            label: token(label),
            operator,
            values: values.iter().map(|value| token(value)).collect(),
        }],
        ..PlacementRules::default()
    }
}

pub fn capacity(cores: u64, gib: u64, gpus: u16) -> NodeCapacity {
    NodeCapacity {
        cpu_milli: cores * 1000,
        memory_bytes: gib * GIB,
        gpus,
        gpu_model: (gpus > 0).then(|| token("T4")),
        ..NodeCapacity::default()
    }
}

/// A node with two zones of 4 cores and 1 GPU each.
pub fn two_zones() -> NodeCapacity {
    let zone = |gpus| vocab::Zone {
        cpu_milli: 4000,
        memory_bytes: 32 * GIB,
        gpus,
    };
    NodeCapacity {
        topology: Some(Box::new(vocab::Topology {
            zones: vec![zone(0b01), zone(0b10)],
            distances: vec![10, 20, 20, 10],
            links: Vec::new(),
        })),
        ..capacity(8, 64, 2)
    }
}

pub fn in_one_zone(spec: AllocationSpec) -> AllocationSpec {
    let numa = vocab::NumaPolicy::Single;
    ruled(
        spec,
        PlacementRules {
            numa,
            ..PlacementRules::default()
        },
    )
}

pub fn labelled(capacity: NodeCapacity, labels: &[(&str, &str)]) -> NodeCapacity {
    let mut labels: Vec<_> = labels.iter().map(|(k, v)| (token(k), token(v))).collect();
    labels.sort();
    NodeCapacity { labels, ..capacity }
}

impl World {
    /// With priority classes p0 to p2, preemptible, and p3, not; all of them preempt.
    pub fn new() -> Self {
        let mut world = Self {
            state: Scheduler::default(),
            next_request: 1,
            next_own: 1,
            now: Millis(1_000_000),
            said: Vec::new(),
            config: Config::default(),
        };
        for value in 0..=3 {
            world.admin(AdminChange::PriorityClass(PriorityClassSet {
                class: token(&format!("p{value}")),
                closed: false,
                settings: PriorityClass {
                    value,
                    preemptible: value < 3,
                    preempts: true,
                    grace_ms: 1000,
                    placement: None,
                },
            }));
        }
        world
    }

    pub fn observe(&mut self, event: Event) -> u64 {
        let no = self.next_request;
        self.next_request += 1;
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(no),
            now: self.now,
        };
        self.state.observe_event(&at, &event).unwrap();
        no
    }

    pub fn admin(&mut self, change: AdminChange) {
        let version = self.next_request;
        self.observe(change.applied(operation("_operator"), version).into());
    }

    pub fn policy(&mut self, change: impl FnOnce(&mut SchedulingPolicy)) {
        let mut policy = SchedulingPolicy::default();
        change(&mut policy);
        self.admin(AdminChange::Scheduling(SchedulingSet { policy }));
    }

    pub fn queue(&mut self, name: &str, change: impl FnOnce(&mut QueueSettings)) {
        let mut settings = QueueSettings::default();
        change(&mut settings);
        self.admin(AdminChange::Queue(QueueSet {
            queue: token(name),
            closed: false,
            settings,
        }));
    }

    pub fn node(&mut self, name: &str, incarnation: u64, capacity: NodeCapacity) {
        self.observe(Event::NodeRegistered(NodeRegistered {
            node: token(name),
            incarnation,
            boot: incarnation,
            capacity,
        }));
    }

    /// Nodes of 32 cores and 256 GiB.
    pub fn nodes(&mut self, names: &[&str]) {
        for name in names {
            self.node(name, 1, capacity(32, 256, 0));
        }
    }

    pub fn lose(&mut self, name: &str) {
        self.observe(Event::NodeLost(NodeLost {
            node: token(name),
            incarnation: 1,
            last_seen: Millis(0),
        }));
    }

    pub fn resize(&mut self, name: &str, incarnation: u64, capacity: NodeCapacity) {
        self.observe(Event::NodeCapacityChanged(NodeCapacityChanged {
            node: token(name),
            incarnation,
            change: 1,
            capacity,
        }));
    }

    pub fn suspect(&mut self, name: &str) {
        self.observe(Event::NodeSuspected(NodeSuspected {
            node: token(name),
            incarnation: 1,
            last_seen: Millis(0),
        }));
    }

    pub fn condition(&mut self, name: &str, condition: &str, holds: bool) {
        self.observe(Event::NodeConditionChanged(NodeConditionChanged {
            node: token(name),
            condition: token(condition),
            holds,
            reason: None,
        }));
    }

    pub fn is_heard(&mut self, name: &str) {
        self.observe(Event::NodeReady(NodeReady {
            node: token(name),
            incarnation: 1,
        }));
    }

    pub fn request(&mut self, tenant: &str, spec: AllocationSpec) -> u64 {
        self.observe(Event::AllocationRequested(AllocationRequested {
            operation: operation(tenant),
            spec,
        }))
    }

    pub fn grant(&mut self, no: u64) {
        self.grant_of(no, None);
    }

    /// Quota for all models but these, which counts by model.
    pub fn grant_but(&mut self, no: u64, except: &[&str]) {
        let except = except.iter().map(|model| token(model)).collect();
        let counts_on = Vec::new();
        self.grant_of(no, Some(Box::new(ModelGrant { counts_on, except })));
    }

    fn grant_of(&mut self, no: u64, models: Option<Box<ModelGrant>>) {
        self.observe(Event::QuotaReserved(QuotaReserved {
            allocation: AllocationNo(no),
            flags: vocab::QuotaFlags::default(),
            models,
        }));
    }

    pub fn reclaim(&mut self, no: u64, by: Option<u64>) {
        self.observe(Event::QuotaReclaimed(QuotaReclaimed {
            allocation: AllocationNo(no),
            by: by.map(AllocationNo),
        }));
    }

    pub fn submit(&mut self, tenant: &str, count: usize, spec: AllocationSpec) -> Vec<u64> {
        let mut numbers = Vec::new();
        for _ in 0..count {
            let no = self.request(tenant, spec.clone());
            self.grant(no);
            numbers.push(no);
        }
        numbers
    }

    pub fn gang(&mut self, tenant: &str, name: &str, size: u32, spec: AllocationSpec) -> Vec<u64> {
        let gang = Gang {
            name: token(name),
            size,
            min: size,
            uniform_label: None,
        };
        self.gang_of(tenant, gang, spec)
    }

    pub fn gang_of(&mut self, tenant: &str, gang: Gang, spec: AllocationSpec) -> Vec<u64> {
        let size = gang.size as usize;
        let gang = Some(gang);
        self.submit(tenant, size, AllocationSpec { gang, ..spec })
    }

    pub fn cancel(&mut self, no: u64) -> u64 {
        self.observe(Event::CancelRequested(CancelRequested {
            operation: operation("t"),
            allocation: AllocationNo(no),
        }))
    }

    pub fn cancel_job_set(&mut self, tenant: &str, job_set: &str) -> u64 {
        self.observe(Event::JobSetCancelRequested(JobSetCancelRequested {
            operation: operation(tenant),
            job_set: token(job_set),
        }))
    }

    pub fn prioritise(&mut self, tenant: &str, target: PriorityTarget, priority: i32) -> u64 {
        self.observe(Event::PriorityRequested(PriorityRequested {
            operation: operation(tenant),
            target,
            priority,
        }))
    }

    /// By an agent that knows of the stop if there is one.
    pub fn report(&mut self, no: u64, node: &str, state: RunState) {
        let binding = self
            .state
            .live()
            .get(&AllocationNo(no))
            .and_then(Live::binding);
        let stops = binding.is_some_and(|binding| binding.stop.is_some());
        let state = match state {
            RunState::Started => state,
            _ if stops => RunState::Stopped,
            _ => state,
        };
        self.report_by_itself(no, node, state);
    }

    pub fn report_by_itself(&mut self, no: u64, node: &str, state: RunState) {
        self.report_exit(no, node, state, None);
    }

    pub fn report_exit(&mut self, no: u64, node: &str, state: RunState, exit: Option<RunExit>) {
        let at = self.now;
        self.observe(Event::RunReported(RunReported {
            allocation: AllocationNo(no),
            node: token(node),
            state,
            at,
            exit,
        }));
    }

    /// One round of decisions a millisecond later.
    pub fn decide(&mut self) -> Vec<Event> {
        self.decide_with(|_| {})
    }

    /// The same, in a frame of which some is used up.
    pub fn decide_with(&mut self, before: impl FnOnce(&mut Draft)) -> Vec<Event> {
        self.now = self.now.plus(1);
        let mut draft = Draft::new(self.now, EventNo(self.next_own));
        before(&mut draft);
        self.state.decide(&self.config, &mut draft);
        self.next_own = draft.next_no().0;
        assert!(draft.poison().is_none(), "{:?}", draft.poison());
        let events: Vec<Event> = draft.events().cloned().collect();
        self.said.extend(events.iter().cloned());
        events
    }

    /// Decides until a round changes nothing and none is due; agents stop runs at once. Returns all events.
    pub fn settle(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        for _ in 0..1000 {
            let events = self.decide();
            let stopping = super::what_if::told_to_stop(&self.state);
            let due = self.state.wake_at().is_some_and(|at| at <= self.now);
            let quiet = events.is_empty() && stopping.is_empty() && !due;
            all.extend(events);
            if quiet {
                return all;
            }
            for (no, node) in stopping {
                self.report(no.0, node.as_str(), RunState::Finished);
            }
        }
        panic!("it does not settle");
    }

    pub fn cordon_all(&mut self) {
        let names: Vec<_> = self
            .state
            .nodes()
            .iter()
            .map(|node| node.name.clone())
            .collect();
        for node in names {
            self.admin(AdminChange::Cordon(CordonSet {
                node,
                cordoned: true,
                drain: false,
                at_once: 0,
            }));
        }
    }

    pub fn node_of(&self, no: u64) -> Option<String> {
        let binding = self.state.live().get(&AllocationNo(no))?.binding()?;
        Some(self.state.nodes()[binding.node.0 as usize].name.to_string())
    }

    pub fn on_nodes(&self, of: &[u64]) -> usize {
        of.iter().filter(|no| self.node_of(**no).is_some()).count()
    }

    /// Numbers of those that are on a node.
    pub fn held(&self, of: &[u64]) -> Vec<u64> {
        of.iter()
            .copied()
            .filter(|no| self.node_of(*no).is_some())
            .collect()
    }

    /// What was last said of the pending group of an allocation, or of itself.
    pub fn reason(&self, no: u64) -> &'static str {
        let live = &self.state.live()[&AllocationNo(no)];
        let pending_group = match live.phase {
            Phase::Queued(pending_group, _) => Some(pending_group),
            Phase::InGang => live
                .gang
                .and_then(|gang| self.state.waiting.gangs().pending_group(gang)),
            _ => None,
        };
        let said = pending_group.and_then(|pending_group| {
            self.state
                .waiting
                .queues()
                .pending_group(pending_group)?
                .said
                .as_ref()
        });
        let told = self.said.iter().rev().find_map(|event| match event {
            Event::AllocationWaiting(AllocationWaiting {
                allocation, reason, ..
            }) if allocation.0 == no => Some(*reason),
            _ => None,
        });
        let reason = said.map(|said| said.reason).or(told);
        reason.map_or("nothing said", WaitingReason::name)
    }
}

/// An event in a few words.
pub fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node,
            gpus,
            ..
        }) => gpus
            .iter()
            .fold(format!("{} on {node}", allocation.0), |text, share| {
                format!("{text} {}:{}", share.device, share.milli)
            }),
        Event::AllocationWaiting(AllocationWaiting {
            allocation, reason, ..
        }) => format!("{} waits {}", allocation.0, reason.name()),
        Event::AllocationStarted(AllocationStarted { allocation, .. }) => {
            format!("{} started", allocation.0)
        }
        Event::AllocationStopping(AllocationStopping {
            allocation,
            time_limit,
        }) => {
            let why = if *time_limit { " time_limit" } else { "" };
            format!("{} stopping{why}", allocation.0)
        }
        Event::AllocationPreempted(AllocationPreempted {
            allocation, cause, ..
        }) => format!("{} preempted {}", allocation.0, cause.name()),
        Event::AllocationNominated(AllocationNominated {
            allocation, node, ..
        }) => format!("{} nominated {node}", allocation.0),
        Event::AllocationRequeued(AllocationRequeued {
            allocation, cause, ..
        }) => format!("{} requeued {}", allocation.0, cause.name()),
        Event::AllocationEnded(AllocationEnded {
            allocation, cause, ..
        }) => format!("{} ended {}", allocation.0, cause.name()),
        Event::CancelDecided(CancelDecided { verdict, .. }) => format!("cancel {verdict:?}"),
        Event::JobSetCancelDecided(JobSetCancelDecided { allocations, .. }) => {
            format!("job set cancel of {allocations}")
        }
        Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority,
        }) => format!("{} has priority {priority}", allocation.0),
        Event::PriorityDecided(PriorityDecided {
            allocations,
            refusal: None,
            ..
        }) => format!("priority of {allocations}"),
        Event::PriorityDecided(PriorityDecided {
            refusal: Some(refusal),
            ..
        }) => format!("priority: {refusal}"),
        Event::ReservationDecided(ReservationDecided {
            reservation, nodes, ..
        }) => {
            let nodes: Vec<_> = nodes.iter().map(Token::as_str).collect();
            format!("{reservation} has [{}]", nodes.join(" "))
        }
        // Of a pending group, not of an allocation: tests of explanations look at them.
        Event::PendingGroupExplained(_) => return None,
        other => format!("{other:?}"),
    })
}

/// A round of decisions, in words; allocations are numbered from 1 as they stand in `numbers`.
pub fn check(w: &mut World, numbers: &[u64], expected: &[&str]) {
    let events = w.decide();
    let plain = |text: String| {
        let (number, rest) = text.split_once(' ').unwrap_or(("", &text));
        match number
            .parse::<u64>()
            .ok()
            .and_then(|no| numbers.iter().position(|n| *n == no))
        {
            Some(at) => format!("{} {rest}", at + 1),
            None => text.clone(),
        }
    };
    let found: Vec<_> = spoken(&events).into_iter().map(plain).collect();
    assert_eq!(found, expected);
    // A second look decides nothing new.
    assert_eq!(w.decide(), []);
}

/// The state after it was saved and read.
pub fn again(state: &Scheduler) -> Scheduler {
    let snapshot = ledger::Snapshot::of(Scheduler::STATE_VERSION, ledger::Chain::default(), state);
    snapshot.state(Scheduler::STATE_VERSION).unwrap()
}

pub fn spoken(events: &[Event]) -> Vec<String> {
    events.iter().filter_map(words).collect()
}
