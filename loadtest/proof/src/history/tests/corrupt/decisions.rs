//! Spoils decisions, together with what clients were told of them.

use super::{
    Dice,
    aim::{choose, decision, retell},
};
use crate::history::{Answer, Entry, Fact, History};
use vocab::Rule;

pub fn reuse_number(history: &mut History, dice: &mut Dice) -> Option<()> {
    let granted = |entry: &Entry| match entry.answer() {
        Some(Answer::Granted { lease, .. }) => Some(lease),
        _ => None,
    };
    let first = history.ledger.iter().find_map(granted)?;
    let index = choose(history, dice, |_, entry| granted(entry) > Some(first))?;
    let mut said = decision(&history.ledger[index])?;
    if let Answer::Granted { lease, .. } = &mut said.answer {
        *lease = first;
    }
    retell(history, index, said);
    Some(())
}

pub fn reuse_fencing_token(history: &mut History, dice: &mut Dice) -> Option<()> {
    let bumps = |answer| matches!(answer, Answer::Released { .. } | Answer::Revoked { .. });
    let index = choose(history, dice, |_, entry| entry.answer().is_some_and(bumps))?;
    let mut said = decision(&history.ledger[index])?;
    if let Answer::Released { fencing_token } | Answer::Revoked { fencing_token } = &mut said.answer
    {
        *fencing_token -= 1;
    }
    retell(history, index, said);
    Some(())
}

pub fn grant_twice(history: &mut History, dice: &mut Dice) -> Option<()> {
    let busy = Answer::refused(Rule::ResourceBusy);
    let index = choose(history, dice, |_, entry| entry.answer() == Some(busy))?;
    let end = history.ledger.len() as u64;
    let before = history.ledger[..index].iter().filter_map(Entry::answer);
    let issued = before.filter_map(|answer| match answer {
        Answer::Granted { lease, .. } => Some(lease),
        _ => None,
    });
    let lease = issued.max().unwrap_or(end) + 1;
    let said = Answer::Granted {
        lease,
        fencing_token: 1,
        deadline: history.ledger[index].slot + 1,
    };
    retell(history, index, said.into());
    Some(())
}

pub fn undo_grant(history: &mut History, dice: &mut Dice) -> Option<()> {
    let confirmed = |_, entry: &Entry| entry.answer() == Some(Answer::Confirmed);
    let index = choose(history, dice, confirmed)?;
    retell(
        history,
        index,
        Answer::refused(Rule::StaleFencingToken).into(),
    );
    Some(())
}

/// At the end of the ledger, of the latest grant whose deadline has not come by then; it may have been confirmed or released.
pub fn expire_early(history: &mut History, _: &mut Dice) -> Option<()> {
    let end = history.ledger.last()?.clone();
    let mut grants = history.ledger.iter().rev();
    let early = grants.find_map(|entry| match entry.answer() {
        Some(Answer::Granted {
            lease, deadline, ..
        }) if deadline > end.slot => Some(Entry {
            lsn: end.lsn + 1,
            index: 0,
            tenant: entry.tenant.clone(),
            slot: end.slot,
            fact: Fact::Expired {
                lease,
                fencing_token: 2,
                retire_after: end.slot + history.bounds.history_slots,
            },
        }),
        _ => None,
    });
    history.ledger.push(early?);
    Some(())
}

pub fn expire_forever(history: &mut History, _: &mut Dice) -> Option<()> {
    history
        .ledger
        .iter_mut()
        .find_map(|entry| match &mut entry.fact {
            Fact::Expired { retire_after, .. } => {
                *retire_after = u64::MAX;
                Some(())
            }
            Fact::Decided { .. } | Fact::Refused { .. } => None,
        })
}
