//! A rule that does not hold, and between whom.

use super::{Call, Decision, Entry, Fact, Found, Read, Seen};
use std::fmt;

/// The rule that is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The history itself: something ended before it began.
    #[error("it ended before it was invoked")]
    TimeBackwards,
    #[error("the ledger's entries are not in the ledger's order")]
    LedgerOrder,
    #[error("one operation, two outcomes")]
    TwoOutcomes,
    #[error("one operation was executed twice within its window")]
    DoubleExecution,
    #[error("an operation id was executed with other content within its window")]
    IdReused,
    #[error("answered with the outcome of other content, which is a conflict")]
    OutcomeOfOtherContent,
    #[error("a conflict without an operation that it is in conflict with")]
    ConflictWithNothing,
    #[error("an acknowledged answer is not on the ledger")]
    LostWrite,
    #[error("the answer is not the recorded one")]
    AnswerNotRecorded,
    #[error("recorded, but no client ever asked for it")]
    NeverInvoked,
    #[error("definitely not taken, but on the ledger")]
    TraceOfUnwritten,
    #[error("it was answered before the other was invoked, but stands behind it")]
    RealTime,
    #[error("a read does not see what was answered before it began")]
    StaleRead,
    #[error(
        "the answer of an operation whose id was executed anew and answered before the call began"
    )]
    StaleRepeat,
    #[error("a lease's number was issued before")]
    NumberReused,
    #[error("a fencing token does not grow; expected {expected:?}")]
    FencingTokenReused { expected: Decision },
    #[error("replayed in the ledger's order it is {expected:?}")]
    NotSerial { expected: Decision },
    #[error("it may not expire there, or not so")]
    WrongExpiry,
    #[error("a read saw what was not there; expected {expected:?}")]
    NotWhatWasThere { expected: Found },
}

impl Broken {
    /// The rule's name, without particulars.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TimeBackwards => "time_backwards",
            Self::LedgerOrder => "ledger_order",
            Self::TwoOutcomes => "two_outcomes",
            Self::DoubleExecution => "double_execution",
            Self::IdReused => "id_reused",
            Self::OutcomeOfOtherContent => "outcome_of_other_content",
            Self::ConflictWithNothing => "conflict_with_nothing",
            Self::LostWrite => "lost_write",
            Self::AnswerNotRecorded => "answer_not_recorded",
            Self::NeverInvoked => "never_invoked",
            Self::TraceOfUnwritten => "trace_of_unwritten",
            Self::RealTime => "real_time",
            Self::StaleRead => "stale_read",
            Self::StaleRepeat => "stale_repeat",
            Self::NumberReused => "number_reused",
            Self::FencingTokenReused { .. } => "fencing_token_reused",
            Self::NotSerial { .. } => "not_serial",
            Self::WrongExpiry => "wrong_expiry",
            Self::NotWhatWasThere { .. } => "not_what_was_there",
        }
    }
}

/// Who takes part in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    Call(Call),
    Read(Read),
    Entry(Entry),
}

/// The first rule found broken; the offender comes first, then what it does not agree with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub broken: Broken,
    pub parties: Vec<Party>,
}

impl std::error::Error for Violation {}

impl Violation {
    pub fn new(broken: Broken, parties: impl IntoIterator<Item = Party>) -> Self {
        Self {
            broken,
            parties: parties.into_iter().collect(),
        }
    }
}

impl From<&Call> for Party {
    fn from(call: &Call) -> Self {
        Self::Call(call.clone())
    }
}

impl From<&Read> for Party {
    fn from(read: &Read) -> Self {
        Self::Read(read.clone())
    }
}

impl From<&Entry> for Party {
    fn from(entry: &Entry) -> Self {
        Self::Entry(entry.clone())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.broken.name(), self.broken)?;
        self.parties
            .iter()
            .try_for_each(|party| write!(f, "\n  {party}"))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => write_call(f, call),
            Self::Read(read) => write!(
                f,
                "read of {} by {}/{} invoked {} ns, answered {} ns, at lsn {} slot {}: {:?}",
                read.lease,
                read.tenant,
                read.client,
                read.invoked_ns,
                read.answered_ns,
                read.lsn,
                read.slot,
                read.found
            ),
            Self::Entry(entry) => write_entry(f, entry),
        }
    }
}

fn write_call(f: &mut fmt::Formatter<'_>, call: &Call) -> fmt::Result {
    let (tenant, client, id) = (&call.tenant, &call.client, &call.operation_id);
    let invoked_ns = call.invoked_ns;
    write!(
        f,
        "call {id} by {tenant}/{client} invoked {invoked_ns} ns, {:?}: ",
        call.ask
    )?;
    match &call.seen {
        Seen::Answered { at_ns, lsn, answer } => {
            write!(f, "answered {at_ns} ns, at lsn {lsn}: {answer:?}")
        }
        Seen::Unwritten { at_ns, rule } => write!(f, "not taken {at_ns} ns: {rule:?}"),
        Seen::Nothing => f.write_str("no answer"),
    }
}

fn write_entry(f: &mut fmt::Formatter<'_>, entry: &Entry) -> fmt::Result {
    let (lsn, index, tenant, slot) = (entry.lsn, entry.index, &entry.tenant, entry.slot);
    write!(f, "ledger {lsn}.{index} of {tenant} at slot {slot}: ")?;
    match &entry.fact {
        Fact::Decided {
            operation_id,
            ask,
            decision,
        } => write!(f, "{operation_id} {ask:?}: {decision:?}"),
        Fact::Refused { operation_id, rule } => write!(f, "{operation_id} refused: {rule:?}"),
        Fact::Expired {
            lease,
            fencing_token,
            ..
        } => write!(f, "{lease} expired, fencing token {fencing_token}"),
    }
}
