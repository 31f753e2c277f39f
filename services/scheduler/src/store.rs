//! Warm state of the scheduler: the only file with SQL.

use crate::project::{AllocationRow, AllocationState, WarmProjection};
use chassis::warm::{Moment, OutOfRange, PgSink, ROWS_MAX, WarmError, WarmState, bigint, unsigned};
use ledger::Projection;
use sqlx::{PgConnection, PgPool, migrate::Migrator};
use std::collections::BTreeMap;
use uuid::Uuid;
use vocab::{AllocationId, CellNo, EndCause, GpuShare, Lsn, Millis, Token, WaitingReason};

/// The tables `allocations`, `scheduling_queue` and `projection_position`.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerTables {
    /// Part of every allocation's id.
    pub cell: CellNo,
}

/// Where the projection's changes go.
pub fn sink(pool: PgPool, cell: CellNo) -> PgSink<SchedulerTables> {
    PgSink::new(pool, SchedulerTables { cell })
}

impl WarmState for SchedulerTables {
    type Change = AllocationRow;

    const NAME: &'static str = WarmProjection::NAME;

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("../../schemas/postgres/scheduler");
        &MIGRATOR
    }

    async fn write(
        &self,
        tx: &mut PgConnection,
        changes: &[AllocationRow],
    ) -> Result<(), WarmError> {
        for rows in collapse(changes).chunks(ROWS_MAX) {
            upsert_allocations(tx, self.cell, rows).await?;
            upsert_queue(tx, self.cell, rows).await?;
            leave_queue(tx, self.cell, rows).await?;
        }
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        sqlx::query!("TRUNCATE allocations, scheduling_queue")
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// One row per allocation, the last: a statement may not touch a row twice.
fn collapse(changes: &[AllocationRow]) -> Vec<&AllocationRow> {
    let mut last = BTreeMap::new();
    for row in changes {
        last.insert(row.allocation, row);
    }
    last.into_values().collect()
}

async fn upsert_allocations(
    tx: &mut PgConnection,
    cell: CellNo,
    rows: &[&AllocationRow],
) -> Result<(), WarmError> {
    let columns = Columns::of(cell, rows)?;
    sqlx::query!(
        "INSERT INTO allocations
             (allocation_id, tenant, job_set, name, priority, cpu_milli, memory_bytes, gpu_count, gpu_milli,
              gpu_models, state, waiting_reason, node, gpu_devices, gpu_shares, end_cause, requested_at, placed_at,
              started_at, ended_at, lsn)
         SELECT allocation_id, tenant, job_set, name, priority, cpu_milli, memory_bytes, gpu_count, gpu_milli,
                string_to_array(gpu_models, ','), state, waiting_reason, node,
                string_to_array(gpu_devices, ',')::integer[], string_to_array(gpu_shares, ',')::integer[], end_cause,
                requested_at, placed_at, started_at, ended_at, lsn
         FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[],
                     $8::integer[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
                     $15::text[], $16::text[], $17::timestamptz[], $18::timestamptz[], $19::timestamptz[],
                     $20::timestamptz[], $21::bigint[])
             AS row (allocation_id, tenant, job_set, name, priority, cpu_milli, memory_bytes, gpu_count, gpu_milli,
                     gpu_models, state, waiting_reason, node, gpu_devices, gpu_shares, end_cause, requested_at,
                     placed_at, started_at, ended_at, lsn)
         ON CONFLICT (allocation_id) DO UPDATE SET
             state = excluded.state, waiting_reason = excluded.waiting_reason, node = excluded.node,
             gpu_devices = excluded.gpu_devices, gpu_shares = excluded.gpu_shares, end_cause = excluded.end_cause,
             placed_at = excluded.placed_at, started_at = excluded.started_at, ended_at = excluded.ended_at,
             lsn = excluded.lsn",
        &columns.ids,
        &columns.tenants as _,
        &columns.job_sets as _,
        &columns.names as _,
        &columns.priorities,
        &columns.cpus,
        &columns.memories,
        &columns.gpu_counts,
        &columns.gpu_millis,
        &columns.gpu_models,
        &columns.states as _,
        &columns.reasons as _,
        &columns.nodes as _,
        &columns.gpu_devices,
        &columns.gpu_shares,
        &columns.causes as _,
        &columns.requested as _,
        &columns.placed as _,
        &columns.started as _,
        &columns.ended as _,
        &columns.lsns,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The rows, column by column. Lists in a row are joined by commas, which no name contains: an array of arrays would have
/// to be a rectangle.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    tenants: Vec<&'a str>,
    job_sets: Vec<&'a str>,
    names: Vec<Option<&'a str>>,
    priorities: Vec<i32>,
    cpus: Vec<i64>,
    memories: Vec<i64>,
    gpu_counts: Vec<i32>,
    gpu_millis: Vec<i32>,
    gpu_models: Vec<String>,
    states: Vec<&'static str>,
    reasons: Vec<Option<&'static str>>,
    nodes: Vec<Option<&'a str>>,
    gpu_devices: Vec<String>,
    gpu_shares: Vec<String>,
    causes: Vec<Option<&'static str>>,
    requested: Vec<Moment>,
    placed: Vec<Option<Moment>>,
    started: Vec<Option<Moment>>,
    ended: Vec<Option<Moment>>,
    lsns: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(cell: CellNo, rows: &[&'a AllocationRow]) -> Result<Self, OutOfRange> {
        let mut columns = Self::default();
        for row in rows {
            columns.push(cell, row)?;
        }
        Ok(columns)
    }

    fn push(&mut self, cell: CellNo, row: &'a AllocationRow) -> Result<(), OutOfRange> {
        let moment = |at: Option<Millis>| at.map(Moment::try_from).transpose();
        let spec = &row.spec;
        let gpu = spec.gpu.as_ref();
        self.ids.push(row.allocation.id(cell).0);
        self.tenants.push(row.tenant.as_str());
        self.job_sets.push(spec.job_set.as_str());
        self.names.push(spec.name.as_ref().map(Token::as_str));
        self.priorities.push(spec.priority);
        self.cpus.push(bigint("cpu_milli", spec.cpu_milli)?);
        self.memories
            .push(bigint("memory_bytes", spec.memory_bytes)?);
        self.gpu_counts.push(gpu.map_or(0, |gpu| gpu.count.into()));
        self.gpu_millis.push(gpu.map_or(0, |gpu| gpu.milli.into()));
        self.gpu_models.push(joined(
            gpu.map_or(&[][..], |gpu| &gpu.models),
            Token::as_str,
        ));
        self.requested.push(row.requested_at.try_into()?);
        self.lsns.push(bigint("lsn", row.lsn.0)?);

        let place = row.state.place();
        let gpus = place.map_or(&[][..], |place| &place.gpus);
        let (mut reason, mut cause, mut ended) = (None, None, None);
        match &row.state {
            AllocationState::Queued { reason: why, .. } => reason = why.map(WaitingReason::name),
            AllocationState::Ended { cause: why, at, .. } => {
                (cause, ended) = (Some(why.name()), Some(*at));
            }
            AllocationState::Denied { at } => ended = Some(*at),
            AllocationState::Requested | AllocationState::Held { .. } => {}
        }
        self.states.push(row.state.name());
        self.reasons.push(reason);
        self.nodes.push(place.map(|place| place.node.as_str()));
        self.gpu_devices.push(joined(gpus, |share| share.device));
        self.gpu_shares.push(joined(gpus, |share| share.milli));
        self.causes.push(cause);
        self.placed
            .push(moment(place.map(|place| place.placed_at))?);
        self.started
            .push(moment(place.and_then(|place| place.started_at))?);
        self.ended.push(moment(ended)?);
        Ok(())
    }
}

fn joined<'a, T, S: ToString>(items: &'a [T], text: impl Fn(&'a T) -> S) -> String {
    let items: Vec<_> = items.iter().map(|item| text(item).to_string()).collect();
    items.join(",")
}

async fn upsert_queue(
    tx: &mut PgConnection,
    cell: CellNo,
    rows: &[&AllocationRow],
) -> Result<(), WarmError> {
    let mut ids = Vec::new();
    let mut tenants = Vec::new();
    let mut priorities = Vec::new();
    let mut arrivals = Vec::new();
    let mut reasons = Vec::new();
    let mut times = Vec::new();
    for row in rows {
        if let AllocationState::Queued { reason, since } = &row.state {
            ids.push(row.allocation.id(cell).0);
            tenants.push(row.tenant.as_str());
            priorities.push(row.spec.priority);
            arrivals.push(bigint("arrival", row.allocation.0)?);
            reasons.push(reason.map(WaitingReason::name));
            times.push(Moment::try_from(*since)?);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO scheduling_queue (allocation_id, tenant, priority, arrival, waiting_reason, since)
         SELECT * FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::bigint[], $5::text[], $6::timestamptz[])
         ON CONFLICT (allocation_id) DO UPDATE SET waiting_reason = excluded.waiting_reason, since = excluded.since",
        &ids,
        &tenants as _,
        &priorities,
        &arrivals,
        &reasons as _,
        &times as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn leave_queue(
    tx: &mut PgConnection,
    cell: CellNo,
    rows: &[&AllocationRow],
) -> Result<(), WarmError> {
    let queued = |row: &&AllocationRow| matches!(row.state, AllocationState::Queued { .. });
    let gone = rows.iter().filter(|row| !queued(row));
    let ids: Vec<Uuid> = gone.map(|row| row.allocation.id(cell).0).collect();
    sqlx::query!(
        "DELETE FROM scheduling_queue WHERE allocation_id = ANY ($1)",
        &ids
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// An allocation as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub id: AllocationId,
    pub tenant: String,
    pub job_set: String,
    pub name: Option<String>,
    pub priority: i32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_count: i32,
    pub gpu_milli: i32,
    pub gpu_models: Vec<String>,
    /// `requested`, `queued`, `placed`, `running`, `stopping`, `ended` or `denied`.
    pub state: String,
    pub waiting_reason: Option<WaitingReason>,
    pub node: Option<String>,
    pub gpus: Vec<GpuShare>,
    pub end_cause: Option<EndCause>,
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
    let record = sqlx::query!(
        r#"SELECT tenant, job_set, name, priority, cpu_milli, memory_bytes, gpu_count, gpu_milli, gpu_models, state,
                  waiting_reason, node, gpu_devices, gpu_shares, end_cause, requested_at AS "requested_at: Moment",
                  placed_at AS "placed_at: Moment", started_at AS "started_at: Moment",
                  ended_at AS "ended_at: Moment", lsn
           FROM allocations WHERE allocation_id = $1 AND tenant = $2"#,
        id.0,
        tenant.as_str(),
    )
    .fetch_optional(pool)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    Ok(Some(Allocation {
        id,
        tenant: record.tenant,
        job_set: record.job_set,
        name: record.name,
        priority: record.priority,
        cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
        memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
        gpu_count: record.gpu_count,
        gpu_milli: record.gpu_milli,
        gpu_models: record.gpu_models,
        state: record.state,
        waiting_reason: waiting_reason(record.waiting_reason)?,
        node: record.node,
        gpus: shares(&record.gpu_devices, &record.gpu_shares)?,
        end_cause: record
            .end_cause
            .map(|text| {
                let known = EndCause::ALL.into_iter().find(|cause| cause.name() == text);
                known.ok_or_else(|| OutOfRange::new("end_cause", text))
            })
            .transpose()?,
        requested_at: record.requested_at.into(),
        placed_at: record.placed_at.map(Millis::from),
        started_at: record.started_at.map(Millis::from),
        ended_at: record.ended_at.map(Millis::from),
        lsn: Lsn(unsigned("lsn", record.lsn)?),
    }))
}

fn waiting_reason(text: Option<String>) -> Result<Option<WaitingReason>, OutOfRange> {
    let Some(text) = text else {
        return Ok(None);
    };
    let known = WaitingReason::ALL
        .into_iter()
        .find(|reason| reason.name() == text);
    known
        .map(Some)
        .ok_or_else(|| OutOfRange::new("waiting_reason", text))
}

fn shares(devices: &[i32], millis: &[i32]) -> Result<Vec<GpuShare>, OutOfRange> {
    let small = |what, value: i32| u16::try_from(value).map_err(|_| OutOfRange::new(what, value));
    let pairs = devices.iter().zip(millis);
    let shares = pairs.map(|(device, milli)| {
        Ok(GpuShare {
            device: small("gpu_devices", *device)?,
            milli: small("gpu_shares", *milli)?,
        })
    });
    shares.collect()
}

/// One that waits for a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub id: AllocationId,
    /// Its place in the whole cell's queue, from 1.
    pub position: i64,
    pub priority: i32,
    pub waiting_reason: Option<WaitingReason>,
    pub since: Millis,
}

/// What a tenant has in the queue, first come first.
pub async fn queue(pool: &PgPool, tenant: &Token, limit: u32) -> Result<Vec<Queued>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT allocation_id, position AS "position!", priority, waiting_reason, since AS "since: Moment"
           FROM (SELECT *, row_number() OVER (ORDER BY priority DESC, arrival) AS position FROM scheduling_queue) AS q
           WHERE tenant = $1 ORDER BY position LIMIT $2"#,
        tenant.as_str(),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        Ok(Queued {
            id: AllocationId(record.allocation_id),
            position: record.position,
            priority: record.priority,
            waiting_reason: waiting_reason(record.waiting_reason)?,
            since: record.since.into(),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{AllocationNo, AllocationSpec};

    #[test]
    fn the_last_change_of_an_allocation_is_written() {
        let row = |allocation, lsn| AllocationRow {
            allocation: AllocationNo(allocation),
            tenant: Token::new("t").unwrap(),
            spec: AllocationSpec {
                job_set: Token::new("j").unwrap(),
                name: None,
                priority: 0,
                cpu_milli: 1,
                memory_bytes: 1,
                gpu: None,
            },
            requested_at: Millis(0),
            state: AllocationState::Requested,
            lsn: Lsn(lsn),
        };
        let changes = [row(2, 1), row(1, 1), row(2, 3), row(2, 4)];
        let found: Vec<_> = collapse(&changes)
            .iter()
            .map(|row| (row.allocation.0, row.lsn.0))
            .collect();
        assert_eq!(found, [(1, 1), (2, 4)]);
    }

    #[test]
    fn lists_become_text_and_back() {
        assert_eq!(joined(&[] as &[i32], |n| *n), "");
        assert_eq!(joined(&[3, 1], |n| *n), "3,1");
        let share = |device, milli| GpuShare { device, milli };
        assert_eq!(
            shares(&[0, 15], &[1000, 1]),
            Ok(vec![share(0, 1000), share(15, 1)])
        );
        assert!(shares(&[-1], &[1]).is_err());
    }
}
