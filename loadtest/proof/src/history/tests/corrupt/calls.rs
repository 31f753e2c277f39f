//! Spoils what clients saw.

use super::{
    Dice,
    aim::{choose, id_of, is_of, once, told},
};
use crate::history::{Answer, Call, Entry, Fact, History, Seen, tests::token};
use vocab::{ResourceAsk, Rule};

pub fn answer_early(history: &mut History, _: &mut Dice) -> Option<()> {
    let call = history.calls.iter_mut().rev();
    let call = call.into_iter().find(|call| call.answered().is_some())?;
    if let Seen::Answered { at_ns, .. } = &mut call.seen {
        *at_ns = call.invoked_ns.checked_sub(1)?;
    }
    Some(())
}

pub fn tell_another(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |_, entry| told(history, entry).count() > 1)?;
    let call = told(history, &history.ledger[index]).last()?;
    misreport_call(&mut history.calls[call])
}

pub fn share_outcome(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |index, _| once(history, index))?;
    let call = told(history, &history.ledger[index]).next()?;
    let resource = token("other");
    let other = Call {
        ask: ResourceAsk::Create { resource },
        ..history.calls[call].clone()
    };
    history.calls.push(other);
    Some(())
}

pub fn move_answer(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |index, _| once(history, index))?;
    let calls: Vec<usize> = told(history, &history.ledger[index]).collect();
    for call in calls {
        if let Seen::Answered { lsn, .. } = &mut history.calls[call].seen {
            *lsn += 1;
        }
    }
    Some(())
}

pub fn misreport(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |_, entry| told(history, entry).count() == 1)?;
    let call = told(history, &history.ledger[index]).next()?;
    misreport_call(&mut history.calls[call])
}

pub fn misreport_call(call: &mut Call) -> Option<()> {
    if let Seen::Answered { answer, .. } = &mut call.seen {
        *answer = match answer {
            Answer::Created => Answer::Confirmed,
            _ => Answer::Created,
        };
    }
    Some(())
}

pub fn forget_calls(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |index, _| once(history, index))?;
    let entry = history.ledger[index].clone();
    history.calls.retain(|call| !is_of(call, &entry));
    Some(())
}

pub fn deny_calls(history: &mut History, dice: &mut Dice) -> Option<()> {
    let index = choose(history, dice, |index, _| once(history, index))?;
    let entry = history.ledger[index].clone();
    for call in history.calls.iter_mut().filter(|call| is_of(call, &entry)) {
        call.seen = Seen::Unwritten {
            at_ns: u64::MAX,
            rule: Some(Rule::OperationTableFull),
        };
    }
    Some(())
}

pub fn invent_conflict(history: &mut History, _: &mut Dice) -> Option<()> {
    let end = history.ledger.last()?.clone();
    let mut call = history.calls.first()?.clone();
    let rule = Rule::OperationConflict;
    call.operation_id = token("unheard-of");
    call.seen = Seen::Answered {
        at_ns: u64::MAX,
        lsn: end.lsn + 1,
        answer: Answer::refused(rule),
    };
    history.ledger.push(Entry {
        lsn: end.lsn + 1,
        index: 0,
        tenant: call.tenant.clone(),
        slot: end.slot,
        fact: Fact::Refused {
            operation_id: call.operation_id.clone(),
            rule,
        },
    });
    history.calls.push(call);
    Some(())
}

/// The latest call of an id that was executed again is told the first outcome.
pub fn repeat_old(history: &mut History, _: &mut Dice) -> Option<()> {
    let again = history.ledger.iter().find_map(|new| {
        let mut old = history.ledger.iter();
        let old =
            old.find(|old| old.lsn < new.lsn && old.ask() == new.ask() && id_of(old) == id_of(new));
        Some((old.filter(|old| old.ask().is_some())?, new))
    });
    let (old, new) = again?;
    let done = told(history, new).next()?;
    let begin = history.calls[done].ended_ns()? + 1;
    let late = Call {
        invoked_ns: begin,
        seen: Seen::Answered {
            at_ns: begin + 1,
            lsn: old.lsn,
            answer: old.answer()?,
        },
        ..history.calls[done].clone()
    };
    // The two outcomes of one id may be the same; what is wrong is which of them was told.
    history.calls.push(late);
    Some(())
}
