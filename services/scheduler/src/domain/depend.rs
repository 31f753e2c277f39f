//! Dependencies: what starts only after others have ended.

use super::{Scheduler, allocation::Phase};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, Dependency, EndCause, Event};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependencies {
    /// What each still waits for.
    on: BTreeMap<AllocationNo, BTreeSet<AllocationNo>>,
    /// Who waits for it, and whether it has to finish.
    dependents: BTreeMap<AllocationNo, Vec<(AllocationNo, bool)>>,
    /// The latest that ended without having finished.
    failed: BTreeSet<AllocationNo>,
    /// What they depend on has ended otherwise than it had to.
    doomed: BTreeSet<AllocationNo>,
}

/// Ends that are remembered for those who ask to start after them. One that is older counts as finished.
const FAILED_MAX: usize = 65_536;

impl Scheduler {
    pub(super) fn depend(&mut self, no: AllocationNo, on: &[Dependency]) {
        for dependency in on {
            let other = dependency.allocation;
            if self.live.contains_key(&other) && other != no {
                let dependents = self.dependencies.dependents.entry(other).or_default();
                dependents.push((no, dependency.success));
                self.dependencies.on.entry(no).or_default().insert(other);
            } else if dependency.success && self.dependencies.failed.contains(&other) {
                self.dependencies.doomed.insert(no);
            }
        }
    }

    pub(super) fn awaits_others(&self, no: AllocationNo) -> bool {
        self.dependencies.on.contains_key(&no)
    }

    /// `no` has ended; `success` when it finished.
    pub(super) fn release_dependents(&mut self, no: AllocationNo, success: bool) {
        let known = &mut self.dependencies;
        known.doomed.remove(&no);
        for other in known.on.remove(&no).into_iter().flatten() {
            if let Some(dependents) = known.dependents.get_mut(&other) {
                dependents.retain(|(dependent, _)| *dependent != no);
            }
        }
        if !success {
            known.failed.insert(no);
            if known.failed.len() > FAILED_MAX {
                known.failed.pop_first();
            }
        }
        let mut free = Vec::new();
        for (dependent, wants_success) in known.dependents.remove(&no).into_iter().flatten() {
            if wants_success && !success {
                known.doomed.insert(dependent);
                continue;
            }
            if let Some(on) = known.on.get_mut(&dependent) {
                on.remove(&no);
                if on.is_empty() {
                    known.on.remove(&dependent);
                    free.push(dependent);
                }
            }
        }
        for dependent in free {
            let waits = |phase: &Phase| *phase == Phase::AwaitingOthers;
            if self
                .live
                .get(&dependent)
                .is_some_and(|live| waits(&live.phase))
            {
                self.queue(dependent);
            }
        }
    }
}

/// Ends those that can never start.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.dependencies.doomed.first().copied() {
        if draft.full() {
            return;
        }
        let ended = Event::AllocationEnded {
            allocation,
            cause: EndCause::DependencyFailed,
            at: draft.now,
        };
        draft.emit(state, ended);
    }
}
