//! The serialised form: what cannot be derived, each in the order of its numbers.

use super::{Space, leases::Leases, resources::Resources};
use serde::{Deserialize, Serialize, Serializer};
use vocab::{LeaseNo, LeaseState, Slot, Token};

/// The same fields in the same order as [`Space`] writes them.
#[derive(Deserialize)]
pub struct Stored {
    slot: Slot,
    retired: Option<LeaseNo>,
    resources: Resources,
    leases: Leases,
}

impl TryFrom<Stored> for Space {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let mut space = Self {
            slot: stored.slot,
            retired: stored.retired,
            resources: stored.resources,
            leases: stored.leases,
            ..Self::default()
        };
        for (no, lease) in space.leases.iter() {
            if lease.state.has_ended() {
                space.retirements.insert(lease.retire_after, no);
                continue;
            }
            for member in lease.members.as_slice() {
                let resource = space.resources.get_mut(*member);
                let resource = resource.ok_or("a member that is no resource")?;
                if resource.holder.replace(no).is_some() {
                    return Err("a resource with two holders");
                }
            }
            if lease.state == LeaseState::Granted {
                space.expirations.insert(lease.deadline, no);
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
