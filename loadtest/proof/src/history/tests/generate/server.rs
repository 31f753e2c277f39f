//! Decides one message after the other.

use super::{TENANTS, World, desk_of};
use crate::history::{
    Answer, Entry, Fact, Read, Sent,
    model::Model,
    tests::{BOUNDS, token},
};
use std::collections::BTreeMap;
use vocab::{ResourceAsk, Rule, Slot, Token};

/// One tenant's side of the server.
pub struct Desk {
    pub model: Model,
    pub operations: BTreeMap<Token, (ResourceAsk, Slot, u64, Answer)>,
    pub granted: Vec<(u64, Token)>,
    /// What the model was at an earlier position.
    pub before: Option<(u64, Slot, Model)>,
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
        let decision = self.desks[desk].model.ask(slot, &sent.ask, number);
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
        let granted = self.desks[desk].granted.clone();
        for (lease, _) in granted {
            let expired = self.desks[desk].model.expire(slot, lease);
            if let Some((fencing_token, retire_after)) = expired {
                let fact = Fact::Expired {
                    lease,
                    fencing_token,
                    retire_after,
                };
                self.append(slot, desk, fact);
            }
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
        let here = (self.lsn, slot, desk.model.clone());
        let before = desk.before.replace(here.clone());
        let named = before.filter(|_| at_named);
        read.named_lsn = named.as_ref().map(|(lsn, ..)| *lsn);
        let (lsn, slot, model) = named.unwrap_or(here);
        read.found = model.look(slot, read.lease);
        (read.lsn, read.slot) = (lsn, slot);
        read.answered_ns = now + 1 + self.dice.below(500);
        self.recorder.read(read);
    }
}
