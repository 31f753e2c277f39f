//! The tables `live_allocations` and `ended_allocations`, and an allocation as either has it.

use super::{
    ended::{self, AsMessage, Facts, Past},
    list::{Wanted, Within},
};
use crate::project::{AllocationState, Attempt, Written};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{FromRow, PgConnection, PgPool};
use std::collections::HashMap;
use table::{Read, Table};
use uuid::Uuid;
use vocab::{
    AllocationId, AllocationSpec, CellNo, EndCause, GpuShare, GpuShares, Lsn, Millis,
    PendingGroupNo, QuotaFlags, Refusal, Rule, RunExit, Token, WaitingReason,
};
use wire::Message;

/// Every allocation that is not over, as the ledger has it. One that is over is in `ended_allocations`; most are over before
/// they would be written here.
#[derive(Table)]
#[table(name = "live_allocations", key(allocation_id))]
#[table(check(gpu_is_all_or_none, "(gpu_count = 0) = (gpu_milli = 0)"))]
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
         WHEN 'awaiting_quota' THEN node IS NULL
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
#[table(check(
    refusal_is_all_or_none,
    "num_nulls(quota_rule, quota_subject, quota_limit, quota_actual) IN (0, 4)"
))]
#[table(check(
    refused_by_quota_only,
    "(quota_rule IS NOT NULL) = (state = 'awaiting_quota')"
))]
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
    #[table(
        check = "state IN ('requested', 'awaiting_quota', 'queued', 'nominated', 'placed', 'running', 'stopping')"
    )]
    state: &'static str,
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
    /// None while it is in no pending group, as during a pause.
    #[table(check = "pending_group > 0")]
    pending_group: Option<PendingGroupNo>,
    /// How often it was queued again.
    #[table(default = "0", check = "attempts >= 0")]
    attempts: u32,
    /// What ended the run before the last time it was queued again.
    last_end_cause: Option<EndCause>,
    /// Is being cleared for it.
    nominated_node: Option<&'a Token>,
    /// It has to go for another.
    #[table(default = "false")]
    preempted: bool,
    /// Which rule keeps it waiting for quota: about what, the limit, and what use would come to.
    quota_rule: Option<Rule>,
    quota_subject: Option<&'a str>,
    #[table(check = "quota_limit >= 0")]
    quota_limit: Option<u64>,
    #[table(check = "quota_actual >= 0")]
    quota_actual: Option<u64>,
    /// What is remarkable about the quota that it has, as bits: 1 it was granted above a soft limit, 2 above a hard one for as
    /// long as a burst lasts, 4 of what others of the cohort lend.
    #[table(default = "0", check = "quota_flags BETWEEN 0 AND 7")]
    quota_flags: u32,
    /// What is said of every allocation, once: its first placement, its end or its denial. A row of `explanations` for each
    /// of them cost more than the allocation's own. Field 1 for each, of a message with `position`, `at_ms` and `fact`, as
    /// a row of `explanations` has them.
    #[table(default = "''", appended)]
    facts: Facts<'a>,
    /// The tenant's id of the operation that asked for it.
    #[table(fixed)]
    operation_id: Option<&'a Token>,
    /// What it asked for, as the message `AllocationSpec` of the contract, but for the priority, which can change.
    #[table(fixed)]
    spec: AsMessage<'a>,
    /// The places that it had before it was queued again, the last 32 of them: field 1 for each, of a message with `node`, `gpus`,
    /// `placed_at_ms`, `started_at_ms`, `ended_at_ms`, `cause` and `exit`.
    #[table(default = "''")]
    past: Vec<u8>,
}

impl<'a> Record<'a> {
    pub fn of(
        cell: CellNo,
        Written {
            row,
            told,
            operation,
            ..
        }: &'a Written,
    ) -> Self {
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
            state: state.name(),
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
            pending_group,
            attempts: row.attempts,
            last_end_cause: row.last_cause,
            nominated_node: nominated,
            preempted: state.preemption().is_some(),
            quota_rule: refusal.map(|refusal| refusal.rule),
            quota_subject: refusal.map(|refusal| refusal.subject.as_str()),
            quota_limit: refusal.map(|refusal| amount(refusal.limit)),
            quota_actual: refusal.map(|refusal| amount(refusal.actual)),
            quota_flags: row.quota_flags.0,
            facts: Facts(&[], told),
            operation_id: operation.as_ref(),
            spec: AsMessage(&row.spec),
            past: Past::of(&row.past),
        }
    }
}

/// What a row that leaves the table has, and nothing else.
#[derive(Debug)]
pub(super) struct Left {
    pub operation: Option<Token>,
    /// What was said of it.
    pub facts: Vec<u8>,
}

/// Live allocations that are over now leave the table.
pub(super) async fn leave(
    tx: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Left>, WarmError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let left = sqlx::query!(
        "DELETE FROM live_allocations WHERE allocation_id = ANY ($1) RETURNING allocation_id, operation_id, facts",
        ids
    );
    let left = left.fetch_all(tx).await?.into_iter();
    let left = left.map(|row| {
        let left = Left {
            operation: Option::read(row.operation_id, "operation_id")?,
            facts: row.facts,
        };
        Ok((row.allocation_id, left))
    });
    left.collect()
}

/// An allocation as its table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub id: AllocationId,
    pub tenant: String,
    /// The tenant's id of the operation that asked for it.
    pub operation: Option<String>,
    /// What it asked for, with the priority that it has.
    pub spec: AllocationSpec,
    /// The queue that it is in: where it names none, the tenant's own.
    pub queue: String,
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
    /// The places that it had before, the oldest first, as many as are kept.
    pub past: Vec<Attempt>,
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
    Ok(find_all(db, tenant, &[id]).await?.pop())
}

/// Those of the tenant's own that are found, in the order of `ids`.
pub(super) async fn find_all(
    db: &mut PgConnection,
    tenant: &Token,
    ids: &[AllocationId],
) -> Result<Vec<Allocation>, WarmError> {
    let all: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    // In this order: one that is over meanwhile is in the other table from the same moment on.
    let mut found = live(db, tenant, &all).await?;
    let is_missing = |id: &Uuid| !found.iter().any(|one| one.id.0 == *id);
    let missing: Vec<Uuid> = all.iter().copied().filter(is_missing).collect();
    if !missing.is_empty() {
        found.extend(ended::allocations(db, tenant, &missing).await?);
    }
    found.sort_by_key(|one| all.iter().position(|id| *id == one.id.0));
    Ok(found)
}

/// A row of `live_allocations`, as far as it is told.
#[derive(FromRow)]
struct Live {
    allocation_id: Uuid,
    tenant: String,
    operation_id: Option<String>,
    queue: String,
    priority: i32,
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
    quota_rule: Option<String>,
    quota_subject: Option<String>,
    quota_limit: Option<i64>,
    quota_actual: Option<i64>,
    quota_flags: i32,
    requested_at: Moment,
    placed_at: Option<Moment>,
    started_at: Option<Moment>,
    lsn: i64,
    spec: Vec<u8>,
    past: Vec<u8>,
}

/// The columns of [`Live`].
const LIVE: &str = "allocation_id, tenant, operation_id, queue, priority, state, waiting_reason, pending_group, nominated_node, node,
                    gpu_devices, gpu_shares, preempted, attempts, last_end_cause, quota_rule, quota_subject, quota_limit,
                    quota_actual, quota_flags, requested_at, placed_at, started_at, lsn, spec, past";

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
        Ok(Self {
            id: AllocationId(row.allocation_id),
            tenant: row.tenant,
            operation: row.operation_id,
            spec: AllocationSpec {
                priority: row.priority,
                ..asked(&row.spec)?
            },
            queue: row.queue,
            quota,
            quota_flags: QuotaFlags(u32::read(row.quota_flags, "quota_flags")?),
            state: row.state,
            waiting_reason: Option::read(row.waiting_reason, "waiting_reason")?,
            pending_group: pending_group.transpose()?.map(PendingGroupNo),
            nominated_node: row.nominated_node,
            node: row.node,
            gpus: shares(&row.gpu_devices, &row.gpu_shares)?,
            preempted: row.preempted,
            attempts: row.attempts,
            last_end_cause: Option::read(row.last_end_cause, "last_end_cause")?,
            past: Past::read(&row.past)?,
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

/// What an allocation asked for, as the tables of both have it.
pub(super) fn asked(spec: &[u8]) -> Result<AllocationSpec, OutOfRange> {
    AllocationSpec::decode(spec).map_err(|error| OutOfRange::new("spec", error))
}

async fn live(
    db: &mut PgConnection,
    tenant: &Token,
    ids: &[Uuid],
) -> Result<Vec<Allocation>, WarmError> {
    let query = format!(
        "SELECT {LIVE} FROM live_allocations WHERE allocation_id = ANY ($1) AND tenant = $2"
    );
    let rows: Vec<Live> = sqlx::query_as(&query)
        .bind(ids)
        .bind(tenant.as_str())
        .fetch_all(db)
        .await?;
    let found = rows.into_iter().map(Allocation::try_from);
    Ok(found.collect::<Result<_, _>>()?)
}

/// Of those of `tenant` whose ids lie within the bounds, the first that are asked for.
pub(super) async fn page(
    db: &mut PgConnection,
    tenant: &Token,
    wanted: &Wanted,
    within: Within,
) -> Result<Vec<Allocation>, WarmError> {
    let query = wanted.select("live_allocations", LIVE);
    let rows = wanted.bind(sqlx::query_as::<_, Live>(&query), tenant, within);
    wanted.first(rows.fetch(db)).await
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
