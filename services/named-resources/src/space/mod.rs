//! The kernel of leases: the named resources of one tenant, and who holds them until when. Tenants share nothing, so each
//! has a [`Space`] of its own.
//!
//! ```text
//!            acquire            confirm             revoke              reclaim
//! available ─────────▶ granted ────────▶ confirmed ───────▶ revoking ─────────▶ (revoked)
//!     ▲                    │                 │
//!     └── release, expire ─┴──── release ────┘          (released), (expired)
//! ```
//!
//! - **Time** is a slot that the caller gives and that never goes back. Nothing here looks at a clock; an expiry is asked
//!   for by the caller, who finds in [`Space::due`] what to ask for.
//! - **Fencing tokens**: a lease begins with 1; release, expiry and revocation, which take authority from its
//!   holder, make it 2. Who comes late with the old one is refused, whoever has the resource by then.
//! - **Ended** leases keep their place until their last slot (`retire_after`) is over, so that they can be looked
//!   up. A later slot retires them. Deciding at a later slot counts as if that had been done already.
//! - **Bounds** are looked at by deciding only. What was decided applies whatever they are by then.
//!
//! [`Space::decide`] checks in an order that is part of the contract: the slot, then what the ask says of itself, then what
//! it speaks of (of a lease: that it is there, the holder, the fencing token, the state), then whether there is room.
//!
//! Each operation is logarithmic at most in what the space holds. The truth is the resources' versions and the
//! leases; the rest (the index of names, holders, deadlines, retirements) follows from them and is made anew on
//! reading a snapshot, so that one history has one serialised form.

mod acquire;
mod bounds;
mod change;
mod confirm;
mod create;
mod deadlines;
mod expire;
mod index;
mod leases;
mod lookup;
mod reclaim;
mod release;
mod resources;
mod revoke;
mod stored;
#[cfg(test)]
mod tests;
mod view;

pub use bounds::{Bounds, UnfitBound};
pub use view::{LeaseView, ResourceState, ResourceView};

use self::{
    acquire::Room,
    change::Change,
    deadlines::{Expirations, Retirements},
    leases::{Lease, Leases},
    resources::Resources,
    stored::Stored,
};
use serde::{Deserialize, Serialize};
use vocab::{LeaseNo, ResourceAnswer, ResourceAsk, Rule, Slot};

/// The resources and leases of one tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Space {
    slot: Slot,
    /// The highest number that was ever retired.
    retired: Option<LeaseNo>,
    resources: Resources,
    leases: Leases,
    #[serde(skip)]
    expirations: Expirations,
    #[serde(skip)]
    retirements: Retirements,
}

/// What is not compared follows from what is.
impl PartialEq for Space {
    fn eq(&self, other: &Self) -> bool {
        let times = (self.slot, self.retired) == (other.slot, other.retired);
        times && self.resources == other.resources && self.leases == other.leases
    }
}

impl Eq for Space {}

impl Space {
    /// What the ask comes to at `slot`. `leases_limit` is the tenant's quota of live leases.
    pub fn decide(
        &self,
        ask: &ResourceAsk,
        slot: Slot,
        leases_limit: Option<u64>,
        bounds: &Bounds,
    ) -> ResourceAnswer {
        let history = self.history_from(slot, bounds);
        let answer = history.and_then(|retire_after| match ask {
            ResourceAsk::Create { resource } => create::decide(self, resource, bounds),
            ResourceAsk::Acquire {
                resources,
                ttl_slots,
                ..
            } => {
                let room = Room {
                    slot,
                    limit: leases_limit,
                    bounds,
                };
                acquire::decide(self, resources, *ttl_slots, &room)
            }
            ResourceAsk::Confirm {
                lease,
                holder,
                fencing_token,
            } => confirm::decide(self.claimed(*lease, holder, *fencing_token, slot)?),
            ResourceAsk::Release {
                lease,
                holder,
                fencing_token,
            } => release::decide(
                self.claimed(*lease, holder, *fencing_token, slot)?,
                retire_after,
            ),
            ResourceAsk::Revoke { lease } => revoke::decide(self.found(*lease, slot)?),
            ResourceAsk::Reclaim { lease } => {
                reclaim::decide(self.found(*lease, slot)?, retire_after)
            }
        });
        answer.unwrap_or_else(ResourceAnswer::Refused)
    }

    /// Applies what was decided; `no` is the number of the event that says so, and the lease's if it grants one.
    ///
    /// # Errors
    ///
    /// Names the state that the answer does not fit. Nothing has changed then.
    pub fn apply(
        &mut self,
        no: LeaseNo,
        ask: &ResourceAsk,
        slot: Slot,
        answer: &ResourceAnswer,
    ) -> Result<(), Unfit> {
        if let ResourceAnswer::Refused(refusal) = answer
            && matches!(refusal.rule, Rule::SlotBackwards | Rule::SlotOverflow)
        {
            // Such a slot was never seen: otherwise one of them would be the last.
            return Ok(());
        }
        self.not_backwards(slot)?;
        match (ask, answer) {
            (_, ResourceAnswer::Refused(_)) => {}
            (ResourceAsk::Create { resource }, ResourceAnswer::Created) => {
                create::apply(self, resource)?;
            }
            (
                ResourceAsk::Acquire {
                    resources, holder, ..
                },
                ResourceAnswer::Granted { deadline },
            ) => {
                acquire::apply(self, no, resources, holder, slot, *deadline)?;
            }
            (ask, answer) => {
                let (of, change) = Change::of(ask, answer).ok_or("it answers another ask")?;
                self.change(of, slot, change)?;
            }
        }
        self.see(slot);
        Ok(())
    }

    /// The latest that was seen.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Granted ones whose deadline is at or before `slot`, by deadline and then by number. Costs only what is due.
    pub fn due(&self, slot: Slot) -> impl Iterator<Item = (LeaseNo, Slot)> {
        self.expirations.through(slot)
    }

    pub fn next_deadline(&self) -> Option<Slot> {
        self.expirations.first()
    }

    pub fn live_leases(&self) -> u64 {
        (self.leases.len() - self.retirements.len()) as u64
    }

    fn not_backwards(&self, slot: Slot) -> Result<(), Unfit> {
        if slot < self.slot {
            return Err("its slot lies before the latest");
        }
        Ok(())
    }

    /// A slot has come: what was to be remembered until before it is retired.
    fn see(&mut self, slot: Slot) {
        self.slot = slot;
        while let Some(over) = self.retirements.pop_before(slot) {
            for no in over {
                self.leases.remove(no);
                self.retired = self.retired.max(Some(no));
            }
        }
    }
}

/// The state that an event does not fit.
pub type Unfit = &'static str;
