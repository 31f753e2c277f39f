//! The transitions of a lease, in one table.

use super::{Space, Unfit};
use vocab::{LeaseNo, LeaseState as State, ResourceAnswer, ResourceAsk, Slot};

/// What happened to a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Confirmed,
    Released {
        fencing_token: u64,
        retire_after: Slot,
    },
    Expired {
        retire_after: Slot,
    },
    Revoked {
        fencing_token: u64,
    },
    Reclaimed {
        retire_after: Slot,
    },
}

impl Change {
    /// What the answer does to which lease; none if the answer is to another kind of ask.
    pub fn of(ask: &ResourceAsk, answer: &ResourceAnswer) -> Option<(LeaseNo, Self)> {
        use {ResourceAnswer as Answer, ResourceAsk as Ask};
        let (no, change) = match (ask, answer) {
            (Ask::Confirm { lease, .. }, Answer::Confirmed) => (lease, Self::Confirmed),
            (
                Ask::Release { lease, .. },
                Answer::Released {
                    fencing_token,
                    retire_after,
                },
            ) => {
                let (fencing_token, retire_after) = (*fencing_token, *retire_after);
                (
                    lease,
                    Self::Released {
                        fencing_token,
                        retire_after,
                    },
                )
            }
            (Ask::Revoke { lease }, Answer::Revoked { fencing_token }) => (
                lease,
                Self::Revoked {
                    fencing_token: *fencing_token,
                },
            ),
            (Ask::Reclaim { lease }, Answer::Reclaimed { retire_after }) => {
                let retire_after = *retire_after;
                (lease, Self::Reclaimed { retire_after })
            }
            _ => return None,
        };
        Some((*no, change))
    }

    /// The state and fencing token after it, and the last slot that the lease is remembered at.
    fn from(self, state: State, fencing_token: u64) -> Result<(State, u64, Slot), Unfit> {
        let next = fencing_token + 1;
        let (state, fencing_token_then, retire_after) = match (state, self) {
            (State::Granted, Self::Confirmed) => (State::Confirmed, fencing_token, Slot::MAX),
            (
                State::Granted | State::Confirmed,
                Self::Released {
                    fencing_token,
                    retire_after,
                },
            ) => (State::Released, fencing_token, retire_after),
            (State::Granted, Self::Expired { retire_after }) => {
                (State::Expired, next, retire_after)
            }
            (State::Confirmed, Self::Revoked { fencing_token }) => {
                (State::Revoking, fencing_token, Slot::MAX)
            }
            (State::Revoking, Self::Reclaimed { retire_after }) => {
                (State::Revoked, fencing_token, retire_after)
            }
            (State::Granted, Self::Revoked { .. } | Self::Reclaimed { .. }) => {
                return Err("the lease is not confirmed");
            }
            (State::Confirmed, Self::Confirmed | Self::Expired { .. } | Self::Reclaimed { .. }) => {
                return Err("the lease is confirmed");
            }
            (
                State::Revoking,
                Self::Confirmed
                | Self::Released { .. }
                | Self::Expired { .. }
                | Self::Revoked { .. },
            ) => return Err("the lease is revoking"),
            (State::Released | State::Expired | State::Revoked, _) => {
                return Err("the lease has ended");
            }
        };
        let withdrawn = matches!(state, State::Released | State::Expired | State::Revoking);
        if fencing_token_then != if withdrawn { next } else { fencing_token } {
            return Err("the lease has another fencing token");
        }
        Ok((state, fencing_token_then, retire_after))
    }
}

impl Space {
    /// Applies it to the lease, its members and all that follows from them, or changes nothing.
    pub(super) fn change(&mut self, no: LeaseNo, slot: Slot, change: Change) -> Result<(), Unfit> {
        let lease = self.leases.get_mut(no).ok_or("no such lease")?;
        let before = lease.state;
        let (state, fencing_token, retire_after) = change.from(before, lease.fencing_token)?;
        if retire_after < slot {
            return Err("it would be forgotten before it has happened");
        }
        lease.state = state;
        lease.fencing_token = fencing_token;
        lease.retire_after = retire_after;
        for member in lease.members.as_slice() {
            // Nothing takes resources out, so that members stay what they were when they were granted.
            if let Some(resource) = self.resources.get_mut(*member) {
                resource.version += 1;
                resource.holder = resource.holder.filter(|_| !state.has_ended());
            }
        }
        if before == State::Granted {
            self.expirations.remove(lease.deadline, no);
        }
        if state.has_ended() {
            self.retirements.insert(retire_after, no);
        }
        Ok(())
    }
}
