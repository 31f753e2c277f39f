//! The holder gives its resources back.

use super::{Reservation, lookup::in_state};
use vocab::{Refusal, ReservationState, ResourceAnswer, Slot};

pub fn decide(claimed: &Reservation, retire_after: Slot) -> Result<ResourceAnswer, Refusal> {
    match claimed.state {
        ReservationState::Reserved | ReservationState::Confirmed => Ok(ResourceAnswer::Released {
            epoch: claimed.epoch + 1,
            retire_after,
        }),
        state => Err(in_state(state)),
    }
}
