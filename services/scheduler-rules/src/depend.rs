//! Dependencies: what starts only after others have ended.

use super::{
    Scheduler,
    allocation::{Allocations, Phase},
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::fact::AllocationEnded;
use vocab::{AllocationNo, Dependency, EndCause, EventNo};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependencies {
    /// What each still waits for.
    on: BTreeMap<AllocationNo, BTreeSet<AllocationNo>>,
    /// Who waits for it, and whether it has to finish. One of them is taken out without a look at the others.
    dependents: BTreeMap<AllocationNo, BTreeMap<AllocationNo, bool>>,
    /// Those that finished and that others can still be asked to start after.
    finished: BTreeSet<AllocationNo>,
    /// The same, oldest end first, by the event that ended them.
    finished_by: VecDeque<(EventNo, AllocationNo)>,
    /// What they depend on has ended otherwise than it had to.
    doomed: BTreeSet<AllocationNo>,
}

impl Dependencies {
    /// What it is to start after has ended where it is not live: admission lets in nothing else. Whether it has finished is
    /// remembered for as long as admission knows it, so that one that is not remembered has not.
    pub fn depend(&mut self, no: AllocationNo, on: &[Dependency], allocations: &Allocations) {
        for dependency in on {
            let other = dependency.allocation;
            if allocations.contains(&other) && other != no {
                let dependents = self.dependents.entry(other).or_default();
                dependents.insert(no, dependency.success);
                self.on.entry(no).or_default().insert(other);
            } else if dependency.success && !self.finished.contains(&other) {
                self.doomed.insert(no);
            }
        }
    }

    pub fn awaits_others(&self, no: AllocationNo) -> bool {
        self.on.contains_key(&no)
    }

    /// It has ended; `success` when it finished. Those that wait for nobody any more.
    fn ended(&mut self, no: AllocationNo, success: bool) -> Vec<AllocationNo> {
        self.doomed.remove(&no);
        for other in self.on.remove(&no).into_iter().flatten() {
            if let Some(dependents) = self.dependents.get_mut(&other) {
                dependents.remove(&no);
            }
        }
        let mut free = Vec::new();
        for (dependent, wants_success) in self.dependents.remove(&no).into_iter().flatten() {
            if wants_success && !success {
                self.doomed.insert(dependent);
                continue;
            }
            if let Some(on) = self.on.get_mut(&dependent) {
                on.remove(&no);
                if on.is_empty() {
                    self.on.remove(&dependent);
                    free.push(dependent);
                }
            }
        }
        free
    }

    /// It finished, by the event with this number.
    pub fn finished(&mut self, by: EventNo, no: AllocationNo) {
        self.finished.insert(no);
        self.finished_by.push_back((by, no));
    }

    /// How many wait for it.
    #[cfg(test)]
    pub fn dependents_of(&self, no: AllocationNo) -> usize {
        self.dependents.get(&no).map_or(0, BTreeMap::len)
    }

    /// Nobody can be asked any more to start after what ended by these events.
    pub fn forget(&mut self, through: EventNo) {
        let due = |next: &mut (EventNo, AllocationNo)| next.0 <= through;
        while let Some((_, no)) = self.finished_by.pop_front_if(due) {
            self.finished.remove(&no);
        }
    }
}

impl Scheduler {
    /// `no` has ended; `success` when it finished.
    pub(super) fn release_dependents(&mut self, no: AllocationNo, success: bool) {
        for dependent in self.dependencies.ended(no, success) {
            let live = self.allocations.get(&dependent);
            if live.is_some_and(|live| live.phase == Phase::AwaitingOthers) {
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
        let ended = AllocationEnded {
            allocation,
            cause: EndCause::DependencyFailed,
            at: draft.now,
            exit: None,
        };
        draft.emit(state, ended);
    }
}
