//! How many tasks were sent, and what they were answered.

use client::{NoOutcome, Outcome};
use schemas::v1::{outcome::Result as Decided, submitted::State};
use std::cell::{Cell, RefCell};

/// What was sent since the case began, and what came back.
#[derive(Debug, Default)]
pub struct Counts {
    pub sent: Cell<u64>,
    /// With a definite outcome.
    pub answered: Cell<u64>,
    pub placed: Cell<u64>,
    pub waiting: Cell<u64>,
    pub refused: Cell<u64>,
    /// Sent again, because nobody knew what had become of it.
    pub again: Cell<u64>,
    /// Given up without a definite outcome.
    pub lost: Cell<u64>,
    /// Why the last one was refused or sent again.
    pub trouble: RefCell<String>,
}

pub fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get() + count);
}

impl Counts {
    /// Accepted at the inbox: they will run, and end.
    pub fn accepted(&self) -> u64 {
        self.placed.get() + self.waiting.get()
    }

    pub fn under_way(&self) -> u64 {
        self.sent.get() - self.answered.get() - self.lost.get()
    }

    pub fn outcome(&self, outcome: Result<Outcome, NoOutcome>) {
        let decided = match outcome {
            Ok(outcome) => outcome.result,
            Err(error) => {
                add(&self.lost, 1);
                *self.trouble.borrow_mut() = error.to_string();
                return;
            }
        };
        add(&self.answered, 1);
        match decided {
            Some(Decided::Submitted(submitted)) => match submitted.state {
                Some(State::Waiting(_)) => add(&self.waiting, 1),
                _ => add(&self.placed, 1),
            },
            Some(Decided::Refused(refused)) => {
                add(&self.refused, 1);
                *self.trouble.borrow_mut() = refused.explanation;
            }
            _ => add(&self.refused, 1),
        }
    }
}
