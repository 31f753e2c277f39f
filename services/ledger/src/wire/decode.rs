//! Messages into events.

use super::account::{
    account_from_proto, budget_from_proto, limits_from_proto, quota_from_proto,
    resource_from_proto, settings_from_proto,
};
use super::admin::{
    approval_from_proto, class_from_proto, policy_from_proto, queue_from_proto,
    reservation_from_proto,
};
use super::operation::{operation_from_proto, refusal_from_proto};
use super::resource::{answer_from_proto, ask_from_proto};
use super::{
    WireError, amounts_from_proto, capacity_from_proto, cause_number, find, narrow, optional_token,
    placement_from_number, preemption_number, spec_from_proto, token, tokens, waiting_number,
};
use bytes::Bytes;
use prost::Message;
use schemas::v1;
use v1::event::Kind;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationReprioritised, AllocationRequested, AllocationRequeued, AllocationStarted,
    AllocationStopping, AllocationWaiting, Applied, CancelDecided, CancelRequested, CordonSet,
    JobSetCancelDecided, JobSetCancelRequested, LimitsInForce, LineExplained, NodeForgotten,
    NodeJoined, NodeLost, NodeReady, NodeRegistered, NodeSet, OperationRefused, OperationRepeated,
    OperationsForgotten, PriorityClassSet, PriorityDecided, PriorityRequested, QueueSet,
    QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaWaiting, RateSet,
    ReservationDecided, ReservationExpired, ReservationSet, ResourceAsked, ResourceDecided,
    RunReported, SchedulingSet, TenantSet,
};
use vocab::{
    AllocationNo, CancelVerdict, Candidate, EndCause, Event, EventNo, Filter, GpuShare, LineNo,
    Millis, ModelGrant, PreemptionCause, PriorityTarget, QuotaFlags, ReservationNo, ResourceKey,
    RunState, WaitingReason,
};

pub(crate) fn event_from_bytes(bytes: Bytes) -> Result<Event, String> {
    let event = v1::Event::decode(bytes).map_err(|error| error.to_string())?;
    event_from_proto(event).map_err(|error| error.to_string())
}

pub fn event_from_proto(event: v1::Event) -> Result<Event, WireError> {
    Ok(match event.kind.ok_or(WireError("event kind"))? {
        Kind::TenantSet(e) => Event::TenantSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: TenantSet {
                tenant: token(&e.tenant, "tenant")?,
                settings: settings_from_proto(e.settings)?,
            },
            version: e.version,
        }),
        Kind::QuotaSet(e) => Event::QuotaSet(Applied {
            change: quota_from_proto(&e)?,
            version: e.version,
            operation: operation_from_proto(e.operation)?,
        }),
        Kind::BudgetSet(e) => Event::BudgetSet(Applied {
            change: budget_from_proto(&e)?,
            version: e.version,
            operation: operation_from_proto(e.operation)?,
        }),
        Kind::RateSet(e) => Event::RateSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: RateSet {
                resource: ResourceKey::parse(&e.resource).ok_or(WireError("resource"))?,
                micro_per_unit_hour: e.micro_per_unit_hour,
                effective_from: Millis(e.effective_from_ms),
            },
            version: e.version,
        }),
        Kind::QueueSet(e) => Event::QueueSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: QueueSet {
                queue: token(&e.queue, "queue")?,
                settings: queue_from_proto(e.settings)?,
            },
            version: e.version,
        }),
        Kind::PriorityClassSet(e) => Event::PriorityClassSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: PriorityClassSet {
                class: token(&e.priority_class, "priority_class")?,
                settings: class_from_proto(e.settings)?,
            },
            version: e.version,
        }),
        Kind::SchedulingSet(e) => Event::SchedulingSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: SchedulingSet {
                policy: policy_from_proto(e.policy)?,
            },
            version: e.version,
        }),
        Kind::CordonSet(e) => Event::CordonSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: CordonSet {
                node: token(&e.node, "node")?,
                cordoned: e.cordoned,
            },
            version: e.version,
        }),
        Kind::ReservationSet(e) => Event::ReservationSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: ReservationSet {
                reservation: token(&e.reservation, "reservation")?,
                wanted: e.wanted.as_ref().map(reservation_from_proto).transpose()?,
            },
            version: e.version,
        }),
        Kind::NodeSet(e) => Event::NodeSet(Applied {
            operation: operation_from_proto(e.operation)?,
            change: NodeSet {
                node: token(&e.node, "node")?,
                approval: e
                    .approval
                    .map(approval_from_proto)
                    .transpose()?
                    .map(Box::new),
            },
            version: e.version,
        }),
        Kind::AllocationRequested(e) => Event::AllocationRequested(AllocationRequested {
            operation: operation_from_proto(e.operation)?,
            spec: spec_from_proto(e.spec)?,
        }),
        Kind::CancelRequested(e) => Event::CancelRequested(CancelRequested {
            operation: operation_from_proto(e.operation)?,
            allocation: AllocationNo(e.allocation),
        }),
        Kind::JobSetCancelRequested(e) => Event::JobSetCancelRequested(JobSetCancelRequested {
            operation: operation_from_proto(e.operation)?,
            job_set: token(&e.job_set, "job_set")?,
        }),
        Kind::PriorityRequested(e) => Event::PriorityRequested(PriorityRequested {
            operation: operation_from_proto(e.operation)?,
            target: target_from_proto(e.target)?,
            priority: e.priority,
        }),
        Kind::ResourceAsked(e) => Event::ResourceAsked(ResourceAsked {
            operation: operation_from_proto(e.operation)?,
            slot: e.slot,
            by_requests: e.by_requests,
            ask: ask_from_proto(e.ask)?,
        }),
        Kind::OperationRefused(e) => Event::OperationRefused(OperationRefused {
            operation: operation_from_proto(e.operation)?,
            job_set: optional_token(&e.job_set, "job_set")?,
            refusal: refusal_from_proto(e.refusal)?,
        }),
        Kind::OperationRepeated(e) => Event::OperationRepeated(OperationRepeated {
            tenant: token(&e.tenant, "tenant")?,
            original: EventNo(e.original),
            reply_to: optional_token(&e.reply_to, "reply_to")?,
        }),
        Kind::OperationsForgotten(e) => Event::OperationsForgotten(OperationsForgotten {
            through: EventNo(e.through),
            slots_of: optional_token(&e.slots_of, "slots_of")?,
            ended_through: EventNo(e.ended_through),
            denied_through: EventNo(e.denied_through),
        }),
        Kind::QuotaReserved(e) => Event::QuotaReserved(QuotaReserved {
            allocation: AllocationNo(e.allocation),
            flags: QuotaFlags(e.flags),
            models: match e.models {
                Some(models) => Some(Box::new(ModelGrant {
                    counts_on: tokens(&models.counts_on, "counts_on")?,
                    except: tokens(&models.except, "except")?,
                })),
                None => None,
            },
        }),
        Kind::QuotaWaiting(e) => Event::QuotaWaiting(QuotaWaiting {
            allocation: AllocationNo(e.allocation),
            refusal: refusal_from_proto(e.refusal)?,
        }),
        Kind::QuotaReclaimed(e) => Event::QuotaReclaimed(QuotaReclaimed {
            allocation: AllocationNo(e.allocation),
            by: (e.by != 0).then_some(AllocationNo(e.by)),
        }),
        Kind::LimitsInForce(e) => Event::LimitsInForce(LimitsInForce {
            account: account_from_proto(&e.tenant, &e.team, &e.namespace)?,
            resource: resource_from_proto(&e.resource)?,
            limits: e.limits.as_ref().map(limits_from_proto),
        }),
        Kind::QuotaDenied(e) => Event::QuotaDenied(QuotaDenied {
            allocation: AllocationNo(e.allocation),
            refusal: refusal_from_proto(e.refusal)?,
        }),
        Kind::QuotaReleased(e) => Event::QuotaReleased(QuotaReleased {
            allocation: AllocationNo(e.allocation),
        }),
        Kind::AllocationPlaced(e) => Event::AllocationPlaced(AllocationPlaced {
            allocation: AllocationNo(e.allocation),
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
            gpus: shares_from_proto(&e.gpus)?,
            zones: narrow(e.zones, "zones")?,
            policy: placement_from_number(e.policy)?,
            candidates: candidates_from_proto(&e.candidates)?,
        }),
        Kind::AllocationWaiting(e) => Event::AllocationWaiting(AllocationWaiting {
            allocation: AllocationNo(e.allocation),
            reason: find(&WaitingReason::ALL, e.reason, waiting_number, "reason")?,
            line: (e.line != 0).then_some(LineNo(e.line)),
        }),
        Kind::LineExplained(e) => Event::LineExplained(LineExplained {
            line: LineNo(e.line),
            queue: token(&e.queue, "queue")?,
            reason: find(&WaitingReason::ALL, e.reason, waiting_number, "reason")?,
            head: AllocationNo(e.head),
            counts: counts_from_proto(&e.counts)?,
            shortfall: amounts_from_proto(&e.shortfall, "shortfall")?,
            share_ppm: e.share_ppm,
            fair_share_ppm: e.fair_share_ppm,
        }),
        Kind::AllocationPreempted(e) => Event::AllocationPreempted(AllocationPreempted {
            allocation: AllocationNo(e.allocation),
            cause: find(&PreemptionCause::ALL, e.cause, preemption_number, "cause")?,
            by: (e.by != 0).then_some(AllocationNo(e.by)),
            grace_until: Millis(e.grace_until_ms),
        }),
        Kind::AllocationNominated(e) => Event::AllocationNominated(AllocationNominated {
            allocation: AllocationNo(e.allocation),
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
        }),
        Kind::AllocationRequeued(e) => Event::AllocationRequeued(AllocationRequeued {
            allocation: AllocationNo(e.allocation),
            cause: find(&EndCause::ALL, e.cause, cause_number, "cause")?,
            at: Millis(e.at_ms),
            not_before: Millis(e.not_before_ms),
        }),
        Kind::ReservationDecided(e) => Event::ReservationDecided(ReservationDecided {
            reservation: token(&e.reservation, "reservation")?,
            version: e.version,
            nodes: tokens(&e.nodes, "nodes")?,
        }),
        Kind::AllocationStarted(e) => Event::AllocationStarted(AllocationStarted {
            allocation: AllocationNo(e.allocation),
            at: Millis(e.at_ms),
        }),
        Kind::AllocationStopping(e) => Event::AllocationStopping(AllocationStopping {
            allocation: AllocationNo(e.allocation),
        }),
        Kind::AllocationEnded(e) => Event::AllocationEnded(AllocationEnded {
            allocation: AllocationNo(e.allocation),
            cause: find(&EndCause::ALL, e.cause, cause_number, "cause")?,
            at: Millis(e.at_ms),
        }),
        Kind::CancelDecided(e) => Event::CancelDecided(CancelDecided {
            request: EventNo(e.request),
            allocation: AllocationNo(e.allocation),
            verdict: if e.was_live {
                CancelVerdict::WasLive
            } else {
                CancelVerdict::HadEnded
            },
        }),
        Kind::JobSetCancelDecided(e) => Event::JobSetCancelDecided(JobSetCancelDecided {
            request: EventNo(e.request),
            allocations: e.allocations,
        }),
        Kind::AllocationReprioritised(e) => {
            Event::AllocationReprioritised(AllocationReprioritised {
                allocation: AllocationNo(e.allocation),
                priority: e.priority,
            })
        }
        Kind::PriorityDecided(e) => Event::PriorityDecided(PriorityDecided {
            request: EventNo(e.request),
            allocations: e.allocations,
            refusal: e.refusal.map(|r| refusal_from_proto(Some(r))).transpose()?,
        }),
        Kind::ResourceDecided(e) => Event::ResourceDecided(ResourceDecided {
            request: EventNo(e.request),
            answer: answer_from_proto(e.answer)?,
        }),
        Kind::ReservationExpired(e) => Event::ReservationExpired(ReservationExpired {
            tenant: token(&e.tenant, "tenant")?,
            reservation: ReservationNo(e.reservation),
            slot: e.slot,
            epoch: e.epoch,
            retire_after: e.retire_after,
        }),
        Kind::NodeRegistered(e) => Event::NodeRegistered(NodeRegistered {
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
            boot: e.boot.unwrap_or(e.incarnation),
            capacity: capacity_from_proto(e.capacity)?,
        }),
        Kind::NodeJoined(e) => Event::NodeJoined(NodeJoined {
            node: token(&e.node, "node")?,
            key: token(&e.key, "key")?,
            version: e.version,
        }),
        Kind::NodeForgotten(e) => Event::NodeForgotten(NodeForgotten {
            node: token(&e.node, "node")?,
        }),
        Kind::NodeReady(e) => Event::NodeReady(NodeReady {
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
        }),
        Kind::NodeLost(e) => Event::NodeLost(NodeLost {
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
            last_seen: Millis(e.last_seen_ms),
        }),
        Kind::RunReported(e) => Event::RunReported(RunReported {
            allocation: AllocationNo(e.allocation),
            node: token(&e.node, "node")?,
            state: find(&RunState::ALL, e.state, |state| state as i32, "state")?,
            at: Millis(e.at_ms),
        }),
    })
}

fn target_from_proto(
    target: Option<v1::priority_requested::Target>,
) -> Result<PriorityTarget, WireError> {
    use v1::priority_requested::Target;
    Ok(match target.ok_or(WireError("priority.target"))? {
        Target::Allocation(no) => PriorityTarget::Allocation(AllocationNo(no)),
        Target::JobSet(name) => PriorityTarget::JobSet(token(&name, "priority.job_set")?),
    })
}

fn shares_from_proto(gpus: &[v1::GpuShare]) -> Result<Vec<GpuShare>, WireError> {
    let share = |given: &v1::GpuShare| {
        Ok(GpuShare {
            device: narrow(given.device, "gpus.device")?,
            milli: narrow(given.milli, "gpus.milli")?,
        })
    };
    gpus.iter().map(share).collect()
}

fn candidates_from_proto(candidates: &[v1::Candidate]) -> Result<Vec<Candidate>, WireError> {
    let candidate = |given: &v1::Candidate| {
        Ok(Candidate {
            node: token(&given.node, "candidates.node")?,
            score: given.score,
        })
    };
    candidates.iter().map(candidate).collect()
}

fn counts_from_proto(counts: &[v1::FilterCount]) -> Result<Vec<(Filter, u32)>, WireError> {
    let count = |given: &v1::FilterCount| {
        let filter = find(
            &Filter::ALL,
            given.filter,
            |filter| filter as i32,
            "counts.filter",
        )?;
        Ok((filter, given.nodes))
    };
    counts.iter().map(count).collect()
}
