//! What has to hold for every history: decisions come to rest; they hang on what was recorded and not on what a leader
//! remembers; limits and filters hold for whoever preempts; what could be placed is; nothing is done in vain; and nobody's
//! impossible requests change anything for others.

mod reasons;
mod victims;

use super::*;
use crate::{
    aside::Aside,
    fleet::{Moves, Others, keeps_off},
};
use proptest::prelude::*;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationRequeued, AllocationWaiting, CordonSet, ReservationDecided, ReservationSet,
    TaintsSet,
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
    /// An allocation with a time to live and a time limit in seconds; 0 is none.
    Bounded {
        queue: u8,
        spec: u8,
        value: u8,
        ttl: u8,
        limit: u8,
    },
    /// A node is there, or there again, maybe as another.
    Node(u8, u8),
    Lose(u8),
    /// It is not heard for a while, or heard again.
    Suspect(u8, bool),
    Cordon(u8, bool),
    /// Drains the node; the second field limits the number of stopping allocations.
    Drain(u8, u8),
    /// Sets or removes a taint `NoExecute`.
    Taint(u8, bool),
    Condition(u8, bool),
    /// Changes the node's cores.
    Resize(u8, u8),
    /// A run begins.
    Start(prop::sample::Index),
    /// A run ends by itself.
    Finish(prop::sample::Index, bool),
    Cancel(prop::sample::Index),
    Prioritise(prop::sample::Index, i8),
    /// A gang with different members, some of which may never be requested.
    Team {
        queue: u8,
        value: u8,
        specs: Vec<u8>,
        missing: bool,
        need_all: bool,
        uniform: bool,
    },
    Reserve {
        queue: u8,
        after: u8,
    },
    /// Quota is reclaimed for another allocation.
    Reclaim(prop::sample::Index, prop::sample::Index),
    /// Reclaimed quota is granted again.
    Grant,
    Queue {
        queue: u8,
        limit: Option<u8>,
        weight: u8,
        beside: bool,
    },
    Class {
        value: u8,
        preemptible: bool,
        preempts: bool,
    },
    Policy {
        half_life: bool,
        protected: bool,
        backfill: bool,
        few_preemptions: bool,
        fair_share: bool,
    },
    /// A new leader starts from a snapshot.
    Restart,
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
        prop::collection::vec(0u8..6, 1..4),
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
        9 => (0u8..4, 0u8..11, 0u8..4, 1u8..6)
            .prop_map(|(queue, spec, value, count)| Step::Submit { queue, spec, value, count }),
        3 => (0u8..4, 0u8..4, prop::collection::vec(1u8..9, 2..4), any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.3))
            .prop_map(|(queue, value, sizes, need_all, affinity, mixed)| Step::Gang { queue, value, sizes, need_all, affinity, mixed }),
        2 => (0u8..4, 0u8..6).prop_map(|(node, kind)| Step::Node(node, kind)),
        1 => (0u8..4).prop_map(Step::Lose),
        1 => (0u8..4, any::<bool>()).prop_map(|(node, silent)| Step::Suspect(node, silent)),
        1 => (0u8..4, any::<bool>()).prop_map(|(node, cordoned)| Step::Cordon(node, cordoned)),
        4 => (one(), prop::bool::weighted(0.8)).prop_map(|(of, well)| Step::Finish(of, well)),
        1 => one().prop_map(Step::Cancel),
        1 => (one(), 0i8..4).prop_map(|(of, to)| Step::Prioritise(of, to)),
        2 => (0u8..4, 0u8..4, prop::collection::vec(0u8..BY_MODEL, 1..4), prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(queue, value, specs, missing, need_all, uniform)| Step::Team { queue, value, specs, missing, need_all, uniform }),
        2 => (0u8..3, 0u8..3).prop_map(|(queue, after)| Step::Reserve { queue, after }),
        1 => (0u16..60_000).prop_map(Step::Wait),
        4 => Just(Step::Decide),
        1 => Just(Step::Restart),
        5 => Just(Step::Settle),
    ]
}

/// Steps with all kinds of changes from outside.
fn storm() -> impl Strategy<Value = Step> {
    let one = any::<prop::sample::Index>;
    let flag = any::<bool>;
    prop_oneof![
        24 => step(),
        2 => (0u8..4, 0u8..11, 0u8..4, 0u8..30, 0u8..30)
            .prop_map(|(queue, spec, value, ttl, limit)| Step::Bounded { queue, spec, value, ttl, limit }),
        2 => (0u8..4, 0u8..3).prop_map(|(node, at_once)| Step::Drain(node, at_once)),
        2 => (0u8..4, flag()).prop_map(|(node, tainted)| Step::Taint(node, tainted)),
        1 => (0u8..4, flag()).prop_map(|(node, holds)| Step::Condition(node, holds)),
        3 => (0u8..4, 1u8..14).prop_map(|(node, cores)| Step::Resize(node, cores)),
        2 => one().prop_map(Step::Start),
        3 => (one(), one()).prop_map(|(of, by)| Step::Reclaim(of, by)),
        2 => Just(Step::Grant),
        2 => (0u8..2, prop::option::of(1u8..12), 1u8..4, prop::bool::weighted(0.2))
            .prop_map(|(queue, limit, weight, beside)| Step::Queue { queue, limit, weight, beside }),
        1 => (0u8..4, flag(), flag())
            .prop_map(|(value, preemptible, preempts)| Step::Class { value, preemptible, preempts }),
        1 => (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.2), flag())
            .prop_map(|(half_life, protected, backfill, few_preemptions, fair_share)| {
                Step::Policy { half_life, protected, backfill, few_preemptions, fair_share }
            }),
    ]
}

/// Steps that fill nodes with single allocations and gangs of all priorities.
fn crowd() -> impl Strategy<Value = Step> {
    let one = any::<prop::sample::Index>;
    let spec = prop::sample::select(vec![0u8, 0, 1, 2, 3, 4, 10]);
    prop_oneof![
        6 => (0u8..3, spec, 0u8..4, 1u8..4)
            .prop_map(|(queue, spec, value, count)| Step::Submit { queue, spec, value, count }),
        6 => (0u8..3, 0u8..4, prop::collection::vec(1u8..7, 2..5), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(queue, value, sizes, need_all, mixed)| {
                Step::Gang { queue, value, sizes, need_all, affinity: false, mixed }
            }),
        1 => (one(), Just(true)).prop_map(|(of, well)| Step::Finish(of, well)),
        1 => one().prop_map(Step::Cancel),
        1 => (0u8..3, 1u8..14).prop_map(|(node, cores)| Step::Resize(node, cores)),
        1 => Just(Step::Restart),
        1 => Just(Step::Decide),
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
        4 => NodeCapacity {
            taints: vec![taint("night", vocab::TaintEffect::NoSchedule)],
            ..capacity(8, 64, 0)
        },
        _ => of_model("T4", two_zones()),
    }
}

fn taint(key: &str, effect: vocab::TaintEffect) -> vocab::Taint {
    vocab::Taint {
        key: token(key),
        value: None,
        effect,
    }
}

/// Returns the capacity with other cores, in zones of unequal size.
fn resized(capacity: &NodeCapacity, cores: u64) -> NodeCapacity {
    let mut capacity = NodeCapacity {
        cpu_milli: cores * 1000,
        ..capacity.clone()
    };
    if let Some([one, other]) = capacity.topology.as_mut().map(|it| &mut it.zones[..]) {
        (one.cpu_milli, other.cpu_milli) = (cores * 300, cores * 700);
    }
    capacity
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
        10 => in_one_zone(job(3, 1)),
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
    /// Allocations with reclaimed quota: before the scheduler has confirmed it, and after.
    reclaimed: BTreeSet<u64>,
    without_quota: BTreeSet<u64>,
    /// Ended by itself, as far as its agent is concerned.
    finished: BTreeSet<u64>,
}

pub(super) struct Run {
    pub(super) world: World,
    seen: Seen,
    setting: Setting,
    /// q1 has no parent.
    beside: bool,
    asked: Vec<u64>,
    gangs: u32,
    nodes: BTreeMap<u8, (u64, NodeCapacity)>,
    cordoned: BTreeSet<String>,
    lost: BTreeSet<String>,
    suspect: BTreeSet<String>,
    drained: BTreeSet<String>,
    tainted: BTreeSet<String>,
    under_pressure: BTreeSet<String>,
    /// Whether each round is also decided by one who has only read what was recorded.
    twice: bool,
}

impl Run {
    pub(super) fn new(setting: &Setting, twice: bool) -> Self {
        let mut run = Self {
            world: World::new(),
            seen: Seen::default(),
            setting: setting.clone(),
            beside: false,
            asked: Vec::new(),
            gangs: 0,
            nodes: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            lost: BTreeSet::new(),
            suspect: BTreeSet::new(),
            drained: BTreeSet::new(),
            tainted: BTreeSet::new(),
            under_pressure: BTreeSet::new(),
            twice,
        };
        run.policy(true);
        let above = cores_at_most(setting.limits.2);
        run.world.queue("above", |q| q.limits = above);
        for queue in 0..2 {
            run.queue(queue);
        }
        for (node, kind) in (0..).zip(&setting.nodes) {
            run.node(node, *kind);
        }
        run
    }

    /// Sets the policy of the setting.
    fn policy(&mut self, fair_share: bool) {
        let setting = &self.setting;
        self.world.policy(|policy| {
            policy.half_life_ms = if setting.half_life { 3_600_000 } else { 0 };
            policy.protected_milli = if setting.protected { 500 } else { 0 };
            policy.backfill = setting.backfill;
            policy.preemptions_per_minute = if setting.few_preemptions { 2 } else { 600 };
            policy.backoff_ms = 1000;
            policy.fair_share_preemption = fair_share;
        });
    }

    /// Sets q0 or q1 as in the setting.
    fn queue(&mut self, queue: u8) {
        let (limits, weights) = (self.setting.limits, self.setting.weights);
        let (limit, weight) = match queue {
            0 => (limits.0, weights.0),
            _ => (limits.1, weights.1),
        };
        let beside = self.beside && queue == 1;
        self.world.queue(&queue_name(queue), |q| {
            q.limits = cores_at_most(limit);
            q.weight_milli = u32::from(weight) * 1000;
            q.parent = (!beside).then(|| token("above"));
        });
    }

    fn node(&mut self, node: u8, kind: u8) {
        let name = format!("n{node}");
        let incarnation = self.nodes.get(&node).map_or(1, |(last, _)| last + 1);
        if incarnation > 1 {
            self.world.lose(&name);
        }
        let capacity = a_capacity(kind);
        self.nodes.insert(node, (incarnation, capacity.clone()));
        self.lost.remove(&name);
        self.suspect.remove(&name);
        self.world.node(&name, incarnation, capacity);
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
                    let asked = one_of(*spec, *value);
                    self.submit(*queue, asked, left_out(*spec, *value));
                }
            }
            Step::Bounded {
                queue,
                spec,
                value,
                ttl,
                limit,
            } => {
                let mut asked = one_of(*spec, *value);
                asked.bounds = vocab::TimeBounds {
                    ttl_ms: u64::from(*ttl) * 1000,
                    time_limit_ms: u64::from(*limit) * 1000,
                };
                self.submit(*queue, asked, left_out(*spec, *value));
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
                if self.nodes.contains_key(node) {
                    self.world.lose(&format!("n{node}"));
                    self.lost.insert(format!("n{node}"));
                    self.suspect.remove(&format!("n{node}"));
                }
            }
            Step::Suspect(node, silent) => {
                let name = format!("n{node}");
                let there = self.nodes.contains_key(node) && !self.lost.contains(&name);
                if *silent && there && self.suspect.insert(name.clone()) {
                    self.world.suspect(&name);
                }
                if !silent && self.suspect.remove(&name) {
                    self.world.is_heard(&name);
                }
            }
            Step::Cordon(node, cordoned) => self.cordon(*node, *cordoned, None),
            Step::Drain(node, at_once) => self.cordon(*node, true, Some(*at_once)),
            Step::Taint(node, tainted) => {
                let name = format!("n{node}");
                let out = taint("out", vocab::TaintEffect::NoExecute);
                self.world.admin(AdminChange::Taints(TaintsSet {
                    node: token(&name),
                    taints: tainted.then_some(out).into_iter().collect(),
                }));
                put(&mut self.tainted, name, *tainted);
            }
            Step::Condition(node, holds) => {
                let name = format!("n{node}");
                self.world.condition(&name, "DiskPressure", *holds);
                put(&mut self.under_pressure, name, *holds);
            }
            Step::Resize(node, cores) => {
                if let Some((incarnation, capacity)) = self.nodes.get_mut(node) {
                    *capacity = resized(capacity, (*cores).into());
                    let name = format!("n{node}");
                    self.world.resize(&name, *incarnation, capacity.clone());
                }
            }
            Step::Start(of) => {
                let on = self
                    .pick(of)
                    .and_then(|no| Some((no, self.world.node_of(no)?)));
                if let Some((no, node)) = on
                    && !self.seen.finished.contains(&no)
                    && self.has_not_begun(no)
                {
                    self.world.report(no, &node, RunState::Started);
                }
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
            Step::Team {
                queue,
                value,
                specs,
                missing,
                need_all,
                uniform,
            } => {
                self.gangs += 1;
                let size = specs.len() as u32 + u32::from(*missing);
                let gang = Gang {
                    name: token(&format!("t{}", self.gangs)),
                    size,
                    min: if *need_all { size } else { 1 },
                    uniform_label: uniform.then(|| token("zone")),
                };
                for spec in specs {
                    let mut asked = class(a_spec(*spec), i32::from(*value));
                    asked.gang = Some(gang.clone());
                    asked.restart.retries = u32::from(*spec % 3);
                    asked.run_time_ms = u64::from(*spec % 3) * 30_000;
                    self.submit(*queue, asked, None);
                }
            }
            Step::Reserve { queue, after } => {
                let from = self.world.now.plus(i64::from(*after) * 20_000);
                self.world.admin(AdminChange::Reservation(ReservationSet {
                    reservation: token("demo"),
                    wanted: Some(AdvanceReservation {
                        queue: token(&queue_name(*queue)),
                        from,
                        until: from.plus(60_000),
                        nodes: 1,
                        selector: Vec::new(),
                    }),
                }));
            }
            Step::Reclaim(of, by) => {
                let by = self.pick(by);
                if let Some(no) = self.pick(of)
                    && !self.seen.except.contains_key(&no)
                    && !self.seen.over.contains(&no)
                    && !self.seen.without_quota.contains(&no)
                {
                    self.seen.reclaimed.insert(no);
                    self.world.reclaim(no, by);
                }
            }
            Step::Grant => {
                for no in std::mem::take(&mut self.seen.without_quota) {
                    self.world.grant(no);
                }
            }
            Step::Queue {
                queue,
                limit,
                weight,
                beside,
            } => {
                let setting = &mut self.setting;
                match queue {
                    0 => (setting.limits.0, setting.weights.0) = (*limit, *weight),
                    _ => (setting.limits.1, setting.weights.1) = (*limit, *weight),
                }
                self.beside = *beside;
                self.queue(0);
                self.queue(1);
            }
            Step::Class {
                value,
                preemptible,
                preempts,
            } => {
                let settings = PriorityClass {
                    value: i32::from(*value),
                    preemptible: *preemptible,
                    preempts: *preempts,
                    grace_ms: 1000,
                    placement: None,
                };
                self.world
                    .admin(AdminChange::PriorityClass(PriorityClassSet {
                        class: token(&format!("p{value}")),
                        closed: false,
                        settings,
                    }));
            }
            Step::Policy {
                half_life,
                protected,
                backfill,
                few_preemptions,
                fair_share,
            } => {
                self.setting.half_life = *half_life;
                self.setting.protected = *protected;
                self.setting.backfill = *backfill;
                self.setting.few_preemptions = *few_preemptions;
                self.policy(*fair_share);
            }
            Step::Restart => self.world.state = again(&self.world.state),
            Step::Wait(ms) => self.world.now = self.world.now.plus((*ms).into()),
            Step::Decide => drop(self.decide()),
            Step::Settle => self.settle(),
        }
    }

    fn cordon(&mut self, node: u8, cordoned: bool, drain_at_once: Option<u8>) {
        let name = format!("n{node}");
        self.world.admin(AdminChange::Cordon(CordonSet {
            node: token(&name),
            cordoned,
            drain: drain_at_once.is_some(),
            at_once: drain_at_once.unwrap_or(0).into(),
        }));
        put(&mut self.drained, name.clone(), drain_at_once.is_some());
        put(&mut self.cordoned, name, cordoned);
    }

    /// Returns whether the agent has reported nothing about the run.
    fn has_not_begun(&self, no: u64) -> bool {
        let live = self.world.state.live().get(&AllocationNo(no));
        let binding = live.and_then(Live::binding);
        binding.is_some_and(|binding| binding.started.is_none() && binding.reports.is_empty())
    }

    fn decide(&mut self) -> Vec<Event> {
        let expected = self.twice.then(|| {
            let mut bare = again(&self.world.state);
            let mut draft = Draft::new(self.world.now.plus(1), EventNo(1));
            bare.decide(&self.world.config, &mut draft);
            decisions(draft.events())
        });
        let nominated = self.world.state.allocations.nominated().clone();
        let before = self.kept_off();
        let state = self.world.state.clone();
        let first = self.world.next_own;
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
        self.limits_hold(&events);
        let now = self.world.now;
        victims::fellows_follow_if_they_are_too_few(state.clone(), first, now, &events);
        victims::are_needed(state, first, now, &events);
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
                && let Some(except) = self.seen.except.get(&allocation.0)
            {
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
            Event::AllocationWaiting(AllocationWaiting {
                allocation, reason, ..
            }) => {
                self.seen.nominated.remove(&allocation.0);
                let taken_back = self.seen.reclaimed.remove(&allocation.0);
                if *reason == WaitingReason::Quota && taken_back {
                    self.seen.without_quota.insert(allocation.0);
                }
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
                self.seen.reclaimed.remove(&allocation.0);
                self.seen.without_quota.remove(&allocation.0);
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

    /// Checks the limits of all queues for which the frame places or nominates an allocation.
    fn limits_hold(&self, events: &[Event]) {
        let (q0, q1, above) = self.setting.limits;
        let is_of = |queues: &[&str], no: u64| queues.contains(&self.seen.specs[&no].0.as_str());
        let grows = |queues: &[&str]| {
            events.iter().any(|event| match event {
                Event::AllocationPlaced(fact) => is_of(queues, fact.allocation.0),
                Event::AllocationNominated(fact) => is_of(queues, fact.allocation.0),
                _ => false,
            })
        };
        let of = |queues: &[&str]| {
            let there = self.seen.held.keys().chain(self.seen.nominated.keys());
            let mine = there.filter(|no| is_of(queues, **no));
            mine.map(|no| self.seen.specs[no].1.cpu_milli).sum::<u64>()
        };
        let below = if self.beside {
            &["q0"][..]
        } else {
            &["q0", "q1"]
        };
        for (queues, limit) in [(&["q0"][..], q0), (&["q1"], q1), (below, above)] {
            if let Some(limit) = limit.filter(|_| grows(queues)) {
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
        self.nodes[&number].1.clone()
    }

    /// Every filter holds where it is placed, whatever it was nominated for.
    fn may_be_there(&self, no: u64, node: &Token) {
        let (tenant, spec) = &self.seen.specs[&no];
        let keep_off = [
            &self.cordoned,
            &self.lost,
            &self.suspect,
            &self.tainted,
            &self.under_pressure,
        ];
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

    /// Decides until a round changes nothing and none is due, and continues at a few later wake-ups.
    pub(super) fn settle(&mut self) {
        let live = self.world.state.live().len();
        let mut preemptions = 0;
        let mut waits = 0;
        let mut idle = 0;
        let mut cleared_for = BTreeSet::new();
        for round in 0..600 {
            let events = self.decide();
            // All input from outside is decided in the first round.
            self.nominees_come(&events, round > 0, &mut cleared_for);
            preemptions += events
                .iter()
                .filter(|event| matches!(event, Event::AllocationPreempted(_)))
                .count();
            assert!(preemptions <= 4 * live * (live + 1), "no rest");
            let stopping = crate::what_if::told_to_stop(&self.world.state);
            let quiet = events.is_empty() && stopping.is_empty();
            for (no, node) in stopping {
                // Runs that have ended need no second report.
                if !self.seen.finished.contains(&no.0) {
                    self.world.report(no.0, node.as_str(), RunState::Finished);
                }
            }
            idle = if quiet { idle + 1 } else { 0 };
            assert!(idle < 50, "wake-ups stay due");
            if !quiet {
                continue;
            }
            match self.world.state.wake_at() {
                Some(at) if at <= self.world.now => {}
                Some(at) if waits < 8 => {
                    (waits, idle) = (waits + 1, 0);
                    cleared_for.clear();
                    self.world.now = Millis(at.0 - 1);
                }
                _ => return self.at_rest(),
            }
        }
        panic!("no rest");
    }

    /// Checks that nominees are placed and not withdrawn, without input from outside. Rules about others and reserved nodes are
    /// exceptions.
    fn nominees_come(&self, events: &[Event], new: bool, cleared_for: &mut BTreeSet<u64>) {
        let set_aside = self.setting.backfill || self.world.state.reservations.any();
        for event in events {
            match event {
                Event::AllocationNominated(AllocationNominated { allocation, .. }) => {
                    let (_, spec) = &self.seen.specs[&allocation.0];
                    let rules = spec.rules.as_ref();
                    let grouped = rules.is_some_and(|it| {
                        !it.affinity.is_empty()
                            || !it.anti_affinity.is_empty()
                            || !it.spread.is_empty()
                    });
                    if new && !set_aside && !grouped && spec.gang.is_none() {
                        cleared_for.insert(allocation.0);
                    }
                }
                Event::AllocationWaiting(AllocationWaiting {
                    allocation, reason, ..
                }) if *reason != WaitingReason::Nominated => {
                    let was_cleared_for = cleared_for.contains(&allocation.0);
                    assert!(!was_cleared_for, "{allocation:?} was nominated in vain");
                }
                Event::AllocationPlaced(AllocationPlaced { allocation, .. })
                | Event::AllocationEnded(AllocationEnded { allocation, .. }) => {
                    cleared_for.remove(&allocation.0);
                }
                _ => {}
            }
        }
    }

    /// Checks that impossible requests change no placement at rest.
    fn impossible_requests_move_nobody(&mut self, odd: &[(u8, u8)]) {
        let setting = &self.setting;
        let by_time = setting.half_life || setting.backfill || setting.few_preemptions;
        if by_time || self.world.state.wake_at().is_some() || self.world.state.reservations.any() {
            return;
        }
        for (kind, value) in odd {
            impossible(&mut self.world, *kind, i32::from(*value));
            for _ in 0..4 {
                let events = self.decide();
                let moves = |event: &&Event| {
                    matches!(
                        event,
                        Event::AllocationPlaced(_)
                            | Event::AllocationPreempted(_)
                            | Event::AllocationNominated(_)
                    )
                };
                let moved = events.iter().find(moves);
                assert_eq!(moved, None, "by an impossible request {kind}");
            }
        }
    }

    fn at_rest(&mut self) {
        // No hidden memory: a new leader has nothing to do.
        let mut bare = again(&self.world.state);
        let mut draft = Draft::new(self.world.now, EventNo(1));
        bare.decide(&self.world.config, &mut draft);
        assert_eq!(decisions(draft.events()), [], "a new leader moves on");
        for no in self.seen.held.keys() {
            let node = self.world.node_of(*no).unwrap();
            let cleared = self.drained.contains(&node) || self.tainted.contains(&node);
            assert!(!cleared, "{no} is still on {node}");
        }
        self.what_could_be_placed_is();
        reasons::promises_can_be_kept(&self.world);
        reasons::waiting_allocations_have_a_reason(&self.world);
        if !self.setting.few_preemptions && !self.setting.protected {
            victims::are_found(&self.world.state);
        }
    }

    /// Progress: no queued unit fits into the free room that is not kept for others.
    fn what_could_be_placed_is(&mut self) {
        let aside = Aside::of(&self.world.state, self.world.now);
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
            let values = match (&scheduling_key.uniform_label, &scheduling_key.uniform_value) {
                (None, _) => vec![None],
                (Some(label), Some(value)) => vec![Some((label.clone(), value.clone()))],
                (Some(label), None) => {
                    let values = state.fleet.label_values(label).into_iter();
                    values.map(|value| Some((label.clone(), value))).collect()
                }
            };
            for value in values {
                let mut trial = state.clone();
                let min = scheduling_key.min as usize;
                assert!(
                    !places_for(&mut trial, &members, (min, 0), (&aside, value.as_ref())),
                    "{head:?} waits though there is room: {value:?}"
                );
            }
        }
    }
}

fn one_of(spec: u8, value: u8) -> AllocationSpec {
    let mut asked = class(a_spec(spec), i32::from(value));
    asked.restart.never = spec % 5 == 4;
    asked.run_time_ms = u64::from(spec % 3) * 30_000;
    asked
}

fn cores_at_most(limit: Option<u8>) -> Vec<(ResourceKind, u64)> {
    let limit = limit.map(|cores| (ResourceKind::Cpu, u64::from(cores) * 1000));
    limit.into_iter().collect()
}

fn put(names: &mut BTreeSet<String>, name: String, is_in: bool) {
    match is_in {
        true => names.insert(name),
        false => names.remove(&name),
    };
}

/// Tries all nodes for all members, in any order if their rules are about others. `min` members are needed, and `found` are placed.
fn places_for(
    state: &mut Scheduler,
    members: &[AllocationNo],
    (min, found): (usize, usize),
    (aside, value): (&Aside, Option<&(Token, Token)>),
) -> bool {
    if found >= min {
        return true;
    }
    let class_of = |state: &Scheduler, no: &AllocationNo| {
        let class_no = state.allocations.all()[no].class;
        state.allocations.class(class_no).clone()
    };
    let mut classes = members.iter().map(|no| class_of(state, no));
    let any_order = classes.any(|class| class.looks_at_others());
    let firsts = if any_order { members.len() } else { 1 };
    let set_aside = aside.nodes(&state.reservations);
    for first in 0..firsts.min(members.len()) {
        let no = members[first];
        let mut rest = members.to_vec();
        rest.remove(first);
        for at in 0..state.nodes().len() as u32 {
            let node = NodeNo(at);
            let class = class_of(state, &no);
            let there = state.fleet.node(node);
            let capacity = state.fleet.capacity(node);
            let others = Others::of(&state.fleet, &class, &Moves::default());
            let lets = || aside.lets(state, no, &state.allocations.all()[&no], node);
            let fits = there.open()
                && there.nominees.is_empty()
                && keeps_off(capacity, &class).is_none()
                && others.keep_off(node).is_none()
                && state.minding(no, &class).let_it_come_to(node)
                && there.check(capacity, &class).is_ok()
                && value.is_none_or(|(label, value)| capacity.label(label.as_str()) == Some(value))
                && (!set_aside.contains(&node) || lets());
            if !fits {
                continue;
            }
            let Some(place) = state.place_on(no, node) else {
                continue;
            };
            let mut trial = crate::place::Trial::default();
            if state.take(place, &mut trial) {
                let all = places_for(state, &rest, (min, found + 1), (aside, value));
                state.undo(&mut trial, 0);
                if all {
                    return true;
                }
            }
        }
    }
    // Or without this one.
    members.len() > min - found && places_for(state, &members[1..], (min, found), (aside, value))
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
    let odd = |rules| {
        let group = Some(token("odd"));
        ruled(job(1, 1), PlacementRules { group, ..rules })
    };
    let none = PlacementRules::default;
    let near = |group: &str, domain: Option<&str>| {
        vec![GroupTerm {
            group: token(group),
            topology_key: domain.map(token),
        }]
    };
    let (affinity, spread) = match kind {
        5 => (near("nobody", None), Vec::new()),
        6 => (near("nobody", Some("zone")), Vec::new()),
        7 => (near("odd", Some("rack")), Vec::new()),
        _ => {
            let topology_key = Some(token("rack"));
            let max_skew = 1;
            let spread = Spread {
                topology_key,
                max_skew,
            };
            (Vec::new(), vec![spread])
        }
    };
    let spec = class(
        match kind {
            0 => job(1000, 1),
            1 => ruled(job(1, 1), requires("zone", Operator::In, &["nowhere"])),
            2 => gpus(job(1, 1), 16, 1000),
            3 => gpus(job(1, 1), 1, 1000),
            4 => AllocationSpec {
                gang: gang(9),
                ..job(8, 1)
            },
            5..=8 => odd(PlacementRules {
                affinity,
                spread,
                ..none()
            }),
            9 => odd(PlacementRules {
                affinity: near("nobody", None),
                anti_affinity: near("nobody", None),
                ..none()
            }),
            10 => AllocationSpec {
                gang: gang(2),
                ..odd(PlacementRules {
                    affinity: near("nobody", Some("zone")),
                    ..none()
                })
            },
            // No zone has ten cores.
            _ => ruled(
                job(10, 1),
                PlacementRules {
                    numa: vocab::NumaPolicy::Single,
                    ..none()
                },
            ),
        },
        value,
    );
    let count = match kind {
        4 => 9,
        10 => 2,
        _ => 1,
    };
    w.submit("odd", count, spec);
}

/// Number of kinds of impossible requests.
const IMPOSSIBLE: u8 = 12;

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
    fn the_least_is_preempted_for_whatever_fits(
        setting in setting(),
        steps in prop::collection::vec(crowd(), 1..16),
    ) {
        let limits = (None, None, None);
        let setting = Setting { protected: false, few_preemptions: false, backfill: false, limits, ..setting };
        let mut run = Run::new(&setting, false);
        for step in &steps {
            run.step(step);
        }
        run.settle();
    }

    #[test]
    fn storms_come_to_rest(
        setting in setting(),
        steps in prop::collection::vec(storm(), 1..24),
        twice in prop::bool::weighted(0.3),
        odd in prop::collection::vec((0u8..5, 0u8..4), 0..3),
    ) {
        let mut run = Run::new(&setting, twice);
        for step in &steps {
            run.step(step);
        }
        run.step(&Step::Grant);
        run.settle();
        run.impossible_requests_move_nobody(&odd);
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
        steps in prop::collection::vec(storm(), 1..12),
        odd in prop::collection::vec((0u8..IMPOSSIBLE, 0u8..4), 1..4),
    ) {
        // One more request is one more round, a millisecond later, which is another matter where time counts.
        let setting = Setting { half_life: false, backfill: false, few_preemptions: false, ..setting };
        let mut steps = steps;
        let by_time = |step: &Step| {
            matches!(step, Step::Reserve { .. } | Step::Bounded { .. } | Step::Policy { .. })
        };
        steps.retain(|step| !by_time(step));
        steps.push(Step::Settle);
        prop_assert_eq!(outcomes(&setting, &steps, Some(&odd)), outcomes(&setting, &steps, None));
    }
}
