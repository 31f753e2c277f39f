//! The kernel and the model side by side: whatever is done is done to both, and they agree.

use super::{
    model::{Entry, Model, Says},
    restored, small, token,
};
use crate::space::{Bounds, ResourceState, Space};
use std::collections::BTreeMap;
use vocab::{ReservationNo, ReservationState as State, ResourceAnswer, ResourceAsk, Slot};

#[derive(Debug, Clone)]
pub enum Step {
    Ask(Ask),
    /// An expiry of that reservation, at its deadline or so far from it.
    Expire(u8, i8),
    /// All that is due.
    ExpireDue,
    /// So many slots go by, mostly forwards.
    Wait(i8),
    Restore,
}

/// Reservations are named by how many were granted before them, and their claims by how much is wrong with them.
#[derive(Debug, Clone)]
pub enum Ask {
    Create(u8),
    Reserve(Vec<u8>, u8, u64),
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

    /// The one that was granted so many grants ago, or something that is no reservation.
    fn recent(&self, of: u8) -> (u64, Option<&Entry>) {
        let found = self.model.reservations.iter().rev().nth(of.into());
        (found.map_or(u64::from(of), |entry| entry.no), found)
    }

    fn claim(&self, of: u8, wrong: u8, off: i8) -> (ReservationNo, vocab::Token, u64) {
        let (no, entry) = self.recent(of);
        let holder = match (wrong, entry) {
            (0, Some(entry)) => token(&entry.holder),
            _ => token(&format!("h{wrong}")),
        };
        let epoch = entry.map_or(1, |entry| entry.epoch);
        (
            ReservationNo(no),
            holder,
            epoch.saturating_add_signed(off.into()),
        )
    }

    fn asked(&self, ask: &Ask) -> ResourceAsk {
        let name = |no: &u8| token(&format!("r{no}"));
        match ask {
            Ask::Create(no) => ResourceAsk::Create { resource: name(no) },
            Ask::Reserve(names, holder, ttl_slots) => ResourceAsk::Reserve {
                resources: names.iter().map(name).collect(),
                holder: token(&format!("h{holder}")),
                ttl_slots: *ttl_slots,
            },
            Ask::Confirm(of, wrong, off) => {
                let (reservation, holder, epoch) = self.claim(*of, *wrong, *off);
                ResourceAsk::Confirm {
                    reservation,
                    holder,
                    epoch,
                }
            }
            Ask::Release(of, wrong, off) => {
                let (reservation, holder, epoch) = self.claim(*of, *wrong, *off);
                ResourceAsk::Release {
                    reservation,
                    holder,
                    epoch,
                }
            }
            Ask::Revoke(of) => ResourceAsk::Revoke {
                reservation: ReservationNo(self.recent(*of).0),
            },
            Ask::Reclaim(of) => ResourceAsk::Reclaim {
                reservation: ReservationNo(self.recent(*of).0),
            },
        }
    }

    pub fn ask(&mut self, ask: &Ask) {
        self.no += 1;
        let ask = self.asked(ask);
        let answer = self.space.decide(&ask, self.slot, self.limit, &self.bounds);
        let fits = self
            .space
            .apply(ReservationNo(self.no), &ask, self.slot, &answer);
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
        let (epoch, retire_after) = (2, self.slot);
        let others = [
            ResourceAnswer::Created,
            ResourceAnswer::Reserved {
                deadline: self.slot + 1,
            },
            ResourceAnswer::Confirmed,
            ResourceAnswer::Released {
                epoch,
                retire_after,
            },
            ResourceAnswer::Revoked { epoch },
            ResourceAnswer::Reclaimed { retire_after },
        ];
        let kind = |answer: &ResourceAnswer| std::mem::discriminant(answer);
        let of = match ask {
            ResourceAsk::Create { .. } => 0,
            ResourceAsk::Reserve { .. } => 1,
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
            let fits = self
                .space
                .apply(ReservationNo(self.no), ask, self.slot, other);
            assert!(fits.is_err(), "{other:?} to {ask:?}");
            assert_eq!(self.space, before);
        }
    }

    fn expire(&mut self, no: u64, deadline: Slot) {
        let of = ReservationNo(no);
        let decided = self
            .space
            .decide_expiry(of, deadline, self.slot, &self.bounds);
        let expected = self.model.expire(no, deadline, self.slot, &self.bounds);
        let said = match decided {
            Ok(Some(expiry)) => {
                let fits = self.space.expire(of, self.slot, expiry.retire_after);
                assert_eq!(fits, Ok(()));
                Says::Yes(vec![expiry.epoch, expiry.retire_after])
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
        assert_eq!(space.live_reservations(), model.live().count() as u64);
        let mut due: Vec<_> = model
            .live()
            .filter(|r| r.state == State::Reserved)
            .collect();
        due.sort_by_key(|entry| (entry.deadline, entry.no));
        let due: Vec<_> = due
            .iter()
            .map(|r| (ReservationNo(r.no), r.deadline))
            .collect();
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
                Some(State::Reserved) => ResourceState::Reserved,
                Some(State::Confirmed) => ResourceState::Confirmed,
                Some(_) => ResourceState::Revoking,
            };
            let held = holder.map(|entry| ReservationNo(entry.no));
            assert_eq!(
                (view.version, view.state, view.reservation),
                (*version, state, held)
            );
        }
        for no in 0..=self.no + 1 {
            for slot in [model.slot, model.slot + 1, model.slot + history + 1] {
                let found = space.reservation(ReservationNo(no), slot);
                let found = found
                    .map(|r| (r.state, r.epoch, r.deadline))
                    .map_err(|r| r.rule);
                let expected = model.look(no, slot, history);
                assert_eq!(
                    found,
                    expected.map(|r| (r.state, r.epoch, r.deadline)),
                    "{no} at {slot}"
                );
            }
        }
        self.hold();
    }

    /// What the model cannot get wrong together with the kernel.
    fn hold(&mut self) {
        let space = &self.space;
        assert!(space.reservations.len() as u64 <= self.bounds.reservations_max);
        assert!(space.resources.len() as u64 <= self.bounds.resources_max);
        assert!(
            self.limit
                .is_none_or(|limit| space.live_reservations() <= limit)
        );
        let mut held = BTreeMap::new();
        let mut deadlines: BTreeMap<Slot, usize> = BTreeMap::new();
        for (no, reservation) in space.reservations.iter() {
            if reservation.state.has_ended() {
                let before = self.ended.insert(no.0, reservation.state);
                assert!(before.is_none_or(|before| before == reservation.state));
                continue;
            }
            assert!(!self.ended.contains_key(&no.0), "{no:?} lives again");
            for member in reservation.members.as_slice() {
                assert_eq!(held.insert(*member, no), None, "two hold {member}");
            }
            if reservation.state == State::Reserved {
                *deadlines.entry(reservation.deadline).or_default() += 1;
            }
        }
        let most = deadlines.values().max().copied().unwrap_or_default();
        assert!(most <= self.bounds.expirations_per_slot_max);
    }
}

fn said(answer: &ResourceAnswer) -> Says {
    match *answer {
        ResourceAnswer::Created | ResourceAnswer::Confirmed => Says::Yes(vec![]),
        ResourceAnswer::Reserved { deadline } => Says::Yes(vec![deadline]),
        ResourceAnswer::Released {
            epoch,
            retire_after,
        } => Says::Yes(vec![epoch, retire_after]),
        ResourceAnswer::Revoked { epoch } => Says::Yes(vec![epoch]),
        ResourceAnswer::Reclaimed { retire_after } => Says::Yes(vec![retire_after]),
        ResourceAnswer::Refused(ref refusal) => Says::No(refusal.rule),
    }
}
