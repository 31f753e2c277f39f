//! Decisions come to an end: before something new comes in, nobody goes more often than there are others to go for.

use super::{Checker, Invariant, Place, Violation};
use schemas::v1::event::Kind;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Rest {
    /// How often each had to go since something came in that is not the consequence of that.
    preempted: BTreeMap<u64, u64>,
}

const BY_PRIORITY: i32 = 1;
const BY_FAIR_SHARE: i32 = 2;
const WITH_GANG: i32 = 3;

impl Checker {
    /// Looks at a frame before it is taken in.
    pub(super) fn stirs(&mut self, kinds: &[(Place, &Kind)]) {
        let new = kinds.iter().any(|(_, kind)| match kind {
            Kind::RunReported(e) => {
                let a = self.allocations.get(e.allocation);
                let hold = a.and_then(|a| a.hold.as_ref());
                hold.is_none_or(|hold| hold.stop.is_none() && e.state != STARTED)
            }
            Kind::QuotaWaiting(_)
            | Kind::QuotaReleased(_)
            | Kind::LimitsInForce(_)
            | Kind::OperationRefused(_)
            | Kind::OperationRepeated(_)
            | Kind::OperationsForgotten(_) => false,
            kind => !is_schedulers(kind),
        });
        if new {
            self.rest.preempted.clear();
        }
    }

    pub(super) fn comes_to_rest(
        &mut self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        for (_, kind) in kinds {
            if let Kind::AllocationPreempted(e) = kind
                && matches!(e.cause, BY_PRIORITY | BY_FAIR_SHARE | WITH_GANG)
            {
                *self.rest.preempted.entry(e.allocation).or_default() += 1;
            }
        }
        let most = self.rest.preempted.iter().max_by_key(|(_, often)| **often);
        let Some((no, often)) = most else {
            return Ok(());
        };
        let live = self.allocations.iter();
        let live = live.filter(|(_, a)| a.ended_lsn.is_none()).count() as u64;
        frame.rule(*often < live.max(2), Invariant::Rest, || {
            format!(
                "{no} had to go {often} times since anything new came in, for {live} others at most"
            )
        })
    }
}

const STARTED: i32 = 1;

fn is_schedulers(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::AllocationPlaced(_)
            | Kind::AllocationWaiting(_)
            | Kind::PendingGroupExplained(_)
            | Kind::AllocationNominated(_)
            | Kind::AllocationStarted(_)
            | Kind::AllocationPreempted(_)
            | Kind::AllocationStopping(_)
            | Kind::AllocationRequeued(_)
            | Kind::AllocationEnded(_)
            | Kind::ReservationDecided(_)
            | Kind::CancelDecided(_)
            | Kind::JobSetCancelDecided(_)
            | Kind::AllocationReprioritised(_)
            | Kind::PriorityDecided(_)
            | Kind::ResourceDecided(_)
            | Kind::LeaseExpired(_)
    )
}
