//! The ledger's decisions, once more by the model.

use super::{
    Answer, Bounds, Broken, Decision, Entry, Fact, History, Party, Read, Violation, model::Model,
};
use std::collections::BTreeMap;
use vocab::{ResourceAsk, Token};

struct Replay<'a> {
    bounds: Bounds,
    models: BTreeMap<&'a Token, Model>,
    /// The highest number of a reservation; numbers are those of one writer's events.
    issued: u64,
}

/// Decides everything again in the ledger's order, and answers the reads at their places.
pub fn replay(history: &History) -> Result<(), Violation> {
    let mut replay = Replay {
        bounds: history.bounds,
        models: BTreeMap::new(),
        issued: 0,
    };
    let mut reads: Vec<&Read> = history.reads.iter().collect();
    reads.sort_by_key(|read| read.lsn);
    let mut reads = reads.into_iter().peekable();
    for (index, entry) in history.ledger.iter().enumerate() {
        while let Some(read) = reads.next_if(|read| read.lsn < entry.lsn) {
            replay.read(read)?;
        }
        replay
            .entry(entry)
            .map_err(|broken| blame(broken, &history.ledger, index))?;
    }
    reads.try_for_each(|read| replay.read(read))
}

impl<'a> Replay<'a> {
    fn model(&mut self, tenant: &'a Token) -> &mut Model {
        let bounds = self.bounds;
        let fresh = || Model::new(bounds);
        self.models.entry(tenant).or_insert_with(fresh)
    }

    fn read(&mut self, read: &'a Read) -> Result<(), Violation> {
        let expected = self.model(&read.tenant).look(read.slot, read.reservation);
        if expected == read.found {
            return Ok(());
        }
        let broken = Broken::NotWhatWasThere { expected };
        Err(Violation::new(broken, [Party::from(read)]))
    }

    fn entry(&mut self, entry: &'a Entry) -> Result<(), Broken> {
        match &entry.fact {
            Fact::Decided { ask, decision, .. } => self.decided(entry, ask, *decision),
            // The inbox's refusals change nothing.
            Fact::Refused { .. } => Ok(()),
            Fact::Expired {
                reservation,
                epoch,
                retire_after,
            } => {
                let expired = self.model(&entry.tenant).expire(entry.slot, *reservation);
                match expired == Some((*epoch, *retire_after)) {
                    true => Ok(()),
                    false => Err(Broken::WrongExpiry),
                }
            }
        }
    }

    fn decided(
        &mut self,
        entry: &'a Entry,
        ask: &ResourceAsk,
        said: Decision,
    ) -> Result<(), Broken> {
        // Which number comes next is the writer's to say; only that it is a new one is to be checked.
        let number = match said.answer {
            Answer::Reserved { reservation, .. } if reservation <= self.issued => {
                return Err(Broken::NumberReused);
            }
            Answer::Reserved { reservation, .. } => reservation,
            _ => self.issued.saturating_add(1),
        };
        let expected = self.model(&entry.tenant).ask(entry.slot, ask, number);
        if expected != said {
            return Err(differs(expected, said));
        }
        if matches!(said.answer, Answer::Reserved { .. }) {
            self.issued = number;
        }
        Ok(())
    }
}

fn differs(expected: Decision, said: Decision) -> Broken {
    let epochs = match (expected.answer, said.answer) {
        (Answer::Released { epoch: due }, Answer::Released { epoch })
        | (Answer::Revoked { epoch: due }, Answer::Revoked { epoch }) => Some((due, epoch)),
        _ => None,
    };
    match epochs {
        Some((due, epoch)) if epoch < due => Broken::EpochReused { expected },
        _ => Broken::NotSerial { expected },
    }
}

/// The entry at `index`, and the last one before it that speaks of the same.
fn blame(broken: Broken, ledger: &[Entry], index: usize) -> Violation {
    let Some((entry, before)) = ledger.get(index).zip(ledger.get(..index)) else {
        return Violation::new(broken, []);
    };
    let last = before.iter().rev().find(|other| related(other, entry));
    let parties = [Some(entry), last].into_iter().flatten();
    Violation::new(broken, parties.map(Party::from))
}

fn related(one: &Entry, other: &Entry) -> bool {
    let share = |name: &Token| resources(other).contains(name);
    let same = reservation(one).is_some_and(|number| reservation(other) == Some(number));
    one.tenant == other.tenant && (same || resources(one).iter().any(share))
}

fn resources(entry: &Entry) -> &[Token] {
    match entry.ask() {
        Some(ResourceAsk::Create { resource }) => std::slice::from_ref(resource),
        Some(ResourceAsk::Reserve { resources, .. }) => resources,
        _ => &[],
    }
}

fn reservation(entry: &Entry) -> Option<u64> {
    if let Fact::Expired { reservation, .. } = entry.fact {
        return Some(reservation);
    }
    match (entry.ask()?, entry.answer()?) {
        (_, Answer::Reserved { reservation, .. }) => Some(reservation),
        (
            ResourceAsk::Confirm { reservation, .. }
            | ResourceAsk::Release { reservation, .. }
            | ResourceAsk::Revoke { reservation }
            | ResourceAsk::Reclaim { reservation },
            _,
        ) => Some(reservation.0),
        (ResourceAsk::Create { .. } | ResourceAsk::Reserve { .. }, _) => None,
    }
}
