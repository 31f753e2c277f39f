//! Cancel of a job set: of all that were requested before it, in as many frames as that takes.

use super::{Asked, cancel::cancelled, walk::each_member};
use crate::Scheduler;
use ledger::{Draft, IllegalEvent};
use vocab::fact::JobSetCancelDecided;
use vocab::{AllocationNo, EventNo, Token};

/// What has come of it; none if it goes on in the next frame. What is done can be seen from the state: it has ended, or
/// is stopping.
pub fn decide(
    state: &mut Scheduler,
    request: EventNo,
    set: (&Token, &Token),
    draft: &mut Draft,
) -> Option<JobSetCancelDecided> {
    let all = each_member(state, request, set, draft, |state, allocation, draft| {
        if let Some(event) = cancelled(&state.allocations, allocation, draft.now) {
            draft.emit(state, event);
        }
    });
    if !all {
        return None;
    }
    let before = AllocationNo(request.0);
    let stopping = state.allocations.count_job_set(set, before).all as u64;
    let ended = match state.asked.get(&request) {
        Some(Asked::CancelJobSet { ended, .. }) => *ended,
        Some(Asked::Cancel(_) | Asked::Priority { .. }) | None => 0,
    };
    Some(JobSetCancelDecided {
        request,
        allocations: ended + stopping,
    })
}

impl Scheduler {
    /// One of them has ended cancelled before all of them were told.
    pub fn counts_as_cancelled(&mut self, no: AllocationNo) {
        let first = self.asked.iter_mut().next();
        let (Some((request, asked)), Some(live)) = (first, self.allocations.get(&no)) else {
            return;
        };
        match asked {
            Asked::CancelJobSet {
                tenant,
                job_set,
                ended,
            } if no.0 < request.0 && self.allocations.is_in(live, tenant, job_set) => {
                *ended += 1;
            }
            Asked::CancelJobSet { .. } | Asked::Cancel(_) | Asked::Priority { .. } => {}
        }
    }

    pub fn job_set_cancel_decided(
        &mut self,
        fact: &JobSetCancelDecided,
    ) -> Result<(), IllegalEvent> {
        match self.asked_is_done(fact.request, fact)? {
            Asked::CancelJobSet {
                tenant, job_set, ..
            } => {
                let range = AllocationNo(0)..AllocationNo(fact.request.0);
                let set = (&tenant, &job_set);
                for no in self.allocations.in_job_set(set, range, usize::MAX) {
                    self.will_not_be_queued_again(no);
                }
                Ok(())
            }
            Asked::Cancel(_) | Asked::Priority { .. } => {
                Err(IllegalEvent::new("another request", fact))
            }
        }
    }
}
