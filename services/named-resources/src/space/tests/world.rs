//! The kernel and the model side by side: whatever is done is done to both, and they agree.

use super::{
    model::{Entry, Model, Says},
    restored, small, token,
};
use crate::space::{Bounds, ResourceState, Space};
use std::collections::BTreeMap;
use vocab::{LeaseNo, LeaseState as State, ResourceAnswer, ResourceAsk, Slot};

#[derive(Debug, Clone)]
pub enum Step {
    Ask(Ask),
    /// An expiry of that lease, at its deadline or so far from it.
    Expire(u8, i8),
    /// All that is due.
    ExpireDue,
    /// So many slots go by, mostly forwards.
    Wait(i8),
    Restore,
}

/// Leases are named by how many were granted before them, and their claims by how much is wrong with them.
#[derive(Debug, Clone)]
pub enum Ask {
    Create(u8),
    Acquire(Vec<u8>, u8, u64),
    Confirm(u8, u8, i8),
    Release(u8, u8, i8),
    Revoke(u8),
    Reclaim(u8),
}

pub struct World {
    pub space: Space,
    model: Model,
    bounds: Bounds,
    limit: Option<u64>,
    slot: Slot,
    no: u64,
    ended: BTreeMap<u64, State>,
}

impl World {
    pub fn new(limit: Option<u64>) -> Self {
        Self {
            space: Space::default(),
            model: Model::default(),
            bounds: Bounds {
                resources_max: 6,
                ..small()
            },
            limit,
            slot: 0,
            no: 0,
            ended: BTreeMap::new(),
        }
    }

    /// The one that was granted so many grants ago, or something that is no lease.
    fn recent(&self, of: u8) -> (u64, Option<&Entry>) {
        let found = self.model.leases.iter().rev().nth(of.into());
        (found.map_or(u64::from(of), |entry| entry.no), found)
    }

    fn claim(&self, of: u8, wrong: u8, off: i8) -> (LeaseNo, vocab::Token, u64) {
        let (no, entry) = self.recent(of);
        let holder = match (wrong, entry) {
            (0, Some(entry)) => token(&entry.holder),
            _ => token(&format!("h{wrong}")),
        };
        let fencing_token = entry.map_or(1, |entry| entry.fencing_token);
        (
            LeaseNo(no),
            holder,
            fencing_token.saturating_add_signed(off.into()),
        )
    }

    fn asked(&self, ask: &Ask) -> ResourceAsk {
        let name = |no: &u8| token(&format!("r{no}"));
        match ask {
            Ask::Create(no) => ResourceAsk::Create { resource: name(no) },
            Ask::Acquire(names, holder, ttl_slots) => ResourceAsk::Acquire {
                resources: names.iter().map(name).collect(),
                holder: token(&format!("h{holder}")),
                ttl_slots: *ttl_slots,
            },
            Ask::Confirm(of, wrong, off) => {
                let (lease, holder, fencing_token) = self.claim(*of, *wrong, *off);
                ResourceAsk::Confirm {
                    lease,
                    holder,
                    fencing_token,
                }
            }
            Ask::Release(of, wrong, off) => {
                let (lease, holder, fencing_token) = self.claim(*of, *wrong, *off);
                ResourceAsk::Release {
                    lease,
                    holder,
                    fencing_token,
                }
            }
            Ask::Revoke(of) => ResourceAsk::Revoke {
                lease: LeaseNo(self.recent(*of).0),
            },
            Ask::Reclaim(of) => ResourceAsk::Reclaim {
                lease: LeaseNo(self.recent(*of).0),
            },
        }
    }

    pub fn ask(&mut self, ask: &Ask) {
        self.no += 1;
        let ask = self.asked(ask);
        let answer = self.space.decide(&ask, self.slot, self.limit, &self.bounds);
        let fits = self.space.apply(LeaseNo(self.no), &ask, self.slot, &answer);
        assert_eq!(fits, Ok(()));
        let expected = self
            .model
            .ask(self.no, &ask, self.slot, self.limit, &self.bounds);
        assert_eq!(said(&answer), expected, "{ask:?} at {}", self.slot);
        self.no_other_answer_fits(&ask, &answer);
    }

    /// An ask that was refused, or was done already, cannot be applied as if it had been granted.
    fn no_other_answer_fits(&mut self, ask: &ResourceAsk, answer: &ResourceAnswer) {
        let before = self.space.clone();
        let (fencing_token, retire_after) = (2, self.slot);
        let others = [
            ResourceAnswer::Created,
            ResourceAnswer::Granted {
                deadline: self.slot + 1,
            },
            ResourceAnswer::Confirmed,
            ResourceAnswer::Released {
                fencing_token,
                retire_after,
            },
            ResourceAnswer::Revoked { fencing_token },
            ResourceAnswer::Reclaimed { retire_after },
        ];
        let kind = |answer: &ResourceAnswer| std::mem::discriminant(answer);
        let of = match ask {
            ResourceAsk::Create { .. } => 0,
            ResourceAsk::Acquire { .. } => 1,
            ResourceAsk::Confirm { .. } => 2,
            ResourceAsk::Release { .. } => 3,
            ResourceAsk::Revoke { .. } => 4,
            ResourceAsk::Reclaim { .. } => 5,
        };
        for (at, other) in others.iter().enumerate() {
            let granted = kind(other) == kind(answer);
            // Refused for want of room or authority: the state itself may allow it.
            if at == of && !granted {
                continue;
            }
            let fits = self.space.apply(LeaseNo(self.no), ask, self.slot, other);
            assert!(fits.is_err(), "{other:?} to {ask:?}");
            assert_eq!(self.space, before);
        }
    }

    fn expire(&mut self, no: u64, deadline: Slot) {
        let of = LeaseNo(no);
        let decided = self
            .space
            .decide_expiry(of, deadline, self.slot, &self.bounds);
        let expected = self.model.expire(no, deadline, self.slot, &self.bounds);
        let said = match decided {
            Ok(Some(expiry)) => {
                let fits = self.space.expire(of, self.slot, expiry.retire_after);
                assert_eq!(fits, Ok(()));
                Says::Yes(vec![expiry.fencing_token, expiry.retire_after])
            }
            Ok(None) => Says::Yes(vec![]),
            Err(refusal) => Says::No(refusal.rule),
        };
        assert_eq!(said, expected, "{no} at {}", self.slot);
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(ask) => self.ask(ask),
            Step::Expire(of, off) => {
                let (no, entry) = self.recent(*of);
                let deadline = entry.map_or(self.slot, |entry| entry.deadline);
                self.expire(no, deadline.saturating_add_signed((*off).into()));
            }
            Step::ExpireDue => {
                let due: Vec<_> = self.space.due(self.slot).collect();
                due.iter()
                    .for_each(|(no, deadline)| self.expire(no.0, *deadline));
            }
            Step::Wait(slots) => self.slot = self.slot.saturating_add_signed((*slots).into()),
            Step::Restore => self.space = restored(&self.space),
        }
        self.agree();
    }

    fn agree(&mut self) {
        let (space, model, history) = (&self.space, &self.model, self.bounds.history_slots);
        assert_eq!(space.slot(), model.slot);
        assert_eq!(space.live_leases(), model.live().count() as u64);
        let mut due: Vec<_> = model.live().filter(|r| r.state == State::Granted).collect();
        due.sort_by_key(|entry| (entry.deadline, entry.no));
        let due: Vec<_> = due.iter().map(|r| (LeaseNo(r.no), r.deadline)).collect();
        assert_eq!(space.due(Slot::MAX).collect::<Vec<_>>(), due);
        assert_eq!(
            space.next_deadline(),
            due.first().map(|(_, deadline)| *deadline)
        );
        for (name, version) in &model.resources {
            let view = space.resource(&token(name)).expect("it was created");
            let holder = model.holder_of(name);
            let state = match holder.map(|entry| entry.state) {
                None => ResourceState::Available,
                Some(State::Granted) => ResourceState::Granted,
                Some(State::Confirmed) => ResourceState::Confirmed,
                Some(_) => ResourceState::Revoking,
            };
            let held = holder.map(|entry| LeaseNo(entry.no));
            assert_eq!(
                (view.version, view.state, view.lease),
                (*version, state, held)
            );
        }
        for no in 0..=self.no + 1 {
            for slot in [model.slot, model.slot + 1, model.slot + history + 1] {
                let found = space.lease(LeaseNo(no), slot);
                let found = found
                    .map(|r| (r.state, r.fencing_token, r.deadline))
                    .map_err(|r| r.rule);
                let expected = model.look(no, slot, history);
                assert_eq!(
                    found,
                    expected.map(|r| (r.state, r.fencing_token, r.deadline)),
                    "{no} at {slot}"
                );
            }
        }
        self.hold();
    }

    /// What the model cannot get wrong together with the kernel.
    fn hold(&mut self) {
        let space = &self.space;
        assert!(space.leases.len() as u64 <= self.bounds.leases_max);
        assert!(space.resources.len() as u64 <= self.bounds.resources_max);
        assert!(self.limit.is_none_or(|limit| space.live_leases() <= limit));
        let mut held = BTreeMap::new();
        let mut deadlines: BTreeMap<Slot, usize> = BTreeMap::new();
        for (no, lease) in space.leases.iter() {
            if lease.state.has_ended() {
                let before = self.ended.insert(no.0, lease.state);
                assert!(before.is_none_or(|before| before == lease.state));
                continue;
            }
            assert!(!self.ended.contains_key(&no.0), "{no:?} lives again");
            for member in lease.members.as_slice() {
                assert_eq!(held.insert(*member, no), None, "two hold {member}");
            }
            if lease.state == State::Granted {
                *deadlines.entry(lease.deadline).or_default() += 1;
            }
        }
        let most = deadlines.values().max().copied().unwrap_or_default();
        assert!(most <= self.bounds.expirations_per_slot_max);
    }
}

fn said(answer: &ResourceAnswer) -> Says {
    match *answer {
        ResourceAnswer::Created | ResourceAnswer::Confirmed => Says::Yes(vec![]),
        ResourceAnswer::Granted { deadline } => Says::Yes(vec![deadline]),
        ResourceAnswer::Released {
            fencing_token,
            retire_after,
        } => Says::Yes(vec![fencing_token, retire_after]),
        ResourceAnswer::Revoked { fencing_token } => Says::Yes(vec![fencing_token]),
        ResourceAnswer::Reclaimed { retire_after } => Says::Yes(vec![retire_after]),
        ResourceAnswer::Refused(ref refusal) => Says::No(refusal.rule),
    }
}
