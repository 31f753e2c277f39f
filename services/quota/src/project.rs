//! The ledger as rows: what is taken of each limit and was in each hour, what is set, what budgets have left, and what
//! waits. Pure.

mod book;
mod budget;
mod claim;
mod hours;
mod plan;
mod price;
mod reservations;
#[cfg(test)]
mod tests;

pub use book::{AccountState, Peak, TenantRow};
pub use budget::BudgetState;
pub use claim::{Reclaimed, WaitingState};
pub use hours::HourRow;
pub use plan::Planned;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    Applied, BudgetSet, LimitsInForce, QuotaReleased, QuotaReserved, QuotaSet,
};
use vocab::inputs;

use book::{Book, Move};
use budget::Budgets;
use claim::{Claim, Claims, Run};
use ledger::{Batching, IllegalEvent, Projection};
use plan::Plans;
use reservations::Reservations;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use vocab::{Account, AllocationNo, At, BudgetOf, Millis, QuotaResource, Token, Validity};

/// What a limit is of.
pub type Key = (Account, QuotaResource);

/// One row as it stands after the event; none: there is no such row any more. Of each key the last one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Account(Key, Option<Box<AccountState>>),
    Hour(Key, Box<HourRow>),
    /// By the version that planned it.
    Planned(Key, u64, Option<Box<Planned>>),
    Tenant(Box<TenantRow>),
    Budget((Account, BudgetOf), Option<Box<BudgetState>>),
    Waiting(AllocationNo, Option<Box<WaitingState>>),
}

/// Folds the ledger into rows. Holds what is live, what is set and the current hour, and nothing of what has ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    /// The writers' clocks differ by a little, and none goes back: the latest of them all.
    now: Millis,
    book: Book,
    plans: Plans,
    claims: Claims,
    reservations: Reservations,
    budgets: Budgets,
    /// The GPU model of each node that has registered, for its rate.
    models: BTreeMap<Token, Token>,
}

impl WarmProjection {
    fn advance(&mut self, at: &At, out: &mut Vec<Change>) {
        self.now = self.now.max(at.now);
        if self.book.roll(self.now, out) {
            self.budgets.roll(self.now, out);
        }
    }

    /// What is for a time is in force only when quota says so, and what is set below it waits until it is over.
    fn set_limits(&mut self, set: &Applied<QuotaSet>, out: &mut Vec<Change>) {
        let version = set.version;
        let (limits, validity) = (set.change.limits, set.change.validity);
        let key = (set.change.account.clone(), set.change.resource.clone());
        self.book.set_version(&key, version);
        if validity == Validity::default() && !self.plans.overridden(&key) {
            self.book.set_limits(&key, limits, self.now);
            return;
        }
        self.book.refresh(&key, self.now);
        if validity != Validity::default() {
            self.plans
                .add(key, version, Planned { limits, validity }, out);
        }
    }

    fn started(
        &mut self,
        fact: &AllocationStarted,
        at: &At,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let claim = self.claims.started(fact.allocation, fact.at, at, fact)?;
        self.book.apply(claim, Move::Start, self.now, fact)?;
        if let Some(run) = claim.run() {
            self.budgets
                .begun(&claim.account, &claim.used(), run.since, self.now, out);
        }
        Ok(())
    }

    /// A run that was over before it started has used nothing.
    fn requeued(
        &mut self,
        fact: &AllocationRequeued,
        at: &At,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let allocation = fact.allocation;
        if let Some((claim, run)) = self.claims.requeued(allocation, fact)? {
            self.book.apply(claim, Move::Requeue, self.now, fact)?;
            self.stop(allocation, run, fact.at, at, out);
        }
        if let Some((claim, before)) = self.claims.may_choose_again(allocation) {
            (self.book).recount(claim, before.as_deref(), self.now, fact)?;
        }
        Ok(())
    }

    /// What is held stays held until quota gives it back, but nothing more is spent.
    fn ended(&mut self, fact: &AllocationEnded, at: &At, out: &mut Vec<Change>) {
        if let Some(run) = self.claims.ended(fact.allocation, at, out) {
            self.stop(fact.allocation, run, fact.at, at, out);
        }
    }

    fn stop(
        &mut self,
        allocation: AllocationNo,
        run: Run,
        said: Millis,
        at: &At,
        out: &mut Vec<Change>,
    ) {
        if let Some(claim) = self.claims.get(allocation) {
            let over = said.between(run.since, at.now.max(run.since));
            self.budgets
                .over(&claim.account, &claim.used(), over, self.now, out);
        }
    }

    fn reserved(
        &mut self,
        fact: &QuotaReserved,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let models = fact.models.as_deref();
        let claim = (self.claims).reserved(fact.allocation, models, fact, out)?;
        self.book.apply(claim, Move::Reserve, self.now, fact)
    }

    fn released(
        &mut self,
        fact: &QuotaReleased,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let (claim, used) = (self.claims).released(fact.allocation, self.now, fact, out)?;
        let how = if used {
            Move::ReleaseUsed
        } else {
            Move::ReleaseReserved
        };
        self.book.apply(&claim, how, self.now, fact)
    }

    fn in_force(
        &mut self,
        fact: &LimitsInForce,
        at: &At,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let key = (fact.account.clone(), fact.resource.clone());
        if !self.book.was_set(&key) {
            return Err(IllegalEvent::new("no limits planned", fact));
        }
        self.plans.in_force(&key, at.now, out);
        self.book.set_limits(&key, fact.limits, self.now);
        Ok(())
    }

    fn placed(&mut self, fact: &AllocationPlaced, at: &At) -> Result<(), IllegalEvent> {
        let model = self.models.get(&fact.node).cloned();
        match self.claims.placed(fact.allocation, model, at) {
            Some((claim, before)) => (self.book).recount(claim, before.as_deref(), self.now, fact),
            None => Ok(()),
        }
    }

    fn set_budget(&mut self, set: &Applied<BudgetSet>, out: &mut Vec<Change>) {
        let BudgetSet {
            account,
            of,
            budget,
        } = &set.change;
        let key = (account.clone(), of.clone());
        let runs = self.claims.runs(account);
        let budget = (*budget, set.version);
        self.budgets.set(key, budget, &runs, self.now, out);
    }

    fn reservations_changed(
        &mut self,
        tenant: Option<(Token, Move)>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let Some((tenant, how)) = tenant else {
            return Ok(());
        };
        let key = (Account::tenant(tenant), QuotaResource::Reservations);
        self.book.take(&key, how, 1, self.now, event)
    }
}

inputs! {
    pub enum Input {
        TenantSet,
        QuotaSet,
        BudgetSet,
        RateSet,
        AllocationRequested,
        ResourceAsked,
        QuotaReserved,
        QuotaDenied,
        QuotaReleased,
        QuotaWaiting,
        QuotaReclaimed,
        LimitsInForce,
        AllocationPlaced,
        AllocationStarted,
        AllocationRequeued,
        AllocationEnded,
        AllocationReprioritised,
        ResourceDecided,
        ReservationExpired,
        NodeRegistered,
    }
}

impl Projection for WarmProjection {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "quota";
    const STATE_VERSION: u32 = 3;
    const BATCHING: Batching = Batching::BULK;

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        self.advance(at, out);
        match input {
            Input::TenantSet(set) => {
                let row = TenantRow::of(&set.change.tenant, &set.change.settings, set.version);
                self.book.set_tenant(row, self.now, out);
            }
            Input::QuotaSet(set) => self.set_limits(set, out),
            Input::BudgetSet(set) => self.set_budget(set, out),
            Input::RateSet(Applied { change, .. }) => {
                let price = (change.micro_per_unit_hour, change.effective_from);
                (self.budgets).set_price(&change.resource, price, self.now, out);
            }
            Input::AllocationRequested(AllocationRequested { operation, spec }) => {
                let claim = Claim::of(&operation.tenant, spec, at.lsn);
                self.claims.asked(AllocationNo(at.no.0), claim);
            }
            Input::QuotaWaiting(fact) => {
                (self.claims).waits(fact.allocation, &fact.refusal, self.now, fact, out)?;
            }
            Input::QuotaReserved(fact) => self.reserved(fact, out)?,
            Input::QuotaDenied(fact) => self.claims.denied(fact.allocation, fact, out)?,
            Input::QuotaReclaimed(fact) => self.claims.reclaimed(fact.allocation, fact.by, fact)?,
            Input::QuotaReleased(fact) => self.released(fact, out)?,
            Input::LimitsInForce(fact) => self.in_force(fact, at, out)?,
            Input::AllocationPlaced(fact) => self.placed(fact, at)?,
            Input::AllocationStarted(fact) => self.started(fact, at, out)?,
            Input::AllocationRequeued(fact) => self.requeued(fact, at, out)?,
            Input::AllocationEnded(fact) => self.ended(fact, at, out),
            Input::AllocationReprioritised(fact) => {
                (self.claims).reprioritised(fact.allocation, fact.priority, out);
            }
            Input::ResourceAsked(fact) => {
                (self.reservations).asked(at.no, &fact.operation.tenant, &fact.ask);
            }
            Input::ResourceDecided(fact) => {
                let changed = (self.reservations).decided(fact.request, &fact.answer, at.no);
                self.reservations_changed(changed, fact)?;
            }
            Input::ReservationExpired(fact) => {
                let changed = self.reservations.expired(fact.reservation);
                self.reservations_changed(changed, fact)?;
            }
            Input::NodeRegistered(fact) => {
                match &fact.capacity.gpu_model {
                    Some(model) => self.models.insert(fact.node.clone(), model.clone()),
                    None => self.models.remove(&fact.node),
                };
            }
        }
        Ok(())
    }

    fn end_batch(&mut self, out: &mut Vec<Change>) {
        self.book.rows(out);
    }
}
