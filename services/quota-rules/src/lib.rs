//! The quota's rules: tenants, their teams and namespaces, what they may hold, borrow and spend. Pure.
//!
//! A claim counts at every account of its path. What it waits for it is told, and it waits in that queue ([`queues`]);
//! everything else follows from what is held ([`books`]).

mod account;
mod allow;
mod aside;
mod before;
mod books;
mod budget;
mod check;
mod claim;
mod cohort;
mod demand;
mod depend;
mod figures;
mod gang;
mod limits;
mod marks;
mod meter;
mod models;
mod node;
mod purse;
mod queues;
mod rates;
mod read;
mod reclaim;
mod release;
mod request;
mod reserve;
mod resource;
mod schedule;
mod taken;
mod trial;
mod unit;
mod usage_tree;
mod victims;
mod wait;

pub use figures::METRICS;
pub use meter::Forecast;
pub use read::{Holding, PoolView};
pub use trial::{Lent, Trial, TriedLimit, WouldBe};
use vocab::fact::Applied;
use vocab::fact::QuotaFact as Fact;
use vocab::inputs;

use account::AccountId;
use books::Books;
use claim::Claim;
use depend::Dependencies;
use gang::Gangs;
use ledger::{Decider, Draft, Figures, IllegalEvent};
use models::Fleet;
use rates::{Rates, RatesOf7};
use resource::ResourceId;
use schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};
use vocab::{AllocationNo, At, Millis, Numbered, WaitingReason};

/// Everything that quota knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    books: Books,
    claims: Numbered<AllocationNo, Claim>,
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

/// The state of version 7, which differs in its rates alone.
#[derive(Deserialize)]
pub struct QuotaOf7 {
    books: Books,
    claims: Numbered<AllocationNo, Claim>,
    asked: BTreeSet<AllocationNo>,
    leaving: BTreeSet<AllocationNo>,
    gangs: Gangs,
    dependencies: Dependencies,
    schedules: BTreeMap<(AccountId, ResourceId), Schedule>,
    due: BTreeSet<(Millis, AccountId, ResourceId)>,
    rates: RatesOf7,
    fleet: Fleet,
}

impl From<QuotaOf7> for Quota {
    fn from(before: QuotaOf7) -> Self {
        Self {
            books: before.books,
            claims: before.claims,
            asked: before.asked,
            leaving: before.leaving,
            gangs: before.gangs,
            dependencies: before.dependencies,
            schedules: before.schedules,
            due: before.due,
            rates: before.rates.into(),
            fleet: before.fleet,
        }
    }
}

/// What decisions depend on beside the ledger, as the service's configuration has it: there is nothing to set yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {}

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
    type Config = Config;
    type Effect = Infallible;
    type By = vocab::fact::Quota;
    type Input<'a> = Input<'a>;

    /// Up to 6 nothing said in which pool and cluster a claim runs: it is folded from the beginning.
    const STATE_VERSION: u32 = 8;

    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        (version == 7).then(|| ledger::decode_state(state).map(QuotaOf7::into))?
    }

    fn observe(&mut self, at: &At, input: Input<'_>) -> Result<(), IllegalEvent> {
        match input {
            Input::TenantSet(Applied { change, .. }) => {
                self.treat(&change.tenant, &change.settings, at.now);
            }
            Input::QuotaSet(Applied { change, .. }) => {
                let (account, resource) = (&change.account, &change.resource);
                self.set_limits(at, account, resource, change.limits, change.validity);
            }
            Input::BudgetSet(Applied { change, .. }) => {
                self.set_budget(&change.account, &change.of, change.budget, at.now);
            }
            Input::RateSet(Applied { change, .. }) => {
                self.rates.set(change);
            }
            Input::AllocationRequested(fact) => {
                let tenant = &fact.operation.tenant;
                return self.request(AllocationNo(at.no.0), tenant, &fact.spec, fact);
            }
            Input::AllocationPlaced(fact) => {
                return self.place(at, fact.allocation, &fact.node, fact);
            }
            Input::AllocationStarted(fact) => {
                return self.start(at, fact.allocation, fact.at, fact);
            }
            Input::AllocationRequeued(fact) => {
                return self.stop(at, fact.allocation, fact.at, fact);
            }
            Input::AllocationWaiting(fact) if fact.reason == WaitingReason::Quota => {
                self.keep_off(fact.allocation);
            }
            Input::AllocationWaiting(fact) => {
                let for_fellows = fact.reason == WaitingReason::GangIncomplete;
                self.waits_for_fellows(fact.allocation, for_fellows);
            }
            Input::AllocationEnded(fact) => self.end(fact.allocation, fact.at),
            Input::AllocationReprioritised(fact) => {
                self.reprioritise(fact.allocation, fact.priority);
            }
            Input::NodeRegistered(fact) => self.register(&fact.node, &fact.capacity),
        }
        Ok(())
    }

    fn evolve(&mut self, at: &At, fact: Fact<'_>) -> Result<(), IllegalEvent> {
        match fact {
            Fact::QuotaReserved(fact) => {
                self.reserved(at, fact.allocation, fact.models.as_deref(), fact)
            }
            Fact::QuotaWaiting(fact) => self.told(at, fact.allocation, &fact.refusal, fact),
            Fact::QuotaDenied(fact) => self.denied(fact.allocation, fact),
            Fact::QuotaReclaimed(fact) => self.reclaimed(at, fact.allocation, fact.by, fact),
            Fact::QuotaReleased(fact) => self.released(at, fact.allocation, fact),
            Fact::LimitsInForce(fact) => {
                self.in_force(at, &fact.account, &fact.resource, fact.limits, fact)
            }
        }
    }

    fn handle(&mut self, command: Infallible, _config: &Config, _draft: &mut Draft) {
        match command {}
    }

    /// Releases first, then the limits that hold from now on, so that what is free can be reserved in the same frame.
    fn decide(&mut self, _config: &Config, draft: &mut Draft) {
        release::decide(self, draft);
        schedule::decide(self, draft);
        reclaim::decide(self, draft);
        reserve::decide(self, draft);
    }

    fn show(&self, now: Millis, figures: &mut Figures) {
        self.figures(now, figures);
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
