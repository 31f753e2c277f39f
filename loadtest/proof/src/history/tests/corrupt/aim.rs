//! Finds what there is to spoil.

use super::Dice;
use crate::history::{Call, Decision, Entry, Fact, History, Seen};

pub fn id_of(entry: &Entry) -> Option<(String, String)> {
    let id = entry.operation_id()?;
    Some((entry.tenant.to_string(), id.to_string()))
}

pub fn is_of(call: &Call, entry: &Entry) -> bool {
    call.tenant == entry.tenant && Some(&call.operation_id) == entry.operation_id()
}

/// The calls that were told of the entry.
pub fn told<'a>(history: &'a History, entry: &'a Entry) -> impl Iterator<Item = usize> + 'a {
    let calls = history.calls.iter().enumerate();
    calls
        .filter(|(_, call)| is_of(call, entry) && entry.is_about(&call.ask))
        .filter(|(_, call)| call.answered().is_some_and(|(_, lsn, _)| lsn == entry.lsn))
        .map(|(index, _)| index)
}

/// Ids that were executed, and only once.
pub fn once(history: &History, index: usize) -> bool {
    let id = id_of(&history.ledger[index]);
    let all = history.ledger.iter().filter(|entry| id_of(entry) == id);
    id.is_some() && all.count() == 1
}

/// One of the decisions that someone was told of and that `fits`.
pub fn choose(
    history: &History,
    dice: &mut Dice,
    fits: impl Fn(usize, &Entry) -> bool,
) -> Option<usize> {
    let all = history.ledger.iter().enumerate();
    let known = all.filter(|(_, entry)| entry.ask().is_some() && told(history, entry).count() > 0);
    let fit: Vec<usize> = known
        .filter(|(index, entry)| fits(*index, entry))
        .map(|(index, _)| index)
        .collect();
    dice.pick(&fit).copied()
}

/// Changes an entry, and what its callers were told.
pub fn retell(history: &mut History, index: usize, said: Decision) {
    let entry = history.ledger[index].clone();
    let calls: Vec<usize> = told(history, &entry).collect();
    for call in calls {
        if let Seen::Answered { answer, .. } = &mut history.calls[call].seen {
            *answer = said.answer;
        }
    }
    if let Fact::Decided { decision, .. } = &mut history.ledger[index].fact {
        *decision = said;
    }
}

pub fn decision(entry: &Entry) -> Option<Decision> {
    match &entry.fact {
        Fact::Decided { decision, .. } => Some(*decision),
        Fact::Refused { .. } | Fact::Expired { .. } => None,
    }
}
