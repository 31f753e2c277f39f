//! The tables of what operators have set, each with the version of its last change. They change rarely: row by row will do.

use super::reservations;
use crate::project::SettingRow;
use chassis::warm::{WarmError, merge};
use sqlx::PgConnection;
use table::Table;
use vocab::{
    Millis, PlacementPolicy, QueueOrder, QueueSettings, ResourceKind, SchedulingPolicy, Token,
};

pub async fn upsert(tx: &mut PgConnection, row: &SettingRow) -> Result<(), WarmError> {
    match row {
        SettingRow::Queue {
            queue,
            settings,
            version,
            at,
        } => merge(tx, &[Queue::of(queue, settings, (*version, *at))]).await,
        SettingRow::Policy {
            policy,
            version,
            at,
        } => merge(tx, &[Policy::of(policy, (*version, *at))]).await,
        SettingRow::TenantWeight {
            tenant,
            weight_milli,
            version,
            at,
        } => {
            let row = Weight {
                tenant,
                weight_milli: *weight_milli,
                version: *version,
                changed_at: *at,
            };
            merge(tx, &[row]).await
        }
        SettingRow::Reservation(row) => merge(tx, &[reservations::Record::of(row)]).await,
    }
}

/// Queues.
#[derive(Table)]
#[table(name = "queues", key(queue))]
#[table(check(queues_check, "parent <> queue"))]
pub struct Queue<'a> {
    queue: &'a Token,
    parent: Option<&'a Token>,
    #[table(check = "weight_milli > 0")]
    weight_milli: u32,
    /// None: as much as there is.
    #[table(check = "cpu_milli_limit >= 0")]
    cpu_milli_limit: Option<u64>,
    #[table(check = "memory_bytes_limit >= 0")]
    memory_bytes_limit: Option<u64>,
    #[table(check = "gpu_milli_limit >= 0")]
    gpu_milli_limit: Option<u64>,
    /// Who may submit to it beside the tenant of its name.
    tenants: &'a Vec<Token>,
    queue_order: QueueOrder,
    /// None: the cell's.
    placement: Option<PlacementPolicy>,
    #[table(check = "version > 0")]
    version: u64,
    changed_at: Millis,
}

impl<'a> Queue<'a> {
    fn of(
        queue: &'a Token,
        settings: &'a QueueSettings,
        (version, changed_at): (u64, Millis),
    ) -> Self {
        let limit = |kind| {
            let limit = settings.limits.iter().find(|(of, _)| *of == kind);
            limit.map(|(_, limit)| *limit)
        };
        Self {
            queue,
            parent: settings.parent.as_ref(),
            weight_milli: settings.weight_milli,
            cpu_milli_limit: limit(ResourceKind::Cpu),
            memory_bytes_limit: limit(ResourceKind::Memory),
            gpu_milli_limit: limit(ResourceKind::Gpu),
            tenants: &settings.tenants,
            queue_order: settings.order,
            placement: settings.placement,
            version,
            changed_at,
        }
    }
}

/// One row, once somebody has set it.
#[derive(Table)]
#[table(name = "scheduling_policy", key(one))]
pub struct Policy {
    #[table(default = "true", check = "one")]
    one: bool,
    placement: PlacementPolicy,
    #[table(check = "half_life_ms >= 0")]
    half_life_ms: u64,
    fair_share_preemption: bool,
    #[table(check = "protected_milli BETWEEN 0 AND 1000")]
    protected_milli: u32,
    #[table(check = "preemptions_per_minute >= 0")]
    preemptions_per_minute: u64,
    #[table(check = "aging_ms >= 0")]
    aging_ms: u64,
    backfill: bool,
    #[table(check = "backoff_ms >= 0")]
    backoff_ms: u64,
    #[table(check = "backoff_ms_max >= 0")]
    backoff_ms_max: u64,
    #[table(check = "version > 0")]
    version: u64,
    changed_at: Millis,
}

impl Policy {
    fn of(policy: &SchedulingPolicy, (version, changed_at): (u64, Millis)) -> Self {
        Self {
            one: true,
            placement: policy.placement,
            half_life_ms: policy.half_life_ms,
            fair_share_preemption: policy.fair_share_preemption,
            protected_milli: policy.protected_milli,
            preemptions_per_minute: policy.preemptions_per_minute.into(),
            aging_ms: policy.aging_ms,
            backfill: policy.backfill,
            backoff_ms: policy.backoff_ms,
            backoff_ms_max: policy.backoff_ms_max,
            version,
            changed_at,
        }
    }
}

/// The weight of a tenant's own queue, where nobody has set that queue.
#[derive(Table)]
#[table(name = "tenant_weights", key(tenant))]
pub struct Weight<'a> {
    tenant: &'a Token,
    #[table(check = "weight_milli > 0")]
    weight_milli: u32,
    #[table(check = "version > 0")]
    version: u64,
    changed_at: Millis,
}
