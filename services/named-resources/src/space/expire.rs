//! The expiry of a granted lease whose deadline has passed. Only the caller of the kernel asks for it, never a client.

use super::{Bounds, Space, Unfit, change::Change};
use vocab::{LeaseNo, LeaseState, Refusal, Rule, Slot};

/// What an expiry comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// The fencing token that the lease has from now on.
    pub fencing_token: u64,
    /// The last slot that it is remembered at.
    pub retire_after: Slot,
}

impl Space {
    /// What the expiry of a lease at its deadline comes to at `slot`: nothing, if it is not granted any more, has
    /// another deadline or is not known.
    ///
    /// # Errors
    ///
    /// The slot goes back, has no history after it, or lies before the deadline.
    pub fn decide_expiry(
        &self,
        no: LeaseNo,
        deadline: Slot,
        slot: Slot,
        bounds: &Bounds,
    ) -> Result<Option<Expiry>, Refusal> {
        let retire_after = self.history_from(slot, bounds)?;
        if slot < deadline {
            return Err(Refusal::over(
                Rule::InvalidState,
                "deadline",
                deadline,
                slot,
            ));
        }
        let found = self.leases.get(no);
        let due = found.filter(|r| r.state == LeaseState::Granted && r.deadline == deadline);
        Ok(due.map(|lease| Expiry {
            fencing_token: lease.fencing_token + 1,
            retire_after,
        }))
    }

    /// Applies an expiry that came to something.
    ///
    /// # Errors
    ///
    /// Names the state that it does not fit. Nothing has changed then.
    pub fn expire(&mut self, no: LeaseNo, slot: Slot, retire_after: Slot) -> Result<(), Unfit> {
        self.not_backwards(slot)?;
        let early = self.leases.get(no).is_some_and(|r| slot < r.deadline);
        if early {
            return Err("its deadline has not come");
        }
        self.change(no, slot, Change::Expired { retire_after })?;
        self.see(slot);
        Ok(())
    }
}
