//! What each queue holds and has waiting, and what is on each node, counted as allocations come and go, so that a question about
//! queues or nodes looks at no allocation.

use super::{AllocationRow, AllocationState, Live};
use std::collections::{BTreeMap, btree_map::Entry};
use vocab::{AllocationNo, Numbered, PendingGroupNo, ResourceKind, Token, WaitingReason};

/// Those that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountKey {
    Queue {
        queue: Token,
        what: Counted,
    },
    /// What a node has to hold, and whether that was told to stop.
    Node {
        node: Token,
        stopping: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// On a node, and not being preempted.
    Held,
    /// For a place or for quota.
    Waiting {
        pending_group: Option<PendingGroupNo>,
        /// What was said of the allocation itself.
        reason: Option<WaitingReason>,
    },
}

/// So many allocations, and what they ask for together, in the order of [`ResourceKind::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub allocations: u64,
    pub amounts: [u128; ResourceKind::ALL.len()],
}

impl Count {
    fn change(&mut self, row: &AllocationRow, more: bool) {
        let spec = row.spec.common();
        self.allocations = changed(self.allocations.into(), 1, more) as u64;
        for (sum, kind) in self.amounts.iter_mut().zip(ResourceKind::ALL) {
            *sum = changed(*sum, spec.amount(kind), more);
        }
    }
}

/// What is taken away was added before, and there are far less than 2^64 allocations.
fn changed(sum: u128, by: u64, more: bool) -> u128 {
    if more {
        sum.saturating_add(by.into())
    } else {
        sum.saturating_sub(by.into())
    }
}

/// The row of a count; without allocations there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountRow {
    pub key: CountKey,
    pub count: Count,
}

/// All counts, and what the batch has changed of them. They follow from the allocations that are live, so no snapshot has
/// them.
#[derive(Debug, Default)]
pub(super) struct LiveCounts {
    counts: BTreeMap<CountKey, Count>,
    /// As they were before the batch.
    touched: BTreeMap<CountKey, Count>,
}

impl LiveCounts {
    /// Between two batches.
    pub fn of(live: &Numbered<AllocationNo, Live>) -> Self {
        let mut all = Self::default();
        for (_, live) in live.iter() {
            all.change(&live.row, true);
        }
        all.touched.clear();
        all
    }

    /// The allocation is as the row says from now on.
    pub fn come(&mut self, row: &AllocationRow) {
        self.change(row, true);
    }

    /// The allocation was as the row says until now.
    pub fn go(&mut self, row: &AllocationRow) {
        self.change(row, false);
    }

    fn change(&mut self, row: &AllocationRow, more: bool) {
        let queue = counted(&row.state).map(|what| CountKey::Queue {
            queue: row.queue().clone(),
            what,
        });
        let node = match &row.state {
            AllocationState::Held { place, stop } => Some(CountKey::Node {
                node: place.node.clone(),
                stopping: stop.is_some(),
            }),
            _ => None,
        };
        for key in queue.into_iter().chain(node) {
            self.change_one(key, row, more);
        }
    }

    fn change_one(&mut self, key: CountKey, row: &AllocationRow, more: bool) {
        let mut count = match self.counts.entry(key) {
            Entry::Occupied(found) => found,
            Entry::Vacant(none) => none.insert_entry(Count::default()),
        };
        if !self.touched.contains_key(count.key()) {
            self.touched.insert(count.key().clone(), *count.get());
        }
        count.get_mut().change(row, more);
        if count.get().allocations == 0 {
            count.remove();
        }
    }

    /// What the batch has changed.
    pub fn finish(&mut self) -> impl Iterator<Item = CountRow> {
        let touched = std::mem::take(&mut self.touched).into_iter();
        touched.filter_map(|(key, before)| {
            let count = self.counts.get(&key).copied().unwrap_or_default();
            (count != before).then_some(CountRow { key, count })
        })
    }
}

/// As what an allocation is counted in its queue.
fn counted(state: &AllocationState) -> Option<Counted> {
    match state {
        AllocationState::Queued {
            reason,
            pending_group,
            ..
        } => Some(Counted::Waiting {
            pending_group: *pending_group,
            reason: *reason,
        }),
        AllocationState::Nominated { .. } => Some(Counted::Waiting {
            pending_group: None,
            reason: Some(WaitingReason::Nominated),
        }),
        AllocationState::Requested {
            refusal: Some(refusal),
        } => Some(Counted::Waiting {
            pending_group: None,
            reason: Some(refusal.waiting_reason()),
        }),
        AllocationState::Held { .. } if state.preemption().is_none() => Some(Counted::Held),
        AllocationState::Held { .. }
        | AllocationState::Requested { refusal: None }
        | AllocationState::Ended { .. }
        | AllocationState::Denied { .. } => None,
    }
}
