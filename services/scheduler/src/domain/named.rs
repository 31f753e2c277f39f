//! Named resources: what tenants ask of theirs, in the order in which it came, and the expiry of what nobody confirmed.
//!
//! What was asked is decided before what expires at its slot. Where requests say the slot, that is all there is to time:
//! what was due at a tenant's latest slot expires before its next request is decided, however requests come together in
//! frames. Where the clock says it, admission's and this service's may differ: a request that comes with a slot before the
//! latest is of the latest.

use super::{
    Rules, Scheduler,
    interner::Scratch,
    kernel::{ReservationView, ResourceView, Space, Unfit},
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::fact::{ReservationExpired, ResourceDecided};
use vocab::{
    Account, EventNo, Limits, Millis, QuotaResource, Refusal, ReservationNo, ResourceAnswer,
    ResourceAsk, Slot, Token,
};

/// All tenants' spaces, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// A tenant that has asked once stays: numbers that were retired stay retired.
    tenants: BTreeMap<Token, Tenant>,
    /// To be decided, in the order of their numbers.
    asked: VecDeque<Asked>,
    /// Tenants that have reservations whose deadline is not after the tenant's latest slot.
    overdue: BTreeSet<Token>,
    #[serde(skip)]
    clock: Scratch<Clock>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tenant {
    space: Space,
    /// Live reservations that it may have.
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
    pub fn limit(&mut self, account: &Account, resource: &QuotaResource, limits: Option<&Limits>) {
        if account.team.is_none() && *resource == QuotaResource::Reservations {
            let tenant = self.tenants.entry(account.tenant.clone()).or_default();
            tenant.limit = limits.map(|limits| limits.hard);
        }
    }

    pub fn resource(&self, tenant: &Token, name: &Token) -> Option<ResourceView> {
        self.tenants.get(tenant)?.space.resource(name)
    }

    /// As it stands at `slot`, or at the tenant's latest if that is later.
    pub fn reservation(
        &self,
        tenant: &Token,
        no: ReservationNo,
        slot: Slot,
    ) -> Result<ReservationView, Refusal> {
        let none = Space::default();
        let space = self.space(tenant).unwrap_or(&none);
        space.reservation(no, slot.max(space.slot()))
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
        space.apply(ReservationNo::of(no), &asked.ask, slot, answer)?;
        if let (ResourceAnswer::Reserved { deadline }, Some(earliest)) =
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
        reservation: ReservationNo,
        (slot, retire_after): (Slot, Slot),
    ) -> Result<(), Unfit> {
        let of = self.tenants.get_mut(tenant).ok_or("no such tenant")?;
        of.space.expire(reservation, slot, retire_after)?;
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

pub(super) fn decide(state: &mut Scheduler, rules: &Rules, draft: &mut Draft) {
    let by_requests = rules.slot_ms == 0;
    while let Some(asked) = state.named.asked.front() {
        if draft.full() {
            return;
        }
        if by_requests && state.named.overdue.contains(&asked.tenant) {
            let tenant = asked.tenant.clone();
            expire_seen(state, &tenant, rules, draft);
            if draft.full() {
                return;
            }
        }
        // Nothing was taken out of it meanwhile.
        let Some(asked) = state.named.asked.front() else {
            return;
        };
        let Some(tenant) = state.named.tenants.get(&asked.tenant) else {
            return;
        };
        let slot = asked.slot.max(tenant.space.slot());
        let answer = tenant
            .space
            .decide(&asked.ask, slot, tenant.limit, &rules.bounds);
        let request = asked.no;
        draft.emit(state, ResourceDecided { request, answer });
    }
    if by_requests {
        for tenant in state.named.overdue.clone() {
            expire_seen(state, &tenant, rules, draft);
        }
    } else {
        expire_by_clock(state, rules, draft);
    }
}

fn expire_seen(state: &mut Scheduler, tenant: &Token, rules: &Rules, draft: &mut Draft) {
    if let Some(slot) = state.named.slot(tenant) {
        expire(state, tenant, slot, rules, draft);
    }
}

fn expire_by_clock(state: &mut Scheduler, rules: &Rules, draft: &mut Draft) {
    let slot = u64::try_from(draft.now.0).unwrap_or(0) / rules.slot_ms;
    state.named.clock.slot_ms = rules.slot_ms;
    if state.named.clock.earliest.is_some_and(|at| at > slot) {
        return;
    }
    let deadlines = |state: &Scheduler| {
        let tenants = state.named.tenants.iter();
        let next = tenants.map(|(tenant, of)| (of.space.next_deadline(), tenant.clone()));
        next.filter_map(|(at, tenant)| Some((at?, tenant)))
            .collect::<Vec<_>>()
    };
    for (at, tenant) in deadlines(state) {
        if at <= slot {
            expire(state, &tenant, slot, rules, draft);
        }
    }
    let all = deadlines(state);
    let earliest = all.iter().map(|(at, _)| *at).filter(|at| *at > slot).min();
    let again = draft.full();
    state.named.clock.earliest = (!again).then_some(earliest.unwrap_or(Slot::MAX));
}

/// Expires what is due of the tenant through `slot`, until the draft is full.
fn expire(state: &mut Scheduler, tenant: &Token, through: Slot, rules: &Rules, draft: &mut Draft) {
    while !draft.full() {
        let Some(space) = state.named.space(tenant) else {
            return;
        };
        let Some((reservation, deadline)) = space.due(through).next() else {
            return;
        };
        let slot = through.max(space.slot());
        // Where the end of its history would lie beyond the last slot, it cannot expire any more.
        let Ok(Some(expiry)) = space.decide_expiry(reservation, deadline, slot, &rules.bounds)
        else {
            return;
        };
        let expired = ReservationExpired {
            tenant: tenant.clone(),
            reservation,
            slot,
            epoch: expiry.epoch,
            retire_after: expiry.retire_after,
        };
        draft.emit(state, expired);
    }
}
