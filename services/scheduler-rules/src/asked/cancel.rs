//! Cancel: what waits ends at once, what is on a node is asked to stop.

use crate::Written;
use crate::{
    Scheduler,
    allocation::{Allocations, Phase, Stop},
};
use ledger::{Draft, IllegalEvent};
use vocab::fact::{AllocationEnded, AllocationStopping, CancelDecided};
use vocab::{AllocationNo, CancelVerdict, EndCause, EventNo, Millis};

pub fn decide(
    state: &mut Scheduler,
    request: EventNo,
    allocation: AllocationNo,
    draft: &mut Draft,
) -> CancelDecided {
    let verdict = match cancelled(&state.allocations, allocation, draft.now) {
        Some(event) => {
            draft.emit(state, event);
            CancelVerdict::WasLive
        }
        None if state.allocations.contains(&allocation) => CancelVerdict::WasLive,
        None => CancelVerdict::HadEnded,
    };
    CancelDecided {
        request,
        allocation,
        verdict,
    }
}

/// What a cancel does to it; nothing if it has ended or is stopping already.
pub fn cancelled(
    allocations: &Allocations,
    allocation: AllocationNo,
    now: Millis,
) -> Option<Written> {
    match &allocations.get(&allocation)?.phase {
        Phase::Held(binding) if binding.stop.is_some() => None,
        Phase::Held(_) => {
            let time_limit = false;
            let stopping = AllocationStopping {
                allocation,
                time_limit,
            };
            Some(stopping.into())
        }
        Phase::AwaitingQuota(_)
        | Phase::AwaitingOthers
        | Phase::Pausing(_)
        | Phase::Queued(..)
        | Phase::InGang
        | Phase::Nominated(_) => {
            let (cause, at) = (EndCause::Cancelled, now);
            let ended = AllocationEnded {
                allocation,
                cause,
                at,
                exit: None,
            };
            Some(ended.into())
        }
    }
}

impl Scheduler {
    /// One that is being preempted will not be queued again.
    pub fn cancel_decided(&mut self, fact: &CancelDecided) -> Result<(), IllegalEvent> {
        self.will_not_be_queued_again(fact.allocation);
        self.asked_is_done(fact.request, fact).map(|_| ())
    }

    pub(super) fn will_not_be_queued_again(&mut self, no: AllocationNo) {
        if let Some(Phase::Held(binding)) =
            self.allocations.get_mut(&no).map(|live| &mut live.phase)
            && let Some(Stop::Preempted { cancelled, .. } | Stop::Evicted { cancelled, .. }) =
                &mut binding.stop
        {
            *cancelled = true;
        }
    }
}
