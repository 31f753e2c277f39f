//! Bounds of time: what was not placed in time ends, and a run that has gone on for as long as it may is stopped.

use super::Scheduler;
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::{AllocationEnded, AllocationStopping};
use vocab::sabotage::{self, Bug};
use vocab::{AllocationNo, EndCause, Millis, TimeBounds};

/// Of the allocations that have bounds. Each has one deadline at a time: its expiry until it is placed, then that of its run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    of: BTreeMap<AllocationNo, Deadline>,
    /// The same, the next one first.
    due: BTreeSet<(Millis, AllocationNo)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Deadline {
    next: Option<Millis>,
    /// 0: none.
    time_limit_ms: u64,
}

/// None if there is no such bound.
fn after(from: Millis, bound_ms: u64) -> Option<Millis> {
    (bound_ms > 0).then(|| Millis(from.0.saturating_add_unsigned(bound_ms)))
}

impl Deadlines {
    pub fn requested(&mut self, no: AllocationNo, bounds: TimeBounds, at: Millis) {
        if bounds == TimeBounds::default() {
            return;
        }
        let deadline = Deadline {
            next: None,
            time_limit_ms: bounds.time_limit_ms,
        };
        self.of.insert(no, deadline);
        let expiry = after(at, bounds.ttl_ms);
        self.set(no, expiry.filter(|_| !sabotage::armed(Bug::TtlIgnored)));
    }

    /// Its run began then, and is stopped when it has gone on for as long as it may.
    pub fn started(&mut self, no: AllocationNo, at: Millis) {
        let limit_ms = self.of.get(&no).map_or(0, |one| one.time_limit_ms);
        let limit = after(at, limit_ms);
        self.set(
            no,
            limit.filter(|_| !sabotage::armed(Bug::TimeLimitIgnored)),
        );
    }

    /// It was placed, or its run is being stopped, or is over.
    pub fn none(&mut self, no: AllocationNo) {
        self.set(no, None);
    }

    pub fn forget(&mut self, no: AllocationNo) {
        self.set(no, None);
        self.of.remove(&no);
    }

    fn set(&mut self, no: AllocationNo, next: Option<Millis>) {
        let Some(deadline) = self.of.get_mut(&no) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut deadline.next, next) {
            self.due.remove(&(before, no));
        }
        self.due.extend(next.map(|next| (next, no)));
    }

    pub fn first(&self) -> Option<(Millis, AllocationNo)> {
        self.due.first().copied()
    }
}

pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some((moment, allocation)) = state.deadlines.first() {
        if moment > draft.now || draft.full() {
            return;
        }
        let live = state.allocations.get(&allocation);
        match live.and_then(|live| live.binding()) {
            Some(_) => {
                let time_limit = true;
                let stopping = AllocationStopping {
                    allocation,
                    time_limit,
                };
                draft.emit(state, stopping);
            }
            None => {
                let ended = AllocationEnded {
                    allocation,
                    cause: EndCause::Expired,
                    at: draft.now,
                    exit: None,
                };
                draft.emit(state, ended);
            }
        }
    }
}
