//! Gangs: as many as must run are placed at once, or none.

use super::{Checker, Invariant, Place, Violation, fit::value_of};
use schemas::v1::event::Kind;
use std::collections::{BTreeMap, BTreeSet};

impl Checker {
    /// One frame is one moment. Only the first members are placed together: what follows one that runs comes alone.
    pub(super) fn gangs_come_whole(
        &self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
        held_before: &BTreeSet<u64>,
    ) -> Result<(), Violation> {
        let mut placed: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
        for (_, kind) in kinds {
            if let Kind::AllocationPlaced(e) = kind
                && let Some(a) = self.allocations.get(e.allocation)
                && let Some(gang) = &a.demand.gang
            {
                let key = (a.tenant.as_str(), gang.name.as_str());
                placed.entry(key).or_default().insert(e.allocation);
            }
        }
        let all: BTreeSet<u64> = placed_in(kinds).collect();
        self.all_are_near(frame, &all)?;
        for (key, members) in placed {
            let of_gang = |no: &u64| {
                let a = self.allocations.get(*no);
                a.is_some_and(|a| {
                    let name = a.demand.gang.as_ref().map(|gang| gang.name.as_str());
                    (a.tenant.as_str(), name) == (key.0, Some(key.1))
                })
            };
            let all: Vec<_> = self
                .allocations
                .iter()
                .filter(|(no, _)| of_gang(no))
                .collect();
            let Some(gang) = all.first().and_then(|(_, a)| a.demand.gang.as_ref()) else {
                continue;
            };
            // More than it has members: some are of a next gang of the same name, and which ones depends on who had left
            // when the others came.
            if all.len() as u64 > gang.size {
                continue;
            }
            if !gang.label.is_empty() {
                let values: BTreeSet<Option<String>> = all
                    .iter()
                    .filter_map(|(_, a)| a.hold.as_ref())
                    .filter(|hold| hold.stop.is_none())
                    .map(|hold| {
                        let capacity = self.nodes.capacity(&hold.node, hold.incarnation, u64::MAX);
                        value_of(capacity, &gang.label)
                    })
                    .collect();
                let uniform = values.len() <= 1 && !values.contains(&None);
                frame.rule(uniform, Invariant::Fit, || {
                    format!("gang {key:?} is over {values:?} of {}", gang.label)
                })?;
            }
            if held_before.iter().any(of_gang) {
                continue;
            }
            // Who has finished is not missing, whoever else is gone is.
            let finished = all.iter().filter(|(_, a)| a.finished).count() as u64;
            let least = gang.min.saturating_sub(finished).max(1);
            frame.rule(members.len() as u64 >= least, Invariant::Fit, || {
                format!("of gang {key:?}, min {least}, only {members:?} were placed")
            })?;
        }
        Ok(())
    }
}

fn placed_in(kinds: &[(Place, &Kind)]) -> impl Iterator<Item = u64> {
    kinds.iter().filter_map(|(_, kind)| match kind {
        Kind::AllocationPlaced(e) => Some(e.allocation),
        _ => None,
    })
}
