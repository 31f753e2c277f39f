//! What is due when: the granted ones by deadline, the ended ones by the slot that they are remembered through.

use std::collections::{BTreeMap, BTreeSet};
use vocab::{LeaseNo, Slot};

/// Granted ones by deadline. They leave it when they are confirmed or released, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expirations {
    by_deadline: BTreeMap<Slot, BTreeSet<LeaseNo>>,
}

impl Expirations {
    pub fn insert(&mut self, deadline: Slot, no: LeaseNo) {
        self.by_deadline.entry(deadline).or_default().insert(no);
    }

    pub fn remove(&mut self, deadline: Slot, no: LeaseNo) {
        if let Some(at_deadline) = self.by_deadline.get_mut(&deadline) {
            at_deadline.remove(&no);
            if at_deadline.is_empty() {
                self.by_deadline.remove(&deadline);
            }
        }
    }

    pub fn count(&self, deadline: Slot) -> usize {
        self.by_deadline.get(&deadline).map_or(0, BTreeSet::len)
    }

    pub fn first(&self) -> Option<Slot> {
        self.by_deadline
            .first_key_value()
            .map(|(deadline, _)| *deadline)
    }

    /// By deadline, then by number.
    pub fn through(&self, slot: Slot) -> impl Iterator<Item = (LeaseNo, Slot)> {
        let due = self.by_deadline.range(..=slot);
        due.flat_map(|(deadline, numbers)| numbers.iter().map(|no| (*no, *deadline)))
    }
}

/// Ended ones by the last slot at which they are remembered. They stay until then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retirements {
    by_slot: BTreeMap<Slot, Batch>,
    count: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Batch {
    numbers: Vec<LeaseNo>,
    highest: LeaseNo,
}

impl Retirements {
    pub fn insert(&mut self, retire_after: Slot, no: LeaseNo) {
        let batch = self.by_slot.entry(retire_after).or_default();
        batch.numbers.push(no);
        batch.highest = batch.highest.max(no);
        self.count += 1;
    }

    /// All of them, due or not.
    pub fn len(&self) -> usize {
        self.count
    }

    /// How many are over at `slot`. Looks at each slot that is over, and at no lease.
    pub fn count_before(&self, slot: Slot) -> usize {
        let over = self.by_slot.range(..slot);
        over.map(|(_, batch)| batch.numbers.len()).sum()
    }

    /// The highest of those that are over at `slot`.
    pub fn highest_before(&self, slot: Slot) -> Option<LeaseNo> {
        let over = self.by_slot.range(..slot);
        over.map(|(_, batch)| batch.highest).max()
    }

    /// Takes out those of the first slot that is over at `slot`.
    pub fn pop_before(&mut self, slot: Slot) -> Option<Vec<LeaseNo>> {
        let first = self
            .by_slot
            .first_entry()
            .filter(|first| *first.key() < slot)?;
        let batch = first.remove();
        self.count -= batch.numbers.len();
        Some(batch.numbers)
    }
}
