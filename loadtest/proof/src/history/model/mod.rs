//! A second, naive reservation kernel of one tenant, written from the table of its behaviour and nothing else.

mod tables;

use super::{Answer, Bounds, Decision};
use std::collections::BTreeMap;
use vocab::{ReservationState, ResourceAsk, Rule, Slot, Token};

/// Everything is looked through, nothing is indexed.
#[derive(Debug, Clone)]
pub struct Model {
    bounds: Bounds,
    /// The latest slot that was asked at.
    asked: Slot,
    resources: BTreeMap<Token, Option<u64>>,
    reservations: BTreeMap<u64, Reservation>,
    /// The highest number that is not remembered any more; 0: all are.
    watermark: u64,
}

#[derive(Debug, Clone)]
struct Reservation {
    holder: Token,
    members: Vec<Token>,
    state: ReservationState,
    epoch: u64,
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
            reservations: BTreeMap::new(),
            watermark: 0,
        }
    }

    /// Decides. `number` is what a reservation is called if one is granted.
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
            ResourceAsk::Reserve {
                resources,
                holder,
                ttl_slots,
            } => self
                .reserve(slot, resources, holder, *ttl_slots, number)
                .map(Decision::from),
            ResourceAsk::Confirm {
                reservation,
                holder,
                epoch,
            } => self
                .confirm(reservation.0, holder, *epoch)
                .map(Decision::from),
            ResourceAsk::Release {
                reservation,
                holder,
                epoch,
            } => self.release(slot, reservation.0, holder, *epoch),
            ResourceAsk::Revoke { reservation } => self.revoke(reservation.0).map(Decision::from),
            ResourceAsk::Reclaim { reservation } => self.reclaim(slot, reservation.0),
        }
    }

    /// Whether every slot that could come of it is a slot.
    fn ends_in_time(&self, slot: Slot, ask: &ResourceAsk) -> bool {
        let ttl_slots = match ask {
            ResourceAsk::Reserve { ttl_slots, .. } => (*ttl_slots).min(self.bounds.ttl_slots_max),
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

    fn reserve(
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
        demand(
            self.reservations.len() < bounds.reservations_max,
            Rule::ReservationTableFull,
        )?;
        let deadline = slot.checked_add(ttl_slots).ok_or(Rule::SlotOverflow)?;
        demand(
            self.expiring_at(deadline) < bounds.expirations_max,
            Rule::ExpirationIndexFull,
        )?;
        let epoch = 1;
        let reservation = Reservation {
            holder: holder.clone(),
            members: members.to_vec(),
            state: ReservationState::Reserved,
            epoch,
            deadline,
            retire_after: None,
        };
        self.reservations.insert(number, reservation);
        self.hold(members, Some(number));
        Ok(Answer::Reserved {
            reservation: number,
            epoch,
            deadline,
        })
    }

    fn confirm(&mut self, number: u64, holder: &Token, epoch: u64) -> Ruled<Answer> {
        let found = self.held_by(number, holder, epoch)?;
        demand(
            found.state == ReservationState::Reserved,
            Rule::InvalidState,
        )?;
        found.state = ReservationState::Confirmed;
        Ok(Answer::Confirmed)
    }

    fn release(&mut self, slot: Slot, number: u64, holder: &Token, epoch: u64) -> Ruled<Decision> {
        let found = self.held_by(number, holder, epoch)?;
        let active = [ReservationState::Reserved, ReservationState::Confirmed];
        demand(active.contains(&found.state), Rule::InvalidState)?;
        found.epoch += 1;
        let epoch = found.epoch;
        let retire_after = self.end(slot, number, ReservationState::Released)?;
        Ok(Decision {
            answer: Answer::Released { epoch },
            retire_after: Some(retire_after),
        })
    }

    fn revoke(&mut self, number: u64) -> Ruled<Answer> {
        let found = self.find(number)?;
        demand(
            found.state == ReservationState::Confirmed,
            Rule::InvalidState,
        )?;
        found.state = ReservationState::Revoking;
        found.epoch += 1;
        let epoch = found.epoch;
        Ok(Answer::Revoked { epoch })
    }

    fn reclaim(&mut self, slot: Slot, number: u64) -> Ruled<Decision> {
        let found = self.find(number)?;
        demand(
            found.state == ReservationState::Revoking,
            Rule::InvalidState,
        )?;
        let retire_after = self.end(slot, number, ReservationState::Revoked)?;
        Ok(Decision {
            answer: Answer::Reclaimed,
            retire_after: Some(retire_after),
        })
    }

    /// The deadline has come and it was not confirmed: its epoch from then on, and how long it is remembered. None: it
    /// cannot expire there.
    pub fn expire(&mut self, slot: Slot, number: u64) -> Option<(u64, Slot)> {
        self.retire(slot.max(self.asked));
        let found = self.reservations.get_mut(&number)?;
        if found.state != ReservationState::Reserved || slot < found.deadline {
            return None;
        }
        found.epoch += 1;
        let epoch = found.epoch;
        let retire_after = self.end(slot, number, ReservationState::Expired).ok()?;
        Some((epoch, retire_after))
    }
}

fn demand(holds: bool, rule: Rule) -> Ruled<()> {
    if holds { Ok(()) } else { Err(rule) }
}
