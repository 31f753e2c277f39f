//! An independent look at a history: it sees nothing but events, and sums up by itself. Shares no code with the domain.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationReprioritised, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationWaiting, LimitsInForce, NodeRegistered,
    QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaSet, QuotaWaiting, TenantSet,
};
use vocab::{
    Account, AllocationNo, AllocationSpec, Event, Limits, Millis, ModelChoice, ModelGrant,
    QuotaResource, Refusal, Rule, TenantSettings, Token, Validity,
};

/// cpu, memory, gpu, gpu:T4, gpu:V100, storage, pods, extended:fpga; the last is GPUs of any model.
const TYPES: usize = 9;
const ANY: usize = 8;

fn index(resource: &QuotaResource) -> usize {
    match resource {
        QuotaResource::Cpu => 0,
        QuotaResource::Memory => 1,
        QuotaResource::Gpu => 2,
        QuotaResource::GpuModel(model) if model.as_str() == "T4" => 3,
        QuotaResource::GpuModel(_) => 4,
        QuotaResource::Storage => 5,
        QuotaResource::Pods => 6,
        QuotaResource::Extended(_) | QuotaResource::Leases => 7,
    }
}

fn model_index(model: &Token) -> usize {
    index(&QuotaResource::GpuModel(model.clone()))
}

/// The models of which any will do; empty: any at all. None: it has no choice.
fn choice(spec: &AllocationSpec) -> Option<Vec<usize>> {
    let gpu = spec.gpu.as_ref().filter(|gpu| gpu.models.len() != 1)?;
    Some(gpu.models.iter().map(model_index).collect())
}

/// T4 and V100: nobody limits any other.
const MODELS: std::ops::Range<usize> = 3..5;

fn amounts(spec: &AllocationSpec) -> [u64; TYPES] {
    let mut all = [0; TYPES];
    (all[0], all[1], all[6]) = (spec.cpu_milli, spec.memory_bytes, 1);
    if let Some(gpu) = &spec.gpu {
        all[2] = gpu.total_milli();
        if let [model] = &gpu.models[..] {
            all[model_index(model)] = all[2];
        }
    }
    for (name, amount) in &spec.extended {
        all[index(&QuotaResource::extended(name))] += amount;
    }
    all
}

#[derive(Default, Clone)]
struct Sums {
    held: [u64; TYPES],
    used: [u64; TYPES],
    returning: [u64; TYPES],
    limits: [Option<Limits>; TYPES],
    above: [Option<Millis>; TYPES],
    below: [Option<Millis>; TYPES],
}

impl Sums {
    /// What counts on a type.
    fn on(of: &[u64; TYPES], at: usize) -> u64 {
        of[at] + if at == 3 || at == 4 { of[ANY] } else { 0 }
    }
}

struct Alloc {
    path: Vec<usize>,
    amounts: [u64; TYPES],
    choice: Option<Vec<usize>>,
    /// What counts while it is held.
    counted: [u64; TYPES],
    by_model: bool,
    /// Its number among the gangs.
    gang: Option<usize>,
    priority: i32,
    depends_on: Vec<u64>,
    /// What it was told last that it waits for.
    told: Option<Refusal>,
    held: bool,
    started: bool,
    reclaimed: bool,
    /// It ended, or was taken back and stopped.
    gone: bool,
    ever: bool,
}

impl Alloc {
    /// With these of its choice.
    fn counting(&self, models: &[usize]) -> [u64; TYPES] {
        let mut counted = self.amounts;
        if self.choice.is_some() {
            models
                .iter()
                .for_each(|model| counted[*model] = self.amounts[2]);
        }
        counted
    }

    /// What it counts on when nothing that it may run on is limited.
    fn unbound(&self) -> Vec<usize> {
        match self.choice.as_deref() {
            None => Vec::new(),
            Some([]) => vec![ANY],
            Some(models) => models.to_vec(),
        }
    }
}

/// As the scheduler tells gangs apart.
struct Gang {
    tenant: usize,
    name: Token,
    size: u32,
    live: BTreeSet<u64>,
    granted: usize,
    whole: bool,
}

/// With what may come to be of the model.
fn wants(unit: &[&Alloc], account: usize, model: usize) -> u64 {
    let below = unit.iter().filter(|alloc| alloc.path.contains(&account));
    let of = |alloc: &&Alloc| {
        let may = |choice: &Vec<usize>| choice.is_empty() || choice.contains(&model);
        match alloc.choice.as_ref().is_some_and(may) {
            true => alloc.amounts[2],
            false => alloc.amounts[model],
        }
    };
    below.map(of).sum()
}

/// Who waits for the same: the higher priority, then the older first.
type Line = BTreeSet<(Reverse<i32>, u64)>;

type Set = (Validity, Option<Limits>, Millis);

#[derive(Default)]
pub struct Checker {
    accounts: HashMap<Account, usize>,
    sums: Vec<Sums>,
    tenants: HashMap<usize, TenantSettings>,
    allocs: HashMap<u64, Alloc>,
    sets: BTreeMap<(usize, usize), Vec<Set>>,
    /// Where quota has said that an override holds.
    overridden: BTreeSet<(usize, usize)>,
    gangs: Vec<Gang>,
    /// Models of the nodes; those that nobody limits are none.
    fleet: BTreeMap<Token, Option<usize>>,
    pub grants: u64,
    pub denials: u64,
    pub reclaims: u64,
    /// Nobody waits: what fits is granted, and what is denied does not fit.
    pub plain: bool,
}

impl Checker {
    fn account(&mut self, account: &Account) -> usize {
        let next = self.sums.len();
        let at = *self.accounts.entry(account.clone()).or_insert(next);
        if at == next {
            self.sums.push(Sums::default());
        }
        at
    }

    fn path(&mut self, account: &Account) -> Vec<usize> {
        let mut path = vec![self.account(account)];
        let mut above = account.parent();
        while let Some(account) = above {
            path.push(self.account(&account));
            above = account.parent();
        }
        path
    }

    pub fn input(&mut self, no: u64, event: &Event, now: Millis) {
        match event {
            Event::TenantSet(set) => self.tenant_set(&set.change, now),
            Event::QuotaSet(set) => self.quota_set(&set.change, now),
            Event::AllocationRequested(AllocationRequested { operation, spec }) => {
                let path = self.path(&spec.account(&operation.tenant));
                let tenant = path[path.len() - 1];
                let gang = spec.gang.as_ref().map(|gang| self.join(tenant, gang, no));
                let depends_on = spec.depends_on.iter().map(|it| it.allocation.0);
                let depends_on = depends_on.filter(|it| self.allocs.contains_key(it));
                let depends_on = depends_on.collect();
                let alloc = Alloc {
                    path,
                    amounts: amounts(spec),
                    choice: choice(spec),
                    counted: [0; TYPES],
                    by_model: false,
                    gang,
                    priority: spec.priority,
                    depends_on,
                    told: None,
                    held: false,
                    started: false,
                    reclaimed: false,
                    gone: false,
                    ever: false,
                };
                self.allocs.insert(no, alloc);
            }
            Event::NodeRegistered(NodeRegistered { node, capacity, .. }) => {
                self.fleet.remove(node);
                if let Some(name) = &capacity.gpu_model {
                    let model = Some(model_index(name)).filter(|_| name.as_str() != "P100");
                    self.fleet.insert(node.clone(), model);
                }
            }
            Event::AllocationPlaced(AllocationPlaced {
                allocation, node, ..
            }) => {
                let model = self.fleet.get(node).copied().flatten();
                self.counts_on(allocation.0, model.as_slice(), now);
            }
            Event::AllocationStarted(AllocationStarted { allocation, .. }) => {
                self.started(allocation.0, true)
            }
            Event::AllocationRequeued(AllocationRequeued { allocation, .. }) => {
                self.started(allocation.0, false);
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                alloc.gone |= alloc.reclaimed;
                if !alloc.by_model {
                    let unbound = alloc.unbound();
                    self.counts_on(allocation.0, &unbound, now);
                }
            }
            Event::AllocationWaiting(AllocationWaiting { allocation, .. }) => {
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                alloc.gone |= alloc.reclaimed || alloc.by_model;
            }
            Event::AllocationReprioritised(AllocationReprioritised {
                allocation,
                priority,
            }) => {
                if let Some(alloc) = self.allocs.get_mut(&allocation.0) {
                    alloc.priority = *priority;
                }
            }
            Event::AllocationEnded(AllocationEnded { allocation, .. }) => {
                self.leave(allocation.0);
                if let Some(alloc) = self.allocs.get_mut(&allocation.0) {
                    alloc.gone = true;
                    if !alloc.held {
                        self.allocs.remove(&allocation.0);
                    }
                }
            }
            _ => {}
        }
    }

    fn join(&mut self, tenant: usize, wanted: &vocab::Gang, no: u64) -> usize {
        let of_name = |gang: &Gang| gang.tenant == tenant && gang.name == wanted.name;
        let latest = self.gangs.iter().rposition(of_name);
        let open = latest.filter(|at| {
            let gang = &self.gangs[*at];
            let live = gang.live.len();
            !gang.whole && gang.granted == 0 && live > 0 && live < gang.size as usize
        });
        let at = open.unwrap_or(self.gangs.len());
        if open.is_none() {
            self.gangs.push(Gang {
                tenant,
                name: wanted.name.clone(),
                size: wanted.size,
                live: BTreeSet::new(),
                granted: 0,
                whole: false,
            });
        }
        self.gangs[at].live.insert(no);
        at
    }

    fn leave(&mut self, no: u64) {
        if let Some(gang) = self.allocs.get(&no).and_then(|alloc| alloc.gang) {
            self.gangs[gang].live.remove(&no);
        }
    }

    fn started(&mut self, no: u64, started: bool) {
        let alloc = self.allocs.get_mut(&no).unwrap();
        if std::mem::replace(&mut alloc.started, started) != started {
            for at in &alloc.path {
                for (used, amount) in self.sums[*at].used.iter_mut().zip(alloc.counted) {
                    *used = if started {
                        *used + amount
                    } else {
                        *used - amount
                    };
                }
            }
        }
    }

    fn tenant_set(&mut self, set: &TenantSet, now: Millis) {
        let at = self.account(&Account::tenant(set.tenant.clone()));
        self.tenants.insert(at, set.settings.clone());
        (0..TYPES).for_each(|r| self.clocks(at, r, false, now));
    }

    fn quota_set(&mut self, set: &QuotaSet, now: Millis) {
        let key = (self.account(&set.account), index(&set.resource));
        let sets = self.sets.entry(key).or_default();
        sets.push((set.validity, set.limits, now));
        // While an override holds, only what quota says is in force.
        if set.validity == Validity::default() && !self.overridden.contains(&key) {
            self.sums[key.0].limits[key.1] = set.limits;
            self.clocks(key.0, key.1, false, now);
        }
    }

    fn in_force(&self, key: (usize, usize), now: Millis) -> Option<Limits> {
        let sets = &self.sets[&key];
        let from = |(v, _, set): &Set| v.from.unwrap_or(*set);
        let begun = sets.iter().filter(|set| from(set) <= now);
        let mut over = begun
            .clone()
            .filter(|(v, _, _)| v.until.is_some_and(|u| u > now));
        let base = begun.filter(|(v, _, _)| v.until.is_none());
        // Of equal moments the last one set counts: `max_by_key` gives the last.
        over.next_back()
            .or_else(|| base.max_by_key(|set| from(set)))
            .and_then(|(_, l, _)| *l)
    }

    fn cohort(&self, tenant: usize) -> Option<&Token> {
        self.tenants.get(&tenant)?.cohort.as_ref()
    }

    /// The burst's clock of an account.
    fn clocks(&mut self, account: usize, r: usize, granted: bool, now: Millis) {
        let in_cohort = self.cohort(account).is_some();
        let sums = &mut self.sums[account];
        let Some(limits) = sums.limits[r].filter(|l| l.burst.is_some() && !in_cohort) else {
            (sums.above[r], sums.below[r]) = (None, None);
            return;
        };
        let is_above = Sums::on(&sums.held, r) > limits.hard;
        if is_above && granted && sums.above[r].is_none() {
            (sums.above[r], sums.below[r]) = (Some(now), None);
        }
        if !is_above && sums.above[r].take().is_some() {
            sums.below[r] = Some(now);
        }
    }

    fn cap(&self, account: usize, tenant: bool, r: usize, now: Millis) -> u64 {
        let sums = &self.sums[account];
        let Some(limits) = sums.limits[r] else {
            return if tenant && r < 3 { 0 } else { u64::MAX };
        };
        if tenant && self.cohort(account).is_some() {
            let borrow = limits.borrow.unwrap_or(u64::MAX);
            let may = self.tenants[&account].preemptible;
            return limits.hard.saturating_add(if may { borrow } else { 0 });
        }
        let ms = limits.burst_ms as i64;
        let over = sums.above[r].is_some_and(|since| now.0 >= since.0 + ms);
        let rests = sums.below[r].is_some_and(|since| now.0 < since.0 + ms);
        if over || rests {
            limits.hard
        } else {
            limits.burst.unwrap_or(0).max(limits.hard)
        }
    }

    /// Whether a tenant's cohort has it, if the tenant held so much more.
    fn pool_has(&self, tenant: usize, r: usize, more: u64) -> bool {
        let Some(cohort) = self.cohort(tenant) else {
            return true;
        };
        if self.sums[tenant].limits[r].is_none() {
            return true;
        }
        let (mut pool, mut taken, mut grows) = (0, 0, false);
        for (at, settings) in &self.tenants {
            let Some(limits) = self.sums[*at].limits[r] else {
                continue;
            };
            if settings.cohort.as_ref() == Some(cohort) {
                let lends = limits.lend.unwrap_or(u64::MAX).min(limits.hard);
                let held = Sums::on(&self.sums[*at].held, r);
                let after = held + if *at == tenant { more } else { 0 };
                let own = limits.hard - lends;
                grows |= after.saturating_sub(own) > held.saturating_sub(own);
                pool += lends;
                taken += after.saturating_sub(own);
            }
        }
        !grows || taken <= pool
    }

    /// What is wrong with granting so much, if anything is.
    fn objection(&self, path: &[usize], amounts: &[u64; TYPES], now: Millis) -> Option<String> {
        for (depth, account) in path.iter().enumerate() {
            let tenant = depth + 1 == path.len();
            for r in 0..ANY {
                let limited = self.sums[*account].limits[r].is_some();
                let more = if limited {
                    Sums::on(amounts, r)
                } else {
                    amounts[r]
                };
                if more == 0 {
                    continue;
                }
                let after = Sums::on(&self.sums[*account].held, r) + more;
                let cap = self.cap(*account, tenant, r, now);
                if after > cap {
                    return Some(format!("account {account} type {r}: {after} above {cap}"));
                }
                if tenant && !self.pool_has(*account, r, more) {
                    return Some(format!("cohort of {account} type {r}: {more} more"));
                }
            }
        }
        None
    }

    fn shift(&mut self, no: u64, more: bool, now: Millis) {
        let alloc = &self.allocs[&no];
        let (path, amounts) = (alloc.path.clone(), alloc.counted);
        for at in path {
            for (held, amount) in self.sums[at].held.iter_mut().zip(amounts) {
                *held = if more { *held + amount } else { *held - amount };
            }
            (0..ANY).for_each(|r| {
                if Sums::on(&amounts, r) > 0 {
                    self.clocks(at, r, more, now);
                }
            });
        }
    }

    pub fn own(&mut self, event: &Event, now: Millis) {
        match event {
            Event::QuotaReserved(QuotaReserved {
                allocation, models, ..
            }) => {
                let alloc = self.allocs.get(&allocation.0);
                let alloc = alloc.expect("granted, not asked");
                assert!(!alloc.held && !alloc.gone, "{allocation:?} granted twice");
                let counts_on = self.granted_on(alloc, models.as_deref(), now);
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                (alloc.held, alloc.ever) = (true, true);
                alloc.by_model = models.is_some();
                alloc.counted = alloc.counting(&counts_on);
                let alloc = &self.allocs[&allocation.0];
                let objection = self.objection(&alloc.path, &alloc.counted, now);
                assert_eq!(objection, None, "{event:?} at {now:?}");
                assert!(
                    !self.awaits_others(alloc),
                    "{allocation:?} depends on others that live"
                );
                if let Some(gang) = alloc.gang {
                    self.gangs[gang].granted += 1;
                }
                self.shift(allocation.0, true, now);
                self.grants += 1;
            }
            Event::QuotaDenied(QuotaDenied {
                allocation,
                refusal,
            }) => {
                self.leave(allocation.0);
                let alloc = self
                    .allocs
                    .remove(&allocation.0)
                    .expect("denied, not asked");
                assert!(!alloc.ever, "{allocation:?} denied after it was granted");
                let objection = self.objection(&alloc.path, &alloc.amounts, now);
                let fits = objection.is_none() && {
                    let barred = |model| {
                        let counted = alloc.counting(&[model]);
                        self.objection(&alloc.path, &counted, now).is_some()
                    };
                    let never = |model| self.never(&[&alloc], model);
                    self.leaves(&alloc, &barred, &never)
                };
                assert!(!self.plain || !fits, "it fits: {refusal}");
                self.denials += 1;
            }
            Event::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal,
            }) => {
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                assert!(!alloc.held);
                alloc.told = Some(refusal.clone());
            }
            Event::QuotaReleased(QuotaReleased { allocation }) => {
                let alloc = self
                    .allocs
                    .get_mut(&allocation.0)
                    .expect("released, not asked");
                assert!(
                    alloc.held && alloc.gone,
                    "{allocation:?} released for nothing"
                );
                (alloc.held, alloc.told) = (false, None);
                let back = std::mem::take(&mut alloc.reclaimed);
                let (path, amounts, ended) = (alloc.path.clone(), alloc.counted, alloc.gone);
                if back {
                    self.change_returning(&path, &amounts, false);
                }
                if self.allocs[&allocation.0].started {
                    self.started(allocation.0, false);
                }
                self.shift(allocation.0, false, now);
                debug_assert!(ended);
                self.allocs.get_mut(&allocation.0).unwrap().gone = false;
            }
            Event::QuotaReclaimed(QuotaReclaimed { allocation, by }) => {
                self.reclaimed(*allocation, *by, now)
            }
            Event::LimitsInForce(LimitsInForce {
                account,
                resource,
                limits,
            }) => {
                let key = (self.account(account), index(resource));
                assert_eq!(*limits, self.in_force(key, now), "{event:?} at {now:?}");
                let over = |(v, _, set): &Set| {
                    v.until.is_some_and(|u| u > now) && v.from.unwrap_or(*set) <= now
                };
                if self.sets[&key].iter().any(over) {
                    self.overridden.insert(key);
                } else {
                    self.overridden.remove(&key);
                }
                self.sums[key.0].limits[key.1] = *limits;
                self.clocks(key.0, key.1, false, now);
            }
            other => panic!("{other:?}"),
        }
    }

    /// What the grant says that it counts on, if that is right.
    fn granted_on(&self, alloc: &Alloc, models: Option<&ModelGrant>, now: Millis) -> Vec<usize> {
        let Some(choice) = &alloc.choice else {
            assert_eq!(models, None, "no choice");
            return Vec::new();
        };
        let limited = |model: &usize| {
            let may = choice.is_empty() || choice.contains(model);
            may && alloc
                .path
                .iter()
                .any(|at| self.sums[*at].limits[*model].is_some())
        };
        let limited: BTreeSet<usize> = MODELS.filter(limited).collect();
        let Some(grant) = models else {
            assert_eq!(
                limited,
                BTreeSet::new(),
                "limited, and not counted by model"
            );
            return alloc.unbound();
        };
        let counts_on: BTreeSet<usize> = grant.counts_on.iter().map(model_index).collect();
        let except: BTreeSet<usize> = grant.except.iter().map(model_index).collect();
        assert!(counts_on.is_disjoint(&except), "{grant:?}");
        let all: BTreeSet<usize> = counts_on.union(&except).copied().collect();
        match &choice[..] {
            [] => assert!(limited.is_subset(&all), "{grant:?}"),
            choice => assert_eq!(all, choice.iter().copied().collect(), "{grant:?}"),
        }
        if alloc.gang.is_none() {
            let never = |model| self.never(&[alloc], model);
            let left = self.leaves(alloc, &|model| except.contains(&model), &never);
            assert!(left, "{grant:?}");
        }
        if self.plain {
            for model in except {
                let counted = alloc.counting(&[model]);
                let objection = self.objection(&alloc.path, &counted, now);
                assert!(objection.is_some(), "{grant:?}, but it fits");
            }
        }
        counts_on.into_iter().collect()
    }

    /// Whether a model is left that the fleet has, or, where it has none of those that could ever be had, any at all.
    fn leaves(
        &self,
        alloc: &Alloc,
        barred: &dyn Fn(usize) -> bool,
        never: &dyn Fn(usize) -> bool,
    ) -> bool {
        let Some(choice) = &alloc.choice else {
            return true;
        };
        let may = |model: &Option<usize>| match model {
            None => choice.is_empty(),
            Some(model) => (choice.is_empty() || choice.contains(model)) && !never(*model),
        };
        let fleet: Vec<Option<usize>> = self.fleet.values().copied().filter(may).collect();
        if !fleet.is_empty() {
            return fleet
                .iter()
                .any(|model| model.is_none_or(|model| !barred(model)));
        }
        match &choice[..] {
            [] => self.fleet.is_empty(),
            models => models.iter().any(|model| !barred(*model)),
        }
    }

    /// An account could never hold what they want of the model together.
    fn never(&self, unit: &[&Alloc], model: usize) -> bool {
        self.paths(unit).into_iter().any(|(at, tenant)| {
            let wants = wants(unit, at, model);
            wants > 0 && wants > self.most(at, tenant, model, None)
        })
    }

    /// It counts on other models from now on.
    fn counts_on(&mut self, no: u64, models: &[usize], now: Millis) {
        let alloc = self.allocs.get_mut(&no).unwrap();
        if alloc.choice.is_none() || !alloc.held {
            return;
        }
        assert!(!alloc.started);
        let (before, after) = (alloc.counted, alloc.counting(models));
        alloc.counted = after;
        let (path, reclaimed) = (alloc.path.clone(), alloc.reclaimed);
        for at in &path {
            for (sum, amount) in self.sums[*at].held.iter_mut().zip(after) {
                *sum += amount;
            }
            for (sum, amount) in self.sums[*at].held.iter_mut().zip(before) {
                *sum -= amount;
            }
            MODELS.for_each(|r| self.clocks(*at, r, false, now));
        }
        if reclaimed {
            self.change_returning(&path, &after, true);
            self.change_returning(&path, &before, false);
        }
    }

    fn change_returning(&mut self, path: &[usize], amounts: &[u64; TYPES], more: bool) {
        for at in path {
            for (sum, amount) in self.sums[*at].returning.iter_mut().zip(amounts) {
                *sum = if more { *sum + amount } else { *sum - amount };
            }
        }
    }

    fn reclaimed(&mut self, allocation: AllocationNo, by: Option<AllocationNo>, now: Millis) {
        let alloc = self.allocs.get_mut(&allocation.0).unwrap();
        assert!(alloc.held && !alloc.gone && !alloc.reclaimed);
        alloc.reclaimed = true;
        let (path, amounts) = (alloc.path.clone(), alloc.counted);
        // Whose limit it is above: a lender's debtor, or one whose burst is over.
        let reason = path.iter().enumerate().any(|(depth, at)| {
            let sums = &self.sums[*at];
            (0..ANY).any(|r| {
                let amount = Sums::on(&amounts, r);
                let staying = Sums::on(&sums.held, r) - Sums::on(&sums.returning, r);
                let Some(limits) = sums.limits[r].filter(|_| amount > 0) else {
                    return false;
                };
                match by {
                    Some(by) => {
                        let claimant = *self.allocs[&by.0].path.last().unwrap();
                        depth + 1 == path.len()
                            && claimant != *at
                            && self.cohort(claimant) == self.cohort(*at)
                            && staying > limits.hard
                    }
                    None => {
                        let since = sums.above[r];
                        let over = since.is_some_and(|s| now.0 >= s.0 + limits.burst_ms as i64);
                        over && staying > limits.hard
                    }
                }
            })
        });
        assert!(reason, "{allocation:?} taken back for nothing, by {by:?}");
        self.change_returning(&path, &amounts, true);
        self.reclaims += 1;
    }

    /// After all was decided: nothing stays above a limit whose burst is over, and no gang is granted in part.
    pub fn quiet(&mut self, now: Millis) {
        for sums in &self.sums {
            for r in 0..ANY {
                if let (Some(since), Some(limits)) = (sums.above[r], sums.limits[r]) {
                    let staying = Sums::on(&sums.held, r) - Sums::on(&sums.returning, r);
                    let over = now.0 >= since.0 + limits.burst_ms as i64;
                    assert!(!over || staying <= limits.hard, "a burst goes on");
                }
            }
        }
        for gang in self
            .gangs
            .iter_mut()
            .filter(|it| !it.whole && it.granted > 0)
        {
            // Those that are granted at once; what was taken back comes back one by one.
            let whole = gang.granted >= gang.size as usize;
            assert!(whole, "gang {} in part: {}", gang.name, gang.granted);
            gang.whole = true;
        }
    }

    fn awaits_others(&self, alloc: &Alloc) -> bool {
        let mut others = alloc.depends_on.iter();
        others.any(|other| self.allocs.contains_key(other))
    }

    /// Who is granted together with this one.
    fn unit(&self, no: u64) -> Vec<u64> {
        match self.allocs[&no].gang {
            Some(gang) if self.gangs[gang].granted == 0 => {
                self.gangs[gang].live.iter().copied().collect()
            }
            _ => vec![no],
        }
    }

    fn asks(&self, unit: &[u64], account: usize, r: usize) -> u64 {
        let below = unit.iter().map(|no| &self.allocs[no]);
        let below = below.filter(|alloc| alloc.path.contains(&account));
        below.map(|alloc| alloc.amounts[r]).sum()
    }

    fn paths(&self, unit: &[&Alloc]) -> Vec<(usize, bool)> {
        let paths = unit.iter().map(|alloc| &alloc.path);
        paths
            .flat_map(|path| (0..path.len()).map(|at| (path[at], at + 1 == path.len())))
            .collect()
    }

    fn members(&self, unit: &[u64]) -> Vec<&Alloc> {
        unit.iter().map(|no| &self.allocs[no]).collect()
    }

    /// One of the unit has no model left to it.
    fn has_no_model(&self, unit: &[&Alloc], barred: &dyn Fn(usize) -> bool) -> bool {
        let never = |model| self.never(unit, model);
        unit.iter().any(|alloc| !self.leaves(alloc, barred, &never))
    }

    /// The most that the account may hold, now or ever, whoever asks.
    fn most(&self, account: usize, tenant: bool, r: usize, now: Option<Millis>) -> u64 {
        let limits = self.sums[account].limits[r];
        let in_cohort = tenant && self.cohort(account).is_some();
        let cap = match (limits, now) {
            (Some(limits), None) if !in_cohort => limits.burst.unwrap_or(0).max(limits.hard),
            // Where there are no bursts, time changes nothing.
            _ => self.cap(account, tenant, r, now.unwrap_or(Millis(0))),
        };
        let (Some(cohort), Some(limits)) = (self.cohort(account).filter(|_| tenant), limits) else {
            return cap;
        };
        let lends = |limits: &Limits| limits.lend.unwrap_or(u64::MAX).min(limits.hard);
        let members = self
            .tenants
            .iter()
            .filter(|(_, it)| it.cohort.as_ref() == Some(cohort));
        let limited = members.filter_map(|(at, _)| self.sums[*at].limits[r].as_ref());
        let pool: u64 = limited.map(lends).sum();
        cap.min(limits.hard - lends(&limits) + pool)
    }

    /// Whether it asks for more than some account may hold now even alone.
    fn is_impossible(&self, unit: &[u64], now: Millis) -> bool {
        let members = self.members(unit);
        let barred = |model| {
            let mut paths = self.paths(&members).into_iter();
            paths.any(|(at, tenant)| {
                let wants = wants(&members, at, model);
                wants > 0 && wants > self.most(at, tenant, model, Some(now))
            })
        };
        self.has_no_model(&members, &barred)
            || unit.iter().any(|no| {
                let path = &self.allocs[no].path;
                (0..ANY).any(|r| {
                    path.iter().enumerate().any(|(depth, at)| {
                        let asks = self.asks(unit, *at, r);
                        let tenant = depth + 1 == path.len();
                        asks > 0 && asks > self.most(*at, tenant, r, Some(now))
                    })
                })
            })
    }

    /// Progress: whoever waits does so for something that is there. The first in a line does not fit at what it was told;
    /// those behind it go later. Who stands aside asks for more than there may be. Nobody was not answered.
    pub fn nobody_waits_for_nothing(&self, now: Millis) {
        let mut lines: BTreeMap<(usize, usize), Line> = BTreeMap::new();
        let mut choosers: BTreeMap<(usize, String), Line> = BTreeMap::new();
        for (no, alloc) in self.allocs.iter().filter(|(_, alloc)| !alloc.held) {
            let told = alloc
                .told
                .as_ref()
                .unwrap_or_else(|| panic!("{no} was not answered"));
            let unit = self.unit(*no);
            let complete = alloc.gang.is_none_or(|gang| {
                let others = |no: &u64| self.awaits_others(&self.allocs[no]);
                let gang = &self.gangs[gang];
                gang.granted > 0
                    || gang.live.len() == gang.size as usize && !gang.live.iter().any(others)
            });
            match told.rule {
                Rule::IncompleteGang => assert!(!complete, "{no}: its gang is there"),
                Rule::DependencyPending => {
                    assert!(
                        self.awaits_others(alloc),
                        "{no} depends on nobody that lives"
                    );
                }
                Rule::QuotaNeverFits | Rule::BurstOver => {
                    assert!(complete, "{no} is asked for in part");
                    assert!(
                        self.is_impossible(&unit, now),
                        "{no} may stand in line: {told}"
                    );
                }
                Rule::QuotaExceeded if unit.first() == Some(no) => {
                    assert!(complete, "{no} is asked for in part");
                    let (account, resource) = told.subject.split_once(' ').unwrap();
                    let account = self.accounts[&Account::parse(account).unwrap()];
                    let one = (Reverse(alloc.priority), *no);
                    if ModelChoice::parse(resource).is_some() {
                        assert_eq!(alloc.path.last(), Some(&account), "one waits at its tenant");
                        let line = choosers.entry((account, resource.to_owned()));
                        line.or_default().insert(one);
                        continue;
                    }
                    let r = index(&QuotaResource::parse(resource).unwrap());
                    lines.entry((account, r)).or_default().insert(one);
                }
                Rule::QuotaExceeded => {}
                other => panic!("{no} waits by {other:?}"),
            }
        }
        // Heads that go before another one and may take the same model.
        let before = |of: &(Reverse<i32>, u64), account: usize, r: usize| {
            let heads = choosers.values().filter_map(|line| line.first());
            let mut choosing = heads.filter(|head| {
                let unit = self.unit(head.1);
                *head < of && MODELS.contains(&r) && wants(&self.members(&unit), account, r) > 0
            });
            choosing.next().is_some()
        };
        let blocked = |asks: u64, account: usize, tenant: bool, r: usize| {
            let after = Sums::on(&self.sums[account].held, r) + asks;
            let hard = self.sums[account].limits[r].map_or(0, |limits| limits.hard);
            // Who borrows leaves what a lender is getting back.
            let borrows = tenant && self.cohort(account).is_some() && after > hard;
            after > self.cap(account, tenant, r, now)
                || tenant && !self.pool_has(account, r, asks)
                || borrows && self.is_lent_back(account)
        };
        for line in choosers.values() {
            // Never empty: made with the first of it.
            let head = line.first().unwrap();
            let unit = self.unit(head.1);
            assert!(!self.is_impossible(&unit, now), "{head:?} can never go on");
            let unit = self.members(&unit);
            let barred = |model| {
                let mut paths = self.paths(&unit).into_iter();
                paths.any(|(at, tenant)| {
                    let wants = wants(&unit, at, model);
                    let line = lines.get(&(at, model)).and_then(|line| line.first());
                    let limited = self.sums[at].limits[model].is_some();
                    wants > 0
                        && (limited && blocked(wants, at, tenant, model)
                            || line.is_some_and(|other| other < head)
                            || before(head, at, model))
                })
            };
            assert!(
                self.has_no_model(&unit, &barred),
                "{head:?} may take a model that is left"
            );
        }
        for ((account, r), line) in &lines {
            // As above.
            let head = line.first().unwrap();
            let unit = self.unit(head.1);
            assert!(
                !self.is_impossible(&unit, now),
                "{head:?} can never go on, and {} wait behind it",
                line.len() - 1
            );
            let asks = self.asks(&unit, *account, *r);
            let tenant = self.allocs[&head.1].path.last() == Some(account);
            assert!(
                blocked(asks, *account, tenant, *r) || before(head, *account, *r),
                "{head:?} waits for {account} type {r}: {asks} would fit"
            );
        }
    }

    /// Somebody else of the cohort waits.
    fn is_lent_back(&self, tenant: usize) -> bool {
        let mut waiting = self.allocs.values().filter(|alloc| !alloc.held);
        waiting.any(|alloc| {
            let other = alloc.path[alloc.path.len() - 1];
            other != tenant && self.cohort(other) == self.cohort(tenant)
        })
    }

    pub fn live(&self) -> usize {
        self.allocs.len()
    }

    /// Ended ones are forgotten by their number.
    pub fn forget(&mut self, no: u64) {
        self.allocs.remove(&no);
    }

    pub fn holding(&self, account: &Account, resource: &QuotaResource) -> (u64, u64) {
        let Some(at) = self.accounts.get(account) else {
            return (0, 0);
        };
        let (sums, r) = (&self.sums[*at], index(resource));
        let used = Sums::on(&sums.used, r);
        (Sums::on(&sums.held, r) - used, used)
    }
}
