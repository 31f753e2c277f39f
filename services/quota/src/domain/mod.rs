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
use vocab::fact::QuotaFact as Fact;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationReprioritised, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationWaiting, Applied, BudgetSet, LimitsInForce,
    NodeRegistered, QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaSet,
    QuotaWaiting, RateSet, TenantSet,
};
use vocab::inputs;

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
use vocab::{AllocationNo, At, Millis, WaitingReason};

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

inputs! {
    /// What it reads of the other writers.
    pub enum Input {
        TenantSet,
        QuotaSet,
        BudgetSet,
        RateSet,
        AllocationRequested,
        AllocationPlaced,
        AllocationStarted,
        AllocationRequeued,
        AllocationWaiting,
        AllocationEnded,
        AllocationReprioritised,
        NodeRegistered,
    }
}

impl Decider for Quota {
    type Command = Infallible;
    type Rules = ();
    type Effect = Infallible;
    type By = vocab::fact::Quota;
    type Input<'a> = Input<'a>;

    const STATE_VERSION: u32 = 5;

    fn observe(&mut self, at: &At, input: Input<'_>) -> Result<(), IllegalEvent> {
        match input {
            Input::TenantSet(Applied {
                change: TenantSet { tenant, settings },
                ..
            }) => self.treat(tenant, settings, at.now),
            Input::QuotaSet(Applied {
                change:
                    QuotaSet {
                        account,
                        resource,
                        limits,
                        validity,
                    },
                ..
            }) => self.set_limits(at, account, resource, *limits, *validity),
            Input::BudgetSet(Applied {
                change:
                    BudgetSet {
                        account,
                        of,
                        budget,
                    },
                ..
            }) => self.set_budget(account, of, *budget, at.now),
            Input::RateSet(Applied {
                change:
                    RateSet {
                        resource,
                        micro_per_unit_hour,
                        effective_from,
                    },
                ..
            }) => self
                .rates
                .set(resource, *micro_per_unit_hour, *effective_from),
            Input::AllocationRequested(AllocationRequested { operation, spec }) => {
                return self.request(AllocationNo(at.no.0), &operation.tenant, spec, &input);
            }
            Input::AllocationPlaced(AllocationPlaced {
                allocation, node, ..
            }) => return self.place(at, *allocation, node, &input),
            Input::AllocationStarted(AllocationStarted {
                allocation,
                at: from,
            }) => return self.start(at, *allocation, *from, &input),
            Input::AllocationRequeued(AllocationRequeued {
                allocation,
                at: until,
                ..
            }) => return self.stop(at, *allocation, *until, &input),
            Input::AllocationWaiting(AllocationWaiting {
                allocation,
                reason: WaitingReason::Quota,
                ..
            }) => self.keep_off(*allocation),
            Input::AllocationWaiting(AllocationWaiting {
                allocation, reason, ..
            }) => self.waits_for_fellows(*allocation, *reason == WaitingReason::GangIncomplete),
            Input::AllocationEnded(AllocationEnded {
                allocation,
                at: until,
                ..
            }) => self.end(*allocation, *until),
            Input::AllocationReprioritised(AllocationReprioritised {
                allocation,
                priority,
            }) => self.reprioritise(*allocation, *priority),
            Input::NodeRegistered(NodeRegistered { node, capacity, .. }) => {
                self.register(node, capacity)
            }
        }
        Ok(())
    }

    fn evolve(&mut self, at: &At, fact: Fact<'_>) -> Result<(), IllegalEvent> {
        match fact {
            Fact::QuotaReserved(QuotaReserved {
                allocation, models, ..
            }) => self.reserved(at, *allocation, models.as_deref(), &fact),
            Fact::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal,
            }) => self.told(at, *allocation, refusal, &fact),
            Fact::QuotaDenied(QuotaDenied { allocation, .. }) => self.denied(*allocation, &fact),
            Fact::QuotaReclaimed(QuotaReclaimed { allocation, by }) => {
                self.reclaimed(at, *allocation, *by, &fact)
            }
            Fact::QuotaReleased(QuotaReleased { allocation }) => {
                self.released(at, *allocation, &fact)
            }
            Fact::LimitsInForce(LimitsInForce {
                account,
                resource,
                limits,
            }) => self.in_force(at, account, resource, *limits, &fact),
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

#[cfg(test)]
mod tests;
