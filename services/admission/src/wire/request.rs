//! What is asked.

use super::admin::change;
use crate::domain::{
    DependencyRequest, GangRequest, HolderRequest, PlacementRequest, RequirementRequest,
    ResourceRequest, SpreadRequest, SubmitRequest, TargetRequest, TermRequest, TolerationRequest,
    Verb,
};
use schemas::v1::{self, request, set_priority::Target};
use vocab::{Refusal, Rule};

/// A batch inside of a batch is refused.
pub fn verb(verb: request::Verb) -> Result<Verb, Refusal> {
    use request::Verb as V;
    let resource = |request, slot| Verb::Resource { request, slot };
    let holder = |reservation_id, holder, epoch| HolderRequest {
        reservation_id,
        holder,
        epoch,
    };
    Ok(match verb {
        V::Batch(_) => return Err(Refusal::new(Rule::UnknownVerb, "batch")),
        V::Submit(m) => Verb::Submit(Box::new(submit(m))),
        V::Cancel(m) => Verb::Cancel {
            allocation_id: m.allocation_id,
        },
        V::CancelJobSet(m) => Verb::CancelJobSet { job_set: m.job_set },
        V::SetPriority(m) => Verb::SetPriority {
            target: match m.target {
                Some(Target::AllocationId(id)) => TargetRequest::Allocation(id),
                Some(Target::JobSet(name)) => TargetRequest::JobSet(name),
                None => TargetRequest::Missing,
            },
            priority: m.priority,
        },
        V::CreateResource(m) => {
            let resource_name = m.resource;
            resource(
                ResourceRequest::Create {
                    resource: resource_name,
                },
                m.slot,
            )
        }
        V::Reserve(m) => {
            let request = ResourceRequest::Reserve {
                resources: vec![m.resource],
                holder: m.holder,
                ttl_slots: m.ttl_slots,
            };
            resource(request, m.slot)
        }
        V::ReserveBundle(m) => {
            let request = ResourceRequest::Reserve {
                resources: m.resources,
                holder: m.holder,
                ttl_slots: m.ttl_slots,
            };
            resource(request, m.slot)
        }
        V::Confirm(m) => {
            let request = holder(m.reservation_id, m.holder, m.epoch);
            resource(ResourceRequest::Confirm(request), m.slot)
        }
        V::Release(m) => {
            let request = holder(m.reservation_id, m.holder, m.epoch);
            resource(ResourceRequest::Release(request), m.slot)
        }
        V::Revoke(m) => {
            let reservation_id = m.reservation_id;
            resource(ResourceRequest::Revoke { reservation_id }, m.slot)
        }
        V::Reclaim(m) => {
            let reservation_id = m.reservation_id;
            resource(ResourceRequest::Reclaim { reservation_id }, m.slot)
        }
        V::SetTenant(_)
        | V::SetQuota(_)
        | V::SetRate(_)
        | V::SetQueue(_)
        | V::SetPriorityClass(_)
        | V::SetScheduling(_)
        | V::SetCordon(_)
        | V::SetNode(_)
        | V::SetReservation(_)
        | V::SetBudget(_) => return change(verb),
    })
}

/// The content that an operation id stands for, where it is not all of the message: the slot is not part of it. None when
/// the message says no slot.
pub fn content(request: &v1::Request) -> Option<v1::Request> {
    use request::Verb as V;
    let mut content = request.clone();
    let slot = match content.verb.as_mut()? {
        V::CreateResource(m) => &mut m.slot,
        V::Reserve(m) => &mut m.slot,
        V::ReserveBundle(m) => &mut m.slot,
        V::Confirm(m) => &mut m.slot,
        V::Release(m) => &mut m.slot,
        V::Revoke(m) => &mut m.slot,
        V::Reclaim(m) => &mut m.slot,
        _ => return None,
    };
    slot.take().map(|_| content)
}

fn submit(m: v1::Submit) -> SubmitRequest {
    let dependency = |one: v1::DependencyRequest| DependencyRequest {
        allocation_id: one.allocation_id,
        success: one.success,
    };
    SubmitRequest {
        job_set: m.job_set,
        name: m.name,
        priority: m.priority,
        cpu_milli: m.cpu_milli,
        memory_bytes: m.memory_bytes,
        gpu_count: m.gpu_count,
        gpu_milli: m.gpu_milli,
        gpu_models: m.gpu_models,
        queue: m.queue,
        priority_class: m.priority_class,
        extended: m
            .extended
            .into_iter()
            .map(|one| (one.name, one.amount))
            .collect(),
        rules: m.rules.map(placement),
        gang: m.gang.map(|gang| GangRequest {
            name: gang.name,
            size: gang.size,
            min: gang.min,
            uniform_label: gang.uniform_label,
        }),
        depends_on: m.depends_on.into_iter().map(dependency).collect(),
        retries: m.retries,
        never_requeue: m.never_requeue,
        run_time_ms: m.run_time_ms,
        team: m.team,
        namespace: m.namespace,
        cpu_milli_most: m.cpu_milli_most,
        memory_bytes_most: m.memory_bytes_most,
        best_effort: m.best_effort,
    }
}

fn placement(m: v1::PlacementRules) -> PlacementRequest {
    let toleration = |one: v1::Toleration| TolerationRequest {
        key: one.key,
        value: one.value,
    };
    let term = |one: v1::GroupTerm| TermRequest {
        group: one.group,
        domain: one.domain,
    };
    let spread = |one: v1::Spread| SpreadRequest {
        domain: one.domain,
        skew_max: one.skew_max,
    };
    PlacementRequest {
        selector: selector(m.selector),
        tolerations: m.tolerations.into_iter().map(toleration).collect(),
        group: m.group,
        near: m.near.into_iter().map(term).collect(),
        apart: m.apart.into_iter().map(term).collect(),
        spread: m.spread.into_iter().map(spread).collect(),
        numa: m.numa,
    }
}

pub(super) fn selector(requirements: Vec<v1::Requirement>) -> Vec<RequirementRequest> {
    let requirement = |one: v1::Requirement| RequirementRequest {
        label: one.label,
        operator: one.operator,
        values: one.values,
    };
    requirements.into_iter().map(requirement).collect()
}
