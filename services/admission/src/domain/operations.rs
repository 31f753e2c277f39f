//! The operation table: an operation id with the same content has one outcome, within the retention window.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vocab::{
    At, Event, EventNo, Millis, Operation, Refusal, Rule, Token,
    sabotage::{self, Bug},
};

type Key = (Token, Token);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operations {
    by_id: BTreeMap<Key, Entry>,
    /// Oldest first.
    by_age: VecDeque<(Millis, EventNo, Key)>,
    forgotten: EventNo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    digest: [u8; 16],
    original: EventNo,
}

/// Whether a refusal by this rule is the operation's outcome for good. What says nothing of the operation itself is not:
/// the same operation may be tried again.
pub fn is_kept(rule: Rule) -> bool {
    !matches!(
        rule,
        Rule::OperationConflict | Rule::OperationTableFull | Rule::TenantUnknown
    )
}

fn key(operation: &Operation) -> Option<Key> {
    let id = operation.operation_id.clone()?;
    Some((operation.tenant.clone(), id))
}

impl Operations {
    pub fn len(&self) -> u64 {
        self.by_id.len() as u64
    }

    /// All operations up to this one are forgotten.
    pub fn forgotten(&self) -> EventNo {
        self.forgotten
    }

    /// The event for an operation that was seen before.
    pub fn known(&self, operation: &Operation) -> Option<Event> {
        let entry = self.by_id.get(&key(operation)?)?;
        if sabotage::armed(Bug::DuplicateNotRecognised) {
            return None;
        }
        Some(if entry.digest == operation.digest {
            Event::OperationRepeated {
                tenant: operation.tenant.clone(),
                original: entry.original,
                reply_to: operation.reply_to.clone(),
            }
        } else {
            Event::OperationRefused {
                operation: operation.clone(),
                job_set: None,
                refusal: Refusal::new(Rule::OperationConflict, "operation_id"),
            }
        })
    }

    pub fn remember(&mut self, operation: &Operation, at: &At) {
        let Some(key) = key(operation) else {
            return;
        };
        let entry = Entry {
            digest: operation.digest,
            original: at.no,
        };
        self.by_id.insert(key.clone(), entry);
        self.by_age.push_back((at.now, at.no, key));
    }

    /// The newest operation whose window is over: live while `now <= at + window`.
    pub fn over(&self, now: Millis, window_ms: i64) -> Option<EventNo> {
        let over = |at: &Millis| now > at.plus(window_ms);
        let last = self.by_age.iter().take_while(|(at, ..)| over(at)).last();
        last.map(|(_, no, _)| *no)
    }

    pub fn forget(&mut self, through: EventNo) {
        while let Some((_, no, key)) = self.by_age.front() {
            if *no > through {
                break;
            }
            if self.by_id.get(key).is_some_and(|e| e.original == *no) {
                self.by_id.remove(key);
            }
            self.by_age.pop_front();
        }
        self.forgotten = self.forgotten.max(through);
    }
}
