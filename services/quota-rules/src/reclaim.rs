//! Reclaim: what is above a limit when its burst is over, and what a lender needs back.

use super::{
    Quota,
    account::AccountId,
    books::Move,
    claim::{Claim, Stage, What},
    demand::{Demand, Shortage, Why, group},
    resource::ResourceId,
};
use ledger::{Draft, IllegalEvent};
use std::fmt;
use vocab::fact::QuotaReclaimed;
use vocab::{AllocationNo, At, ReclaimFrom};

/// Takes back what is above the limits whose bursts are over: the lowest priority first, then the youngest.
pub(super) fn decide(state: &mut Quota, draft: &mut Draft) {
    let due = state
        .books
        .bursts
        .iter()
        .take_while(|(at, _, _)| *at <= draft.now);
    let due: Vec<_> = due
        .map(|(_, account, resource)| (*account, *resource))
        .collect();
    for (account, resource) in due {
        if draft.full() {
            return;
        }
        for allocation in state.above(account, resource) {
            draft.emit(
                state,
                QuotaReclaimed {
                    allocation,
                    by: None,
                },
            );
        }
    }
}

impl Quota {
    /// Who has to go for the account to come down to its limit.
    fn above(&self, account: AccountId, resource: ResourceId) -> Vec<AllocationNo> {
        let node = self.books.usage_tree.node(account);
        let hard = node
            .limited(resource)
            .map_or(u64::MAX, |limited| limited.limits.hard);
        let mut staying = node.taken(resource).staying();
        let mut chosen = Vec::new();
        for allocation in self.books.usage_tree.youngest(&[account]) {
            if staying <= hard {
                break;
            }
            let amount = self
                .can_stop(allocation)
                .map_or(0, |claim| claim.amount(resource));
            if amount > 0 {
                staying = staying.saturating_sub(amount);
                chosen.push(allocation);
            }
        }
        chosen
    }

    /// Whether the tenant's own limits allow all of it, beside what it is getting back already.
    pub(super) fn within_own(&self, demands: &[Demand], tenant: AccountId, counted: bool) -> bool {
        let node = self.books.usage_tree.node(tenant);
        let group = group(demands, tenant);
        node.cohort.is_some()
            && group.iter().all(|demand| {
                let taken = node.taken(demand.part);
                let owed = if counted { 0 } else { demand.amount };
                let wanted = taken.held().saturating_add(taken.owed).saturating_add(owed);
                node.limited(demand.part)
                    .is_none_or(|limited| wanted <= limited.limits.hard)
            })
    }

    /// Who has to go so that the tenant gets back what is its own: just enough, with what is on its way back already.
    /// None when that is not what is in the way, or there is nobody, or too few, to take it back from.
    pub(super) fn victims(
        &self,
        shortage: &Shortage,
        demands: &[Demand],
        lead: AllocationNo,
    ) -> Option<Vec<AllocationNo>> {
        let claimant = self.claims.get(&lead)?;
        let tenant = claimant.path.tenant();
        let is_owed = |no: AllocationNo| self.claims.get(&no).is_some_and(Claim::is_owed);
        let own = match shortage.why {
            Why::Lent => true,
            Why::Behind(head) => {
                let What::Resource(resource) = shortage.point.what else {
                    return None;
                };
                let point = super::claim::Point::resource(tenant, resource);
                let before = self.books.queues.before(point, claimant.order(lead));
                point == shortage.point
                    && is_owed(head.allocation())
                    && before.is_some_and(|before| is_owed(before.allocation()))
            }
            Why::Limit | Why::Budget => false,
        };
        let counted = claimant.is_owed();
        let from = self.books.usage_tree.node(tenant).settings().reclaim;
        if !own || from == ReclaimFrom::Never || !self.within_own(demands, tenant, counted) {
            return None;
        }
        let below = (from == ReclaimFrom::LowerPriority).then_some(claimant.priority);
        let missing = self.missing(demands, tenant, counted);
        self.choose(tenant, missing, below)
    }

    /// What is missing in the pool when all that is on its way back has come, and all that is owed is given.
    fn missing(
        &self,
        demands: &[Demand],
        tenant: AccountId,
        counted: bool,
    ) -> Vec<(ResourceId, u64)> {
        let node = self.books.usage_tree.node(tenant);
        let group = group(demands, tenant);
        let Some(id) = node.cohort else {
            return Vec::new();
        };
        let mut missing: Vec<(ResourceId, u64)> = Vec::new();
        for &Demand {
            part: resource,
            amount,
            ..
        } in group
        {
            let Some(limited) = node.limited(resource) else {
                continue;
            };
            let pool = self.books.cohorts.get(id).pool(resource);
            let guaranteed = limited.limits.hard - limited.share.lendable;
            let taken = node.taken(resource);
            let amount = if counted { 0 } else { amount };
            let wanted = taken
                .held()
                .saturating_add(taken.owed)
                .saturating_add(amount);
            let own = u128::from(wanted.saturating_sub(guaranteed));
            let (share_taken, share_owed) = (limited.share.taken, limited.share.owed);
            let others = pool.taken + pool.owed - u128::from(share_taken) - u128::from(share_owed);
            let short = (others + own).saturating_sub(pool.returning + pool.lendable);
            let short = u64::try_from(short).unwrap_or(u64::MAX);
            if short > 0 {
                missing.push((resource, short));
            }
        }
        missing
    }

    pub(super) fn take_back(
        &mut self,
        victims: Vec<AllocationNo>,
        by: AllocationNo,
        draft: &mut Draft,
    ) {
        for allocation in victims {
            let by = Some(by);
            draft.emit(self, QuotaReclaimed { allocation, by });
        }
    }

    pub(super) fn reclaimed(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        by: Option<AllocationNo>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        if self.can_stop(allocation).is_none() {
            return Err(IllegalEvent::new("nothing held to take back", event));
        }
        if let Some(claim) = self.claims.get_mut(&allocation) {
            if let Some(hold) = claim.hold_mut() {
                hold.reclaimed = true;
            }
            self.books
                .shift(&claim.path, claim.counted(), Move::Reclaim, at.now);
        }
        if let Some(claim) = by.and_then(|by| self.claims.get_mut(&by))
            && let Stage::Waits { owed, .. } = &mut claim.stage
            && !std::mem::replace(owed, true)
        {
            self.books
                .shift(&claim.path, claim.counted(), Move::Owe, at.now);
        }
        Ok(())
    }
}
