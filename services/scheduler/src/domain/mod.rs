//! The scheduler's rules: who is placed where, and what becomes of it. Pure; one file per subject.

mod allocation;
mod cancel;
mod end;
mod node;
mod placement;
mod queue;

pub use allocation::{Live, Phase};
pub use node::Node;
pub use placement::{Placement, best_fit};

use ledger::{Decider, Draft, IllegalEvent};
use queue::Queue;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};
use vocab::{AllocationNo, At, Event, EventNo, Millis, Token, Writer};

/// Everything that the scheduler knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    nodes: BTreeMap<Token, Node>,
    live: BTreeMap<AllocationNo, Live>,
    queue: Queue,
    /// Cancels to be decided, by the number of their request.
    cancels: BTreeMap<EventNo, AllocationNo>,
    /// Allocations with reports of their node to be decided.
    reported: BTreeSet<AllocationNo>,
    /// Allocations whose node was lost.
    lost: BTreeSet<AllocationNo>,
}

impl Scheduler {
    pub fn nodes(&self) -> &BTreeMap<Token, Node> {
        &self.nodes
    }

    pub fn live(&self) -> &BTreeMap<AllocationNo, Live> {
        &self.live
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

impl Decider for Scheduler {
    type Command = Infallible;
    type Rules = ();
    type Effect = Infallible;

    const WRITER: Writer = Writer::Scheduler;
    const STATE_VERSION: u32 = 1;

    fn observe(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationRequested { spec, .. } => {
                self.request(AllocationNo(at.no.0), spec.clone());
                Ok(())
            }
            Event::CancelRequested { allocation, .. } => {
                self.cancels.insert(at.no, *allocation);
                Ok(())
            }
            Event::QuotaReserved { allocation } => self.quota_reserved(*allocation),
            Event::QuotaDenied { allocation, .. } => self.quota_denied(*allocation),
            Event::NodeRegistered {
                node,
                incarnation,
                capacity,
            } => {
                let fresh = Node::new(*incarnation, capacity.clone());
                self.nodes.insert(node.clone(), fresh);
                self.queue.unsettle();
                Ok(())
            }
            Event::NodeReady { node, .. } => self.node_ready(node, event),
            Event::NodeLost { node, .. } => self.node_lost(node, event),
            Event::RunReported {
                allocation,
                node,
                state,
                at,
            } => {
                self.report(*allocation, node, *state, *at);
                Ok(())
            }
            // Not the scheduler's business.
            Event::AdminApplied { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::QuotaReleased { .. } => Ok(()),
            Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AllocationEnded { .. }
            | Event::CancelDecided { .. } => Err(IllegalEvent::new("an own fact as input", event)),
        }
    }

    fn evolve(&mut self, _at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationPlaced {
                allocation,
                node,
                incarnation,
                gpus,
            } => self.placed(*allocation, node, *incarnation, gpus, event),
            Event::AllocationWaiting { allocation, reason } => {
                self.waits(*allocation, *reason, event)
            }
            Event::AllocationStarted { allocation, at } => self.started(*allocation, *at, event),
            Event::AllocationStopping { allocation } => self.stopping(*allocation, event),
            Event::AllocationEnded { allocation, .. } => self.ended(*allocation, event),
            Event::CancelDecided { request, .. } => match self.cancels.remove(request) {
                Some(_) => Ok(()),
                None => Err(IllegalEvent::new("no such cancel", event)),
            },
            Event::AdminApplied { .. }
            | Event::AllocationRequested { .. }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::QuotaReserved { .. }
            | Event::QuotaDenied { .. }
            | Event::QuotaReleased { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => {
                Err(IllegalEvent::new("another writer's fact as own", event))
            }
        }
    }

    fn handle(&mut self, command: Infallible, (): &(), _draft: &mut Draft) {
        match command {}
    }

    /// Ends first, so that what they free is there for the queue.
    fn decide(&mut self, (): &(), draft: &mut Draft) {
        end::decide_lost(self, draft);
        end::decide_reports(self, draft);
        cancel::decide(self, draft);
        queue::decide(self, draft);
    }

    fn wake_at(&self) -> Option<Millis> {
        None
    }
}

#[cfg(test)]
mod tests;
