//! Random histories: an independent checker, and a twin that begins with a snapshot and must decide the same.

use super::{
    World,
    checker::Checker,
    words::{admin, event, operation, token},
};
use crate::{Config, Quota};
use ledger::{Decider, Draft, memory::Seeded};
use std::collections::BTreeMap;
use vocab::fact::{AllocationRequested, QuotaReserved, QuotaSet, TenantSet};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, At, Dependency, Event, EventNo, Gang,
    GpuRequest, Limits, Lsn, Millis, ModelGrant, OnExceed, QuotaResource, ReclaimFrom,
    TenantSettings, Validity,
};

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) tenants: u64,
    /// No waiting, no taking back, no bursts: a naive model says what is granted.
    pub(super) plain: bool,
    pub(super) cohorts: bool,
    /// How large the limits are.
    pub(super) limit: u64,
    pub(super) changes: bool,
    /// How often it is decided, per mille of the steps.
    pub(super) decisions: u64,
    /// Between the numbers of two requests.
    pub(super) stride: u64,
}

/// Where an allocation is, as the scheduler would know.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Asked,
    Reserved,
    Running,
}

pub(super) struct History {
    pub(super) world: World,
    pub(super) checker: Checker,
    pub(super) random: Seeded,
    shape: Shape,
    live: BTreeMap<u64, (Phase, bool)>,
    /// What GPUs each asked for, and which it was granted.
    gpus: BTreeMap<u64, (GpuRequest, Option<ModelGrant>)>,
    /// Models of the nodes; `None` for a node without GPUs.
    nodes: BTreeMap<&'static str, Option<&'static str>>,
    order: Vec<u64>,
    /// Told to stop.
    taken: Vec<u64>,
    next: u64,
    twin: Option<(Quota, u64)>,
    /// Limits that were set.
    pub(super) sets: usize,
    pub(super) record: Vec<Step>,
}

/// What came in, or that it was decided then, and what that was.
#[derive(Clone)]
pub(super) enum Step {
    Observed(Millis, u64, Box<Event>),
    Decided(Millis, Vec<Event>),
}

const RESOURCES: [&str; 8] = [
    "cpu",
    "memory",
    "gpu",
    "gpu:T4",
    "gpu:V100",
    "storage",
    "pods",
    "extended:fpga",
];

const MODELS: [&str; 3] = ["T4", "V100", "P100"];

impl History {
    pub(super) fn new(seed: u64, shape: Shape) -> Self {
        let mut checker = Checker::default();
        checker.plain = shape.plain;
        let mut history = Self {
            world: World::new(),
            checker,
            random: Seeded::new(seed),
            shape,
            live: BTreeMap::new(),
            gpus: BTreeMap::new(),
            nodes: BTreeMap::new(),
            order: Vec::new(),
            taken: Vec::new(),
            next: 1,
            twin: None,
            sets: 0,
            record: Vec::new(),
        };
        for model in MODELS {
            if history.random.chance(600) {
                history.node(model, Some(model));
            }
        }
        for tenant in 0..shape.tenants {
            history.treat(tenant);
            for resource in ["cpu", "memory", "gpu"] {
                history.limit(&format!("t{tenant}"), resource, Validity::default());
            }
        }
        for _ in 0..shape.tenants * 4 {
            let account = history.account();
            history.any_limit(&account.to_string(), Validity::default());
        }
        history
    }

    fn observe(&mut self, no: u64, event: Event) {
        self.world.others += 1;
        let no = if no > 0 { no } else { self.world.others };
        if let Some((twin, _)) = &mut self.twin {
            let at = At {
                lsn: Lsn(0),
                index: 0,
                no: EventNo(no),
                now: self.world.now,
            };
            twin.observe_event(&at, &event).unwrap();
        }
        self.checker.input(no, &event, self.world.now);
        self.world.observe(no, &event);
        let now = self.world.now;
        self.record.push(Step::Observed(now, no, Box::new(event)));
    }

    fn step(&mut self, text: &str) {
        let (_, event) = event(text, self.world.now);
        self.observe(0, event);
    }

    /// Registers the node with GPUs of this model, or with none.
    fn node(&mut self, node: &'static str, model: Option<&'static str>) {
        if self.nodes.get(node) != Some(&model) {
            self.step(&format!("node {node} {}", model.unwrap_or("-")));
            self.nodes.insert(node, model);
        }
    }

    /// It is on a node of a model that it may run on; false if there is none.
    fn place(&mut self, no: u64) -> bool {
        let may = |model: Option<&str>| {
            let Some((asked, grant)) = self.gpus.get(&no) else {
                return true;
            };
            let Some(model) = model.map(token) else {
                return false;
            };
            let except = grant.as_ref().is_some_and(|it| it.except.contains(&model));
            asked.allows(Some(&model)) && !except
        };
        let nodes = self.nodes.iter().filter(|(_, model)| may(**model));
        let nodes: Vec<&str> = nodes.map(|(node, _)| *node).collect();
        if nodes.is_empty() {
            return false;
        }
        let node = nodes[self.random.below(nodes.len() as u64) as usize];
        self.step(&format!("place {no} {node}"));
        true
    }

    pub(super) fn account(&mut self) -> Account {
        let random = &mut self.random;
        let tenant = random.below(self.shape.tenants);
        let text = match random.below(4) {
            0 => format!("t{tenant}"),
            1 => format!("t{tenant}/x{}", random.below(2)),
            _ => format!("t{tenant}/x{}/n{}", random.below(2), random.below(3)),
        };
        Account::parse(&text).unwrap()
    }

    fn treat(&mut self, tenant: u64) {
        let (random, plain) = (&mut self.random, self.shape.plain);
        let wait = !plain && random.chance(500);
        let settings = TenantSettings {
            cohort: (self.shape.cohorts && random.chance(800))
                .then(|| token(["c", "d"][random.below(2) as usize])),
            preemptible: random.chance(800),
            on_exceed: if wait {
                OnExceed::Wait
            } else {
                OnExceed::Refuse
            },
            reclaim: if plain {
                ReclaimFrom::Never
            } else {
                ReclaimFrom::ALL[random.below(3) as usize]
            },
            ..TenantSettings::default()
        };
        let tenant = token(&format!("t{tenant}"));
        self.observe(
            0,
            admin(AdminChange::Tenant(TenantSet {
                tenant,
                settings,
                closed: false,
                teams: Vec::new(),
            })),
        );
    }

    fn any_limit(&mut self, account: &str, validity: Validity) {
        let resource = RESOURCES[self.random.below(8) as usize];
        self.limit(account, resource, validity);
    }

    fn limit(&mut self, account: &str, resource: &str, validity: Validity) {
        let unit = if resource.starts_with("gpu") { 1000 } else { 1 };
        let random = &mut self.random;
        let hard = random.below(self.shape.limit) * unit;
        let bursts = random.chance(300) && !self.shape.plain;
        let limits = Limits {
            hard,
            soft: Some(hard / 2),
            burst: bursts.then(|| hard + random.below(8) * unit),
            burst_ms: 1 + random.below(500),
            borrow: random.chance(300).then(|| random.below(8) * unit),
            lend: random.chance(300).then(|| random.below(8) * unit),
        };
        self.sets += 1;
        let change = AdminChange::Quota(QuotaSet {
            account: Account::parse(account).unwrap(),
            resource: QuotaResource::parse(resource).unwrap(),
            limits: random.chance(900).then_some(limits),
            validity,
        });
        self.observe(0, admin(change));
    }

    pub(super) fn spec(&mut self, account: &Account) -> AllocationSpec {
        let random = &mut self.random;
        let mut spec = AllocationSpec::plain(token("j"), random.below(5), random.below(4));
        (spec.team, spec.namespace) = (account.team.clone(), account.namespace.clone());
        if random.chance(400) {
            let models = match random.below(4) {
                0 => vec![],
                1 => vec![token("T4")],
                2 => vec![token("V100")],
                _ => vec![token("T4"), token("V100")],
            };
            spec.gpu = Some(GpuRequest {
                count: 1 + random.below(2) as u16,
                milli: 1000,
                models,
            });
        }
        for name in ["fpga", "storage"] {
            if random.chance(200) {
                spec.extended.push((token(name), 1 + random.below(3)));
            }
        }
        spec.priority = random.below(3) as i32;
        if !self.shape.plain && random.chance(150) {
            let size = 2 + random.below(2) as u32;
            // Few names, so that they are used again while members live. The first member says the size.
            spec.gang = Some(Gang {
                name: token(["g", "h"][random.below(2) as usize]),
                size,
                min: size,
                uniform_label: None,
            });
        }
        if !self.shape.plain && random.chance(150) && !self.order.is_empty() {
            for _ in 0..1 + random.below(2) {
                let other = self.order[random.below(self.order.len() as u64) as usize];
                spec.depends_on.push(Dependency {
                    allocation: AllocationNo(other),
                    success: false,
                });
            }
        }
        spec
    }

    fn pick(&mut self, phase: Phase) -> Option<u64> {
        for _ in 0..8 {
            let at = self.random.below(self.order.len().max(1) as u64) as usize;
            let no = *self.order.get(at)?;
            match self.live.get(&no) {
                None => drop(self.order.swap_remove(at)),
                Some((found, _)) if *found == phase => return Some(no),
                Some(_) => {}
            }
        }
        None
    }

    fn ask(&mut self) {
        let account = self.account();
        let spec = self.spec(&account);
        let no = self.next;
        self.next += self.shape.stride;
        let operation = operation(&account.tenant);
        if let Some(gpu) = &spec.gpu {
            self.gpus.insert(no, (gpu.clone(), None));
        }
        self.observe(
            no,
            Event::AllocationRequested(AllocationRequested { operation, spec }),
        );
        self.live.insert(no, (Phase::Asked, false));
        self.order.push(no);
    }

    pub(super) fn act(&mut self) {
        match self.random.below(100) {
            0..40 if self.live.len() < 2_000 => self.ask(),
            40..60 => {
                if let Some(no) = self.pick(Phase::Reserved)
                    && self.place(no)
                {
                    self.step(&format!("start {no}"));
                    self.live.insert(no, (Phase::Running, self.live[&no].1));
                }
            }
            0..40 | 60..80 => {
                let phase = [
                    Phase::Running,
                    Phase::Running,
                    Phase::Reserved,
                    Phase::Asked,
                ];
                let phase = phase[self.random.below(4) as usize];
                if let Some(no) = self.pick(phase) {
                    self.step(&format!("end {no}"));
                    self.live.remove(&no);
                }
            }
            80..90 => self.stop_some(),
            90..94 => {
                if let Some(no) = self.pick(Phase::Asked) {
                    let priority = self.random.below(4);
                    self.step(&format!("prio {no} {priority}"));
                }
            }
            94..98 => self.world.now.0 += self.random.below(200) as i64,
            _ if self.shape.changes => self.change(),
            _ => {}
        }
    }

    /// What was taken back stops; now and then something else does, too.
    fn stop_some(&mut self) {
        for no in std::mem::take(&mut self.taken) {
            match self.live.get(&no) {
                Some((Phase::Running, true)) => {
                    self.step(&format!("requeue {no}"));
                    self.step(&format!("off {no}"));
                    self.live.insert(no, (Phase::Asked, false));
                }
                Some((Phase::Reserved, true)) => {
                    self.step(&format!("off {no}"));
                    self.live.insert(no, (Phase::Asked, false));
                }
                _ => {}
            }
        }
        if let Some(no) = self.pick(Phase::Running)
            && !self.live[&no].1
        {
            let by_model = self.gpus.get(&no).is_some_and(|(_, grant)| grant.is_some());
            if by_model && self.shape.plain {
                // It would ask again, and wait.
                return;
            }
            self.step(&format!("requeue {no}"));
            if by_model {
                self.step(&format!("off {no}"));
            }
            let phase = if by_model {
                Phase::Asked
            } else {
                Phase::Reserved
            };
            self.live.insert(no, (phase, false));
        }
    }

    fn change(&mut self) {
        let now = self.world.now.0;
        let later = |random: &mut Seeded| Millis(now + 1 + random.below(300) as i64);
        match self.random.below(8) {
            4.. => {
                let node = MODELS[self.random.below(3) as usize];
                let model = MODELS.get(self.random.below(4) as usize);
                self.node(node, model.copied());
            }
            0 => {
                let tenant = self.random.below(self.shape.tenants);
                self.treat(tenant);
            }
            kind => {
                let from = self.random.chance(500).then(|| later(&mut self.random));
                let until = self
                    .random
                    .chance(500)
                    .then(|| later(&mut self.random).plus(300));
                let account = self.account().to_string();
                let validity = match kind {
                    1 => Validity { from, until },
                    _ => Validity::default(),
                };
                self.any_limit(&account, validity);
            }
        }
    }

    pub(super) fn decide(&mut self) {
        let now = self.world.now;
        let events = self.world.decide();
        if self.random.chance(100) {
            self.a_new_leader_decides_nothing();
        }
        if let Some((twin, next)) = &mut self.twin {
            let mut same = Vec::new();
            loop {
                let mut draft = Draft::new(now, EventNo(*next));
                twin.decide(&Config::default(), &mut draft);
                *next = draft.next_no().0;
                same.extend(draft.events().cloned());
                if !draft.full() {
                    break;
                }
            }
            assert_eq!(events, same, "the twin decides otherwise");
            assert!(*twin == self.world.state, "the twin knows otherwise");
        }
        for event in &events {
            self.checker.own(event, now);
            let Some(no) = event.allocation(EventNo(0)) else {
                continue;
            };
            match event {
                Event::QuotaReserved(QuotaReserved { models, .. }) => {
                    if let Some((_, grant)) = self.gpus.get_mut(&no.0) {
                        *grant = models.as_deref().cloned();
                    }
                    self.live.insert(no.0, (Phase::Reserved, false));
                }
                Event::QuotaDenied(_) => {
                    self.live.remove(&no.0);
                }
                Event::QuotaReclaimed(_) => {
                    self.taken.push(no.0);
                    if let Some((_, reclaimed)) = self.live.get_mut(&no.0) {
                        *reclaimed = true;
                    }
                }
                Event::QuotaReleased(_) if !self.live.contains_key(&no.0) => {
                    self.checker.forget(no.0);
                }
                _ => {}
            }
        }
        if self.shape.tenants < 10 || self.random.chance(20) {
            self.checker.quiet(now);
            self.checker.nobody_waits_for_nothing(now);
        }
        self.record.push(Step::Decided(now, events));
        let wake = self.world.state.wake_at();
        assert!(
            wake.is_none_or(|at| at > now),
            "{wake:?} is over at {now:?}"
        );
    }

    fn compare(&mut self) {
        let account = self.account();
        for name in RESOURCES {
            let resource = QuotaResource::parse(name).unwrap();
            let holding = self.world.state.holding(&account, &resource);
            let found = (holding.reserved, holding.used);
            assert_eq!(
                found,
                self.checker.holding(&account, &resource),
                "{account} {name}"
            );
        }
    }

    /// Checks that a leader that starts from the snapshot has nothing to decide.
    fn a_new_leader_decides_nothing(&self) {
        let mut draft = Draft::new(self.world.now, EventNo(1));
        self.world.restored().decide(&Config::default(), &mut draft);
        let left: Vec<Event> = draft.events().cloned().collect();
        assert_eq!(left, [], "a new leader decides more");
    }

    /// From here on another begins with the snapshot of this one, and decides the same.
    pub(super) fn follow_with_a_twin(&mut self) {
        let restored = self.world.restored();
        self.twin = Some((restored, self.world.next));
    }

    /// Ends everything; nothing may be left but what operators have set.
    fn drain(&mut self) {
        for (no, _) in std::mem::take(&mut self.live) {
            self.step(&format!("end {no}"));
        }
        self.decide();
        assert_eq!(
            (self.world.state.live(), self.world.state.waiting()),
            (0, 0)
        );
        self.compare();
    }
}

fn run(seed: u64, shape: Shape, acts: u64, twins: bool) -> (u64, u64, u64) {
    let mut history = History::new(seed, shape);
    for _ in 0..acts {
        history.act();
        if history.random.chance(shape.decisions) {
            history.decide();
        }
        if history.random.chance(20) {
            history.compare();
        }
        if twins && history.random.chance(20) {
            history.follow_with_a_twin();
        }
    }
    history.decide();
    history.drain();
    let checker = &history.checker;
    (checker.grants, checker.denials, checker.reclaims)
}

pub(super) const SHAPE: Shape = Shape {
    tenants: 4,
    plain: false,
    cohorts: true,
    limit: 16,
    changes: true,
    decisions: 500,
    stride: 1,
};

#[test]
fn no_history_exceeds_a_limit_and_a_snapshot_decides_the_same() {
    let mut sums = (0, 0, 0);
    for seed in 0..150 {
        let (grants, denials, reclaims) = run(seed, SHAPE, 800, true);
        sums = (sums.0 + grants, sums.1 + denials, sums.2 + reclaims);
    }
    // All of it happens, and often.
    assert!(
        sums.0 > 10_000 && sums.1 > 5_000 && sums.2 > 300,
        "{sums:?}"
    );
}

#[test]
fn without_waiting_exactly_what_fits_is_granted() {
    let shape = Shape {
        plain: true,
        ..SHAPE
    };
    let mut sums = (0, 0);
    for seed in 0..150 {
        let (grants, denials, reclaims) = run(seed, shape, 800, false);
        sums = (sums.0 + grants, sums.1 + denials);
        assert_eq!(reclaims, 0);
    }
    assert!(sums.0 > 10_000 && sums.1 > 5_000, "{sums:?}");
}

#[test]
fn a_million_operations() {
    let shape = Shape {
        tenants: 12,
        limit: 100,
        decisions: 60,
        ..SHAPE
    };
    let (grants, denials, reclaims) = run(7, shape, 1_000_000, false);
    assert!(
        grants > 50_000 && denials > 50_000 && reclaims > 1_000,
        "{grants} {denials} {reclaims}"
    );
}
