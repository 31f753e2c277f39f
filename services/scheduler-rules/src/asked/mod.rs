//! What tenants ask about allocations that they have: decided one after the other, in the order in which it came, so that
//! what is asked later finds what was asked before done.

mod cancel;
mod cancel_job_set;
mod priority;
mod walk;

use super::{Scheduler, Written};
use ledger::{Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::fmt;
use vocab::{AllocationNo, EventNo, PriorityTarget, Token};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asked {
    Cancel(AllocationNo),
    CancelJobSet {
        tenant: Token,
        job_set: Token,
        /// How many have ended by it.
        ended: u64,
    },
    Priority {
        tenant: Token,
        target: PriorityTarget,
        priority: i32,
    },
}

/// Decides until nothing is left, or the draft is full in the middle of it.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some((request, asked)) = state.asked.first_key_value() {
        if draft.full() {
            return;
        }
        let request = *request;
        let decided = match asked.clone() {
            Asked::Cancel(allocation) => {
                Some(cancel::decide(state, request, allocation, draft).into())
            }
            Asked::CancelJobSet {
                tenant, job_set, ..
            } => cancel_job_set::decide(state, request, (&tenant, &job_set), draft)
                .map(Written::from),
            Asked::Priority {
                tenant,
                target,
                priority,
            } => priority::decide(state, request, &tenant, (&target, priority), draft)
                .map(Written::from),
        };
        match decided {
            Some(event) => draft.emit(state, event),
            None => return,
        }
    }
}

impl Scheduler {
    /// The request is decided.
    pub(super) fn asked_is_done(
        &mut self,
        request: EventNo,
        event: &impl fmt::Debug,
    ) -> Result<Asked, IllegalEvent> {
        let asked = self.asked.remove(&request);
        asked.ok_or_else(|| IllegalEvent::new("no such request", event))
    }
}
