//! Starts and ends: what the nodes report, what is lost with them, and what is tried again.

use super::{
    Scheduler,
    allocation::{Hold, Live, Phase},
};
use crate::domain::Written;
use ledger::Draft;
use vocab::fact::{AllocationEnded, AllocationRequeued, AllocationStarted};
use vocab::{
    AllocationNo, EndCause, Millis, RunState,
    sabotage::{self, Bug},
};

/// A lost node's allocations are off it, at once.
pub(super) fn decide_lost(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.allocations.first_lost() {
        if draft.full() {
            return;
        }
        // A node's clock may be ahead of this one; no run ends before it started.
        let hold = state
            .allocations
            .get(&allocation)
            .and_then(|live| live.hold());
        let started = hold.and_then(|hold| hold.started);
        let at = started.map_or(draft.now, |started| draft.now.max(started));
        let event = over(state, allocation, EndCause::NodeLost, at, draft.now);
        draft.emit(state, event);
    }
}

pub(super) fn decide_reports(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.allocations.first_reported() {
        if draft.full() {
            return;
        }
        let Some(Phase::Held(hold)) = state.allocations.get(&allocation).map(|live| &live.phase)
        else {
            // `reported` holds only what is on a node: it is filled there, and emptied when the run is over.
            return;
        };
        let Some((report, at)) = hold.reports.front().copied() else {
            return;
        };
        let at = hold.moment(at, draft.now);
        let cause = match report {
            RunState::Started => {
                draft.emit(state, AllocationStarted { allocation, at });
                continue;
            }
            // What was over before its agent was told to stop it did not end for that: it is not run again.
            RunState::Finished if runs_again(state, allocation) => EndCause::Preempted,
            RunState::Finished => EndCause::Finished,
            RunState::Failed => EndCause::Failed,
            RunState::Rejected => EndCause::RejectedByNode,
            RunState::Stopped if hold.preempted() && !hold.cancelled() => EndCause::Preempted,
            RunState::Stopped => EndCause::Cancelled,
        };
        let event = over(state, allocation, cause, at, draft.now);
        draft.emit(state, event);
    }
}

fn runs_again(state: &Scheduler, allocation: AllocationNo) -> bool {
    let hold = state.allocations.get(&allocation).and_then(Live::hold);
    sabotage::armed(Bug::FinishedRunsAgain) && hold.is_some_and(Hold::preempted)
}

/// What becomes of an allocation whose run is over.
fn over(
    state: &Scheduler,
    allocation: AllocationNo,
    cause: EndCause,
    at: Millis,
    now: Millis,
) -> Written {
    let live = state.allocations.get(&allocation);
    match live.and_then(|live| Some((live, live.hold()?))) {
        Some((live, hold)) if again(live, hold, cause) => AllocationRequeued {
            allocation,
            cause,
            at,
            not_before: Millis(now.0.saturating_add_unsigned(state.pause_ms(live, cause))),
        }
        .into(),
        _ => AllocationEnded {
            allocation,
            cause,
            at,
        }
        .into(),
    }
}

/// Whether it is queued again.
fn again(live: &Live, hold: &Hold, cause: EndCause) -> bool {
    match cause {
        EndCause::NodeLost | EndCause::Preempted => !live.never_requeue && !hold.cancelled(),
        EndCause::Failed | EndCause::RejectedByNode => live.retries_left > 0 && !hold.cancelled(),
        EndCause::Finished | EndCause::Cancelled | EndCause::DependencyFailed => false,
    }
}

impl Scheduler {
    /// The pause before the next try: none when the allocation is not to blame, else doubled with each failure.
    fn pause_ms(&self, live: &Live, cause: EndCause) -> u64 {
        match cause {
            EndCause::Failed | EndCause::RejectedByNode => {
                let doubled = self
                    .settings
                    .policy()
                    .backoff_ms
                    .saturating_mul(1 << live.failures.min(32));
                doubled.min(self.settings.policy().backoff_ms_max)
            }
            _ => 0,
        }
    }
}
