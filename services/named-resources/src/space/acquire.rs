//! All of some resources or none of them, until a deadline.

use super::{Bounds, Lease, Space, Unfit, index::ResourceNo, lookup::later};
use vocab::{
    LeaseNo, Refusal, ResourceAnswer, Rule, Slot, Token,
    sabotage::{self, Bug},
};

/// Room for one more lease, at a slot.
pub struct Room<'a> {
    pub slot: Slot,
    /// Of live leases.
    pub limit: Option<u64>,
    pub bounds: &'a Bounds,
}

pub fn decide(
    space: &Space,
    resources: &[Token],
    ttl_slots: u64,
    room: &Room,
) -> Result<ResourceAnswer, Refusal> {
    let (size, size_max) = (resources.len(), room.bounds.bundle_max);
    if !(1..=size_max).contains(&size) {
        let (limit, actual) = (size_max as u64, size as u64);
        return Err(Refusal::over(
            Rule::BundleTooLarge,
            "resources",
            limit,
            actual,
        ));
    }
    let ttl_max = room.bounds.ttl_slots_max;
    if !(1..=ttl_max).contains(&ttl_slots) {
        return Err(Refusal::over(
            Rule::TtlOutOfRange,
            "ttl_slots",
            ttl_max,
            ttl_slots,
        ));
    }
    members(space, resources)?;
    let deadline = deadline(space, ttl_slots, room)?;
    Ok(ResourceAnswer::Granted { deadline })
}

pub fn apply(
    space: &mut Space,
    no: LeaseNo,
    resources: &[Token],
    holder: &Token,
    slot: Slot,
    deadline: Slot,
) -> Result<(), Unfit> {
    if Some(no) <= space.leases.last().max(space.retired) {
        return Err("its number was used before");
    }
    if deadline < slot {
        return Err("its deadline lies before it");
    }
    let deadline = deadline - u64::from(sabotage::armed(Bug::LeaseEarly));
    let members = members(space, resources);
    let members = members.map_err(|_| "a member is not available")?;
    for member in &members {
        // It was found just now.
        if let Some(resource) = space.resources.get_mut(*member) {
            resource.version += 1;
            resource.holder = Some(no);
        }
    }
    space.expirations.insert(deadline, no);
    let lease = Lease::new(holder.clone(), deadline, members);
    space.leases.insert(no, lease);
    Ok(())
}

/// The named resources, if each is there, available, and named once. It is the first in their order that is refused.
fn members(space: &Space, names: &[Token]) -> Result<Vec<ResourceNo>, Refusal> {
    let mut members = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let refusal = |rule| Refusal::new(rule, format!("resources[{at}]"));
        let found = space.resources.find(name);
        let no = found.ok_or_else(|| refusal(Rule::ResourceNotFound))?;
        let held = space.resources.get(no).is_some_and(|r| r.holder.is_some());
        // Bundles are small.
        if held || members.contains(&no) {
            return Err(refusal(Rule::ResourceBusy));
        }
        members.push(no);
    }
    Ok(members)
}

/// The deadline, if there is room for one more lease that has it.
fn deadline(space: &Space, ttl_slots: u64, room: &Room) -> Result<Slot, Refusal> {
    let over = |rule, subject, limit, count: u64| {
        let full = count >= limit;
        full.then(|| Refusal::over(rule, subject, limit, count + 1))
            .map_or(Ok(()), Err)
    };
    if let Some(limit) = room.limit {
        let live = space.live_leases();
        over(Rule::QuotaExceeded, "leases", limit, live)?;
    }
    let places_max = room.bounds.leases_max;
    if space.leases.len() as u64 >= places_max {
        let places = space.leases.len() - space.retirements.count_before(room.slot);
        let rule = Rule::LeaseTableFull;
        over(rule, "leases", places_max, places as u64)?;
    }
    let deadline = later(room.slot, ttl_slots)?;
    let (limit, count) = (
        room.bounds.expirations_per_slot_max as u64,
        space.expirations.count(deadline) as u64,
    );
    over(Rule::ExpirationIndexFull, "ttl_slots", limit, count)?;
    Ok(deadline)
}
