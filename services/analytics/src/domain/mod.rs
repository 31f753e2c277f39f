//! The pure fold: the ledger in its own order → facts for the bill and transfers of the nodes' books.
//!
//! A node's timeline is cut by two clocks: the scheduler's (placed, released) and node-heartbeat's (registered, lost,
//! ready). They differ by some milliseconds, and cutting by both could show a placement before the node was there. So
//! the scheduler's clock leads: a node's fact waits until the scheduler's next frame and then stands at its own moment,
//! moved between the scheduler's clock before and after it. The ledger's order then is the timeline's order, and all
//! totals stay at or above zero unless the scheduler really gave out too much.

mod allocation;
mod calendar;
mod change;
mod condition;
mod kept;
mod meter;
mod node;
mod price;
mod runs;

pub use calendar::Hour;
pub use change::{
    Account, Amounts, BudgetChange, Capacity, Change, Clock, Closed, Condition, Denial, Fact,
    FirstAttempts, Interval, Moved, Owner, Payer, Preemption, Rate, Running, Site, Status, Sums,
    Transfer, Unplaced, Wait,
};
pub use kept::{Kept, RunsOf, UseRow};
pub use meter::{Booked, Each, KEPT, Line, Shelf, Used, key};
pub use price::{Charge, Charges, HourlyUse, Known, LineKey, Prices, RunUse, Whose};
pub use runs::in_one_row;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequeued, AllocationStarted, AllocationWaiting,
    Applied, NodeCapacityChanged, NodeLost, NodeReady, NodeRegistered, QuotaWaiting,
};
use vocab::inputs;

use allocation::{Allocations, End};
use calendar::{Calendar, CalendarOf3};
use ledger::{Batching, IllegalEvent, Projection, Scratch};
use meter::Meter;
use node::Nodes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vocab::{AllocationNo, At, Event, Millis, WaitingReason};

/// What analytics must remember to make rows: what is live, the nodes, and what waits for the scheduler's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    allocations: Allocations,
    nodes: Nodes,
    calendar: Calendar,
    /// The scheduler's clock at its last event.
    scheduler_now: Option<Millis>,
    /// Facts of nodes since then, with node-heartbeat's clock.
    waiting: Vec<(Millis, Event)>,
    /// Sums of the batch in the making.
    #[serde(skip)]
    meter: Scratch<Meter>,
    /// The last event of the batch in the making.
    #[serde(skip)]
    last: Scratch<Option<At>>,
}

/// The state of version 3.
#[derive(Debug, Deserialize)]
struct UsageOf3 {
    allocations: Allocations,
    nodes: Nodes,
    calendar: CalendarOf3,
    scheduler_now: Option<Millis>,
    waiting: Vec<(Millis, Event)>,
}

impl From<UsageOf3> for Usage {
    fn from(before: UsageOf3) -> Self {
        Self {
            allocations: before.allocations,
            nodes: before.nodes,
            calendar: before.calendar.into(),
            scheduler_now: before.scheduler_now,
            waiting: before.waiting,
            ..Self::default()
        }
    }
}

/// Takes the changes of one event and numbers them, and sums up.
pub struct Outbox<'o> {
    at: At,
    part: u32,
    changes: &'o mut Vec<Change>,
    meter: &'o mut Meter,
    calendar: &'o Calendar,
}

impl Outbox<'_> {
    fn push(&mut self, fact: Fact) {
        self.changes.push(Change {
            lsn: self.at.lsn,
            index: self.at.index,
            part: self.part,
            fact,
        });
        self.part += 1;
    }

    /// What runs is billed up to here.
    fn accrued_to(&self) -> Millis {
        self.calendar.accrued_to()
    }

    /// It was used; what ends before it begins was said too much.
    fn used(&mut self, payer: &Arc<Payer>, moved: &Moved, from: Millis, to: Millis) {
        let at = self.at.lsn;
        self.meter.used(at, self.calendar, payer, moved, (from, to));
    }

    fn transferred(&mut self, moved: &Moved, way: (Account, Account), at: Millis) {
        self.meter.transferred(self.calendar, moved, way, at);
    }
}

impl Usage {
    /// Allocations that have not ended.
    pub fn live(&self) -> usize {
        self.allocations.len()
    }
}

/// Puts the nodes' facts that have waited onto the timeline, between the scheduler's clock before and after.
fn catch_up(
    nodes: &mut Nodes,
    waiting: Vec<(Millis, Event)>,
    (before, now): (Millis, Millis),
    outbox: &mut Outbox<'_>,
) -> Result<(), IllegalEvent> {
    for (said, event) in waiting {
        let at = said.between(before, now);
        match &event {
            Event::NodeRegistered(NodeRegistered {
                node,
                incarnation,
                capacity,
                ..
            }) => nodes.registered(node, *incarnation, capacity, at, outbox, &event)?,
            Event::NodeCapacityChanged(NodeCapacityChanged {
                node,
                incarnation,
                capacity,
                ..
            }) => nodes.resized(node, *incarnation, capacity, at, outbox, &event)?,
            Event::NodeReady(NodeReady { node, incarnation }) => {
                nodes.ready(node, *incarnation, at, outbox, &event)?;
            }
            Event::NodeLost(NodeLost {
                node, incarnation, ..
            }) => nodes.lost(node, *incarnation, at, outbox, &event)?,
            Event::CordonSet(Applied { change, .. }) => {
                nodes.cordon(&change.node, change.cordoned, at, outbox);
            }
            other => return Err(IllegalEvent::new("not a fact of a node", other)),
        }
    }
    Ok(())
}

inputs! {
    /// Whatever the scheduler says of allocations moves the books' clock.
    pub enum Said {
        AllocationPlaced,
        AllocationWaiting,
        AllocationStarted,
        AllocationStopping,
        AllocationEnded,
        AllocationPreempted,
        AllocationNominated,
        AllocationRequeued,
        AllocationReprioritised,
        PendingGroupExplained,
        ReservationDecided,
        CancelDecided,
        JobSetCancelDecided,
        PriorityDecided,
    }
}

inputs! {
    pub enum Input {
        ..Said,
        AllocationRequested,
        QuotaDenied,
        QuotaWaiting,
        RateSet,
        BudgetSet,
        PeriodClosed,
        CordonSet,
        NodeRegistered,
        NodeCapacityChanged,
        NodeReady,
        NodeLost,
        NodeSuspected,
        NodeForgotten,
        NodeConditionChanged,
    }
}

fn scheduled(
    allocations: &mut Allocations,
    nodes: &mut Nodes,
    fact: Said<'_>,
    now: Millis,
    outbox: &mut Outbox<'_>,
) -> Result<(), IllegalEvent> {
    match fact {
        Said::AllocationPlaced(AllocationPlaced {
            allocation,
            node,
            incarnation,
            ..
        }) => {
            let place = (node, *incarnation);
            allocations.placed(nodes, *allocation, place, now, outbox, &fact)?;
        }
        Said::AllocationStarted(AllocationStarted { allocation, at }) => {
            allocations.started(*allocation, *at, now, outbox, &fact)?;
        }
        Said::AllocationEnded(AllocationEnded {
            allocation,
            cause,
            at,
            exit,
        }) => {
            let end = End {
                cause: *cause,
                at: *at,
                exit: *exit,
            };
            allocations.ended(nodes, *allocation, end, now, outbox);
        }
        Said::AllocationRequeued(AllocationRequeued {
            allocation,
            cause,
            at,
            exit,
            ..
        }) => {
            let end = End {
                cause: *cause,
                at: *at,
                exit: *exit,
            };
            allocations.requeued(nodes, *allocation, end, now, outbox, &fact)?;
        }
        Said::AllocationWaiting(AllocationWaiting {
            allocation, reason, ..
        }) => allocations.waits(*allocation, *reason),
        Said::AllocationPreempted(fact) => allocations.preempted(fact, now, outbox),
        // Nothing is held or used by these.
        Said::AllocationStopping(_)
        | Said::CancelDecided(_)
        | Said::PendingGroupExplained(_)
        | Said::AllocationNominated(_)
        | Said::ReservationDecided(_)
        | Said::JobSetCancelDecided(_)
        | Said::AllocationReprioritised(_)
        | Said::PriorityDecided(_) => {}
    }
    Ok(())
}

impl Projection for Usage {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "analytics";
    const STATE_VERSION: u32 = 4;
    /// An insert costs ClickHouse the same for a hundred rows as for ten thousand, and a bill may be late.
    const BATCHING: Batching = Batching {
        events_max: 400_000,
        frames_max: 32_768,
        pause_ms: 1000,
        pause_ms_max: 1000,
    };

    /// Version 3 called dependencies and incomplete gangs quota. A state with that reason is folded from the beginning.
    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        let state = (version == 3).then(|| ledger::decode_state::<UsageOf3>(state))??;
        let is_known = !state.allocations.wait_for(WaitingReason::Quota);
        is_known.then(|| state.into())
    }

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let over = self.calendar.advance(at.now);
        // A rate begins, or a month is closed, behind what has been accrued.
        let rate_begins = match input {
            Input::RateSet(Applied { change, .. }) => {
                let key = change.key();
                self.calendar.rate_begins(&key, change.effective_from)
            }
            _ => Millis(0),
        };
        let Self {
            allocations,
            nodes,
            calendar,
            scheduler_now,
            waiting,
            meter,
            last,
        } = self;
        **last = Some(*at);
        let outbox = &mut Outbox {
            at: *at,
            part: 0,
            changes: out,
            meter,
            calendar,
        };
        if let Some(over) = over {
            allocations.accrue((over.start, over.end), outbox);
        }
        let mut wait = |event: Event| waiting.push((at.now, event));
        match input {
            Input::Said(fact) => {
                let before = scheduler_now.replace(at.now).unwrap_or(Millis(i64::MIN));
                catch_up(nodes, std::mem::take(waiting), (before, at.now), outbox)?;
                scheduled(allocations, nodes, fact, at.now, outbox)?;
            }
            Input::AllocationRequested(fact) => {
                allocations.requested(AllocationNo(at.no.0), fact, at.now);
            }
            Input::QuotaDenied(fact) => allocations.denied(fact, at.now, outbox),
            Input::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal,
            }) => allocations.waits(*allocation, refusal.waiting_reason()),
            Input::RateSet(Applied {
                change, version, ..
            }) => outbox.push(Fact::Rate(Box::new(Rate {
                key: change.key(),
                price: change.price(),
                effective_from: change.effective_from,
                applied_from: rate_begins,
                version: *version,
            }))),
            Input::BudgetSet(Applied {
                change, version, ..
            }) => outbox.push(Fact::Budget(Box::new(BudgetChange {
                account: change.account.clone(),
                of: change.of.clone(),
                budget: change.budget,
                version: *version,
                at: at.now,
            }))),
            Input::PeriodClosed(Applied {
                change, version, ..
            }) => {
                outbox.push(Fact::Closed(Closed {
                    month: change.month,
                    version: *version,
                    at: at.now,
                }));
                self.calendar.close(change.month);
            }
            Input::CordonSet(fact) => wait(fact.clone().into()),
            Input::NodeRegistered(fact) => {
                outbox.push(condition::ready(&fact.node, Status::True, "registered", at));
                wait(fact.clone().into());
            }
            Input::NodeReady(fact) => {
                outbox.push(condition::ready(&fact.node, Status::True, "heard", at));
                wait(fact.clone().into());
            }
            Input::NodeLost(fact) => {
                outbox.push(condition::ready(&fact.node, Status::False, "lost", at));
                wait(fact.clone().into());
            }
            Input::NodeSuspected(fact) => {
                outbox.push(condition::ready(&fact.node, Status::Unknown, "silent", at));
            }
            Input::NodeForgotten(fact) => {
                outbox.push(condition::ready(&fact.node, Status::False, "forgotten", at));
            }
            Input::NodeConditionChanged(fact) => outbox.push(condition::changed(fact, at)),
            Input::NodeCapacityChanged(fact) => wait(fact.clone().into()),
        }
        Ok(())
    }

    fn end_batch(&mut self, out: &mut Vec<Change>) {
        let Some(at) = self.last.take() else {
            return;
        };
        let mut facts = Vec::new();
        self.allocations.finish(self.calendar.clock(), &mut facts);
        facts.push(Fact::Sums(Box::new(self.meter.finish())));
        facts.push(Fact::Clock(Clock {
            clock: self.calendar.clock(),
            accrued_to: self.calendar.accrued_to(),
        }));
        // Behind those of the event itself, of which there are a few.
        let parts = u32::MAX / 2..;
        out.extend(facts.into_iter().zip(parts).map(|(fact, part)| Change {
            lsn: at.lsn,
            index: at.index,
            part,
            fact,
        }));
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
