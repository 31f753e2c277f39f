//! Decides one message after the other.

use super::{TENANTS, World, desk_of};
use crate::history::{
    Answer, Decision, Entry, Fact, Found, Read, Sent,
    tests::{BOUNDS, token},
};
use named_resources::Space;
use std::collections::BTreeMap;
use vocab::{LeaseNo, ResourceAsk, Rule, Slot, Token};

/// One tenant's side of the server.
pub struct Desk {
    pub space: Space,
    pub operations: BTreeMap<Token, (ResourceAsk, Slot, u64, Answer)>,
    pub granted: Vec<(u64, Token)>,
    /// What there was at an earlier position.
    pub before: Option<(u64, Slot, Space)>,
}

impl World {
    pub(super) fn decides(&mut self, slot: Slot, sent: &Sent) -> (u64, Answer) {
        let desk = desk_of(&sent.tenant);
        if self.dice.percent(50) {
            self.expires(slot, desk);
        }
        let kept = self.desks[desk].operations.get(&sent.operation_id);
        let live = kept.filter(|(_, at, ..)| slot <= at + BOUNDS.window_slots);
        match live {
            Some((ask, _, lsn, answer)) if *ask == sent.ask => return (*lsn, *answer),
            Some(_) => {
                let rule = Rule::OperationConflict;
                let operation_id = sent.operation_id.clone();
                self.append(slot, desk, Fact::Refused { operation_id, rule });
                return (self.lsn, Answer::refused(rule));
            }
            None => {}
        }
        let number = self.event_no + 1;
        let space = &mut self.desks[desk].space;
        let answer = space.decide(&sent.ask, slot, None, &BOUNDS.into());
        let fits = space.apply(LeaseNo(number), &sent.ask, slot, &answer);
        assert_eq!(fits, Ok(()));
        let decision = Decision::of(number, &answer);
        let fact = Fact::Decided {
            operation_id: sent.operation_id.clone(),
            ask: sent.ask.clone(),
            decision,
        };
        self.append(slot, desk, fact);
        let desk = &mut self.desks[desk];
        if let (Answer::Granted { .. }, ResourceAsk::Acquire { holder, .. }) =
            (decision.answer, &sent.ask)
        {
            desk.granted.push((number, holder.clone()));
        }
        let kept = (sent.ask.clone(), slot, self.lsn, decision.answer);
        desk.operations.insert(sent.operation_id.clone(), kept);
        (self.lsn, decision.answer)
    }

    pub(super) fn expires(&mut self, slot: Slot, desk: usize) {
        let due: Vec<_> = self.desks[desk].space.due(slot).collect();
        for (no, deadline) in due {
            let space = &mut self.desks[desk].space;
            let expired = space.decide_expiry(no, deadline, slot, &BOUNDS.into());
            let expiry = expired.ok().flatten().expect("it is due");
            let fits = space.expire(no, slot, expiry.retire_after);
            assert_eq!(fits, Ok(()));
            let fact = Fact::Expired {
                lease: no.0,
                fencing_token: expiry.fencing_token,
                retire_after: expiry.retire_after,
            };
            self.append(slot, desk, fact);
        }
    }

    pub(super) fn append(&mut self, slot: Slot, desk: usize, fact: Fact) {
        if self.frame_open && self.dice.percent(40) {
            self.index += 1;
        } else {
            self.lsn += 1 + self.dice.below(3);
            self.index = 0;
        }
        self.frame_open = true;
        self.event_no += 1;
        self.ledger.push(Entry {
            lsn: self.lsn,
            index: self.index,
            tenant: token(TENANTS[desk]),
            slot,
            fact,
        });
    }

    pub(super) fn reads(&mut self, now: u64, mut read: Read) {
        self.frame_open = false;
        let slot = now / self.slot_ns;
        let at_named = self.dice.percent(30);
        let desk = &mut self.desks[desk_of(&read.tenant)];
        let here = (self.lsn, slot, desk.space.clone());
        let before = desk.before.replace(here.clone());
        let named = before.filter(|_| at_named);
        read.named_lsn = named.as_ref().map(|(lsn, ..)| *lsn);
        let (lsn, slot, space) = named.unwrap_or(here);
        let found = space.lease(LeaseNo(read.lease), slot);
        let found = found.as_ref().map_err(|refusal| refusal.rule);
        read.found = Found::ruled(found);
        (read.lsn, read.slot) = (lsn, slot);
        read.answered_ns = now + 1 + self.dice.below(500);
        self.recorder.read(read);
    }
}
