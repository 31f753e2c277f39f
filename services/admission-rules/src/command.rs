//! What is asked, as it was written: nothing but its shape has been checked.

use super::{ArrayRequest, ChangeRequest, ResourceRequest, SubmitRequest, TargetRequest};
use smol_str::SmolStr;
use vocab::{AllocationSpec, Operation, Refusal, Token};

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
    Submit(SubmitRequest),
    #[wire(11)]
    Cancel {
        /// UUID text.
        #[wire(1)]
        allocation_id: String,
    },
    #[wire(13)]
    CancelJobSet {
        #[wire(1)]
        job_set: SmolStr,
    },
    #[wire(14)]
    SetPriority {
        #[wire(oneof(1, 2))]
        target: TargetRequest,
        #[wire(3)]
        priority: i32,
    },
    /// Many submits, which it is read as.
    #[wire(22)]
    SubmitArray(ArrayRequest),
    #[wire(oneof(15, 16, 17, 18, 19, 20, 21))]
    Resource(ResourceRequest),
    /// Checked as a submit, and nothing is recorded.
    #[wire(23)]
    TrySubmit(SubmitRequest),
    /// Operators only.
    #[wire(oneof(30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41))]
    Admin(ChangeRequest),
}

impl Verb {
    /// What the ledger calls it.
    pub fn asked(&self) -> vocab::Verb {
        match self {
            Self::Submit(_) | Self::TrySubmit(_) | Self::SubmitArray(_) => vocab::Verb::Submit,
            Self::Cancel { .. } => vocab::Verb::Cancel,
            Self::CancelJobSet { .. } => vocab::Verb::CancelJobSet,
            Self::SetPriority { .. } => vocab::Verb::SetPriority,
            Self::Resource(request) => request.asked(),
            Self::Admin(request) => request.asked(),
        }
    }

    /// It asks for something that is not there yet, as nothing closed may.
    pub fn begins(&self) -> bool {
        match self {
            Self::Submit(_) | Self::TrySubmit(_) => true,
            Self::Resource(request) => request.begins(),
            Self::SubmitArray(_)
            | Self::Cancel { .. }
            | Self::CancelJobSet { .. }
            | Self::SetPriority { .. }
            | Self::Admin(_) => false,
        }
    }
}

/// What the shell tells a client though nothing was recorded: it was refused for a reason that says nothing of the
/// operation, and recording it would be what a flood is after; or it was a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turned {
    pub tenant: Token,
    pub operation_id: Option<Token>,
    pub reply_to: Token,
    /// What would be asked for, in its one form.
    pub answer: Result<Box<AllocationSpec>, Refusal>,
}
