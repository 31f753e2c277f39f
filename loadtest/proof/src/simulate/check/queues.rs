//! No queue, nor one above it, comes to hold more than its limit, whatever had to go for that.

use super::{Checker, Demand, Invariant, Place, Violation, allocations::Allocation};
use std::collections::BTreeSet;

/// In the unit of the limit.
fn amount(demand: &Demand, resource: &str) -> u64 {
    match resource {
        "cpu" => demand.cpu_milli,
        "memory" => demand.memory_bytes,
        "gpu" => demand.gpus * demand.gpu_milli,
        _ => 0,
    }
}

fn queue_of(a: &Allocation) -> &str {
    match a.demand.queue.as_str() {
        "" => &a.tenant,
        queue => queue,
    }
}

impl Checker {
    /// Who counts for its queue: on a node and not told to go, or with a node that is being cleared for it.
    pub(super) fn counted(&self) -> BTreeSet<u64> {
        let all = self.allocations.iter();
        let counts = |a: &Allocation| {
            let stays = a.hold.as_ref().is_some_and(|hold| hold.stop.is_none());
            stays || a.nominated.is_some()
        };
        all.filter(|(_, a)| counts(a)).map(|(no, _)| no).collect()
    }

    /// The first limit that so many hold more than, the allocation among them that asks for some of it.
    fn over_limit(&self, at: &Place, no: u64, counted: &BTreeSet<u64>) -> Option<String> {
        let own = self.allocations.get(no)?;
        for queue in self.settings.up(queue_of(own), at) {
            let limits = self.settings.queue(&queue, at);
            for limit in limits.into_iter().flat_map(|it| &it.limits) {
                let below = counted
                    .iter()
                    .filter_map(|no| self.allocations.get(*no))
                    .filter(|a| self.settings.up(queue_of(a), at).contains(&queue));
                let resource = limit.resource.as_str();
                let held: u64 = below.map(|a| amount(&a.demand, resource)).sum();
                if amount(&own.demand, resource) > 0 && held > limit.amount {
                    return Some(format!(
                        "queue {queue} holds {held} of {} {resource} with {no}",
                        limit.amount
                    ));
                }
            }
        }
        None
    }

    /// One frame is one moment: what goes in it makes room for what comes in it.
    pub(super) fn queues_keep_limits(
        &self,
        frame: &Place,
        before: &BTreeSet<u64>,
    ) -> Result<(), Violation> {
        let counted = self.counted();
        for no in counted.difference(before) {
            let over = self.over_limit(frame, *no, &counted);
            frame.rule(over.is_none(), Invariant::QueueLimit, || {
                over.unwrap_or_default()
            })?;
        }
        Ok(())
    }

    /// Whether limits of queues let so many come together.
    pub(super) fn limits_let(&self, at: &Place, coming: &[u64]) -> bool {
        let mut counted: BTreeSet<u64> = self.counted();
        // A cancelled one counts until it has gone.
        counted.extend(self.allocations.held());
        counted.extend(coming);
        let mut coming = coming.iter();
        coming.all(|no| self.over_limit(at, *no, &counted).is_none())
    }
}
