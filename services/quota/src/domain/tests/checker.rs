//! An independent look at a history: it sees nothing but events, and sums up by itself. Shares no code with the domain.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, Event, Limits, Millis, QuotaResource,
    TenantSettings, Token, Validity,
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
        QuotaResource::Extended(_) | QuotaResource::Reservations => 7,
    }
}

fn amounts(spec: &AllocationSpec) -> [u64; TYPES] {
    let mut all = [0; TYPES];
    (all[0], all[1], all[6]) = (spec.cpu_milli, spec.memory_bytes, 1);
    if let Some(gpu) = &spec.gpu {
        all[2] = gpu.total_milli();
        if gpu.models.is_empty() {
            all[ANY] = all[2];
        }
        for model in &gpu.models {
            all[index(&QuotaResource::GpuModel(model.clone()))] = all[2];
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
    gang: Option<(usize, Token, u32)>,
    held: bool,
    started: bool,
    reclaimed: bool,
    /// It ended, or was taken back and stopped.
    gone: bool,
    ever: bool,
}

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
    gangs: BTreeMap<(usize, Token), (BTreeSet<u64>, u32)>,
    /// Gangs that were granted whole.
    grown: BTreeSet<Token>,
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
            Event::AdminApplied { change, .. } => self.admin(change, now),
            Event::AllocationRequested { operation, spec } => {
                let path = self.path(&spec.account(&operation.tenant));
                let tenant = path[path.len() - 1];
                let gang = spec.gang.as_ref().map(|g| (tenant, g.name.clone(), g.size));
                let alloc = Alloc {
                    path,
                    amounts: amounts(spec),
                    gang,
                    held: false,
                    started: false,
                    reclaimed: false,
                    gone: false,
                    ever: false,
                };
                self.allocs.insert(no, alloc);
            }
            Event::AllocationStarted { allocation, .. } => self.started(allocation.0, true),
            Event::AllocationRequeued { allocation, .. } => {
                self.started(allocation.0, false);
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                alloc.gone |= alloc.reclaimed;
            }
            Event::AllocationWaiting { allocation, .. } => {
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                alloc.gone |= alloc.reclaimed;
            }
            Event::AllocationEnded { allocation, .. } => {
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

    fn started(&mut self, no: u64, started: bool) {
        let alloc = self.allocs.get_mut(&no).unwrap();
        if std::mem::replace(&mut alloc.started, started) != started {
            for at in &alloc.path {
                for (used, amount) in self.sums[*at].used.iter_mut().zip(alloc.amounts) {
                    *used = if started {
                        *used + amount
                    } else {
                        *used - amount
                    };
                }
            }
        }
    }

    fn admin(&mut self, change: &AdminChange, now: Millis) {
        match change {
            AdminChange::Tenant { tenant, settings } => {
                let at = self.account(&Account::tenant(tenant.clone()));
                self.tenants.insert(at, settings.clone());
                (0..TYPES).for_each(|r| self.clocks(at, r, false, now));
            }
            AdminChange::Quota {
                account,
                resource,
                limits,
                validity,
            } => {
                let key = (self.account(account), index(resource));
                let sets = self.sets.entry(key).or_default();
                sets.push((*validity, *limits, now));
                // While an override holds, only what quota says is in force.
                if *validity == Validity::default() && !self.overridden.contains(&key) {
                    self.sums[key.0].limits[key.1] = *limits;
                    self.clocks(key.0, key.1, false, now);
                }
            }
            _ => {}
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
        let (path, amounts) = (alloc.path.clone(), alloc.amounts);
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
            Event::QuotaReserved { allocation, .. } => {
                let alloc = self
                    .allocs
                    .get_mut(&allocation.0)
                    .expect("granted, not asked");
                assert!(!alloc.held && !alloc.gone, "{allocation:?} granted twice");
                (alloc.held, alloc.ever) = (true, true);
                let alloc = &self.allocs[&allocation.0];
                let objection = self.objection(&alloc.path, &alloc.amounts, now);
                assert_eq!(objection, None, "{event:?} at {now:?}");
                if let Some((tenant, name, size)) = alloc.gang.clone() {
                    let gang = self
                        .gangs
                        .entry((tenant, name))
                        .or_insert((BTreeSet::new(), size));
                    gang.0.insert(allocation.0);
                }
                self.shift(allocation.0, true, now);
                self.grants += 1;
            }
            Event::QuotaDenied {
                allocation,
                refusal,
            } => {
                let alloc = self
                    .allocs
                    .remove(&allocation.0)
                    .expect("denied, not asked");
                assert!(!alloc.ever, "{allocation:?} denied after it was granted");
                let objection = self.objection(&alloc.path, &alloc.amounts, now);
                assert!(!self.plain || objection.is_some(), "it fits: {refusal}");
                self.denials += 1;
            }
            Event::QuotaWaiting { allocation, .. } => {
                assert!(!self.plain && !self.allocs[&allocation.0].held);
            }
            Event::QuotaReleased { allocation } => {
                let alloc = self
                    .allocs
                    .get_mut(&allocation.0)
                    .expect("released, not asked");
                assert!(
                    alloc.held && alloc.gone,
                    "{allocation:?} released for nothing"
                );
                alloc.held = false;
                let back = std::mem::take(&mut alloc.reclaimed);
                let (path, amounts, ended) = (alloc.path.clone(), alloc.amounts, alloc.gone);
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
            Event::QuotaReclaimed { allocation, by } => self.reclaimed(*allocation, *by, now),
            Event::LimitsInForce {
                account,
                resource,
                limits,
            } => {
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
        let (path, amounts) = (alloc.path.clone(), alloc.amounts);
        // Whose limit it is above by as much as is taken back: a lender's debtor, or one whose burst is over.
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
                            && staying - amount >= limits.hard
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
        for ((_, name), (granted, size)) in std::mem::take(&mut self.gangs) {
            // Those that were granted at once; later ones come one by one.
            let whole = granted.len() >= size as usize || self.grown.contains(&name);
            assert!(whole, "gang {name} in part: {granted:?}");
            self.grown.insert(name);
        }
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
