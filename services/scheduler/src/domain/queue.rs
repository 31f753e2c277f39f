//! The queue: by priority, then by arrival. One that does not fit does not block those behind it.

use super::{Phase, Scheduler, best_fit};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{AllocationNo, AllocationSpec, Event, GpuRequest, WaitingReason};

type Key = (Reverse<i32>, AllocationNo);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queue {
    /// Never tried.
    fresh: BTreeSet<Key>,
    /// Tried in vain.
    waiting: BTreeSet<Key>,
    /// Nothing has changed for the better since all that wait were tried. A hint for speed and no fact: after a restart
    /// everything is tried once more.
    #[serde(skip)]
    settled: Settled,
}

/// Equal to any other, because it is no part of what the ledger says.
#[derive(Debug, Clone, Copy, Default, Eq)]
struct Settled(bool);

impl PartialEq for Settled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

fn key(allocation: AllocationNo, spec: &AllocationSpec) -> Key {
    (Reverse(spec.priority), allocation)
}

impl Queue {
    pub fn len(&self) -> usize {
        self.fresh.len() + self.waiting.len()
    }

    pub fn add_fresh(&mut self, allocation: AllocationNo, spec: &AllocationSpec) {
        self.fresh.insert(key(allocation, spec));
    }

    pub fn keep_waiting(&mut self, allocation: AllocationNo, spec: &AllocationSpec) {
        let key = key(allocation, spec);
        self.fresh.remove(&key);
        self.waiting.insert(key);
    }

    pub fn remove(&mut self, allocation: AllocationNo, spec: &AllocationSpec) {
        let key = key(allocation, spec);
        self.fresh.remove(&key);
        self.waiting.remove(&key);
    }

    /// Room or nodes have changed: whatever waits is worth another try.
    pub fn unsettle(&mut self) {
        self.settled = Settled(false);
    }

    /// Who is to be tried now, in order.
    fn to_try(&self) -> Vec<Key> {
        if self.settled.0 {
            self.fresh.iter().copied().collect()
        } else {
            self.fresh.union(&self.waiting).copied().collect()
        }
    }
}

/// What makes two requests fail for the same reason.
type Shape = (u64, u64, Option<GpuRequest>);

/// Tries whoever may fit now. Room only shrinks within one pass, so a shape that failed is not tried again.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    let mut failed: BTreeMap<Shape, WaitingReason> = BTreeMap::new();
    for (_, allocation) in state.queue.to_try() {
        if draft.full() {
            return;
        }
        let Some(live) = state.live.get(&allocation) else {
            continue;
        };
        let Phase::Queued(waiting) = live.phase else {
            continue;
        };
        let spec = &live.spec;
        let shape = (spec.cpu_milli, spec.memory_bytes, spec.gpu.clone());
        let outcome = match failed.get(&shape) {
            Some(reason) => Err(*reason),
            None => best_fit(&state.nodes, spec),
        };
        match outcome {
            Ok(placement) => draft.emit(
                state,
                Event::AllocationPlaced {
                    allocation,
                    node: placement.node,
                    incarnation: placement.incarnation,
                    gpus: placement.gpus,
                },
            ),
            Err(reason) => {
                failed.insert(shape, reason);
                if waiting != Some(reason) {
                    draft.emit(state, Event::AllocationWaiting { allocation, reason });
                }
            }
        }
    }
    state.queue.settled = Settled(true);
}
