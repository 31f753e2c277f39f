//! What operators ask.

use super::request::selector;
use crate::domain::{
    AccountRequest, ApprovalRequest, BudgetRequest, ChangeRequest, ClassRequest, QueueRequest,
    QuotaRequest, ReservationRequest, SchedulingRequest, TenantRequest, Verb,
};
use ledger::proto::capacity_from_proto;
use schemas::v1::{self, request};
use vocab::{Refusal, Rule};

pub(super) fn change(verb: request::Verb) -> Result<Verb, Refusal> {
    use request::Verb as V;
    let (expected, change) = match verb {
        V::SetTenant(m) => (m.expected_version, ChangeRequest::Tenant(tenant(m))),
        V::SetQuota(m) => (m.expected_version, ChangeRequest::Quota(quota(m))),
        V::SetBudget(m) => {
            let change = ChangeRequest::Budget(BudgetRequest {
                account: account(m.tenant, m.team, m.namespace),
                of: m.of,
                amount: m.amount,
                period: m.period,
            });
            (m.expected_version, change)
        }
        V::SetRate(m) => {
            let change = ChangeRequest::Rate {
                resource: m.resource,
                micro_per_unit_hour: m.micro_per_unit_hour,
                effective_from_ms: m.effective_from_ms,
            };
            (m.expected_version, change)
        }
        V::SetQueue(m) => (m.expected_version, ChangeRequest::Queue(queue(&m))),
        V::SetPriorityClass(m) => {
            let change = ChangeRequest::PriorityClass(ClassRequest {
                class: m.priority_class,
                value: m.value,
                preemptible: m.preemptible,
                preempts: m.preempts,
                grace_ms: m.grace_ms,
                placement: m.placement,
            });
            (m.expected_version, change)
        }
        V::SetScheduling(m) => (
            m.expected_version,
            ChangeRequest::Scheduling(scheduling(&m)),
        ),
        V::SetCordon(m) => {
            let change = ChangeRequest::Cordon {
                node: m.node,
                cordoned: m.cordoned,
            };
            (m.expected_version, change)
        }
        V::SetReservation(m) => {
            let change = ChangeRequest::Reservation {
                reservation: m.reservation,
                wanted: m.wanted.map(reservation),
            };
            (m.expected_version, change)
        }
        V::SetNode(m) => {
            let change = ChangeRequest::Node {
                node: m.node,
                approved: m.approved.map(approval).map(Box::new),
            };
            (m.expected_version, change)
        }
        _ => return Err(Refusal::new(Rule::UnknownVerb, "verb")),
    };
    Ok(Verb::Admin { change, expected })
}

fn account(tenant: String, team: String, namespace: String) -> AccountRequest {
    AccountRequest {
        tenant,
        team,
        namespace,
    }
}

fn tenant(m: v1::SetTenant) -> TenantRequest {
    TenantRequest {
        tenant: m.tenant,
        cohort: m.cohort,
        weight_milli: m.weight_milli,
        preemptible: m.preemptible,
        on_exceed: m.on_exceed,
        reclaim: m.reclaim,
        rate_milli: m.rate_milli,
        rate_burst: m.rate_burst,
        allocations_max: m.allocations_max,
        priority_classes: m.priority_classes,
        priority_max: m.priority_max,
        default_cpu_milli: m.default_cpu_milli,
        default_memory_bytes: m.default_memory_bytes,
    }
}

fn quota(m: v1::SetQuota) -> QuotaRequest {
    QuotaRequest {
        account: account(m.tenant, m.team, m.namespace),
        resource: m.resource,
        limit: m.limit,
        soft: m.soft,
        burst: m.burst,
        burst_ms: m.burst_ms,
        borrow: m.borrow,
        lend: m.lend,
        from_ms: m.from_ms,
        until_ms: m.until_ms,
        unlimited: m.unlimited,
    }
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

fn approval(m: v1::NodeApprovalRequest) -> ApprovalRequest {
    ApprovalRequest {
        capacity: capacity_from_proto(m.capacity).ok(),
        token_digest: m.token_digest,
        token_until_ms: m.token_until_ms,
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
