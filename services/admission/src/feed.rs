//! What tenants are told: a pure fold of the ledger into outcomes and feed events.

use crate::domain::is_kept;
use ledger::{IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    AllocationNo, At, CancelVerdict, EndCause, Event, EventNo, GpuShare, Lsn, Millis, Operation,
    PreemptionCause, Refusal, Rule, Token, WaitingReason,
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
    Placed {
        node: Token,
        gpus: Vec<GpuShare>,
    },
    Waiting(WaitingReason),
    Started {
        at: Millis,
    },
    Stopping,
    Ended {
        cause: EndCause,
        /// Of the last run.
        started: Option<Millis>,
        at: Millis,
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
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub operation_id: Option<Token>,
    /// Where it was decided.
    pub lsn: Lsn,
    pub kind: OutcomeKind,
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
    Applied {
        version: u64,
    },
    Refused(Refusal),
}

/// Where an allocation stood when its request was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubmitState {
    Placed { node: Token, gpus: Vec<GpuShare> },
    Waiting(WaitingReason),
    Ended { cause: EndCause, at: Millis },
}

/// State of the fold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    live: BTreeMap<AllocationNo, Told>,
    /// Operations without an outcome, by the number of the event that took them up.
    open: BTreeMap<EventNo, Open>,
    /// Outcomes within the retention window.
    outcomes: BTreeMap<EventNo, Outcome>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    tenant: Token,
    job_set: Token,
    name: Option<Token>,
    /// The run that is not over.
    started: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    tenant: Token,
    job_set: Token,
    operation_id: Option<Token>,
    reply_to: Vec<Token>,
}

/// The job set of what belongs to none. A tenant cannot take this name by accident: it begins with `_`, and even if it
/// does, it is its own feed.
fn no_job_set() -> Token {
    // A literal of the token's alphabet.
    Token::new("_none").expect("a token")
}

/// Two feed positions belong to each ledger event: its outcome, and what it says of the allocation.
fn position(at: &At, second: bool) -> FeedPosition {
    FeedPosition {
        lsn: at.lsn,
        index: at.index * 2 + u32::from(second),
    }
}

impl Feed {
    fn open(&mut self, no: EventNo, operation: &Operation, job_set: Token) {
        let open = Open {
            tenant: operation.tenant.clone(),
            job_set,
            operation_id: operation.operation_id.clone(),
            reply_to: operation.reply_to.iter().cloned().collect(),
        };
        self.open.insert(no, open);
    }

    /// Answers operation `no`, unless it was answered before.
    fn answer(&mut self, at: &At, no: EventNo, kind: OutcomeKind, out: &mut Vec<FeedItem>) {
        let Some(open) = self.open.remove(&no) else {
            return;
        };
        let allocation = match &kind {
            OutcomeKind::Submitted { allocation, .. } | OutcomeKind::Cancelled { allocation } => {
                Some(*allocation)
            }
            OutcomeKind::Applied { .. } => None,
            // A submit that quota has denied was an allocation for a moment.
            OutcomeKind::Refused(_) => {
                let allocation = AllocationNo(no.0);
                self.live.contains_key(&allocation).then_some(allocation)
            }
        };
        let kept = !matches!(&kind, OutcomeKind::Refused(refusal) if !is_kept(refusal.rule));
        let outcome = Outcome {
            operation_id: open.operation_id,
            lsn: at.lsn,
            kind,
        };
        if kept {
            self.outcomes.insert(no, outcome.clone());
        }
        let name = allocation.and_then(|a| self.live.get(&a)?.name.clone());
        out.push(FeedItem {
            position: position(at, false),
            now: at.now,
            tenant: open.tenant,
            job_set: open.job_set,
            allocation,
            name,
            kind: FeedKind::Outcome(outcome),
            reply_to: open.reply_to,
            in_feed: true,
        });
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
        if let Some(open) = self.open.get_mut(&original) {
            open.reply_to.push(reply_to.clone());
        } else if let Some(outcome) = self.outcomes.get(&original) {
            out.push(FeedItem {
                position: position(at, false),
                now: at.now,
                tenant: tenant.clone(),
                job_set: no_job_set(),
                allocation: None,
                name: None,
                kind: FeedKind::Outcome(outcome.clone()),
                reply_to: vec![reply_to.clone()],
                in_feed: false,
            });
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
}

impl Projection for Feed {
    type Change = FeedItem;

    const NAME: &'static str = "feed";
    const STATE_VERSION: u32 = 1;

    fn project(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<FeedItem>,
    ) -> Result<(), IllegalEvent> {
        match event {
            Event::AdminApplied {
                operation, version, ..
            } => {
                self.open(at.no, operation, no_job_set());
                self.answer(at, at.no, OutcomeKind::Applied { version: *version }, out);
            }
            Event::AllocationRequested { operation, spec } => {
                self.open(at.no, operation, spec.job_set.clone());
                let told = Told {
                    tenant: operation.tenant.clone(),
                    job_set: spec.job_set.clone(),
                    name: spec.name.clone(),
                    started: None,
                };
                self.live.insert(AllocationNo(at.no.0), told);
            }
            Event::CancelRequested {
                operation,
                allocation,
            } => {
                let told = self.live.get(allocation);
                let job_set = told.map_or_else(no_job_set, |told| told.job_set.clone());
                self.open(at.no, operation, job_set);
            }
            Event::OperationRefused {
                operation,
                job_set,
                refusal,
            } => {
                let job_set = job_set.clone().unwrap_or_else(no_job_set);
                self.open(at.no, operation, job_set);
                self.answer(at, at.no, OutcomeKind::Refused(refusal.clone()), out);
            }
            Event::OperationRepeated {
                tenant,
                original,
                reply_to,
            } => {
                if let Some(reply_to) = reply_to {
                    self.repeat(at, tenant, *original, reply_to, out);
                }
            }
            Event::OperationsForgotten { through } => {
                self.outcomes = self.outcomes.split_off(&EventNo(through.0 + 1));
            }
            Event::QuotaDenied {
                allocation,
                refusal,
            } => {
                let kind = OutcomeKind::Refused(refusal.clone());
                self.answer(at, EventNo(allocation.0), kind, out);
                self.live.remove(allocation);
            }
            Event::AllocationPlaced {
                allocation,
                node,
                gpus,
                ..
            } => {
                let (node, gpus) = (node.clone(), gpus.clone());
                let state = SubmitState::Placed {
                    node: node.clone(),
                    gpus: gpus.clone(),
                };
                self.submitted(at, *allocation, state, out);
                self.tell(at, *allocation, FeedKind::Placed { node, gpus }, out);
            }
            Event::AllocationWaiting {
                allocation, reason, ..
            } => {
                self.submitted(at, *allocation, SubmitState::Waiting(*reason), out);
                self.tell(at, *allocation, FeedKind::Waiting(*reason), out);
            }
            Event::AllocationStarted {
                allocation,
                at: moment,
            } => {
                if let Some(told) = self.live.get_mut(allocation) {
                    told.started = Some(*moment);
                }
                self.tell(at, *allocation, FeedKind::Started { at: *moment }, out);
            }
            Event::AllocationStopping { allocation } => {
                self.tell(at, *allocation, FeedKind::Stopping, out);
            }
            Event::AllocationPreempted {
                allocation,
                cause,
                grace_until,
                // Whoever it is, it may be another tenant's.
                by: _,
            } => {
                let (cause, grace_until) = (*cause, *grace_until);
                let preempted = FeedKind::Preempted { cause, grace_until };
                self.tell(at, *allocation, preempted, out);
            }
            Event::AllocationRequeued {
                allocation,
                cause,
                at: moment,
                not_before,
            } => {
                if let Some(told) = self.live.get_mut(allocation) {
                    told.started = None;
                }
                let requeued = FeedKind::Requeued {
                    cause: *cause,
                    at: *moment,
                    not_before: *not_before,
                };
                self.tell(at, *allocation, requeued, out);
            }
            Event::AllocationEnded {
                allocation,
                cause,
                at: moment,
            } => {
                let (cause, moment) = (*cause, *moment);
                self.submitted(
                    at,
                    *allocation,
                    SubmitState::Ended { cause, at: moment },
                    out,
                );
                let started = self.live.get(allocation).and_then(|told| told.started);
                let ended = FeedKind::Ended {
                    cause,
                    started,
                    at: moment,
                };
                self.tell(at, *allocation, ended, out);
                self.live.remove(allocation);
            }
            Event::CancelDecided {
                request,
                allocation,
                verdict,
            } => {
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
            // Nothing that a tenant is told.
            Event::AllocationNominated { .. }
            | Event::LineExplained { .. }
            | Event::ReservationDecided { .. }
            | Event::QuotaReserved { .. }
            | Event::QuotaReleased { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
