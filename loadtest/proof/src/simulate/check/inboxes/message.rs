//! Messages at ingress, and what can be read of them.

use super::super::{decode, is_token};
use prost::Message;
use schemas::v1::{self, request::Verb};
use std::rc::Rc;

/// A message at ingress, as the world published it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub tenant: String,
    /// The operator, where it is one with a name.
    pub by: Option<String>,
    pub payload: Vec<u8>,
    pub reply_to: Option<String>,
    /// One, or those of a batch or an array.
    pub operations: Vec<Asked>,
}

/// One operation, as it would be a message of its own.
#[derive(Debug, Clone)]
pub struct Asked {
    pub payload: Vec<u8>,
    pub expect: Expect,
}

/// What the world knows of an operation that it made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is wrong with the request itself.
    Sound,
    /// The rule, by its number, that it breaks when its verb is looked at.
    Breaks(i32),
    /// The rule that reading it breaks.
    Unreadable(i32),
    /// The same, before its operation id was read.
    Nameless(i32),
}

/// Somebody was told that an operation was refused, and nothing was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnedAway {
    pub tenant: String,
    pub operation_id: Option<String>,
    pub reply_to: String,
    pub rule: i32,
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The number of the operation whose outcome it is to get.
    Recorded(u64),
    /// Refused without a record; whether the asker was told, which is best effort.
    Turned { rule: i32, told: bool },
}

/// An operation that was decided.
#[derive(Debug)]
pub struct Decided {
    pub ask: Rc<Ask>,
    pub operation_id: Option<String>,
    pub answer: Answer,
}

/// What can be read of an operation.
pub struct Read {
    pub id: Option<String>,
    pub verb: Option<Verb>,
    /// What the operation id stands for: all but the slot.
    pub content: Vec<u8>,
}

impl Read {
    pub fn of(asked: &Asked) -> Self {
        let nameless = matches!(asked.expect, Expect::Nameless(_));
        let request: Option<v1::Request> = decode(&asked.payload);
        let id = request.as_ref().map(|r| r.operation_id.clone());
        Self {
            id: id.filter(|id| is_token(id) && !nameless),
            content: request
                .as_ref()
                .and_then(without_slot)
                .unwrap_or_else(|| asked.payload.clone()),
            verb: request.and_then(|request| request.verb),
        }
    }
}

/// The slot in a request about named resources.
fn slot_mut(verb: &mut Verb) -> Option<&mut Option<u64>> {
    Some(match verb {
        Verb::CreateResource(m) => &mut m.slot,
        Verb::Acquire(m) => &mut m.slot,
        Verb::AcquireBundle(m) => &mut m.slot,
        Verb::Confirm(m) => &mut m.slot,
        Verb::Release(m) => &mut m.slot,
        Verb::Revoke(m) => &mut m.slot,
        Verb::Reclaim(m) => &mut m.slot,
        _ => return None,
    })
}

/// The slot that a request about named resources says; none for other requests.
pub fn slot_of(verb: &Verb) -> Option<Option<u64>> {
    slot_mut(&mut verb.clone()).map(|slot| *slot)
}

fn without_slot(request: &v1::Request) -> Option<Vec<u8>> {
    let mut content = request.clone();
    slot_mut(content.verb.as_mut()?)?.take()?;
    Some(content.encode_to_vec())
}
