//! What has to hold for every history: decisions come to rest; they hang on what was recorded and not on what a leader
//! remembers; limits and filters hold for whoever preempts; what could be placed is; nothing is done in vain; and nobody's
//! impossible requests change anything for others.

use super::*;
use crate::fleet::{Moves, Others, keeps_off};
use proptest::prelude::*;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationRequeued, AllocationWaiting, CordonSet, ReservationDecided, ReservationSet,
};
use vocab::{AdvanceReservation, Event, GroupTerm, Operator, ResourceKind, Spread};

#[derive(Debug, Clone)]
pub(super) struct Setting {
    half_life: bool,
    protected: bool,
    backfill: bool,
    few_preemptions: bool,
    /// Cores of queue q0, of q1, and of the one above both.
    limits: (Option<u8>, Option<u8>, Option<u8>),
    weights: (u8, u8),
    nodes: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Submit {
        queue: u8,
        spec: u8,
        value: u8,
        count: u8,
    },
    Gang {
        queue: u8,
        value: u8,
        sizes: Vec<u8>,
        need_all: bool,
        affinity: bool,
        /// Members are of different priorities.
        mixed: bool,
    },
    /// A node is there, or there again, maybe as another.
    Node(u8, u8),
    Lose(u8),
    /// It is not heard for a while, or heard again.
    Suspect(u8, bool),
    Cordon(u8, bool),
    /// A run ends by itself.
    Finish(prop::sample::Index, bool),
    Cancel(prop::sample::Index),
    Prioritise(prop::sample::Index, i8),
    Reserve {
        queue: u8,
        after: u8,
    },
    Wait(u16),
    /// One round, in which nobody stops yet.
    Decide,
    Settle,
}

pub(super) fn setting() -> impl Strategy<Value = Setting> {
    let limit = || prop::option::weighted(0.3, 1u8..12);
    (
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.2),
        (limit(), limit(), limit()),
        (1u8..4, 1u8..4),
        prop::collection::vec(0u8..5, 1..4),
    )
        .prop_map(
            |(half_life, protected, backfill, few_preemptions, limits, weights, nodes)| Setting {
                half_life,
                protected,
                backfill,
                few_preemptions,
                limits,
                weights,
                nodes,
            },
        )
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let one = any::<prop::sample::Index>;
    prop_oneof![
        9 => (0u8..4, 0u8..10, 0u8..4, 1u8..6)
            .prop_map(|(queue, spec, value, count)| Step::Submit { queue, spec, value, count }),
        3 => (0u8..4, 0u8..4, prop::collection::vec(1u8..9, 2..4), any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.3))
            .prop_map(|(queue, value, sizes, need_all, affinity, mixed)| Step::Gang { queue, value, sizes, need_all, affinity, mixed }),
        2 => (0u8..4, 0u8..5).prop_map(|(node, kind)| Step::Node(node, kind)),
        1 => (0u8..4).prop_map(Step::Lose),
        1 => (0u8..4, any::<bool>()).prop_map(|(node, silent)| Step::Suspect(node, silent)),
        1 => (0u8..4, any::<bool>()).prop_map(|(node, cordoned)| Step::Cordon(node, cordoned)),
        4 => (one(), prop::bool::weighted(0.8)).prop_map(|(of, well)| Step::Finish(of, well)),
        1 => one().prop_map(Step::Cancel),
        1 => (one(), 0i8..4).prop_map(|(of, to)| Step::Prioritise(of, to)),
        2 => (0u8..3, 0u8..3).prop_map(|(queue, after)| Step::Reserve { queue, after }),
        1 => (0u16..60_000).prop_map(Step::Wait),
        4 => Just(Step::Decide),
        5 => Just(Step::Settle),
    ]
}

fn of_model(model: &str, capacity: NodeCapacity) -> NodeCapacity {
    NodeCapacity {
        gpu_model: Some(token(model)),
        ..capacity
    }
}

/// The models that quota leaves out, if it counts this request by model.
pub(super) fn left_out(spec: u8, value: u8) -> Option<&'static [&'static str]> {
    (spec == BY_MODEL).then_some(match value {
        0 => &[],
        1 => &["T4"],
        2 => &["H100"],
        _ => &["H100", "T4"],
    })
}

const BY_MODEL: u8 = 9;

fn a_capacity(kind: u8) -> NodeCapacity {
    match kind {
        0 => labelled(capacity(8, 64, 0), &[("zone", "a")]),
        1 => of_model("T4", labelled(capacity(8, 64, 4), &[("zone", "b")])),
        2 => labelled(capacity(4, 64, 0), &[("zone", "b")]),
        3 => of_model("H100", labelled(capacity(12, 64, 2), &[("zone", "a")])),
        _ => NodeCapacity {
            taints: vec![vocab::Taint {
                key: token("night"),
                value: None,
                effect: vocab::TaintEffect::NoSchedule,
            }],
            ..capacity(8, 64, 0)
        },
    }
}

fn web(rules: PlacementRules) -> PlacementRules {
    PlacementRules {
        group: Some(token("web")),
        ..rules
    }
}

fn term(domain: Option<&str>) -> Vec<GroupTerm> {
    vec![GroupTerm {
        group: token("web"),
        topology_key: domain.map(token),
    }]
}

pub(super) fn a_spec(spec: u8) -> AllocationSpec {
    let none = PlacementRules::default;
    match spec {
        0 => job(1, 1),
        1 => job(3, 4),
        2 => job(8, 8),
        3 => gpus(job(1, 1), 2, 1000),
        4 => gpus(job(1, 4), 1, 400),
        5 => ruled(job(2, 4), requires("zone", Operator::In, &["a"])),
        6 => ruled(
            job(1, 1),
            web(PlacementRules {
                anti_affinity: term(None),
                ..none()
            }),
        ),
        7 => ruled(
            job(1, 1),
            web(PlacementRules {
                spread: vec![Spread {
                    topology_key: Some(token("zone")),
                    max_skew: 1,
                }],
                ..none()
            }),
        ),
        BY_MODEL => gpus(job(3, 1), 1, 1000),
        _ => ruled(
            job(2, 1),
            PlacementRules {
                affinity: term(Some("zone")),
                ..none()
            },
        ),
    }
}

pub(super) fn queue_name(queue: u8) -> String {
    format!("q{queue}")
}

/// What the ledger says of each allocation, and what is in force: a second, naive reading.
#[derive(Default)]
struct Seen {
    specs: BTreeMap<u64, (String, AllocationSpec)>,
    held: BTreeMap<u64, Token>,
    nominated: BTreeMap<u64, Token>,
    /// Those that count by model, and the models that they are not to run on.
    except: BTreeMap<u64, &'static [&'static str]>,
    over: BTreeSet<u64>,
    /// Ended by itself, as far as its agent is concerned.
    finished: BTreeSet<u64>,
}

pub(super) struct Run {
    pub(super) world: World,
    seen: Seen,
    setting: Setting,
    asked: Vec<u64>,
    gangs: u32,
    incarnations: BTreeMap<u8, (u64, u8)>,
    cordoned: BTreeSet<String>,
    lost: BTreeSet<String>,
    suspect: BTreeSet<String>,
    /// Whether each round is also decided by one who has only read what was recorded.
    twice: bool,
}

impl Run {
    pub(super) fn new(setting: &Setting, twice: bool) -> Self {
        let mut world = World::new();
        world.policy(|policy| {
            policy.half_life_ms = if setting.half_life { 3_600_000 } else { 0 };
            policy.protected_milli = if setting.protected { 500 } else { 0 };
            policy.backfill = setting.backfill;
            policy.preemptions_per_minute = if setting.few_preemptions { 2 } else { 600 };
            policy.backoff_ms = 1000;
        });
        let (q0, q1, above) = setting.limits;
        let cores = |limit: Option<u8>| {
            let limit = limit.map(|cores| (ResourceKind::Cpu, u64::from(cores) * 1000));
            limit.into_iter().collect::<Vec<_>>()
        };
        world.queue("above", |q| q.limits = cores(above));
        for (name, limit, weight) in [("q0", q0, setting.weights.0), ("q1", q1, setting.weights.1)]
        {
            world.queue(name, |q| {
                q.limits = cores(limit);
                q.weight_milli = u32::from(weight) * 1000;
                q.parent = Some(token("above"));
            });
        }
        let mut run = Self {
            world,
            seen: Seen::default(),
            setting: setting.clone(),
            asked: Vec::new(),
            gangs: 0,
            incarnations: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            lost: BTreeSet::new(),
            suspect: BTreeSet::new(),
            twice,
        };
        for (node, kind) in (0..).zip(&setting.nodes) {
            run.node(node, *kind);
        }
        run
    }

    fn node(&mut self, node: u8, kind: u8) {
        let name = format!("n{node}");
        let incarnation = self.incarnations.get(&node).map_or(1, |(last, _)| last + 1);
        if incarnation > 1 {
            self.world.lose(&name);
        }
        self.incarnations.insert(node, (incarnation, kind));
        self.lost.remove(&name);
        self.suspect.remove(&name);
        self.world.node(&name, incarnation, a_capacity(kind));
    }

    fn submit(&mut self, queue: u8, spec: AllocationSpec, except: Option<&'static [&'static str]>) {
        let queue = queue_name(queue);
        let no = self.world.request(&queue, spec.clone());
        match except {
            None => self.world.grant(no),
            Some(except) => {
                self.seen.except.insert(no, except);
                self.world.grant_but(no, except);
            }
        }
        self.seen.specs.insert(no, (queue, spec));
        self.asked.push(no);
    }

    fn pick(&self, of: &prop::sample::Index) -> Option<u64> {
        (!self.asked.is_empty()).then(|| self.asked[of.index(self.asked.len())])
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Submit {
                queue,
                spec,
                value,
                count,
            } => {
                for _ in 0..*count {
                    let mut asked = class(a_spec(*spec), i32::from(*value));
                    asked.restart.never = spec % 5 == 4;
                    asked.run_time_ms = u64::from(*spec % 3) * 30_000;
                    self.submit(*queue, asked, left_out(*spec, *value));
                }
            }
            Step::Gang {
                queue,
                value,
                sizes,
                need_all,
                affinity,
                mixed,
            } => {
                self.gangs += 1;
                let gang = Gang {
                    name: token(&format!("g{}", self.gangs)),
                    size: sizes.len() as u32,
                    min: sizes.len() as u32 - u32::from(!need_all),
                    uniform_label: None,
                };
                for (at, size) in (0u8..).zip(sizes) {
                    let spec = job(u64::from(*size), 1);
                    let spec = if *affinity {
                        let affinity = term(None);
                        ruled(
                            spec,
                            web(PlacementRules {
                                affinity,
                                ..PlacementRules::default()
                            }),
                        )
                    } else {
                        spec
                    };
                    let gang = Some(gang.clone());
                    let spec = AllocationSpec {
                        gang,
                        ..class(
                            spec,
                            i32::from(if *mixed { (value + at) % 4 } else { *value }),
                        )
                    };
                    self.submit(*queue, spec, None);
                }
            }
            Step::Node(node, kind) => self.node(*node, *kind),
            Step::Lose(node) => {
                if self.incarnations.contains_key(node) {
                    self.world.lose(&format!("n{node}"));
                    self.lost.insert(format!("n{node}"));
                    self.suspect.remove(&format!("n{node}"));
                }
            }
            Step::Suspect(node, silent) => {
                let name = format!("n{node}");
                let there = self.incarnations.contains_key(node) && !self.lost.contains(&name);
                if *silent && there && self.suspect.insert(name.clone()) {
                    self.world.suspect(&name);
                }
                if !silent && self.suspect.remove(&name) {
                    self.world.is_heard(&name);
                }
            }
            Step::Cordon(node, cordoned) => {
                let name = format!("n{node}");
                if *cordoned {
                    self.cordoned.insert(name.clone());
                } else {
                    self.cordoned.remove(&name);
                }
                let cordoned = *cordoned;
                self.world.admin(AdminChange::Cordon(CordonSet {
                    node: token(&name),
                    cordoned,
                    drain: false,
                    at_once: 0,
                }));
            }
            Step::Finish(of, well) => {
                let on = self
                    .pick(of)
                    .and_then(|no| Some((no, self.world.node_of(no)?)));
                if let Some((no, node)) = on
                    && !self.seen.finished.contains(&no)
                {
                    let state = if *well {
                        RunState::Finished
                    } else {
                        RunState::Failed
                    };
                    self.world.report_by_itself(no, &node, state);
                    self.seen.finished.insert(no);
                }
            }
            Step::Cancel(of) => {
                if let Some(no) = self.pick(of) {
                    self.world.cancel(no);
                }
            }
            Step::Prioritise(of, priority) => {
                if let Some(no) = self.pick(of) {
                    let target = PriorityTarget::Allocation(AllocationNo(no));
                    self.world.prioritise("q0", target, (*priority).into());
                }
            }
            Step::Reserve { queue, after } => {
                let from = Millis(self.world.now.0 + i64::from(*after) * 20_000);
                self.world.admin(AdminChange::Reservation(ReservationSet {
                    reservation: token("demo"),
                    wanted: Some(AdvanceReservation {
                        queue: token(&queue_name(*queue)),
                        from,
                        until: Millis(from.0 + 60_000),
                        nodes: 1,
                        selector: Vec::new(),
                    }),
                }));
            }
            Step::Wait(ms) => self.world.now.0 += i64::from(*ms),
            Step::Decide => drop(self.decide()),
            Step::Settle => self.settle(),
        }
    }

    fn decide(&mut self) -> Vec<Event> {
        let expected = self.twice.then(|| {
            let mut bare = again(&self.world.state);
            let mut draft = Draft::new(Millis(self.world.now.0 + 1), EventNo(1));
            bare.decide(&self.world.config, &mut draft);
            decisions(draft.events())
        });
        let nominated = self.world.state.allocations.nominated().clone();
        let before = self.kept_off();
        let events = self.world.decide();
        if let Some(expected) = expected {
            assert_eq!(
                decisions(events.iter()),
                expected,
                "a leader that has only read decides otherwise"
            );
        }
        for event in &events {
            self.saw(event, &events);
        }
        self.limits_hold();
        // One who was withdrawn may leave another where it may not be.
        let withdrawn = events.iter().any(|event| {
            matches!(event, Event::AllocationWaiting(AllocationWaiting { allocation, .. }) if nominated.contains(allocation))
        });
        if !withdrawn {
            let now = self.kept_off();
            let new: Vec<_> = now.difference(&before).collect();
            assert!(new.is_empty(), "{new:?} are kept off by what was decided");
        }
        for event in &events {
            // What counts by model asks again, and has quota at once.
            if let Event::AllocationWaiting(AllocationWaiting {
                allocation,
                reason: WaitingReason::Quota,
                ..
            }) = event
            {
                let except = self.seen.except[&allocation.0];
                self.world.grant_but(allocation.0, except);
            }
        }
        events
    }

    /// Nominees whom others keep off their nodes, whoever goes; members of gangs left aside.
    fn kept_off(&self) -> BTreeSet<AllocationNo> {
        let state = &self.world.state;
        let class = |live: &Live| state.allocations.class(live.class);
        let going = state.allocations.all().values().filter_map(|live| {
            let binding = live.binding().filter(|binding| binding.stop.is_some())?;
            Some((binding.node, class(live)))
        });
        let going: Vec<_> = going.collect();
        let alone = state
            .allocations
            .all()
            .iter()
            .filter(|(_, live)| live.gang.is_none());
        let kept_off = alone.filter(|(_, live)| {
            let Phase::Nominated(node) = live.phase else {
                return false;
            };
            let moves = Moves {
                gone: going.clone(),
                not_coming: vec![(node, class(live))],
                ..Moves::default()
            };
            let others = Others::of(&state.fleet, class(live), &moves);
            others.keep_off(node).is_some()
        });
        kept_off.map(|(no, _)| *no).collect()
    }

    fn saw(&mut self, event: &Event, frame: &[Event]) {
        match event {
            Event::AllocationPlaced(AllocationPlaced {
                allocation, node, ..
            }) => {
                assert!(
                    !self.seen.over.contains(&allocation.0),
                    "{allocation:?} runs again"
                );
                self.may_be_there(allocation.0, node);
                self.seen.nominated.remove(&allocation.0);
                self.seen.held.insert(allocation.0, node.clone());
            }
            Event::AllocationNominated(AllocationNominated {
                allocation, node, ..
            }) => {
                self.seen.nominated.insert(allocation.0, node.clone());
            }
            Event::AllocationWaiting(AllocationWaiting { allocation, .. }) => {
                self.seen.nominated.remove(&allocation.0);
            }
            Event::AllocationRequeued(AllocationRequeued {
                allocation, cause, ..
            }) => {
                let finished = self.seen.finished.remove(&allocation.0);
                assert!(
                    !finished || *cause != EndCause::Preempted,
                    "{allocation:?} had ended by itself"
                );
                self.seen.held.remove(&allocation.0);
            }
            Event::AllocationEnded(AllocationEnded { allocation, .. }) => {
                self.seen.nominated.remove(&allocation.0);
                self.seen.held.remove(&allocation.0);
                self.seen.over.insert(allocation.0);
            }
            Event::AllocationPreempted(AllocationPreempted { allocation, .. }) => {
                let placed = frame.iter().any(|other| {
                    matches!(other, Event::AllocationPlaced(AllocationPlaced { allocation: placed, .. }) if placed == allocation)
                });
                assert!(
                    !placed,
                    "{allocation:?} is placed and preempted in one frame"
                );
            }
            _ => {}
        }
    }

    /// No queue holds, or is promised, more than its limit, however it came by it.
    fn limits_hold(&self) {
        let (q0, q1, above) = self.setting.limits;
        let of = |queues: &[&str]| {
            let there = self.seen.held.keys().chain(self.seen.nominated.keys());
            let mine = there.filter_map(|no| {
                let (queue, spec) = &self.seen.specs[no];
                queues.contains(&queue.as_str()).then_some(spec.cpu_milli)
            });
            mine.sum::<u64>()
        };
        for (queues, limit) in [(&["q0"][..], q0), (&["q1"], q1), (&["q0", "q1"], above)] {
            if let Some(limit) = limit {
                assert!(
                    of(queues) <= u64::from(limit) * 1000,
                    "{queues:?} binding {}",
                    of(queues)
                );
            }
        }
    }

    fn capacity_of(&self, node: &Token) -> NodeCapacity {
        let number: u8 = node.as_str()[1..].parse().unwrap();
        a_capacity(self.incarnations[&number].1)
    }

    /// Every filter holds where it is placed, whatever it was nominated for.
    fn may_be_there(&self, no: u64, node: &Token) {
        let (tenant, spec) = &self.seen.specs[&no];
        let keep_off = [&self.cordoned, &self.lost, &self.suspect];
        assert!(!keep_off.iter().any(|nodes| nodes.contains(node.as_str())));
        let capacity = self.capacity_of(node);
        assert!(capacity.taints.is_empty());
        let model = capacity.gpu_model.as_ref().map(Token::as_str);
        let except = self.seen.except.get(&no);
        assert!(
            !except.is_some_and(|except| except.iter().any(|it| model == Some(it))),
            "{no} has no quota of the model of {node}"
        );
        let Some(rules) = &spec.rules else { return };
        for wanted in &rules.selector {
            assert!(wanted.is_met_by(&capacity), "{no} on {node}");
        }
        let domain = |node: &Token, label: &Option<Token>| match label {
            None => Some(node.clone()),
            Some(label) => self.capacity_of(node).label(label.as_str()).cloned(),
        };
        let here = |label: &Option<Token>| {
            let mine = domain(node, label);
            let members = self.seen.held.iter().filter(|(other, _)| {
                let (of, spec) = &self.seen.specs[other];
                let group = spec.rules.as_ref().and_then(|rules| rules.group.as_ref());
                of == tenant && group.is_some()
            });
            members.filter(|(_, at)| domain(at, label) == mine).count()
        };
        for anti_affinity in &rules.anti_affinity {
            assert_eq!(
                here(&anti_affinity.topology_key),
                0,
                "{no} is not apart on {node}"
            );
        }
        for affinity in &rules.affinity {
            let anywhere = here(&Some(token("none"))) > 0;
            let first = rules.group.is_some() && !anywhere;
            assert!(
                first || here(&affinity.topology_key) > 0,
                "{no} is not near on {node}"
            );
        }
        for rule in &rules.spread {
            assert!(domain(node, &rule.topology_key).is_some());
        }
    }

    /// Decides until nothing moves, and, when the clock alone would move something, until then and on.
    pub(super) fn settle(&mut self) {
        let live = self.world.state.live().len();
        let mut preemptions = 0;
        let mut waits = 0;
        for _ in 0..400 {
            let events = self.decide();
            preemptions += events
                .iter()
                .filter(|event| matches!(event, Event::AllocationPreempted(_)))
                .count();
            assert!(preemptions <= 4 * live * (live + 1), "no rest");
            let stopping = crate::what_if::told_to_stop(&self.world.state);
            let quiet = events.is_empty() && stopping.is_empty();
            for (no, node) in stopping {
                // Whoever had ended by itself has said so.
                if !self.seen.finished.contains(&no.0) {
                    self.world.report(no.0, node.as_str(), RunState::Finished);
                }
            }
            if quiet {
                let wake_at = self.world.state.wake_at();
                match wake_at.filter(|_| waits < 8) {
                    Some(at) => {
                        waits += 1;
                        self.world.now = self.world.now.max(Millis(at.0 - 1));
                    }
                    // What the clock alone goes on to move is not at rest.
                    None if wake_at.is_some_and(|at| at <= self.world.now) => return,
                    None => return self.at_rest(),
                }
            }
        }
        panic!("no rest");
    }

    fn at_rest(&mut self) {
        // No hidden memory: one who has only read what was recorded has nothing to do.
        let mut bare = again(&self.world.state);
        let mut draft = Draft::new(self.world.now, EventNo(1));
        bare.decide(&self.world.config, &mut draft);
        assert_eq!(decisions(draft.events()), [], "a new leader moves on");
        if !self.setting.backfill && !self.world.state.reservations.any() {
            self.what_could_be_placed_is();
        }
    }

    /// Progress: of whoever waits in line nobody fits on what is free.
    fn what_could_be_placed_is(&mut self) {
        let pending_groups: Vec<_> = self
            .world
            .state
            .waiting
            .queues()
            .pending_groups()
            .cloned()
            .collect();
        for pending_group in pending_groups {
            let state = &self.world.state;
            if state
                .waiting
                .queues()
                .limited_by(pending_group.key.queue, &pending_group.asks)
                .is_some()
            {
                continue;
            }
            let head = pending_group.head().unwrap().allocation;
            let scheduling_key = state
                .waiting
                .scheduling_key(pending_group.key.scheduling_key)
                .clone();
            let (mut members, classes) = (Vec::new(), scheduling_key.members.len());
            state
                .waiting
                .unit(head, classes, &state.allocations, &mut members);
            let mut trial = state.clone();
            assert!(
                !places_for(&mut trial, &members, scheduling_key.min as usize, 0),
                "{head:?} waits though there is room"
            );
        }
    }
}

/// Tries all nodes for all members, one after the other.
fn places_for(state: &mut Scheduler, members: &[AllocationNo], min: usize, found: usize) -> bool {
    if found >= min {
        return true;
    }
    let Some((no, rest)) = members.split_first() else {
        return false;
    };
    for at in 0..state.nodes().len() as u32 {
        let node = NodeNo(at);
        let class_no = state.allocations.all()[no].class;
        let class = state.allocations.class(class_no).clone();
        let there = state.fleet.node(node);
        let others = Others::of(&state.fleet, &class, &Moves::default());
        let fits = there.open()
            && there.nominees.is_empty()
            && keeps_off(state.fleet.capacity(node), &class).is_none()
            && others.keep_off(node).is_none()
            && there.check(state.fleet.capacity(node), &class).is_ok();
        if !fits {
            continue;
        }
        let Some(place) = state.place_on(*no, node) else {
            continue;
        };
        let mut trial = crate::place::Trial::default();
        if state.take(place, &mut trial) {
            let all = places_for(state, rest, min, found + 1);
            state.undo(&mut trial, 0);
            if all {
                return true;
            }
        }
    }
    // Or without this one.
    members.len() > min - found && places_for(state, rest, min, found)
}

/// Explanations are told again with new numbers now and then; everything else is a decision.
fn decisions<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Event> {
    let told = |event: &&Event| !matches!(event, Event::PendingGroupExplained(_));
    events.filter(told).cloned().collect()
}

/// What comes of the allocations of everybody but one tenant, by the order of their requests.
fn outcomes(setting: &Setting, steps: &[Step], odd: Option<&[(u8, u8)]>) -> Vec<String> {
    let mut run = Run::new(setting, false);
    let mut odd = odd.into_iter().flatten().cycle();
    let mut said = Vec::new();
    for step in steps {
        if let Some((kind, value)) = odd.next() {
            impossible(&mut run.world, *kind, i32::from(*value));
        }
        run.step(step);
        let order: BTreeMap<u64, usize> = run
            .asked
            .iter()
            .enumerate()
            .map(|(at, no)| (*no, at))
            .collect();
        for event in std::mem::take(&mut run.world.said) {
            let (text, no) = match &event {
                Event::AllocationPlaced(AllocationPlaced {
                    allocation,
                    node,
                    gpus,
                    ..
                }) => (format!("on {node} {gpus:?}"), allocation),
                Event::AllocationPreempted(AllocationPreempted {
                    allocation, cause, ..
                }) => (format!("preempted {}", cause.name()), allocation),
                Event::AllocationNominated(AllocationNominated {
                    allocation, node, ..
                }) => (format!("nominated {node}"), allocation),
                Event::AllocationRequeued(AllocationRequeued { allocation, .. }) => {
                    ("requeued".into(), allocation)
                }
                Event::AllocationEnded(AllocationEnded {
                    allocation, cause, ..
                }) => (format!("ended {}", cause.name()), allocation),
                Event::ReservationDecided(ReservationDecided { nodes, .. }) => {
                    said.push(format!("reserved {nodes:?}"));
                    continue;
                }
                _ => continue,
            };
            if let Some(at) = order.get(&no.0) {
                said.push(format!("{at} {text}"));
            }
        }
    }
    said
}

/// A request that nothing will ever come of.
fn impossible(w: &mut World, kind: u8, value: i32) {
    w.queue("odd", |q| {
        q.weight_milli = 8000;
        q.limits = vec![(ResourceKind::Gpu, 0)];
    });
    let gang = |size| {
        Some(Gang {
            name: token("odd"),
            size,
            min: size,
            uniform_label: None,
        })
    };
    let spec = class(
        match kind {
            0 => job(1000, 1),
            1 => ruled(job(1, 1), requires("zone", Operator::In, &["nowhere"])),
            2 => gpus(job(1, 1), 16, 1000),
            3 => gpus(job(1, 1), 1, 1000),
            _ => AllocationSpec {
                gang: gang(9),
                ..job(8, 1)
            },
        },
        value,
    );
    let count = if kind == 4 { 9 } else { 1 };
    w.submit("odd", count, spec);
}

/// `PROPTEST_CASES` sets the number of histories; `PROPTEST_RNG_SEED` makes them the same in each run.
pub(super) fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn decisions_hold(
        setting in setting(),
        steps in prop::collection::vec(step(), 1..14),
        twice in prop::bool::weighted(0.3),
    ) {
        let mut run = Run::new(&setting, twice);
        for step in &steps {
            run.step(step);
        }
        run.settle();
    }

    #[test]
    fn loads_of_different_resources_come_to_rest(
        loads in prop::collection::vec(
            (0u8..3, prop::sample::select(vec![0u16, 0, 0, 2, 4, 4, 8]), prop::sample::select(vec![1u64, 5, 9, 17, 20])),
            4..9,
        ),
        weights in (1u8..3, 1u8..3),
    ) {
        let mut w = World::new();
        w.queue("q0", |q| q.weight_milli = u32::from(weights.0) * 1000);
        w.queue("q1", |q| q.weight_milli = u32::from(weights.1) * 1000);
        w.node("g", 1, capacity(8, 256, 8));
        w.node("n", 1, capacity(32, 256, 0));
        let mut jobs = 0;
        for (queue, devices, cores) in loads {
            let spec = if devices > 0 { gpus(job(1, 1), devices, 1000) } else { job(cores, 1) };
            w.submit(&queue_name(queue), 1, class(spec, 0));
            jobs += 1;
            let events = w.settle();
            let preempted = |event: &&Event| matches!(event, Event::AllocationPreempted(_));
            prop_assert!(events.iter().filter(preempted).count() <= jobs * (jobs - 1), "no rest");
        }
    }

    #[test]
    fn impossible_requests_change_nothing_for_others(
        setting in setting(),
        steps in prop::collection::vec(step(), 1..10),
        odd in prop::collection::vec((0u8..5, 0u8..4), 1..4),
    ) {
        // One more request is one more round, a millisecond later, which is another matter where time counts.
        let setting = Setting { half_life: false, backfill: false, few_preemptions: false, ..setting };
        let mut steps = steps;
        steps.retain(|step| !matches!(step, Step::Reserve { .. }));
        steps.push(Step::Settle);
        prop_assert_eq!(outcomes(&setting, &steps, Some(&odd)), outcomes(&setting, &steps, None));
    }
}
