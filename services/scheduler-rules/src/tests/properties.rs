//! What holds whatever happens, on random histories.

use super::*;
use crate::fair::{Claim, Share, fair_shares};
use proptest::prelude::*;
use vocab::Event;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationPreempted, AllocationRequeued, AllocationStarted,
    AllocationStopping, AllocationWaiting, CancelDecided, CordonSet, JobSetCancelDecided,
    OperationsForgotten, PriorityDecided,
};

#[derive(Debug, Clone)]
enum Step {
    Node(u8, u8),
    Lose(u8),
    Cordon(u8, bool),
    /// The node has so many cores, and as much of the rest as goes with them.
    Resize(u8, u8),
    Submit {
        queue: u8,
        spec: u8,
        value: u8,
    },
    Gang {
        queue: u8,
        spec: u8,
        value: u8,
        size: u8,
    },
    Report(prop::sample::Index, u8),
    Cancel(prop::sample::Index),
    CancelJobSet {
        queue: u8,
        job_set: u8,
    },
    Prioritise(prop::sample::Index, i8),
    PrioritiseJobSet {
        queue: u8,
        job_set: u8,
        priority: i8,
    },
    /// Quota takes back, for the sake of another.
    Reclaim(prop::sample::Index, prop::sample::Index),
    /// Quota grants again what it has taken back.
    Grant,
    Wait(u16),
    Decide,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..6, 0u8..4).prop_map(|(node, kind)| Step::Node(node, kind)),
        1 => (0u8..6).prop_map(Step::Lose),
        1 => (0u8..6, any::<bool>()).prop_map(|(node, cordoned)| Step::Cordon(node, cordoned)),
        1 => (0u8..6, 0u8..20).prop_map(|(node, cores)| Step::Resize(node, cores)),
        6 => (0u8..3, 0u8..8, 0u8..4).prop_map(|(queue, spec, value)| Step::Submit { queue, spec, value }),
        2 => (0u8..3, 0u8..8, 0u8..4, 2u8..5)
            .prop_map(|(queue, spec, value, size)| Step::Gang { queue, spec, value, size }),
        4 => (any::<prop::sample::Index>(), 0u8..4).prop_map(|(of, state)| Step::Report(of, state)),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => (0u8..3, 0u8..2).prop_map(|(queue, job_set)| Step::CancelJobSet { queue, job_set }),
        1 => (any::<prop::sample::Index>(), -3i8..9).prop_map(|(of, to)| Step::Prioritise(of, to)),
        1 => (0u8..3, 0u8..2, -3i8..9)
            .prop_map(|(queue, job_set, priority)| Step::PrioritiseJobSet { queue, job_set, priority }),
        3 => (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(of, by)| Step::Reclaim(of, by)),
        2 => Just(Step::Grant),
        1 => (0u16..5000).prop_map(Step::Wait),
        5 => Just(Step::Decide),
    ]
}

fn a_capacity(kind: u8) -> NodeCapacity {
    let zone = |gpus| vocab::Zone {
        cpu_milli: 8000,
        memory_bytes: 64 << 30,
        gpus,
    };
    match kind {
        0 => labelled(capacity(8, 64, 0), &[("zone", "a")]),
        1 => labelled(capacity(16, 64, 4), &[("zone", "b")]),
        2 => NodeCapacity {
            extended: vec![(token("fpga"), 2)],
            ..capacity(4, 16, 2)
        },
        _ => NodeCapacity {
            topology: Some(Box::new(vocab::Topology {
                zones: vec![zone(0b0011), zone(0b1100)],
                distances: vec![10, 20, 20, 10],
                links: vec![(0, 1), (2, 3)],
            })),
            ..capacity(16, 128, 4)
        },
    }
}

fn resized(capacity: &NodeCapacity, cores: u64) -> NodeCapacity {
    let mut capacity = NodeCapacity {
        cpu_milli: cores * 1000,
        memory_bytes: cores << 32,
        max_runs: u32::try_from(cores % 5).unwrap_or(0),
        ..capacity.clone()
    };
    for (_, amount) in &mut capacity.extended {
        *amount = 1 + cores / 8;
    }
    if let Some([one, other]) = capacity.topology.as_mut().map(|it| &mut it.zones[..]) {
        (one.cpu_milli, other.cpu_milli) = (cores * 300, cores * 700);
        (one.memory_bytes, other.memory_bytes) = (cores << 31, cores << 31);
    }
    capacity
}

fn a_spec(spec: u8) -> AllocationSpec {
    let numa = |numa| PlacementRules {
        numa,
        ..PlacementRules::default()
    };
    match spec {
        0 => job(1, 4),
        1 => job(3, 16),
        2 => gpus(job(1, 4), 1, 300),
        3 => gpus(job(2, 4), 2, 1000),
        4 => ruled(job(2, 4), requires("zone", vocab::Operator::In, &["a"])),
        5 => AllocationSpec {
            extended: vec![(token("fpga"), 1)],
            ..job(1, 1)
        },
        6 => ruled(gpus(job(4, 8), 1, 1000), numa(vocab::NumaPolicy::Single)),
        _ => ruled(
            gpus(job(9, 70), 2, 1000),
            numa(vocab::NumaPolicy::BestEffort),
        ),
    }
}

fn job_set(number: u8) -> Token {
    token(&format!("s{number}"))
}

/// Some have a priority of their own instead of a class.
fn classed(spec: AllocationSpec, of: u8, value: u8) -> AllocationSpec {
    let spec = AllocationSpec {
        job_set: job_set(of % 2),
        ..spec
    };
    let priority = i32::from(value);
    match of % 4 {
        1 => AllocationSpec { priority, ..spec },
        _ => class(spec, priority),
    }
}

fn restart(mut spec: AllocationSpec, of: u8) -> AllocationSpec {
    spec.restart.retries = u32::from(of % 3);
    spec.restart.never = of % 4 == 3;
    spec.bounds = vocab::TimeBounds {
        ttl_ms: u64::from(of % 5) * 1500,
        time_limit_ms: u64::from(of % 3) * 2000,
    };
    spec
}

/// What is held, by the events alone.
#[derive(Default)]
struct Model {
    /// Granted and not ended, with what it asks for.
    open: BTreeMap<u64, AllocationSpec>,
    nodes: BTreeMap<Token, (u64, NodeCapacity)>,
    /// Node, incarnation, devices.
    held: BTreeMap<u64, (Token, u64, vocab::GpuShares)>,
    /// What quota has taken back and waits for.
    reclaimed: BTreeSet<u64>,
    /// What it has got back, and not granted again.
    without_quota: BTreeSet<u64>,
    /// Requests that nothing has come of.
    asked: BTreeSet<u64>,
    /// When those that were never placed expire, and when runs reach their limits.
    expire: BTreeMap<u64, Millis>,
    limits: BTreeMap<u64, Millis>,
    /// Runs that have to go already: no limit counts for them.
    leaving: BTreeSet<u64>,
    /// Told to stop because they had.
    timed_out: BTreeSet<u64>,
    /// Nodes that somebody has come to since the last check.
    came_to: BTreeSet<Token>,
}

impl Model {
    fn saw(&mut self, event: &Event, now: Millis) {
        self.saw_bounds(event, now);
        match event {
            Event::AllocationPlaced(AllocationPlaced {
                allocation,
                node,
                incarnation,
                gpus,
                ..
            }) => {
                assert!(
                    self.open.contains_key(&allocation.0),
                    "{allocation:?} is not open"
                );
                assert_eq!(self.nodes[node].0, *incarnation);
                self.came_to.insert(node.clone());
                assert!(!self.without_quota.contains(&allocation.0));
                assert!(!self.reclaimed.contains(&allocation.0));
                let place = (node.clone(), *incarnation, gpus.clone());
                assert!(
                    self.held.insert(allocation.0, place).is_none(),
                    "placed twice"
                );
            }
            Event::AllocationRequeued(AllocationRequeued { allocation, .. }) => {
                assert!(self.held.remove(&allocation.0).is_some());
            }
            Event::AllocationWaiting(AllocationWaiting {
                allocation, reason, ..
            }) => {
                assert!(!self.without_quota.contains(&allocation.0));
                let taken_back = self.reclaimed.remove(&allocation.0);
                assert_eq!(*reason == WaitingReason::Quota, taken_back);
                if taken_back {
                    self.without_quota.insert(allocation.0);
                }
            }
            Event::CancelDecided(CancelDecided { request, .. })
            | Event::JobSetCancelDecided(JobSetCancelDecided { request, .. })
            | Event::PriorityDecided(PriorityDecided { request, .. }) => {
                assert!(self.asked.remove(&request.0), "decided twice");
            }
            Event::AllocationEnded(AllocationEnded { allocation, .. }) => {
                self.reclaimed.remove(&allocation.0);
                self.without_quota.remove(&allocation.0);
                self.held.remove(&allocation.0);
                assert!(self.open.remove(&allocation.0).is_some(), "ended twice");
            }
            _ => {}
        }
    }

    /// Whatever has bounds ends by them when it has to and not before.
    fn saw_bounds(&mut self, event: &Event, now: Millis) {
        match event {
            Event::AllocationPlaced(fact) => {
                self.expire.remove(&fact.allocation.0);
            }
            Event::AllocationStarted(AllocationStarted { allocation, at }) => {
                let limit_ms = self.open[&allocation.0].bounds.time_limit_ms;
                if limit_ms > 0 && !self.leaving.contains(&allocation.0) {
                    self.limits.insert(allocation.0, at.plus(limit_ms as i64));
                }
            }
            Event::AllocationStopping(AllocationStopping {
                allocation,
                time_limit,
            }) => {
                let limit = self.limits.remove(&allocation.0);
                self.leaving.insert(allocation.0);
                assert!(!time_limit || limit.is_some_and(|limit| limit <= now));
                self.timed_out.extend(time_limit.then_some(allocation.0));
            }
            Event::AllocationPreempted(fact) => {
                self.limits.remove(&fact.allocation.0);
                self.leaving.insert(fact.allocation.0);
            }
            Event::AllocationRequeued(AllocationRequeued { allocation, .. }) => {
                self.limits.remove(&allocation.0);
                self.leaving.remove(&allocation.0);
                assert!(!self.timed_out.contains(&allocation.0));
            }
            Event::AllocationEnded(AllocationEnded {
                allocation, cause, ..
            }) => {
                self.limits.remove(&allocation.0);
                self.leaving.remove(&allocation.0);
                let expired = self.expire.remove(&allocation.0);
                let expired = expired.is_some_and(|expiry| expiry <= now);
                let timed_out = self.timed_out.remove(&allocation.0);
                assert!(*cause != EndCause::Expired || expired);
                assert!(*cause != EndCause::TimeLimit || timed_out);
            }
            _ => {}
        }
    }

    /// No device, core or byte is held twice; and nobody comes to a node that has less by now than what it holds.
    fn check(&mut self) {
        let came_to = std::mem::take(&mut self.came_to);
        for (node, (incarnation, capacity)) in &self.nodes {
            let here = self
                .held
                .iter()
                .filter(|(_, (at, of, _))| at == node && of == incarnation);
            let here: Vec<_> = here
                .map(|(no, (_, _, gpus))| (&self.open[no], gpus))
                .collect();
            let cpu: u64 = here.iter().map(|(spec, _)| spec.cpu_milli).sum();
            let memory: u64 = here.iter().map(|(spec, _)| spec.memory_bytes).sum();
            let came = came_to.contains(node);
            let fits = cpu <= capacity.cpu_milli && memory <= capacity.memory_bytes;
            assert!(fits || !came);
            let mut devices = vec![1000u16; capacity.gpus.into()];
            for (spec, gpus) in &here {
                let asked = spec.gpu.as_ref().map_or(0, |gpu| gpu.count);
                assert_eq!(gpus.len(), usize::from(asked));
                for share in *gpus {
                    let device = &mut devices[usize::from(share.device)];
                    *device = device
                        .checked_sub(share.milli)
                        .expect("a device is held twice");
                }
            }
            for (name, has) in &capacity.extended {
                let of = |spec: &AllocationSpec| {
                    spec.extended
                        .iter()
                        .find(|(n, _)| n == name)
                        .map_or(0, |(_, n)| *n)
                };
                let held = here.iter().map(|(spec, _)| of(spec)).sum::<u64>();
                assert!(held <= *has || !came);
            }
        }
    }
}

/// Explanations are told again with new numbers now and then; everything else is a decision.
fn decisions(draft: &Draft) -> Vec<Event> {
    let told = |event: &&Event| !matches!(event, Event::PendingGroupExplained(_));
    draft.events().filter(told).cloned().collect()
}

struct Run {
    world: World,
    model: Model,
    asked: Vec<u64>,
    gangs: u32,
}

impl Run {
    fn new(backfill: bool) -> Self {
        let mut world = World::new();
        world.policy(|policy| policy.backfill = backfill);
        Self {
            world,
            model: Model::default(),
            asked: Vec::new(),
            gangs: 0,
        }
    }

    fn submit(&mut self, queue: u8, count: u8, spec: AllocationSpec) {
        let expiry = self.world.now.plus(spec.bounds.ttl_ms as i64);
        for no in self
            .world
            .submit(&format!("q{queue}"), count.into(), spec.clone())
        {
            if spec.bounds.ttl_ms > 0 {
                self.model.expire.insert(no, expiry);
            }
            self.model.open.insert(no, spec.clone());
            self.asked.push(no);
        }
    }

    fn step(&mut self, step: &Step) {
        let w = &mut self.world;
        let name = |node: &u8| format!("n{node}");
        match step {
            Step::Node(node, kind) => {
                let known = self.model.nodes.get(name(node).as_str());
                let incarnation = known.map_or(1, |(incarnation, _)| incarnation + 1);
                if known.is_some() {
                    w.lose(&name(node));
                }
                let capacity = a_capacity(*kind);
                w.node(&name(node), incarnation, capacity.clone());
                self.model
                    .nodes
                    .insert(token(&name(node)), (incarnation, capacity));
            }
            Step::Lose(node) => {
                if self.model.nodes.contains_key(name(node).as_str()) {
                    w.lose(&name(node));
                }
            }
            Step::Cordon(node, cordoned) => w.admin(AdminChange::Cordon(CordonSet {
                node: token(&name(node)),
                cordoned: *cordoned,
                drain: false,
                at_once: 0,
            })),
            Step::Resize(node, cores) => {
                if let Some((incarnation, capacity)) = self.model.nodes.get_mut(name(node).as_str())
                {
                    *capacity = resized(capacity, (*cores).into());
                    w.resize(&name(node), *incarnation, capacity.clone());
                }
            }
            Step::Submit { queue, spec, value } => {
                let asked = restart(classed(a_spec(*spec), *spec, *value), spec ^ value);
                self.submit(*queue, 1, asked);
            }
            Step::Gang {
                queue,
                spec,
                value,
                size,
            } => {
                self.gangs += 1;
                let gang = Some(Gang {
                    name: token(&format!("g{}", self.gangs)),
                    size: (*size).into(),
                    min: u32::from(*size) - u32::from(*value % 2),
                    uniform_label: (*value == 2).then(|| token("zone")),
                });
                let asked = restart(classed(a_spec(*spec), *size, *value), *size);
                self.submit(*queue, *size, AllocationSpec { gang, ..asked });
            }
            Step::Report(of, state) => {
                let Some(no) = self.pick(of) else { return };
                let Some(node) = self.world.node_of(no) else {
                    return;
                };
                let state = RunState::ALL[usize::from(*state)];
                let started = self.world.state.live()[&AllocationNo(no)]
                    .binding()
                    .is_some_and(|binding| {
                        binding.started.is_some()
                            || binding
                                .reports
                                .iter()
                                .any(|report| report.state == RunState::Started)
                    });
                // An agent says once that it has started.
                if !(started && state == RunState::Started) {
                    self.world.report(no, &node, state);
                }
            }
            Step::Cancel(of) => {
                if let Some(no) = self.pick(of) {
                    let request = self.world.cancel(no);
                    self.model.asked.insert(request);
                }
            }
            Step::CancelJobSet { queue, job_set: of } => {
                let of = job_set(*of);
                let request = w.cancel_job_set(&format!("q{queue}"), of.as_str());
                self.model.asked.insert(request);
            }
            Step::Prioritise(of, priority) => {
                if let Some(no) = self.pick(of) {
                    let target = PriorityTarget::Allocation(AllocationNo(no));
                    let request = self.world.prioritise("q0", target, (*priority).into());
                    self.model.asked.insert(request);
                }
            }
            Step::PrioritiseJobSet {
                queue,
                job_set: of,
                priority,
            } => {
                let target = PriorityTarget::JobSet(job_set(*of));
                let request = w.prioritise(&format!("q{queue}"), target, (*priority).into());
                self.model.asked.insert(request);
            }
            Step::Reclaim(of, by) => {
                let Some(no) = self.pick(of) else { return };
                let open = self.model.open.contains_key(&no);
                if open && !self.model.without_quota.contains(&no) {
                    self.model.reclaimed.insert(no);
                    let by = self.pick(by);
                    self.world.reclaim(no, by);
                }
            }
            Step::Grant => {
                for no in std::mem::take(&mut self.model.without_quota) {
                    w.grant(no);
                }
            }
            Step::Wait(ms) => w.now.0 += i64::from(*ms),
            Step::Decide => self.decide(),
        }
    }

    fn pick(&self, of: &prop::sample::Index) -> Option<u64> {
        (!self.asked.is_empty()).then(|| self.asked[of.index(self.asked.len())])
    }

    fn decide(&mut self) {
        // A state without any of the caches decides the same.
        let mut bare = again(&self.world.state);
        let mut draft = Draft::new(Millis(self.world.now.0 + 1), EventNo(1));
        bare.decide(&self.world.config, &mut draft);
        let expected = decisions(&draft);
        let events = self.world.decide();
        let told = |event: &&Event| !matches!(event, Event::PendingGroupExplained(_));
        let found: Vec<_> = events.iter().filter(told).cloned().collect();
        let first = found
            .iter()
            .zip(&expected)
            .find(|(found, expected)| found != expected);
        assert!(first.is_none(), "{first:?}");
        assert_eq!(
            found.len(),
            expected.len(),
            "{:?} {:?}",
            found.last(),
            expected.last()
        );
        for event in &events {
            self.model.saw(event, self.world.now);
        }
        let mut due = self.model.expire.iter().chain(&self.model.limits);
        let late = due.find(|(_, due)| **due <= self.world.now);
        assert_eq!(late, None, "at {:?}: {events:?}", self.world.now);
        self.model.check();
        self.whole();
        self.no_one_goes_for_a_lower_one(&events);
    }

    /// Nothing is lost: what was granted and has not ended is known, and on a node if and only if the events say so.
    fn whole(&self) {
        let live: Vec<_> = self.world.state.live().keys().map(|no| no.0).collect();
        let open: Vec<_> = self.model.open.keys().copied().collect();
        assert_eq!(live, open);
        for no in live {
            assert_eq!(
                self.world.node_of(no).is_some(),
                self.model.held.contains_key(&no)
            );
        }
        // What was asked is done, and what was taken back is at least stopping.
        assert_eq!(self.model.asked, BTreeSet::new());
        for no in &self.model.reclaimed {
            let binding = self.world.state.live()[&AllocationNo(*no)].binding();
            assert!(
                binding.is_some_and(|binding| binding.stop.is_some()),
                "{no}"
            );
        }
    }

    fn no_one_goes_for_a_lower_one(&self, events: &[Event]) {
        for event in events {
            if let Event::AllocationPreempted(AllocationPreempted {
                allocation,
                by: Some(by),
                cause,
                ..
            }) = event
            {
                if *cause == vocab::PreemptionCause::Quota {
                    // That is quota's matter.
                    continue;
                }
                let priority = |no: &AllocationNo| self.world.state.live()[no].priority;
                let (victim, claimant) = (priority(allocation), priority(by));
                match cause {
                    vocab::PreemptionCause::Priority => assert!(victim < claimant),
                    _ => assert!(victim <= claimant),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_held_twice_lost_or_doubled(
        steps in prop::collection::vec(step(), 1..80),
        backfill in any::<bool>(),
    ) {
        let mut run = Run::new(backfill);
        for step in &steps {
            run.step(step);
        }
        run.decide();
        // The same log gives the same state.
        let mut folded = again(&run.world.state);
        prop_assert_eq!(&folded, &run.world.state);
        folded.observe_event(
            &At { lsn: Lsn(0), index: 0, no: EventNo(0), now: run.world.now },
            &Event::OperationsForgotten(OperationsForgotten {
                through: EventNo(0),
                slots_of: None,
                ended_through: EventNo(0),
                denied_through: EventNo(0),
            }),
        ).unwrap();
        prop_assert_eq!(ledger::state_digest(&folded), ledger::state_digest(&run.world.state));
    }

    #[test]
    fn the_order_in_which_nodes_come_changes_nothing(
        kinds in prop::collection::vec(0u8..4, 1..7),
        jobs in prop::collection::vec((0u8..3, 0u8..8, 0u8..3), 1..40),
        turn in any::<prop::sample::Index>(),
    ) {
        let decided = |order: &[(usize, u8)]| {
            let mut w = World::new();
            for (number, kind) in order {
                w.node(&format!("n{number}"), 1, a_capacity(*kind));
            }
            for (queue, spec, value) in &jobs {
                w.submit(&format!("q{queue}"), 1, class(a_spec(*spec), i32::from(*value)));
            }
            spoken(&w.settle())
        };
        let order: Vec<_> = kinds.iter().copied().enumerate().collect();
        let mut turned = order.clone();
        turned.rotate_left(turn.index(order.len()));
        prop_assert_eq!(decided(&turned), decided(&order));
    }

    #[test]
    fn shares_are_fair_within_one_job(
        queues in prop::collection::vec((1u32..5, 0usize..60), 1..6),
        cores in 8u64..64,
    ) {
        let mut w = World::new();
        w.node("n", 1, capacity(cores, 1024, 0));
        let mut jobs = Vec::new();
        for (at, (weight, count)) in queues.iter().enumerate() {
            w.queue(&format!("q{at}"), |q| q.weight_milli = weight * 1000);
            jobs.push(w.submit(&format!("q{at}"), *count, job(1, 1)));
        }
        w.settle();
        let claims: Vec<_> = queues.iter().map(|(weight, count)| Claim {
            weight_milli: weight * 1000,
            demand: Share::dominant(&[*count as u64], &[cores]),
            floor: Share::ZERO,
        }).collect();
        for (of, share) in jobs.iter().zip(fair_shares(&claims, Share::ONE)) {
            let held = w.on_nodes(of) as u128;
            // In jobs, rounded down and up.
            let exact = share.0 * u128::from(cores);
            let (low, high) = (exact >> 64, (exact >> 64) + 1);
            prop_assert!(held + 1 >= low && held <= high + 1, "{held} of {low}..{high}");
        }
    }

    #[test]
    fn after_preemption_each_queue_is_within_one_job_of_its_share(
        first in prop::collection::vec(1usize..50, 1..4),
        second in prop::collection::vec(1usize..50, 1..4),
        cores in 8u64..40,
    ) {
        let mut w = World::new();
        w.node("n", 1, capacity(cores, 1024, 0));
        let mut jobs: Vec<Vec<u64>> = Vec::new();
        for (at, count) in first.iter().enumerate() {
            jobs.push(w.submit(&format!("a{at}"), *count, class(job(1, 1), 0)));
        }
        w.settle();
        for (at, count) in second.iter().enumerate() {
            jobs.push(w.submit(&format!("b{at}"), *count, class(job(1, 1), 0)));
        }
        w.settle();
        let claims: Vec<_> = jobs.iter().map(|of| Claim {
            weight_milli: 1000,
            demand: Share::dominant(&[of.len() as u64], &[cores]),
            floor: Share::ZERO,
        }).collect();
        for (of, share) in jobs.iter().zip(fair_shares(&claims, Share::ONE)) {
            let held = w.on_nodes(of) as u128;
            let exact = (share.0 * u128::from(cores)) >> 64;
            prop_assert!(held + 1 >= exact && held <= exact + 2, "{held} of {exact}");
        }
        prop_assert_eq!(spoken(&w.settle()), Vec::<String>::new());
    }
}

/// Found by the property above: while a node was promised to another, they were nominated for a second one.
#[test]
fn nominees_go_where_a_promise_kept_them_from() {
    let mut run = Run::new(true);
    let single = |spec, value| Step::Submit {
        queue: 0,
        spec,
        value,
    };
    let gang = |size| Step::Gang {
        queue: 0,
        spec: 4,
        value: 3,
        size,
    };
    let before = [
        Step::Node(3, 0),
        single(0, 0),
        gang(4),
        single(4, 2),
        Step::Decide,
        gang(2),
        single(0, 1),
        single(1, 0),
        Step::Node(2, 0),
    ];
    for step in &before {
        run.step(step);
    }
    let (first, member) = (run.asked[0], run.asked[1]);
    run.model.reclaimed.insert(member);
    run.world.reclaim(member, Some(first));
    run.step(&Step::Node(2, 0));
    run.decide();
    let nominated = run.world.state.live()[&AllocationNo(first)].phase.clone();
    assert!(
        matches!(nominated, crate::Phase::Nominated(_)),
        "{nominated:?}"
    );
    run.decide();
    assert_eq!(run.world.node_of(first).as_deref(), Some("n2"));
}
