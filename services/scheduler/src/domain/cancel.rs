//! Cancel: what waits ends at once, what is on a node is asked to stop.

use super::{Scheduler, allocation::Phase};
use ledger::Draft;
use vocab::{CancelVerdict, EndCause, Event};

pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some((request, allocation)) = state.cancels.first_key_value() {
        if draft.full() {
            return;
        }
        let (request, allocation) = (*request, *allocation);
        let verdict = match state.live.get(&allocation).map(|live| &live.phase) {
            None => CancelVerdict::HadEnded,
            Some(Phase::Held(hold)) => {
                if hold.stop.is_none() {
                    draft.emit(state, Event::AllocationStopping { allocation });
                }
                CancelVerdict::WasLive
            }
            Some(
                Phase::AwaitingQuota
                | Phase::AwaitingOthers
                | Phase::Pausing(_)
                | Phase::Queued(..)
                | Phase::InGang
                | Phase::Nominated(_),
            ) => {
                let ended = Event::AllocationEnded {
                    allocation,
                    cause: EndCause::Cancelled,
                    at: draft.now,
                };
                draft.emit(state, ended);
                CancelVerdict::WasLive
            }
        };
        let decided = Event::CancelDecided {
            request,
            allocation,
            verdict,
        };
        draft.emit(state, decided);
    }
}
