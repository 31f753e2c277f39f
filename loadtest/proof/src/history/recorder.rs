//! Writes down what many clients see. It reads no clock: moments are nanoseconds since the start, of one monotonic clock.

use super::{Answer, Bounds, Call, Entry, History, Read, Seen};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vocab::{ResourceAsk, Rule, Token};

/// Shared by all tasks of a driver; a clone writes on the same tape.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Tape>>);

#[derive(Debug, Default)]
struct Tape {
    calls: Vec<Call>,
    reads: Vec<Read>,
}

/// A call that was invoked and waits for what comes of it. Forgotten, it stays without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallNo(usize);

/// Who sends what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub client: Token,
    pub tenant: Token,
    pub operation_id: Token,
    pub ask: ResourceAsk,
}

impl Recorder {
    /// Before the message is sent. Sending it again is another call.
    pub fn invoked(&self, sent: Sent, at_ns: u64) -> CallNo {
        let Sent {
            client,
            tenant,
            operation_id,
            ask,
        } = sent;
        let mut tape = self.tape();
        tape.calls.push(Call {
            client,
            tenant,
            operation_id,
            ask,
            invoked_ns: at_ns,
            seen: Seen::Nothing,
        });
        CallNo(tape.calls.len() - 1)
    }

    /// After an outcome with a position of the ledger has come.
    pub fn answered(&self, call: CallNo, at_ns: u64, lsn: u64, answer: Answer) {
        self.saw(call, Seen::Answered { at_ns, lsn, answer });
    }

    /// After a definite refusal without a position. Only what cannot have been stored: all else stays indefinite.
    pub fn unwritten(&self, call: CallNo, at_ns: u64, rule: Option<Rule>) {
        self.saw(call, Seen::Unwritten { at_ns, rule });
    }

    /// After a read has come back.
    pub fn read(&self, read: Read) {
        self.tape().reads.push(read);
    }

    /// All that was seen so far, beside what the ledger says.
    pub fn history(&self, bounds: Bounds, ledger: Vec<Entry>) -> History {
        let tape = self.tape();
        History {
            bounds,
            calls: tape.calls.clone(),
            reads: tape.reads.clone(),
            ledger,
        }
    }

    /// An answer that comes twice is kept twice, so that the second may not differ either.
    fn saw(&self, call: CallNo, seen: Seen) {
        let mut tape = self.tape();
        let Some(known) = tape.calls.get_mut(call.0) else {
            return;
        };
        if known.seen == Seen::Nothing {
            known.seen = seen;
        } else {
            let again = Call {
                seen,
                ..known.clone()
            };
            tape.calls.push(again);
        }
    }

    /// Nothing on the tape is ever left half written, so a poisoned lock is as good as any.
    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
