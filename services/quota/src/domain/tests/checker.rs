//! An independent look at a history: it sees nothing but events, and sums up by itself. Shares no code with the domain.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, Event, Limits, Millis, QuotaResource,
    Refusal, Rule, TenantSettings, Token, Validity,
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

/// As the scheduler tells gangs apart.
struct Gang {
    tenant: usize,
    name: Token,
    size: u32,
    live: BTreeSet<u64>,
    granted: usize,
    whole: bool,
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
                let gang = spec.gang.as_ref().map(|gang| self.join(tenant, gang, no));
                let depends_on = spec.depends_on.iter().map(|it| it.allocation.0);
                let depends_on = depends_on.filter(|it| self.allocs.contains_key(it));
                let depends_on = depends_on.collect();
                let alloc = Alloc {
                    path,
                    amounts: amounts(spec),
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
            Event::AllocationReprioritised {
                allocation,
                priority,
            } => {
                if let Some(alloc) = self.allocs.get_mut(&allocation.0) {
                    alloc.priority = *priority;
                }
            }
            Event::AllocationEnded { allocation, .. } => {
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
            Event::QuotaDenied {
                allocation,
                refusal,
            } => {
                self.leave(allocation.0);
                let alloc = self
                    .allocs
                    .remove(&allocation.0)
                    .expect("denied, not asked");
                assert!(!alloc.ever, "{allocation:?} denied after it was granted");
                let objection = self.objection(&alloc.path, &alloc.amounts, now);
                assert!(!self.plain || objection.is_some(), "it fits: {refusal}");
                self.denials += 1;
            }
            Event::QuotaWaiting {
                allocation,
                refusal,
            } => {
                let alloc = self.allocs.get_mut(&allocation.0).unwrap();
                assert!(!alloc.held);
                alloc.told = Some(refusal.clone());
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
                (alloc.held, alloc.told) = (false, None);
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
        below.map(|alloc| Sums::on(&alloc.amounts, r)).sum()
    }

    /// The most that the account may hold now, whoever asks.
    fn most(&self, account: usize, tenant: bool, r: usize, now: Millis) -> u64 {
        let cap = self.cap(account, tenant, r, now);
        let limits = self.sums[account].limits[r];
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
        unit.iter().any(|no| {
            let path = &self.allocs[no].path;
            (0..ANY).any(|r| {
                path.iter().enumerate().any(|(depth, at)| {
                    let asks = self.asks(unit, *at, r);
                    let tenant = depth + 1 == path.len();
                    asks > 0 && asks > self.most(*at, tenant, r, now)
                })
            })
        })
    }

    /// Progress: whoever waits does so for something that is there. The first in a line does not fit at what it was told;
    /// those behind it go later. Who stands aside asks for more than there may be. Nobody was not answered.
    pub fn nobody_waits_for_nothing(&self, now: Millis) {
        let mut lines: BTreeMap<(usize, usize), Line> = BTreeMap::new();
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
                    let r = index(&QuotaResource::parse(resource).unwrap());
                    let line = lines.entry((account, r)).or_default();
                    line.insert((Reverse(alloc.priority), *no));
                }
                Rule::QuotaExceeded => {}
                other => panic!("{no} waits by {other:?}"),
            }
        }
        for ((account, r), line) in lines {
            // Never empty: made with the first of it.
            let (_, head) = line.first().unwrap();
            let unit = self.unit(*head);
            assert!(
                !self.is_impossible(&unit, now),
                "{head} can never go on, and {} wait behind it",
                line.len() - 1
            );
            let asks = self.asks(&unit, account, r);
            let tenant = self.allocs[head].path.last() == Some(&account);
            let after = Sums::on(&self.sums[account].held, r) + asks;
            let hard = self.sums[account].limits[r].map_or(0, |limits| limits.hard);
            // Who borrows leaves what a lender is getting back.
            let borrows = tenant && self.cohort(account).is_some() && after > hard;
            let blocked = after > self.cap(account, tenant, r, now)
                || tenant && !self.pool_has(account, r, asks)
                || borrows && self.is_lent_back(account);
            assert!(
                blocked,
                "{head} waits for {account} type {r}: {asks} would fit"
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
