//! Named resources: what tenants ask of theirs, in the order in which it came, and the expiry of what nobody confirmed.
//!
//! [`Named`] is folded from the ledger: [`Named::observe`] takes in what was asked and which limits hold, [`decide`] says
//! what comes of it, and [`Named::decided`] and [`Named::expired`] apply that. It knows no other part of the state that it
//! is in. What a single tenant's resources and leases may go through is the matter of a [`Space`].

mod config;
mod decide;
pub mod model;
mod space;

pub use config::Config;
pub use decide::{Holds, decide};
pub use space::{Bounds, LeaseView, ResourceState, ResourceView, Space, Unfit, UnfitBound};

use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::{
    Account, At, EventNo, LeaseNo, Limits, Millis, QuotaResource, Refusal, ResourceAnswer,
    ResourceAsk, Slot, Token, Validity, inputs,
};

inputs! {
    /// What it reads of the other writers.
    pub enum Input {
        ResourceAsked,
        QuotaSet,
        LimitsInForce,
    }
}

/// All tenants' spaces, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// A tenant that has asked once stays: numbers that were retired stay retired.
    tenants: BTreeMap<Token, Tenant>,
    /// To be decided, in the order of their numbers.
    asked: VecDeque<Asked>,
    /// Tenants that have leases whose deadline is not after the tenant's latest slot.
    overdue: BTreeSet<Token>,
    #[serde(skip)]
    clock: Scratch<Clock>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tenant {
    space: Space,
    /// Live leases that it may have.
    limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    no: EventNo,
    pub tenant: Token,
    slot: Slot,
    pub ask: ResourceAsk,
}

/// When the next expires. Until the first decisions are made, nobody knows.
#[derive(Debug, Default)]
struct Clock {
    slot_ms: u64,
    /// No deadline lies before it, but for those that were looked at in vain; none: all have to be looked at.
    earliest: Option<Slot>,
}

impl Named {
    pub fn observe(&mut self, at: &At, input: Input<'_>) {
        match input {
            Input::ResourceAsked(fact) => {
                self.ask(at.no, &fact.operation.tenant, fact.slot, &fact.ask);
            }
            // What holds from a later moment on, or until one, quota says when it does.
            Input::QuotaSet(set) if set.change.validity != Validity::default() => {}
            Input::QuotaSet(set) => {
                let limits = set.change.limits.as_ref();
                self.limit(&set.change.account, &set.change.resource, limits);
            }
            Input::LimitsInForce(fact) => {
                self.limit(&fact.account, &fact.resource, fact.limits.as_ref());
            }
        }
    }

    pub fn ask(&mut self, no: EventNo, tenant: &Token, slot: Slot, ask: &ResourceAsk) {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Tenant::default());
        }
        self.asked.push_back(Asked {
            no,
            tenant: tenant.clone(),
            slot,
            ask: ask.clone(),
        });
    }

    /// From here on the limits hold.
    fn limit(&mut self, account: &Account, resource: &QuotaResource, limits: Option<&Limits>) {
        if account.team.is_none() && *resource == QuotaResource::Leases {
            let tenant = self.tenants.entry(account.tenant.clone()).or_default();
            tenant.limit = limits.map(|limits| limits.hard);
        }
    }

    pub fn resource(&self, tenant: &Token, name: &Token) -> Option<ResourceView> {
        self.tenants.get(tenant)?.space.resource(name)
    }

    /// As it stands at `slot`, or at the tenant's latest if that is later.
    pub fn lease(&self, tenant: &Token, no: LeaseNo, slot: Slot) -> Result<LeaseView, Refusal> {
        let none = Space::default();
        let space = self.space(tenant).unwrap_or(&none);
        space.lease(no, slot.max(space.slot()))
    }

    pub fn wake_at(&self) -> Option<Millis> {
        let earliest = self.clock.earliest.filter(|slot| *slot < Slot::MAX)?;
        let at = earliest.checked_mul(self.clock.slot_ms)?;
        Some(Millis(i64::try_from(at).ok()?))
    }

    /// The next that was asked has come to this; `no` is the event that says so.
    pub fn decided(
        &mut self,
        no: EventNo,
        request: EventNo,
        answer: &ResourceAnswer,
    ) -> Result<Asked, Unfit> {
        let asked = self.asked.pop_front();
        let asked = asked.filter(|asked| asked.no == request);
        let asked = asked.ok_or("another request is next")?;
        let tenant = self.tenants.get_mut(&asked.tenant);
        let space = &mut tenant.ok_or("no such tenant")?.space;
        let slot = asked.slot.max(space.slot());
        space.apply(LeaseNo::of(no), &asked.ask, slot, answer)?;
        if let (ResourceAnswer::Granted { deadline }, Some(earliest)) =
            (answer, &mut self.clock.earliest)
        {
            *earliest = (*earliest).min(*deadline);
        }
        self.note_overdue(&asked.tenant);
        Ok(asked)
    }

    pub fn expired(
        &mut self,
        tenant: &Token,
        lease: LeaseNo,
        (slot, retire_after): (Slot, Slot),
    ) -> Result<(), Unfit> {
        let of = self.tenants.get_mut(tenant).ok_or("no such tenant")?;
        of.space.expire(lease, slot, retire_after)?;
        self.note_overdue(tenant);
        Ok(())
    }

    /// The tenant's latest slot.
    pub fn slot(&self, tenant: &Token) -> Option<Slot> {
        self.space(tenant).map(Space::slot)
    }

    fn space(&self, tenant: &Token) -> Option<&Space> {
        self.tenants.get(tenant).map(|tenant| &tenant.space)
    }

    fn note_overdue(&mut self, tenant: &Token) {
        let due = |space: &Space| space.next_deadline().is_some_and(|at| at <= space.slot());
        if self.space(tenant).is_some_and(due) {
            self.overdue.insert(tenant.clone());
        } else if !self.overdue.is_empty() {
            self.overdue.remove(tenant);
        }
    }
}
