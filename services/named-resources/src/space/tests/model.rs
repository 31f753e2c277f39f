//! The same rules once more, slow and plain: lists that are walked from the beginning, and nothing that is kept twice.

use crate::space::Bounds;
use vocab::{LeaseNo, LeaseState as State, ResourceAsk, Rule, Slot};

#[derive(Debug, Default)]
pub struct Model {
    pub slot: Slot,
    /// Names and versions.
    pub resources: Vec<(String, u64)>,
    /// All that ever were, in order.
    pub leases: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub no: u64,
    pub holder: String,
    pub names: Vec<String>,
    pub fencing_token: u64,
    pub deadline: Slot,
    pub state: State,
    pub ended: Option<Slot>,
}

/// What the model says to an ask; numbers as they are in the answer.
#[derive(Debug, PartialEq)]
pub enum Says {
    Yes(Vec<u64>),
    No(Rule),
}

use Says::{No, Yes};

impl Entry {
    fn forgotten(&self, slot: Slot, history: u64) -> bool {
        self.ended.is_some_and(|ended| slot - ended > history)
    }
}

impl Model {
    pub fn live(&self) -> impl Iterator<Item = &Entry> {
        self.leases.iter().filter(|r| r.ended.is_none())
    }

    pub fn kept(&self, slot: Slot, history: u64) -> usize {
        let kept = self.leases.iter();
        kept.filter(|r| !r.forgotten(slot, history)).count()
    }

    pub fn holder_of(&self, name: &str) -> Option<&Entry> {
        self.live().find(|r| r.names.iter().any(|n| n == name))
    }

    pub fn look(&self, no: u64, slot: Slot, history: u64) -> Result<&Entry, Rule> {
        let gone = |r: &&Entry| r.forgotten(slot, history);
        let watermark = self.leases.iter().filter(gone).map(|r| r.no).max();
        let here = self.leases.iter().find(|r| r.no == no && !gone(r));
        match here {
            Some(entry) => Ok(entry),
            None if watermark.is_some_and(|mark| no <= mark) => Err(Rule::LeaseRetired),
            None => Err(Rule::LeaseNotFound),
        }
    }

    /// Decides and does it.
    pub fn ask(
        &mut self,
        no: u64,
        ask: &ResourceAsk,
        slot: Slot,
        limit: Option<u64>,
        b: &Bounds,
    ) -> Says {
        if slot < self.slot {
            return No(Rule::SlotBackwards);
        }
        self.slot = slot;
        match ask {
            ResourceAsk::Create { resource } => self.create(resource.as_str(), b),
            ResourceAsk::Acquire {
                resources,
                holder,
                ttl_slots,
            } => {
                let names: Vec<_> = resources.iter().map(|r| r.as_str().to_owned()).collect();
                let broken = self.broken_by(&names, *ttl_slots, limit, b);
                if let Some(rule) = broken {
                    return No(rule);
                }
                let deadline = slot + ttl_slots;
                self.touch(&names);
                let holder = holder.as_str().to_owned();
                let (state, fencing_token, ended) = (State::Granted, 1, None);
                self.leases.push(Entry {
                    no,
                    holder,
                    names,
                    fencing_token,
                    deadline,
                    state,
                    ended,
                });
                Yes(vec![deadline])
            }
            ResourceAsk::Confirm {
                lease,
                holder,
                fencing_token,
            } => {
                let claim = Some((holder.as_str(), *fencing_token));
                self.shift(*lease, claim, &[State::Granted], State::Confirmed, b)
            }
            ResourceAsk::Release {
                lease,
                holder,
                fencing_token,
            } => {
                let claim = Some((holder.as_str(), *fencing_token));
                let from = [State::Granted, State::Confirmed];
                self.shift(*lease, claim, &from, State::Released, b)
            }
            ResourceAsk::Revoke { lease } => {
                self.shift(*lease, None, &[State::Confirmed], State::Revoking, b)
            }
            ResourceAsk::Reclaim { lease } => {
                self.shift(*lease, None, &[State::Revoking], State::Revoked, b)
            }
        }
    }

    /// The new fencing token and the last slot, or nothing.
    pub fn expire(&mut self, no: u64, deadline: Slot, slot: Slot, b: &Bounds) -> Says {
        if slot < self.slot {
            return No(Rule::SlotBackwards);
        }
        if slot < deadline {
            return No(Rule::InvalidState);
        }
        let found = self.leases.iter().find(|r| r.no == no);
        if !found.is_some_and(|r| r.state == State::Granted && r.deadline == deadline) {
            return Yes(vec![]);
        }
        self.slot = slot;
        self.shift(LeaseNo(no), None, &[State::Granted], State::Expired, b)
    }

    fn create(&mut self, name: &str, b: &Bounds) -> Says {
        if self.resources.iter().any(|(n, _)| n == name) {
            return No(Rule::AlreadyExists);
        }
        if self.resources.len() as u64 >= b.resources_max {
            return No(Rule::ResourceTableFull);
        }
        self.resources.push((name.to_owned(), 0));
        Yes(vec![])
    }

    fn broken_by(
        &self,
        names: &[String],
        ttl: u64,
        limit: Option<u64>,
        b: &Bounds,
    ) -> Option<Rule> {
        if names.is_empty() || names.len() > b.bundle_max {
            return Some(Rule::BundleTooLarge);
        }
        if ttl == 0 || ttl > b.ttl_slots_max {
            return Some(Rule::TtlOutOfRange);
        }
        for (at, name) in names.iter().enumerate() {
            if !self.resources.iter().any(|(n, _)| n == name) {
                return Some(Rule::ResourceNotFound);
            }
            if names[..at].contains(name) || self.holder_of(name).is_some() {
                return Some(Rule::ResourceBusy);
            }
        }
        if limit.is_some_and(|limit| self.live().count() as u64 >= limit) {
            return Some(Rule::QuotaExceeded);
        }
        if self.kept(self.slot, b.history_slots) as u64 >= b.leases_max {
            return Some(Rule::LeaseTableFull);
        }
        let same = |r: &&Entry| r.state == State::Granted && r.deadline == self.slot + ttl;
        let full = self.live().filter(same).count() >= b.expirations_per_slot_max;
        full.then_some(Rule::ExpirationIndexFull)
    }

    fn touch(&mut self, names: &[String]) {
        for (_, version) in self.resources.iter_mut().filter(|(n, _)| names.contains(n)) {
            *version += 1;
        }
    }

    fn shift(
        &mut self,
        no: LeaseNo,
        claim: Option<(&str, u64)>,
        from: &[State],
        to: State,
        b: &Bounds,
    ) -> Says {
        let entry = match self.look(no.0, self.slot, b.history_slots) {
            Ok(entry) => entry.clone(),
            Err(rule) => return No(rule),
        };
        if claim.is_some_and(|(holder, _)| holder != entry.holder) {
            return No(Rule::HolderMismatch);
        }
        if claim.is_some_and(|(_, fencing_token)| fencing_token != entry.fencing_token) {
            return No(Rule::StaleFencingToken);
        }
        if !from.contains(&entry.state) {
            return No(Rule::InvalidState);
        }
        self.touch(&entry.names);
        let slot = self.slot;
        // It was found above.
        let entry = self.leases.iter_mut().find(|r| r.no == no.0).unwrap();
        entry.state = to;
        let over = slot + b.history_slots;
        match to {
            State::Released | State::Expired => {
                (entry.fencing_token, entry.ended) = (entry.fencing_token + 1, Some(slot));
                Yes(vec![entry.fencing_token, over])
            }
            State::Revoking => {
                entry.fencing_token += 1;
                Yes(vec![entry.fencing_token])
            }
            State::Revoked => {
                entry.ended = Some(slot);
                Yes(vec![over])
            }
            State::Granted | State::Confirmed => Yes(vec![]),
        }
    }
}
