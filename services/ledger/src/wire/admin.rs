//! What operators set.

use super::{
    WireError, amounts_from_proto, amounts_to_proto, capacity_from_proto, capacity_to_proto,
    optional_token, order_from_number, placement_from_number, requirements_from_proto,
    requirements_to_proto, text, texts, token, tokens,
};
use schemas::v1;
use vocab::{AdvanceReservation, Millis, NodeApproval, PriorityClass};
use vocab::{QueueSettings, SchedulingPolicy};

pub(super) fn queue_to_proto(settings: &QueueSettings) -> v1::QueueSettings {
    v1::QueueSettings {
        parent: text(&settings.parent),
        weight_milli: settings.weight_milli,
        limits: amounts_to_proto(&settings.limits),
        tenants: texts(&settings.tenants),
        order: settings.order as i32,
        placement: settings.placement.map(|policy| policy as i32),
    }
}

pub(super) fn queue_from_proto(
    settings: Option<v1::QueueSettings>,
) -> Result<QueueSettings, WireError> {
    let settings = settings.ok_or(WireError("queue.settings"))?;
    Ok(QueueSettings {
        parent: optional_token(&settings.parent, "queue.parent")?,
        weight_milli: settings.weight_milli,
        limits: amounts_from_proto(&settings.limits, "queue.limits")?,
        tenants: tokens(&settings.tenants, "queue.tenants")?,
        order: order_from_number(settings.order)?,
        placement: settings.placement.map(placement_from_number).transpose()?,
    })
}

pub(super) fn class_to_proto(settings: &PriorityClass) -> v1::PriorityClass {
    v1::PriorityClass {
        value: settings.value,
        preemptible: settings.preemptible,
        preempts: settings.preempts,
        grace_ms: settings.grace_ms,
        placement: settings.placement.map(|policy| policy as i32),
    }
}

pub(super) fn class_from_proto(
    settings: Option<v1::PriorityClass>,
) -> Result<PriorityClass, WireError> {
    let settings = settings.ok_or(WireError("priority_class.settings"))?;
    Ok(PriorityClass {
        value: settings.value,
        preemptible: settings.preemptible,
        preempts: settings.preempts,
        grace_ms: settings.grace_ms,
        placement: settings.placement.map(placement_from_number).transpose()?,
    })
}

pub(super) fn policy_to_proto(policy: &SchedulingPolicy) -> v1::SchedulingPolicy {
    v1::SchedulingPolicy {
        placement: policy.placement as i32,
        half_life_ms: policy.half_life_ms,
        fair_share_preemption: policy.fair_share_preemption,
        protected_milli: policy.protected_milli,
        preemptions_per_minute: policy.preemptions_per_minute,
        aging_ms: policy.aging_ms,
        backfill: policy.backfill,
        backoff_ms: policy.backoff_ms,
        backoff_ms_max: policy.backoff_ms_max,
    }
}

pub(super) fn policy_from_proto(
    policy: Option<v1::SchedulingPolicy>,
) -> Result<SchedulingPolicy, WireError> {
    let policy = policy.ok_or(WireError("scheduling.policy"))?;
    Ok(SchedulingPolicy {
        placement: placement_from_number(policy.placement)?,
        half_life_ms: policy.half_life_ms,
        fair_share_preemption: policy.fair_share_preemption,
        protected_milli: policy.protected_milli,
        preemptions_per_minute: policy.preemptions_per_minute,
        aging_ms: policy.aging_ms,
        backfill: policy.backfill,
        backoff_ms: policy.backoff_ms,
        backoff_ms_max: policy.backoff_ms_max,
    })
}

pub(super) fn reservation_to_proto(wanted: &AdvanceReservation) -> v1::AdvanceReservation {
    v1::AdvanceReservation {
        queue: wanted.queue.to_string(),
        from_ms: wanted.from.0,
        until_ms: wanted.until.0,
        nodes: wanted.nodes,
        selector: requirements_to_proto(&wanted.selector),
    }
}

pub(super) fn approval_to_proto(approval: &NodeApproval) -> v1::NodeApproval {
    v1::NodeApproval {
        capacity: Some(capacity_to_proto(&approval.capacity)),
        token: approval.token.to_vec(),
        until_ms: approval.until.0,
    }
}

pub(super) fn approval_from_proto(approval: v1::NodeApproval) -> Result<NodeApproval, WireError> {
    Ok(NodeApproval {
        capacity: capacity_from_proto(approval.capacity)?,
        token: (approval.token.try_into()).map_err(|_| WireError("approval.token"))?,
        until: Millis(approval.until_ms),
    })
}

pub(super) fn reservation_from_proto(
    wanted: &v1::AdvanceReservation,
) -> Result<AdvanceReservation, WireError> {
    Ok(AdvanceReservation {
        queue: token(&wanted.queue, "reservation.queue")?,
        from: Millis(wanted.from_ms),
        until: Millis(wanted.until_ms),
        nodes: wanted.nodes,
        selector: requirements_from_proto(&wanted.selector)?,
    })
}
