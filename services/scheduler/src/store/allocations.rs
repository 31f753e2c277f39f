//! The tables `live_allocations` and `ended_allocations`, and an allocation as either has it.

use super::{
    ended::{self, Facts},
    list::Wanted,
};
use crate::project::{AllocationState, Written};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::HashMap;
use table::{Read, Table};
use uuid::Uuid;
use vocab::{
    AllocationId, CellNo, EndCause, GpuShare, GpuShares, Lsn, Millis, PendingGroupNo, QosClass,
    QuotaFlags, Refusal, Rule, RunExit, Stage, TimeBounds, Token, WaitingReason,
};

/// Every allocation that is not over, as the ledger has it. One that is over is in `ended_allocations`; most are over before
/// they would be written here.
#[derive(Table)]
#[table(name = "live_allocations", key(allocation_id))]
#[table(check(
    gpu_is_all_or_none,
    "(gpu_count = 0) = (gpu_milli = 0) AND (gpu_count > 0 OR cardinality(gpu_models) = 0)"
))]
#[table(check(
    place_is_all_or_none,
    "(node IS NULL) = (placed_at IS NULL) AND (node IS NOT NULL OR cardinality(gpu_devices) = 0)"
))]
#[table(check(
    placed_with_the_devices_asked_for,
    "node IS NULL OR cardinality(gpu_devices) = gpu_count"
))]
#[table(check(
    every_device_has_its_share,
    "cardinality(gpu_devices) = cardinality(gpu_shares) AND 0 < ALL (gpu_shares) AND 1000 >= ALL (gpu_shares)"
))]
#[table(check(started_only_where_placed, "started_at IS NULL OR node IS NOT NULL"))]
// Reports are moved into the time of the placement; requests are on another service's clock.
#[table(check(nothing_before_its_placement, "started_at >= placed_at"))]
#[table(check(waits_only_in_the_queue, "waiting_reason IS NULL OR state = 'queued'"))]
#[table(check(
    state_fits_place,
    "CASE state
         WHEN 'requested' THEN node IS NULL
         WHEN 'queued' THEN node IS NULL
         WHEN 'nominated' THEN node IS NULL
         WHEN 'placed' THEN node IS NOT NULL AND started_at IS NULL
         WHEN 'running' THEN started_at IS NOT NULL
         WHEN 'stopping' THEN node IS NOT NULL
         ELSE true END"
))]
#[table(check(
    in_a_group_only_in_the_queue,
    "pending_group IS NULL OR state = 'queued'"
))]
#[table(check(
    nominated_for_a_node,
    "(state = 'nominated') = (nominated_node IS NOT NULL)"
))]
#[table(check(queued_again_for_a_cause, "(attempts = 0) = (last_end_cause IS NULL)"))]
#[table(check(preempted_from_its_node, "NOT preempted OR state = 'stopping'"))]
#[table(check(namespace_of_a_team, "namespace IS NULL OR team IS NOT NULL"))]
#[table(check(
    refusal_is_all_or_none,
    "num_nulls(quota_rule, quota_subject, quota_limit, quota_actual) IN (0, 4)"
))]
#[table(check(refused_by_quota_only, "quota_rule IS NULL OR state = 'requested'"))]
// Few are live, so a query for a queue's looks at all of them: every index is written with each placement.
// What a tenant has, the newest first, a page at a time.
#[table(index(of_tenant, on "tenant, allocation_id"))]
// What is on a node.
#[table(index(on_node, on "node", where "node IS NOT NULL"))]
// What waits for quota, for the operator's eye.
#[table(index(
    waiting_for_quota,
    on "tenant, requested_at",
    where "quota_rule IS NOT NULL"
))]
// Room for the next state beside the row.
#[table(with = "fillfactor = 70")]
pub struct Record<'a> {
    allocation_id: Uuid,
    // Names are checked where they are read; here by their length alone, because a regular expression took many times as
    // long.
    #[table(check = "length(tenant) BETWEEN 1 AND 64", fixed)]
    tenant: &'a Token,
    #[table(check = "length(job_set) BETWEEN 1 AND 64", fixed)]
    job_set: &'a Token,
    /// The tenant's own name for it.
    #[table(fixed)]
    name: Option<&'a Token>,
    priority: i32,
    #[table(check = "cpu_milli >= 0", fixed)]
    cpu_milli: u64,
    #[table(check = "memory_bytes >= 0", fixed)]
    memory_bytes: u64,
    /// Devices, and in `gpu_milli` the thousandths of each.
    #[table(check = "gpu_count >= 0", fixed)]
    gpu_count: u16,
    #[table(check = "gpu_milli BETWEEN 0 AND 1000", fixed)]
    gpu_milli: u16,
    /// Allowed models; empty means any.
    #[table(fixed)]
    gpu_models: Vec<&'a str>,
    #[table(
        check = "state IN ('requested', 'queued', 'nominated', 'placed', 'running', 'stopping')"
    )]
    state: Stage,
    /// In this state since then.
    since: Millis,
    /// None while it was never tried.
    waiting_reason: Option<WaitingReason>,
    node: Option<&'a Token>,
    /// Its devices on the node and in `gpu_shares` the thousandths taken of each, in the same order.
    gpu_devices: Vec<i32>,
    gpu_shares: Vec<i32>,
    #[table(fixed)]
    requested_at: Millis,
    placed_at: Option<Millis>,
    /// By the node's report.
    started_at: Option<Millis>,
    /// Ledger position of the last change.
    #[table(check = "lsn > 0")]
    lsn: Lsn,
    #[table(fixed)]
    queue: &'a Token,
    #[table(fixed)]
    priority_class: Option<&'a Token>,
    /// The name of its gang, among the tenant's.
    #[table(fixed)]
    gang: Option<&'a Token>,
    /// None while it is in no pending group, as during a pause.
    #[table(check = "pending_group > 0")]
    pending_group: Option<PendingGroupNo>,
    /// How often it was queued again.
    #[table(default = "0", check = "attempts >= 0")]
    attempts: u32,
    /// What ended the run before the last time it was queued again.
    last_end_cause: Option<EndCause>,
    /// As the tenant believes; 0: not known.
    #[table(default = "0", check = "run_time_ms >= 0", fixed)]
    run_time_ms: u64,
    /// Is being cleared for it.
    nominated_node: Option<&'a Token>,
    /// It has to go for another.
    #[table(default = "false")]
    preempted: bool,
    /// The account below the tenant that its quota is of.
    #[table(fixed)]
    team: Option<&'a Token>,
    #[table(fixed)]
    namespace: Option<&'a Token>,
    #[table(default = "'guaranteed'", fixed)]
    qos: QosClass,
    /// 0: no more than it asks for.
    #[table(default = "0", check = "cpu_milli_limit >= 0", fixed)]
    cpu_milli_limit: u64,
    #[table(default = "0", check = "memory_bytes_limit >= 0", fixed)]
    memory_bytes_limit: u64,
    /// Which rule keeps it waiting for quota: about what, the limit, and what use would come to.
    quota_rule: Option<Rule>,
    quota_subject: Option<&'a str>,
    #[table(check = "quota_limit >= 0")]
    quota_limit: Option<u64>,
    #[table(check = "quota_actual >= 0")]
    quota_actual: Option<u64>,
    /// Which element of an array it is; none: it is of none.
    #[table(check = "array_index BETWEEN 0 AND 4294967295", fixed)]
    array_index: Option<u64>,
    /// What is remarkable about the quota that it has, as bits: 1 it was granted above a soft limit, 2 above a hard one for as
    /// long as a burst lasts, 4 of what others of the cohort lend.
    #[table(default = "0", check = "quota_flags BETWEEN 0 AND 7")]
    quota_flags: u32,
    /// Not placed so long after its request, it ends; 0: it waits without a bound.
    #[table(default = "0", check = "ttl_ms >= 0", fixed)]
    ttl_ms: u64,
    /// A run of it is stopped after so long; 0: it goes on without a bound.
    #[table(default = "0", check = "time_limit_ms >= 0", fixed)]
    time_limit_ms: u64,
    /// What is said of every allocation, once: its first placement, its end or its denial. A row of `explanations` for each
    /// of them cost more than the allocation's own. Field 1 for each, of a message with `position`, `at_ms` and `fact`, as
    /// a row of `explanations` has them.
    #[table(default = "''", appended)]
    facts: Facts<'a>,
}

impl<'a> Record<'a> {
    pub fn of(cell: CellNo, Written { row, told, .. }: &'a Written) -> Self {
        let (spec, state) = (row.spec.common(), &row.state);
        let gpu = spec.gpu.as_ref();
        let place = state.place();
        let gpus = place.map_or(&[][..], |place| &place.gpus[..]);
        let (mut reason, mut pending_group, mut nominated) = (None, None, None);
        match state {
            AllocationState::Queued {
                reason: why,
                pending_group: of,
                ..
            } => (reason, pending_group) = (*why, *of),
            AllocationState::Nominated { node, .. } => nominated = Some(node),
            AllocationState::Requested { .. } | AllocationState::Held { .. } => {}
            // The table refuses them.
            AllocationState::Ended { .. } | AllocationState::Denied { .. } => {}
        }
        // What use would have come to is a sum that nothing bounds.
        let amount = |amount: u64| amount.min(i64::MAX as u64);
        let refusal = state.refusal();
        Self {
            allocation_id: row.allocation.id(cell).0,
            tenant: &row.tenant,
            job_set: &spec.job_set,
            name: row.spec.name(),
            priority: spec.priority,
            cpu_milli: spec.cpu_milli,
            memory_bytes: spec.memory_bytes,
            gpu_count: gpu.map_or(0, |gpu| gpu.count),
            gpu_milli: gpu.map_or(0, |gpu| gpu.milli),
            gpu_models: gpu
                .map_or(&[][..], |gpu| &gpu.models)
                .iter()
                .map(Token::as_str)
                .collect(),
            state: state.stage(),
            since: row.since,
            waiting_reason: reason,
            node: place.map(|place| &place.node),
            gpu_devices: gpus.iter().map(|share| share.device.into()).collect(),
            gpu_shares: gpus.iter().map(|share| share.milli.into()).collect(),
            requested_at: row.requested_at,
            placed_at: place.map(|place| place.placed_at),
            started_at: place.and_then(|place| place.started_at),
            lsn: row.lsn,
            queue: row.queue(),
            priority_class: spec.priority_class.as_ref(),
            gang: spec.gang.as_ref().map(|gang| &gang.name),
            pending_group,
            attempts: row.attempts,
            last_end_cause: row.last_cause,
            run_time_ms: spec.run_time_ms,
            nominated_node: nominated,
            preempted: state.preemption().is_some(),
            team: spec.team.as_ref(),
            namespace: spec.namespace.as_ref(),
            qos: spec.qos(),
            cpu_milli_limit: spec.limits.cpu_milli,
            memory_bytes_limit: spec.limits.memory_bytes,
            quota_rule: refusal.map(|refusal| refusal.rule),
            quota_subject: refusal.map(|refusal| refusal.subject.as_str()),
            quota_limit: refusal.map(|refusal| amount(refusal.limit)),
            quota_actual: refusal.map(|refusal| amount(refusal.actual)),
            array_index: row.spec.array_index().map(u64::from),
            quota_flags: row.quota_flags.0,
            ttl_ms: spec.bounds.ttl_ms,
            time_limit_ms: spec.bounds.time_limit_ms,
            facts: Facts(&[], told),
        }
    }
}

/// What was said of live allocations that are over now; they leave the table.
pub async fn leave(
    tx: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<u8>>, WarmError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let left = sqlx::query!(
        "DELETE FROM live_allocations WHERE allocation_id = ANY ($1) RETURNING allocation_id, facts",
        ids
    );
    let left = left.fetch_all(tx).await?.into_iter();
    Ok(left.map(|row| (row.allocation_id, row.facts)).collect())
}

/// An allocation as its table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub id: AllocationId,
    pub tenant: String,
    pub job_set: String,
    pub name: Option<String>,
    pub queue: String,
    pub priority: i32,
    pub priority_class: Option<String>,
    pub gang: Option<String>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_count: i32,
    pub gpu_milli: i32,
    pub gpu_models: Vec<String>,
    /// The account below the tenant that its quota is of.
    pub team: Option<String>,
    pub namespace: Option<String>,
    pub qos: QosClass,
    /// 0: no more than it asks for.
    pub cpu_milli_limit: u64,
    pub memory_bytes_limit: u64,
    /// As the tenant believes; 0: not known.
    pub run_time_ms: u64,
    /// Which element of an array it is.
    pub array_index: Option<u32>,
    pub bounds: TimeBounds,
    /// `requested`, `queued`, `nominated`, `placed`, `running`, `stopping`, `ended` or `denied`.
    pub state: String,
    /// Which rule keeps it waiting for quota, or has denied it.
    pub quota: Option<Refusal>,
    pub quota_flags: QuotaFlags,
    pub waiting_reason: Option<WaitingReason>,
    pub pending_group: Option<PendingGroupNo>,
    /// Is being cleared for it.
    pub nominated_node: Option<String>,
    pub node: Option<String>,
    pub gpus: GpuShares,
    /// It is stopping for the sake of another.
    pub preempted: bool,
    /// How often it was queued again, and what ended the run before the last time.
    pub attempts: i32,
    pub last_end_cause: Option<EndCause>,
    pub end_cause: Option<EndCause>,
    /// How the command of its last run ended.
    pub exit: Option<RunExit>,
    pub requested_at: Millis,
    pub placed_at: Option<Millis>,
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    pub lsn: Lsn,
}

/// One of the tenant's own; another tenant's is not found.
pub async fn allocation(
    pool: &PgPool,
    tenant: &Token,
    id: AllocationId,
) -> Result<Option<Allocation>, WarmError> {
    find(&mut *pool.acquire().await?, tenant, id).await
}

pub async fn find(
    db: &mut PgConnection,
    tenant: &Token,
    id: AllocationId,
) -> Result<Option<Allocation>, WarmError> {
    // In this order: one that is over meanwhile is in the other table from the same moment on.
    match live(db, tenant, id).await? {
        Some(live) => Ok(Some(live)),
        None => ended::allocation(db, tenant, id).await,
    }
}

/// A row of `live_allocations`.
struct Live {
    allocation_id: Uuid,
    tenant: String,
    job_set: String,
    name: Option<String>,
    queue: String,
    priority: i32,
    priority_class: Option<String>,
    gang: Option<String>,
    cpu_milli: i64,
    memory_bytes: i64,
    gpu_count: i32,
    gpu_milli: i32,
    gpu_models: Vec<String>,
    run_time_ms: i64,
    state: String,
    waiting_reason: Option<String>,
    pending_group: Option<i64>,
    nominated_node: Option<String>,
    node: Option<String>,
    gpu_devices: Vec<i32>,
    gpu_shares: Vec<i32>,
    preempted: bool,
    attempts: i32,
    last_end_cause: Option<String>,
    team: Option<String>,
    namespace: Option<String>,
    qos: String,
    cpu_milli_limit: i64,
    memory_bytes_limit: i64,
    quota_rule: Option<String>,
    quota_subject: Option<String>,
    quota_limit: Option<i64>,
    quota_actual: Option<i64>,
    array_index: Option<i64>,
    quota_flags: i32,
    ttl_ms: i64,
    time_limit_ms: i64,
    requested_at: Moment,
    placed_at: Option<Moment>,
    started_at: Option<Moment>,
    lsn: i64,
}

impl TryFrom<Live> for Allocation {
    type Error = OutOfRange;

    fn try_from(row: Live) -> Result<Self, OutOfRange> {
        let pending_group = row
            .pending_group
            .map(|pending_group| unsigned("pending_group", pending_group));
        let quota = match (row.quota_rule, row.quota_subject) {
            (Some(rule), Some(subject)) => Some(Refusal {
                rule: Rule::read(rule, "quota_rule")?,
                subject,
                limit: unsigned("quota_limit", row.quota_limit.unwrap_or(0))?,
                actual: unsigned("quota_actual", row.quota_actual.unwrap_or(0))?,
            }),
            _ => None,
        };
        let index = |index: i64| {
            u32::try_from(index).map_err(|error| OutOfRange::new("array_index", error))
        };
        let array_index = row.array_index.map(index);
        Ok(Self {
            id: AllocationId(row.allocation_id),
            tenant: row.tenant,
            job_set: row.job_set,
            name: row.name,
            queue: row.queue,
            priority: row.priority,
            priority_class: row.priority_class,
            gang: row.gang,
            cpu_milli: unsigned("cpu_milli", row.cpu_milli)?,
            memory_bytes: unsigned("memory_bytes", row.memory_bytes)?,
            gpu_count: row.gpu_count,
            gpu_milli: row.gpu_milli,
            gpu_models: row.gpu_models,
            team: row.team,
            namespace: row.namespace,
            qos: QosClass::read(row.qos, "qos")?,
            cpu_milli_limit: unsigned("cpu_milli_limit", row.cpu_milli_limit)?,
            memory_bytes_limit: unsigned("memory_bytes_limit", row.memory_bytes_limit)?,
            quota,
            quota_flags: QuotaFlags(u32::read(row.quota_flags, "quota_flags")?),
            run_time_ms: unsigned("run_time_ms", row.run_time_ms)?,
            array_index: array_index.transpose()?,
            bounds: TimeBounds {
                ttl_ms: unsigned("ttl_ms", row.ttl_ms)?,
                time_limit_ms: unsigned("time_limit_ms", row.time_limit_ms)?,
            },
            state: row.state,
            waiting_reason: Option::read(row.waiting_reason, "waiting_reason")?,
            pending_group: pending_group.transpose()?.map(PendingGroupNo),
            nominated_node: row.nominated_node,
            node: row.node,
            gpus: shares(&row.gpu_devices, &row.gpu_shares)?,
            preempted: row.preempted,
            attempts: row.attempts,
            last_end_cause: Option::read(row.last_end_cause, "last_end_cause")?,
            end_cause: None,
            exit: None,
            requested_at: row.requested_at.into(),
            placed_at: row.placed_at.map(Millis::from),
            started_at: row.started_at.map(Millis::from),
            ended_at: None,
            lsn: Lsn(unsigned("lsn", row.lsn)?),
        })
    }
}

async fn live(
    db: &mut PgConnection,
    tenant: &Token,
    id: AllocationId,
) -> Result<Option<Allocation>, WarmError> {
    let row = sqlx::query_as!(
        Live,
        r#"SELECT allocation_id, tenant, job_set, name, queue, priority, priority_class, gang, cpu_milli, memory_bytes, gpu_count,
                  gpu_milli, gpu_models, run_time_ms, state, waiting_reason, pending_group, nominated_node, node, gpu_devices,
                  gpu_shares, preempted, attempts, last_end_cause, team, namespace, qos, cpu_milli_limit,
                  memory_bytes_limit, quota_rule, quota_subject, quota_limit, quota_actual, array_index,
                  quota_flags, ttl_ms, time_limit_ms, requested_at AS "requested_at: Moment", placed_at AS "placed_at: Moment",
                  started_at AS "started_at: Moment", lsn
           FROM live_allocations WHERE allocation_id = $1 AND tenant = $2"#,
        id.0,
        tenant.as_str(),
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Allocation::try_from).transpose()?)
}

/// Of those of `tenant` that were requested before `before` and after `floor`, the newest that are asked for.
pub(super) async fn newest(
    db: &mut PgConnection,
    tenant: &Token,
    wanted: &Wanted,
    (before, floor): (Uuid, Uuid),
) -> Result<Vec<Allocation>, WarmError> {
    let rows = sqlx::query_as!(
        Live,
        r#"SELECT allocation_id, tenant, job_set, name, queue, priority, priority_class, gang, cpu_milli, memory_bytes, gpu_count,
                  gpu_milli, gpu_models, run_time_ms, state, waiting_reason, pending_group, nominated_node, node, gpu_devices,
                  gpu_shares, preempted, attempts, last_end_cause, team, namespace, qos, cpu_milli_limit,
                  memory_bytes_limit, quota_rule, quota_subject, quota_limit, quota_actual, array_index,
                  quota_flags, ttl_ms, time_limit_ms, requested_at AS "requested_at: Moment", placed_at AS "placed_at: Moment",
                  started_at AS "started_at: Moment", lsn
           FROM live_allocations
           WHERE tenant = $1 AND allocation_id < $2 AND allocation_id > $3 AND state = ANY ($4)
             AND ($5::text IS NULL OR queue = $5) AND ($6::text IS NULL OR job_set = $6)
             AND ($7::text IS NULL OR team = $7) AND ($8::text IS NULL OR namespace = $8)
             AND ($9::text IS NULL OR node = $9) AND ($10::text IS NULL OR gang = $10)
             AND ($11::text IS NULL OR starts_with(name, $11))
             AND ($12::timestamptz IS NULL OR requested_at >= $12) AND ($13::timestamptz IS NULL OR requested_at < $13)
           ORDER BY allocation_id DESC LIMIT $14"#,
        tenant.as_str(),
        before,
        floor,
        &wanted.states(),
        wanted.queue.as_deref(),
        wanted.job_set.as_deref(),
        wanted.team.as_deref(),
        wanted.namespace.as_deref(),
        wanted.node.as_deref(),
        wanted.gang.as_deref(),
        wanted.name_prefix.as_deref(),
        wanted.since as Option<Moment>,
        wanted.until as Option<Moment>,
        i64::from(wanted.limit) + 1,
    )
    .fetch_all(db)
    .await?;
    let rows = rows.into_iter().map(Allocation::try_from);
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The allocations that have changed behind a position, as `<id> of <tenant> <name>`: for who looks for what a ledger has lost.
pub async fn changed_behind(pool: &PgPool, lsn: Lsn) -> Result<Vec<String>, WarmError> {
    let rows: Vec<(Uuid, String, Option<String>)> = sqlx::query_as(
        "SELECT allocation_id, tenant, name FROM allocations WHERE lsn > $1 ORDER BY allocation_id",
    )
    .bind(bigint("lsn", lsn.0)?)
    .fetch_all(pool)
    .await?;
    let pending_group = |(id, tenant, name): (Uuid, String, Option<String>)| {
        let name = name.unwrap_or_default();
        format!("{id} of {tenant} {name}").trim_end().to_owned()
    };
    Ok(rows.into_iter().map(pending_group).collect())
}

/// Two columns, a device and its share at the same place of both.
pub(super) fn shares(devices: &[i32], millis: &[i32]) -> Result<GpuShares, OutOfRange> {
    let pairs = devices.iter().zip(millis);
    let shares = pairs.map(|(device, milli)| {
        Ok(GpuShare {
            device: u16::read(*device, "gpu_devices")?,
            milli: u16::read(*milli, "gpu_shares")?,
        })
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_two_lists() {
        let share = |device, milli| GpuShare { device, milli };
        assert_eq!(
            shares(&[0, 15], &[1000, 1]),
            Ok(GpuShares::from_iter([share(0, 1000), share(15, 1)]))
        );
        assert!(shares(&[-1], &[1]).is_err());
    }
}
