//! A reserved one is held without a deadline from now on.

use super::{Reservation, lookup::in_state};
use vocab::{Refusal, ReservationState, ResourceAnswer};

/// A deadline that has passed does not matter before the expiry is applied: whoever comes first is first.
pub fn decide(claimed: &Reservation) -> Result<ResourceAnswer, Refusal> {
    match claimed.state {
        ReservationState::Reserved => Ok(ResourceAnswer::Confirmed),
        state => Err(in_state(state)),
    }
}
