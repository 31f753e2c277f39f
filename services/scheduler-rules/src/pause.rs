//! Pauses between tries: when one is over, its allocation is back in line.

use super::Scheduler;
use ledger::Draft;
use vocab::WaitingReason;
use vocab::fact::AllocationWaiting;

pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some((until, allocation)) = state.waiting.first_pause() {
        if until > draft.now || draft.full() {
            return;
        }
        let waiting = AllocationWaiting {
            allocation,
            reason: WaitingReason::FairShare,
            pending_group: None,
        };
        draft.emit(state, waiting);
    }
}
