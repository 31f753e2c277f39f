//! What an ask speaks of: the slot, and the reservation.

use super::{Bounds, Space, reservations::Reservation};
use vocab::{
    Refusal, ReservationNo, ReservationState, Rule, Slot, Token,
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

    /// The reservation, if it is not retired at `slot`.
    pub(super) fn found(&self, no: ReservationNo, slot: Slot) -> Result<&Reservation, Refusal> {
        let subject = "reservation";
        match self.reservations.get(no) {
            Some(reservation) if slot <= reservation.retire_after => Ok(reservation),
            Some(_) => Err(Refusal::new(Rule::ReservationRetired, subject)),
            None if Some(no) <= self.retired.max(self.retirements.highest_before(slot)) => {
                Err(Refusal::new(Rule::ReservationRetired, subject))
            }
            None => Err(Refusal::new(Rule::ReservationNotFound, subject)),
        }
    }

    /// The reservation, if this holder has this authority over it.
    pub(super) fn claimed(
        &self,
        no: ReservationNo,
        holder: &Token,
        epoch: u64,
        slot: Slot,
    ) -> Result<&Reservation, Refusal> {
        let reservation = self.found(no, slot)?;
        if reservation.holder != *holder {
            return Err(Refusal::new(Rule::HolderMismatch, "holder"));
        }
        if reservation.epoch != epoch && !sabotage::armed(Bug::StaleEpochAccepted) {
            let current = reservation.epoch;
            return Err(Refusal::over(Rule::StaleEpoch, "epoch", current, epoch));
        }
        Ok(reservation)
    }
}

pub fn later(slot: Slot, slots: u64) -> Result<Slot, Refusal> {
    let overflow = || Refusal::over(Rule::SlotOverflow, "slot", Slot::MAX - slots, slot);
    slot.checked_add(slots).ok_or_else(overflow)
}

pub fn in_state(state: ReservationState) -> Refusal {
    Refusal::new(Rule::InvalidState, state.name())
}
