//! Outcomes: what the ledger says that tenants are to be told, against what the feed has told them.

mod feed;
mod told;

pub use feed::Fed;
pub use told::{Outcome, State, Step, Told, Wait, What};

use super::{
    Invariant, Place, Violation,
    allocations::Allocations,
    inboxes::{Answer, Decided, Inboxes},
};
use feed::Feed;
use prost::Message;
use schemas::v1::{self, event::Kind};
use std::collections::{BTreeMap, BTreeSet};
use told::{answered, for_quota, rule_of};

#[derive(Debug, Clone)]
struct Open {
    tenant: String,
    operation_id: Option<String>,
}

#[derive(Debug, Default)]
pub struct Outcomes {
    open: BTreeMap<u64, Open>,
    /// By operation.
    decided: BTreeMap<u64, Outcome>,
    /// Allocations of which the feed has told the end.
    silent: BTreeSet<u64>,
    /// What the feed is to tell, by position.
    expected: BTreeMap<Position, Told>,
    feed: Feed,
    /// What each reply token was answered: by operation id, where that could be read. It may be answered again.
    replies: BTreeMap<(String, String), Vec<Reply>>,
}

/// A position and an index within it.
type Position = (u64, u32);
type Reply = (Option<String>, Outcome);

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Outcomes {
    /// What follows from one event, after the model has taken it in.
    pub fn derive(
        &mut self,
        at: &Place,
        kind: &Kind,
        allocations: &Allocations,
    ) -> Result<(), Violation> {
        match kind {
            Kind::TenantSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::QuotaSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::RateSet(e) => self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version)),
            Kind::QueueSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::PriorityClassSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::SchedulingSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::CordonSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::TaintsSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::NodeSet(e) => self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version)),
            Kind::PeriodClosed(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::ReservationSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::BudgetSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::OperationRefused(e) => {
                let rule = rule_of(e.refusal.as_ref());
                self.at_once(at, e.operation.as_ref(), Outcome::Refused(rule))
            }
            Kind::AllocationRequested(e) => {
                self.opens(at, e.operation.as_ref())?;
                self.step(at, at.no, Step::Requested, allocations);
                Ok(())
            }
            Kind::CancelRequested(e) => self.opens(at, e.operation.as_ref()),
            Kind::JobSetCancelRequested(e) => self.opens(at, e.operation.as_ref()),
            Kind::PriorityRequested(e) => self.opens(at, e.operation.as_ref()),
            Kind::ResourceAsked(e) => self.opens(at, e.operation.as_ref()),
            Kind::OperationRepeated(e) => self.repeats(at, e),
            Kind::QuotaDenied(e) => {
                let rule = rule_of(e.refusal.as_ref());
                if !self.decides(at, e.allocation, Outcome::Refused(rule)) {
                    self.step(at, e.allocation, Step::Denied(rule), allocations);
                }
                self.silent.insert(e.allocation);
                Ok(())
            }
            Kind::AllocationPlaced(e) => {
                self.submitted(at, e.allocation, State::Placed(e.node.clone()));
                self.step(at, e.allocation, Step::Placed, allocations);
                Ok(())
            }
            Kind::AllocationWaiting(e) => {
                let wait = Wait {
                    reason: e.reason,
                    rule: None,
                };
                self.waits(at, e.allocation, wait, allocations);
                Ok(())
            }
            Kind::QuotaWaiting(e) => {
                self.waits(at, e.allocation, for_quota(e), allocations);
                Ok(())
            }
            Kind::AllocationReprioritised(e) => {
                self.step(at, e.allocation, Step::Priority(e.priority), allocations);
                Ok(())
            }
            Kind::AllocationStarted(e) => {
                self.step(at, e.allocation, Step::Started, allocations);
                Ok(())
            }
            Kind::AllocationPreempted(e) => {
                self.step(at, e.allocation, Step::Preempted, allocations);
                Ok(())
            }
            Kind::AllocationRequeued(e) => {
                self.step(at, e.allocation, Step::Requeued, allocations);
                Ok(())
            }
            Kind::AllocationStopping(e) => {
                self.step(at, e.allocation, Step::Stopping, allocations);
                Ok(())
            }
            Kind::AllocationEnded(e) => {
                self.submitted(at, e.allocation, State::Ended);
                self.step(at, e.allocation, Step::Ended, allocations);
                self.silent.insert(e.allocation);
                Ok(())
            }
            Kind::CancelDecided(e) => {
                let outcome = if e.was_live {
                    Outcome::Cancelled(e.allocation)
                } else {
                    Outcome::Refused(16)
                };
                self.decides(at, e.request, outcome);
                Ok(())
            }
            Kind::JobSetCancelDecided(e) => {
                self.decides(at, e.request, Outcome::JobSetCancelled(e.allocations));
                Ok(())
            }
            Kind::PriorityDecided(e) => {
                let outcome = match &e.refusal {
                    Some(refusal) => Outcome::Refused(refusal.rule),
                    None => Outcome::PrioritySet(e.allocations),
                };
                self.decides(at, e.request, outcome);
                Ok(())
            }
            Kind::ResourceDecided(e) => {
                if let Some(outcome) = answered(at, e) {
                    self.decides(at, e.request, outcome);
                }
                Ok(())
            }
            Kind::LeaseExpired(e) => {
                let what = What::Expired {
                    lease: e.lease,
                    fencing_token: e.fencing_token,
                };
                self.expect(at, true, &e.tenant, what);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn opens(&mut self, at: &Place, operation: Option<&v1::Operation>) -> Result<(), Violation> {
        let Some(operation) = operation else {
            return Err(at.wrong(Invariant::Outcome, "an operation without its asker"));
        };
        let open = Open {
            tenant: operation.tenant.clone(),
            operation_id: some(&operation.operation_id),
        };
        self.open.insert(at.no, open);
        Ok(())
    }

    fn at_once(
        &mut self,
        at: &Place,
        operation: Option<&v1::Operation>,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        self.opens(at, operation)?;
        self.decides(at, at.no, outcome);
        Ok(())
    }

    fn submitted(&mut self, at: &Place, allocation: u64, state: State) {
        self.decides(at, allocation, Outcome::Submitted { allocation, state });
    }

    fn waits(&mut self, at: &Place, allocation: u64, wait: Wait, allocations: &Allocations) {
        self.submitted(at, allocation, State::Waiting(wait));
        self.step(at, allocation, Step::Waiting(wait), allocations);
    }

    /// The first word counts: quota's denial and the scheduler's cancel may cross.
    fn decides(&mut self, at: &Place, operation: u64, outcome: Outcome) -> bool {
        let Some(open) = self.open.remove(&operation) else {
            return false;
        };
        self.expect(
            at,
            false,
            &open.tenant,
            What::Outcome {
                operation_id: open.operation_id.clone(),
                lsn: at.lsn,
                outcome: outcome.clone(),
            },
        );
        self.decided.insert(operation, outcome);
        true
    }

    fn step(&mut self, at: &Place, allocation: u64, step: Step, allocations: &Allocations) {
        let Some(tenant) = allocations.owner(allocation) else {
            return;
        };
        if !self.silent.contains(&allocation) {
            let what = What::Step { allocation, step };
            self.expect(at, true, tenant, what);
        }
    }

    fn repeats(&mut self, at: &Place, e: &v1::OperationRepeated) -> Result<(), Violation> {
        let known = self.open.contains_key(&e.original) || self.decided.contains_key(&e.original);
        at.rule(known, Invariant::Operation, || {
            format!("{e:?} repeats nothing")
        })
    }

    fn expect(&mut self, at: &Place, second: bool, tenant: &str, what: What) {
        let position = (at.lsn, at.index * 2 + u32::from(second));
        let tenant = tenant.to_owned();
        self.expected.insert(position, Told { tenant, what });
    }

    pub fn fed(&mut self, fed: Fed) -> Result<(), Violation> {
        self.feed.fed(fed, &self.expected)
    }

    /// Somebody who waits is told outcomes.
    pub fn reply(&mut self, tenant: &str, token: &str, payload: &[u8]) -> Result<(), Violation> {
        let wrong = |text: String| Violation {
            invariant: Invariant::Outcome,
            lsn: 0,
            text,
        };
        let outcomes = v1::Outcomes::decode(payload).map_err(|error| wrong(error.to_string()))?;
        let key = (tenant.to_owned(), token.to_owned());
        let replies = self.replies.entry(key).or_default();
        for outcome in &outcomes.outcomes {
            let told = Outcome::read(outcome).ok_or_else(|| wrong(format!("{outcome:?}")))?;
            replies.push((some(&outcome.operation_id), told));
        }
        Ok(())
    }

    pub fn finish(&self, end: &Place, inboxes: &Inboxes) -> Result<(), Violation> {
        let untold = self.feed.untold(&self.expected);
        end.rule(untold.is_none(), Invariant::Outcome, || {
            format!("the feed never tells {untold:?}")
        })?;
        let open = self.open.first_key_value();
        end.rule(open.is_none(), Invariant::Outcome, || {
            format!("an operation without outcome: {open:?}")
        })?;
        let mut expected: BTreeMap<(String, String), Vec<Reply>> = BTreeMap::new();
        for decided in inboxes.decided() {
            let Answer::Recorded(no) = decided.answer else {
                continue;
            };
            let Some(outcome) = self.decided.get(&no) else {
                let text = format!("no outcome for {decided:?}");
                return Err(end.wrong(Invariant::Outcome, text));
            };
            if let Some(key) = reply_key(decided) {
                let reply = (decided.operation_id.clone(), outcome.clone());
                expected.entry(key).or_default().push(reply);
            }
        }
        self.replied(end, expected)
    }

    /// Whoever asked for an answer got it for each of its operations that was recorded, and never another.
    fn replied(
        &self,
        end: &Place,
        mut expected: BTreeMap<(String, String), Vec<Reply>>,
    ) -> Result<(), Violation> {
        let in_order = |replies: &mut Vec<Reply>| {
            replies.sort_by_cached_key(|reply| format!("{reply:?}"));
            replies.dedup();
        };
        expected.values_mut().for_each(in_order);
        let mut replies = self.replies.clone();
        replies.values_mut().for_each(in_order);
        let key = expected.keys().chain(replies.keys());
        let differs = key
            .into_iter()
            .find(|key| expected.get(*key) != replies.get(*key));
        end.rule(differs.is_none(), Invariant::Outcome, || {
            let of = differs.map(|key| (key, replies.get(key), expected.get(key)));
            format!("reply token, what it was replied and the outcomes: {of:?}")
        })
    }
}

fn reply_key(decided: &Decided) -> Option<(String, String)> {
    let token = decided.ask.reply_to.clone()?;
    Some((decided.ask.tenant.clone(), token))
}
