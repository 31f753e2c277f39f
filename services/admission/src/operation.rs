//! What the ledger says of operations: that they were taken up, and what came of them. The fold of the rows and the fold of
//! the feed read it here, so that a table and a reply cannot say different things. Pure.

use serde::{Deserialize, Serialize};
use vocab::fact::{OperationsForgotten, SettingFact};
use vocab::inputs;
use vocab::{
    AllocationNo, AllocationSpec, At, CancelVerdict, EndCause, EventNo, GpuShares, LeaseNo, Millis,
    Operation, PriorityTarget, Refusal, ResourceAnswer, ResourceAsk, Rule, Slot, Token, Verb,
    WaitingReason,
};

inputs! {
    /// What the inbox has taken up.
    pub enum Asked {
        AllocationRequested,
        CancelRequested,
        JobSetCancelRequested,
        PriorityRequested,
        ResourceAsked,
        OperationRefused,
    }
}

inputs! {
    /// What came of it. Of a submit, the first of these is the outcome.
    pub enum Decided {
        QuotaDenied,
        QuotaWaiting,
        AllocationPlaced,
        AllocationWaiting,
        AllocationEnded,
        CancelDecided,
        JobSetCancelDecided,
        PriorityDecided,
        ResourceDecided,
    }
}

inputs! {
    /// All that is said of operations.
    pub enum OperationFact {
        ..SettingFact,
        ..Asked,
        ..Decided,
        OperationsForgotten,
    }
}

/// What a fact is for an operation.
pub enum Step<'a> {
    Taken(Taken<'a>),
    Decided(Decided<'a>),
    Forgotten(&'a OperationsForgotten),
}

/// An operation that is taken up; its number is the event's.
pub struct Taken<'a> {
    pub operation: &'a Operation,
    /// None when it was refused at the inbox: it may have had none, or the cell was of feature level 9 or below.
    pub verb: Option<Verb>,
    pub of: Of<'a>,
    /// Its retention window is counted in slots.
    pub by_slots: bool,
    /// Where one event takes it up and decides it.
    pub outcome: Option<OutcomeKind>,
}

/// What an operation is about.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// The allocation that it makes.
    New(&'a AllocationSpec),
    Allocation(AllocationNo),
    JobSet(&'a Token),
    NamedResources,
    /// Nothing that a job set has.
    Cell,
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
    Granted {
        lease: LeaseNo,
        deadline: Slot,
    },
    Confirmed,
    Released {
        fencing_token: u64,
    },
    Revoked {
        fencing_token: u64,
    },
    Reclaimed,
    Refused(Refusal),
    /// To a trial, of which nothing is recorded: what would be asked for.
    Passes(Box<AllocationSpec>),
}

/// Where an allocation stood when its request was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubmitState {
    Placed { node: Token, gpus: GpuShares },
    Waiting(Waiting),
    Ended { cause: EndCause, at: Millis },
}

/// Where an allocation stood, and no more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Placed,
    Waiting,
    Ended,
}

/// Why an allocation waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub reason: WaitingReason,
    /// The limit that it waits for.
    pub quota: Option<Refusal>,
}

impl<'a> From<OperationFact<'a>> for Step<'a> {
    fn from(fact: OperationFact<'a>) -> Self {
        match fact {
            OperationFact::SettingFact(set) => Self::Taken(Taken::set(set)),
            OperationFact::Asked(asked) => Self::Taken(Taken::asked(asked)),
            OperationFact::Decided(decided) => Self::Decided(decided),
            OperationFact::OperationsForgotten(fact) => Self::Forgotten(fact),
        }
    }
}

impl<'a> Taken<'a> {
    fn new(operation: &'a Operation, verb: Verb, of: Of<'a>) -> Self {
        Self {
            operation,
            verb: Some(verb),
            of,
            by_slots: false,
            outcome: None,
        }
    }

    fn set(set: SettingFact<'a>) -> Self {
        let (operation, version) = set.asked();
        let outcome = Some(OutcomeKind::Applied { version });
        Self {
            outcome,
            ..Self::new(operation, verb_of_setting(set), Of::Cell)
        }
    }

    fn asked(asked: Asked<'a>) -> Self {
        match asked {
            Asked::AllocationRequested(fact) => {
                Self::new(&fact.operation, Verb::Submit, Of::New(&fact.spec))
            }
            Asked::CancelRequested(fact) => Self::new(
                &fact.operation,
                Verb::Cancel,
                Of::Allocation(fact.allocation),
            ),
            Asked::JobSetCancelRequested(fact) => {
                let of = Of::JobSet(&fact.job_set);
                Self::new(&fact.operation, Verb::CancelJobSet, of)
            }
            Asked::PriorityRequested(fact) => {
                let of = match &fact.target {
                    PriorityTarget::Allocation(allocation) => Of::Allocation(*allocation),
                    PriorityTarget::JobSet(job_set) => Of::JobSet(job_set),
                };
                Self::new(&fact.operation, Verb::SetPriority, of)
            }
            Asked::ResourceAsked(fact) => Self {
                by_slots: fact.by_requests,
                ..Self::new(&fact.operation, verb_of_ask(&fact.ask), Of::NamedResources)
            },
            Asked::OperationRefused(fact) => Self {
                operation: &fact.operation,
                verb: fact.verb,
                of: fact.job_set.as_ref().map_or(Of::Cell, Of::JobSet),
                by_slots: false,
                outcome: Some(OutcomeKind::Refused(fact.refusal.clone())),
            },
        }
    }
}

/// The operation that made an allocation has its number.
fn submit(allocation: AllocationNo) -> EventNo {
    EventNo(allocation.0)
}

impl Decided<'_> {
    /// The operation whose outcome it is, unless that was decided before.
    pub fn operation(self) -> EventNo {
        match self {
            Self::QuotaDenied(fact) => submit(fact.allocation),
            Self::QuotaWaiting(fact) => submit(fact.allocation),
            Self::AllocationPlaced(fact) => submit(fact.allocation),
            Self::AllocationWaiting(fact) => submit(fact.allocation),
            Self::AllocationEnded(fact) => submit(fact.allocation),
            Self::CancelDecided(fact) => fact.request,
            Self::JobSetCancelDecided(fact) => fact.request,
            Self::PriorityDecided(fact) => fact.request,
            Self::ResourceDecided(fact) => fact.request,
        }
    }

    /// Where a submit stood, when that is its outcome: what else there is to it is not copied.
    pub fn answer(self) -> Option<Answer> {
        match self {
            Self::QuotaWaiting(_) | Self::AllocationWaiting(_) => Some(Answer::Waiting),
            Self::AllocationPlaced(_) => Some(Answer::Placed),
            Self::AllocationEnded(_) => Some(Answer::Ended),
            Self::QuotaDenied(_)
            | Self::CancelDecided(_)
            | Self::JobSetCancelDecided(_)
            | Self::PriorityDecided(_)
            | Self::ResourceDecided(_) => None,
        }
    }

    pub fn outcome(self, at: &At) -> OutcomeKind {
        let submitted = |allocation, state| OutcomeKind::Submitted { allocation, state };
        match self {
            Self::QuotaDenied(fact) => OutcomeKind::Refused(fact.refusal.clone()),
            Self::QuotaWaiting(fact) => {
                let waiting = Waiting::for_quota(&fact.refusal);
                submitted(fact.allocation, SubmitState::Waiting(waiting))
            }
            Self::AllocationPlaced(fact) => {
                let (node, gpus) = (fact.node.clone(), fact.gpus.clone());
                submitted(fact.allocation, SubmitState::Placed { node, gpus })
            }
            Self::AllocationWaiting(fact) => {
                let waiting = Waiting::of(fact.reason);
                submitted(fact.allocation, SubmitState::Waiting(waiting))
            }
            Self::AllocationEnded(fact) => {
                let (cause, at) = (fact.cause, fact.at);
                submitted(fact.allocation, SubmitState::Ended { cause, at })
            }
            Self::CancelDecided(fact) => match fact.verdict {
                CancelVerdict::WasLive => OutcomeKind::Cancelled {
                    allocation: fact.allocation,
                },
                CancelVerdict::HadEnded => {
                    OutcomeKind::Refused(Refusal::new(Rule::AllocationEnded, "allocation_id"))
                }
            },
            Self::JobSetCancelDecided(fact) => OutcomeKind::JobSetCancelled {
                allocations: fact.allocations,
            },
            Self::PriorityDecided(fact) => match &fact.refusal {
                Some(refusal) => OutcomeKind::Refused(refusal.clone()),
                None => OutcomeKind::PrioritySet {
                    allocations: fact.allocations,
                },
            },
            Self::ResourceDecided(fact) => OutcomeKind::answered(&fact.answer, at.no),
        }
    }
}

impl OutcomeKind {
    /// A lease has the number of the event that granted it.
    fn answered(answer: &ResourceAnswer, no: EventNo) -> Self {
        match answer {
            ResourceAnswer::Created => Self::ResourceCreated,
            ResourceAnswer::Granted { deadline } => Self::Granted {
                lease: LeaseNo::of(no),
                deadline: *deadline,
            },
            ResourceAnswer::Confirmed => Self::Confirmed,
            ResourceAnswer::Released { fencing_token, .. } => Self::Released {
                fencing_token: *fencing_token,
            },
            ResourceAnswer::Revoked { fencing_token } => Self::Revoked {
                fencing_token: *fencing_token,
            },
            ResourceAnswer::Reclaimed { .. } => Self::Reclaimed,
            ResourceAnswer::Refused(refusal) => Self::Refused(refusal.clone()),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Submitted { state, .. } => state.answer().name(),
            Self::Cancelled { .. } => "cancelled",
            Self::JobSetCancelled { .. } => "job_set_cancelled",
            Self::PrioritySet { .. } => "priority_set",
            Self::Applied { .. } => "applied",
            Self::ResourceCreated => "created",
            Self::Granted { .. } => "granted",
            Self::Confirmed => "confirmed",
            Self::Released { .. } => "released",
            Self::Revoked { .. } => "revoked",
            Self::Reclaimed => "reclaimed",
            Self::Refused(_) => "refused",
            Self::Passes(_) => "passes",
        }
    }
}

impl SubmitState {
    pub fn answer(&self) -> Answer {
        match self {
            Self::Placed { .. } => Answer::Placed,
            Self::Waiting(_) => Answer::Waiting,
            Self::Ended { .. } => Answer::Ended,
        }
    }
}

impl Answer {
    pub const ALL: [Self; 3] = [Self::Placed, Self::Waiting, Self::Ended];

    pub fn name(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
        }
    }
}

impl Waiting {
    /// For a node, or for its turn.
    pub fn of(reason: WaitingReason) -> Self {
        Self {
            reason,
            quota: None,
        }
    }

    /// Before it holds quota.
    pub fn for_quota(refusal: &Refusal) -> Self {
        let reason = refusal.waiting_reason();
        let quota = (reason == WaitingReason::Quota).then(|| refusal.clone());
        Self { reason, quota }
    }
}

fn verb_of_ask(ask: &ResourceAsk) -> Verb {
    match ask {
        ResourceAsk::Create { .. } => Verb::CreateResource,
        ResourceAsk::Acquire { .. } => Verb::Acquire,
        ResourceAsk::Confirm { .. } => Verb::Confirm,
        ResourceAsk::Release { .. } => Verb::Release,
        ResourceAsk::Revoke { .. } => Verb::Revoke,
        ResourceAsk::Reclaim { .. } => Verb::Reclaim,
    }
}

fn verb_of_setting(set: SettingFact<'_>) -> Verb {
    match set {
        SettingFact::TenantSet(_) => Verb::SetTenant,
        SettingFact::QuotaSet(_) => Verb::SetQuota,
        SettingFact::RateSet(_) => Verb::SetRate,
        SettingFact::QueueSet(_) => Verb::SetQueue,
        SettingFact::PriorityClassSet(_) => Verb::SetPriorityClass,
        SettingFact::SchedulingSet(_) => Verb::SetScheduling,
        SettingFact::CordonSet(_) => Verb::SetCordon,
        SettingFact::ReservationSet(_) => Verb::SetReservation,
        SettingFact::BudgetSet(_) => Verb::SetBudget,
        SettingFact::NodeSet(_) => Verb::SetNode,
        SettingFact::PeriodClosed(_) => Verb::ClosePeriod,
        SettingFact::TaintsSet(_) => Verb::SetTaints,
    }
}
