//! What can be looked up.

use super::Space;
use vocab::{Refusal, ReservationNo, ReservationState, Slot, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    Available,
    Reserved,
    Confirmed,
    Revoking,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    pub state: ResourceState,
    /// Counts the transitions of its state since it was created.
    pub version: u64,
    /// The live reservation that it is in.
    pub reservation: Option<ReservationNo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationView {
    pub state: ReservationState,
    pub holder: Token,
    pub epoch: u64,
    pub deadline: Slot,
    /// The last slot that it is found at, once it has ended.
    pub retire_after: Option<Slot>,
    /// As they were asked for.
    pub resources: Vec<Token>,
}

impl Space {
    pub fn resource(&self, name: &Token) -> Option<ResourceView> {
        let resource = self.resources.get(self.resources.find(name)?)?;
        let held = resource.holder.and_then(|no| self.reservations.get(no));
        let state = match held.map(|reservation| reservation.state) {
            Some(ReservationState::Reserved) => ResourceState::Reserved,
            Some(ReservationState::Confirmed) => ResourceState::Confirmed,
            Some(ReservationState::Revoking) => ResourceState::Revoking,
            // Who has ended holds nothing.
            None
            | Some(
                ReservationState::Released | ReservationState::Expired | ReservationState::Revoked,
            ) => ResourceState::Available,
        };
        Some(ResourceView {
            state,
            version: resource.version,
            reservation: resource.holder,
        })
    }

    /// The reservation as it stands at `slot`. One that has ended is found up to and with the last slot of its history.
    ///
    /// # Errors
    ///
    /// `ReservationRetired` after that, and for any unknown number up to the highest that was retired;
    /// `ReservationNotFound` above it.
    pub fn reservation(&self, no: ReservationNo, slot: Slot) -> Result<ReservationView, Refusal> {
        let found = self.found(no, slot)?;
        let members = found.members.as_slice().iter();
        Ok(ReservationView {
            state: found.state,
            holder: found.holder.clone(),
            epoch: found.epoch,
            deadline: found.deadline,
            retire_after: found.state.has_ended().then_some(found.retire_after),
            resources: members.filter_map(|no| self.resources.name(*no)).collect(),
        })
    }
}
