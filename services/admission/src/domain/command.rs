//! What is asked, as it was written: nothing but its shape has been checked.

use super::{ChangeRequest, ResourceRequest, Shares, SubmitRequest, TargetRequest};
use vocab::{CellNo, Operation, Refusal, Token};

/// What a message at the inbox comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub operation: Operation,
    /// Or the rule that reading it has broken already.
    pub verb: Result<Verb, Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, wire::Wire)]
#[wire(oneof)]
pub enum Verb {
    #[wire(10)]
    Submit(Box<SubmitRequest>),
    #[wire(11)]
    Cancel {
        /// UUID text.
        #[wire(1)]
        allocation_id: String,
    },
    #[wire(13)]
    CancelJobSet {
        #[wire(1)]
        job_set: String,
    },
    #[wire(14)]
    SetPriority {
        #[wire(oneof(1, 2))]
        target: TargetRequest,
        #[wire(3)]
        priority: i32,
    },
    #[wire(oneof(15, 16, 17, 18, 19, 20, 21))]
    Resource(ResourceRequest),
    /// Operators only.
    #[wire(oneof(30, 31, 32, 33, 34, 35, 36, 37, 38, 39))]
    Admin(ChangeRequest),
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
