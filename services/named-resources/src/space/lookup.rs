//! What an ask speaks of: the slot, and the lease.

use super::{Bounds, Space, leases::Lease};
use vocab::{
    LeaseNo, LeaseState, Refusal, Rule, Slot, Token,
    sabotage::{self, Bug},
};

impl Space {
    /// Through which slot is remembered what ends at `slot`. No ask is looked at whose slot goes back or has no such end.
    pub(super) fn history_from(&self, slot: Slot, bounds: &Bounds) -> Result<Slot, Refusal> {
        if slot < self.slot {
            return Err(Refusal::over(Rule::SlotBackwards, "slot", self.slot, slot));
        }
        later(slot, bounds.history_slots)
    }

    /// The lease, if it is not retired at `slot`.
    pub(super) fn found(&self, no: LeaseNo, slot: Slot) -> Result<&Lease, Refusal> {
        let subject = "lease";
        match self.leases.get(no) {
            Some(lease) if slot <= lease.retire_after => Ok(lease),
            Some(_) => Err(Refusal::new(Rule::LeaseRetired, subject)),
            None if Some(no) <= self.retired.max(self.retirements.highest_before(slot)) => {
                Err(Refusal::new(Rule::LeaseRetired, subject))
            }
            None => Err(Refusal::new(Rule::LeaseNotFound, subject)),
        }
    }

    /// The lease, if this holder has this authority over it.
    pub(super) fn claimed(
        &self,
        no: LeaseNo,
        holder: &Token,
        fencing_token: u64,
        slot: Slot,
    ) -> Result<&Lease, Refusal> {
        let lease = self.found(no, slot)?;
        if lease.holder != *holder {
            return Err(Refusal::new(Rule::HolderMismatch, "holder"));
        }
        if lease.fencing_token != fencing_token && !sabotage::armed(Bug::StaleFencingTokenAccepted)
        {
            let current = lease.fencing_token;
            return Err(Refusal::over(
                Rule::StaleFencingToken,
                "fencing_token",
                current,
                fencing_token,
            ));
        }
        Ok(lease)
    }
}

pub fn later(slot: Slot, slots: u64) -> Result<Slot, Refusal> {
    let overflow = || Refusal::over(Rule::SlotOverflow, "slot", Slot::MAX - slots, slot);
    slot.checked_add(slots).ok_or_else(overflow)
}

pub fn in_state(state: LeaseState) -> Refusal {
    Refusal::new(Rule::InvalidState, state.name())
}
