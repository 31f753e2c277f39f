//! The holder gives its resources back.

use super::{Lease, lookup::in_state};
use vocab::{LeaseState, Refusal, ResourceAnswer, Slot};

pub fn decide(claimed: &Lease, retire_after: Slot) -> Result<ResourceAnswer, Refusal> {
    match claimed.state {
        LeaseState::Granted | LeaseState::Confirmed => Ok(ResourceAnswer::Released {
            fencing_token: claimed.fencing_token + 1,
            retire_after,
        }),
        state => Err(in_state(state)),
    }
}
