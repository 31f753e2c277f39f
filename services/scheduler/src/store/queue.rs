//! The table `scheduling_queue`: what waits for a place.

use super::names;
use crate::project::{AllocationState, Written};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;
use vocab::{
    AllocationId, AllocationSpec, CellNo, LineNo, Millis, ResourceKind, Token, WaitingReason,
};

/// How one stands that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Queued,
    /// Its node is being cleared.
    Nominated,
    /// Not to be tried before this.
    Paused(Millis),
}

impl Standing {
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Nominated => "nominated",
            Self::Paused(_) => "paused",
        }
    }

    fn of(state: &str, not_before: Option<Moment>) -> Result<Self, OutOfRange> {
        match (state, not_before) {
            ("queued", None) => Ok(Self::Queued),
            ("nominated", None) => Ok(Self::Nominated),
            ("paused", Some(until)) => Ok(Self::Paused(until.into())),
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

pub async fn upsert(
    tx: &mut PgConnection,
    cell: CellNo,
    written: &[&Written],
) -> Result<(), WarmError> {
    let mut ids = Vec::new();
    let mut tenants = Vec::new();
    let mut queues = Vec::new();
    let mut priorities = Vec::new();
    let mut arrivals = Vec::new();
    let mut requested = Vec::new();
    let mut run_times = Vec::new();
    let mut sizes = Vec::new();
    let mut states = Vec::new();
    let mut reasons = Vec::new();
    let mut lines = Vec::new();
    let mut times = Vec::new();
    let mut pauses: Vec<Option<Moment>> = Vec::new();
    for Written { row, .. } in written {
        let (standing, reason, line, since) = match &row.state {
            AllocationState::Queued {
                reason,
                line,
                since,
                not_before,
            } => {
                let standing = not_before.map_or(Standing::Queued, Standing::Paused);
                (standing, *reason, *line, *since)
            }
            AllocationState::Nominated { since, .. } => (Standing::Nominated, None, None, *since),
            AllocationState::Requested { .. }
            | AllocationState::Held { .. }
            | AllocationState::Ended { .. }
            | AllocationState::Denied { .. } => continue,
        };
        ids.push(row.allocation.id(cell).0);
        tenants.push(row.tenant.as_str());
        queues.push(row.queue().as_str());
        priorities.push(row.spec.priority);
        arrivals.push(bigint("arrival", row.allocation.0)?);
        requested.push(Moment::try_from(row.requested_at)?);
        run_times.push(bigint("run_time_ms", row.spec.run_time_ms)?);
        sizes.push(bigint("size", size(&row.spec))?);
        states.push(standing.name());
        reasons.push(reason.map(WaitingReason::name));
        lines.push(line.map(|LineNo(no)| bigint("line", no)).transpose()?);
        times.push(Moment::try_from(since)?);
        pauses.push(match standing {
            Standing::Paused(until) => Some(until.try_into()?),
            Standing::Queued | Standing::Nominated => None,
        });
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO scheduling_queue
             (allocation_id, tenant, queue, priority, arrival, requested_at, run_time_ms, size, state, waiting_reason,
              line, since, not_before)
         SELECT * FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::timestamptz[],
                              $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::timestamptz[],
                              $13::timestamptz[])
         ON CONFLICT (allocation_id) DO UPDATE SET
             priority = excluded.priority, state = excluded.state, waiting_reason = excluded.waiting_reason,
             line = excluded.line, since = excluded.since, not_before = excluded.not_before",
        &ids,
        &tenants as _,
        &queues as _,
        &priorities,
        &arrivals,
        &requested as _,
        &run_times,
        &sizes,
        &states as _,
        &reasons as _,
        &lines as _,
        &times as _,
        &pauses as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

pub async fn leave(
    tx: &mut PgConnection,
    cell: CellNo,
    written: &[&Written],
) -> Result<(), WarmError> {
    let rows = written.iter().map(|written| &written.row);
    let gone = rows.filter(|row| match row.state {
        AllocationState::Queued { .. } | AllocationState::Nominated { .. } => false,
        AllocationState::Requested { .. }
        | AllocationState::Held { .. }
        | AllocationState::Ended { .. }
        | AllocationState::Denied { .. } => true,
    });
    let ids: Vec<Uuid> = gone.map(|row| row.allocation.id(cell).0).collect();
    sqlx::query!(
        "DELETE FROM scheduling_queue WHERE allocation_id = ANY ($1)",
        &ids
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// One that waits for a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub id: AllocationId,
    pub queue: String,
    /// Its place in the queue, from 1, in the order in which the scheduler goes through it.
    pub position: i64,
    pub line: Option<LineNo>,
    /// Its place in its line, from 1.
    pub position_in_line: Option<i64>,
    pub priority: i32,
    pub standing: Standing,
    /// The line's, where something was said of it.
    pub waiting_reason: Option<WaitingReason>,
    pub since: Millis,
}

/// What a tenant has waiting, queue by queue, in the order in which it is tried.
pub async fn queue(pool: &PgPool, tenant: &Token, limit: u32) -> Result<Vec<Queued>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT w.allocation_id AS "allocation_id!", w.queue AS "queue!", w.position AS "position!", w.line,
                  w.position_in_line, w.priority AS "priority!", w.state AS "state!",
                  w.not_before AS "not_before: Moment", coalesce(said.reason, w.waiting_reason) AS waiting_reason,
                  w.since AS "since!: Moment"
           FROM (SELECT * FROM (
                     SELECT *, row_number() OVER (PARTITION BY queue ORDER BY standing, rank, turn, arrival) AS position,
                            CASE WHEN line IS NOT NULL
                                 THEN row_number() OVER (PARTITION BY line ORDER BY rank, turn, arrival)
                            END AS position_in_line
                     FROM queue_order WHERE queue IN (SELECT queue FROM scheduling_queue WHERE tenant = $1)) AS q
                 WHERE tenant = $1 ORDER BY queue, position LIMIT $2) AS w
           LEFT JOIN LATERAL (SELECT reason FROM explanations AS e WHERE e.kind = 'line' AND e.line = w.line
                              ORDER BY lsn DESC, event_index DESC LIMIT 1) AS said ON true
           ORDER BY w.queue, w.position"#,
        tenant.as_str(),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let reason = record.waiting_reason.as_deref();
        let line = record.line.map(|line| unsigned("line", line));
        Ok(Queued {
            id: AllocationId(record.allocation_id),
            queue: record.queue,
            position: record.position,
            line: line.transpose()?.map(LineNo),
            position_in_line: record.position_in_line,
            priority: record.priority,
            standing: Standing::of(&record.state, record.not_before)?,
            waiting_reason: reason.map(names::waiting_reason).transpose()?,
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
    /// From 1; none while it is in no line.
    pub position_in_line: Option<i64>,
    pub in_line: Option<i64>,
}

pub async fn place(
    db: impl PgExecutor<'_>,
    id: AllocationId,
) -> Result<Option<PlaceInQueue>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT state AS "state!", not_before AS "not_before: Moment", since AS "since!: Moment",
                  position AS "position!", in_queue AS "in_queue!", position_in_line, in_line
           FROM (SELECT *, row_number() OVER (PARTITION BY queue ORDER BY standing, rank, turn, arrival) AS position,
                        count(*) OVER (PARTITION BY queue) AS in_queue,
                        CASE WHEN line IS NOT NULL
                             THEN row_number() OVER (PARTITION BY line ORDER BY rank, turn, arrival)
                        END AS position_in_line,
                        CASE WHEN line IS NOT NULL THEN count(*) OVER (PARTITION BY line) END AS in_line
                 FROM queue_order
                 WHERE queue = (SELECT queue FROM scheduling_queue WHERE allocation_id = $1)) AS q
           WHERE allocation_id = $1"#,
        id.0,
    )
    .fetch_optional(db)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    Ok(Some(PlaceInQueue {
        standing: Standing::of(&record.state, record.not_before)?,
        since: record.since.into(),
        position: record.position,
        in_queue: record.in_queue,
        position_in_line: record.position_in_line,
        in_line: record.in_line,
    }))
}
