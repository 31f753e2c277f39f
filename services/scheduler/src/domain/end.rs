//! Starts and ends: what the nodes report, and what is lost with them.

use super::{Live, Phase, Scheduler};
use ledger::Draft;
use vocab::{EndCause, Event, RunState};

/// A lost node's allocations end with it.
pub(super) fn decide_lost(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.lost.first().copied() {
        if draft.full() {
            return;
        }
        // A node's clock may be ahead of this one; no run ends before it started.
        let started = match state.live.get(&allocation).map(|live| &live.phase) {
            Some(Phase::Held(hold)) => hold.started,
            _ => None,
        };
        let at = started.map_or(draft.now, |started| draft.now.max(started));
        let cause = EndCause::NodeLost;
        let ended = Event::AllocationEnded {
            allocation,
            cause,
            at,
        };
        draft.emit(state, ended);
    }
}

pub(super) fn decide_reports(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.reported.first().copied() {
        if draft.full() {
            return;
        }
        let Some(Live {
            phase: Phase::Held(hold),
            reports,
            ..
        }) = state.live.get(&allocation)
        else {
            // `reported` holds only what is on a node: it is filled there, and emptied when the allocation ends.
            return;
        };
        let Some((report, at)) = reports.front().copied() else {
            return;
        };
        let cause = match report {
            RunState::Started => {
                draft.emit(state, Event::AllocationStarted { allocation, at });
                continue;
            }
            RunState::Finished | RunState::Failed if hold.stopping => EndCause::Cancelled,
            RunState::Finished => EndCause::Finished,
            RunState::Failed => EndCause::Failed,
            RunState::Rejected => EndCause::RejectedByNode,
        };
        let ended = Event::AllocationEnded {
            allocation,
            cause,
            at,
        };
        draft.emit(state, ended);
    }
}
