//! Whom a lender takes back from.

use super::{Quota, account::AccountId, claim::Claim, resource::ResourceId};
use std::collections::BTreeMap;
use vocab::AllocationNo;

impl Quota {
    /// One that holds quota and was not told to stop yet.
    pub(super) fn can_stop(&self, allocation: AllocationNo) -> Option<&Claim> {
        let claim = self.claims.get(&allocation)?;
        let hold = claim.hold()?;
        (!hold.reclaimed && hold.leaves.is_none()).then_some(claim)
    }

    /// Chooses allocations of tenants that hold more than their limits: the lowest priority first, then the youngest. First those
    /// without which their tenants still hold their limits, then, if these are too few, larger ones than their tenants have
    /// borrowed. Allocations that turn out not to be needed are spared.
    pub(super) fn choose(
        &self,
        claimant: AccountId,
        missing: Vec<(ResourceId, u64)>,
        below: Option<i32>,
    ) -> Option<Vec<AllocationNo>> {
        if missing.is_empty() {
            return Some(Vec::new());
        }
        let mut debts = self.debts(claimant, &missing)?;
        let mut tenants: Vec<AccountId> = debts.keys().map(|(tenant, _)| *tenant).collect();
        tenants.dedup();
        let mut short = missing;
        let mut surplus = vec![0u64; short.len()];
        let mut chosen: Vec<(AllocationNo, Vec<u64>)> = Vec::new();
        for (allocation, whole) in self.in_order(&tenants, below) {
            if short.iter().all(|(_, short)| *short == 0) {
                break;
            }
            let is_chosen = || chosen.iter().any(|(no, _)| *no == allocation);
            let claim = self.can_stop(allocation);
            let Some(claim) = claim.filter(|_| !whole || !is_chosen()) else {
                continue;
            };
            let tenant = claim.path.tenant();
            let helps = short.iter().any(|(resource, short)| {
                let amount = claim.amount(*resource);
                let least = if whole { amount.min(1) } else { amount };
                let debt = debts.get(&(tenant, *resource));
                *short > 0 && amount > 0 && debt.is_some_and(|debt| debt.allows(least))
            });
            if !helps {
                continue;
            }
            let mut gives = vec![0; short.len()];
            for (at, (resource, short)) in short.iter_mut().enumerate() {
                let debt = debts.get_mut(&(tenant, *resource));
                gives[at] = debt.map_or(0, |debt| debt.give(claim.amount(*resource)));
                surplus[at] += gives[at].saturating_sub(*short);
                *short = short.saturating_sub(gives[at]);
            }
            chosen.push((allocation, gives));
        }
        let enough = short.iter().all(|(_, short)| *short == 0);
        enough.then(|| spare(chosen, surplus))
    }

    /// Allocations of the tenants in the order in which they are looked at, twice: the second time they may be larger than what
    /// their tenant has borrowed. Only those of a priority below `below`.
    fn in_order(
        &self,
        tenants: &[AccountId],
        below: Option<i32>,
    ) -> impl Iterator<Item = (AllocationNo, bool)> {
        let is_below = move |no: &AllocationNo| {
            let claim = self.claims.get(no);
            below.is_none_or(|most| claim.is_none_or(|claim| claim.priority < most))
        };
        [false, true].into_iter().flat_map(move |whole| {
            let youngest = self.books.usage_tree.youngest(tenants);
            let youngest = youngest.take_while(is_below);
            youngest.map(move |allocation| (allocation, whole))
        })
    }

    /// The accounts of those who borrow any of it; none if it is too little.
    fn debts(
        &self,
        claimant: AccountId,
        missing: &[(ResourceId, u64)],
    ) -> Option<BTreeMap<(AccountId, ResourceId), Debt>> {
        let cohort = self.books.usage_tree.node(claimant).cohort?;
        let mut sums = vec![0u128; missing.len()];
        let mut debts = BTreeMap::new();
        for &tenant in &self.books.cohorts.get(cohort).members {
            let node = self.books.usage_tree.node(tenant);
            let of = |(resource, _): &(ResourceId, u64)| {
                let limited = node.limited(*resource)?;
                let staying = node.taken(*resource).staying();
                let (hard, lendable) = (limited.limits.hard, limited.share.lendable);
                Some((
                    *resource,
                    Debt {
                        staying,
                        hard,
                        guaranteed: hard - lendable,
                    },
                ))
            };
            let own: Vec<_> = missing.iter().map(of).collect();
            let borrows = own.iter().flatten().any(|(_, debt)| debt.allows(1));
            if tenant == claimant || !borrows {
                continue;
            }
            for (sum, debt) in sums.iter_mut().zip(&own) {
                *sum += debt.map_or(0, |(_, d)| {
                    u128::from(d.staying.saturating_sub(d.guaranteed))
                });
            }
            debts.extend(
                own.into_iter()
                    .flatten()
                    .map(|(r, debt)| ((tenant, r), debt)),
            );
        }
        let enough = |(sum, (_, short)): (&u128, &(ResourceId, u64))| *sum >= u128::from(*short);
        sums.iter().zip(missing).all(enough).then_some(debts)
    }
}

/// What a tenant of the cohort holds of a resource type and was not told to give back.
#[derive(Debug, Clone, Copy)]
struct Debt {
    staying: u64,
    hard: u64,
    guaranteed: u64,
}

impl Debt {
    /// Whether it could give so much and keep its own.
    fn allows(&self, amount: u64) -> bool {
        self.staying
            .checked_sub(amount)
            .is_some_and(|left| left >= self.hard)
    }

    /// What the pool gets of it.
    fn give(&mut self, amount: u64) -> u64 {
        let before = self.staying.saturating_sub(self.guaranteed);
        self.staying = self.staying.saturating_sub(amount);
        before - self.staying.saturating_sub(self.guaranteed)
    }
}

/// Leaves out those without whom it is enough, the most worthy first.
fn spare(chosen: Vec<(AllocationNo, Vec<u64>)>, mut surplus: Vec<u64>) -> Vec<AllocationNo> {
    let mut needed = Vec::with_capacity(chosen.len());
    for (allocation, gives) in chosen.into_iter().rev() {
        if gives
            .iter()
            .zip(&surplus)
            .all(|(gives, surplus)| gives <= surplus)
        {
            for (surplus, gives) in surplus.iter_mut().zip(&gives) {
                *surplus -= gives;
            }
        } else {
            needed.push(allocation);
        }
    }
    needed.reverse();
    needed
}
