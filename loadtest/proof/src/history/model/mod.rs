//! A second, naive lease kernel of one tenant, written from the table of its behaviour and nothing else.

mod tables;

use super::{Answer, Bounds, Decision};
use std::collections::BTreeMap;
use vocab::{LeaseState, ResourceAsk, Rule, Slot, Token};

/// Everything is looked through, nothing is indexed.
#[derive(Debug, Clone)]
pub struct Model {
    bounds: Bounds,
    /// The latest slot that was asked at.
    asked: Slot,
    resources: BTreeMap<Token, Option<u64>>,
    leases: BTreeMap<u64, Lease>,
    /// The highest number that is not remembered any more; 0: all are.
    watermark: u64,
}

#[derive(Debug, Clone)]
struct Lease {
    holder: Token,
    members: Vec<Token>,
    state: LeaseState,
    fencing_token: u64,
    deadline: Slot,
    /// Once it has ended.
    retire_after: Option<Slot>,
}

type Ruled<T> = Result<T, Rule>;

impl Model {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            asked: 0,
            resources: BTreeMap::new(),
            leases: BTreeMap::new(),
            watermark: 0,
        }
    }

    /// Decides. `number` is what a lease is called if one is granted.
    pub fn ask(&mut self, slot: Slot, ask: &ResourceAsk, number: u64) -> Decision {
        self.try_ask(slot, ask, number)
            .unwrap_or_else(|rule| Answer::refused(rule).into())
    }

    fn try_ask(&mut self, slot: Slot, ask: &ResourceAsk, number: u64) -> Ruled<Decision> {
        demand(slot >= self.asked, Rule::SlotBackwards)?;
        demand(self.ends_in_time(slot, ask), Rule::SlotOverflow)?;
        self.asked = slot;
        self.retire(slot);
        match ask {
            ResourceAsk::Create { resource } => self.create(resource).map(Decision::from),
            ResourceAsk::Acquire {
                resources,
                holder,
                ttl_slots,
            } => self
                .acquire(slot, resources, holder, *ttl_slots, number)
                .map(Decision::from),
            ResourceAsk::Confirm {
                lease,
                holder,
                fencing_token,
            } => self
                .confirm(lease.0, holder, *fencing_token)
                .map(Decision::from),
            ResourceAsk::Release {
                lease,
                holder,
                fencing_token,
            } => self.release(slot, lease.0, holder, *fencing_token),
            ResourceAsk::Revoke { lease } => self.revoke(lease.0).map(Decision::from),
            ResourceAsk::Reclaim { lease } => self.reclaim(slot, lease.0),
        }
    }

    /// Whether every slot that could come of it is a slot.
    fn ends_in_time(&self, slot: Slot, ask: &ResourceAsk) -> bool {
        let ttl_slots = match ask {
            ResourceAsk::Acquire { ttl_slots, .. } => (*ttl_slots).min(self.bounds.ttl_slots_max),
            _ => 0,
        };
        let bounds = self.bounds;
        let longest = [ttl_slots, bounds.history_slots, bounds.window_slots];
        longest
            .iter()
            .all(|slots| slot.checked_add(*slots).is_some())
    }

    fn create(&mut self, resource: &Token) -> Ruled<Answer> {
        demand(!self.resources.contains_key(resource), Rule::AlreadyExists)?;
        demand(
            self.resources.len() < self.bounds.resources_max,
            Rule::ResourceTableFull,
        )?;
        self.resources.insert(resource.clone(), None);
        Ok(Answer::Created)
    }

    fn acquire(
        &mut self,
        slot: Slot,
        members: &[Token],
        holder: &Token,
        ttl_slots: u64,
        number: u64,
    ) -> Ruled<Answer> {
        let bounds = self.bounds;
        demand(
            (1..=bounds.members_max).contains(&members.len()),
            Rule::BundleTooLarge,
        )?;
        demand(
            (1..=bounds.ttl_slots_max).contains(&ttl_slots),
            Rule::TtlOutOfRange,
        )?;
        for (index, member) in members.iter().enumerate() {
            let held = self.resources.get(member).ok_or(Rule::ResourceNotFound)?;
            let twice = members[..index].contains(member);
            demand(held.is_none() && !twice, Rule::ResourceBusy)?;
        }
        demand(self.leases.len() < bounds.leases_max, Rule::LeaseTableFull)?;
        let deadline = slot.checked_add(ttl_slots).ok_or(Rule::SlotOverflow)?;
        demand(
            self.expiring_at(deadline) < bounds.expirations_max,
            Rule::ExpirationIndexFull,
        )?;
        let fencing_token = 1;
        let lease = Lease {
            holder: holder.clone(),
            members: members.to_vec(),
            state: LeaseState::Granted,
            fencing_token,
            deadline,
            retire_after: None,
        };
        self.leases.insert(number, lease);
        self.hold(members, Some(number));
        Ok(Answer::Granted {
            lease: number,
            fencing_token,
            deadline,
        })
    }

    fn confirm(&mut self, number: u64, holder: &Token, fencing_token: u64) -> Ruled<Answer> {
        let found = self.held_by(number, holder, fencing_token)?;
        demand(found.state == LeaseState::Granted, Rule::InvalidState)?;
        found.state = LeaseState::Confirmed;
        Ok(Answer::Confirmed)
    }

    fn release(
        &mut self,
        slot: Slot,
        number: u64,
        holder: &Token,
        fencing_token: u64,
    ) -> Ruled<Decision> {
        let found = self.held_by(number, holder, fencing_token)?;
        let active = [LeaseState::Granted, LeaseState::Confirmed];
        demand(active.contains(&found.state), Rule::InvalidState)?;
        found.fencing_token += 1;
        let fencing_token = found.fencing_token;
        let retire_after = self.end(slot, number, LeaseState::Released)?;
        Ok(Decision {
            answer: Answer::Released { fencing_token },
            retire_after: Some(retire_after),
        })
    }

    fn revoke(&mut self, number: u64) -> Ruled<Answer> {
        let found = self.find(number)?;
        demand(found.state == LeaseState::Confirmed, Rule::InvalidState)?;
        found.state = LeaseState::Revoking;
        found.fencing_token += 1;
        let fencing_token = found.fencing_token;
        Ok(Answer::Revoked { fencing_token })
    }

    fn reclaim(&mut self, slot: Slot, number: u64) -> Ruled<Decision> {
        let found = self.find(number)?;
        demand(found.state == LeaseState::Revoking, Rule::InvalidState)?;
        let retire_after = self.end(slot, number, LeaseState::Revoked)?;
        Ok(Decision {
            answer: Answer::Reclaimed,
            retire_after: Some(retire_after),
        })
    }

    /// The deadline has come and it was not confirmed: its fencing token from then on, and how long it is remembered. None: it
    /// cannot expire there.
    pub fn expire(&mut self, slot: Slot, number: u64) -> Option<(u64, Slot)> {
        self.retire(slot.max(self.asked));
        let found = self.leases.get_mut(&number)?;
        if found.state != LeaseState::Granted || slot < found.deadline {
            return None;
        }
        found.fencing_token += 1;
        let fencing_token = found.fencing_token;
        let retire_after = self.end(slot, number, LeaseState::Expired).ok()?;
        Some((fencing_token, retire_after))
    }
}

fn demand(holds: bool, rule: Rule) -> Ruled<()> {
    if holds { Ok(()) } else { Err(rule) }
}
