//! Named resources as rows. What is folded for them is what the scheduler folds.

use super::Change;
use crate::domain::Named;
use ledger::IllegalEvent;
use vocab::fact::{ReservationExpired, ResourceDecided};
use vocab::{
    At, Millis, ReservationNo, ReservationState, ResourceAnswer, ResourceAsk, Slot, Token,
};

/// A resource; of which state it is, its reservation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRow {
    pub tenant: Token,
    pub resource: Token,
    pub version: u64,
    pub reservation: Option<ReservationNo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    pub tenant: Token,
    pub reservation: ReservationNo,
    pub holder: Token,
    pub epoch: u64,
    pub state: ReservationState,
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
        (_, ResourceAsk::Reserve { .. }) => {
            reservation(named, at, &asked.tenant, ReservationNo::of(at.no), out);
        }
        (
            _,
            ResourceAsk::Confirm {
                reservation: no, ..
            }
            | ResourceAsk::Release {
                reservation: no, ..
            }
            | ResourceAsk::Revoke { reservation: no }
            | ResourceAsk::Reclaim { reservation: no },
        ) => reservation(named, at, &asked.tenant, *no, out),
    }
    space(named, &asked.tenant, out);
    Ok(())
}

/// The rows that an expiry changes.
pub(super) fn expired(
    named: &mut Named,
    at: &At,
    fact: &ReservationExpired,
    out: &mut Vec<Change>,
) -> Result<(), IllegalEvent> {
    let ReservationExpired {
        tenant,
        reservation: no,
        slot,
        retire_after,
        ..
    } = fact;
    named
        .expired(tenant, *no, (*slot, *retire_after))
        .map_err(|unfit| IllegalEvent::new(unfit, fact))?;
    reservation(named, at, tenant, *no, out);
    space(named, tenant, out);
    Ok(())
}

/// Whatever is decided about a reservation puts it into another state.
fn reservation(named: &Named, at: &At, tenant: &Token, no: ReservationNo, out: &mut Vec<Change>) {
    // It was changed just now, at the tenant's latest slot.
    let Ok(found) = named.reservation(tenant, no, 0) else {
        return;
    };
    resources(named, tenant, &found.resources, out);
    out.push(Change::Held(Box::new(HeldRow {
        tenant: tenant.clone(),
        reservation: no,
        holder: found.holder,
        epoch: found.epoch,
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
            reservation: found.reservation,
        })));
    }
}

fn space(named: &Named, tenant: &Token, out: &mut Vec<Change>) {
    if let Some(slot) = named.slot(tenant) {
        let tenant = tenant.clone();
        out.push(Change::Space(Box::new(SpaceRow { tenant, slot })));
    }
}
