//! Events into messages.

use super::account::{budget_to_proto, limits_to_proto, quota_to_proto, settings_to_proto};
use super::admin::{
    approval_to_proto, class_to_proto, policy_to_proto, queue_to_proto, reservation_to_proto,
};
use super::operation::{operation_to_proto, refusal_to_proto};
use super::resource::{answer_to_proto, asked_to_proto};
use super::{
    amounts_to_proto, capacity_to_proto, cause_number, preemption_number, spec_to_proto, text,
    texts, waiting_number,
};
use schemas::v1;
use v1::event::Kind;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationReprioritised, AllocationRequested, AllocationRequeued, AllocationStarted,
    AllocationStopping, AllocationWaiting, Applied, BudgetSet, CancelDecided, CancelRequested,
    CordonSet, JobSetCancelDecided, JobSetCancelRequested, LimitsInForce, LineExplained,
    NodeForgotten, NodeJoined, NodeLost, NodeReady, NodeRegistered, NodeSet, OperationRefused,
    OperationRepeated, OperationsForgotten, PriorityClassSet, PriorityDecided, PriorityRequested,
    QueueSet, QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaSet, QuotaWaiting,
    RateSet, ReservationDecided, ReservationExpired, ReservationSet, ResourceAsked,
    ResourceDecided, RunReported, SchedulingSet, TenantSet,
};
use vocab::{CancelVerdict, Candidate, Event, Filter, GpuShare, PriorityTarget};

pub fn event_to_proto(event: &Event) -> v1::Event {
    let kind = match event {
        Event::QuotaSet(Applied {
            operation,
            change:
                QuotaSet {
                    account,
                    resource,
                    limits,
                    validity,
                },
            version,
        }) => quota_to_proto(
            operation,
            account,
            resource,
            limits.as_ref(),
            *validity,
            *version,
        ),
        Event::BudgetSet(Applied {
            operation,
            change:
                BudgetSet {
                    account,
                    of,
                    budget,
                },
            version,
        }) => budget_to_proto(operation, account, of, budget.as_ref(), *version),
        Event::TenantSet(Applied {
            operation,
            change: TenantSet { tenant, settings },
            version,
        }) => Kind::TenantSet(v1::TenantSet {
            operation: operation_to_proto(operation),
            tenant: tenant.to_string(),
            version: *version,
            settings: settings_to_proto(settings),
        }),
        Event::RateSet(Applied {
            operation,
            change:
                RateSet {
                    resource,
                    micro_per_unit_hour,
                    effective_from,
                },
            version,
        }) => Kind::RateSet(v1::RateSet {
            operation: operation_to_proto(operation),
            resource: resource.to_string(),
            micro_per_unit_hour: *micro_per_unit_hour,
            effective_from_ms: effective_from.0,
            version: *version,
        }),
        Event::QueueSet(Applied {
            operation,
            change: QueueSet { queue, settings },
            version,
        }) => Kind::QueueSet(v1::QueueSet {
            operation: operation_to_proto(operation),
            queue: queue.to_string(),
            settings: Some(queue_to_proto(settings)),
            version: *version,
        }),
        Event::PriorityClassSet(Applied {
            operation,
            change: PriorityClassSet { class, settings },
            version,
        }) => Kind::PriorityClassSet(v1::PriorityClassSet {
            operation: operation_to_proto(operation),
            priority_class: class.to_string(),
            settings: Some(class_to_proto(settings)),
            version: *version,
        }),
        Event::SchedulingSet(Applied {
            operation,
            change: SchedulingSet { policy },
            version,
        }) => Kind::SchedulingSet(v1::SchedulingSet {
            operation: operation_to_proto(operation),
            policy: Some(policy_to_proto(policy)),
            version: *version,
        }),
        Event::CordonSet(Applied {
            operation,
            change: CordonSet { node, cordoned },
            version,
        }) => Kind::CordonSet(v1::CordonSet {
            operation: operation_to_proto(operation),
            node: node.to_string(),
            cordoned: *cordoned,
            version: *version,
        }),
        Event::ReservationSet(Applied {
            operation,
            change:
                ReservationSet {
                    reservation,
                    wanted,
                },
            version,
        }) => Kind::ReservationSet(v1::ReservationSet {
            operation: operation_to_proto(operation),
            reservation: reservation.to_string(),
            wanted: wanted.as_ref().map(reservation_to_proto),
            version: *version,
        }),
        Event::NodeSet(Applied {
            operation,
            change: NodeSet { node, approval },
            version,
        }) => Kind::NodeSet(v1::NodeSet {
            operation: operation_to_proto(operation),
            node: node.to_string(),
            approval: approval.as_deref().map(approval_to_proto),
            version: *version,
        }),
        Event::AllocationRequested(AllocationRequested { operation, spec }) => {
            Kind::AllocationRequested(v1::AllocationRequested {
                operation: operation_to_proto(operation),
                spec: Some(spec_to_proto(spec)),
            })
        }
        Event::CancelRequested(CancelRequested {
            operation,
            allocation,
        }) => Kind::CancelRequested(v1::CancelRequested {
            operation: operation_to_proto(operation),
            allocation: allocation.0,
        }),
        Event::JobSetCancelRequested(JobSetCancelRequested { operation, job_set }) => {
            Kind::JobSetCancelRequested(v1::JobSetCancelRequested {
                operation: operation_to_proto(operation),
                job_set: job_set.to_string(),
            })
        }
        Event::PriorityRequested(PriorityRequested {
            operation,
            target,
            priority,
        }) => Kind::PriorityRequested(v1::PriorityRequested {
            operation: operation_to_proto(operation),
            target: Some(target_to_proto(target)),
            priority: *priority,
        }),
        Event::ResourceAsked(ResourceAsked {
            operation,
            slot,
            by_requests,
            ask,
        }) => asked_to_proto(operation, (*slot, *by_requests), ask),
        Event::OperationRefused(OperationRefused {
            operation,
            job_set,
            refusal,
        }) => Kind::OperationRefused(v1::OperationRefused {
            operation: operation_to_proto(operation),
            job_set: text(job_set),
            refusal: Some(refusal_to_proto(refusal)),
        }),
        Event::OperationRepeated(OperationRepeated {
            tenant,
            original,
            reply_to,
        }) => Kind::OperationRepeated(v1::OperationRepeated {
            tenant: tenant.to_string(),
            original: original.0,
            reply_to: text(reply_to),
        }),
        Event::OperationsForgotten(OperationsForgotten {
            through,
            slots_of,
            ended_through,
            denied_through,
        }) => Kind::OperationsForgotten(v1::OperationsForgotten {
            through: through.0,
            slots_of: text(slots_of),
            ended_through: ended_through.0,
            denied_through: denied_through.0,
        }),
        Event::QuotaReserved(QuotaReserved {
            allocation,
            flags,
            models,
        }) => Kind::QuotaReserved(v1::QuotaReserved {
            allocation: allocation.0,
            flags: flags.0,
            models: models.as_ref().map(|models| v1::ModelGrant {
                counts_on: texts(&models.counts_on),
                except: texts(&models.except),
            }),
        }),
        Event::QuotaWaiting(QuotaWaiting {
            allocation,
            refusal,
        }) => Kind::QuotaWaiting(v1::QuotaWaiting {
            allocation: allocation.0,
            refusal: Some(refusal_to_proto(refusal)),
        }),
        Event::QuotaReclaimed(QuotaReclaimed { allocation, by }) => {
            Kind::QuotaReclaimed(v1::QuotaReclaimed {
                allocation: allocation.0,
                by: by.map_or(0, |by| by.0),
            })
        }
        Event::LimitsInForce(LimitsInForce {
            account,
            resource,
            limits,
        }) => Kind::LimitsInForce(v1::LimitsInForce {
            tenant: account.tenant.to_string(),
            team: text(&account.team),
            namespace: text(&account.namespace),
            resource: resource.to_string(),
            limits: limits.as_ref().map(limits_to_proto),
        }),
        Event::QuotaDenied(QuotaDenied {
            allocation,
            refusal,
        }) => Kind::QuotaDenied(v1::QuotaDenied {
            allocation: allocation.0,
            refusal: Some(refusal_to_proto(refusal)),
        }),
        Event::QuotaReleased(QuotaReleased { allocation }) => {
            Kind::QuotaReleased(v1::QuotaReleased {
                allocation: allocation.0,
            })
        }
        Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node,
            incarnation,
            gpus,
            zones,
            policy,
            candidates,
        }) => Kind::AllocationPlaced(v1::AllocationPlaced {
            allocation: allocation.0,
            node: node.to_string(),
            incarnation: *incarnation,
            gpus: shares_to_proto(gpus),
            zones: (*zones).into(),
            policy: *policy as i32,
            candidates: candidates.iter().map(candidate_to_proto).collect(),
        }),
        Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason,
            line,
        }) => Kind::AllocationWaiting(v1::AllocationWaiting {
            allocation: allocation.0,
            reason: waiting_number(*reason),
            line: line.map_or(0, |line| line.0),
        }),
        Event::LineExplained(LineExplained {
            line,
            queue,
            reason,
            head,
            counts,
            shortfall,
            share_ppm,
            fair_share_ppm,
        }) => Kind::LineExplained(v1::LineExplained {
            line: line.0,
            queue: queue.to_string(),
            reason: waiting_number(*reason),
            head: head.0,
            counts: counts.iter().map(count_to_proto).collect(),
            shortfall: amounts_to_proto(shortfall),
            share_ppm: *share_ppm,
            fair_share_ppm: *fair_share_ppm,
        }),
        Event::AllocationPreempted(AllocationPreempted {
            allocation,
            cause,
            by,
            grace_until,
        }) => Kind::AllocationPreempted(v1::AllocationPreempted {
            allocation: allocation.0,
            cause: preemption_number(*cause),
            by: by.map_or(0, |by| by.0),
            grace_until_ms: grace_until.0,
        }),
        Event::AllocationNominated(AllocationNominated {
            allocation,
            node,
            incarnation,
        }) => Kind::AllocationNominated(v1::AllocationNominated {
            allocation: allocation.0,
            node: node.to_string(),
            incarnation: *incarnation,
        }),
        Event::AllocationRequeued(AllocationRequeued {
            allocation,
            cause,
            at,
            not_before,
        }) => Kind::AllocationRequeued(v1::AllocationRequeued {
            allocation: allocation.0,
            cause: cause_number(*cause),
            at_ms: at.0,
            not_before_ms: not_before.0,
        }),
        Event::ReservationDecided(ReservationDecided {
            reservation,
            version,
            nodes,
        }) => Kind::ReservationDecided(v1::ReservationDecided {
            reservation: reservation.to_string(),
            version: *version,
            nodes: texts(nodes),
        }),
        Event::AllocationStarted(AllocationStarted { allocation, at }) => {
            Kind::AllocationStarted(v1::AllocationStarted {
                allocation: allocation.0,
                at_ms: at.0,
            })
        }
        Event::AllocationStopping(AllocationStopping { allocation }) => {
            Kind::AllocationStopping(v1::AllocationStopping {
                allocation: allocation.0,
            })
        }
        Event::AllocationEnded(AllocationEnded {
            allocation,
            cause,
            at,
        }) => Kind::AllocationEnded(v1::AllocationEnded {
            allocation: allocation.0,
            cause: cause_number(*cause),
            at_ms: at.0,
        }),
        Event::CancelDecided(CancelDecided {
            request,
            allocation,
            verdict,
        }) => Kind::CancelDecided(v1::CancelDecided {
            request: request.0,
            allocation: allocation.0,
            was_live: *verdict == CancelVerdict::WasLive,
        }),
        Event::JobSetCancelDecided(JobSetCancelDecided {
            request,
            allocations,
        }) => Kind::JobSetCancelDecided(v1::JobSetCancelDecided {
            request: request.0,
            allocations: *allocations,
        }),
        Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority,
        }) => Kind::AllocationReprioritised(v1::AllocationReprioritised {
            allocation: allocation.0,
            priority: *priority,
        }),
        Event::PriorityDecided(PriorityDecided {
            request,
            allocations,
            refusal,
        }) => Kind::PriorityDecided(v1::PriorityDecided {
            request: request.0,
            allocations: *allocations,
            refusal: refusal.as_ref().map(refusal_to_proto),
        }),
        Event::ResourceDecided(ResourceDecided { request, answer }) => {
            Kind::ResourceDecided(v1::ResourceDecided {
                request: request.0,
                answer: Some(answer_to_proto(answer)),
            })
        }
        Event::ReservationExpired(ReservationExpired {
            tenant,
            reservation,
            slot,
            epoch,
            retire_after,
        }) => Kind::ReservationExpired(v1::ReservationExpired {
            tenant: tenant.to_string(),
            reservation: reservation.0,
            slot: *slot,
            epoch: *epoch,
            retire_after: *retire_after,
        }),
        Event::NodeRegistered(NodeRegistered {
            node,
            incarnation,
            boot,
            capacity,
        }) => Kind::NodeRegistered(v1::NodeRegistered {
            node: node.to_string(),
            incarnation: *incarnation,
            capacity: Some(capacity_to_proto(capacity)),
            boot: (boot != incarnation).then_some(*boot),
        }),
        Event::NodeJoined(NodeJoined { node, key, version }) => Kind::NodeJoined(v1::NodeJoined {
            node: node.to_string(),
            key: key.to_string(),
            version: *version,
        }),
        Event::NodeForgotten(NodeForgotten { node }) => Kind::NodeForgotten(v1::NodeForgotten {
            node: node.to_string(),
        }),
        Event::NodeReady(NodeReady { node, incarnation }) => Kind::NodeReady(v1::NodeReady {
            node: node.to_string(),
            incarnation: *incarnation,
        }),
        Event::NodeLost(NodeLost {
            node,
            incarnation,
            last_seen,
        }) => Kind::NodeLost(v1::NodeLost {
            node: node.to_string(),
            incarnation: *incarnation,
            last_seen_ms: last_seen.0,
        }),
        Event::RunReported(RunReported {
            allocation,
            node,
            state,
            at,
        }) => Kind::RunReported(v1::RunReported {
            allocation: allocation.0,
            node: node.to_string(),
            state: *state as i32,
            at_ms: at.0,
        }),
    };
    v1::Event { kind: Some(kind) }
}

pub fn shares_to_proto(gpus: &[GpuShare]) -> Vec<v1::GpuShare> {
    gpus.iter()
        .map(|share| v1::GpuShare {
            device: share.device.into(),
            milli: share.milli.into(),
        })
        .collect()
}

fn target_to_proto(target: &PriorityTarget) -> v1::priority_requested::Target {
    match target {
        PriorityTarget::Allocation(no) => v1::priority_requested::Target::Allocation(no.0),
        PriorityTarget::JobSet(name) => v1::priority_requested::Target::JobSet(name.to_string()),
    }
}

fn candidate_to_proto(candidate: &Candidate) -> v1::Candidate {
    v1::Candidate {
        node: candidate.node.to_string(),
        score: candidate.score,
    }
}

fn count_to_proto(&(filter, nodes): &(Filter, u32)) -> v1::FilterCount {
    v1::FilterCount {
        filter: filter as i32,
        nodes,
    }
}
