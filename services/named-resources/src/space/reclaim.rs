//! The resources of a revoked one are safe to give out again.

use super::{Reservation, lookup::in_state};
use vocab::{Refusal, ReservationState, ResourceAnswer, Slot};

pub fn decide(found: &Reservation, retire_after: Slot) -> Result<ResourceAnswer, Refusal> {
    match found.state {
        ReservationState::Revoking => Ok(ResourceAnswer::Reclaimed { retire_after }),
        state => Err(in_state(state)),
    }
}
