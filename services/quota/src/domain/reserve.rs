//! Reserve: all that an allocation asks for, or a denial that names the resource, the limit and what it would come to.

use super::{Claim, Held, Quota};
use ledger::{Draft, IllegalEvent};
use vocab::{AllocationNo, Event, Refusal, Rule};

pub(super) fn decide(state: &mut Quota, draft: &mut Draft) {
    while let Some((allocation, claim)) = state.asked.first_key_value() {
        if draft.full() {
            return;
        }
        let allocation = *allocation;
        let event = match state.shortfall(claim) {
            None => Event::QuotaReserved { allocation },
            Some(refusal) => Event::QuotaDenied {
                allocation,
                refusal,
            },
        };
        draft.emit(state, event);
    }
}

impl Quota {
    /// The first limit that the claim would break.
    fn shortfall(&self, claim: &Claim) -> Option<Refusal> {
        claim.parts().find_map(|(kind, amount)| {
            let account = self.account(&claim.tenant, kind);
            let taken = account.reserved.saturating_add(account.used);
            let would_be = taken.saturating_add(amount);
            (would_be > account.limit)
                .then(|| Refusal::over(Rule::QuotaExceeded, kind.name(), account.limit, would_be))
        })
    }

    pub(super) fn reserved(
        &mut self,
        allocation: AllocationNo,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let claim = self
            .asked
            .remove(&allocation)
            .ok_or_else(|| IllegalEvent::new("not asked", event))?;
        for (kind, amount) in claim.parts() {
            self.account_mut(&claim.tenant, kind).reserved += amount;
        }
        let held = Held {
            claim,
            started: false,
        };
        self.held.insert(allocation, held);
        Ok(())
    }

    /// What was reserved is used from the start of the run on.
    pub(super) fn convert(&mut self, allocation: AllocationNo) {
        let Some(held) = self.held.get_mut(&allocation) else {
            return;
        };
        if !std::mem::replace(&mut held.started, true) {
            let claim = held.claim.clone();
            for (kind, amount) in claim.parts() {
                let account = self.account_mut(&claim.tenant, kind);
                account.reserved -= amount;
                account.used += amount;
            }
        }
    }

    /// Its run is over and it waits again: what was used stays reserved for it.
    pub(super) fn revert(&mut self, allocation: AllocationNo) {
        let Some(held) = self.held.get_mut(&allocation) else {
            return;
        };
        if std::mem::replace(&mut held.started, false) {
            let claim = held.claim.clone();
            for (kind, amount) in claim.parts() {
                let account = self.account_mut(&claim.tenant, kind);
                account.used -= amount;
                account.reserved += amount;
            }
        }
    }
}
