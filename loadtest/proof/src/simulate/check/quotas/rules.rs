//! How much may be held: at every account of the path, of every resource type.

use super::{Claim, Quotas, limits::Limited};

const ABOVE_SOFT: u32 = 1;
const BURSTS: u32 = 2;
const BORROWS: u32 = 4;

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{account} {what}: {actual} of {limit}")]
pub struct Over {
    pub account: String,
    pub what: String,
    pub limit: u64,
    pub actual: u64,
}

impl Quotas {
    /// What all together hold at an account.
    pub(super) fn held(&self, account: &str, resource: &str) -> u64 {
        self.sum(account, resource, |claim| claim.holds().is_some())
    }

    /// Without what has to be given back.
    pub(super) fn staying(&self, account: &str, resource: &str) -> u64 {
        let stays = |claim: &Claim| claim.holds().is_some_and(|hold| !hold.reclaimed);
        self.sum(account, resource, stays)
    }

    fn sum(&self, account: &str, resource: &str, counts: impl Fn(&Claim) -> bool) -> u64 {
        let claims = self.claims.values();
        let claims = claims.filter(|claim| counts(claim) && claim.is_below(account));
        claims.map(|claim| claim.amount(resource)).sum()
    }

    /// The cohort of an account that is a tenant.
    pub(super) fn cohort(&self, account: &str) -> Option<&str> {
        let cohort = self.tenants.get(account)?.cohort.as_str();
        Some(cohort).filter(|name| !name.is_empty())
    }

    /// All of a claim's resource types that count at an account: those that it names, and limited models for GPUs of any.
    pub(super) fn resources(&self, claim: &Claim, account: &str) -> Vec<String> {
        let limited = self.in_force.of(account);
        let limited = limited.filter(|resource| claim.amount(resource) > 0);
        let mut resources: Vec<String> = claim
            .resources()
            .chain(limited)
            .map(str::to_owned)
            .collect();
        resources.sort();
        resources.dedup();
        resources
    }

    /// Whether a claim may be granted. What is remarkable about it, by the contract's bits.
    pub(super) fn may_hold(&self, claim: &Claim, now: i64) -> Result<u32, Over> {
        let mut flags = 0;
        for account in &claim.path {
            if let Some(over) = self.over_budget(claim, account, now) {
                return Err(over);
            }
            for resource in self.resources(claim, account) {
                flags |= self.may_hold_of(claim, account, &resource, now)?;
            }
        }
        Ok(flags)
    }

    pub(super) fn may_hold_of(
        &self,
        claim: &Claim,
        account: &str,
        resource: &str,
        now: i64,
    ) -> Result<u32, Over> {
        let before = self.held(account, resource);
        let after = before + claim.amount(resource);
        let over = |limit| Over {
            account: account.to_owned(),
            what: resource.to_owned(),
            limit,
            actual: after,
        };
        let Some(limited) = self.in_force.get(account, resource) else {
            // Of these, a tenant has nothing unless it was given some.
            let needed = ["cpu", "memory", "gpu"].contains(&resource) && !account.contains('/');
            return if needed { Err(over(0)) } else { Ok(0) };
        };
        let hard = limited.limits.hard;
        let soft = limited.limits.soft.is_some_and(|soft| after > soft);
        let flags = if soft { ABOVE_SOFT } else { 0 };
        let Some(cohort) = self.cohort(account) else {
            let most = limited.most_now(now);
            if after > most {
                return Err(over(most));
            }
            return Ok(flags | if after > hard { BURSTS } else { 0 });
        };
        let most = self.most_borrowed(account, limited);
        if after > most {
            return Err(over(most));
        }
        let takes_more = from_pool(limited, after) > from_pool(limited, before);
        let (taken, lendable) = self.pool(cohort, resource, account, after);
        if takes_more && taken > lendable {
            return Err(over(lendable as u64));
        }
        Ok(flags | if after > hard { BORROWS } else { 0 })
    }

    /// The most that a tenant in a cohort may hold, whatever the others do.
    fn most_borrowed(&self, tenant: &str, limited: &Limited) -> u64 {
        let preemptible = self.tenants.get(tenant).is_none_or(|it| it.preemptible);
        let borrow = limited.limits.borrow.unwrap_or(u64::MAX);
        let beyond = if preemptible { borrow } else { 0 };
        limited.limits.hard.saturating_add(beyond)
    }

    /// What all of a cohort take of its pool, where one tenant held `after`; and what the pool has.
    fn pool(&self, cohort: &str, resource: &str, tenant: &str, after: u64) -> (u128, u128) {
        let (mut taken, mut lendable) = (0, 0);
        for member in self.tenants.keys() {
            if self.cohort(member) != Some(cohort) {
                continue;
            }
            let Some(limited) = self.in_force.get(member, resource) else {
                continue;
            };
            let held = match member == tenant {
                true => after,
                false => self.held(member, resource),
            };
            lendable += u128::from(lends(limited));
            taken += u128::from(from_pool(limited, held));
        }
        (taken, lendable)
    }

    /// The most that an account could ever hold, as limits are now.
    pub(super) fn most_ever(&self, account: &str, resource: &str) -> u64 {
        let Some(limited) = self.in_force.get(account, resource) else {
            let needed = ["cpu", "memory", "gpu"].contains(&resource) && !account.contains('/');
            return if needed { 0 } else { u64::MAX };
        };
        let Some(cohort) = self.cohort(account) else {
            return limited.most();
        };
        let (_, lendable) = self.pool(cohort, resource, account, 0);
        let kept = u128::from(limited.limits.hard - lends(limited));
        let most = u64::try_from(kept + lendable).unwrap_or(u64::MAX);
        most.min(self.most_borrowed(account, limited))
    }
}

fn lends(limited: &Limited) -> u64 {
    let hard = limited.limits.hard;
    limited.limits.lend.map_or(hard, |lend| lend.min(hard))
}

/// What is held beyond the part that is not lent.
fn from_pool(limited: &Limited, held: u64) -> u64 {
    held.saturating_sub(limited.limits.hard - lends(limited))
}
