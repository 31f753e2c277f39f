//! A granted lease is held without a deadline from now on.

use super::{Lease, lookup::in_state};
use vocab::{LeaseState, Refusal, ResourceAnswer};

/// A deadline that has passed does not matter before the expiry is applied: whoever comes first is first.
pub fn decide(claimed: &Lease) -> Result<ResourceAnswer, Refusal> {
    match claimed.state {
        LeaseState::Granted => Ok(ResourceAnswer::Confirmed),
        state => Err(in_state(state)),
    }
}
