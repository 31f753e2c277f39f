//! The transitions of a reservation, in one table.

use super::{Space, Unfit};
use vocab::{ReservationNo, ReservationState as State, ResourceAnswer, ResourceAsk, Slot};

/// What happened to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Confirmed,
    Released { epoch: u64, retire_after: Slot },
    Expired { retire_after: Slot },
    Revoked { epoch: u64 },
    Reclaimed { retire_after: Slot },
}

impl Change {
    /// What the answer does to which reservation; none if the answer is to another kind of ask.
    pub fn of(ask: &ResourceAsk, answer: &ResourceAnswer) -> Option<(ReservationNo, Self)> {
        use {ResourceAnswer as Answer, ResourceAsk as Ask};
        let (no, change) = match (ask, answer) {
            (Ask::Confirm { reservation, .. }, Answer::Confirmed) => (reservation, Self::Confirmed),
            (
                Ask::Release { reservation, .. },
                Answer::Released {
                    epoch,
                    retire_after,
                },
            ) => {
                let (epoch, retire_after) = (*epoch, *retire_after);
                (
                    reservation,
                    Self::Released {
                        epoch,
                        retire_after,
                    },
                )
            }
            (Ask::Revoke { reservation }, Answer::Revoked { epoch }) => {
                (reservation, Self::Revoked { epoch: *epoch })
            }
            (Ask::Reclaim { reservation }, Answer::Reclaimed { retire_after }) => {
                let retire_after = *retire_after;
                (reservation, Self::Reclaimed { retire_after })
            }
            _ => return None,
        };
        Some((*no, change))
    }

    /// The state and epoch after it, and the last slot that the reservation is remembered at.
    fn from(self, state: State, epoch: u64) -> Result<(State, u64, Slot), Unfit> {
        let next = epoch + 1;
        let (state, epoch_then, retire_after) = match (state, self) {
            (State::Reserved, Self::Confirmed) => (State::Confirmed, epoch, Slot::MAX),
            (
                State::Reserved | State::Confirmed,
                Self::Released {
                    epoch,
                    retire_after,
                },
            ) => (State::Released, epoch, retire_after),
            (State::Reserved, Self::Expired { retire_after }) => {
                (State::Expired, next, retire_after)
            }
            (State::Confirmed, Self::Revoked { epoch }) => (State::Revoking, epoch, Slot::MAX),
            (State::Revoking, Self::Reclaimed { retire_after }) => {
                (State::Revoked, epoch, retire_after)
            }
            (State::Reserved, Self::Revoked { .. } | Self::Reclaimed { .. }) => {
                return Err("the reservation is not confirmed");
            }
            (State::Confirmed, Self::Confirmed | Self::Expired { .. } | Self::Reclaimed { .. }) => {
                return Err("the reservation is confirmed");
            }
            (
                State::Revoking,
                Self::Confirmed
                | Self::Released { .. }
                | Self::Expired { .. }
                | Self::Revoked { .. },
            ) => return Err("the reservation is revoking"),
            (State::Released | State::Expired | State::Revoked, _) => {
                return Err("the reservation has ended");
            }
        };
        let withdrawn = matches!(state, State::Released | State::Expired | State::Revoking);
        if epoch_then != if withdrawn { next } else { epoch } {
            return Err("the reservation has another epoch");
        }
        Ok((state, epoch_then, retire_after))
    }
}

impl Space {
    /// Applies it to the reservation, its members and all that follows from them, or changes nothing.
    pub(super) fn change(
        &mut self,
        no: ReservationNo,
        slot: Slot,
        change: Change,
    ) -> Result<(), Unfit> {
        let reservation = self.reservations.get_mut(no).ok_or("no such reservation")?;
        let before = reservation.state;
        let (state, epoch, retire_after) = change.from(before, reservation.epoch)?;
        if retire_after < slot {
            return Err("it would be forgotten before it has happened");
        }
        reservation.state = state;
        reservation.epoch = epoch;
        reservation.retire_after = retire_after;
        for member in reservation.members.as_slice() {
            // Nothing takes resources out, so that members stay what they were when they were reserved.
            if let Some(resource) = self.resources.get_mut(*member) {
                resource.version += 1;
                resource.holder = resource.holder.filter(|_| !state.has_ended());
            }
        }
        if before == State::Reserved {
            self.expirations.remove(reservation.deadline, no);
        }
        if state.has_ended() {
            self.retirements.insert(retire_after, no);
        }
        Ok(())
    }
}
