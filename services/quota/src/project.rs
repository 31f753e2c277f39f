//! The ledger as rows: what is taken of each limit and was in each hour, what is set, what budgets have left, and what
//! waits. Pure.
//!
//! The rows are read from quota's own state, folded as quota's leader has folded it: what others record counts when quota
//! says that it has read it, in a frame with decisions or without. So the rows say what quota has decided so far, and by
//! what; while quota is behind, so are they.

mod book;
mod budget;
mod hours;
mod leases;
mod plan;
#[cfg(test)]
mod tests;
mod waiting;

pub use book::{AccountState, Peak, TenantRow};
pub use budget::{BudgetKey, BudgetState};
pub use hours::HourRow;
pub use plan::Planned;
pub use waiting::{Reclaimed, WaitingState};

use book::Book;
use budget::Budgets;
use leases::Leases;
use ledger::{Batching, Decider, Frame, IllegalEvent, Projection, Unread};
use plan::Plans;
use quota_rules::{Holding, Input as Heard, Quota, QuotaOf7};
use serde::{Deserialize, Serialize};
use vocab::fact::{Applied, Inputs, QuotaFact, QuotaSet};
use vocab::{
    Account, AllocationNo, At, Kinds, Lsn, Millis, QuotaResource, Token, Validity, inputs,
};
use waiting::Waiting;

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
    Budget(BudgetKey, Option<Box<BudgetState>>),
    Waiting(AllocationNo, Option<Box<WaitingState>>),
}

/// Folds the ledger into rows. Holds quota's state, and beside it what that does not remember.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    quota: Quota,
    /// What quota has not said to have read.
    unread: Unread,
    /// Whether quota has written anything.
    begun: bool,
    /// The writers' clocks differ by a little, and none goes back: the latest of them all.
    now: Millis,
    book: Book,
    plans: Plans,
    waiting: Waiting,
    leases: Leases,
    budgets: Budgets,
    /// Whose holdings or limits the event has changed.
    #[serde(skip)]
    touched: Vec<Key>,
}

/// The state of version 6, which has the decider's of version 7.
#[derive(Deserialize)]
struct ProjectionOf6 {
    quota: QuotaOf7,
    unread: Unread,
    begun: bool,
    now: Millis,
    book: Book,
    plans: Plans,
    waiting: Waiting,
    leases: Leases,
    budgets: Budgets,
}

impl From<ProjectionOf6> for WarmProjection {
    fn from(before: ProjectionOf6) -> Self {
        Self {
            quota: before.quota.into(),
            unread: before.unread,
            begun: before.begun,
            now: before.now,
            book: before.book,
            plans: before.plans,
            waiting: before.waiting,
            leases: before.leases,
            budgets: before.budgets,
            touched: Vec::new(),
        }
    }
}

inputs! {
    /// What quota does not read, and need not wait for.
    enum Beside {
        ResourceAsked,
        ResourceDecided,
        LeaseExpired,
    }
}

inputs! {
    pub enum Input {
        ..Heard,
        ..QuotaFact,
        ..Beside,
    }
}

impl WarmProjection {
    fn advance(&mut self, at: &At, out: &mut Vec<Change>) {
        self.now = self.now.max(at.now);
        let (quota, leases) = (&self.quota, &self.leases);
        let holding = |key: &Key| holding(quota, leases, key);
        if self.book.roll(self.now, holding, out) {
            self.budgets.change_all();
        }
    }

    /// Takes in those of a frame's events that are of these kinds.
    fn fold(
        &mut self,
        frame: &Frame,
        kinds: Kinds,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let of_kinds = |(_, event): &(At, &vocab::Event)| kinds.has(event.kind());
        for (at, event) in frame.placed().filter(of_kinds) {
            self.project_event(&at, event, out)?;
        }
        Ok(())
    }

    /// What the allocation counts on, now or before the event, has changed.
    fn touch(&mut self, allocation: AllocationNo) {
        let touched = &mut self.touched;
        (self.quota).each_counted(allocation, |account, resource| {
            touched.push((account, resource));
        });
    }

    /// What its run uses up has changed.
    fn touch_budgets(&mut self, allocation: AllocationNo) {
        if !self.budgets.is_empty() {
            for (account, of) in self.quota.budgets(allocation) {
                self.budgets.change((account.clone(), of));
            }
        }
    }

    /// What another writer has recorded, when quota has read it.
    fn heard(
        &mut self,
        at: &At,
        input: Heard<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        // What it counted on, or used up, it may not any more.
        let ran = match input {
            Heard::AllocationRequeued(fact) => {
                self.touch(fact.allocation);
                self.quota.runs(fact.allocation)
            }
            Heard::AllocationPlaced(fact) if self.quota.chooses(fact.allocation) => {
                self.touch(fact.allocation);
                false
            }
            Heard::AllocationEnded(fact) => self.quota.runs(fact.allocation),
            _ => false,
        };
        self.quota.observe(at, input)?;
        match input {
            Heard::TenantSet(Applied {
                change, version, ..
            }) => {
                let row = TenantRow::of(&change.tenant, &change.settings, *version);
                out.push(Change::Tenant(Box::new(row)));
                // Membership in a cohort is what makes of an excess a loan.
                let own = Account::tenant(change.tenant.clone());
                let limited = self.quota.limited(&own);
                self.touched
                    .extend(limited.map(|resource| (own.clone(), resource)));
            }
            Heard::QuotaSet(set) => self.limits_set(at, set, out),
            Heard::BudgetSet(Applied {
                change, version, ..
            }) => {
                let key = (change.account.clone(), change.of.clone());
                self.budgets.set(key, (change.budget, *version));
            }
            Heard::RateSet(_) => self.budgets.change_all(),
            Heard::AllocationRequested(_)
            | Heard::AllocationWaiting(_)
            | Heard::NodeRegistered(_) => {}
            Heard::AllocationPlaced(fact) => {
                if self.quota.chooses(fact.allocation) {
                    self.touch(fact.allocation);
                }
            }
            Heard::AllocationStarted(fact) => {
                self.touch(fact.allocation);
                self.touch_budgets(fact.allocation);
            }
            Heard::AllocationRequeued(fact) => {
                self.touch(fact.allocation);
                if ran {
                    self.touch_budgets(fact.allocation);
                }
            }
            Heard::AllocationEnded(fact) => {
                self.waiting.row(fact.allocation, &self.quota, out);
                if ran {
                    self.touch_budgets(fact.allocation);
                }
            }
            Heard::AllocationReprioritised(fact) => {
                self.waiting.row(fact.allocation, &self.quota, out);
            }
        }
        Ok(())
    }

    /// What is for a time is in force only when quota says so.
    fn limits_set(&mut self, at: &At, set: &Applied<QuotaSet>, out: &mut Vec<Change>) {
        let QuotaSet {
            account,
            resource,
            limits,
            validity,
        } = &set.change;
        let key = (account.clone(), resource.clone());
        self.book.set_version(&key, set.version);
        if *validity != Validity::default() {
            let (limits, validity) = (*limits, *validity);
            let planned = Planned { limits, validity };
            let by = (at.no, set.version);
            self.plans.add(&key, by, planned, out);
        }
        self.limits_changed(key, out);
    }

    fn limits_changed(&mut self, key: Key, out: &mut Vec<Change>) {
        let planned = self.quota.planned(&key.0, &key.1);
        self.plans.keep(&key, &planned, out);
        self.touched.push(key);
    }

    /// What quota has decided.
    fn decided(
        &mut self,
        at: &At,
        fact: QuotaFact<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        if let QuotaFact::QuotaReleased(fact) = fact {
            self.touch(fact.allocation);
        }
        self.quota.evolve(at, fact)?;
        match fact {
            QuotaFact::QuotaReserved(fact) => {
                self.touch(fact.allocation);
                self.waiting.over(fact.allocation, out);
            }
            QuotaFact::QuotaWaiting(fact) => {
                (self.waiting).told(fact.allocation, &fact.refusal, self.now);
                self.waiting.row(fact.allocation, &self.quota, out);
            }
            QuotaFact::QuotaDenied(fact) => self.waiting.row(fact.allocation, &self.quota, out),
            QuotaFact::QuotaReclaimed(fact) => self.waiting.reclaimed(fact.allocation, fact.by),
            QuotaFact::QuotaReleased(fact) => {
                (self.waiting).released(fact.allocation, &self.quota, self.now, out);
            }
            QuotaFact::LimitsInForce(fact) => {
                self.limits_changed((fact.account.clone(), fact.resource.clone()), out);
            }
        }
        Ok(())
    }

    fn beside(&mut self, at: &At, input: Beside<'_>) {
        let changed = match input {
            Beside::ResourceAsked(fact) => {
                (self.leases).asked(at.no, &fact.operation.tenant, &fact.ask);
                None
            }
            Beside::ResourceDecided(fact) => {
                (self.leases).decided(fact.request, &fact.answer, at.no)
            }
            Beside::LeaseExpired(fact) => self.leases.expired(fact.lease),
        };
        self.touched.extend(changed.map(leases_of));
    }

    /// Takes what has changed into its rows.
    fn settle(&mut self) {
        for key in self.touched.drain(..) {
            let holding = holding(&self.quota, &self.leases, &key);
            self.book.take(&key, &holding, self.now);
        }
    }
}

fn leases_of(tenant: Token) -> Key {
    (Account::tenant(tenant), QuotaResource::Leases)
}

fn holding(quota: &Quota, leases: &Leases, (account, resource): &Key) -> Holding {
    let holding = quota.holding(account, resource);
    if *resource != QuotaResource::Leases || account.team.is_some() {
        return holding;
    }
    let used = leases.of(&account.tenant);
    Holding {
        used,
        own: used,
        ..holding
    }
}

impl Projection for WarmProjection {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "quota";
    /// Up to 5 it had a state of the decider that is not known any more: it is folded from the beginning.
    const STATE_VERSION: u32 = 7;
    const BATCHING: Batching = Batching::BULK;

    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        (version == 6).then(|| ledger::decode_state(state).map(ProjectionOf6::into))?
    }

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        self.advance(at, out);
        match input {
            Input::Heard(input) => self.heard(at, input, out)?,
            Input::QuotaFact(fact) => self.decided(at, fact, out)?,
            Input::Beside(input) => self.beside(at, input),
        }
        self.settle();
        Ok(())
    }

    /// In the order in which quota's leader saw them. Before its first frame nothing is decided that could be crossed, and
    /// nobody says what is read: all is taken in at once, and anew as far as that frame says.
    fn take(&mut self, frame: &Frame, out: &mut Vec<Change>) -> Result<(), IllegalEvent> {
        if frame.writer != Quota::WRITER {
            self.fold(frame, Beside::KINDS, out)?;
            if frame.has(Heard::KINDS) {
                if !self.begun {
                    self.fold(frame, Heard::KINDS, out)?;
                }
                self.unread.push(frame.clone(), ());
            }
            return Ok(());
        }
        let begins = !std::mem::replace(&mut self.begun, true);
        if begins {
            self.quota = Quota::default();
        }
        while let Some((read, ())) = self.unread.next(frame.through_lsn) {
            self.fold(&read, Heard::KINDS, out)?;
        }
        self.fold(frame, QuotaFact::KINDS, out)?;
        if begins {
            let keys: Vec<Key> = self.book.keys().cloned().collect();
            keys.into_iter()
                .for_each(|key| self.limits_changed(key, out));
            self.settle();
            self.budgets.change_all();
        }
        self.quota.rest();
        Ok(())
    }

    /// After the first frame of quota's leader, frames that it has not read have no effect.
    fn reached(&self, read: Lsn) -> Lsn {
        match self.begun {
            true => self.unread.reached(read),
            false => read,
        }
    }

    fn end_batch(&mut self, out: &mut Vec<Change>) {
        let (quota, leases) = (&self.quota, &self.leases);
        self.book.rows(|key| holding(quota, leases, key), out);
        self.budgets.rows(quota, self.now, out);
    }
}
