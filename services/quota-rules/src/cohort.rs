//! Cohorts: tenants that lend each other what they do not use. The sums of Kueue's flat cohorts, kept as running totals.
//!
//! Of a resource type a tenant `m` lends at most `lendable(m) = min(lend, hard)` and keeps `guaranteed(m) = hard −
//! lendable(m)`. What it takes of the pool is what it holds beyond the guaranteed: `U(m) = max(0, held − guaranteed)`.
//! The pool is `Σ lendable`, and `Σ U` may not exceed it.

use super::{account::AccountId, resource::ResourceId, taken::Taken};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{Limits, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct CohortId(pub u32);

/// What one tenant adds to the sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    pub lendable: u64,
    /// What it takes of the pool.
    pub taken: u64,
    /// Of that, what has to stop.
    pub returning: u64,
    /// What it will take more when it has got back what it asked for.
    pub owed: u64,
}

impl Share {
    /// Whether the others may take more than before.
    pub fn leaves_more_than(&self, before: &Self) -> bool {
        self.lendable > before.lendable || self.taken < before.taken || self.owed < before.owed
    }

    pub fn of(limits: &Limits, taken: Taken) -> Self {
        let lendable = limits
            .lend
            .map_or(limits.hard, |lend| lend.min(limits.hard));
        let guaranteed = limits.hard - lendable;
        let from_pool = |held: u64| held.saturating_sub(guaranteed);
        let held = taken.held();
        // What is owed is the tenant's own: never beyond its limit.
        let back = held.saturating_add(taken.owed).min(limits.hard.max(held));
        Self {
            lendable,
            taken: from_pool(held),
            returning: from_pool(held) - from_pool(taken.staying()),
            owed: from_pool(back) - from_pool(held),
        }
    }
}

/// The sums of one resource type. Wide, because nothing bounds how many tenants there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pool {
    pub lendable: u128,
    pub taken: u128,
    pub returning: u128,
    pub owed: u128,
}

impl Pool {
    fn add(&mut self, share: &Share) {
        self.lendable += u128::from(share.lendable);
        self.taken += u128::from(share.taken);
        self.returning += u128::from(share.returning);
        self.owed += u128::from(share.owed);
    }

    /// What is taken away was added before.
    fn remove(&mut self, share: &Share) {
        self.lendable -= u128::from(share.lendable);
        self.taken -= u128::from(share.taken);
        self.returning -= u128::from(share.returning);
        self.owed -= u128::from(share.owed);
    }

    /// What a tenant may hold at the most for the others' sake.
    pub fn room(&self, hard: u64, share: &Share) -> u64 {
        let others = self.taken - u128::from(share.taken);
        let left = self.lendable.saturating_sub(others);
        let room = u128::from(hard - share.lendable) + left;
        u64::try_from(room).unwrap_or(u64::MAX)
    }

    /// The most that it could ever hold, if the others held nothing.
    pub fn most(&self, hard: u64, share: &Share) -> u64 {
        let most = u128::from(hard - share.lendable) + self.lendable;
        u64::try_from(most).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cohort {
    pub name: Token,
    pub members: BTreeSet<AccountId>,
    /// Sorted by resource; those of which nobody has limits are not there.
    pools: Vec<(ResourceId, Pool)>,
    /// Allocations that wait for something of one of the tenants.
    pub parked: u32,
}

impl Cohort {
    pub fn pool(&self, resource: ResourceId) -> Pool {
        let found = self.pools.binary_search_by_key(&resource, |(r, _)| *r);
        found.map_or(Pool::default(), |at| self.pools[at].1)
    }

    /// A tenant's part of the sums has changed.
    pub fn change(&mut self, resource: ResourceId, before: &Share, after: &Share) {
        let found = self.pools.binary_search_by_key(&resource, |(r, _)| *r);
        let at = found.unwrap_or_else(|at| {
            self.pools.insert(at, (resource, Pool::default()));
            at
        });
        let (_, pool) = &mut self.pools[at];
        pool.remove(before);
        pool.add(after);
        if *pool == Pool::default() {
            self.pools.remove(at);
        }
    }
}

/// Cohorts by small numbers; one without tenants is forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cohorts(Vec<Option<Cohort>>);

impl Cohorts {
    pub fn get(&self, id: CohortId) -> &Cohort {
        match self.0.get(id.0 as usize) {
            Some(Some(cohort)) => cohort,
            // Its members keep it.
            _ => unreachable!("cohort {} has no tenants", id.0),
        }
    }

    pub fn get_mut(&mut self, id: CohortId) -> &mut Cohort {
        match self.0.get_mut(id.0 as usize) {
            Some(Some(cohort)) => cohort,
            // As above.
            _ => unreachable!("cohort {} has no tenants", id.0),
        }
    }

    pub fn find(&self, name: &Token) -> Option<CohortId> {
        let is = |slot: &Option<Cohort>| slot.as_ref().is_some_and(|c| c.name == *name);
        // Operators make them: far fewer than 2^32.
        self.0.iter().position(is).map(|at| CohortId(at as u32))
    }

    pub fn join(&mut self, name: &Token, tenant: AccountId) -> CohortId {
        let id = self.find(name).unwrap_or_else(|| {
            let cohort = Some(Cohort {
                name: name.clone(),
                members: BTreeSet::new(),
                pools: Vec::new(),
                parked: 0,
            });
            match self.0.iter().position(Option::is_none) {
                Some(at) => {
                    self.0[at] = cohort;
                    CohortId(at as u32)
                }
                None => {
                    self.0.push(cohort);
                    CohortId((self.0.len() - 1) as u32)
                }
            }
        });
        self.get_mut(id).members.insert(tenant);
        id
    }

    pub fn leave(&mut self, id: CohortId, tenant: AccountId) {
        let cohort = self.get_mut(id);
        cohort.members.remove(&tenant);
        if cohort.members.is_empty() {
            self.0[id.0 as usize] = None;
        }
    }
}
