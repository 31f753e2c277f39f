//! What the scheduler records: the life of allocations, why they wait, and what became of requests.

use crate::spec::ResourceAmount;
use crate::{
    AllocationNo, CancelVerdict, Candidates, EndCause, EventNo, Filter, GpuShares, LeaseNo, Millis,
    PendingGroupNo, PlacementPolicy, PreemptionCause, Refusal, ResourceAnswer, ResourceKind,
    RunExit, Slot, Token, WaitingReason,
};
use serde::{Deserialize, Serialize};

wire::pair! {
    /// How many nodes a filter kept off.
    pub FilterCount { filter, nodes }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationPlaced {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub node: Token,
    #[wire(3)]
    pub incarnation: u64,
    #[wire(4)]
    pub gpus: GpuShares,
    /// The NUMA zones that it takes from, as bits; 0 when the node has no topology.
    #[wire(5)]
    pub zones: u8,
    #[wire(6)]
    pub policy: PlacementPolicy,
    /// The best few nodes, the chosen one first.
    #[wire(7)]
    pub candidates: Candidates,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationWaiting {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub reason: WaitingReason,
    /// None while it is in no pending group, as during a backoff.
    #[wire(3)]
    pub pending_group: Option<PendingGroupNo>,
}

/// Why a whole pending group waits, and what would free it. Replaces what was said of the group before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct PendingGroupExplained {
    #[wire(1)]
    pub pending_group: PendingGroupNo,
    #[wire(2)]
    pub queue: Token,
    #[wire(3)]
    pub reason: WaitingReason,
    /// The one at the group's head, which was tried.
    #[wire(4)]
    pub head: AllocationNo,
    /// How many nodes each filter kept off; what is not named kept off none.
    #[wire(5, with = wire::Pairs<FilterCount>)]
    pub counts: Vec<(Filter, u32)>,
    /// The least that must be freed on one node for the head to fit, in the units of the resource types; empty when
    /// freeing does not help.
    #[wire(6, with = wire::Pairs<ResourceAmount>)]
    pub shortfall: Vec<(ResourceKind, u64)>,
    /// The queue's share of the cell and its fair share, in millionths.
    #[wire(7)]
    pub share_ppm: u32,
    #[wire(8)]
    pub fair_share_ppm: u32,
}

/// Is being cleared from its node for the sake of another; `AllocationStopping` follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationPreempted {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub cause: PreemptionCause,
    /// Whom it makes room for; none for a reservation.
    #[wire(3)]
    pub by: Option<AllocationNo>,
    /// It should have stopped by then.
    #[wire(4, name = "grace_until_ms")]
    pub grace_until: Millis,
}

/// Its place is held for it until those who are in it have gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationNominated {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub node: Token,
    #[wire(3)]
    pub incarnation: u64,
}

/// The run is over by `cause` at `at`; the allocation waits again, and not before `not_before` is it tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationRequeued {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub cause: EndCause,
    #[wire(3, name = "at_ms")]
    pub at: Millis,
    #[wire(4, name = "not_before_ms")]
    pub not_before: Millis,
    #[wire(5)]
    pub exit: Option<RunExit>,
}

/// The nodes of an advance reservation; empty when there are too few, or it was taken back or is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct ReservationDecided {
    #[wire(1)]
    pub reservation: Token,
    #[wire(2)]
    pub version: u64,
    #[wire(3)]
    pub nodes: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationStarted {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2, name = "at_ms")]
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationStopping {
    #[wire(1)]
    pub allocation: AllocationNo,
    /// Its run has gone on for as long as it may.
    #[wire(2)]
    pub time_limit: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationEnded {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub cause: EndCause,
    #[wire(3, name = "at_ms")]
    pub at: Millis,
    /// Of its last run.
    #[wire(4)]
    pub exit: Option<RunExit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct CancelDecided {
    /// Number of the `CancelRequested`.
    #[wire(1)]
    pub request: EventNo,
    #[wire(2)]
    pub allocation: AllocationNo,
    #[wire(3, name = "was_live")]
    pub verdict: CancelVerdict,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct JobSetCancelDecided {
    /// Number of the `JobSetCancelRequested`.
    #[wire(1)]
    pub request: EventNo,
    /// Allocations that have ended by this, or are being stopped.
    #[wire(2)]
    pub allocations: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationReprioritised {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub priority: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct PriorityDecided {
    /// Number of the `PriorityRequested`.
    #[wire(1)]
    pub request: EventNo,
    /// Allocations whose priority it has set.
    #[wire(2)]
    pub allocations: u64,
    /// Why it has set none.
    #[wire(3)]
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct ResourceDecided {
    /// Number of the `ResourceAsked`.
    #[wire(1)]
    pub request: EventNo,
    #[wire(oneof(2, 3, 4, 5, 6, 7, 8))]
    pub answer: ResourceAnswer,
}

/// Nobody confirmed it in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct LeaseExpired {
    #[wire(1)]
    pub tenant: Token,
    #[wire(2)]
    pub lease: LeaseNo,
    #[wire(3)]
    pub slot: Slot,
    #[wire(4)]
    pub fencing_token: u64,
    #[wire(5)]
    pub retire_after: Slot,
}
