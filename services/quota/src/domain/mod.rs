//! The quota's rules: tenants, their teams and namespaces, what they may hold, borrow and spend. Pure.
//!
//! A claim counts at every account of its path. What it waits for it is told, and it waits in that queue ([`queues`]);
//! everything else follows from what is held ([`books`]).

mod allow;
mod aside;
mod books;
mod budget;
mod check;
mod claim;
mod cohort;
mod depend;
mod gang;
mod limits;
mod marks;
mod meter;
mod models;
mod node;
mod queues;
mod rates;
mod read;
mod reclaim;
mod release;
mod request;
mod reserve;
mod resource;
mod schedule;
mod tree;
mod victims;
mod wait;

pub use meter::Forecast;
pub use read::{Holding, PoolView};

use books::Books;
use claim::Claim;
use depend::Dependencies;
use gang::Gangs;
use ledger::{Decider, Draft, IllegalEvent};
use models::Fleet;
use rates::Rates;
use resource::ResourceId;
use schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};
use tree::AccountId;
use vocab::{
    AdminChange, AllocationNo, At, Event, EventKind, Kinds, Millis, WaitingReason, Writer,
};

/// Everything that quota knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    books: Books,
    claims: BTreeMap<AllocationNo, Claim>,
    /// To be decided.
    asked: BTreeSet<AllocationNo>,
    /// To be released.
    leaving: BTreeSet<AllocationNo>,
    gangs: Gangs,
    dependencies: Dependencies,
    schedules: BTreeMap<(AccountId, ResourceId), Schedule>,
    /// When which of them is to be looked at.
    due: BTreeSet<(Millis, AccountId, ResourceId)>,
    rates: Rates,
    fleet: Fleet,
}

impl Decider for Quota {
    type Command = Infallible;
    type Rules = ();
    type Effect = Infallible;

    const WRITER: Writer = Writer::Quota;
    const STATE_VERSION: u32 = 5;
    const READS: Kinds = Kinds::of(&[
        EventKind::TenantSet,
        EventKind::QuotaSet,
        EventKind::BudgetSet,
        EventKind::RateSet,
        EventKind::AllocationRequested,
        EventKind::AllocationPlaced,
        EventKind::AllocationStarted,
        EventKind::AllocationRequeued,
        EventKind::AllocationWaiting,
        EventKind::AllocationEnded,
        EventKind::AllocationReprioritised,
        EventKind::NodeRegistered,
    ]);

    fn observe(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AdminApplied { change, .. } => self.administer(at, change),
            Event::AllocationRequested { operation, spec } => {
                return self.request(AllocationNo(at.no.0), &operation.tenant, spec, event);
            }
            Event::AllocationPlaced {
                allocation, node, ..
            } => return self.place(at, *allocation, node, event),
            Event::AllocationStarted {
                allocation,
                at: from,
            } => return self.start(at, *allocation, *from, event),
            Event::AllocationRequeued {
                allocation,
                at: until,
                ..
            } => return self.stop(at, *allocation, *until, event),
            Event::AllocationWaiting {
                allocation,
                reason: WaitingReason::Quota,
                ..
            } => self.keep_off(*allocation),
            Event::AllocationWaiting {
                allocation, reason, ..
            } => self.waits_for_fellows(*allocation, *reason == WaitingReason::GangIncomplete),
            Event::AllocationEnded {
                allocation,
                at: until,
                ..
            } => self.end(*allocation, *until),
            Event::AllocationReprioritised {
                allocation,
                priority,
            } => self.reprioritise(*allocation, *priority),
            Event::NodeRegistered { node, capacity, .. } => self.register(node, capacity),
            // Not the quota's business.
            Event::CancelRequested { .. }
            | Event::JobSetCancelRequested { .. }
            | Event::PriorityRequested { .. }
            | Event::ResourceAsked { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::LineExplained { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationStopping { .. }
            | Event::CancelDecided { .. }
            | Event::JobSetCancelDecided { .. }
            | Event::PriorityDecided { .. }
            | Event::ResourceDecided { .. }
            | Event::ReservationExpired { .. }
            | Event::ReservationDecided { .. }
            | Event::NodeJoined { .. }
            | Event::NodeForgotten { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => {}
            Event::QuotaReserved { .. }
            | Event::QuotaWaiting { .. }
            | Event::QuotaReclaimed { .. }
            | Event::LimitsInForce { .. }
            | Event::QuotaDenied { .. }
            | Event::QuotaReleased { .. } => {
                return Err(IllegalEvent::new("an own fact as input", event));
            }
        }
        Ok(())
    }

    fn evolve(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::QuotaReserved {
                allocation, models, ..
            } => self.reserved(at, *allocation, models.as_deref(), event),
            Event::QuotaWaiting {
                allocation,
                refusal,
            } => self.told(at, *allocation, refusal, event),
            Event::QuotaDenied { allocation, .. } => self.denied(*allocation, event),
            Event::QuotaReclaimed { allocation, by } => self.reclaimed(at, *allocation, *by, event),
            Event::QuotaReleased { allocation } => self.released(at, *allocation, event),
            Event::LimitsInForce {
                account,
                resource,
                limits,
            } => self.in_force(at, account, resource, *limits, event),
            Event::AdminApplied { .. }
            | Event::AllocationRequested { .. }
            | Event::CancelRequested { .. }
            | Event::JobSetCancelRequested { .. }
            | Event::PriorityRequested { .. }
            | Event::ResourceAsked { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::LineExplained { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationRequeued { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AllocationEnded { .. }
            | Event::AllocationReprioritised { .. }
            | Event::CancelDecided { .. }
            | Event::JobSetCancelDecided { .. }
            | Event::PriorityDecided { .. }
            | Event::ResourceDecided { .. }
            | Event::ReservationExpired { .. }
            | Event::ReservationDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeJoined { .. }
            | Event::NodeForgotten { .. }
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

    /// Releases first, then the limits that hold from now on, so that what is free can be reserved in the same frame.
    fn decide(&mut self, (): &(), draft: &mut Draft) {
        release::decide(self, draft);
        schedule::decide(self, draft);
        reclaim::decide(self, draft);
        reserve::decide(self, draft);
    }

    fn wake_at(&self) -> Option<Millis> {
        let marks = &self.books.marks;
        let waits = !self.books.queues.is_empty() || !self.books.asides.is_empty();
        let looks = !marks.looked && waits;
        let due = self.due.first().map(|(at, _, _)| *at);
        let burst = self.books.bursts.first().map(|(at, _, _)| *at);
        let retry = marks.retries.first().map(|(at, _)| *at);
        let now = looks.then_some(Millis(i64::MIN));
        [due, burst, retry, now].into_iter().flatten().min()
    }
}

impl Quota {
    fn administer(&mut self, at: &At, change: &AdminChange) {
        match change {
            AdminChange::Tenant { tenant, settings } => self.treat(tenant, settings, at.now),
            AdminChange::Quota {
                account,
                resource,
                limits,
                validity,
            } => self.set_limits(at, account, resource, *limits, *validity),
            AdminChange::Budget {
                account,
                of,
                budget,
            } => self.set_budget(account, of, *budget, at.now),
            AdminChange::Rate {
                resource,
                micro_per_unit_hour,
                effective_from,
            } => self
                .rates
                .set(resource, *micro_per_unit_hour, *effective_from),
            // Not the quota's business.
            AdminChange::Queue { .. }
            | AdminChange::PriorityClass { .. }
            | AdminChange::Scheduling(_)
            | AdminChange::Cordon { .. }
            | AdminChange::Node { .. }
            | AdminChange::Reservation { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
