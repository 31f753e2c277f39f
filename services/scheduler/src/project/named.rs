//! Named resources as rows. What is folded for them is what the scheduler folds.

use super::Change;
use ledger::IllegalEvent;
use scheduler_rules::Named;
use vocab::fact::{LeaseExpired, ResourceDecided};
use vocab::{At, LeaseNo, LeaseState, Millis, ResourceAnswer, ResourceAsk, Slot, Token};

/// A resource; of which state it is, its lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRow {
    pub tenant: Token,
    pub resource: Token,
    pub version: u64,
    pub lease: Option<LeaseNo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    pub tenant: Token,
    pub lease: LeaseNo,
    pub holder: Token,
    pub fencing_token: u64,
    pub state: LeaseState,
    pub since: Millis,
    pub deadline: Slot,
    pub retire_after: Option<Slot>,
    pub resources: Vec<Token>,
}

/// What of the tenant ended before this slot is forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceRow {
    pub tenant: Token,
    pub slot: Slot,
}

/// The rows that a decision changes.
pub(super) fn decided(
    named: &mut Named,
    at: &At,
    fact: &ResourceDecided,
    out: &mut Vec<Change>,
) -> Result<(), IllegalEvent> {
    let ResourceDecided { request, answer } = fact;
    let asked = named.decided(at.no, *request, answer);
    let asked = asked.map_err(|unfit| IllegalEvent::new(unfit, fact))?;
    match (answer, &asked.ask) {
        (ResourceAnswer::Refused(_), _) => {}
        (_, ResourceAsk::Create { resource }) => resources(named, &asked.tenant, [resource], out),
        (_, ResourceAsk::Acquire { .. }) => {
            lease(named, at, &asked.tenant, LeaseNo::of(at.no), out);
        }
        (
            _,
            ResourceAsk::Confirm { lease: no, .. }
            | ResourceAsk::Release { lease: no, .. }
            | ResourceAsk::Revoke { lease: no }
            | ResourceAsk::Reclaim { lease: no },
        ) => lease(named, at, &asked.tenant, *no, out),
    }
    space(named, &asked.tenant, out);
    Ok(())
}

/// The rows that an expiry changes.
pub(super) fn expired(
    named: &mut Named,
    at: &At,
    fact: &LeaseExpired,
    out: &mut Vec<Change>,
) -> Result<(), IllegalEvent> {
    let LeaseExpired {
        tenant,
        lease: no,
        slot,
        retire_after,
        ..
    } = fact;
    named
        .expired(tenant, *no, (*slot, *retire_after))
        .map_err(|unfit| IllegalEvent::new(unfit, fact))?;
    lease(named, at, tenant, *no, out);
    space(named, tenant, out);
    Ok(())
}

/// Whatever is decided about a lease puts it into another state.
fn lease(named: &Named, at: &At, tenant: &Token, no: LeaseNo, out: &mut Vec<Change>) {
    // It was changed just now, at the tenant's latest slot.
    let Ok(found) = named.lease(tenant, no, 0) else {
        return;
    };
    resources(named, tenant, &found.resources, out);
    out.push(Change::Held(Box::new(HeldRow {
        tenant: tenant.clone(),
        lease: no,
        holder: found.holder,
        fencing_token: found.fencing_token,
        state: found.state,
        since: at.now,
        deadline: found.deadline,
        retire_after: found.retire_after,
        resources: found.resources,
    })));
}

fn resources<'a>(
    named: &Named,
    tenant: &Token,
    names: impl IntoIterator<Item = &'a Token>,
    out: &mut Vec<Change>,
) {
    for resource in names {
        let Some(found) = named.resource(tenant, resource) else {
            continue;
        };
        out.push(Change::Resource(Box::new(ResourceRow {
            tenant: tenant.clone(),
            resource: resource.clone(),
            version: found.version,
            lease: found.lease,
        })));
    }
}

fn space(named: &Named, tenant: &Token, out: &mut Vec<Change>) {
    if let Some(slot) = named.slot(tenant) {
        let tenant = tenant.clone();
        out.push(Change::Space(Box::new(SpaceRow { tenant, slot })));
    }
}
