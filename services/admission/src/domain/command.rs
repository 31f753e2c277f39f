//! What is asked, as it was written: nothing but its shape has been checked.

use super::{ChangeRequest, SubmitRequest};
use vocab::{CellNo, Operation, Refusal};

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
    /// How long an operation is remembered, in milliseconds of the cell's clock.
    pub operation_window_ms: i64,
    /// Operations remembered at the same time.
    pub operations_max: u64,
    /// Allocations that have not ended.
    pub allocations_max: u64,
}
