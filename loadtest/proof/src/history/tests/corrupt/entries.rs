//! Spoils the ledger.

use super::{
    Dice,
    aim::{choose, is_of, once, told},
};
use crate::history::{Entry, Fact, History, Seen, tests::token};
use vocab::{ResourceAsk, Rule};

pub fn swap_entries(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = dice.below(history.ledger.len() as u64 - 1) as usize;
    history.ledger.swap(index, index + 1);
    Some(())
}

pub fn execute_again(history: &mut History, dice: &mut Dice) -> Option<()> {
    let end = history.ledger.last()?.clone();
    let index = choose(history, dice, |_, entry| entry.slot + 20 > end.slot)?;
    let again = history.ledger[index].clone();
    history.ledger.push(Entry {
        lsn: end.lsn + 1,
        index: 0,
        slot: end.slot,
        ..again
    });
    Some(())
}

pub fn execute_late(history: &mut History, dice: &mut Dice) -> Option<()> {
    let end = history.ledger.last()?.clone();
    let all_heard = |entry: &Entry| {
        let mut calls = history.calls.iter().filter(|call| is_of(call, entry));
        calls.all(|call| call.answered().is_some())
    };
    let old = |index, entry: &Entry| once(history, index) && all_heard(entry);
    let index = choose(history, dice, old)?;
    let again = history.ledger[index].clone();
    history.ledger.push(Entry {
        lsn: end.lsn + 1,
        index: 0,
        slot: end.slot + 30,
        ..again
    });
    Some(())
}

pub fn reuse_id(history: &mut History, dice: &mut Dice) -> Option<()> {
    execute_again(history, dice)?;
    let resource = token("other");
    let last = history.ledger.last_mut()?;
    if let Fact::Decided { ask, .. } = &mut last.fact {
        *ask = ResourceAsk::Create { resource };
    }
    Some(())
}

pub fn lose_write(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |index, _| once(history, index))?;
    history.ledger.remove(index);
    Some(())
}

pub fn record_rate(history: &mut History, _: &mut Dice) -> Option<()> {
    let end = history.ledger.last()?.clone();
    let call = history.calls.iter().find(|call| {
        let operation = |other: &&Entry| is_of(call, other);
        call.seen == Seen::Nothing && !history.ledger.iter().any(|entry| operation(&entry))
    })?;
    history.ledger.push(Entry {
        lsn: end.lsn + 1,
        index: 0,
        tenant: call.tenant.clone(),
        slot: end.slot,
        fact: Fact::Refused {
            operation_id: call.operation_id.clone(),
            rule: Rule::RateLimited,
        },
    });
    Some(())
}

/// Two neighbours on the ledger, the second moved to the place of the first, which was over before the second began.
pub fn reorder(history: &mut History, dice: &mut Dice) -> Option<()> {
    let later = choose(history, dice, |index, entry| {
        let calls = history.calls.iter().filter(|call| is_of(call, entry));
        let began = calls.map(|call| call.invoked_ns).min().unwrap_or(0);
        let before = history.ledger[..index].iter();
        let over = before.filter(|other| other.lsn < entry.lsn && other.ask().is_some());
        let mut over = over.flat_map(|other| told(history, other));
        once(history, index)
            && over.any(|call| history.calls[call].ended_ns().is_some_and(|at| at < began))
    })?;
    let calls: Vec<usize> = told(history, &history.ledger[later]).collect();
    let entry = history.ledger.remove(later);
    for entry in &mut history.ledger {
        entry.lsn += 1;
    }
    for read in &mut history.reads {
        (read.lsn, read.named_lsn) = (read.lsn + 1, read.named_lsn.map(|lsn| lsn + 1));
    }
    for call in &mut history.calls {
        if let Seen::Answered { lsn, .. } = &mut call.seen {
            *lsn += 1;
        }
    }
    for call in calls {
        if let Seen::Answered { lsn, .. } = &mut history.calls[call].seen {
            *lsn = 0;
        }
    }
    let first = Entry {
        lsn: 0,
        index: 0,
        ..entry
    };
    history.ledger.insert(0, first);
    Some(())
}
