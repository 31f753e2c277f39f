//! The table `preemption_events`: who had to go, for whom, and what that freed.

use super::history;
use crate::project::{Outcome, Over, Position, PreemptionRow};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{FromRow, PgPool};
use table::{Read, Table};
use uuid::Uuid;
use vocab::{AllocationId, CellNo, Lsn, Millis, PreemptionCause, Token};

/// The outcome of one that is not over.
const STOPPING: &str = "stopping";

/// Who had to go from its node for the sake of another, and what that freed. The key is the fact's place on the ledger.
#[derive(Table)]
#[table(name = "preemption_events", key(lsn, event_index))]
#[table(check(preemption_events_check, "grace_until >= at"))]
#[table(check(
    over_is_all_or_none,
    "num_nulls(stopped_at, requeued, freed_cpu_milli, freed_memory_bytes, freed_gpu_milli)
     = CASE outcome WHEN 'stopping' THEN 5 ELSE 0 END"
))]
#[table(index(of_tenant, on "tenant, lsn DESC, event_index DESC"))]
#[table(index(of_allocation, on "allocation_id"))]
#[table(index(open, on "grace_until", where "outcome = 'stopping'"))]
pub struct Record<'a> {
    #[table(check = "lsn > 0")]
    lsn: Lsn,
    #[table(check = "event_index >= 0")]
    event_index: u32,
    /// The victim.
    #[table(fixed)]
    allocation_id: Uuid,
    #[table(fixed)]
    tenant: &'a Token,
    #[table(fixed)]
    queue: &'a Token,
    #[table(fixed)]
    node: &'a Token,
    #[table(fixed)]
    cause: PreemptionCause,
    /// Its own when it was decided, and in `by_priority` that of the one that it makes room for.
    #[table(fixed)]
    priority: i32,
    /// Whom it makes room for; none for a reservation.
    #[table(fixed)]
    by_allocation_id: Option<Uuid>,
    #[table(fixed)]
    by_priority: Option<i32>,
    #[table(fixed)]
    at: Millis,
    /// It should have stopped by then.
    #[table(fixed)]
    grace_until: Millis,
    #[table(check = "outcome IN ('stopping', 'stopped', 'node_lost', 'rejected_by_node')")]
    outcome: &'static str,
    /// By the node's report, whose clock may be behind the decision's.
    stopped_at: Option<Millis>,
    /// It waits again; otherwise it has ended.
    requeued: Option<bool>,
    #[table(check = "freed_cpu_milli >= 0")]
    freed_cpu_milli: Option<u64>,
    #[table(check = "freed_memory_bytes >= 0")]
    freed_memory_bytes: Option<u64>,
    #[table(check = "freed_gpu_milli >= 0")]
    freed_gpu_milli: Option<u64>,
}

impl<'a> Record<'a> {
    pub fn of(cell: CellNo, row: &'a PreemptionRow) -> Self {
        let preemption = &row.preemption;
        let [cpu, memory, gpu] = row.amounts.map(|amount| row.over.map(|_| amount));
        Self {
            lsn: preemption.position.lsn,
            event_index: preemption.position.index,
            allocation_id: row.allocation.id(cell).0,
            tenant: &row.tenant,
            queue: &row.queue,
            node: &row.node,
            cause: preemption.cause,
            priority: preemption.priority,
            by_allocation_id: preemption.by.map(|no| no.id(cell).0),
            by_priority: preemption.by_priority,
            at: preemption.at,
            grace_until: preemption.grace_until,
            outcome: row.over.map_or(STOPPING, |over| over.outcome.name()),
            stopped_at: row.over.map(|over| over.at),
            requeued: row.over.map(|over| over.requeued),
            freed_cpu_milli: cpu,
            freed_memory_bytes: memory,
            freed_gpu_milli: gpu,
        }
    }
}

/// A preemption as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionEvent {
    pub position: Position,
    pub victim: AllocationId,
    pub tenant: String,
    pub queue: String,
    pub node: String,
    pub cause: PreemptionCause,
    /// Whom it made room for, where that is of the same tenant.
    pub by: Option<AllocationId>,
    /// Of the one that had to go, when it was decided.
    pub priority: i32,
    /// Of the one that it went for, whosever that is.
    pub by_priority: Option<i32>,
    pub at: Millis,
    pub grace_until: Millis,
    /// None while it is still stopping.
    pub over: Option<Over>,
    /// What it held; free once it is over.
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub gpu_milli: Option<u64>,
}

#[derive(FromRow)]
struct Event {
    lsn: i64,
    event_index: i32,
    allocation_id: Uuid,
    tenant: String,
    queue: String,
    node: String,
    cause: String,
    priority: i32,
    by_own: Option<Uuid>,
    by_priority: Option<i32>,
    at: Moment,
    grace_until: Moment,
    outcome: String,
    stopped_at: Option<Moment>,
    requeued: Option<bool>,
    freed_cpu_milli: Option<i64>,
    freed_memory_bytes: Option<i64>,
    freed_gpu_milli: Option<i64>,
}

/// What a tenant, or anybody, lost to others before a position, the latest first.
pub async fn preemptions(
    pool: &PgPool,
    tenant: Option<&Token>,
    before: Position,
    limit: u32,
) -> Result<Vec<PreemptionEvent>, WarmError> {
    // Apart, as one statement for both would not go by the tenant's index.
    let of = match tenant {
        Some(_) => "p.tenant = $1",
        None => "$1::text IS NULL",
    };
    let query = format!(
        "SELECT p.lsn, p.event_index, p.allocation_id, p.tenant, p.queue, p.node, p.cause, p.priority,
                own.allocation_id AS by_own, p.by_priority, p.at, p.grace_until, p.outcome, p.stopped_at, p.requeued,
                p.freed_cpu_milli, p.freed_memory_bytes, p.freed_gpu_milli
         FROM preemption_events AS p
         LEFT JOIN allocations AS own ON own.allocation_id = p.by_allocation_id AND own.tenant = p.tenant
         WHERE {of} AND (p.lsn, p.event_index) < ($2, $3)
         ORDER BY p.lsn DESC, p.event_index DESC LIMIT $4"
    );
    let records: Vec<Event> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .bind(bigint("after", before.lsn.0.min(i64::MAX.unsigned_abs()))?)
        .bind(i32::try_from(before.index).unwrap_or(i32::MAX))
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    let rows = records.into_iter().map(|record| {
        let amount =
            |what, value: Option<i64>| value.map(|value| unsigned(what, value)).transpose();
        Ok(PreemptionEvent {
            position: history::position(record.lsn, record.event_index)?,
            victim: AllocationId(record.allocation_id),
            tenant: record.tenant,
            queue: record.queue,
            node: record.node,
            cause: PreemptionCause::read(record.cause, "cause")?,
            by: record.by_own.map(AllocationId),
            priority: record.priority,
            by_priority: record.by_priority,
            at: record.at.into(),
            grace_until: record.grace_until.into(),
            over: over(&record.outcome, record.stopped_at, record.requeued)?,
            cpu_milli: amount("freed_cpu_milli", record.freed_cpu_milli)?,
            memory_bytes: amount("freed_memory_bytes", record.freed_memory_bytes)?,
            gpu_milli: amount("freed_gpu_milli", record.freed_gpu_milli)?,
        })
    });
    rows.collect()
}

fn over(
    outcome: &str,
    at: Option<Moment>,
    requeued: Option<bool>,
) -> Result<Option<Over>, OutOfRange> {
    let known = Outcome::ALL.into_iter().find(|one| one.name() == outcome);
    match (known, at, requeued) {
        (Some(outcome), Some(at), Some(requeued)) => Ok(Some(Over {
            outcome,
            at: at.into(),
            requeued,
        })),
        (None, None, None) if outcome == STOPPING => Ok(None),
        _ => Err(OutOfRange::new("outcome", outcome)),
    }
}
