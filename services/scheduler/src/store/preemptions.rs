//! The table `preemption_events`: who had to go, for whom, and what that freed.

use super::{history, names};
use crate::project::{Outcome, Over, Position, PreemptionRow};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use vocab::{AllocationId, CellNo, Millis, PreemptionCause, Token};

/// The outcome of one that is not over.
const STOPPING: &str = "stopping";

pub async fn upsert(
    tx: &mut PgConnection,
    cell: CellNo,
    rows: &[&PreemptionRow],
) -> Result<(), WarmError> {
    let mut lsns = Vec::new();
    let mut indexes = Vec::new();
    let mut ids = Vec::new();
    let mut tenants = Vec::new();
    let mut queues = Vec::new();
    let mut nodes = Vec::new();
    let mut causes = Vec::new();
    let mut others = Vec::new();
    let mut times = Vec::new();
    let mut graces = Vec::new();
    let mut outcomes = Vec::new();
    let mut stopped: Vec<Option<Moment>> = Vec::new();
    let mut requeued = Vec::new();
    let mut freed: [Vec<Option<i64>>; 3] = Default::default();
    for row in rows {
        let preemption = &row.preemption;
        lsns.push(bigint("lsn", preemption.position.lsn.0)?);
        indexes.push(history::index(preemption.position)?);
        ids.push(row.allocation.id(cell).0);
        tenants.push(row.tenant.as_str());
        queues.push(row.queue.as_str());
        nodes.push(row.node.as_str());
        causes.push(preemption.cause.name());
        others.push(preemption.by.map(|no| no.id(cell).0));
        times.push(Moment::try_from(preemption.at)?);
        graces.push(Moment::try_from(preemption.grace_until)?);
        outcomes.push(row.over.map_or(STOPPING, |over| over.outcome.name()));
        stopped.push(row.over.map(|over| over.at.try_into()).transpose()?);
        requeued.push(row.over.map(|over| over.requeued));
        for (column, amount) in freed.iter_mut().zip(row.amounts) {
            let amount = bigint("freed", amount)?;
            column.push(row.over.map(|_| amount));
        }
    }
    let [freed_cpu, freed_memory, freed_gpu] = freed;
    sqlx::query!(
        "INSERT INTO preemption_events
             (lsn, event_index, allocation_id, tenant, queue, node, cause, by_allocation_id, at, grace_until, outcome,
              stopped_at, requeued, freed_cpu_milli, freed_memory_bytes, freed_gpu_milli)
         SELECT * FROM UNNEST($1::bigint[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
                              $8::uuid[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::timestamptz[],
                              $13::boolean[], $14::bigint[], $15::bigint[], $16::bigint[])
         ON CONFLICT (lsn, event_index) DO UPDATE SET
             outcome = excluded.outcome, stopped_at = excluded.stopped_at, requeued = excluded.requeued,
             freed_cpu_milli = excluded.freed_cpu_milli, freed_memory_bytes = excluded.freed_memory_bytes,
             freed_gpu_milli = excluded.freed_gpu_milli",
        &lsns,
        &indexes,
        &ids,
        &tenants as _,
        &queues as _,
        &nodes as _,
        &causes as _,
        &others as _,
        &times as _,
        &graces as _,
        &outcomes as _,
        &stopped as _,
        &requeued as _,
        &freed_cpu as _,
        &freed_memory as _,
        &freed_gpu as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// A preemption as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionEvent {
    pub position: Position,
    pub victim: AllocationId,
    pub queue: String,
    pub node: String,
    pub cause: PreemptionCause,
    /// Whom it made room for, where that is the tenant's too.
    pub by: Option<AllocationId>,
    pub at: Millis,
    pub grace_until: Millis,
    /// None while it is still stopping.
    pub over: Option<Over>,
    /// What it held; free once it is over.
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub gpu_milli: Option<u64>,
}

/// What a tenant lost to others, the latest first.
pub async fn preemptions(
    pool: &PgPool,
    tenant: &Token,
    limit: u32,
) -> Result<Vec<PreemptionEvent>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT p.lsn, p.event_index, p.allocation_id, p.queue, p.node, p.cause,
                  own.allocation_id AS "by_own?", p.at AS "at: Moment", p.grace_until AS "grace_until: Moment",
                  p.outcome, p.stopped_at AS "stopped_at: Moment", p.requeued, p.freed_cpu_milli,
                  p.freed_memory_bytes, p.freed_gpu_milli
           FROM preemption_events AS p
           LEFT JOIN allocations AS own ON own.allocation_id = p.by_allocation_id AND own.tenant = p.tenant
           WHERE p.tenant = $1 ORDER BY p.lsn DESC, p.event_index DESC LIMIT $2"#,
        tenant.as_str(),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let amount =
            |what, value: Option<i64>| value.map(|value| unsigned(what, value)).transpose();
        Ok(PreemptionEvent {
            position: history::position(record.lsn, record.event_index)?,
            victim: AllocationId(record.allocation_id),
            queue: record.queue,
            node: record.node,
            cause: names::preemption_cause(&record.cause)?,
            by: record.by_own.map(AllocationId),
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
