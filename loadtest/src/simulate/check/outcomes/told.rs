//! What there is to tell, in the checker's words.

use super::super::Place;
use schemas::v1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Submitted {
        allocation: u64,
        state: State,
    },
    Cancelled(u64),
    /// How many allocations.
    JobSetCancelled(u64),
    /// How many allocations.
    PrioritySet(u64),
    Applied(u64),
    Created,
    Reserved {
        reservation: u64,
        deadline: u64,
    },
    Confirmed,
    /// With the epoch from then on.
    Released(u64),
    /// With the epoch from then on.
    Revoked(u64),
    Reclaimed,
    /// By the rule's number.
    Refused(i32),
}

/// Where an allocation stood when its request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Placed(String),
    Waiting(Wait),
    Ended,
}

/// Why an allocation waits: the reason's number, and the rule's of the quota that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub reason: i32,
    pub rule: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Requested,
    Priority(i32),
    /// By the rule's number.
    Denied(i32),
    Placed,
    Waiting(Wait),
    Started,
    Preempted,
    Stopping,
    Requeued,
    Ended,
}

/// One thing told, or to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub lsn: u64,
    pub index: u32,
    pub tenant: String,
    pub reply_to: Vec<String>,
    pub in_feed: bool,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Outcome {
        operation_id: Option<String>,
        lsn: u64,
        outcome: Outcome,
    },
    Step {
        allocation: u64,
        step: Step,
    },
    /// A reservation, with its epoch from then on.
    Expired {
        reservation: u64,
        epoch: u64,
    },
}

/// The numbers of the contract.
const GANG_INCOMPLETE: i32 = 57;
const DEPENDENCY_PENDING: i32 = 60;
const WAITS_FOR_DEPENDENCY: i32 = 9;
const WAITS_FOR_GANG: i32 = 10;
const WAITS_FOR_QUOTA: i32 = 15;

/// What is said of a wait for quota.
pub fn for_quota(e: &v1::QuotaWaiting) -> Wait {
    match rule_of(e.refusal.as_ref()) {
        GANG_INCOMPLETE => Wait {
            reason: WAITS_FOR_GANG,
            rule: None,
        },
        DEPENDENCY_PENDING => Wait {
            reason: WAITS_FOR_DEPENDENCY,
            rule: None,
        },
        rule => Wait {
            reason: WAITS_FOR_QUOTA,
            rule: Some(rule),
        },
    }
}

pub fn rule_of(refusal: Option<&v1::Refusal>) -> i32 {
    refusal.map_or(0, |refusal| refusal.rule)
}

/// What an answer about resources comes to.
pub fn answered(at: &Place, e: &v1::ResourceDecided) -> Option<Outcome> {
    use v1::resource_decided::Answer;
    Some(match e.answer.as_ref()? {
        Answer::Created(_) => Outcome::Created,
        Answer::Reserved(deadline) => Outcome::Reserved {
            reservation: at.no,
            deadline: *deadline,
        },
        Answer::Confirmed(_) => Outcome::Confirmed,
        Answer::Released(end) => Outcome::Released(end.epoch),
        Answer::Revoked(epoch) => Outcome::Revoked(*epoch),
        Answer::Reclaimed(_) => Outcome::Reclaimed,
        Answer::Refused(refusal) => Outcome::Refused(refusal.rule),
    })
}
