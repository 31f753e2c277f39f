//! What there is to tell.

use serde::{Deserialize, Serialize};
use vocab::{
    AllocationNo, AllocationSpec, EndCause, GpuShare, Lsn, Millis, PreemptionCause, Refusal,
    ReservationNo, Rule, Slot, Token, WaitingReason,
};

/// Place in a tenant's feed, strictly growing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedPosition {
    pub lsn: Lsn,
    pub index: u32,
}

/// One thing to tell, by the feed, by replies, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    pub position: FeedPosition,
    pub now: Millis,
    pub tenant: Token,
    pub job_set: Token,
    pub allocation: Option<AllocationNo>,
    pub name: Option<Token>,
    pub kind: FeedKind,
    /// Who waits for this outcome.
    pub reply_to: Vec<Token>,
    /// An answer that was in the feed before is sent to the asker only.
    pub in_feed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedKind {
    Outcome(Outcome),
    /// Accepted, with everything that it asks for.
    Requested(Box<AllocationSpec>),
    PriorityChanged(i32),
    /// After it had waited for quota. Otherwise its outcome says so.
    Denied(Refusal),
    Placed {
        node: Token,
        gpus: Vec<GpuShare>,
    },
    Waiting(Waiting),
    Started {
        at: Millis,
    },
    Stopping,
    Ended {
        cause: EndCause,
        /// Of the last run.
        started: Option<Millis>,
        at: Millis,
    },
    Preempted {
        cause: PreemptionCause,
        grace_until: Millis,
    },
    /// The run was over at `at`, and it waits again.
    Requeued {
        cause: EndCause,
        at: Millis,
        not_before: Millis,
    },
    /// Nobody confirmed the reservation in time.
    Expired {
        reservation: ReservationNo,
        epoch: u64,
    },
}

/// Why an allocation waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub reason: WaitingReason,
    /// The limit that it waits for.
    pub quota: Option<Refusal>,
}

impl Waiting {
    /// For a node, or for its turn.
    pub fn of(reason: WaitingReason) -> Self {
        Self {
            reason,
            quota: None,
        }
    }

    /// Before it holds quota. A gang does not ask before all of it is there, nor does what depends on others before they
    /// have ended.
    pub fn for_quota(refusal: &Refusal) -> Self {
        match refusal.rule {
            Rule::IncompleteGang => Self::of(WaitingReason::GangIncomplete),
            Rule::DependencyPending => Self::of(WaitingReason::Dependency),
            _ => Self {
                reason: WaitingReason::Quota,
                quota: Some(refusal.clone()),
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub operation_id: Option<Token>,
    /// Where it was decided; 0 when it was refused before anything was recorded.
    pub lsn: Lsn,
    pub kind: OutcomeKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeKind {
    Submitted {
        allocation: AllocationNo,
        state: SubmitState,
    },
    Cancelled {
        allocation: AllocationNo,
    },
    JobSetCancelled {
        allocations: u64,
    },
    PrioritySet {
        allocations: u64,
    },
    Applied {
        version: u64,
    },
    ResourceCreated,
    Reserved {
        reservation: ReservationNo,
        deadline: Slot,
    },
    Confirmed,
    Released {
        epoch: u64,
    },
    Revoked {
        epoch: u64,
    },
    Reclaimed,
    Refused(Refusal),
}

/// Where an allocation stood when its request was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubmitState {
    Placed { node: Token, gpus: Vec<GpuShare> },
    Waiting(Waiting),
    Ended { cause: EndCause, at: Millis },
}
