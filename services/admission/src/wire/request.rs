//! What is asked.

use crate::domain::{
    ChangeRequest, ClassRequest, DependencyRequest, GangRequest, PlacementRequest, QueueRequest,
    RequirementRequest, ReservationRequest, SchedulingRequest, SpreadRequest, SubmitRequest,
    TermRequest, TolerationRequest, Verb,
};
use schemas::v1::{self, request};

pub fn verb(verb: request::Verb) -> Verb {
    let (change, expected) = match verb {
        request::Verb::Submit(m) => return Verb::Submit(Box::new(submit(m))),
        request::Verb::Cancel(m) => {
            return Verb::Cancel {
                allocation_id: m.allocation_id,
            };
        }
        request::Verb::SetTenant(m) => (
            ChangeRequest::Tenant { tenant: m.tenant },
            m.expected_version,
        ),
        request::Verb::SetQuota(m) => {
            let change = ChangeRequest::Quota {
                tenant: m.tenant,
                resource: m.resource,
                limit: m.limit,
            };
            (change, m.expected_version)
        }
        request::Verb::SetRate(m) => {
            let change = ChangeRequest::Rate {
                resource: m.resource,
                micro_per_unit_hour: m.micro_per_unit_hour,
                effective_from_ms: m.effective_from_ms,
            };
            (change, m.expected_version)
        }
        request::Verb::SetQueue(m) => (ChangeRequest::Queue(queue(&m)), m.expected_version),
        request::Verb::SetPriorityClass(m) => {
            let change = ChangeRequest::PriorityClass(ClassRequest {
                class: m.priority_class,
                value: m.value,
                preemptible: m.preemptible,
                preempts: m.preempts,
                grace_ms: m.grace_ms,
                placement: m.placement,
            });
            (change, m.expected_version)
        }
        request::Verb::SetScheduling(m) => (
            ChangeRequest::Scheduling(scheduling(&m)),
            m.expected_version,
        ),
        request::Verb::SetCordon(m) => {
            let change = ChangeRequest::Cordon {
                node: m.node,
                cordoned: m.cordoned,
            };
            (change, m.expected_version)
        }
        request::Verb::SetReservation(m) => {
            let change = ChangeRequest::Reservation {
                reservation: m.reservation,
                wanted: m.wanted.map(reservation),
            };
            (change, m.expected_version)
        }
    };
    Verb::Admin { change, expected }
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

fn selector(requirements: Vec<v1::Requirement>) -> Vec<RequirementRequest> {
    let requirement = |one: v1::Requirement| RequirementRequest {
        label: one.label,
        operator: one.operator,
        values: one.values,
    };
    requirements.into_iter().map(requirement).collect()
}

fn queue(m: &v1::SetQueue) -> QueueRequest {
    let limit = |one: &v1::LimitRequest| (one.resource.clone(), one.amount);
    QueueRequest {
        queue: m.queue.clone(),
        parent: m.parent.clone(),
        weight_milli: m.weight_milli,
        limits: m.limits.iter().map(limit).collect(),
        tenants: m.tenants.clone(),
        order: m.order,
        placement: m.placement,
    }
}

fn scheduling(m: &v1::SetScheduling) -> SchedulingRequest {
    SchedulingRequest {
        placement: m.placement,
        half_life_ms: m.half_life_ms,
        fair_share_preemption: m.fair_share_preemption,
        protected_milli: m.protected_milli,
        preemptions_per_minute: m.preemptions_per_minute,
        aging_ms: m.aging_ms,
        backfill: m.backfill,
        backoff_ms: m.backoff_ms,
        backoff_ms_max: m.backoff_ms_max,
    }
}

fn reservation(m: v1::ReservationRequest) -> ReservationRequest {
    ReservationRequest {
        queue: m.queue,
        from_ms: m.from_ms,
        until_ms: m.until_ms,
        nodes: m.nodes,
        selector: selector(m.selector),
    }
}
