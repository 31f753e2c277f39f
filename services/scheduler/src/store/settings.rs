//! The tables of what operators have set. They change rarely: row by row will do.

use super::{names::joined, reservations};
use crate::project::SettingRow;
use chassis::warm::{Moment, OutOfRange, WarmError, bigint};
use sqlx::PgConnection;
use vocab::{PlacementPolicy, PriorityClass, QueueSettings, ResourceKind, SchedulingPolicy, Token};

/// Of which change the row is.
struct Change {
    version: i64,
    at: Moment,
}

pub async fn upsert(tx: &mut PgConnection, row: &SettingRow) -> Result<(), WarmError> {
    let of = |version: u64, at| -> Result<Change, OutOfRange> {
        let (version, at) = (bigint("version", version)?, Moment::try_from(at)?);
        Ok(Change { version, at })
    };
    match row {
        SettingRow::Queue {
            queue,
            settings,
            version,
            at,
        } => upsert_queue(tx, queue, settings, of(*version, *at)?).await,
        SettingRow::PriorityClass {
            class,
            settings,
            version,
            at,
        } => upsert_priority_class(tx, class, settings, of(*version, *at)?).await,
        SettingRow::Policy {
            policy,
            version,
            at,
        } => upsert_policy(tx, policy, of(*version, *at)?).await,
        SettingRow::Cordon {
            node,
            cordoned,
            version,
            at,
        } => upsert_cordon(tx, node, *cordoned, of(*version, *at)?).await,
        SettingRow::TenantWeight {
            tenant,
            weight_milli,
            version,
            at,
        } => upsert_weight(tx, tenant, *weight_milli, of(*version, *at)?).await,
        SettingRow::Reservation(row) => reservations::upsert(tx, row).await,
    }
}

async fn upsert_weight(
    tx: &mut PgConnection,
    tenant: &Token,
    weight_milli: u32,
    change: Change,
) -> Result<(), WarmError> {
    let weight = i32::try_from(weight_milli);
    sqlx::query!(
        "INSERT INTO tenant_weights (tenant, weight_milli, version, changed_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (tenant) DO UPDATE SET
             weight_milli = excluded.weight_milli, version = excluded.version, changed_at = excluded.changed_at",
        tenant.as_str(),
        weight.map_err(|_| OutOfRange::new("weight_milli", weight_milli))?,
        change.version,
        change.at as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn upsert_queue(
    tx: &mut PgConnection,
    queue: &Token,
    settings: &QueueSettings,
    change: Change,
) -> Result<(), WarmError> {
    let limit = |kind| {
        let limit = settings.limits.iter().find(|(of, _)| *of == kind);
        limit.map(|(_, limit)| bigint("limit", *limit)).transpose()
    };
    let weight = i32::try_from(settings.weight_milli);
    sqlx::query!(
        "INSERT INTO queues (queue, parent, weight_milli, cpu_milli_limit, memory_bytes_limit, gpu_milli_limit, tenants,
                             queue_order, placement, version, changed_at)
         VALUES ($1, $2, $3, $4, $5, $6, string_to_array($7, ','), $8, $9, $10, $11)
         ON CONFLICT (queue) DO UPDATE SET
             parent = excluded.parent, weight_milli = excluded.weight_milli,
             cpu_milli_limit = excluded.cpu_milli_limit, memory_bytes_limit = excluded.memory_bytes_limit,
             gpu_milli_limit = excluded.gpu_milli_limit, tenants = excluded.tenants,
             queue_order = excluded.queue_order, placement = excluded.placement, version = excluded.version,
             changed_at = excluded.changed_at",
        queue.as_str(),
        settings.parent.as_ref().map(Token::as_str),
        weight.map_err(|_| OutOfRange::new("weight_milli", settings.weight_milli))?,
        limit(ResourceKind::Cpu)?,
        limit(ResourceKind::Memory)?,
        limit(ResourceKind::Gpu)?,
        joined(&settings.tenants, Token::as_str),
        settings.order.name(),
        settings.placement.map(PlacementPolicy::name),
        change.version,
        change.at as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn upsert_priority_class(
    tx: &mut PgConnection,
    class: &Token,
    settings: &PriorityClass,
    change: Change,
) -> Result<(), WarmError> {
    sqlx::query!(
        "INSERT INTO priority_classes (priority_class, value, preemptible, preempts, grace_ms, placement, version,
                                       changed_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (priority_class) DO UPDATE SET
             value = excluded.value, preemptible = excluded.preemptible, preempts = excluded.preempts,
             grace_ms = excluded.grace_ms, placement = excluded.placement, version = excluded.version,
             changed_at = excluded.changed_at",
        class.as_str(),
        settings.value,
        settings.preemptible,
        settings.preempts,
        bigint("grace_ms", settings.grace_ms)?,
        settings.placement.map(PlacementPolicy::name),
        change.version,
        change.at as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn upsert_policy(
    tx: &mut PgConnection,
    policy: &SchedulingPolicy,
    change: Change,
) -> Result<(), WarmError> {
    let protected = i32::try_from(policy.protected_milli);
    sqlx::query!(
        "INSERT INTO scheduling_policy (placement, half_life_ms, fair_share_preemption, protected_milli,
                                        preemptions_per_minute, aging_ms, backfill, backoff_ms, backoff_ms_max, version,
                                        changed_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (one) DO UPDATE SET
             placement = excluded.placement, half_life_ms = excluded.half_life_ms,
             fair_share_preemption = excluded.fair_share_preemption, protected_milli = excluded.protected_milli,
             preemptions_per_minute = excluded.preemptions_per_minute, aging_ms = excluded.aging_ms,
             backfill = excluded.backfill, backoff_ms = excluded.backoff_ms, backoff_ms_max = excluded.backoff_ms_max,
             version = excluded.version, changed_at = excluded.changed_at",
        policy.placement.name(),
        bigint("half_life_ms", policy.half_life_ms)?,
        policy.fair_share_preemption,
        protected.map_err(|_| OutOfRange::new("protected_milli", policy.protected_milli))?,
        i64::from(policy.preemptions_per_minute),
        bigint("aging_ms", policy.aging_ms)?,
        policy.backfill,
        bigint("backoff_ms", policy.backoff_ms)?,
        bigint("backoff_ms_max", policy.backoff_ms_max)?,
        change.version,
        change.at as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn upsert_cordon(
    tx: &mut PgConnection,
    node: &Token,
    cordoned: bool,
    change: Change,
) -> Result<(), WarmError> {
    sqlx::query!(
        "INSERT INTO cordons (node, cordoned, version, changed_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (node) DO UPDATE SET
             cordoned = excluded.cordoned, version = excluded.version, changed_at = excluded.changed_at",
        node.as_str(),
        cordoned,
        change.version,
        change.at as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}
