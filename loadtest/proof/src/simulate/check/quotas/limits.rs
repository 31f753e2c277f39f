//! Which limits hold, from when on, and where an account is with its burst.

use super::{Quotas, settings};
use crate::simulate::check::{Invariant, Place, Violation};
use schemas::v1;
use std::collections::BTreeMap;

/// An account and a resource type.
pub type Key = (String, String);

#[derive(Debug, Default)]
pub struct InForce {
    limited: BTreeMap<Key, Limited>,
    planned: BTreeMap<Key, Planned>,
}

#[derive(Debug, Clone)]
pub struct Limited {
    pub limits: v1::Limits,
    pub burst: Burst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burst {
    Rested,
    /// Since a grant took it above the limit.
    Above(i64),
    /// Since it came back to the limit.
    Below(i64),
}

type Limits = Option<v1::Limits>;

/// What was set for one key: what holds for good, what is to come, and what holds for a while.
#[derive(Debug, Clone, Default)]
struct Planned {
    base: Limits,
    to_come: Vec<Change>,
    overrides: Vec<Change>,
    sets: u64,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    set: u64,
    limits: Limits,
    from: i64,
    until: Option<i64>,
}

impl Planned {
    /// The latest that was set and has not ended, else what holds for good.
    fn at(&mut self, now: i64) -> Limits {
        let (mut begun, to_come): (Vec<Change>, Vec<Change>) =
            self.to_come.iter().partition(|change| change.from <= now);
        self.to_come = to_come;
        begun.sort_by_key(|change| (change.from, change.set));
        for change in begun {
            match change.until {
                None => self.base = change.limits,
                Some(_) => self.overrides.push(change),
            }
        }
        self.overrides
            .retain(|change| change.until.is_none_or(|until| until > now));
        let latest = self.overrides.iter().max_by_key(|change| change.set);
        latest.map_or(self.base, |change| change.limits)
    }
}

impl InForce {
    pub fn get(&self, account: &str, resource: &str) -> Option<&Limited> {
        let key = (account.to_owned(), resource.to_owned());
        self.limited.get(&key)
    }

    /// The limited resource types of an account.
    pub fn of(&self, account: &str) -> impl Iterator<Item = &str> {
        let of = self.limited.keys().filter(move |key| key.0 == account);
        of.map(|key| key.1.as_str())
    }

    /// Holds at once, unless something holds for a while, or it is for later.
    pub fn set(&mut self, key: &Key, limits: Limits, from: Option<i64>, until: Option<i64>) {
        let planned = self.planned.entry(key.clone()).or_default();
        planned.sets += 1;
        if from.is_some() || until.is_some() {
            planned.to_come.push(Change {
                set: planned.sets,
                limits,
                from: from.unwrap_or(i64::MIN),
                until,
            });
            return;
        }
        planned.base = limits;
        if planned.overrides.is_empty() {
            self.put(key, limits);
        }
    }

    fn put(&mut self, key: &Key, limits: Limits) {
        let Some(limits) = limits else {
            self.limited.remove(key);
            return;
        };
        let limited = self.limited.entry(key.clone()).or_insert(Limited {
            limits,
            burst: Burst::Rested,
        });
        limited.limits = limits;
    }
}

impl Quotas {
    /// What holds from here on is what was set for now.
    pub(super) fn holds_from_here(
        &mut self,
        at: &Place,
        e: &v1::LimitsInForce,
    ) -> Result<(), Violation> {
        let account = settings::account(&e.tenant, &e.team, &e.namespace);
        let key = (account, e.resource.clone());
        let planned = self.in_force.planned.entry(key.clone()).or_default();
        let wanted = planned.at(at.now);
        at.rule(wanted == e.limits, Invariant::Quota, || {
            format!("{e:?} at {}, not {wanted:?}", at.now)
        })?;
        self.in_force.put(&key, wanted);
        self.settle(&key, false, at.now);
        Ok(())
    }

    /// Brings a burst in line with what is held.
    pub(super) fn settle(&mut self, key: &Key, granted: bool, now: i64) {
        let held = self.held(&key.0, &key.1);
        let in_cohort = self.cohort(&key.0).is_some();
        let Some(limited) = self.in_force.limited.get_mut(key) else {
            return;
        };
        let above = held > limited.limits.hard;
        limited.burst = match limited.burst {
            _ if in_cohort || limited.limits.burst.is_none() => Burst::Rested,
            Burst::Rested | Burst::Below(_) if above && granted => Burst::Above(now),
            Burst::Above(_) if !above => Burst::Below(now),
            same => same,
        };
    }

    pub(super) fn settle_tenant(&mut self, tenant: &str, now: i64) {
        let resources: Vec<String> = self.in_force.of(tenant).map(str::to_owned).collect();
        for resource in resources {
            self.settle(&(tenant.to_owned(), resource), false, now);
        }
    }

    /// Every account of the claim, for what it asks for.
    pub(super) fn settle_claim(&mut self, claim: &super::Claim, granted: bool, now: i64) {
        let keys = self.in_force.limited.keys();
        let counts = |key: &&Key| claim.is_below(&key.0) && claim.amount(&key.1) > 0;
        let keys: Vec<Key> = keys.filter(counts).cloned().collect();
        for key in keys {
            self.settle(&key, granted, now);
        }
    }
}

impl Limited {
    /// When the burst is over, or the next may begin.
    pub fn until(&self, since: i64) -> i64 {
        let ms = i64::try_from(self.limits.burst_ms).unwrap_or(i64::MAX);
        since.saturating_add(ms)
    }

    /// The most that an account outside of cohorts may hold now.
    pub fn most_now(&self, now: i64) -> u64 {
        let bursts = match self.burst {
            Burst::Rested => true,
            Burst::Above(since) => now < self.until(since),
            Burst::Below(since) => now >= self.until(since),
        };
        if bursts {
            self.most()
        } else {
            self.limits.hard
        }
    }

    pub fn most(&self) -> u64 {
        self.limits.hard.max(self.limits.burst.unwrap_or(0))
    }
}
