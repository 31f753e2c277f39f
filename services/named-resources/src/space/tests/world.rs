//! Random steps, which are taken by the kernel and the model; after each of them they agree.

use super::{both::Both, small, token};
use crate::{LeaseView, space::Bounds};
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

/// Leases are named by how many were granted after them, and their claims by how much is wrong with them.
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
    both: Both,
    slot: Slot,
    no: u64,
    ended: BTreeMap<u64, State>,
}

impl World {
    pub fn new(limit: Option<u64>, begin: Slot) -> Self {
        let bounds = Bounds {
            resources_max: 6,
            ..small()
        };
        Self {
            both: Both::new(&bounds, limit),
            slot: begin,
            no: 0,
            ended: BTreeMap::new(),
        }
    }

    /// The one that was granted so many grants ago, or something that is no lease.
    fn recent(&self, of: u8) -> (LeaseNo, Option<&LeaseView>) {
        match self.both.model.leases().iter().rev().nth(of.into()) {
            Some((no, lease)) => (*no, Some(lease)),
            None => (LeaseNo(of.into()), None),
        }
    }

    fn claim(&self, of: u8, wrong: u8, off: i8) -> (LeaseNo, vocab::Token, u64) {
        let (no, found) = self.recent(of);
        let holder = match (wrong, found) {
            (0, Some(found)) => found.holder.clone(),
            _ => token(&format!("h{wrong}")),
        };
        let fencing_token = found.map_or(1, |found| found.fencing_token);
        (no, holder, fencing_token.saturating_add_signed(off.into()))
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
                lease: self.recent(*of).0,
            },
            Ask::Reclaim(of) => ResourceAsk::Reclaim {
                lease: self.recent(*of).0,
            },
        }
    }

    pub fn digest(&self) -> ledger::Digest {
        ledger::state_digest(&self.both.space)
    }

    pub fn ask(&mut self, ask: &Ask) {
        self.no += 1;
        let ask = self.asked(ask);
        let answer = self.both.ask(LeaseNo(self.no), &ask, self.slot);
        self.no_other_answer_fits(&ask, &answer);
    }

    /// An ask that was refused, or was done already, cannot be applied as if it had been granted.
    fn no_other_answer_fits(&mut self, ask: &ResourceAsk, answer: &ResourceAnswer) {
        let space = &mut self.both.space;
        let before = space.clone();
        let (fencing_token, retire_after) = (2, self.slot);
        let others = [
            ResourceAnswer::Created,
            ResourceAnswer::Granted {
                deadline: self.slot.saturating_add(1),
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
            let fits = space.apply(LeaseNo(self.no), ask, self.slot, other);
            assert!(fits.is_err(), "{other:?} to {ask:?}");
            assert_eq!(*space, before);
        }
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(ask) => self.ask(ask),
            Step::Expire(of, off) => {
                let (no, found) = self.recent(*of);
                let deadline = found.map_or(self.slot, |found| found.deadline);
                let deadline = deadline.saturating_add_signed((*off).into());
                self.both.expire(no, deadline, self.slot).ok();
            }
            Step::ExpireDue => {
                let due: Vec<_> = self.both.space.due(self.slot).collect();
                for (no, deadline) in due {
                    self.both.expire(no, deadline, self.slot).ok();
                }
            }
            Step::Wait(slots) => self.slot = self.slot.saturating_add_signed((*slots).into()),
            Step::Restore => self.both.restore(),
        }
        self.agree();
    }

    fn agree(&mut self) {
        let Both { space, model, .. } = &self.both;
        assert_eq!(space.slot(), model.slot());
        assert_eq!(space.live_leases(), model.live().count() as u64);
        let due = model.due();
        assert_eq!(space.due(Slot::MAX).collect::<Vec<_>>(), due);
        let next = due.first().map(|(_, deadline)| *deadline);
        assert_eq!(space.next_deadline(), next);
        for no in 0..=7 {
            self.both.resource(&token(&format!("r{no}")));
        }
        let (slot, history) = (model.slot(), self.both.bounds.history_slots);
        for no in 0..=self.no + 1 {
            for later in [0, 1, history + 1] {
                let slot = slot.saturating_add(later);
                self.both.lease(LeaseNo(no), slot).ok();
            }
        }
        self.hold();
    }

    /// What the model cannot get wrong together with the kernel.
    fn hold(&mut self) {
        let Both {
            space,
            bounds,
            limit,
            ..
        } = &self.both;
        assert!(space.leases.len() as u64 <= bounds.leases_max);
        assert!(space.resources.len() as u64 <= bounds.resources_max);
        let live = space.live_leases();
        assert!(limit.is_none_or(|limit| live <= limit));
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
        assert!(most <= bounds.expirations_per_slot_max);
    }
}
