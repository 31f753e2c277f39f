//! Which calls may have brought about what stands on the ledger.

use super::{
    Answer, Broken, Call, Entry, Party, Seen, Violation,
    ledger::{Book, between},
};
use vocab::Rule;

/// An entry with the calls that may have caused it.
#[derive(Debug)]
pub struct Caused<'a> {
    pub entry: &'a Entry,
    /// The first of them to be invoked; none: nobody has to ask for it.
    pub first_invoked: Option<&'a Call>,
    /// The first of them to be answered.
    pub first_answered: Option<&'a Call>,
}

/// Refusals that leave no trace.
const NEVER_RECORDED: [Rule; 5] = [
    Rule::RateLimited,
    Rule::CellFull,
    Rule::OperationTableFull,
    Rule::SlotBackwards,
    Rule::SlotOverflow,
];

impl<'a> Book<'a> {
    /// What stands on the ledger was asked for, in the ledger's order.
    pub fn causes(&self) -> Result<Vec<Caused<'a>>, Violation> {
        self.entries
            .iter()
            .map(|entry| self.caused(entry))
            .collect()
    }

    /// Clients are told the frame only, which may hold the same refusal twice: by then the first of them was decided.
    fn is_first_of_its_like(&self, entry: &Entry) -> bool {
        let id = entry.operation_id().map(|id| (&entry.tenant, id));
        let entries = id.map(|id| self.decided_of(id));
        let mut like = entries.into_iter().flatten();
        let first = like.find(|other| is_like(other, entry));
        first.is_none_or(|first| first.index == entry.index)
    }

    pub fn caused(&self, entry: &'a Entry) -> Result<Caused<'a>, Violation> {
        let Some(operation_id) = entry.operation_id() else {
            return Ok(Caused {
                entry,
                first_invoked: None,
                first_answered: None,
            });
        };
        let calls = self.calls_of((&entry.tenant, operation_id));
        let about: Vec<&'a Call> = calls
            .iter()
            .copied()
            .filter(|call| entry.is_about(&call.ask))
            .collect();
        let may_be = about.iter().copied().filter(|call| may_cause(call, entry));
        let first = self.is_first_of_its_like(entry);
        let here = |call: &&Call| first && was_told_of(call, entry);
        let answered = may_be.clone().filter(here);
        let first_answered = answered.min_by_key(|call| call.ended_ns());
        match may_be.min_by_key(|call| call.invoked_ns) {
            Some(call) if leaves_no_trace(entry) => {
                Err(between(Broken::TraceOfUnwritten, call, entry))
            }
            None => Err(without_cause(entry, &about)),
            first_invoked => Ok(Caused {
                entry,
                first_invoked,
                first_answered,
            }),
        }
    }
}

fn is_like(one: &Entry, other: &Entry) -> bool {
    one.lsn == other.lsn && one.answer() == other.answer()
}

/// A call that was answered from another position did not execute this too; but its message may have come twice, and the
/// second was refused.
fn may_cause(call: &Call, entry: &Entry) -> bool {
    match &call.seen {
        Seen::Answered { .. } => was_told_of(call, entry) || entry.ask().is_none(),
        Seen::Unwritten { .. } => false,
        Seen::Nothing => true,
    }
}

fn was_told_of(call: &Call, entry: &Entry) -> bool {
    let told = call.answered();
    told.is_some_and(|(_, lsn, answer)| lsn == entry.lsn && entry.answer() == Some(answer))
}

fn leaves_no_trace(entry: &Entry) -> bool {
    matches!(entry.answer(), Some(Answer::Refused { rule }) if NEVER_RECORDED.contains(&rule))
}

/// Nobody can have caused the entry: the calls about it were not taken, or caused another, or there are none.
fn without_cause(entry: &Entry, about: &[&Call]) -> Violation {
    let unwritten = |call: &&&Call| matches!(call.seen, Seen::Unwritten { .. });
    match (about.iter().find(unwritten), about.first()) {
        (Some(call), _) => between(Broken::TraceOfUnwritten, *call, entry),
        (None, Some(call)) => between(Broken::DoubleExecution, *call, entry),
        (None, None) => Violation::new(Broken::NeverInvoked, [Party::from(entry)]),
    }
}
