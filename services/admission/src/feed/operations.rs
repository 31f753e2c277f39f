//! Operations between their request and the end of their window: who waits for the outcome, and what it was.

use super::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{EventNo, Numbered, Operation, Token};

/// Operations by the number of the event that took them up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operations {
    open: Numbered<EventNo, Open>,
    /// Outcomes whose window is counted by the clock.
    timed: Numbered<EventNo, Outcome>,
    /// Outcomes whose window is counted in their tenant's slots. The numbers of one tenant's lie far apart, which is nothing for
    /// pages.
    slotted: BTreeMap<Token, BTreeMap<EventNo, Box<Outcome>>>,
}

/// An operation without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub tenant: Token,
    pub job_set: Token,
    pub operation_id: Option<Token>,
    pub reply_to: Vec<Token>,
    /// Its window is counted in slots.
    by_slots: bool,
}

/// What a repeat finds.
pub(super) enum Repeated<'a> {
    /// Nothing yet: the asker is told together with the others.
    Open,
    Decided(&'a Outcome),
    Forgotten,
}

impl Open {
    pub fn of(operation: &Operation, job_set: Token, by_slots: bool) -> Self {
        Self {
            tenant: operation.tenant.clone(),
            job_set,
            operation_id: operation.operation_id.clone(),
            reply_to: operation.reply_to.iter().cloned().collect(),
            by_slots,
        }
    }
}

impl Operations {
    pub fn open(&mut self, no: EventNo, open: Open) {
        self.open.insert(no, open);
    }

    /// Takes an operation that was not answered before.
    pub fn close(&mut self, no: EventNo) -> Option<Open> {
        self.open.remove(&no)
    }

    pub fn keep(&mut self, no: EventNo, open: &Open, outcome: Outcome) {
        if open.by_slots {
            let outcomes = self.slotted.entry(open.tenant.clone()).or_default();
            outcomes.insert(no, Box::new(outcome));
        } else {
            self.timed.insert(no, outcome);
        }
    }

    pub fn repeat(&mut self, tenant: &Token, original: EventNo, reply_to: &Token) -> Repeated<'_> {
        if let Some(open) = self.open.get_mut(&original) {
            open.reply_to.push(reply_to.clone());
            return Repeated::Open;
        }
        let slotted = || Some(&**self.slotted.get(tenant)?.get(&original)?);
        match self.timed.get(&original).or_else(slotted) {
            Some(outcome) => Repeated::Decided(outcome),
            None => Repeated::Forgotten,
        }
    }

    /// The window of these is over.
    pub fn forget(&mut self, through: EventNo, slots_of: Option<&Token>) {
        let Some(tenant) = slots_of else {
            return self.timed.remove_through(through);
        };
        if let Some(outcomes) = self.slotted.get_mut(tenant) {
            while outcomes
                .first_entry()
                .filter(|first| *first.key() <= through)
                .map(|first| first.remove())
                .is_some()
            {}
            if outcomes.is_empty() {
                self.slotted.remove(tenant);
            }
        }
    }
}
