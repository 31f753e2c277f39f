//! The operation tables, one for each tenant: an operation id with the same content has one outcome, within the retention
//! window. What one tenant has in its table takes no room from another.

use super::room::{self, Of, Room};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vocab::{
    At, EventNo, Millis, Operation, Rule, Slot, Token,
    sabotage::{self, Bug},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operations {
    /// By tenant, without those that have none, and by id.
    tables: BTreeMap<Token, BTreeMap<Token, Entry>>,
    /// Tenant and id, oldest first.
    by_age: VecDeque<(Millis, EventNo, Token, Token)>,
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

/// Operations of one tenant whose window is over in a slot: the newest, how many are in its table, and the room that they take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OverBySlot {
    pub through: Option<EventNo>,
    pub count: u64,
    pub bytes: u64,
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
            | Rule::CellFull
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

impl Operations {
    /// How many of the tenant are remembered.
    pub fn of(&self, tenant: &Token) -> u64 {
        self.tables
            .get(tenant)
            .map_or(0, |table| table.len() as u64)
    }

    /// All operations up to this one are forgotten.
    pub fn forgotten(&self) -> EventNo {
        self.forgotten
    }

    /// The event that took up the tenant's operation of this id.
    pub fn original(&self, tenant: &Token, id: &str) -> Option<EventNo> {
        Some(self.tables.get(tenant)?.get(id)?.original)
    }

    /// What is known of an operation id that was seen before. In a later slot, what its window is over for is not known
    /// any more, though it is forgotten only once something is recorded in that slot.
    pub fn known(&self, operation: &Operation, later: Option<(Slot, Slot)>) -> Option<Known> {
        let table = self.tables.get(&operation.tenant)?;
        let entry = table.get(operation.operation_id.as_ref()?)?;
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

    pub fn remember(&mut self, operation: &Operation, at: &At, room: &mut Room) {
        if let Some((tenant, id)) = self.note(operation, at, None) {
            room.take(Of::Operations, &tenant, room::operation(&tenant, &id));
            self.by_age.push_back((at.now, at.no, tenant, id));
        }
    }

    pub fn remember_by_slot(
        &mut self,
        operation: &Operation,
        at: &At,
        slot: Slot,
        room: &mut Room,
    ) {
        if let Some((tenant, id)) = self.note(operation, at, Some(slot)) {
            room.take(Of::Operations, &tenant, room::operation(&tenant, &id));
            let queue = self.by_slot.entry(tenant).or_default();
            queue.push_back((slot, at.no, id));
        }
    }

    fn note(
        &mut self,
        operation: &Operation,
        at: &At,
        slot: Option<Slot>,
    ) -> Option<(Token, Token)> {
        let (tenant, id) = (operation.tenant.clone(), operation.operation_id.clone()?);
        let entry = Entry {
            digest: operation.digest,
            original: at.no,
            slot,
        };
        let table = self.tables.entry(tenant.clone()).or_default();
        table.insert(id.clone(), entry);
        Some((tenant, id))
    }

    /// The newest operation whose window is over: live while `now <= at + window`.
    pub fn over(&self, now: Millis, window_ms: i64) -> Option<EventNo> {
        let over = |at: &Millis| now > at.plus(window_ms);
        let last = self.by_age.iter().take_while(|(at, ..)| over(at)).last();
        last.map(|(_, no, ..)| *no)
    }

    /// The tenant's operations whose window is over in `slot`.
    pub fn over_by_slot(&self, tenant: &Token, (slot, window): (Slot, Slot)) -> OverBySlot {
        let queue = self.by_slot.get(tenant).into_iter().flatten();
        let over = queue.take_while(|(of, ..)| is_over(*of, slot, window));
        let table = self.tables.get(tenant);
        // A refusal in a later slot may have taken the place of one that is over.
        let stands = |id: &Token, no: &EventNo| {
            let entry = table.and_then(|table| table.get(id));
            entry.is_some_and(|entry| entry.original == *no)
        };
        over.fold(OverBySlot::default(), |found, (_, no, id)| OverBySlot {
            through: Some(*no),
            count: found.count + u64::from(stands(id, no)),
            bytes: found.bytes + room::operation(tenant, id),
        })
    }

    pub fn forget(&mut self, through: EventNo, room: &mut Room) {
        let due = |next: &mut (Millis, EventNo, Token, Token)| next.1 <= through;
        while let Some((_, no, tenant, id)) = self.by_age.pop_front_if(due) {
            room.give(Of::Operations, &tenant, room::operation(&tenant, &id));
            self.drop_if_original(&tenant, &id, no);
        }
        self.forgotten = self.forgotten.max(through);
    }

    pub fn forget_by_slot(&mut self, tenant: &Token, through: EventNo, room: &mut Room) {
        let Some(mut queue) = self.by_slot.remove(tenant) else {
            return;
        };
        let due = |next: &mut (Slot, EventNo, Token)| next.1 <= through;
        while let Some((_, no, id)) = queue.pop_front_if(due) {
            room.give(Of::Operations, tenant, room::operation(tenant, &id));
            self.drop_if_original(tenant, &id, no);
        }
        if !queue.is_empty() {
            self.by_slot.insert(tenant.clone(), queue);
        }
    }

    /// Takes the room of all that is remembered.
    #[cfg(test)]
    pub fn occupy(&self, room: &mut Room) {
        let by_slot = self.by_slot.iter();
        let by_slot = by_slot.flat_map(|(of, queue)| queue.iter().map(move |it| (of, &it.2)));
        let by_age = self.by_age.iter().map(|(.., tenant, id)| (tenant, id));
        for (tenant, id) in by_age.chain(by_slot) {
            room.take(Of::Operations, tenant, room::operation(tenant, id));
        }
    }

    fn drop_if_original(&mut self, tenant: &Token, id: &Token, no: EventNo) {
        let Some(table) = self.tables.get_mut(tenant) else {
            return;
        };
        if table.get(id).is_some_and(|entry| entry.original == no) {
            table.remove(id);
            if table.is_empty() {
                self.tables.remove(tenant);
            }
        }
    }
}
