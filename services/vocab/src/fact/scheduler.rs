//! What the scheduler records: the life of allocations, why they wait, and what became of requests.

use crate::{
    AllocationNo, CancelVerdict, Candidate, EndCause, EventNo, Filter, GpuShare, LineNo, Millis,
    PlacementPolicy, PreemptionCause, Refusal, ReservationNo, ResourceAnswer, ResourceKind, Slot,
    Token, WaitingReason,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationPlaced {
    pub allocation: AllocationNo,
    pub node: Token,
    pub incarnation: u64,
    pub gpus: Vec<GpuShare>,
    /// The NUMA zones that it takes from, as bits; 0 when the node has no topology.
    pub zones: u8,
    pub policy: PlacementPolicy,
    /// The best few nodes, the chosen one first.
    pub candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationWaiting {
    pub allocation: AllocationNo,
    pub reason: WaitingReason,
    /// None while it is in no line, as during a backoff.
    pub line: Option<LineNo>,
}

/// Why a whole line waits, and what would free it. Replaces what was said of the line before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineExplained {
    pub line: LineNo,
    pub queue: Token,
    pub reason: WaitingReason,
    /// The one at the line's head, which was tried.
    pub head: AllocationNo,
    /// How many nodes each filter kept off; what is not named kept off none.
    pub counts: Vec<(Filter, u32)>,
    /// The least that must be freed on one node for the head to fit, in the units of the resource types; empty when
    /// freeing does not help.
    pub shortfall: Vec<(ResourceKind, u64)>,
    /// The queue's share of the cell and its fair share, in millionths.
    pub share_ppm: u32,
    pub fair_share_ppm: u32,
}

/// Is being cleared from its node for the sake of another; `AllocationStopping` follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationPreempted {
    pub allocation: AllocationNo,
    pub cause: PreemptionCause,
    /// Whom it makes room for; none for a reservation.
    pub by: Option<AllocationNo>,
    /// It should have stopped by then.
    pub grace_until: Millis,
}

/// Its place is held for it until those who are in it have gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationNominated {
    pub allocation: AllocationNo,
    pub node: Token,
    pub incarnation: u64,
}

/// The run is over by `cause` at `at`; the allocation waits again, and not before `not_before` is it tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRequeued {
    pub allocation: AllocationNo,
    pub cause: EndCause,
    pub at: Millis,
    pub not_before: Millis,
}

/// The nodes of an advance reservation; empty when there are too few, or it was taken back or is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationDecided {
    pub reservation: Token,
    pub version: u64,
    pub nodes: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationStarted {
    pub allocation: AllocationNo,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationStopping {
    pub allocation: AllocationNo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationEnded {
    pub allocation: AllocationNo,
    pub cause: EndCause,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelDecided {
    /// Number of the `CancelRequested`.
    pub request: EventNo,
    pub allocation: AllocationNo,
    pub verdict: CancelVerdict,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSetCancelDecided {
    /// Number of the `JobSetCancelRequested`.
    pub request: EventNo,
    /// Allocations that have ended by this, or are being stopped.
    pub allocations: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationReprioritised {
    pub allocation: AllocationNo,
    pub priority: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityDecided {
    /// Number of the `PriorityRequested`.
    pub request: EventNo,
    /// Allocations whose priority it has set.
    pub allocations: u64,
    /// Why it has set none.
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceDecided {
    /// Number of the `ResourceAsked`.
    pub request: EventNo,
    pub answer: ResourceAnswer,
}

/// Nobody confirmed it in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationExpired {
    pub tenant: Token,
    pub reservation: ReservationNo,
    pub slot: Slot,
    pub epoch: u64,
    pub retire_after: Slot,
}
