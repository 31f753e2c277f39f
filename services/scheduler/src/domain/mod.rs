//! The scheduler's rules: who is placed where, when, and why not yet. Pure; one file per subject.

mod allocation;
mod aside;
pub mod backfill;
mod blocked;
mod cancel;
mod class;
mod depend;
mod end;
mod explain;
pub mod fair;
mod fleet;
mod gang;
mod interner;
pub mod interval;
pub mod order;
mod pause;
mod place;
mod preempt;
mod queues;
mod reserve;
pub mod scoring;
mod settings;
pub mod topology;
pub mod what_if;

pub use allocation::{Hold, Live, Phase, Stop};
pub use class::Amounts;
pub use fleet::{Node, NodeNo};

use aside::Aside;
use blocked::Blocked;
use class::{Class, Shape};
use depend::Dependencies;
use fleet::Fleet;
use gang::Gangs;
use interner::{Interner, Scratch};
use ledger::{Decider, Draft, IllegalEvent};
use preempt::Rate;
use queues::{Queues, Said};
use reserve::Reservations;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};
use vocab::{
    AllocationNo, At, Event, EventNo, Millis, PriorityClass, SchedulingPolicy, Token,
    WaitingReason, Writer,
};

/// Everything that the scheduler knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    fleet: Fleet,
    classes: Interner<Class>,
    shapes: Interner<Shape>,
    /// Names of priority classes that live allocations have.
    priorities: Interner<Token>,
    queues: Queues,
    live: BTreeMap<AllocationNo, Live>,
    gangs: Gangs,
    dependencies: Dependencies,
    reservations: Reservations,
    priority_classes: BTreeMap<Token, PriorityClass>,
    policy: SchedulingPolicy,
    popularity: scoring::Popularity,
    rate: Rate,
    /// Never told where they stand.
    fresh: BTreeSet<AllocationNo>,
    /// Cancels to be decided, by the number of their request.
    cancels: BTreeMap<EventNo, AllocationNo>,
    /// Allocations with reports of their node to be decided.
    reported: BTreeSet<AllocationNo>,
    /// Allocations whose node was lost.
    lost: BTreeSet<AllocationNo>,
    /// Allocations in a pause, by its end.
    pauses: BTreeSet<(Millis, AllocationNo)>,
    nominated: BTreeSet<AllocationNo>,
    #[serde(skip)]
    blocked: Scratch<Blocked>,
}

impl Scheduler {
    pub fn nodes(&self) -> &[Node] {
        self.fleet.nodes()
    }

    pub fn live(&self) -> &BTreeMap<AllocationNo, Live> {
        &self.live
    }

    /// Who waits for a place, with or without a line.
    pub fn waiting(&self) -> usize {
        let held = self
            .fleet
            .nodes()
            .iter()
            .map(|node| node.holds.len())
            .sum::<usize>();
        self.live.len() - held.min(self.live.len())
    }
}

impl Decider for Scheduler {
    type Command = Infallible;
    type Rules = ();
    type Effect = Infallible;

    const WRITER: Writer = Writer::Scheduler;
    const STATE_VERSION: u32 = 2;

    fn observe(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AdminApplied {
                change, version, ..
            } => self.apply(change, *version),
            Event::AllocationRequested { operation, spec } => {
                self.request(AllocationNo(at.no.0), &operation.tenant, spec, at.now);
            }
            Event::CancelRequested { allocation, .. } => {
                self.cancels.insert(at.no, *allocation);
            }
            Event::QuotaReserved { allocation } => self.quota_reserved(*allocation),
            Event::QuotaDenied { allocation, .. } => self.remove(*allocation, false, at.now),
            Event::NodeRegistered {
                node,
                incarnation,
                capacity,
            } => self.node_registered(node, *incarnation, capacity),
            Event::NodeReady { node, .. } => self.node_ready(node, event)?,
            Event::NodeLost { node, .. } => self.node_lost(node, event)?,
            Event::RunReported {
                allocation,
                node,
                state,
                at,
            } => self.report(*allocation, node, *state, *at),
            // Not the scheduler's business.
            Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::QuotaReleased { .. } => {}
            Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::LineExplained { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationRequeued { .. }
            | Event::ReservationDecided { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AllocationEnded { .. }
            | Event::CancelDecided { .. } => {
                return Err(IllegalEvent::new("an own fact as input", event));
            }
        }
        Ok(())
    }

    fn evolve(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationPlaced {
                allocation,
                node,
                incarnation,
                gpus,
                zones,
                ..
            } => {
                let place = allocation::Placed {
                    node,
                    incarnation: *incarnation,
                    gpus,
                    zones: *zones,
                };
                self.placed(*allocation, &place, at.now, event)
            }
            Event::AllocationWaiting {
                allocation, reason, ..
            } => self.waits(*allocation, *reason, at.now, event),
            Event::LineExplained {
                line,
                reason,
                counts,
                ..
            } => {
                let said = Said {
                    reason: *reason,
                    counts: counts.clone(),
                    at: at.now,
                };
                self.explained(*line, said);
                Ok(())
            }
            Event::AllocationPreempted { allocation, .. } => {
                self.preempted(*allocation, at.now, event)
            }
            Event::AllocationNominated {
                allocation,
                node,
                incarnation,
            } => self.nominated(*allocation, node, *incarnation, at.now, event),
            Event::AllocationRequeued {
                allocation,
                cause,
                not_before,
                ..
            } => self.requeued(*allocation, *cause, at.now, *not_before, event),
            Event::ReservationDecided {
                reservation,
                version,
                nodes,
            } => {
                self.reservation_decided(reservation, *version, nodes);
                Ok(())
            }
            Event::AllocationStarted { allocation, at } => self.started(*allocation, *at, event),
            Event::AllocationStopping { allocation } => self.stopping(*allocation, event),
            Event::AllocationEnded {
                allocation, cause, ..
            } => self.ended(*allocation, *cause, at.now, event),
            Event::CancelDecided {
                request,
                allocation,
                ..
            } => {
                self.cancel_decided(*allocation);
                match self.cancels.remove(request) {
                    Some(_) => Ok(()),
                    None => Err(IllegalEvent::new("no such cancel", event)),
                }
            }
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

    /// Ends first, so that what they free is there for the queues; whom nodes were cleared for before anybody else.
    fn decide(&mut self, (): &(), draft: &mut Draft) {
        end::decide_reports(self, draft);
        end::decide_lost(self, draft);
        cancel::decide(self, draft);
        depend::decide(self, draft);
        gang::decide(self, draft);
        pause::decide(self, draft);
        reserve::decide(self, draft);
        let aside = Aside::of(self, draft.now);
        self.set_aside(&aside);
        self.unblock(draft.now);
        preempt::decide_nominated(self, &aside, draft);
        self.decide_queues(&aside, draft);
        preempt::decide(self, draft);
        explain::decide(self, draft);
    }

    fn wake_at(&self) -> Option<Millis> {
        let pauses = self.pauses.first().map(|(until, _)| *until);
        let later = |moment: &Millis| self.blocked.decided.is_none_or(|decided| decided < *moment);
        let begins_or_ends = self.reservations.moments().filter(later).min();
        [pauses, begins_or_ends, self.blocked.preempt_again_at]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Scheduler {
    /// Places whoever is next until nobody fits. One who does not fit does not block those behind.
    fn decide_queues(&mut self, aside: &Aside, draft: &mut Draft) {
        self.close_hopeless(aside, draft.now);
        loop {
            if draft.full() {
                return;
            }
            let totals = *self.fleet.totals();
            let half_life_ms = self.policy.half_life_ms;
            let Some(no) = self.queues.next(&totals, draft.now, half_life_ms) else {
                return;
            };
            let Some((shape, head)) = self
                .queues
                .line(no)
                .and_then(|line| Some((line.key.shape, line.head()?.allocation)))
            else {
                return;
            };
            if self.block_if_limited(no, draft.now) {
                continue;
            }
            let members = self.unit(head, self.shapes.get(shape.0).members.len());
            match self.find_places(&members, shape, aside) {
                Ok(places) => {
                    for place in places {
                        let event = self.placed_event(place, aside);
                        draft.emit(self, event);
                    }
                    self.tell_the_rest(&members, draft);
                }
                Err(short) => self.block(no, shape, short, draft.now),
            }
        }
    }

    /// Members of a gang that found no place beside the others go on by themselves.
    fn tell_the_rest(&mut self, members: &[AllocationNo], draft: &mut Draft) {
        for allocation in members {
            let left = self
                .live
                .get(allocation)
                .is_some_and(|live| live.phase == Phase::InGang);
            if left {
                let waiting = Event::AllocationWaiting {
                    allocation: *allocation,
                    reason: WaitingReason::GangNoRoom,
                    line: None,
                };
                draft.emit(self, waiting);
            }
        }
    }
}

#[cfg(test)]
mod tests;
