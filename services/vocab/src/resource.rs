//! Named resources of a tenant, and who holds them: what is asked, and what is answered.

use crate::{AllocationId, CellNo, EventNo, Refusal, Token};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Logical time of reservations: the cell's clock in units of the cell's slot, or what the requests say.
pub type Slot = u64;

/// A reservation inside its cell: the number of the scheduler's event that granted it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ReservationNo(pub u64);

impl ReservationNo {
    /// `(cell << 64) | number`. Reservations and allocations are numbered by different writers: an id says what it is by
    /// the field that it stands in.
    pub fn id(self, cell: CellNo) -> AllocationId {
        AllocationId(Uuid::from_u64_pair(cell.0, self.0))
    }

    /// The reservation that an event granted.
    pub fn of(granted: EventNo) -> Self {
        Self(granted.0)
    }
}

/// What is asked about named resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceAsk {
    Create {
        resource: Token,
    },
    /// All of them or none, until the deadline or until they are confirmed.
    Reserve {
        resources: Vec<Token>,
        holder: Token,
        ttl_slots: u64,
    },
    /// Held without a deadline from now on.
    Confirm {
        reservation: ReservationNo,
        holder: Token,
        epoch: u64,
    },
    Release {
        reservation: ReservationNo,
        holder: Token,
        epoch: u64,
    },
    /// Withdraws the holder's authority; its resources are not free before they are reclaimed.
    Revoke {
        reservation: ReservationNo,
    },
    Reclaim {
        reservation: ReservationNo,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceAnswer {
    Created,
    /// The reservation's number is that of the event that says so. Its epoch is 1.
    Reserved {
        deadline: Slot,
    },
    Confirmed,
    /// What has ended is remembered up to and with `retire_after`.
    Released {
        epoch: u64,
        retire_after: Slot,
    },
    Revoked {
        epoch: u64,
    },
    Reclaimed {
        retire_after: Slot,
    },
    Refused(Refusal),
}

/// The state of a reservation. Stable numbers, the same as the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReservationState {
    Reserved = 1,
    Confirmed = 2,
    Revoking = 3,
    Released = 4,
    Expired = 5,
    Revoked = 6,
}

impl ReservationState {
    pub const ALL: [Self; 6] = [
        Self::Reserved,
        Self::Confirmed,
        Self::Revoking,
        Self::Released,
        Self::Expired,
        Self::Revoked,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
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
