//! A change of priority, of one allocation or of all of a job set. Those with a priority class have the class's.

use super::{Asked, walk::each_member};
use crate::{Scheduler, allocation::Phase, preempt::Epoch, queues::Key};
use ledger::{Draft, IllegalEvent};
use vocab::fact::{AllocationReprioritised, PriorityDecided};
use vocab::{AllocationNo, EventNo, PendingGroupNo, PriorityTarget, Refusal, Rule, Token};

/// What has come of it; none if it goes on in the next frame. Those that have the priority are done.
pub fn decide(
    state: &mut Scheduler,
    request: EventNo,
    tenant: &Token,
    (target, priority): (&PriorityTarget, i32),
    draft: &mut Draft,
) -> Option<PriorityDecided> {
    let allocations = match count(state, request, tenant, target) {
        Ok(allocations) => allocations,
        Err(refusal) => {
            return Some(PriorityDecided {
                request,
                allocations: 0,
                refusal: Some(refusal),
            });
        }
    };
    let change = |state: &mut Scheduler, allocation, draft: &mut Draft| {
        let live = state.allocations.get(&allocation);
        let other = live.filter(|it| it.priority_class.is_none() && it.priority != priority);
        if other.is_some() {
            let event = AllocationReprioritised {
                allocation,
                priority,
            };
            draft.emit(state, event);
        }
    };
    match target {
        PriorityTarget::Allocation(no) => change(state, *no, draft),
        PriorityTarget::JobSet(job_set) => {
            if !each_member(state, request, (tenant, job_set), draft, change) {
                return None;
            }
        }
    }
    Some(PriorityDecided {
        request,
        allocations,
        refusal: None,
    })
}

/// Counts the allocations that the change applies to.
fn count(
    state: &mut Scheduler,
    request: EventNo,
    tenant: &Token,
    target: &PriorityTarget,
) -> Result<u64, Refusal> {
    match target {
        PriorityTarget::Allocation(no) => match state.allocations.get(no) {
            None => Err(Refusal::new(Rule::AllocationEnded, "allocation_id")),
            Some(live) if live.priority_class.is_some() => {
                Err(Refusal::new(Rule::SettingInvalid, "priority_class"))
            }
            Some(_) => Ok(1),
        },
        PriorityTarget::JobSet(job_set) => {
            let before = AllocationNo(request.0);
            let count = state.allocations.count_job_set((tenant, job_set), before);
            match count.all - count.classed {
                0 => Err(Refusal::new(Rule::AllocationNotFound, "job_set")),
                count => Ok(count as u64),
            }
        }
    }
}

impl Scheduler {
    /// It stands elsewhere in its pending group, or its gang does if it stands there by this member.
    pub fn reprioritised(&mut self, fact: &AllocationReprioritised) -> Result<(), IllegalEvent> {
        let no = fact.allocation;
        let live = self
            .allocations
            .get_mut(&no)
            .filter(|live| live.priority_class.is_none())
            .ok_or_else(|| IllegalEvent::new("no such allocation without a class", fact))?;
        live.priority = fact.priority;
        let stands: Option<(PendingGroupNo, Key)> = match live.phase {
            Phase::Queued(pending_group, key) => Some((pending_group, key)),
            Phase::InGang => live.gang.and_then(|gang| self.waiting.gangs().unit(gang)),
            Phase::AwaitingQuota(_)
            | Phase::AwaitingOthers
            | Phase::Pausing(_)
            | Phase::Nominated(_)
            | Phase::Held(_) => None,
        };
        let node = match &live.phase {
            Phase::Held(binding) => Some(binding.node),
            _ => None,
        };
        if let Some((pending_group, key)) = stands.filter(|(_, key)| key.allocation == no) {
            self.stand_anew(pending_group, key);
        }
        // Who may go for whom is another matter now.
        self.epoch = Epoch::default();
        if let Some(node) = node {
            self.fleet.touched(node);
        }
        self.waiting.sweep_anew();
        Ok(())
    }

    pub fn priority_decided(&mut self, fact: &PriorityDecided) -> Result<(), IllegalEvent> {
        match self.asked_is_done(fact.request, fact)? {
            Asked::Priority { .. } => Ok(()),
            Asked::Cancel(_) | Asked::CancelJobSet { .. } => {
                Err(IllegalEvent::new("another request", fact))
            }
        }
    }
}
