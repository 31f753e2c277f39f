//! What tenants are told: a pure fold of the ledger into outcomes and feed events.
//!
//! The feed of a tenant is complete: where each of its allocations stands follows from its events alone.

mod item;
mod operations;

pub use item::{FeedItem, FeedKind, FeedPosition, Outcome, OutcomeKind, SubmitState, Waiting};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationPreempted, AllocationReprioritised,
    AllocationRequested, AllocationRequeued, AllocationStarted, AllocationStopping,
    AllocationWaiting, CancelDecided, CancelRequested, JobSetCancelDecided, JobSetCancelRequested,
    OperationRefused, OperationRepeated, OperationsForgotten, PriorityDecided, PriorityRequested,
    QuotaDenied, QuotaWaiting, ReservationExpired, ResourceAsked, ResourceDecided, SettingFact,
};
use vocab::inputs;

use crate::domain::is_kept;
use ledger::{IllegalEvent, Projection};
use operations::{Operations, Repeated};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    AllocationNo, AllocationSpec, At, CancelVerdict, EventNo, Lsn, Millis, Operation,
    PriorityTarget, Refusal, ReservationNo, ResourceAnswer, Rule, Token,
};

/// State of the fold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    live: BTreeMap<AllocationNo, Told>,
    operations: Operations,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    tenant: Token,
    job_set: Token,
    name: Option<Token>,
    /// The run that is not over.
    started: Option<Millis>,
}

/// The job set of what belongs to none. A tenant cannot take this name by accident: it begins with `_`, and even if it
/// does, it is its own feed.
fn no_job_set() -> Token {
    // A literal of the token's alphabet.
    Token::new("_none").expect("a token")
}

/// Where outcomes and expiries of named resources are told.
fn of_reservations() -> Token {
    // A literal of the token's alphabet.
    Token::new("_reservations").expect("a token")
}

/// Two feed positions belong to each ledger event: its outcome, and what it says of the allocation.
fn position(at: &At, second: bool) -> FeedPosition {
    FeedPosition {
        lsn: at.lsn,
        index: at.index * 2 + u32::from(second),
    }
}

/// The outcome of what was asked about named resources.
fn decided(at: &At, answer: &ResourceAnswer) -> OutcomeKind {
    match answer {
        ResourceAnswer::Created => OutcomeKind::ResourceCreated,
        ResourceAnswer::Reserved { deadline } => OutcomeKind::Reserved {
            reservation: ReservationNo::of(at.no),
            deadline: *deadline,
        },
        ResourceAnswer::Confirmed => OutcomeKind::Confirmed,
        ResourceAnswer::Released { epoch, .. } => OutcomeKind::Released { epoch: *epoch },
        ResourceAnswer::Revoked { epoch } => OutcomeKind::Revoked { epoch: *epoch },
        ResourceAnswer::Reclaimed { .. } => OutcomeKind::Reclaimed,
        ResourceAnswer::Refused(refusal) => OutcomeKind::Refused(refusal.clone()),
    }
}

impl Feed {
    fn job_set_of(&self, allocation: AllocationNo) -> Token {
        let told = self.live.get(&allocation);
        told.map_or_else(no_job_set, |told| told.job_set.clone())
    }

    fn requested(
        &mut self,
        at: &At,
        operation: &Operation,
        spec: &AllocationSpec,
        out: &mut Vec<FeedItem>,
    ) {
        let job_set = spec.job_set.clone();
        self.operations.open(at.no, operation, job_set, false);
        let told = Told {
            tenant: operation.tenant.clone(),
            job_set: spec.job_set.clone(),
            name: spec.name.clone(),
            started: None,
        };
        let allocation = AllocationNo(at.no.0);
        self.live.insert(allocation, told);
        let requested = FeedKind::Requested(Box::new(spec.clone()));
        self.tell(at, allocation, requested, out);
    }

    /// Answers operation `no`, unless it was answered before.
    fn answer(&mut self, at: &At, no: EventNo, kind: OutcomeKind, out: &mut Vec<FeedItem>) -> bool {
        let Some(mut open) = self.operations.close(no) else {
            return false;
        };
        let allocation = match &kind {
            OutcomeKind::Submitted { allocation, .. } | OutcomeKind::Cancelled { allocation } => {
                Some(*allocation)
            }
            // A submit that quota has denied was an allocation for a moment.
            OutcomeKind::Refused(_) => {
                let allocation = AllocationNo(no.0);
                self.live.contains_key(&allocation).then_some(allocation)
            }
            OutcomeKind::JobSetCancelled { .. }
            | OutcomeKind::PrioritySet { .. }
            | OutcomeKind::Applied { .. }
            | OutcomeKind::ResourceCreated
            | OutcomeKind::Reserved { .. }
            | OutcomeKind::Confirmed
            | OutcomeKind::Released { .. }
            | OutcomeKind::Revoked { .. }
            | OutcomeKind::Reclaimed => None,
        };
        let kept = !matches!(&kind, OutcomeKind::Refused(refusal) if !is_kept(refusal.rule));
        let outcome = Outcome {
            operation_id: open.operation_id.clone(),
            lsn: at.lsn,
            kind,
        };
        if kept {
            self.operations.keep(no, &open, outcome.clone());
        }
        out.push(FeedItem {
            position: position(at, false),
            now: at.now,
            tenant: open.tenant,
            job_set: open.job_set,
            allocation,
            name: allocation.and_then(|a| self.live.get(&a)?.name.clone()),
            kind: FeedKind::Outcome(outcome),
            reply_to: std::mem::take(&mut open.reply_to),
            in_feed: true,
        });
        true
    }

    /// Tells what happened to an allocation.
    fn tell(&self, at: &At, allocation: AllocationNo, kind: FeedKind, out: &mut Vec<FeedItem>) {
        let Some(told) = self.live.get(&allocation) else {
            return;
        };
        out.push(FeedItem {
            position: position(at, true),
            now: at.now,
            tenant: told.tenant.clone(),
            job_set: told.job_set.clone(),
            allocation: Some(allocation),
            name: told.name.clone(),
            kind,
            reply_to: Vec::new(),
            in_feed: true,
        });
    }

    fn repeat(
        &mut self,
        at: &At,
        tenant: &Token,
        original: EventNo,
        reply_to: &Token,
        out: &mut Vec<FeedItem>,
    ) {
        match self.operations.repeat(tenant, original, reply_to) {
            Repeated::Open | Repeated::Forgotten => {}
            Repeated::Decided(outcome) => out.push(FeedItem {
                position: position(at, false),
                now: at.now,
                tenant: tenant.clone(),
                job_set: no_job_set(),
                allocation: None,
                name: None,
                kind: FeedKind::Outcome(outcome.clone()),
                reply_to: vec![reply_to.clone()],
                in_feed: false,
            }),
        }
    }

    fn submitted(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        state: SubmitState,
        out: &mut Vec<FeedItem>,
    ) {
        let kind = OutcomeKind::Submitted { allocation, state };
        self.answer(at, EventNo(allocation.0), kind, out);
    }

    fn waits(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        waiting: Waiting,
        out: &mut Vec<FeedItem>,
    ) {
        let state = SubmitState::Waiting(waiting.clone());
        self.submitted(at, allocation, state, out);
        self.tell(at, allocation, FeedKind::Waiting(waiting), out);
    }

    /// A run has begun, or is over.
    fn runs(&mut self, allocation: AllocationNo, started: Option<Millis>) {
        if let Some(told) = self.live.get_mut(&allocation) {
            told.started = started;
        }
    }
}

inputs! {
    pub enum Input {
        ..SettingFact,
        AllocationRequested,
        CancelRequested,
        JobSetCancelRequested,
        PriorityRequested,
        ResourceAsked,
        OperationRefused,
        OperationRepeated,
        OperationsForgotten,
        QuotaWaiting,
        QuotaDenied,
        AllocationPlaced,
        AllocationWaiting,
        AllocationReprioritised,
        AllocationStarted,
        AllocationStopping,
        AllocationPreempted,
        AllocationRequeued,
        AllocationEnded,
        CancelDecided,
        JobSetCancelDecided,
        PriorityDecided,
        ResourceDecided,
        ReservationExpired,
    }
}

impl Projection for Feed {
    type Change = FeedItem;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "feed";
    const STATE_VERSION: u32 = 2;

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<FeedItem>,
    ) -> Result<(), IllegalEvent> {
        match input {
            Input::SettingFact(set) => {
                let (operation, version) = set.asked();
                self.operations.open(at.no, operation, no_job_set(), false);
                self.answer(at, at.no, OutcomeKind::Applied { version }, out);
            }
            Input::AllocationRequested(AllocationRequested { operation, spec }) => {
                self.requested(at, operation, spec, out);
            }
            Input::CancelRequested(CancelRequested {
                operation,
                allocation,
            }) => {
                let job_set = self.job_set_of(*allocation);
                self.operations.open(at.no, operation, job_set, false);
            }
            Input::JobSetCancelRequested(JobSetCancelRequested { operation, job_set }) => {
                self.operations
                    .open(at.no, operation, job_set.clone(), false);
            }
            Input::PriorityRequested(PriorityRequested {
                operation,
                target,
                priority: _,
            }) => {
                let job_set = match target {
                    PriorityTarget::Allocation(allocation) => self.job_set_of(*allocation),
                    PriorityTarget::JobSet(job_set) => job_set.clone(),
                };
                self.operations.open(at.no, operation, job_set, false);
            }
            Input::ResourceAsked(ResourceAsked {
                operation,
                by_requests,
                slot: _,
                ask: _,
            }) => {
                self.operations
                    .open(at.no, operation, of_reservations(), *by_requests);
            }
            Input::OperationRefused(OperationRefused {
                operation,
                job_set,
                refusal,
            }) => {
                let job_set = job_set.clone().unwrap_or_else(no_job_set);
                self.operations.open(at.no, operation, job_set, false);
                self.answer(at, at.no, OutcomeKind::Refused(refusal.clone()), out);
            }
            Input::OperationRepeated(OperationRepeated {
                tenant,
                original,
                reply_to,
            }) => {
                if let Some(reply_to) = reply_to {
                    self.repeat(at, tenant, *original, reply_to, out);
                }
            }
            Input::OperationsForgotten(OperationsForgotten {
                through, slots_of, ..
            }) => {
                self.operations.forget(*through, slots_of.as_ref());
            }
            Input::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal,
            }) => self.waits(at, *allocation, Waiting::for_quota(refusal), out),
            Input::QuotaDenied(QuotaDenied {
                allocation,
                refusal,
            }) => {
                let kind = OutcomeKind::Refused(refusal.clone());
                if !self.answer(at, EventNo(allocation.0), kind, out) {
                    self.tell(at, *allocation, FeedKind::Denied(refusal.clone()), out);
                }
                self.live.remove(allocation);
            }
            Input::AllocationPlaced(AllocationPlaced {
                allocation,
                node,
                gpus,
                ..
            }) => {
                let (node, gpus) = (node.clone(), gpus.clone());
                let state = SubmitState::Placed {
                    node: node.clone(),
                    gpus: gpus.clone(),
                };
                self.submitted(at, *allocation, state, out);
                self.tell(at, *allocation, FeedKind::Placed { node, gpus }, out);
            }
            Input::AllocationWaiting(AllocationWaiting {
                allocation, reason, ..
            }) => self.waits(at, *allocation, Waiting::of(*reason), out),
            Input::AllocationReprioritised(AllocationReprioritised {
                allocation,
                priority,
            }) => self.tell(at, *allocation, FeedKind::PriorityChanged(*priority), out),
            Input::AllocationStarted(AllocationStarted {
                allocation,
                at: moment,
            }) => {
                self.runs(*allocation, Some(*moment));
                self.tell(at, *allocation, FeedKind::Started { at: *moment }, out);
            }
            Input::AllocationStopping(AllocationStopping { allocation }) => {
                self.tell(at, *allocation, FeedKind::Stopping, out);
            }
            Input::AllocationPreempted(AllocationPreempted {
                allocation,
                cause,
                grace_until,
                // Whoever it is, it may be another tenant's.
                by: _,
            }) => {
                let (cause, grace_until) = (*cause, *grace_until);
                let preempted = FeedKind::Preempted { cause, grace_until };
                self.tell(at, *allocation, preempted, out);
            }
            Input::AllocationRequeued(AllocationRequeued {
                allocation,
                cause,
                at: moment,
                not_before,
            }) => {
                self.runs(*allocation, None);
                let requeued = FeedKind::Requeued {
                    cause: *cause,
                    at: *moment,
                    not_before: *not_before,
                };
                self.tell(at, *allocation, requeued, out);
            }
            Input::AllocationEnded(AllocationEnded {
                allocation,
                cause,
                at: moment,
            }) => {
                let (cause, moment) = (*cause, *moment);
                let state = SubmitState::Ended { cause, at: moment };
                self.submitted(at, *allocation, state, out);
                let started = self.live.get(allocation).and_then(|told| told.started);
                let ended = FeedKind::Ended {
                    cause,
                    started,
                    at: moment,
                };
                self.tell(at, *allocation, ended, out);
                self.live.remove(allocation);
            }
            Input::CancelDecided(CancelDecided {
                request,
                allocation,
                verdict,
            }) => {
                let kind = match verdict {
                    CancelVerdict::WasLive => OutcomeKind::Cancelled {
                        allocation: *allocation,
                    },
                    CancelVerdict::HadEnded => {
                        OutcomeKind::Refused(Refusal::new(Rule::AllocationEnded, "allocation_id"))
                    }
                };
                self.answer(at, *request, kind, out);
            }
            Input::JobSetCancelDecided(JobSetCancelDecided {
                request,
                allocations,
            }) => {
                let allocations = *allocations;
                self.answer(
                    at,
                    *request,
                    OutcomeKind::JobSetCancelled { allocations },
                    out,
                );
            }
            Input::PriorityDecided(PriorityDecided {
                request,
                allocations,
                refusal,
            }) => {
                let kind = match refusal {
                    Some(refusal) => OutcomeKind::Refused(refusal.clone()),
                    None => OutcomeKind::PrioritySet {
                        allocations: *allocations,
                    },
                };
                self.answer(at, *request, kind, out);
            }
            Input::ResourceDecided(ResourceDecided { request, answer }) => {
                self.answer(at, *request, decided(at, answer), out);
            }
            Input::ReservationExpired(ReservationExpired {
                tenant,
                reservation,
                epoch,
                ..
            }) => out.push(FeedItem {
                position: position(at, true),
                now: at.now,
                tenant: tenant.clone(),
                job_set: of_reservations(),
                allocation: None,
                name: None,
                kind: FeedKind::Expired {
                    reservation: *reservation,
                    epoch: *epoch,
                },
                reply_to: Vec::new(),
                in_feed: true,
            }),
        }
        Ok(())
    }
}

/// Refused before anything was recorded.
pub(crate) fn turned_away(operation_id: Option<Token>, refusal: Refusal) -> Outcome {
    Outcome {
        operation_id,
        lsn: Lsn(0),
        kind: OutcomeKind::Refused(refusal),
    }
}

#[cfg(test)]
mod tests;
