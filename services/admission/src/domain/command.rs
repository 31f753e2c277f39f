//! What is asked, as it was written: nothing but its shape has been checked.

use super::{ChangeRequest, ResourceRequest, Shares, SubmitRequest, TargetRequest};
use vocab::{CellNo, Operation, Refusal, Slot, Token};

/// What a message at the door comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub operation: Operation,
    /// Or the rule that reading it has broken already.
    pub verb: Result<Verb, Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    Submit(Box<SubmitRequest>),
    Cancel {
        allocation_id: String,
    },
    CancelJobSet {
        job_set: String,
    },
    SetPriority {
        target: TargetRequest,
        priority: i32,
    },
    Resource {
        request: ResourceRequest,
        slot: Option<Slot>,
    },
    /// Operators only.
    Admin {
        change: ChangeRequest,
        /// The version that it is a change of; none: whichever it is.
        expected: Option<u64>,
    },
}

/// Settings that decisions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub cell: CellNo,
    /// How long an operation is remembered, and an allocation after its end, in milliseconds of the cell's clock.
    pub operation_window_ms: i64,
    /// Operations of one tenant that are remembered at the same time.
    pub operations_max: u64,
    /// Allocations of one tenant that have not ended.
    pub allocations_max: u64,
    pub room: Shares,
    /// The length of a slot of reservations on the cell's clock; 0: requests say which slot they are of.
    pub slot_ms: u64,
    /// How long an operation of the requests' slots is remembered, in slots.
    pub window_slots: u64,
}

/// What the shell tells a client though nothing was recorded: it was refused for a reason that says nothing of the
/// operation, and recording it would be what a flood is after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turned {
    pub tenant: Token,
    pub operation_id: Option<Token>,
    pub reply_to: Token,
    pub refusal: Refusal,
}
