//! What tenants are told: a pure fold of the ledger into outcomes and feed events.
//!
//! The feed of a tenant is complete: where each of its allocations stands follows from its events alone.

mod item;
mod operations;

pub use item::{FeedItem, FeedKind, FeedPosition, Outcome};

use crate::operation::{Decided, Of, OperationFact, OutcomeKind, Step, Taken, Waiting};
use admission_rules::is_kept;
use ledger::{IllegalEvent, Projection};
use operations::{Open, Operations, Repeated};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vocab::fact::{AllocationEnded, LeaseExpired, OperationRepeated};
use vocab::inputs;
use vocab::{
    AllocationNo, AllocationSpec, At, EncodedSpecs, EventNo, Lsn, Millis, Numbered, Refusal,
    Shared, Token,
};

/// State of the fold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    live: Numbered<AllocationNo, Told>,
    operations: Operations,
    #[serde(skip)]
    alike: Alike,
}

/// What many allocations have in common lies in memory once.
#[derive(Debug, Clone, Default)]
struct Alike {
    feeds: Shared<(Token, Token)>,
    specs: EncodedSpecs,
}

/// Nothing that is told depends on it.
impl PartialEq for Alike {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Alike {}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    /// The tenant and the job set.
    feed: Arc<(Token, Token)>,
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
fn of_leases() -> Token {
    // A literal of the token's alphabet.
    Token::new("_leases").expect("a token")
}

/// Two feed positions belong to each ledger event: its outcome, and what it says of the allocation.
fn position(at: &At, second: bool) -> FeedPosition {
    FeedPosition {
        lsn: at.lsn,
        index: at.index * 2 + u32::from(second),
    }
}

impl Feed {
    fn job_set_of(&self, allocation: AllocationNo) -> Token {
        let told = self.live.get(&allocation);
        told.map_or_else(no_job_set, |told| told.feed.1.clone())
    }

    fn job_set(&self, of: Of<'_>) -> Token {
        match of {
            Of::New(spec) => spec.job_set.clone(),
            Of::Allocation(allocation) => self.job_set_of(allocation),
            Of::JobSet(job_set) => job_set.clone(),
            Of::NamedResources => of_leases(),
            Of::Cell => no_job_set(),
        }
    }

    fn took_up(&mut self, at: &At, taken: Taken<'_>, out: &mut Vec<FeedItem>) {
        let (operation, job_set) = (taken.operation, self.job_set(taken.of));
        let open = Open::of(operation, job_set, taken.by_slots);
        match taken.outcome {
            Some(outcome) => self.answer(at, at.no, open, outcome, out),
            None => self.operations.open(at.no, open),
        }
        if let Of::New(spec) = taken.of {
            self.requested(at, &operation.tenant, spec, out);
        }
    }

    fn requested(
        &mut self,
        at: &At,
        tenant: &Token,
        spec: &AllocationSpec,
        out: &mut Vec<FeedItem>,
    ) {
        let feed = (tenant.clone(), spec.job_set.clone());
        let told = Told {
            feed: (self.alike.feeds).of(&feed, |feed| Arc::new(feed.clone())),
            name: spec.name.clone(),
            started: None,
        };
        let allocation = AllocationNo(at.no.0);
        self.live.insert(allocation, told);
        let qos = spec.qos();
        // Who has asked for it knows what it runs, and a payload may be large.
        let spec = match spec.work.is_some() {
            true => self.alike.specs.of(&AllocationSpec {
                work: None,
                ..spec.clone()
            }),
            false => self.alike.specs.of(spec),
        };
        let requested = FeedKind::Requested { spec, qos };
        self.tell(at, allocation, requested, out);
    }

    /// Answers operation `no`.
    fn answer(
        &mut self,
        at: &At,
        no: EventNo,
        mut open: Open,
        kind: OutcomeKind,
        out: &mut Vec<FeedItem>,
    ) {
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
            | OutcomeKind::Granted { .. }
            | OutcomeKind::Confirmed
            | OutcomeKind::Released { .. }
            | OutcomeKind::Revoked { .. }
            | OutcomeKind::Reclaimed
            | OutcomeKind::Passes(_) => None,
        };
        let kept = !matches!(&kind, OutcomeKind::Refused(refusal) if !is_kept(refusal.rule));
        let outcome = Outcome {
            operation_id: open.operation_id.take(),
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
            tenant: told.feed.0.clone(),
            job_set: told.feed.1.clone(),
            allocation: Some(allocation),
            name: told.name.clone(),
            kind,
            reply_to: Vec::new(),
            in_feed: true,
        });
    }

    fn repeated(&mut self, at: &At, fact: &OperationRepeated, out: &mut Vec<FeedItem>) {
        let Some(reply_to) = &fact.reply_to else {
            return;
        };
        match self
            .operations
            .repeat(&fact.tenant, fact.original, reply_to)
        {
            Repeated::Open | Repeated::Forgotten => {}
            Repeated::Decided(outcome) => out.push(FeedItem {
                position: position(at, false),
                now: at.now,
                tenant: fact.tenant.clone(),
                job_set: no_job_set(),
                allocation: None,
                name: None,
                kind: FeedKind::Outcome(outcome.clone()),
                reply_to: vec![reply_to.clone()],
                in_feed: false,
            }),
        }
    }

    /// A run has begun, or is over.
    fn runs(&mut self, allocation: AllocationNo, started: Option<Millis>) {
        if let Some(told) = self.live.get_mut(&allocation) {
            told.started = started;
        }
    }
}

inputs! {
    /// What becomes of an allocation, and decides nothing that was asked.
    pub enum Life {
        AllocationReprioritised,
        AllocationStarted,
        AllocationStopping,
        AllocationPreempted,
        AllocationRequeued,
    }
}

inputs! {
    pub enum Input {
        ..OperationFact,
        ..Life,
        OperationRepeated,
        LeaseExpired,
    }
}

impl Feed {
    /// The first decision is the operation's outcome; of an allocation, each one is told.
    fn decided(&mut self, at: &At, decided: Decided<'_>, out: &mut Vec<FeedItem>) {
        let no = decided.operation();
        let open = self.operations.close(no);
        let answers = open.is_some();
        if let Some(open) = open {
            self.answer(at, no, open, decided.outcome(at), out);
        }
        match decided {
            Decided::QuotaWaiting(fact) => {
                let waiting = FeedKind::Waiting(Waiting::for_quota(&fact.refusal));
                self.tell(at, fact.allocation, waiting, out);
            }
            Decided::QuotaDenied(fact) => {
                if !answers {
                    let denied = FeedKind::Denied(fact.refusal.clone());
                    self.tell(at, fact.allocation, denied, out);
                }
                self.live.remove(&fact.allocation);
            }
            Decided::AllocationPlaced(fact) => {
                let (node, gpus) = (fact.node.clone(), fact.gpus.clone());
                self.tell(at, fact.allocation, FeedKind::Placed { node, gpus }, out);
            }
            Decided::AllocationWaiting(fact) => {
                let waiting = FeedKind::Waiting(Waiting::of(fact.reason));
                self.tell(at, fact.allocation, waiting, out);
            }
            Decided::AllocationEnded(fact) => self.ended(at, fact, out),
            Decided::CancelDecided(_)
            | Decided::JobSetCancelDecided(_)
            | Decided::PriorityDecided(_)
            | Decided::ResourceDecided(_) => {}
        }
    }

    fn ended(&mut self, at: &At, fact: &AllocationEnded, out: &mut Vec<FeedItem>) {
        let (allocation, cause, moment) = (fact.allocation, fact.cause, fact.at);
        let started = self.live.get(&allocation).and_then(|told| told.started);
        let ended = FeedKind::Ended {
            cause,
            started,
            at: moment,
            exit: fact.exit,
        };
        self.tell(at, allocation, ended, out);
        self.live.remove(&allocation);
    }

    fn lives(&mut self, at: &At, life: Life<'_>, out: &mut Vec<FeedItem>) {
        match life {
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
                let time_limit = fact.time_limit;
                self.tell(at, fact.allocation, FeedKind::Stopping { time_limit }, out);
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
                    exit: fact.exit,
                };
                self.tell(at, fact.allocation, requeued, out);
            }
        }
    }
}

/// Nobody has asked for it, so it is told and answers nothing.
fn expired(at: &At, fact: &LeaseExpired) -> FeedItem {
    let (lease, fencing_token) = (fact.lease, fact.fencing_token);
    FeedItem {
        position: position(at, true),
        now: at.now,
        tenant: fact.tenant.clone(),
        job_set: of_leases(),
        allocation: None,
        name: None,
        kind: FeedKind::Expired {
            lease,
            fencing_token,
        },
        reply_to: Vec::new(),
        in_feed: true,
    }
}

impl Projection for Feed {
    type Change = FeedItem;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "feed";
    const STATE_VERSION: u32 = 3;

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<FeedItem>,
    ) -> Result<(), IllegalEvent> {
        match input {
            Input::OperationFact(fact) => match Step::from(fact) {
                Step::Taken(taken) => self.took_up(at, taken, out),
                Step::Decided(decided) => self.decided(at, decided, out),
                Step::Forgotten(fact) => {
                    (self.operations).forget(fact.through, fact.slots_of.as_ref());
                }
            },
            Input::Life(life) => self.lives(at, life, out),
            Input::OperationRepeated(fact) => self.repeated(at, fact, out),
            Input::LeaseExpired(fact) => out.push(expired(at, fact)),
        }
        Ok(())
    }
}

/// What is answered of which nothing was recorded.
pub(crate) fn unrecorded(
    operation_id: Option<Token>,
    answer: Result<Box<AllocationSpec>, Refusal>,
) -> Outcome {
    Outcome {
        operation_id,
        lsn: Lsn(0),
        kind: match answer {
            Ok(spec) => OutcomeKind::Passes(spec),
            Err(refusal) => OutcomeKind::Refused(refusal),
        },
    }
}

#[cfg(test)]
mod tests;
