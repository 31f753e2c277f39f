//! The ledger against what the clients were told.

use ledger::{Bus, BusError, Chain, ChainError, Tail};
use ledger_nats::jetstream::JetStreamBus;
use proof::history::{Answer, Fact, wire::Entries};
use serde::Serialize;
use std::collections::BTreeSet;
use vocab::{Kinds, Lsn, ResourceAsk, Token};

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error("operation {number}: the client was told {told:?}, the ledger has {recorded:?}")]
    Differs {
        number: usize,
        told: Option<Answer>,
        recorded: Option<Answer>,
    },
    #[error("none of {0} operations was decided")]
    Nothing(usize),
    #[error("operation {0} was decided twice")]
    Twice(usize),
    #[error("{0} leases are held though all were released")]
    Held(usize),
    #[error("{0} operations were asked and never decided")]
    Open(usize),
}

/// What the ledger says of one run's operations.
#[derive(Debug, Default)]
pub struct Audit {
    decided: Vec<Option<Answer>>,
    held: BTreeSet<u64>,
    expired: u64,
    frames: u64,
    events: u64,
    open: usize,
}

#[derive(Debug, Serialize)]
pub struct Audited {
    pub ops_decided: u64,
    pub ops_answered: u64,
    pub leases_held: u64,
    pub leases_expired: u64,
    pub ledger_frames: u64,
    pub ledger_events: u64,
}

impl Audit {
    /// Everything up to where the ledger ends now. `run` is what the operations' ids begin with.
    pub async fn read(bus: &JetStreamBus, tenant: &Token, run: &str) -> Result<Self, AuditError> {
        let (mut audit, mut entries, mut chain) =
            (Self::default(), Entries::default(), Chain::default());
        let end = bus.end().await?;
        let mut records = bus.follow(Lsn(1)).await?;
        while chain.last() < end {
            let record = records.recv().await?;
            let Some(frame) = chain.accept(&record, Kinds::ALL)? else {
                continue;
            };
            audit.frames += 1;
            for (at, event) in frame.placed() {
                audit.events += 1;
                let entry = entries.entry(&at, event);
                if let Some(entry) = entry.filter(|entry| entry.tenant == *tenant) {
                    audit.fact(run, entry.fact)?;
                }
            }
        }
        audit.open = entries.open();
        Ok(audit)
    }

    fn fact(&mut self, run: &str, fact: Fact) -> Result<(), AuditError> {
        let (operation_id, answer, ask) = match fact {
            Fact::Decided {
                operation_id,
                ask,
                decision,
            } => (operation_id, decision.answer, Some(ask)),
            Fact::Refused { operation_id, rule } => (operation_id, Answer::refused(rule), None),
            Fact::Expired { lease, .. } => {
                self.expired += u64::from(self.held.remove(&lease));
                return Ok(());
            }
        };
        let number = operation_id.as_str().strip_prefix(run);
        let number = number.and_then(|rest| rest.strip_prefix('-')?.parse::<usize>().ok());
        let Some(number) = number else {
            return Ok(());
        };
        if self.decided.len() <= number {
            self.decided.resize(number + 1, None);
        }
        if self.decided[number].replace(answer).is_some() {
            return Err(AuditError::Twice(number));
        }
        match (ask, answer) {
            (_, Answer::Granted { lease, .. }) => {
                self.held.insert(lease);
            }
            (Some(ResourceAsk::Release { lease, .. }), Answer::Released { .. }) => {
                self.held.remove(&lease.0);
            }
            _ => {}
        }
        Ok(())
    }

    /// Each operation was answered as it was decided, once, and nothing is held in the end.
    pub fn compare(mut self, told: &[Option<Answer>]) -> Result<Audited, AuditError> {
        if self.decided.is_empty() {
            return Err(AuditError::Nothing(told.len()));
        }
        self.decided
            .resize(self.decided.len().max(told.len()), None);
        let nobody = std::iter::repeat(&None);
        for (number, (recorded, told)) in self
            .decided
            .iter()
            .zip(told.iter().chain(nobody))
            .enumerate()
        {
            if recorded != told {
                let (told, recorded) = (*told, *recorded);
                return Err(AuditError::Differs {
                    number,
                    told,
                    recorded,
                });
            }
        }
        match (self.held.len(), self.open) {
            (0, 0) => {}
            (0, open) => return Err(AuditError::Open(open)),
            (held, _) => return Err(AuditError::Held(held)),
        }
        let count = |answers: &[Option<Answer>]| answers.iter().flatten().count() as u64;
        Ok(Audited {
            ops_decided: count(&self.decided),
            ops_answered: count(told),
            leases_held: 0,
            leases_expired: self.expired,
            ledger_frames: self.frames,
            ledger_events: self.events,
        })
    }
}
