//! A change of priority, of one allocation or of all of a job set. Those with a priority class have the class's.

use super::Asked;
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
    let targets = match targets(state, request, tenant, target) {
        Ok(targets) => targets,
        Err(refusal) => {
            return Some(PriorityDecided {
                request,
                allocations: 0,
                refusal: Some(refusal),
            });
        }
    };
    for allocation in &targets {
        if draft.full() {
            return None;
        }
        let has = state.allocations.get(allocation).map(|live| live.priority);
        if has != Some(priority) {
            let allocation = *allocation;
            let event = AllocationReprioritised {
                allocation,
                priority,
            };
            draft.emit(state, event);
        }
    }
    Some(PriorityDecided {
        request,
        allocations: targets.len() as u64,
        refusal: None,
    })
}

fn targets(
    state: &mut Scheduler,
    request: EventNo,
    tenant: &Token,
    target: &PriorityTarget,
) -> Result<Vec<AllocationNo>, Refusal> {
    match target {
        PriorityTarget::Allocation(no) => match state.allocations.get(no) {
            None => Err(Refusal::new(Rule::AllocationEnded, "allocation_id")),
            Some(live) if live.priority_class.is_some() => {
                Err(Refusal::new(Rule::SettingInvalid, "priority_class"))
            }
            Some(_) => Ok(vec![*no]),
        },
        PriorityTarget::JobSet(job_set) => {
            let mut members =
                state
                    .allocations
                    .in_job_set(tenant, job_set, AllocationNo(request.0));
            members.retain(|no| {
                let live = state.allocations.get(no);
                live.is_some_and(|live| live.priority_class.is_none())
            });
            if members.is_empty() {
                return Err(Refusal::new(Rule::AllocationNotFound, "job_set"));
            }
            Ok(members)
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
