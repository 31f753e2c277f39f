//! Release: what an ended allocation held goes back, once.

use super::Quota;
use ledger::{Draft, IllegalEvent};
use vocab::{AllocationNo, Event};

pub(super) fn decide(state: &mut Quota, draft: &mut Draft) {
    while let Some(allocation) = state.ended.first().copied() {
        if draft.full() {
            return;
        }
        draft.emit(state, Event::QuotaReleased { allocation });
    }
}

impl Quota {
    /// One that ends before it was decided never held anything, and need not be decided any more.
    pub(super) fn end(&mut self, allocation: AllocationNo) {
        if self.asked.remove(&allocation).is_none() && self.held.contains_key(&allocation) {
            self.ended.insert(allocation);
        }
    }

    pub(super) fn released(
        &mut self,
        allocation: AllocationNo,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        self.ended.remove(&allocation);
        let held = self
            .held
            .remove(&allocation)
            .ok_or_else(|| IllegalEvent::new("nothing held", event))?;
        for (kind, amount) in held.claim.parts() {
            let account = self.account_mut(&held.claim.tenant, kind);
            if held.started {
                account.used -= amount;
            } else {
                account.reserved -= amount;
            }
        }
        Ok(())
    }
}
