//! The resources of a revoked one are safe to give out again.

use super::{Lease, lookup::in_state};
use vocab::{LeaseState, Refusal, ResourceAnswer, Slot};

pub fn decide(found: &Lease, retire_after: Slot) -> Result<ResourceAnswer, Refusal> {
    match found.state {
        LeaseState::Revoking => Ok(ResourceAnswer::Reclaimed { retire_after }),
        state => Err(in_state(state)),
    }
}
