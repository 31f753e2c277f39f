//! Named resources of a tenant, and who holds them: what is asked, and what is answered.

use crate::{AllocationId, CellNo, EventNo, Refusal, Token};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Logical time of leases: the cell's clock in units of the cell's slot, or what the requests say.
pub type Slot = u64;

/// A lease inside its cell: the number of the scheduler's event that granted it.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct LeaseNo(pub u64);

impl LeaseNo {
    /// `(cell << 64) | number`. Leases and allocations are numbered by different writers: an id says what it is by
    /// the field that it stands in.
    pub fn id(self, cell: CellNo) -> AllocationId {
        AllocationId(Uuid::from_u64_pair(cell.0, self.0))
    }

    /// The lease that an event granted.
    pub fn of(granted: EventNo) -> Self {
        Self(granted.0)
    }
}

/// What is asked about named resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(oneof)]
pub enum ResourceAsk {
    #[wire(3, bare)]
    Create { resource: Token },
    /// All of them or none, until the deadline or until they are confirmed.
    #[wire(4, message = "AcquireAsk")]
    Acquire {
        #[wire(1)]
        resources: Vec<Token>,
        #[wire(2)]
        holder: Token,
        #[wire(3)]
        ttl_slots: u64,
    },
    /// Held without a deadline from now on.
    #[wire(5, message = "HolderAsk")]
    Confirm {
        #[wire(1)]
        lease: LeaseNo,
        #[wire(2)]
        holder: Token,
        #[wire(3)]
        fencing_token: u64,
    },
    #[wire(6, message = "HolderAsk")]
    Release {
        #[wire(1)]
        lease: LeaseNo,
        #[wire(2)]
        holder: Token,
        #[wire(3)]
        fencing_token: u64,
    },
    /// Withdraws the holder's authority; its resources are not free before they are reclaimed.
    #[wire(7, bare)]
    Revoke { lease: LeaseNo },
    #[wire(8, bare)]
    Reclaim { lease: LeaseNo },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(oneof)]
pub enum ResourceAnswer {
    #[wire(2, message = "ResourceDecided.Created")]
    Created,
    /// The lease's number is that of the event that says so. Its fencing token is 1.
    #[wire(3, bare)]
    Granted { deadline: Slot },
    #[wire(4, message = "ResourceDecided.Confirmed")]
    Confirmed,
    /// What has ended is remembered up to and with `retire_after`.
    #[wire(5, message = "LeaseEnd")]
    Released {
        #[wire(1)]
        fencing_token: u64,
        #[wire(2)]
        retire_after: Slot,
    },
    #[wire(6, bare)]
    Revoked { fencing_token: u64 },
    #[wire(7, bare)]
    Reclaimed { retire_after: Slot },
    #[wire(8)]
    Refused(Refusal),
}

/// The state of a lease. Stable numbers, the same as the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LeaseState {
    Granted = 1,
    Confirmed = 2,
    Revoking = 3,
    Released = 4,
    Expired = 5,
    Revoked = 6,
}

impl LeaseState {
    pub const ALL: [Self; 6] = [
        Self::Granted,
        Self::Confirmed,
        Self::Revoking,
        Self::Released,
        Self::Expired,
        Self::Revoked,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Confirmed => "confirmed",
            Self::Revoking => "revoking",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }

    /// It holds no resource any more, and never will again.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Released | Self::Expired | Self::Revoked)
    }
}
