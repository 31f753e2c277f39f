//! Visits to all members of a job set, over as many frames as needed. The position only saves work: a new leader starts with
//! the first member, and finds that the earlier ones need nothing more.

use super::Asked;
use crate::Scheduler;
use ledger::Draft;
use vocab::{AllocationNo, EventNo, Token};

/// Members that are fetched at a time.
const CHUNK: usize = 1024;

/// Passes each member of a job set that was requested before `request` to `each`, from where the frame before stopped.
/// Returns whether all were; if not, the draft is full.
pub fn each_member(
    state: &mut Scheduler,
    request: EventNo,
    set: (&Token, &Token),
    draft: &mut Draft,
    each: impl Fn(&mut Scheduler, AllocationNo, &mut Draft),
) -> bool {
    let walked = state.pace.walked.filter(|(of, _)| *of == request);
    let mut next = walked.map_or(AllocationNo(0), |(_, next)| next);
    loop {
        let range = next..AllocationNo(request.0);
        let members = state.allocations.in_job_set(set, range, CHUNK);
        for no in &members {
            if draft.full() {
                state.pace.walked = Some((request, *no));
                return false;
            }
            each(state, *no, draft);
            next = AllocationNo(no.0.saturating_add(1));
        }
        if members.len() < CHUNK {
            return true;
        }
    }
}

impl Scheduler {
    /// Sets the position back to an allocation that is queued again after its preemption: a cancel of its job set may have
    /// skipped it because it was stopping.
    pub fn is_to_be_walked_again(&mut self, no: AllocationNo) {
        let (Some((request, next)), Some(live)) =
            (&mut self.pace.walked, self.allocations.get(&no))
        else {
            return;
        };
        if let Some(Asked::CancelJobSet {
            tenant, job_set, ..
        }) = self.asked.get(request)
            && self.allocations.is_in(live, tenant, job_set)
        {
            *next = no.min(*next);
        }
    }
}
