//! The serialised form: what cannot be derived, each in the order of its numbers.

use super::{Space, reservations::Reservations, resources::Resources};
use serde::{Deserialize, Serialize, Serializer};
use vocab::{ReservationNo, ReservationState, Slot, Token};

/// The same fields in the same order as [`Space`] writes them.
#[derive(Deserialize)]
pub struct Stored {
    slot: Slot,
    retired: Option<ReservationNo>,
    resources: Resources,
    reservations: Reservations,
}

impl TryFrom<Stored> for Space {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let mut space = Self {
            slot: stored.slot,
            retired: stored.retired,
            resources: stored.resources,
            reservations: stored.reservations,
            ..Self::default()
        };
        for (no, reservation) in space.reservations.iter() {
            if reservation.state.has_ended() {
                space.retirements.insert(reservation.retire_after, no);
                continue;
            }
            for member in reservation.members.as_slice() {
                let resource = space.resources.get_mut(*member);
                let resource = resource.ok_or("a member that is no resource")?;
                if resource.holder.replace(no).is_some() {
                    return Err("a resource with two holders");
                }
            }
            if reservation.state == ReservationState::Reserved {
                space.expirations.insert(reservation.deadline, no);
            }
        }
        Ok(space)
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.content())
    }
}

impl TryFrom<Vec<(Token, u64)>> for Resources {
    type Error = &'static str;

    fn try_from(content: Vec<(Token, u64)>) -> Result<Self, Self::Error> {
        let mut resources = Self::default();
        for (name, version) in content {
            let added = resources.add(&name, version);
            added.ok_or("two resources of one name")?;
        }
        Ok(resources)
    }
}
