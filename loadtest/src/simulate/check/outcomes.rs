//! Outcomes: what the ledger says that tenants are to be told, against what the feed has told them.

use super::{Invariant, Place, Violation, allocations::Allocations, doors::Doors};
use schemas::v1::{self, event::Kind};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Submitted {
        allocation: u64,
        state: State,
    },
    Cancelled(u64),
    Applied(u64),
    /// By the rule's number.
    Refused(i32),
}

/// Where an allocation stood when its request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Placed(String),
    Waiting,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Placed,
    Waiting,
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
}

#[derive(Debug, Clone)]
struct Open {
    tenant: String,
    operation_id: Option<String>,
    reply_to: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Outcomes {
    open: BTreeMap<u64, Open>,
    /// By operation: the outcome and where it was decided.
    decided: BTreeMap<u64, (Open, u64, Outcome)>,
    /// Allocations of which the feed has told the end.
    silent: BTreeSet<u64>,
    expected: Vec<Told>,
    /// How many of them have been told.
    told: usize,
    /// What each reply token was answered.
    replies: BTreeMap<(String, String), Outcome>,
}

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
            Kind::ReservationSet(e) => {
                self.at_once(at, e.operation.as_ref(), Outcome::Applied(e.version))
            }
            Kind::OperationRefused(e) => {
                let rule = e.refusal.as_ref().map_or(0, |refusal| refusal.rule);
                self.at_once(at, e.operation.as_ref(), Outcome::Refused(rule))
            }
            Kind::AllocationRequested(e) => self.opens(at, e.operation.as_ref()),
            Kind::CancelRequested(e) => self.opens(at, e.operation.as_ref()),
            Kind::OperationRepeated(e) => self.repeats(at, e),
            Kind::QuotaDenied(e) => {
                let rule = e.refusal.as_ref().map_or(0, |refusal| refusal.rule);
                self.decides(at, e.allocation, Outcome::Refused(rule));
                self.silent.insert(e.allocation);
                Ok(())
            }
            Kind::AllocationPlaced(e) => {
                self.submitted(at, e.allocation, State::Placed(e.node.clone()));
                self.step(at, e.allocation, Step::Placed, allocations);
                Ok(())
            }
            Kind::AllocationWaiting(e) => {
                self.submitted(at, e.allocation, State::Waiting);
                self.step(at, e.allocation, Step::Waiting, allocations);
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
            reply_to: some(&operation.reply_to).into_iter().collect(),
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

    /// The first word counts: quota's denial and the scheduler's cancel may cross.
    fn decides(&mut self, at: &Place, operation: u64, outcome: Outcome) {
        let Some(open) = self.open.remove(&operation) else {
            return;
        };
        self.expect(
            at,
            false,
            &open.tenant,
            open.reply_to.clone(),
            true,
            What::Outcome {
                operation_id: open.operation_id.clone(),
                lsn: at.lsn,
                outcome: outcome.clone(),
            },
        );
        self.decided.insert(operation, (open, at.lsn, outcome));
    }

    fn step(&mut self, at: &Place, allocation: u64, step: Step, allocations: &Allocations) {
        let Some(tenant) = allocations.owner(allocation) else {
            return;
        };
        if !self.silent.contains(&allocation) {
            let what = What::Step { allocation, step };
            self.expect(at, true, tenant, Vec::new(), true, what);
        }
    }

    fn repeats(&mut self, at: &Place, e: &v1::OperationRepeated) -> Result<(), Violation> {
        let Some(reply_to) = some(&e.reply_to) else {
            return Ok(());
        };
        if let Some(open) = self.open.get_mut(&e.original) {
            open.reply_to.push(reply_to);
            return Ok(());
        }
        let Some((open, lsn, outcome)) = self.decided.get(&e.original).cloned() else {
            return Err(at.wrong(Invariant::Operation, format!("{e:?} repeats nothing")));
        };
        let what = What::Outcome {
            operation_id: open.operation_id,
            lsn,
            outcome,
        };
        self.expect(at, false, &e.tenant, vec![reply_to], false, what);
        Ok(())
    }

    fn expect(
        &mut self,
        at: &Place,
        second: bool,
        tenant: &str,
        reply_to: Vec<String>,
        in_feed: bool,
        what: What,
    ) {
        self.expected.push(Told {
            lsn: at.lsn,
            index: at.index * 2 + u32::from(second),
            tenant: tenant.to_owned(),
            reply_to,
            in_feed,
            what,
        });
    }

    /// In order, each once, nothing else.
    pub fn told(&mut self, told: &Told) -> Result<(), Violation> {
        let wrong = |text: String| Violation {
            invariant: Invariant::Outcome,
            lsn: told.lsn,
            text,
        };
        let expected = self.expected.get(self.told);
        if expected != Some(told) {
            return Err(wrong(format!(
                "the feed tells {told:?} instead of {expected:?}"
            )));
        }
        self.told += 1;
        if let What::Outcome { outcome, .. } = &told.what {
            for token in &told.reply_to {
                let key = (told.tenant.clone(), token.clone());
                if let Some(before) = self.replies.insert(key, outcome.clone()) {
                    let text = format!("{token} was answered {before:?} and {outcome:?}");
                    return Err(wrong(text));
                }
            }
        }
        Ok(())
    }

    pub fn finish(&self, end: &Place, doors: &Doors) -> Result<(), Violation> {
        let untold = self.expected.get(self.told);
        end.rule(untold.is_none(), Invariant::Outcome, || {
            format!("the feed never tells {untold:?}")
        })?;
        let open = self.open.first_key_value();
        end.rule(open.is_none(), Invariant::Outcome, || {
            format!("an operation without outcome: {open:?}")
        })?;
        for (ask, operation) in doors.answered() {
            let outcome = self.decided.get(&operation).map(|(_, _, outcome)| outcome);
            end.rule(outcome.is_some(), Invariant::Outcome, || {
                format!("no outcome for {ask:?}")
            })?;
            if let Some(token) = &ask.reply_to {
                let key = (ask.tenant.clone(), token.clone());
                let reply = self.replies.get(&key);
                end.rule(reply == outcome, Invariant::Outcome, || {
                    format!("{ask:?} was replied {reply:?}, its outcome is {outcome:?}")
                })?;
            }
        }
        Ok(())
    }
}
