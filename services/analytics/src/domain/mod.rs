//! The pure fold: the ledger in its own order → facts for the bill and transfers of the nodes' books.
//!
//! A node's timeline is cut by two clocks: the scheduler's (placed, released) and node-heartbeat's (registered, lost,
//! ready). They differ by some milliseconds, and cutting by both could show a placement before the node was there. So
//! the scheduler's clock leads: a node's fact waits until the scheduler's next frame and then stands at its own moment,
//! moved between the scheduler's clock before and after it. The ledger's order then is the timeline's order, and all
//! totals stay at or above zero unless the scheduler really gave out too much.

mod allocation;
mod change;
mod hours;
mod node;
mod runs;

pub use change::{
    Account, Amounts, Capacity, Change, Fact, Interval, Moved, Owner, Rate, Transfer,
};
pub use hours::{Booked, Hour, Line, Used, booked, used};
pub use runs::in_one_row;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    Applied, NodeLost, NodeReady, NodeRegistered, QuotaDenied,
};
use vocab::inputs;

use allocation::Allocations;
use ledger::{Batching, IllegalEvent, Projection};
use node::Nodes;
use serde::{Deserialize, Serialize};
use vocab::{AllocationNo, At, Event, Millis};

/// What analytics must remember to make rows: what is live, the nodes, and what waits for the scheduler's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    allocations: Allocations,
    nodes: Nodes,
    /// The scheduler's clock at its last event.
    scheduler_now: Option<Millis>,
    /// Facts of nodes since then, with node-heartbeat's clock.
    waiting: Vec<(Millis, Event)>,
}

/// Takes the changes of one event and numbers them.
pub struct Outbox<'o> {
    at: At,
    part: u32,
    changes: &'o mut Vec<Change>,
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
}

impl Usage {
    /// Allocations that have not ended.
    pub fn live(&self) -> usize {
        self.allocations.len()
    }

    /// Puts the nodes' facts that have waited onto the timeline.
    fn advance(&mut self, now: Millis, outbox: &mut Outbox<'_>) -> Result<(), IllegalEvent> {
        let before = self.scheduler_now.unwrap_or(Millis(i64::MIN));
        for (said, event) in std::mem::take(&mut self.waiting) {
            let at = said.between(before, now);
            match &event {
                Event::NodeRegistered(NodeRegistered {
                    node,
                    incarnation,
                    capacity,
                    ..
                }) => self
                    .nodes
                    .registered(node, *incarnation, capacity, at, outbox, &event)?,
                Event::NodeReady(NodeReady { node, incarnation }) => {
                    self.nodes.ready(node, *incarnation, at, outbox, &event)?;
                }
                Event::NodeLost(NodeLost {
                    node, incarnation, ..
                }) => self.nodes.lost(node, *incarnation, at, outbox, &event)?,
                other => return Err(IllegalEvent::new("not a fact of a node", other)),
            }
        }
        self.scheduler_now = Some(now);
        Ok(())
    }
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
        RateSet,
        NodeRegistered,
        NodeReady,
        NodeLost,
    }
}

impl Usage {
    /// Until the scheduler's clock has come there.
    fn waits(&mut self, at: &At, fact: &(impl Clone + Into<Event>)) {
        self.waiting.push((at.now, fact.clone().into()));
    }

    fn scheduled(
        &mut self,
        fact: Said<'_>,
        now: Millis,
        outbox: &mut Outbox<'_>,
    ) -> Result<(), IllegalEvent> {
        let Self {
            allocations, nodes, ..
        } = self;
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
            }) => allocations.ended(nodes, *allocation, (*cause, *at), now, outbox),
            Said::AllocationRequeued(AllocationRequeued {
                allocation,
                cause,
                at,
                ..
            }) => allocations.requeued(nodes, *allocation, (*cause, *at), now, outbox, &fact)?,
            // Nothing is held or used by these.
            Said::AllocationWaiting(_)
            | Said::AllocationStopping(_)
            | Said::CancelDecided(_)
            | Said::PendingGroupExplained(_)
            | Said::AllocationPreempted(_)
            | Said::AllocationNominated(_)
            | Said::ReservationDecided(_)
            | Said::JobSetCancelDecided(_)
            | Said::AllocationReprioritised(_)
            | Said::PriorityDecided(_) => {}
        }
        Ok(())
    }
}

impl Projection for Usage {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "analytics";
    const STATE_VERSION: u32 = 2;
    /// An insert costs ClickHouse the same for a hundred rows as for ten thousand, and a bill may be late.
    const BATCHING: Batching = Batching {
        events_max: 200_000,
        frames_max: 16_384,
        pause_ms: 1000,
        pause_ms_max: 1000,
    };

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let outbox = &mut Outbox {
            at: *at,
            part: 0,
            changes: out,
        };
        match input {
            Input::Said(fact) => {
                self.advance(at.now, outbox)?;
                self.scheduled(fact, at.now, outbox)?;
            }
            Input::AllocationRequested(AllocationRequested { operation, spec }) => {
                (self.allocations).requested(AllocationNo(at.no.0), &operation.tenant, spec);
            }
            Input::QuotaDenied(QuotaDenied { allocation, .. }) => {
                self.allocations.denied(*allocation);
            }
            Input::RateSet(Applied {
                change, version, ..
            }) => outbox.push(Fact::Rate(Box::new(Rate {
                resource: change.resource.clone(),
                micro_per_unit_hour: change.micro_per_unit_hour,
                effective_from: change.effective_from,
                version: *version,
            }))),
            Input::NodeRegistered(fact) => self.waits(at, fact),
            Input::NodeReady(fact) => self.waits(at, fact),
            Input::NodeLost(fact) => self.waits(at, fact),
        }
        Ok(())
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
