//! Starts and ends: what the nodes report, what is lost with them, and what is tried again.

use super::{
    Scheduler,
    allocation::{Allocations, Binding, Live, Phase, Stop},
    settings::Settings,
};
use crate::Written;
use ledger::Draft;
use vocab::fact::{AllocationEnded, AllocationRequeued, AllocationStarted};
use vocab::{
    AllocationNo, EndCause, Millis, RunExit, RunExitReason, RunState, SchedulingPolicy,
    sabotage::{self, Bug},
};

/// A lost node's allocations are off it, at once.
pub(super) fn decide_lost(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.allocations.first_lost() {
        if draft.full() {
            return;
        }
        // A node's clock may be ahead of this one; no run ends before it started.
        let binding = state
            .allocations
            .get(&allocation)
            .and_then(|live| live.binding());
        let started = binding.and_then(|binding| binding.started);
        let at = started.map_or(draft.now, |started| draft.now.max(started));
        let event = over(
            (&state.allocations, &state.settings),
            allocation,
            Over {
                cause: EndCause::NodeLost,
                at,
                exit: None,
            },
            draft.now,
        );
        draft.emit(state, event);
    }
}

pub(super) fn decide_reports(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.allocations.first_reported() {
        if draft.full() {
            return;
        }
        let Some(Phase::Held(binding)) = state.allocations.get(&allocation).map(|live| &live.phase)
        else {
            // `reported` holds only what is on a node: it is filled there, and emptied when the run is over.
            return;
        };
        let Some(report) = binding.reports.first() else {
            return;
        };
        let at = binding.moment(report.at, draft.now);
        let cause = match report.state {
            RunState::Started => {
                draft.emit(state, AllocationStarted { allocation, at });
                continue;
            }
            // What was over before its agent was told to stop it did not end for that: it is not run again.
            RunState::Finished if runs_again(binding) => EndCause::Preempted,
            RunState::Finished => EndCause::Finished,
            RunState::Failed => EndCause::Failed,
            RunState::Rejected => EndCause::RejectedByNode,
            RunState::Stopped if binding.stop == Some(Stop::TimeLimit) => EndCause::TimeLimit,
            RunState::Stopped if binding.preempted() && !binding.cancelled() => {
                made_to_go(binding, draft)
            }
            RunState::Stopped => EndCause::Cancelled,
        };
        let event = over(
            (&state.allocations, &state.settings),
            allocation,
            Over {
                cause,
                at,
                exit: report.exit,
            },
            draft.now,
        );
        draft.emit(state, event);
    }
}

/// The cause of a run's end whose allocation had to go from its node.
fn made_to_go(binding: &Binding, draft: &Draft) -> EndCause {
    let cause = EndCause::Evicted;
    match binding.evicted() && draft.is_at(cause.since()) {
        true => cause,
        false => EndCause::Preempted,
    }
}

fn runs_again(binding: &Binding) -> bool {
    sabotage::armed(Bug::FinishedRunsAgain) && binding.preempted()
}

/// How and when a run was over.
struct Over {
    cause: EndCause,
    at: Millis,
    exit: Option<RunExit>,
}

/// What becomes of an allocation whose run is over.
fn over(
    (allocations, settings): (&Allocations, &Settings),
    allocation: AllocationNo,
    Over { cause, at, exit }: Over,
    now: Millis,
) -> Written {
    let live = allocations.get(&allocation);
    match live.and_then(|live| Some((live, live.binding()?))) {
        Some((live, binding)) if !harmed_its_node(exit) && again(live, binding, cause) => {
            AllocationRequeued {
                allocation,
                cause,
                at,
                not_before: Millis(now.0.saturating_add_unsigned(pause_ms(
                    live,
                    cause,
                    settings.policy(),
                ))),
                exit,
            }
            .into()
        }
        _ => AllocationEnded {
            allocation,
            cause,
            at,
            exit,
        }
        .into(),
    }
}

/// Whether the run ended with its supervisor. It may have killed or stopped it, and would do so on the next node, too: only a new
/// request runs it again.
fn harmed_its_node(exit: Option<RunExit>) -> bool {
    exit.and_then(|exit| exit.reason) == Some(RunExitReason::SupervisorLost)
}

/// Whether it is queued again.
fn again(live: &Live, binding: &Binding, cause: EndCause) -> bool {
    match cause {
        EndCause::NodeLost | EndCause::Preempted | EndCause::Evicted => {
            !live.never_requeue && !binding.stops_for_good()
        }
        EndCause::Failed => live.retries_left > 0 && !binding.stops_for_good(),
        // It goes back as it came: that is no try. One that had begun there has run, though.
        EndCause::RejectedByNode => {
            let has_run = binding.started.is_some();
            !(binding.stops_for_good() || live.never_requeue && has_run)
        }
        EndCause::Finished
        | EndCause::Cancelled
        | EndCause::DependencyFailed
        | EndCause::Expired
        | EndCause::TimeLimit => false,
    }
}

/// The pause before the next try: none when the allocation is not to blame, else doubled with each failure.
fn pause_ms(live: &Live, cause: EndCause, policy: &SchedulingPolicy) -> u64 {
    match cause {
        EndCause::Failed | EndCause::RejectedByNode => {
            let doubled = policy.backoff_ms.saturating_mul(1 << live.failures.min(32));
            doubled.min(policy.backoff_ms_max)
        }
        _ => 0,
    }
}
