//! Random operations from many tasks on several connections, with repeats and lost answers, all of them recorded.

mod dice;
mod known;

pub use dice::Names;

use super::{Recorder, Seen, Sent, wire};
use chassis::Stopwatch;
use client::{Client, NoOutcome, Operation};
use dice::Dice;
use known::Known;
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use vocab::{CellNo, ResourceAsk, Rule, Slot, Token};

/// Sends before an operation is left without an answer.
const SENDS_MAX: u32 = 20;

/// Where the slots of requests come from.
#[derive(Debug)]
pub enum Slots {
    /// The cell's clock says them.
    Clock,
    /// Requests say them; they move on now and then.
    Requests(AtomicU64),
}

/// One connection and its name in the history.
pub struct Connection {
    pub name: Token,
    pub client: Client,
}

/// What all tasks share.
pub struct Driver {
    pub tenant: Token,
    pub cell: CellNo,
    pub connections: Vec<Connection>,
    pub names: Names,
    pub slots: Slots,
    recorder: Recorder,
    known: Mutex<Known>,
    since: Stopwatch,
    answered: AtomicU64,
}

impl Driver {
    pub fn new(
        tenant: Token,
        cell: CellNo,
        connections: Vec<Connection>,
        names: Names,
        slots: Slots,
    ) -> Self {
        Self {
            tenant,
            cell,
            connections,
            names,
            slots,
            recorder: Recorder::default(),
            known: Mutex::default(),
            since: Stopwatch::start(),
            answered: AtomicU64::new(0),
        }
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Calls with an answer of the ledger so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// One client: an operation after the other, as long as `more` says so.
    pub async fn client(&self, seed: u64, more: impl Fn() -> bool) {
        let mut dice = Dice::new(seed);
        while more() {
            self.one(&mut dice).await;
        }
    }

    /// One operation until it has an answer, perhaps twice at once, or again what was asked before.
    async fn one(&self, dice: &mut Dice) {
        self.move_on(dice);
        let (id, ask) = match dice.again().then(|| self.known().operation(dice)).flatten() {
            Some((id, _)) if dice.other_content() => (id, self.ask(dice)),
            Some(operation) => operation,
            None => (fresh_id(), self.ask(dice)),
        };
        self.known().asked(&id, &ask);
        if dice.twice_at_once() {
            let (one, other) = (self.connection(dice), self.connection(dice));
            tokio::join!(self.send(one, &id, &ask), self.send(other, &id, &ask));
        }
        for _ in 0..SENDS_MAX {
            if self.send(self.connection(dice), &id, &ask).await {
                return;
            }
        }
    }

    fn ask(&self, dice: &mut Dice) -> ResourceAsk {
        dice.ask(&self.names, &self.known())
    }

    fn connection(&self, dice: &mut Dice) -> &Connection {
        &self.connections[dice.below(self.connections.len())]
    }

    /// Sends once and writes down what is seen; whether that was definite.
    async fn send(&self, by: &Connection, id: &Token, ask: &ResourceAsk) -> bool {
        let operation = Operation::new(id.as_str(), wire::verb(ask, self.slot(), self.cell));
        let sent = Sent {
            client: by.name.clone(),
            tenant: self.tenant.clone(),
            operation_id: id.clone(),
            ask: ask.clone(),
        };
        let call = self.recorder.invoked(sent, self.now_ns());
        let outcome = by.client.call(&operation).await;
        let seen = self.seen(&outcome);
        match seen {
            Seen::Answered { at_ns, lsn, answer } => {
                self.recorder.answered(call, at_ns, lsn, answer);
                self.known().answered(ask, answer);
                self.answered.fetch_add(1, Ordering::Relaxed);
                true
            }
            Seen::Unwritten { at_ns, rule } => {
                self.recorder.unwritten(call, at_ns, rule);
                // Of another slot, or later, the same may be taken.
                !rule.is_none_or(Rule::retryable) && rule != Some(Rule::SlotBackwards)
            }
            Seen::Nothing => false,
        }
    }

    fn seen(&self, outcome: &Result<client::Outcome, NoOutcome>) -> Seen {
        let at_ns = self.now_ns();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(NoOutcome::NotReceived { .. }) => return Seen::Unwritten { at_ns, rule: None },
            Err(NoOutcome::Indefinite { .. }) => return Seen::Nothing,
        };
        let Some(answer) = wire::answer(outcome, self.cell) else {
            return Seen::Nothing;
        };
        match (outcome.lsn, answer) {
            (0, super::Answer::Refused { rule }) => Seen::Unwritten {
                at_ns,
                rule: Some(rule),
            },
            (lsn, answer) => Seen::Answered { at_ns, lsn, answer },
        }
    }

    fn move_on(&self, dice: &mut Dice) {
        if let Slots::Requests(slot) = &self.slots
            && dice.slot_ends()
        {
            slot.fetch_add(1 + dice.below(3) as u64, Ordering::Relaxed);
        }
    }

    fn slot(&self) -> Option<Slot> {
        match &self.slots {
            Slots::Clock => None,
            Slots::Requests(slot) => Some(slot.load(Ordering::Relaxed)),
        }
    }

    fn now_ns(&self) -> u64 {
        // A run is over long before 584 years.
        self.since.elapsed().as_nanos() as u64
    }

    /// Nothing in it is ever left half written, so a poisoned lock is as good as any.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresh_id() -> Token {
    let id = Operation::fresh_id();
    Token::new(&id).unwrap_or_else(|_| unreachable!("hexadecimal digits are a token"))
}
