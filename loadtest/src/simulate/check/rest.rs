//! Decisions come to an end: nobody goes for each of the others more than once before something new comes in.

use super::{Checker, Invariant, Place, Violation};
use schemas::v1::event::Kind;

#[derive(Debug, Default)]
pub struct Rest {
    /// Since something came in that is not the consequence of a preemption.
    preempted: u64,
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
            | Kind::OperationRefused(_)
            | Kind::OperationRepeated(_)
            | Kind::OperationsForgotten(_) => false,
            kind => !is_schedulers(kind),
        });
        if new {
            self.rest.preempted = 0;
        }
    }

    pub(super) fn comes_to_rest(
        &mut self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        let counts = |kind: &Kind| matches!(kind, Kind::AllocationPreempted(e)
            if matches!(e.cause, BY_PRIORITY | BY_FAIR_SHARE | WITH_GANG));
        let preempted = kinds.iter().filter(|(_, kind)| counts(kind)).count();
        self.rest.preempted += preempted as u64;
        if preempted == 0 {
            return Ok(());
        }
        let live = self.allocations.iter();
        let live = live.filter(|(_, a)| a.ended_lsn.is_none()).count() as u64;
        let most = live * live.saturating_sub(1);
        frame.rule(self.rest.preempted <= most, Invariant::Rest, || {
            let preempted = self.rest.preempted;
            format!("{preempted} preemptions since anything new came in, of {live} allocations")
        })
    }
}

const STARTED: i32 = 1;

fn is_schedulers(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::AllocationPlaced(_)
            | Kind::AllocationWaiting(_)
            | Kind::LineExplained(_)
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
            | Kind::ReservationExpired(_)
    )
}
