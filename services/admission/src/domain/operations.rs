//! The operation table: an operation id with the same content has one outcome, within the retention window.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vocab::{
    At, EventNo, Millis, Operation, Rule, Slot, Token,
    sabotage::{self, Bug},
};

type Key = (Token, Token);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operations {
    by_id: BTreeMap<Key, Entry>,
    /// Oldest first.
    by_age: VecDeque<(Millis, EventNo, Key)>,
    forgotten: EventNo,
    /// Those whose window is counted in slots, by tenant: slot, number and id, oldest first.
    by_slot: BTreeMap<Token, VecDeque<(Slot, EventNo, Token)>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    digest: [u8; 16],
    original: EventNo,
    /// Where its window is counted in slots.
    slot: Option<Slot>,
}

/// An operation id that was seen within its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// With the same content; the number of the event that took it up.
    Repeated(EventNo),
    Conflicting,
}

/// Whether a refusal by this rule is recorded. What says nothing of the operation itself but that there is too much of
/// everything, or nobody who may ask, is not: the client is told, and nothing has happened.
pub fn is_recorded(rule: Rule) -> bool {
    !matches!(
        rule,
        Rule::OperationTableFull
            | Rule::AllocationTableFull
            | Rule::BacklogFull
            | Rule::RateLimited
            | Rule::TenantUnknown
            | Rule::SlotBackwards
            | Rule::SlotOverflow
    )
}

/// Whether a refusal by this rule is the operation's outcome for good. A conflict is another operation's.
pub fn is_kept(rule: Rule) -> bool {
    is_recorded(rule) && rule != Rule::OperationConflict
}

/// Live while `slot <= of + window`.
fn is_over(of: Slot, slot: Slot, window: Slot) -> bool {
    slot > of.saturating_add(window)
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

    /// What is known of an operation id that was seen before. In a later slot, what its window is over for is not known
    /// any more, though it is forgotten only once something is recorded in that slot.
    pub fn known(&self, operation: &Operation, later: Option<(Slot, Slot)>) -> Option<Known> {
        let entry = self.by_id.get(&key(operation)?)?;
        if let (Some(of), Some((slot, window))) = (entry.slot, later)
            && is_over(of, slot, window)
        {
            return None;
        }
        if sabotage::armed(Bug::DuplicateNotRecognised) {
            return None;
        }
        Some(match entry.digest == operation.digest {
            true => Known::Repeated(entry.original),
            false => Known::Conflicting,
        })
    }

    pub fn remember(&mut self, operation: &Operation, at: &At) {
        if let Some(key) = self.note(operation, at, None) {
            self.by_age.push_back((at.now, at.no, key));
        }
    }

    pub fn remember_by_slot(&mut self, operation: &Operation, at: &At, slot: Slot) {
        if let Some((tenant, id)) = self.note(operation, at, Some(slot)) {
            let queue = self.by_slot.entry(tenant).or_default();
            queue.push_back((slot, at.no, id));
        }
    }

    fn note(&mut self, operation: &Operation, at: &At, slot: Option<Slot>) -> Option<Key> {
        let key = key(operation)?;
        let entry = Entry {
            digest: operation.digest,
            original: at.no,
            slot,
        };
        self.by_id.insert(key.clone(), entry);
        Some(key)
    }

    /// The newest operation whose window is over: live while `now <= at + window`.
    pub fn over(&self, now: Millis, window_ms: i64) -> Option<EventNo> {
        let over = |at: &Millis| now > at.plus(window_ms);
        let last = self.by_age.iter().take_while(|(at, ..)| over(at)).last();
        last.map(|(_, no, _)| *no)
    }

    /// The newest operation of the tenant whose window is over in `slot`, and how many are.
    pub fn over_by_slot(
        &self,
        tenant: &Token,
        (slot, window): (Slot, Slot),
    ) -> Option<(EventNo, u64)> {
        let queue = self.by_slot.get(tenant)?;
        let over = queue
            .iter()
            .take_while(|(of, ..)| is_over(*of, slot, window));
        over.fold(None, |found, (_, no, _)| {
            Some((*no, found.map_or(1, |(_, count)| count + 1)))
        })
    }

    pub fn forget(&mut self, through: EventNo) {
        while let Some((_, no, _)) = self.by_age.front() {
            if *no > through {
                break;
            }
            if let Some((_, no, key)) = self.by_age.pop_front() {
                self.drop_if_original(&key, no);
            }
        }
        self.forgotten = self.forgotten.max(through);
    }

    pub fn forget_by_slot(&mut self, tenant: &Token, through: EventNo) {
        let Some(mut queue) = self.by_slot.remove(tenant) else {
            return;
        };
        while queue.front().is_some_and(|(_, no, _)| *no <= through) {
            if let Some((_, no, id)) = queue.pop_front() {
                self.drop_if_original(&(tenant.clone(), id), no);
            }
        }
        if !queue.is_empty() {
            self.by_slot.insert(tenant.clone(), queue);
        }
    }

    fn drop_if_original(&mut self, key: &Key, no: EventNo) {
        if self.by_id.get(key).is_some_and(|e| e.original == no) {
            self.by_id.remove(key);
        }
    }
}
