//! What can be looked up.

use super::Space;
use vocab::{LeaseNo, LeaseState, Refusal, Slot, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    Available,
    Granted,
    Confirmed,
    Revoking,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    pub state: ResourceState,
    /// Counts the transitions of its state since it was created.
    pub version: u64,
    /// The live lease that it is in.
    pub lease: Option<LeaseNo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    pub state: LeaseState,
    pub holder: Token,
    pub fencing_token: u64,
    pub deadline: Slot,
    /// The last slot that it is found at, once it has ended.
    pub retire_after: Option<Slot>,
    /// As they were asked for.
    pub resources: Vec<Token>,
}

impl Space {
    pub fn resource(&self, name: &Token) -> Option<ResourceView> {
        let resource = self.resources.get(self.resources.find(name)?)?;
        let held = resource.holder.and_then(|no| self.leases.get(no));
        let state = match held.map(|lease| lease.state) {
            Some(LeaseState::Granted) => ResourceState::Granted,
            Some(LeaseState::Confirmed) => ResourceState::Confirmed,
            Some(LeaseState::Revoking) => ResourceState::Revoking,
            // Who has ended holds nothing.
            None | Some(LeaseState::Released | LeaseState::Expired | LeaseState::Revoked) => {
                ResourceState::Available
            }
        };
        Some(ResourceView {
            state,
            version: resource.version,
            lease: resource.holder,
        })
    }

    /// The lease as it stands at `slot`. One that has ended is found up to and with the last slot of its history.
    ///
    /// # Errors
    ///
    /// `LeaseRetired` after that, and for any unknown number up to the highest that was retired;
    /// `LeaseNotFound` above it.
    pub fn lease(&self, no: LeaseNo, slot: Slot) -> Result<LeaseView, Refusal> {
        let found = self.found(no, slot)?;
        let members = found.members.as_slice().iter();
        Ok(LeaseView {
            state: found.state,
            holder: found.holder.clone(),
            fencing_token: found.fencing_token,
            deadline: found.deadline,
            retire_after: found.state.has_ended().then_some(found.retire_after),
            resources: members.filter_map(|no| self.resources.name(*no)).collect(),
        })
    }
}
