//! What there is to tell, in the checker's words.

use super::{
    super::{Place, demand::number},
    some,
};
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
    Granted {
        lease: u64,
        deadline: u64,
    },
    Confirmed,
    /// With the fencing token from then on.
    Released(u64),
    /// With the fencing token from then on.
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
    pub tenant: String,
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
    /// A lease, with its fencing token from then on.
    Expired {
        lease: u64,
        fencing_token: u64,
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
        Answer::Granted(deadline) => Outcome::Granted {
            lease: at.no,
            deadline: *deadline,
        },
        Answer::Confirmed(_) => Outcome::Confirmed,
        Answer::Released(end) => Outcome::Released(end.fencing_token),
        Answer::Revoked(fencing_token) => Outcome::Revoked(*fencing_token),
        Answer::Reclaimed(_) => Outcome::Reclaimed,
        Answer::Refused(refusal) => Outcome::Refused(refusal.rule),
    })
}

impl Outcome {
    /// What a tenant reads.
    pub fn read(outcome: &v1::Outcome) -> Option<Self> {
        use v1::outcome::Result as Said;
        Some(match outcome.result.as_ref()? {
            Said::Submitted(said) => Self::Submitted {
                allocation: number(&said.allocation_id),
                state: State::read(said.state.as_ref()?),
            },
            Said::Cancelled(said) => Self::Cancelled(number(&said.allocation_id)),
            Said::JobSetCancelled(said) => Self::JobSetCancelled(said.allocations),
            Said::PrioritySet(said) => Self::PrioritySet(said.allocations),
            Said::Applied(said) => Self::Applied(said.version),
            Said::ResourceCreated(_) => Self::Created,
            Said::LeaseGranted(said) => Self::Granted {
                lease: number(&said.lease_id),
                deadline: said.deadline_slot,
            },
            Said::Confirmed(_) => Self::Confirmed,
            Said::Released(said) => Self::Released(said.fencing_token),
            Said::Revoked(said) => Self::Revoked(said.fencing_token),
            Said::Reclaimed(_) => Self::Reclaimed,
            Said::Refused(said) => Self::Refused(rule_of(said.refusal.as_ref())),
            // Nobody in the world tries anything.
            Said::Passes(_) => return None,
        })
    }
}

impl State {
    fn read(state: &v1::submitted::State) -> Self {
        use v1::submitted::State as Said;
        match state {
            Said::Placed(placed) => Self::Placed(placed.node.clone()),
            Said::Waiting(waiting) => Self::Waiting(Wait::read(waiting)),
            Said::Ended(_) => Self::Ended,
        }
    }
}

impl Wait {
    fn read(waiting: &v1::Waiting) -> Self {
        Self {
            reason: waiting.reason,
            rule: waiting.quota.as_ref().map(|refusal| refusal.rule),
        }
    }
}

impl Told {
    /// What a tenant reads.
    pub fn read(tenant: &str, event: &v1::TenantEvent) -> Option<Self> {
        use v1::tenant_event::Kind as Said;
        let step = |step| What::Step {
            allocation: number(&event.allocation_id),
            step,
        };
        let what = match event.kind.as_ref()? {
            Said::Outcome(outcome) => What::Outcome {
                operation_id: some(&outcome.operation_id),
                lsn: outcome.lsn,
                outcome: Outcome::read(outcome)?,
            },
            Said::Expired(said) => What::Expired {
                lease: number(&said.lease_id),
                fencing_token: said.fencing_token,
            },
            Said::Requested(_) => step(Step::Requested),
            Said::PriorityChanged(said) => step(Step::Priority(said.priority)),
            Said::Denied(said) => step(Step::Denied(rule_of(said.refusal.as_ref()))),
            Said::Placed(_) => step(Step::Placed),
            Said::Waiting(waiting) => step(Step::Waiting(Wait::read(waiting))),
            Said::Started(_) => step(Step::Started),
            Said::Preempted(_) => step(Step::Preempted),
            Said::Stopping(_) => step(Step::Stopping),
            Said::Requeued(_) => step(Step::Requeued),
            Said::Ended(_) => step(Step::Ended),
        };
        Some(Self {
            tenant: tenant.to_owned(),
            what,
        })
    }
}
