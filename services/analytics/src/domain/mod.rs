//! The pure fold: the ledger in its own order → facts for the bill and entries of the nodes' books.
//!
//! A node's timeline is cut by two clocks: the scheduler's (placed, released) and node-heartbeat's (registered, lost,
//! ready). They differ by some milliseconds, and cutting by both could show a placement before the node was there. So
//! the scheduler's clock leads: a node's fact waits until the scheduler's next frame and then stands at its own moment,
//! moved between the scheduler's clock before and after it. The ledger's order then is the timeline's order, and all
//! totals stay at or above zero unless the scheduler really gave out too much.

mod allocation;
mod change;
mod node;

pub use change::{Account, Amounts, Change, Entry, Fact, Interval, Rate};

use allocation::Allocations;
use ledger::{Batching, IllegalEvent, Projection};
use node::Nodes;
use serde::{Deserialize, Serialize};
use vocab::{AdminChange, AllocationNo, At, Event, EventKind, Kinds, Millis, Writer};

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
                Event::NodeRegistered {
                    node,
                    incarnation,
                    capacity,
                    ..
                } => self
                    .nodes
                    .registered(node, *incarnation, capacity, at, outbox, &event)?,
                Event::NodeReady { node, incarnation } => {
                    self.nodes.ready(node, *incarnation, at, outbox, &event)?;
                }
                Event::NodeLost {
                    node, incarnation, ..
                } => self.nodes.lost(node, *incarnation, at, outbox, &event)?,
                other => return Err(IllegalEvent::new("not a fact of a node", other)),
            }
        }
        self.scheduler_now = Some(now);
        Ok(())
    }
}

impl Projection for Usage {
    type Change = Change;

    const NAME: &'static str = "analytics";
    const STATE_VERSION: u32 = 2;
    /// An insert costs ClickHouse the same for a hundred rows as for ten thousand, and a bill may be late.
    const BATCHING: Batching = Batching {
        events_max: 200_000,
        frames_max: 16_384,
        pause_ms: 1000,
        pause_ms_max: 1000,
    };

    /// Whatever else the scheduler says moves the books' clock.
    const READS: Kinds = Kinds::but(&[
        EventKind::TenantSet,
        EventKind::QuotaSet,
        EventKind::BudgetSet,
        EventKind::OperationRefused,
        EventKind::OperationRepeated,
        EventKind::OperationsForgotten,
        EventKind::ResourceAsked,
        EventKind::QuotaReserved,
        EventKind::QuotaWaiting,
        EventKind::QuotaReclaimed,
        EventKind::QuotaReleased,
        EventKind::LimitsInForce,
        EventKind::ResourceDecided,
        EventKind::ReservationExpired,
    ]);

    fn project(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let outbox = &mut Outbox {
            at: *at,
            part: 0,
            changes: out,
        };
        let now = at.now;
        if event.writer() == Writer::Scheduler {
            self.advance(now, outbox)?;
        }
        let Self {
            allocations, nodes, ..
        } = self;
        match event {
            Event::AllocationRequested { operation, spec } => {
                allocations.requested(AllocationNo(at.no.0), &operation.tenant, spec);
            }
            Event::QuotaDenied { allocation, .. } => allocations.denied(*allocation),
            Event::AllocationPlaced {
                allocation,
                node,
                incarnation,
                ..
            } => {
                let place = (node, *incarnation);
                allocations.placed(nodes, *allocation, place, now, outbox, event)?;
            }
            Event::AllocationStarted { allocation, at } => {
                allocations.started(nodes, *allocation, *at, now, outbox, event)?;
            }
            Event::AllocationEnded {
                allocation,
                cause,
                at,
            } => allocations.ended(nodes, *allocation, (*cause, *at), now, outbox),
            Event::AllocationRequeued {
                allocation,
                cause,
                at,
                ..
            } => allocations.requeued(nodes, *allocation, (*cause, *at), now, outbox, event)?,
            Event::AdminApplied {
                change:
                    AdminChange::Rate {
                        resource,
                        micro_per_unit_hour,
                        effective_from,
                    },
                version,
                ..
            } => outbox.push(Fact::Rate(Rate {
                resource: resource.clone(),
                micro_per_unit_hour: *micro_per_unit_hour,
                effective_from: *effective_from,
                version: *version,
            })),
            Event::NodeRegistered { .. } | Event::NodeReady { .. } | Event::NodeLost { .. } => {
                self.waiting.push((now, event.clone()));
            }
            // Nothing is held, used or priced by these.
            Event::NodeJoined { .. }
            | Event::NodeForgotten { .. }
            | Event::AdminApplied {
                change:
                    AdminChange::Tenant { .. }
                    | AdminChange::Quota { .. }
                    | AdminChange::Budget { .. }
                    | AdminChange::Queue { .. }
                    | AdminChange::PriorityClass { .. }
                    | AdminChange::Scheduling(_)
                    | AdminChange::Cordon { .. }
                    | AdminChange::Node { .. }
                    | AdminChange::Reservation { .. },
                ..
            }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::JobSetCancelRequested { .. }
            | Event::PriorityRequested { .. }
            | Event::ResourceAsked { .. }
            | Event::QuotaWaiting { .. }
            | Event::QuotaReclaimed { .. }
            | Event::LimitsInForce { .. }
            | Event::JobSetCancelDecided { .. }
            | Event::AllocationReprioritised { .. }
            | Event::PriorityDecided { .. }
            | Event::ResourceDecided { .. }
            | Event::ReservationExpired { .. }
            | Event::QuotaReserved { .. }
            | Event::QuotaReleased { .. }
            | Event::AllocationWaiting { .. }
            | Event::LineExplained { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationStopping { .. }
            | Event::CancelDecided { .. }
            | Event::ReservationDecided { .. }
            | Event::RunReported { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
