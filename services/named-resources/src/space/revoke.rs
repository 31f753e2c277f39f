//! Authority is taken from the holder of a confirmed one. Its resources stay blocked, because the holder may not know yet.

use super::{Reservation, lookup::in_state};
use vocab::{Refusal, ReservationState, ResourceAnswer};

pub fn decide(found: &Reservation) -> Result<ResourceAnswer, Refusal> {
    match found.state {
        ReservationState::Confirmed => Ok(ResourceAnswer::Revoked {
            epoch: found.epoch + 1,
        }),
        state => Err(in_state(state)),
    }
}
