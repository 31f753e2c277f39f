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
    AllocationEnded, AllocationPlaced, AllocationReprioritised, AllocationRequested,
    AllocationRequeued, AllocationStarted, Applied, BudgetSet, LimitsInForce, NodeRegistered,
    QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaSet, QuotaWaiting, RateSet,
    ReservationExpired, ResourceAsked, ResourceDecided, TenantSet,
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
use vocab::{
    Account, AllocationNo, At, BudgetOf, Limits, Millis, ModelGrant, QuotaResource, Token, Validity,
};

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
    fn set_limits(
        &mut self,
        key: Key,
        limits: Option<Limits>,
        validity: Validity,
        version: u64,
        out: &mut Vec<Change>,
    ) {
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
        allocation: AllocationNo,
        said: Millis,
        at: &At,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let claim = self.claims.started(allocation, said, at, event)?;
        self.book.apply(claim, Move::Start, self.now, event)?;
        if let Some(run) = claim.run() {
            self.budgets
                .begun(&claim.account, &claim.used(), run.since, self.now, out);
        }
        Ok(())
    }

    /// A run that was over before it started has used nothing.
    fn requeued(
        &mut self,
        allocation: AllocationNo,
        said: Millis,
        at: &At,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        if let Some((claim, run)) = self.claims.requeued(allocation, event)? {
            self.book.apply(claim, Move::Requeue, self.now, event)?;
            self.stop(allocation, run, said, at, out);
        }
        if let Some((claim, before)) = self.claims.may_choose_again(allocation) {
            self.book
                .recount(claim, before.as_deref(), self.now, event)?;
        }
        Ok(())
    }

    /// What is held stays held until quota gives it back, but nothing more is spent.
    fn ended(&mut self, allocation: AllocationNo, said: Millis, at: &At, out: &mut Vec<Change>) {
        if let Some(run) = self.claims.ended(allocation, at, out) {
            self.stop(allocation, run, said, at, out);
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
        allocation: AllocationNo,
        models: Option<&ModelGrant>,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let claim = self.claims.reserved(allocation, models, event, out)?;
        self.book.apply(claim, Move::Reserve, self.now, event)
    }

    fn released(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let (claim, used) = self.claims.released(allocation, self.now, event, out)?;
        let how = if used {
            Move::ReleaseUsed
        } else {
            Move::ReleaseReserved
        };
        self.book.apply(&claim, how, self.now, event)
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
            Input::TenantSet(Applied {
                change: TenantSet { tenant, settings },
                version,
                ..
            }) => {
                let row = TenantRow::of(tenant, settings, *version);
                self.book.set_tenant(row, self.now, out);
            }
            Input::QuotaSet(Applied {
                change:
                    QuotaSet {
                        account,
                        resource,
                        limits,
                        validity,
                    },
                version,
                ..
            }) => {
                let key = (account.clone(), resource.clone());
                self.set_limits(key, *limits, *validity, *version, out);
            }
            Input::BudgetSet(Applied {
                change:
                    BudgetSet {
                        account,
                        of,
                        budget,
                    },
                version,
                ..
            }) => {
                let key = (account.clone(), of.clone());
                let runs = self.claims.runs(account);
                self.budgets
                    .set(key, (*budget, *version), &runs, self.now, out);
            }
            Input::RateSet(Applied {
                change:
                    RateSet {
                        resource,
                        micro_per_unit_hour,
                        effective_from,
                    },
                ..
            }) => {
                let price = (*micro_per_unit_hour, *effective_from);
                self.budgets.set_price(resource, price, self.now, out);
            }
            Input::AllocationRequested(AllocationRequested { operation, spec }) => {
                let claim = Claim::of(&operation.tenant, spec, at.lsn);
                self.claims.asked(AllocationNo(at.no.0), claim);
            }
            Input::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal,
            }) => self
                .claims
                .waits(*allocation, refusal, self.now, &input, out)?,
            Input::QuotaReserved(QuotaReserved {
                allocation, models, ..
            }) => self.reserved(*allocation, models.as_deref(), &input, out)?,
            Input::QuotaDenied(QuotaDenied { allocation, .. }) => {
                self.claims.denied(*allocation, &input, out)?
            }
            Input::QuotaReclaimed(QuotaReclaimed { allocation, by }) => {
                self.claims.reclaimed(*allocation, *by, &input)?;
            }
            Input::QuotaReleased(QuotaReleased { allocation }) => {
                self.released(*allocation, &input, out)?
            }
            Input::LimitsInForce(LimitsInForce {
                account,
                resource,
                limits,
            }) => {
                let key = (account.clone(), resource.clone());
                if !self.book.was_set(&key) {
                    return Err(IllegalEvent::new("no limits planned", &input));
                }
                self.plans.in_force(&key, at.now, out);
                self.book.set_limits(&key, *limits, self.now);
            }
            Input::AllocationPlaced(AllocationPlaced {
                allocation, node, ..
            }) => {
                let model = self.models.get(node).cloned();
                if let Some((claim, before)) = self.claims.placed(*allocation, model, at) {
                    self.book
                        .recount(claim, before.as_deref(), self.now, &input)?;
                }
            }
            Input::AllocationStarted(AllocationStarted {
                allocation,
                at: said,
            }) => self.started(*allocation, *said, at, &input, out)?,
            Input::AllocationRequeued(AllocationRequeued {
                allocation,
                at: said,
                ..
            }) => self.requeued(*allocation, *said, at, &input, out)?,
            Input::AllocationEnded(AllocationEnded {
                allocation,
                at: said,
                ..
            }) => self.ended(*allocation, *said, at, out),
            Input::AllocationReprioritised(AllocationReprioritised {
                allocation,
                priority,
            }) => self.claims.reprioritised(*allocation, *priority, out),
            Input::ResourceAsked(ResourceAsked { operation, ask, .. }) => {
                self.reservations.asked(at.no, &operation.tenant, ask);
            }
            Input::ResourceDecided(ResourceDecided { request, answer }) => {
                let changed = self.reservations.decided(*request, answer, at.no);
                self.reservations_changed(changed, &input)?;
            }
            Input::ReservationExpired(ReservationExpired { reservation, .. }) => {
                let changed = self.reservations.expired(*reservation);
                self.reservations_changed(changed, &input)?;
            }
            Input::NodeRegistered(NodeRegistered { node, capacity, .. }) => {
                match &capacity.gpu_model {
                    Some(model) => self.models.insert(node.clone(), model.clone()),
                    None => self.models.remove(node),
                };
            }
        }
        Ok(())
    }

    fn end_batch(&mut self, out: &mut Vec<Change>) {
        self.book.rows(out);
    }
}
