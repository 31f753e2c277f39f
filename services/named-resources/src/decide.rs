//! What comes of what was asked, and what expires.
//!
//! What was asked is decided before what expires at its slot. Where requests say the slot, that is all there is to time:
//! what was due at a tenant's latest slot expires before its next request is decided, however requests come together in
//! frames. Where the clock says it, admission's and this service's may differ: a request that comes with a slot before the
//! latest is of the latest.

use super::{Config, Named};
use ledger::{Decider, Draft};
use vocab::fact::{LeaseExpired, ResourceDecided, Scheduler};
use vocab::{Slot, Token};

/// A decider whose state has the named resources in it.
pub trait Holds: Decider<By = Scheduler> {
    fn named(&mut self) -> &mut Named;
}

/// Decides what was asked, and what expires, until nothing is left or the draft is full. The named resources are a part of
/// the state of a decider.
pub fn decide<D: Holds>(state: &mut D, config: &Config, draft: &mut Draft) {
    let by_requests = config.slot_ms == 0;
    loop {
        let named = state.named();
        let Some(asked) = named.asked.front() else {
            break;
        };
        if draft.full() {
            return;
        }
        if by_requests && named.overdue.contains(&asked.tenant) {
            let tenant = asked.tenant.clone();
            expire_seen(state, &tenant, config, draft);
            if draft.full() {
                return;
            }
        }
        // Nothing was taken out of it meanwhile.
        let Some(decided) = state.named().decide_next(config) else {
            return;
        };
        draft.emit(state, decided);
    }
    if by_requests {
        for tenant in state.named().overdue.clone() {
            expire_seen(state, &tenant, config, draft);
        }
    } else {
        expire_by_clock(state, config, draft);
    }
}

impl Named {
    /// What the next that was asked comes to.
    fn decide_next(&self, config: &Config) -> Option<ResourceDecided> {
        let asked = self.asked.front()?;
        let tenant = self.tenants.get(&asked.tenant)?;
        let slot = asked.slot.max(tenant.space.slot());
        let answer = tenant
            .space
            .decide(&asked.ask, slot, tenant.limit, &config.leases);
        Some(ResourceDecided {
            request: asked.no,
            answer,
        })
    }
}

fn expire_seen<D: Holds>(state: &mut D, tenant: &Token, config: &Config, draft: &mut Draft) {
    if let Some(slot) = state.named().slot(tenant) {
        expire(state, tenant, slot, config, draft);
    }
}

fn expire_by_clock<D: Holds>(state: &mut D, config: &Config, draft: &mut Draft) {
    let slot = u64::try_from(draft.now.0).unwrap_or(0) / config.slot_ms;
    state.named().clock.slot_ms = config.slot_ms;
    if state.named().clock.earliest.is_some_and(|at| at > slot) {
        return;
    }
    let deadlines = |state: &mut D| {
        let tenants = state.named().tenants.iter();
        let next = tenants.map(|(tenant, of)| (of.space.next_deadline(), tenant.clone()));
        next.filter_map(|(at, tenant)| Some((at?, tenant)))
            .collect::<Vec<_>>()
    };
    for (at, tenant) in deadlines(state) {
        if at <= slot {
            expire(state, &tenant, slot, config, draft);
        }
    }
    let all = deadlines(state);
    let earliest = all.iter().map(|(at, _)| *at).filter(|at| *at > slot).min();
    let again = draft.full();
    state.named().clock.earliest = (!again).then_some(earliest.unwrap_or(Slot::MAX));
}

/// Expires what is due of the tenant through `slot`, until the draft is full.
fn expire<D: Holds>(
    state: &mut D,
    tenant: &Token,
    through: Slot,
    config: &Config,
    draft: &mut Draft,
) {
    while !draft.full() {
        let Some(space) = state.named().space(tenant) else {
            return;
        };
        let Some((lease, deadline)) = space.due(through).next() else {
            return;
        };
        let slot = through.max(space.slot());
        // Where the end of its history would lie beyond the last slot, it cannot expire any more.
        let Ok(Some(expiry)) = space.decide_expiry(lease, deadline, slot, &config.leases) else {
            return;
        };
        let expired = LeaseExpired {
            tenant: tenant.clone(),
            lease,
            slot,
            fencing_token: expiry.fencing_token,
            retire_after: expiry.retire_after,
        };
        draft.emit(state, expired);
    }
}
