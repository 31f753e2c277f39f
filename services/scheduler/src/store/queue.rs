//! The table `scheduling_queue`: allocations that wait for a place or for quota.

use crate::{
    project::{AllocationState, Written},
    start_estimate::StartEstimate,
};
use chassis::warm::{Moment, OutOfRange, WarmError, insert, unsigned, update};
use sqlx::{PgConnection, PgPool};
use table::{Read, Table};
use uuid::Uuid;
use vocab::{
    AllocationId, AllocationNo, AllocationSpec, CellNo, Millis, PendingGroupNo, ResourceKind,
    Token, WaitingReason,
};

/// How one stands that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Queued,
    /// Its node is being cleared.
    Nominated,
    /// Not to be tried before this.
    Paused(Millis),
    /// Its tenant holds as much as it may.
    AwaitingQuota,
}

impl Standing {
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Nominated => "nominated",
            Self::Paused(_) => "paused",
            Self::AwaitingQuota => "awaiting_quota",
        }
    }

    fn of(state: &str, not_before: Option<Moment>) -> Result<Self, OutOfRange> {
        match (state, not_before) {
            ("queued", None) => Ok(Self::Queued),
            ("nominated", None) => Ok(Self::Nominated),
            ("paused", Some(until)) => Ok(Self::Paused(until.into())),
            ("awaiting_quota", None) => Ok(Self::AwaitingQuota),
            (other, _) => Err(OutOfRange::new("state", other)),
        }
    }
}

/// By what a queue's order may go beside the estimate: milli-GPUs, or millicores where no GPU is asked for.
fn size(spec: &AllocationSpec) -> u64 {
    match spec.amount(ResourceKind::Gpu) {
        0 => spec.cpu_milli,
        gpu => gpu,
    }
}

/// Allocations that wait for a place, in the order in which they are tried: priority, then arrival; and those that wait for quota.
#[derive(Table)]
#[table(name = "scheduling_queue", key(allocation_id))]
#[table(check(paused_until_a_moment, "(state = 'paused') = (not_before IS NOT NULL)"))]
#[table(check(
    in_a_group_only_when_queued,
    "pending_group IS NULL OR state = 'queued'"
))]
#[table(index(by_tenant, on "tenant"))]
// The oldest of each queue is the first.
#[table(index(by_queue, on "queue, requested_at"))]
#[table(index(by_pending_group, on "pending_group", where "pending_group IS NOT NULL"))]
pub struct Record<'a> {
    allocation_id: Uuid,
    #[table(fixed)]
    tenant: &'a Token,
    priority: i32,
    /// Number of the request.
    #[table(check = "arrival > 0", fixed)]
    arrival: AllocationNo,
    /// None while it was never tried.
    #[table(
        check = "waiting_reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label', 'nominated', 'quota', 'preemption_limit')"
    )]
    waiting_reason: Option<WaitingReason>,
    /// In the queue, or waiting for this reason, since then.
    since: Millis,
    #[table(fixed)]
    queue: &'a Token,
    #[table(check = "pending_group > 0")]
    pending_group: Option<PendingGroupNo>,
    /// Nominated: its node is being cleared. Paused: not tried before `not_before`. Awaiting quota: of quota's refusal, its row in live_allocations has the rule.
    #[table(
        default = "'queued'",
        check = "state IN ('queued', 'nominated', 'paused', 'awaiting_quota')"
    )]
    state: &'static str,
    not_before: Option<Millis>,
    #[table(fixed)]
    requested_at: Millis,
    #[table(default = "0", check = "run_time_ms >= 0", fixed)]
    run_time_ms: u64,
    /// In milli-GPUs, or in millicores when it asks for no GPU.
    #[table(default = "0", check = "size >= 0", fixed)]
    size: u64,
}

impl<'a> Record<'a> {
    /// None: it does not wait.
    fn of(cell: CellNo, Written { row, .. }: &'a Written) -> Option<Self> {
        let (standing, waiting_reason, pending_group, since) = match &row.state {
            AllocationState::Queued {
                reason,
                pending_group,
                since,
                not_before,
            } => {
                let standing = not_before.map_or(Standing::Queued, Standing::Paused);
                (standing, *reason, *pending_group, *since)
            }
            AllocationState::Nominated { since, .. } => {
                let reason = Some(WaitingReason::Nominated);
                (Standing::Nominated, reason, None, *since)
            }
            AllocationState::Requested {
                refusal: Some(refusal),
            } => {
                let reason = Some(refusal.waiting_reason());
                (Standing::AwaitingQuota, reason, None, row.since)
            }
            AllocationState::Requested { refusal: None }
            | AllocationState::Held { .. }
            | AllocationState::Ended { .. }
            | AllocationState::Denied { .. } => return None,
        };
        Some(Self {
            allocation_id: row.allocation.id(cell).0,
            tenant: &row.tenant,
            priority: row.spec.common().priority,
            arrival: row.allocation,
            waiting_reason,
            since,
            queue: row.queue(),
            pending_group,
            state: standing.name(),
            not_before: match standing {
                Standing::Paused(until) => Some(until),
                Standing::Queued | Standing::Nominated | Standing::AwaitingQuota => None,
            },
            requested_at: row.requested_at,
            run_time_ms: row.spec.common().estimate_ms(),
            size: size(row.spec.common()),
        })
    }
}

/// Brings the queue to where the batch leaves it. What neither waited before it nor waits now is not touched.
pub async fn write(
    tx: &mut PgConnection,
    cell: CellNo,
    written: &[&Written],
) -> Result<(), WarmError> {
    let (waited, others): (Vec<&Written>, Vec<_>) = written.iter().partition(|one| one.waited());
    let came = others.into_iter().filter_map(|one| Record::of(cell, one));
    insert(tx, &came.collect::<Vec<_>>()).await?;
    let waits = waited.iter().filter_map(|one| Record::of(cell, one));
    update(tx, &waits.collect::<Vec<_>>()).await?;
    let left = waited.iter().map(|one| &one.row);
    let left = left.filter(|row| !row.state.waits());
    let left = left.map(|row| row.allocation.id(cell).0);
    leave(tx, &left.collect::<Vec<_>>()).await
}

async fn leave(tx: &mut PgConnection, ids: &[Uuid]) -> Result<(), WarmError> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "DELETE FROM scheduling_queue WHERE allocation_id = ANY ($1)",
        ids
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// An allocation that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub id: AllocationId,
    pub queue: String,
    /// Its place in the queue, from 1, in the order in which the scheduler goes through it.
    pub position: i64,
    pub pending_group: Option<PendingGroupNo>,
    /// Its place in its pending group, from 1.
    pub position_in_line: Option<i64>,
    pub priority: i32,
    pub standing: Standing,
    /// The pending group's, where something was said of it.
    pub waiting_reason: Option<WaitingReason>,
    pub since: Millis,
}

/// What a tenant has waiting, queue by queue, in the order in which it is tried.
pub async fn queue(pool: &PgPool, tenant: &Token, limit: u32) -> Result<Vec<Queued>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT w.allocation_id AS "allocation_id!", w.queue AS "queue!", w.position AS "position!", w.pending_group,
                  w.position_in_line, w.priority AS "priority!", w.state AS "state!",
                  w.not_before AS "not_before: Moment", coalesce(said.reason, w.waiting_reason) AS waiting_reason,
                  w.since AS "since!: Moment"
           FROM (SELECT * FROM (
                     SELECT *, row_number() OVER (PARTITION BY queue ORDER BY standing, rank, turn, arrival) AS position,
                            CASE WHEN pending_group IS NOT NULL
                                 THEN row_number() OVER (PARTITION BY pending_group ORDER BY rank, turn, arrival)
                            END AS position_in_line
                     -- Not IN: the planner would read all that waits.
                     FROM queue_order
                     WHERE queue = ANY (ARRAY(SELECT DISTINCT queue FROM scheduling_queue WHERE tenant = $1))) AS q
                 WHERE tenant = $1 ORDER BY queue, position LIMIT $2) AS w
           LEFT JOIN LATERAL (SELECT reason FROM explanations AS e WHERE e.kind = 'pending_group_explained' AND e.pending_group = w.pending_group
                              ORDER BY lsn DESC, event_index DESC LIMIT 1) AS said ON true
           ORDER BY w.queue, w.position"#,
        tenant.as_str(),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let pending_group = record
            .pending_group
            .map(|pending_group| unsigned("pending_group", pending_group));
        Ok(Queued {
            id: AllocationId(record.allocation_id),
            queue: record.queue,
            position: record.position,
            pending_group: pending_group.transpose()?.map(PendingGroupNo),
            position_in_line: record.position_in_line,
            priority: record.priority,
            standing: Standing::of(&record.state, record.not_before)?,
            waiting_reason: Option::read(record.waiting_reason, "waiting_reason")?,
            since: record.since.into(),
        })
    });
    rows.collect()
}

/// Where one stands among those who wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceInQueue {
    pub standing: Standing,
    pub since: Millis,
    /// From 1.
    pub position: i64,
    pub in_queue: i64,
    /// From 1; none while it is in no pending group.
    pub position_in_line: Option<i64>,
    pub in_line: Option<i64>,
    /// What those before it in the queue ask for, together.
    pub ahead: Ahead,
    /// When it may expect a node, by earlier waits.
    pub start: Option<StartEstimate>,
    /// Earliest start by the estimates of running allocations; not in the tables.
    pub free_from: Option<Millis>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ahead {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
}

pub async fn place(
    db: &mut PgConnection,
    tenant: &Token,
    id: AllocationId,
    now: Millis,
) -> Result<Option<PlaceInQueue>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT queue AS "queue!", coalesce(attempts, 0) AS "attempts!", requested_at AS "requested_at!: Moment", state AS "state!",
                  not_before AS "not_before: Moment", since AS "since!: Moment", position AS "position!",
                  in_queue AS "in_queue!", position_in_line, in_line,
                  least(coalesce(cpu_milli, 0), 9223372036854775807)::bigint AS "cpu_milli!",
                  least(coalesce(memory_bytes, 0), 9223372036854775807)::bigint AS "memory_bytes!",
                  least(coalesce(gpu_milli, 0), 9223372036854775807)::bigint AS "gpu_milli!"
           FROM (SELECT q.allocation_id, q.queue, a.attempts, q.requested_at, q.state, q.not_before, q.since,
                        row_number() OVER (PARTITION BY q.queue ORDER BY standing, rank, turn, arrival) AS position,
                        count(*) OVER (PARTITION BY q.queue) AS in_queue,
                        CASE WHEN q.pending_group IS NOT NULL
                             THEN row_number() OVER (PARTITION BY q.pending_group ORDER BY rank, turn, arrival)
                        END AS position_in_line,
                        CASE WHEN q.pending_group IS NOT NULL THEN count(*) OVER (PARTITION BY q.pending_group) END AS in_line,
                        sum(a.cpu_milli) OVER ahead AS cpu_milli,
                        sum(a.memory_bytes) OVER ahead AS memory_bytes,
                        sum(a.gpu_count::bigint * a.gpu_milli) OVER ahead AS gpu_milli
                 FROM queue_order AS q LEFT JOIN live_allocations AS a ON a.allocation_id = q.allocation_id
                 WHERE q.queue = (SELECT queue FROM scheduling_queue WHERE allocation_id = $1)
                 WINDOW ahead AS (PARTITION BY q.queue ORDER BY standing, rank, turn, arrival
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS q
           WHERE allocation_id = $1"#,
        id.0,
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    let standing = Standing::of(&record.state, record.not_before)?;
    if standing == Standing::AwaitingQuota {
        return Ok(None);
    }
    let requested = record.requested_at.into();
    let start = match standing {
        Standing::Queued | Standing::Paused(_) if record.attempts == 0 => {
            let waits = waits(db, tenant, &record.queue).await?;
            StartEstimate::of(waits, requested, now)
        }
        // Its node is being cleared, or it had one before: it does not wait since its request.
        Standing::Nominated | Standing::Queued | Standing::Paused(_) | Standing::AwaitingQuota => {
            None
        }
    };
    Ok(Some(PlaceInQueue {
        standing,
        since: record.since.into(),
        position: record.position,
        in_queue: record.in_queue,
        position_in_line: record.position_in_line,
        in_line: record.in_line,
        ahead: Ahead {
            cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
            memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
            gpu_milli: unsigned("gpu_milli", record.gpu_milli)?,
        },
        start,
        free_from: None,
    }))
}

/// How many of a tenant's latest allocations are looked at for their waits, of the live ones and of those that are over.
const WAITS_LOOKED_AT: i64 = 500;

/// From the request to the placement, of a tenant's latest in a queue; ms.
async fn waits(db: &mut PgConnection, tenant: &Token, queue: &str) -> Result<Vec<u64>, WarmError> {
    let waits = sqlx::query_scalar!(
        r#"SELECT greatest(0, extract(epoch FROM placed_at - requested_at) * 1000)::bigint AS "wait!"
           FROM ((SELECT queue, placed_at, requested_at FROM live_allocations
                  WHERE tenant = $1 AND attempts = 0 ORDER BY allocation_id DESC LIMIT $3)
                 UNION ALL
                 (SELECT queue, placed_at, requested_at FROM ended_allocations
                  WHERE tenant = $1 ORDER BY allocation_id DESC LIMIT $3)) AS latest
           WHERE queue = $2 AND placed_at IS NOT NULL"#,
        tenant.as_str(),
        queue,
        WAITS_LOOKED_AT,
    );
    let waits = waits.fetch_all(db).await?;
    let waits = waits.into_iter().map(|wait| unsigned("wait", wait));
    Ok(waits.collect::<Result<_, _>>()?)
}
