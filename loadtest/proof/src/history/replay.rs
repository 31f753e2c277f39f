//! The ledger's decisions, once more by the model.

use super::{
    Answer, Bounds, Broken, Decision, Entry, Fact, Found, History, Party, Read, Violation,
};
use named_resources::model::Model;
use std::collections::BTreeMap;
use vocab::{LeaseNo, ResourceAsk, Token};

struct Replay<'a> {
    bounds: Bounds,
    models: BTreeMap<&'a Token, Model>,
    /// The highest number of a lease; numbers are those of one writer's events.
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
        let fresh = || Model::new(bounds.into());
        self.models.entry(tenant).or_insert_with(fresh)
    }

    fn read(&mut self, read: &'a Read) -> Result<(), Violation> {
        let model = self.model(&read.tenant);
        let found = model.lease(LeaseNo(read.lease), read.slot);
        let expected = Found::ruled(found);
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
                lease,
                fencing_token,
                retire_after,
            } => {
                let of = LeaseNo(*lease);
                let expired = self.model(&entry.tenant).expire_due(of, entry.slot);
                match expired == Some((*fencing_token, *retire_after)) {
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
            Answer::Granted { lease, .. } if lease <= self.issued => {
                return Err(Broken::NumberReused);
            }
            Answer::Granted { lease, .. } => lease,
            _ => self.issued.saturating_add(1),
        };
        let model = self.model(&entry.tenant);
        let ruled = model.ask(LeaseNo(number), ask, entry.slot, None);
        let expected = Decision::ruled(number, ruled);
        if expected != said {
            return Err(differs(expected, said));
        }
        if matches!(said.answer, Answer::Granted { .. }) {
            self.issued = number;
        }
        Ok(())
    }
}

fn differs(expected: Decision, said: Decision) -> Broken {
    let fencing_tokens = match (expected.answer, said.answer) {
        (Answer::Released { fencing_token: due }, Answer::Released { fencing_token })
        | (Answer::Revoked { fencing_token: due }, Answer::Revoked { fencing_token }) => {
            Some((due, fencing_token))
        }
        _ => None,
    };
    match fencing_tokens {
        Some((due, fencing_token)) if fencing_token < due => {
            Broken::FencingTokenReused { expected }
        }
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
    let same = lease(one).is_some_and(|number| lease(other) == Some(number));
    one.tenant == other.tenant && (same || resources(one).iter().any(share))
}

fn resources(entry: &Entry) -> &[Token] {
    match entry.ask() {
        Some(ResourceAsk::Create { resource }) => std::slice::from_ref(resource),
        Some(ResourceAsk::Acquire { resources, .. }) => resources,
        _ => &[],
    }
}

fn lease(entry: &Entry) -> Option<u64> {
    if let Fact::Expired { lease, .. } = entry.fact {
        return Some(lease);
    }
    match (entry.ask()?, entry.answer()?) {
        (_, Answer::Granted { lease, .. }) => Some(lease),
        (
            ResourceAsk::Confirm { lease, .. }
            | ResourceAsk::Release { lease, .. }
            | ResourceAsk::Revoke { lease }
            | ResourceAsk::Reclaim { lease },
            _,
        ) => Some(lease.0),
        (ResourceAsk::Create { .. } | ResourceAsk::Acquire { .. }, _) => None,
    }
}
