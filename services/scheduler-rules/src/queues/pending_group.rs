//! A pending group: what waits in one queue, asks for the same and may do the same to others, and so waits for the same reasons.

use super::QueueNo;
use crate::{
    class::{Amounts, SchedulingKeyNo},
    settings::PriorityNo,
};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{AllocationNo, Filter, Millis, PendingGroupNo, WaitingReason};

/// What is placed at once stands in its pending group by this; lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Falls with priority and, with aging, rises with the moment of the request.
    pub rank: i64,
    /// By the queue's order.
    pub order: i64,
    /// The allocation, or the first member of the gang.
    pub allocation: AllocationNo,
}

/// What makes allocations stand in one pending group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LineKey {
    pub queue: QueueNo,
    pub scheduling_key: SchedulingKeyNo,
    pub priority_class: Option<PriorityNo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingGroup {
    pub no: PendingGroupNo,
    pub key: LineKey,
    /// What one in the pending group asks for, all members of a gang together.
    pub asks: Amounts,
    pub waiting: BTreeSet<Key>,
    /// What was last said of it.
    pub said: Option<Said>,
    /// Why this pending group alone is passed over, until something changes. Tried again after a restart.
    #[serde(skip)]
    pub blocked: Scratch<Option<WaitingReason>>,
}

/// An explanation, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    pub reason: WaitingReason,
    pub counts: Vec<(Filter, u32)>,
    pub at: Millis,
}

impl PendingGroup {
    pub fn new(no: PendingGroupNo, key: LineKey, asks: Amounts) -> Self {
        Self {
            no,
            key,
            asks,
            waiting: BTreeSet::new(),
            said: None,
            blocked: Scratch::default(),
        }
    }

    pub fn head(&self) -> Option<Key> {
        self.waiting.first().copied()
    }
}
