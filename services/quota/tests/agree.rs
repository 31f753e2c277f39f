//! What the read model says is held is what the decider holds, whatever came when: generated histories on one ledger,
//! where quota reads late and the scheduler acts on what it has not heard of yet.

use ledger::{Decider, Draft, Projection};
use quota::{
    domain::Quota,
    project::{AccountState, BudgetState, Change, Key, WarmProjection},
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    AllocationWaiting, BudgetSet, NodeRegistered, QuotaDenied, QuotaReclaimed, QuotaReserved,
    QuotaSet, RateSet, TenantSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, At, Budget, BudgetOf, EndCause, Event,
    EventNo, GpuRequest, HOUR_MS, Limits, Lsn, Millis, NodeCapacity, OnExceed, Operation, Period,
    PlacementPolicy, QuotaResource, ResourceKey, TenantSettings, Token, Validity, WaitingReason,
    Writer,
};

const ACCOUNTS: [&str; 7] = ["a", "a/x", "a/x/n", "a/y", "b", "b/x", "c"];
const RESOURCES: [&str; 7] = [
    "cpu", "memory", "gpu", "gpu:T4", "gpu:V100", "pods", "storage",
];

/// Where the scheduler has an allocation.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Asked,
    Granted,
    Placed,
    Started,
    Ended,
}

struct World {
    seed: u64,
    now: Millis,
    ledger: Vec<(At, Event)>,
    numbers: BTreeMap<Writer, u64>,
    quota: Quota,
    /// How far quota has read.
    read: usize,
    projection: WarmProjection,
    accounts: BTreeMap<Key, AccountState>,
    budgets: BTreeMap<(Account, BudgetOf), BudgetState>,
    waiting: BTreeMap<AllocationNo, ()>,
    stages: BTreeMap<AllocationNo, Stage>,
    /// Those that ask for quota again after a run.
    by_model: BTreeSet<AllocationNo>,
    /// Taken back, and the scheduler has not heard of it.
    reclaimed: Vec<AllocationNo>,
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Millis(1_000_000_000_000),
            ledger: Vec::new(),
            numbers: BTreeMap::new(),
            quota: Quota::default(),
            read: 0,
            projection: WarmProjection::default(),
            accounts: BTreeMap::new(),
            budgets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stages: BTreeMap::new(),
            by_model: BTreeSet::new(),
            reclaimed: Vec::new(),
        }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % most
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[at as usize]
    }

    /// A frame of one writer.
    fn append(&mut self, events: Vec<Event>) {
        let lsn = self.ledger.last().map_or(1, |(at, _)| at.lsn.0 + 1);
        for (index, event) in (0..).zip(events) {
            let number = self.numbers.entry(event.writer()).or_default();
            *number += 1;
            let at = At {
                lsn: Lsn(lsn),
                index,
                no: EventNo(*number),
                now: self.now,
            };
            let mut changes = Vec::new();
            self.projection
                .project_event(&at, &event, &mut changes)
                .unwrap();
            self.projection.end_batch(&mut changes);
            changes.into_iter().for_each(|change| self.apply(change));
            self.follow(&at, &event);
            self.ledger.push((at, event));
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Account(key, Some(row)) => drop(self.accounts.insert(key, *row)),
            Change::Account(key, None) => drop(self.accounts.remove(&key)),
            Change::Budget(key, Some(row)) => drop(self.budgets.insert(key, *row)),
            Change::Budget(key, None) => drop(self.budgets.remove(&key)),
            Change::Waiting(no, Some(_)) => drop(self.waiting.insert(no, ())),
            Change::Waiting(no, None) => drop(self.waiting.remove(&no)),
            Change::Hour(..) | Change::Planned(..) | Change::Tenant(_) => {}
        }
    }

    fn follow(&mut self, at: &At, event: &Event) {
        match event {
            Event::AllocationRequested(_) => {
                self.stages.insert(AllocationNo(at.no.0), Stage::Asked);
            }
            Event::QuotaReserved(QuotaReserved {
                allocation, models, ..
            }) => {
                if models.is_some() {
                    self.by_model.insert(*allocation);
                } else {
                    self.by_model.remove(allocation);
                }
                let stage = self.stages.get_mut(allocation).unwrap();
                if *stage != Stage::Ended {
                    *stage = Stage::Granted;
                }
            }
            Event::QuotaDenied(QuotaDenied { allocation, .. }) => {
                self.stages.insert(*allocation, Stage::Ended);
            }
            Event::QuotaReclaimed(QuotaReclaimed { allocation, .. }) => {
                self.reclaimed.push(*allocation)
            }
            _ => {}
        }
    }

    /// Quota reads on, by a part of what there is or all, and decides.
    fn decide(&mut self, all: bool) {
        let unread = self.ledger.len() - self.read;
        let take = if all {
            unread
        } else {
            self.below(unread as u64 + 1) as usize
        };
        // Whole frames.
        let mut to = self.read + take;
        while to > 0 && to < self.ledger.len() && self.ledger[to].0.lsn == self.ledger[to - 1].0.lsn
        {
            to += 1;
        }
        for (at, event) in &self.ledger[self.read..to] {
            if event.writer() != Writer::Quota {
                self.quota.observe_event(at, event).unwrap();
            }
        }
        self.read = to;
        let next = self.numbers.get(&Writer::Quota).copied().unwrap_or(0) + 1;
        let mut draft = Draft::new(self.now, EventNo(next));
        self.quota.decide(&quota::Config::default(), &mut draft);
        assert_eq!(draft.illegal(), None);
        let events: Vec<Event> = draft.events().cloned().collect();
        self.append(events);
    }

    /// Quota reads this at once: when it says that limits are in force, nothing on the ledger tells whether it had read a
    /// change that stands between.
    fn operate(&mut self) {
        self.catch_up();
        let account = Account::parse(self.one(&ACCOUNTS)).unwrap();
        let change = match self.below(8) {
            0 => AdminChange::Tenant(TenantSet {
                tenant: account.tenant,
                settings: TenantSettings {
                    cohort: self.one(&[None, Some("c"), Some("c")]).map(token),
                    on_exceed: self.one(&OnExceed::ALL),
                    preemptible: self.below(4) > 0,
                    ..TenantSettings::default()
                },
            }),
            1 => AdminChange::Budget(BudgetSet {
                of: BudgetOf::parse(self.one(&["money", "cpu", "gpu"])).unwrap(),
                budget: (self.below(4) > 0).then_some(Budget {
                    amount: 1_000_000,
                    period: self.one(&Period::ALL),
                }),
                account,
            }),
            2 => AdminChange::Rate(RateSet {
                resource: ResourceKey::parse(self.one(&["cpu", "gpu", "gpu:T4"])).unwrap(),
                micro_per_unit_hour: self.below(1000),
                effective_from: Millis((self.now.0 / HOUR_MS + 1) * HOUR_MS),
            }),
            _ => self.limits(account),
        };
        self.append(vec![
            change
                .applied(operation("_operator"), self.ledger.len() as u64 + 1)
                .into(),
        ]);
        self.catch_up();
    }

    fn limits(&mut self, account: Account) -> AdminChange {
        let hard = self.below(20_000);
        let limits = Limits {
            hard,
            soft: (self.below(2) > 0).then_some(hard / 2),
            borrow: (self.below(4) == 0).then_some(hard / 2),
            lend: (self.below(4) == 0).then_some(hard / 2),
            burst: (self.below(4) == 0).then_some(hard * 2),
            burst_ms: 0,
        };
        let limits = Limits {
            burst_ms: limits.burst.map_or(0, |_| 60_000),
            ..limits
        };
        let hour = |world: &mut Self| world.now.plus(1 + world.below(HOUR_MS as u64) as i64);
        let from = (self.below(4) == 0).then(|| hour(self));
        let until = (self.below(4) == 0).then(|| from.unwrap_or(self.now).plus(HOUR_MS / 2));
        AdminChange::Quota(QuotaSet {
            account,
            resource: QuotaResource::parse(self.one(&RESOURCES)).unwrap(),
            limits: (self.below(8) > 0).then_some(limits),
            validity: Validity { from, until },
        })
    }

    fn request(&mut self) {
        let account = Account::parse(self.one(&ACCOUNTS)).unwrap();
        let models: &[&str] = self.one(&[&[], &[], &["T4"], &["V100"], &["T4", "V100"]]);
        let gpu = GpuRequest {
            count: self.below(3) as u16 + 1,
            milli: 1000,
            models: models.iter().map(|model| token(model)).collect(),
        };
        let (cpu, memory) = (self.below(4000) + 1, self.below(1000) + 1);
        let spec = AllocationSpec {
            gpu: (self.below(2) == 0).then_some(gpu),
            priority: self.below(3) as i32,
            extended: self
                .one(&[None, Some(5)])
                .map(|amount| (token("storage"), amount))
                .into_iter()
                .collect(),
            team: account.team.clone(),
            namespace: account.namespace.clone(),
            ..AllocationSpec::plain(token("j"), cpu, memory)
        };
        self.append(vec![Event::AllocationRequested(AllocationRequested {
            operation: operation(account.tenant.as_str()),
            spec,
        })]);
    }

    fn schedule(&mut self) {
        let live = self
            .stages
            .iter()
            .filter(|(_, stage)| **stage != Stage::Ended);
        let live: Vec<_> = live.map(|(no, stage)| (*no, *stage)).collect();
        if live.is_empty() {
            return;
        }
        let (allocation, stage) = self.one(&live);
        let (event, next) = match (stage, self.below(4)) {
            (Stage::Asked, 0..3) => return,
            (Stage::Granted, 0..3) => (self.placed(allocation), Stage::Placed),
            (Stage::Placed, 0..3) => {
                let at = self.now.plus(-5);
                (
                    Event::AllocationStarted(AllocationStarted { allocation, at }),
                    Stage::Started,
                )
            }
            (Stage::Started, 0) if self.by_model.contains(&allocation) => {
                let requeued = self.requeued(allocation);
                self.stages.insert(allocation, Stage::Asked);
                self.append(vec![requeued, without_quota(allocation)]);
                return;
            }
            (Stage::Started, 0) => (self.requeued(allocation), Stage::Granted),
            _ => {
                let (cause, at) = (EndCause::Finished, self.now.plus(-3));
                let event = Event::AllocationEnded(AllocationEnded {
                    allocation,
                    cause,
                    at,
                });
                (event, Stage::Ended)
            }
        };
        self.stages.insert(allocation, next);
        self.append(vec![event]);
    }

    /// The scheduler hears of what is taken back.
    fn hear(&mut self) {
        let Some(allocation) = self.reclaimed.pop() else {
            return;
        };
        let requeued = match self.stages[&allocation] {
            Stage::Placed | Stage::Started => Some(self.requeued(allocation)),
            Stage::Granted => None,
            Stage::Asked | Stage::Ended => return,
        };
        self.stages.insert(allocation, Stage::Asked);
        let events = requeued.into_iter().chain([without_quota(allocation)]);
        self.append(events.collect());
    }

    fn placed(&mut self, allocation: AllocationNo) -> Event {
        Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: token(self.one(&["n1", "n2", "n3"])),
            incarnation: 1,
            gpus: Vec::new(),
            zones: 0,
            policy: PlacementPolicy::default(),
            candidates: Vec::new(),
        })
    }

    fn requeued(&self, allocation: AllocationNo) -> Event {
        Event::AllocationRequeued(AllocationRequeued {
            allocation,
            cause: EndCause::Preempted,
            at: self.now.plus(-2),
            not_before: self.now,
        })
    }

    fn node(&mut self, name: &str, model: Option<&str>) {
        let capacity = NodeCapacity {
            gpu_model: model.map(token),
            ..NodeCapacity::default()
        };
        self.append(vec![Event::NodeRegistered(NodeRegistered {
            node: token(name),
            incarnation: 1,
            boot: 1,
            capacity,
        })]);
    }

    fn catch_up(&mut self) {
        while self.read < self.ledger.len() {
            self.decide(true);
        }
    }

    /// Quota has read all; both must say the same.
    fn compare(&mut self) {
        self.catch_up();
        for account in ACCOUNTS {
            let account = Account::parse(account).unwrap();
            for resource in RESOURCES {
                let resource = QuotaResource::parse(resource).unwrap();
                let key = (account.clone(), resource);
                let row = self.accounts.get(&key).copied();
                // A model that nobody limits or names has no row.
                let Some(row) = row.or_else(|| {
                    let named = matches!(key.1, QuotaResource::GpuModel(_));
                    (!named).then(AccountState::default)
                }) else {
                    continue;
                };
                let held = self.quota.holding(&key.0, &key.1);
                let found = (row.limits, row.reserved, row.used);
                assert_eq!(found, (held.limits, held.reserved, held.used), "{key:?}");
            }
        }
        for ((account, of), row) in &self.budgets {
            let forecast = self.quota.forecast(account, of, self.now).unwrap();
            if row.period.1 <= self.now {
                continue;
            }
            let later = u128::from((self.now.0 - row.as_of.0).unsigned_abs());
            let spent = row.spent + row.burn * later / HOUR_MS as u128;
            let error = spent.abs_diff(forecast.spent.into());
            assert!(
                error <= 4 + later / 1000,
                "{account} {of:?}: {spent} {forecast:?}"
            );
        }
        let waiting = self.waiting.keys().filter(|no| self.quota.holds(**no));
        assert_eq!(waiting.count(), 0);
    }
}

fn without_quota(allocation: AllocationNo) -> Event {
    Event::AllocationWaiting(AllocationWaiting {
        allocation,
        reason: WaitingReason::Quota,
        line: None,
    })
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    world.node("n1", Some("T4"));
    world.node("n2", None);
    world.node("n3", Some("V100"));
    for _ in 0..30 {
        world.operate();
    }
    for step in 0..600 {
        let gap = world.one(&[10, 1000, 60_000, 900_000]);
        world.now = world.now.plus(10 + world.below(gap) as i64);
        match world.below(20) {
            0 => world.operate(),
            1..=5 => world.request(),
            6..=11 => world.schedule(),
            12..=13 => world.hear(),
            _ => world.decide(false),
        }
        if step % 50 == 49 {
            world.compare();
        }
    }
}

#[test]
fn the_read_model_agrees_with_the_decider() {
    for seed in 1..=300 {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
