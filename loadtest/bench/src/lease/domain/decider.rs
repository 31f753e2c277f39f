//! The whole scheduler as its leader drives it: frames of admission observed, frames of its own made.

use super::{DomainError, Subject};
use crate::lease::workload::token;
use ledger::{Decider, Draft};
use scheduler_rules::{Config, Scheduler};
use vocab::fact::{ResourceAsked, ResourceDecided};
use vocab::{
    At, Event, EventNo, LeaseNo, Lsn, Millis, Operation, ResourceAnswer, ResourceAsk, Slot, Token,
};

/// Operations in one frame: what comes while the frame before is written.
const FRAME: usize = 512;

pub struct Deciding {
    state: Scheduler,
    config: Config,
    tenant: Token,
    inputs: Vec<(At, Event)>,
    asked: u64,
    next: EventNo,
}

impl Deciding {
    /// Decides what was observed, in as many frames as it takes.
    fn frames(
        &mut self,
        now: Millis,
        answers: &mut Vec<(LeaseNo, ResourceAnswer)>,
    ) -> Result<(), DomainError> {
        loop {
            let mut draft = Draft::new(now, self.next);
            self.state.decide(&self.config, &mut draft);
            if let Some(poison) = draft.poison() {
                return Err(poison.clone().into());
            }
            let numbers = self.next.0..;
            self.next = draft.next_no();
            for (event, no) in draft.events().zip(numbers) {
                if let Event::ResourceDecided(ResourceDecided { answer, .. }) = event {
                    answers.push((LeaseNo(no), answer.clone()));
                }
            }
            if !draft.full() {
                return Ok(());
            }
        }
    }
}

impl Subject for Deciding {
    fn new() -> Self {
        Self {
            state: Scheduler::default(),
            config: Config::default(),
            tenant: token("team-a"),
            inputs: Vec::new(),
            asked: 0,
            next: EventNo(1),
        }
    }

    fn prepare(&mut self, slot: Slot, asks: &[ResourceAsk]) {
        self.inputs.clear();
        for ask in asks {
            self.asked += 1;
            let at = At {
                lsn: Lsn(0),
                index: 0,
                no: EventNo(self.asked),
                now: self.now(slot),
            };
            let operation = Operation {
                tenant: self.tenant.clone(),
                operation_id: Some(token(&format!("operation-{}", self.asked))),
                digest: [0; 16],
                reply_to: None,
                trace: None,
                by: None,
            };
            let asked = Event::ResourceAsked(ResourceAsked {
                operation,
                slot,
                by_requests: false,
                ask: ask.clone(),
            });
            self.inputs.push((at, asked));
        }
    }

    fn decide(
        &mut self,
        slot: Slot,
        asks: &[ResourceAsk],
    ) -> Result<Vec<(LeaseNo, ResourceAnswer)>, DomainError> {
        let mut answers = Vec::with_capacity(asks.len());
        let inputs = std::mem::take(&mut self.inputs);
        for frame in inputs.chunks(FRAME) {
            for (at, event) in frame {
                self.state.observe_event(at, event)?;
            }
            self.frames(self.now(slot), &mut answers)?;
        }
        Ok(answers)
    }
}

impl Deciding {
    fn now(&self, slot: Slot) -> Millis {
        Millis((slot * self.config.slot_ms) as i64)
    }
}
