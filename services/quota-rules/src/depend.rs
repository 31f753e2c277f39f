//! Dependencies: what starts only after others have ended asks for quota only then. Before that it could not use it, and
//! they may need it.

use super::{
    Quota,
    claim::{Place, Stage},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, Dependency, Refusal, Rule};

/// Both ways; who waits for nobody is in neither.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dependencies {
    on: BTreeMap<AllocationNo, BTreeSet<AllocationNo>>,
    dependents: BTreeMap<AllocationNo, BTreeSet<AllocationNo>>,
}

impl Dependencies {
    pub fn awaits_others(&self, allocation: AllocationNo) -> bool {
        self.on.contains_key(&allocation)
    }

    fn add(&mut self, allocation: AllocationNo, other: AllocationNo) {
        self.on.entry(allocation).or_default().insert(other);
        self.dependents.entry(other).or_default().insert(allocation);
    }

    /// It is gone: those that waited for it alone, and it waits for nobody.
    fn remove(&mut self, allocation: AllocationNo) -> Vec<AllocationNo> {
        for other in self.on.remove(&allocation).into_iter().flatten() {
            if let Some(dependents) = self.dependents.get_mut(&other) {
                dependents.remove(&allocation);
                if dependents.is_empty() {
                    self.dependents.remove(&other);
                }
            }
        }
        let mut free = Vec::new();
        for dependent in self.dependents.remove(&allocation).into_iter().flatten() {
            if let Some(on) = self.on.get_mut(&dependent) {
                on.remove(&allocation);
                if on.is_empty() {
                    self.on.remove(&dependent);
                    free.push(dependent);
                }
            }
        }
        free
    }
}

impl Quota {
    /// What has ended, and what is not known, is not waited for.
    pub(super) fn depend(&mut self, allocation: AllocationNo, on: &[Dependency]) {
        for other in on.iter().map(|dependency| dependency.allocation) {
            if other != allocation && self.claims.contains_key(&other) {
                self.dependencies.add(allocation, other);
            }
        }
    }

    /// Those that waited for it alone ask now.
    pub(super) fn release_dependents(&mut self, allocation: AllocationNo) {
        for dependent in self.dependencies.remove(allocation) {
            if let Some(claim) = self.claims.get_mut(&dependent)
                && claim.place() == Place::Others
            {
                claim.stage = Stage::Asked;
                self.asked.insert(dependent);
            }
        }
    }
}

pub(super) fn pending() -> Refusal {
    Refusal::new(Rule::DependencyPending, "dependencies")
}
