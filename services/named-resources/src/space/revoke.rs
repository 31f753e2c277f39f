//! Authority is taken from the holder of a confirmed one. Its resources stay blocked, because the holder may not know yet.

use super::{Lease, lookup::in_state};
use vocab::{LeaseState, Refusal, ResourceAnswer};

pub fn decide(found: &Lease) -> Result<ResourceAnswer, Refusal> {
    match found.state {
        LeaseState::Confirmed => Ok(ResourceAnswer::Revoked {
            fencing_token: found.fencing_token + 1,
        }),
        state => Err(in_state(state)),
    }
}
