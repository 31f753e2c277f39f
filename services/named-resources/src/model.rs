//! The rules of one tenant's named resources once more, slow and plain: what a [`Space`](crate::Space) is compared with.
//!
//! They are written from the table of behaviour and share no code with the kernel, only what goes in and what can be
//! looked up. A model keeps all leases that ever were, and walks them for each question; nothing is indexed, and
//! nothing is kept twice. Its time is quadratic in the leases of a history.

use crate::{Bounds, LeaseView, ResourceState, ResourceView};
use vocab::{
    LeaseNo, LeaseState as State, ResourceAnswer as Answer, ResourceAsk as Ask, Rule, Slot, Token,
};

/// The resources and leases of one tenant.
#[derive(Debug, Clone)]
pub struct Model {
    bounds: Bounds,
    /// The latest that was seen.
    slot: Slot,
    /// Names and versions.
    resources: Vec<(Token, u64)>,
    /// All that ever were, in the order of their numbers.
    leases: Vec<(LeaseNo, LeaseView)>,
}

/// Of a refusal only the rule counts.
pub type Ruled<T> = Result<T, Rule>;

impl Model {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            slot: 0,
            resources: Vec::new(),
            leases: Vec::new(),
        }
    }

    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// All that ever were, in the order of their numbers.
    pub fn leases(&self) -> &[(LeaseNo, LeaseView)] {
        &self.leases
    }

    /// Decides and does it. `no` is what a lease is called if one is granted; `limit` is that of live ones.
    pub fn ask(&mut self, no: LeaseNo, ask: &Ask, slot: Slot, limit: Option<u64>) -> Ruled<Answer> {
        let said = self.try_ask(no, ask, slot, limit);
        // Such a slot was never seen.
        if !matches!(said, Err(Rule::SlotBackwards | Rule::SlotOverflow)) {
            self.slot = slot;
        }
        said
    }

    fn try_ask(&mut self, no: LeaseNo, ask: &Ask, slot: Slot, limit: Option<u64>) -> Ruled<Answer> {
        let retire_after = self.retire_after(slot)?;
        match ask {
            Ask::Create { resource } => self.create(resource),
            Ask::Acquire {
                resources,
                holder,
                ttl_slots,
            } => {
                let deadline = self.room(resources, *ttl_slots, slot, limit)?;
                self.touch(resources);
                let lease = LeaseView {
                    state: State::Granted,
                    holder: holder.clone(),
                    fencing_token: 1,
                    deadline,
                    retire_after: None,
                    resources: resources.clone(),
                };
                self.leases.push((no, lease));
                Ok(Answer::Granted { deadline })
            }
            Ask::Confirm {
                lease,
                holder,
                fencing_token,
            } => {
                self.authority(*lease, holder, *fencing_token, slot)?;
                self.shift(*lease, State::Confirmed, slot)?;
                Ok(Answer::Confirmed)
            }
            Ask::Release {
                lease,
                holder,
                fencing_token,
            } => {
                self.authority(*lease, holder, *fencing_token, slot)?;
                let fencing_token = self.shift(*lease, State::Released, slot)?;
                Ok(Answer::Released {
                    fencing_token,
                    retire_after,
                })
            }
            Ask::Revoke { lease } => {
                let fencing_token = self.shift(*lease, State::Revoking, slot)?;
                Ok(Answer::Revoked { fencing_token })
            }
            Ask::Reclaim { lease } => {
                self.shift(*lease, State::Revoked, slot)?;
                Ok(Answer::Reclaimed { retire_after })
            }
        }
    }

    /// The fencing token from then on, and the last slot that it is remembered at; none: it does not wait for that
    /// deadline.
    pub fn expire(
        &mut self,
        no: LeaseNo,
        deadline: Slot,
        slot: Slot,
    ) -> Ruled<Option<(u64, Slot)>> {
        let retire_after = self.retire_after(slot)?;
        demand(slot >= deadline, Rule::InvalidState)?;
        if !self.due().contains(&(no, deadline)) {
            return Ok(None);
        }
        self.slot = slot;
        let fencing_token = self.shift(no, State::Expired, slot)?;
        Ok(Some((fencing_token, retire_after)))
    }

    /// The same for who is not told the deadline. None: it cannot expire there.
    pub fn expire_due(&mut self, no: LeaseNo, slot: Slot) -> Option<(u64, Slot)> {
        let (_, deadline) = self.due().into_iter().find(|(due, _)| *due == no)?;
        self.expire(no, deadline, slot).ok()?
    }

    /// The granted ones and their deadlines, by deadline and then by number.
    pub fn due(&self) -> Vec<(LeaseNo, Slot)> {
        let granted = self.live().filter(|(_, r)| r.state == State::Granted);
        let mut due: Vec<_> = granted.map(|(no, r)| (*no, r.deadline)).collect();
        due.sort_by_key(|(no, deadline)| (*deadline, *no));
        due
    }

    pub fn live(&self) -> impl Iterator<Item = &(LeaseNo, LeaseView)> {
        let all = self.leases.iter();
        all.filter(|(_, lease)| lease.retire_after.is_none())
    }

    pub fn resource(&self, name: &Token) -> Option<ResourceView> {
        let (_, version) = self.resources.iter().find(|(known, _)| known == name)?;
        let holder = self.live().find(|(_, r)| r.resources.contains(name));
        let state = match holder.map(|(_, lease)| lease.state) {
            None => ResourceState::Available,
            Some(State::Granted) => ResourceState::Granted,
            Some(State::Confirmed) => ResourceState::Confirmed,
            Some(_) => ResourceState::Revoking,
        };
        Some(ResourceView {
            state,
            version: *version,
            lease: holder.map(|(no, _)| *no),
        })
    }

    /// As it stands at that slot, or at the latest if that is later.
    pub fn lease(&self, no: LeaseNo, slot: Slot) -> Ruled<&LeaseView> {
        let slot = slot.max(self.slot);
        let mut all = self.leases.iter();
        if let Some((_, found)) = all.find(|(of, r)| *of == no && !forgotten(r, slot)) {
            return Ok(found);
        }
        // Nobody knows any more what there was up to the highest number that is forgotten.
        let mut up_to = self.leases.iter().filter(|(of, _)| *of >= no);
        match up_to.any(|(_, lease)| forgotten(lease, slot)) {
            true => Err(Rule::LeaseRetired),
            false => Err(Rule::LeaseNotFound),
        }
    }

    /// Through which slot is remembered what ends at that one.
    fn retire_after(&self, slot: Slot) -> Ruled<Slot> {
        demand(slot >= self.slot, Rule::SlotBackwards)?;
        later(slot, self.bounds.history_slots)
    }

    fn create(&mut self, name: &Token) -> Ruled<Answer> {
        demand(self.resource(name).is_none(), Rule::AlreadyExists)?;
        let room = (self.resources.len() as u64) < self.bounds.resources_max;
        demand(room, Rule::ResourceTableFull)?;
        self.resources.push((name.clone(), 0));
        Ok(Answer::Created)
    }

    /// The deadline of a lease of these, if it may be granted.
    fn room(&self, names: &[Token], ttl: u64, slot: Slot, limit: Option<u64>) -> Ruled<Slot> {
        let bounds = &self.bounds;
        let fits = (1..=bounds.bundle_max).contains(&names.len());
        demand(fits, Rule::BundleTooLarge)?;
        let fits = (1..=bounds.ttl_slots_max).contains(&ttl);
        demand(fits, Rule::TtlOutOfRange)?;
        for (at, name) in names.iter().enumerate() {
            let resource = self.resource(name).ok_or(Rule::ResourceNotFound)?;
            let twice = names[..at].contains(name);
            demand(resource.lease.is_none() && !twice, Rule::ResourceBusy)?;
        }
        let live = self.live().count() as u64;
        demand(limit.is_none_or(|most| live < most), Rule::QuotaExceeded)?;
        let kept = self.leases.iter().filter(|(_, r)| !forgotten(r, slot));
        let room = (kept.count() as u64) < bounds.leases_max;
        demand(room, Rule::LeaseTableFull)?;
        let deadline = later(slot, ttl)?;
        let same = self.due().iter().filter(|(_, at)| *at == deadline).count();
        let room = same < bounds.expirations_per_slot_max;
        demand(room, Rule::ExpirationIndexFull)?;
        Ok(deadline)
    }

    fn authority(&self, no: LeaseNo, holder: &Token, fencing_token: u64, slot: Slot) -> Ruled<()> {
        let found = self.lease(no, slot)?;
        demand(found.holder == *holder, Rule::HolderMismatch)?;
        demand(
            found.fencing_token == fencing_token,
            Rule::StaleFencingToken,
        )
    }

    /// From one state to the next; the fencing token from then on.
    fn shift(&mut self, no: LeaseNo, to: State, slot: Slot) -> Ruled<u64> {
        let from: &[State] = match to {
            State::Granted => &[],
            State::Confirmed | State::Expired => &[State::Granted],
            State::Released => &[State::Granted, State::Confirmed],
            State::Revoking => &[State::Confirmed],
            State::Revoked => &[State::Revoking],
        };
        let retire_after = self.retire_after(slot)?;
        let mut next = self.lease(no, slot)?.clone();
        demand(from.contains(&next.state), Rule::InvalidState)?;
        next.state = to;
        if [State::Released, State::Expired, State::Revoking].contains(&to) {
            next.fencing_token += 1;
        }
        if [State::Released, State::Expired, State::Revoked].contains(&to) {
            next.retire_after = Some(retire_after);
        }
        self.touch(&next.resources);
        let fencing_token = next.fencing_token;
        let mut all = self.leases.iter_mut();
        if let Some((_, known)) = all.find(|(of, _)| *of == no) {
            *known = next;
        }
        Ok(fencing_token)
    }

    /// A transition of each of these.
    fn touch(&mut self, names: &[Token]) {
        let all = self.resources.iter_mut();
        all.filter(|(name, _)| names.contains(name))
            .for_each(|(_, version)| *version += 1);
    }
}

fn forgotten(lease: &LeaseView, slot: Slot) -> bool {
    lease.retire_after.is_some_and(|last| last < slot)
}

fn later(slot: Slot, slots: u64) -> Ruled<Slot> {
    slot.checked_add(slots).ok_or(Rule::SlotOverflow)
}

fn demand(holds: bool, rule: Rule) -> Ruled<()> {
    if holds { Ok(()) } else { Err(rule) }
}
