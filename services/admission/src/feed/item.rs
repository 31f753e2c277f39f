//! What there is to tell.

use crate::operation::{OutcomeKind, Waiting};
use serde::{Deserialize, Serialize};
use vocab::{
    AllocationNo, EncodedSpec, EndCause, GpuShares, LeaseNo, Lsn, Millis, PreemptionCause,
    QosClass, Refusal, RunExit, Token,
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
    Requested {
        spec: EncodedSpec,
        qos: QosClass,
    },
    PriorityChanged(i32),
    /// After it had waited for quota. Otherwise its outcome says so.
    Denied(Refusal),
    Placed {
        node: Token,
        gpus: GpuShares,
    },
    Waiting(Waiting),
    Started {
        at: Millis,
    },
    Stopping {
        time_limit: bool,
    },
    Ended {
        cause: EndCause,
        /// Of the last run.
        started: Option<Millis>,
        at: Millis,
        exit: Option<RunExit>,
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
        exit: Option<RunExit>,
    },
    /// Nobody confirmed the lease in time.
    Expired {
        lease: LeaseNo,
        fencing_token: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub operation_id: Option<Token>,
    /// Where it was decided; 0 when it was refused before anything was recorded.
    pub lsn: Lsn,
    pub kind: OutcomeKind,
}
