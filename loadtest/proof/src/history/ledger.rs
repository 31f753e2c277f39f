//! The history by operation: one outcome, which stands on the ledger.

use super::{Broken, Call, Entry, Fact, History, Party, Violation};
use std::collections::BTreeMap;
use vocab::{Rule, Token};

/// A tenant's operation id.
type Id<'a> = (&'a Token, &'a Token);

/// The history by operation.
#[derive(Debug)]
pub struct Book<'a> {
    pub entries: &'a [Entry],
    calls: BTreeMap<Id<'a>, Vec<&'a Call>>,
    decided: BTreeMap<Id<'a>, Vec<&'a Entry>>,
}

impl<'a> Book<'a> {
    pub fn new(history: &'a History) -> Self {
        let mut calls: BTreeMap<Id<'a>, Vec<&'a Call>> = BTreeMap::new();
        for call in &history.calls {
            let id = (&call.tenant, &call.operation_id);
            calls.entry(id).or_default().push(call);
        }
        let mut decided: BTreeMap<Id<'a>, Vec<&'a Entry>> = BTreeMap::new();
        for entry in &history.ledger {
            if let Some(operation_id) = entry.operation_id() {
                let id = (&entry.tenant, operation_id);
                decided.entry(id).or_default().push(entry);
            }
        }
        Self {
            entries: &history.ledger,
            calls,
            decided,
        }
    }

    pub fn calls_of(&self, id: Id<'a>) -> &[&'a Call] {
        self.calls.get(&id).map_or(&[], Vec::as_slice)
    }

    pub fn decided_of(&self, id: Id<'a>) -> &[&'a Entry] {
        self.decided.get(&id).map_or(&[], Vec::as_slice)
    }

    /// All who got the outcome of one position for one content got the same.
    pub fn one_outcome(&self) -> Result<(), Violation> {
        for calls in self.calls.values() {
            let mut first: BTreeMap<u64, Vec<&Call>> = BTreeMap::new();
            for call in calls {
                let Some((_, lsn, answer)) = call.answered() else {
                    continue;
                };
                let others = first.entry(lsn).or_default();
                match others.iter().find(|other| other.ask == call.ask) {
                    Some(other) if other.answered().map(|(.., said)| said) != Some(answer) => {
                        return Err(between(Broken::TwoOutcomes, *call, *other));
                    }
                    Some(_) => {}
                    None => others.push(call),
                }
            }
        }
        Ok(())
    }

    /// An id is executed again only after its window.
    pub fn executed_once(&self, window_slots: u64) -> Result<(), Violation> {
        for entries in self.decided.values() {
            let executed = entries.iter().filter(|entry| entry.ask().is_some());
            let executed: Vec<_> = executed.copied().collect();
            for pair in executed.windows(2) {
                let [before, after] = pair else { continue };
                if after.slot > before.slot.saturating_add(window_slots) {
                    continue;
                }
                let broken = match before.ask() == after.ask() {
                    true => Broken::DoubleExecution,
                    false => Broken::IdReused,
                };
                return Err(between(broken, *after, *before));
            }
        }
        Ok(())
    }

    /// What was answered stands on the ledger as it was answered.
    pub fn nothing_lost(&self) -> Result<(), Violation> {
        self.all_calls()
            .try_for_each(|(id, call)| self.stands(id, call))
    }

    /// Nobody was told an old outcome after a new one of the same id was known.
    pub fn no_stale_repeats(&self) -> Result<(), Violation> {
        self.all_calls()
            .try_for_each(|(id, call)| self.not_superseded(id, call))
    }

    fn all_calls(&self) -> impl Iterator<Item = (Id<'a>, &'a Call)> {
        let calls = self.calls.iter();
        calls.flat_map(|(id, calls)| calls.iter().map(move |call| (*id, *call)))
    }

    fn stands(&self, id: Id<'a>, call: &Call) -> Result<(), Violation> {
        let Some((at_ns, lsn, answer)) = call.answered() else {
            return Ok(());
        };
        let entries = self.decided_of(id);
        let mut here = entries.iter().filter(|entry| entry.lsn == lsn);
        let Some(entry) = here.clone().find(|entry| entry.answer() == Some(answer)) else {
            return Err(match here.find(|entry| entry.is_about(&call.ask)) {
                Some(entry) => between(Broken::AnswerNotRecorded, call, *entry),
                None => Violation::new(Broken::LostWrite, [Party::from(call)]),
            });
        };
        if !entry.is_about(&call.ask) {
            return Err(between(Broken::OutcomeOfOtherContent, call, *entry));
        }
        if is_conflict(entry) {
            self.conflicts(id, call, at_ns)?;
        }
        Ok(())
    }

    /// A conflict is one with other content that was under way.
    fn conflicts(&self, id: Id<'a>, call: &Call, at_ns: u64) -> Result<(), Violation> {
        let known = |other: &&Call| other.ask != call.ask && other.invoked_ns <= at_ns;
        let executed = |other: &&Call| {
            let mut entries = self.decided_of(id).iter();
            entries.any(|entry| !is_conflict(entry) && entry.is_about(&other.ask))
        };
        let mut others = self.calls_of(id).iter().copied();
        match others.find(|other| known(other) && executed(other)) {
            Some(_) => Ok(()),
            None => Err(Violation::new(
                Broken::ConflictWithNothing,
                [Party::from(call)],
            )),
        }
    }

    fn not_superseded(&self, id: Id<'a>, call: &Call) -> Result<(), Violation> {
        let Some((_, lsn, _)) = call.answered() else {
            return Ok(());
        };
        let later = |other: &&&Entry| other.lsn > lsn && other.ask().is_some();
        for other in self.decided_of(id).iter().filter(later) {
            let answered = self.caused(other)?.first_answered;
            let before = |done: &&Call| done.ended_ns().is_some_and(|at| at < call.invoked_ns);
            if let Some(done) = answered.filter(before) {
                return Err(between(Broken::StaleRepeat, call, done));
            }
        }
        Ok(())
    }
}

fn is_conflict(entry: &Entry) -> bool {
    matches!(&entry.fact, Fact::Refused { rule, .. } if *rule == Rule::OperationConflict)
}

pub fn between(broken: Broken, offender: impl Into<Party>, other: impl Into<Party>) -> Violation {
    Violation::new(broken, [offender.into(), other.into()])
}
