//! The table `ended_allocations`: a row for each life. It is written once for nearly every request there ever was, so it is
//! narrow: its width is most of what a row costs. What is looked for by SQL is a column, and the rest two messages.

use super::{
    Allocation,
    allocations::{Left, asked},
    list::{Wanted, Within},
};
use crate::project::{AllocationState, Attempt, Written};
use bytes::Bytes;
use chassis::warm::{Moment, OutOfRange, WarmError, insert, unsigned};
use sqlx::{FromRow, PgConnection};
use std::collections::HashMap;
use table::{PgType, Read, RowError, Table, Value, types};
use uuid::Uuid;
use vocab::{
    AllocationId, CellNo, EndCause, GpuShares, Lsn, Millis, NamedSpec, QuotaFlags, Refusal, Rule,
    RunExit, Stage, Token,
};
use wire::Message;

/// Every allocation that is over: it has ended, or quota has denied it.
#[derive(Table)]
#[table(name = "ended_allocations", key(allocation_id), fixed)]
#[table(check(
    ended_for_a_cause_or_denied_by_a_rule,
    "(state = 'ended') = (end_cause IS NOT NULL) AND (state = 'denied') = (quota_rule IS NOT NULL)"
))]
#[table(check(
    nothing_before_its_placement,
    "started_at >= placed_at AND ended_at >= placed_at"
))]
// By this alone: equal names lie beside each other and are compared once, and a third of the row's costs was to keep them in
// the order of tenants and times, too.
#[table(index(by_job_set, on "job_set"))]
// What a tenant has, the newest first, a page at a time.
#[table(index(of_tenant, on "tenant, allocation_id"))]
pub struct Record<'a> {
    allocation_id: Uuid,
    tenant: &'a Token,
    job_set: &'a Token,
    /// The tenant's own name for it.
    name: Option<&'a Token>,
    queue: &'a Token,
    // By this alone a query for a live state leaves the table out.
    #[table(check = "state IN ('ended', 'denied')")]
    state: Stage,
    end_cause: Option<EndCause>,
    /// The rule by which quota has denied it.
    quota_rule: Option<Rule>,
    /// Its last one.
    node: Option<&'a Token>,
    cpu_milli: u64,
    memory_bytes: u64,
    /// Thousandths of a GPU, of all its devices together.
    gpu_milli: u64,
    requested_at: Millis,
    /// For the last time, as what follows.
    placed_at: Option<Millis>,
    /// By the node's report.
    started_at: Option<Millis>,
    /// By the node's report, or when it was denied.
    ended_at: Millis,
    /// When the end was recorded.
    since: Millis,
    /// Ledger position of the end.
    lsn: Lsn,
    /// What it asked for, with its last priority: the message `AllocationSpec` of the contract.
    spec: AsMessage<'a>,
    /// What else is known of it: field 1 for each device of its last place, 2 how often it was queued again, 3 what ended
    /// the run before the last time, 4 the refusal by quota, 5 how the command of the last run ended,
    /// 6 what was remarkable about its quota, as `quota_flags` of `live_allocations`, 7 the tenant's id of the operation that
    /// asked for it, 8 its places before the last one, as field 1 of `past` of `live_allocations`.
    rest: Vec<u8>,
    /// What is said of every allocation, once: its first placement, its end or its denial. Field 1 for each, of a message
    /// with `position`, `at_ms` and `fact`, as a row of `explanations` has them.
    facts: Facts<'a>,
}

/// A specification, encoded where it is written to.
pub(super) struct AsMessage<'a>(pub &'a NamedSpec);

impl Value for AsMessage<'_> {
    const TYPE: PgType = types::BYTEA;

    fn write(&self, _column: &'static str, out: &mut Vec<u8>) -> Result<table::Written, RowError> {
        wire::Row::behind(out, |out| self.0.whole().write_body(out));
        Ok(table::Written::Value)
    }
}

/// What was said before a batch, and behind it what is told in it.
pub(super) struct Facts<'a>(pub &'a [u8], pub &'a [Bytes]);

impl Value for Facts<'_> {
    const TYPE: PgType = types::BYTEA;

    fn write(&self, _column: &'static str, out: &mut Vec<u8>) -> Result<table::Written, RowError> {
        out.extend_from_slice(self.0);
        self.1.iter().for_each(|told| out.extend_from_slice(told));
        Ok(table::Written::Value)
    }
}

#[derive(Debug, Default, PartialEq, Eq, wire::Wire)]
struct Rest {
    #[wire(1)]
    gpus: GpuShares,
    #[wire(2)]
    attempts: u32,
    #[wire(3)]
    last_end_cause: Option<EndCause>,
    #[wire(4)]
    refusal: Option<Refusal>,
    #[wire(5)]
    exit: Option<RunExit>,
    #[wire(6)]
    quota_flags: QuotaFlags,
    #[wire(7)]
    operation: Option<Token>,
    #[wire(8)]
    past: Vec<Attempt>,
}

/// The column `past` of `live_allocations`.
#[derive(Debug, Default, wire::Wire)]
pub(super) struct Past {
    #[wire(1)]
    past: Vec<Attempt>,
}

impl Past {
    pub fn of(past: &[Attempt]) -> Vec<u8> {
        match past {
            [] => Vec::new(),
            past => Self {
                past: past.to_vec(),
            }
            .encode_to_vec(),
        }
    }

    pub fn read(bytes: &[u8]) -> Result<Vec<Attempt>, OutOfRange> {
        let read = Self::decode(bytes);
        Ok(read.map_err(|error| OutOfRange::new("past", error))?.past)
    }
}

impl<'a> Record<'a> {
    /// None: it is not over. `left` is what its row among the live had, if it had one.
    fn of(
        cell: CellNo,
        Written {
            row,
            told,
            operation,
            ..
        }: &'a Written,
        left: Option<&'a Left>,
    ) -> Option<Self> {
        let (end_cause, exit, ended_at) = match &row.state {
            AllocationState::Ended {
                cause, at, exit, ..
            } => (Some(*cause), *exit, *at),
            AllocationState::Denied { at, .. } => (None, None, *at),
            AllocationState::Requested { .. }
            | AllocationState::Queued { .. }
            | AllocationState::Nominated { .. }
            | AllocationState::Held { .. } => return None,
        };
        let (spec, place) = (row.spec.common(), row.state.place());
        let refusal = row.state.refusal();
        let rest = Rest {
            gpus: place.map_or_else(GpuShares::new, |place| place.gpus.clone()),
            attempts: row.attempts,
            last_end_cause: row.last_cause,
            refusal: refusal.cloned(),
            exit,
            quota_flags: row.quota_flags,
            operation: left.map_or(operation, |left| &left.operation).clone(),
            past: row.past.clone(),
        };
        Some(Self {
            allocation_id: row.allocation.id(cell).0,
            tenant: &row.tenant,
            job_set: &spec.job_set,
            name: row.spec.name(),
            queue: row.queue(),
            state: row.state.stage(),
            end_cause,
            quota_rule: refusal.map(|refusal| refusal.rule),
            node: place.map(|place| &place.node),
            cpu_milli: spec.cpu_milli,
            memory_bytes: spec.memory_bytes,
            gpu_milli: spec.amount(vocab::ResourceKind::Gpu),
            requested_at: row.requested_at,
            placed_at: place.map(|place| place.placed_at),
            started_at: place.and_then(|place| place.started_at),
            ended_at,
            since: row.since,
            lsn: row.lsn,
            spec: AsMessage(&row.spec),
            rest: rest.encode_to_vec(),
            facts: Facts(left.map_or(&[], |left| &left.facts), told),
        })
    }
}

/// Writes those of a batch that are over; `left` is what the rows had of those that were live.
pub(super) async fn write(
    tx: &mut PgConnection,
    cell: CellNo,
    over: &[&Written],
    left: &HashMap<Uuid, Left>,
) -> Result<(), WarmError> {
    let rows = over.iter().filter_map(|written| {
        let left = left.get(&written.row.allocation.id(cell).0);
        Record::of(cell, written, left)
    });
    insert(tx, rows).await
}

/// A row of `ended_allocations`, as far as it is told.
#[derive(FromRow)]
struct Ended {
    allocation_id: Uuid,
    tenant: String,
    queue: String,
    state: String,
    end_cause: Option<String>,
    node: Option<String>,
    requested_at: Moment,
    placed_at: Option<Moment>,
    started_at: Option<Moment>,
    ended_at: Moment,
    lsn: i64,
    spec: Vec<u8>,
    rest: Vec<u8>,
}

/// The columns of [`Ended`].
const ENDED: &str = "allocation_id, tenant, queue, state, end_cause, node, requested_at, placed_at, started_at, ended_at, lsn, spec, rest";

impl TryFrom<Ended> for Allocation {
    type Error = OutOfRange;

    fn try_from(row: Ended) -> Result<Self, OutOfRange> {
        let rest = Rest::decode(&row.rest).map_err(|error| OutOfRange::new("rest", error))?;
        Ok(Self {
            id: AllocationId(row.allocation_id),
            tenant: row.tenant,
            operation: rest.operation.map(|operation| operation.to_string()),
            spec: asked(&row.spec)?,
            queue: row.queue,
            state: row.state,
            quota_flags: rest.quota_flags,
            quota: rest.refusal,
            waiting_reason: None,
            pending_group: None,
            nominated_node: None,
            node: row.node,
            gpus: rest.gpus,
            preempted: false,
            attempts: rest.attempts.try_into().unwrap_or(i32::MAX),
            last_end_cause: rest.last_end_cause,
            past: rest.past,
            end_cause: Option::read(row.end_cause, "end_cause")?,
            exit: rest.exit,
            requested_at: row.requested_at.into(),
            placed_at: row.placed_at.map(Millis::from),
            started_at: row.started_at.map(Millis::from),
            ended_at: Some(row.ended_at.into()),
            lsn: Lsn(unsigned("lsn", row.lsn)?),
        })
    }
}

/// Those of the tenant's own; another tenant's are not found.
pub(super) async fn allocations(
    db: &mut PgConnection,
    tenant: &Token,
    ids: &[Uuid],
) -> Result<Vec<Allocation>, WarmError> {
    let query = format!(
        "SELECT {ENDED} FROM ended_allocations WHERE allocation_id = ANY ($1) AND tenant = $2"
    );
    let rows: Vec<Ended> = sqlx::query_as(&query)
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
    let query = wanted.select("ended_allocations", ENDED);
    let rows = wanted.bind(sqlx::query_as::<_, Ended>(&query), tenant, within);
    wanted.first(rows.fetch(db)).await
}
