//! What tenants are told: a pure fold of the ledger into outcomes and feed events.
//!
//! The feed of a tenant is complete: where each of its allocations stands follows from its events alone.

mod item;
mod operations;

pub use item::{FeedItem, FeedKind, FeedPosition, Outcome, OutcomeKind, SubmitState, Waiting};
use vocab::fact::{AllocationEnded, SettingFact};
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
    /// What the inbox has taken up, refused or forgotten.
    pub enum Asked {
        AllocationRequested,
        CancelRequested,
        JobSetCancelRequested,
        PriorityRequested,
        ResourceAsked,
        OperationRefused,
        OperationRepeated,
        OperationsForgotten,
    }
}

inputs! {
    /// What becomes of an allocation.
    pub enum Life {
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
    }
}

inputs! {
    /// What came of other requests, and of reservations.
    pub enum Decided {
        CancelDecided,
        JobSetCancelDecided,
        PriorityDecided,
        ResourceDecided,
        ReservationExpired,
    }
}

inputs! {
    pub enum Input {
        ..SettingFact,
        ..Asked,
        ..Life,
        ..Decided,
    }
}

impl Feed {
    fn asked(&mut self, at: &At, asked: Asked<'_>, out: &mut Vec<FeedItem>) {
        match asked {
            Asked::AllocationRequested(fact) => {
                self.requested(at, &fact.operation, &fact.spec, out);
            }
            Asked::CancelRequested(fact) => {
                let job_set = self.job_set_of(fact.allocation);
                (self.operations).open(at.no, &fact.operation, job_set, false);
            }
            Asked::JobSetCancelRequested(fact) => {
                let job_set = fact.job_set.clone();
                (self.operations).open(at.no, &fact.operation, job_set, false);
            }
            Asked::PriorityRequested(fact) => {
                let job_set = match &fact.target {
                    PriorityTarget::Allocation(allocation) => self.job_set_of(*allocation),
                    PriorityTarget::JobSet(job_set) => job_set.clone(),
                };
                (self.operations).open(at.no, &fact.operation, job_set, false);
            }
            Asked::ResourceAsked(fact) => {
                let (operation, by_slots) = (&fact.operation, fact.by_requests);
                (self.operations).open(at.no, operation, of_reservations(), by_slots);
            }
            Asked::OperationRefused(fact) => {
                let job_set = fact.job_set.clone().unwrap_or_else(no_job_set);
                (self.operations).open(at.no, &fact.operation, job_set, false);
                self.answer(at, at.no, OutcomeKind::Refused(fact.refusal.clone()), out);
            }
            Asked::OperationRepeated(fact) => {
                if let Some(reply_to) = &fact.reply_to {
                    self.repeat(at, &fact.tenant, fact.original, reply_to, out);
                }
            }
            Asked::OperationsForgotten(fact) => {
                (self.operations).forget(fact.through, fact.slots_of.as_ref());
            }
        }
    }

    fn lives(&mut self, at: &At, life: Life<'_>, out: &mut Vec<FeedItem>) {
        match life {
            Life::QuotaWaiting(fact) => {
                self.waits(at, fact.allocation, Waiting::for_quota(&fact.refusal), out);
            }
            Life::QuotaDenied(fact) => {
                let (allocation, refusal) = (fact.allocation, &fact.refusal);
                let kind = OutcomeKind::Refused(refusal.clone());
                if !self.answer(at, EventNo(allocation.0), kind, out) {
                    self.tell(at, allocation, FeedKind::Denied(refusal.clone()), out);
                }
                self.live.remove(&allocation);
            }
            Life::AllocationPlaced(fact) => {
                let (node, gpus) = (fact.node.clone(), fact.gpus.clone());
                let state = SubmitState::Placed {
                    node: node.clone(),
                    gpus: gpus.clone(),
                };
                self.submitted(at, fact.allocation, state, out);
                let placed = FeedKind::Placed { node, gpus };
                self.tell(at, fact.allocation, placed, out);
            }
            Life::AllocationWaiting(fact) => {
                self.waits(at, fact.allocation, Waiting::of(fact.reason), out);
            }
            Life::AllocationReprioritised(fact) => {
                let changed = FeedKind::PriorityChanged(fact.priority);
                self.tell(at, fact.allocation, changed, out);
            }
            Life::AllocationStarted(fact) => {
                self.runs(fact.allocation, Some(fact.at));
                let started = FeedKind::Started { at: fact.at };
                self.tell(at, fact.allocation, started, out);
            }
            Life::AllocationStopping(fact) => {
                self.tell(at, fact.allocation, FeedKind::Stopping, out);
            }
            // By whom is not told: it may be another tenant's.
            Life::AllocationPreempted(fact) => {
                let preempted = FeedKind::Preempted {
                    cause: fact.cause,
                    grace_until: fact.grace_until,
                };
                self.tell(at, fact.allocation, preempted, out);
            }
            Life::AllocationRequeued(fact) => {
                self.runs(fact.allocation, None);
                let requeued = FeedKind::Requeued {
                    cause: fact.cause,
                    at: fact.at,
                    not_before: fact.not_before,
                };
                self.tell(at, fact.allocation, requeued, out);
            }
            Life::AllocationEnded(fact) => self.ended(at, fact, out),
        }
    }

    fn ended(&mut self, at: &At, fact: &AllocationEnded, out: &mut Vec<FeedItem>) {
        let (allocation, cause, moment) = (fact.allocation, fact.cause, fact.at);
        let state = SubmitState::Ended { cause, at: moment };
        self.submitted(at, allocation, state, out);
        let started = self.live.get(&allocation).and_then(|told| told.started);
        let ended = FeedKind::Ended {
            cause,
            started,
            at: moment,
        };
        self.tell(at, allocation, ended, out);
        self.live.remove(&allocation);
    }

    fn decided(&mut self, at: &At, fact: Decided<'_>, out: &mut Vec<FeedItem>) {
        let (request, kind) = match fact {
            Decided::CancelDecided(fact) => {
                let allocation = fact.allocation;
                let kind = match fact.verdict {
                    CancelVerdict::WasLive => OutcomeKind::Cancelled { allocation },
                    CancelVerdict::HadEnded => {
                        OutcomeKind::Refused(Refusal::new(Rule::AllocationEnded, "allocation_id"))
                    }
                };
                (fact.request, kind)
            }
            Decided::JobSetCancelDecided(fact) => {
                let allocations = fact.allocations;
                (fact.request, OutcomeKind::JobSetCancelled { allocations })
            }
            Decided::PriorityDecided(fact) => {
                let allocations = fact.allocations;
                let kind = match &fact.refusal {
                    Some(refusal) => OutcomeKind::Refused(refusal.clone()),
                    None => OutcomeKind::PrioritySet { allocations },
                };
                (fact.request, kind)
            }
            Decided::ResourceDecided(fact) => (fact.request, decided(at, &fact.answer)),
            Decided::ReservationExpired(fact) => {
                let (reservation, epoch) = (fact.reservation, fact.epoch);
                out.push(FeedItem {
                    position: position(at, true),
                    now: at.now,
                    tenant: fact.tenant.clone(),
                    job_set: of_reservations(),
                    allocation: None,
                    name: None,
                    kind: FeedKind::Expired { reservation, epoch },
                    reply_to: Vec::new(),
                    in_feed: true,
                });
                return;
            }
        };
        self.answer(at, request, kind, out);
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
            Input::Asked(asked) => self.asked(at, asked, out),
            Input::Life(life) => self.lives(at, life, out),
            Input::Decided(fact) => self.decided(at, fact, out),
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
