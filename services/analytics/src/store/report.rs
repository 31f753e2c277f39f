//! What a report on a stretch of time is made of: capacity, its costs, who spends, how runs end, sizes and waits.
//!
//! Each question is answered by sums, so that the answer has far fewer rows than a reader may read.

use super::{Store, StoreError, tenant::seconds};
use clickhouse::Row;
use serde::{Deserialize, Serialize};
use vocab::{EndCause, Millis, Month};

/// Hours that begin in `[from, until)`, Unix milliseconds. Runs and waits are cut to it, or counted by when they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Millis,
    pub until: Millis,
}

impl Span {
    pub fn of(month: Month) -> Self {
        Self {
            from: month.begin(),
            until: month.end(),
        }
    }
}

/// Up to where the tables are, and what they are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct Mark {
    /// Unix milliseconds: everything before is known, and what runs is billed up to here.
    pub through_ms: i64,
    /// The ledger's positions behind `after_lsn` up to `lsn` are in the tables.
    pub after_lsn: u64,
    pub lsn: u64,
}

/// When and where in the ledger a month's bill became final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct Closing {
    /// Unix milliseconds.
    pub closed_ms: i64,
    pub lsn: u64,
}

/// What all nodes had of a resource in an hour, in unit-milliseconds, by the state that it was in.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct CapacityLine {
    /// Unix milliseconds of the hour's beginning.
    pub begins_ms: i64,
    pub resource: String,
    pub allocated: i128,
    pub reserved: i128,
    pub idle: i128,
    pub cordoned: i128,
    pub unavailable: i128,
}

/// What capacity cost that no tenant was charged for.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct CostLine {
    pub resource: String,
    /// reserved, idle, cordoned or unavailable.
    pub state: String,
    /// Unit-milliseconds.
    pub quantity: i128,
    /// Millionths of the currency.
    pub amount_micro: i128,
}

/// Whom spending is told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spender {
    Tenant,
    Team,
    JobSet,
    Queue,
}

impl Spender {
    /// The columns of tenant, team, queue and job set; what it is not told apart by is empty.
    fn columns(self) -> &'static str {
        match self {
            Self::Tenant => "toString(c.tenant) AS tenant, '' AS team, '' AS queue, '' AS job_set",
            Self::Team => {
                "toString(c.tenant) AS tenant, toString(c.team) AS team, '' AS queue, '' AS job_set"
            }
            Self::JobSet => {
                "toString(c.tenant) AS tenant, toString(c.team) AS team, '' AS queue, c.job_set AS job_set"
            }
            Self::Queue => "'' AS tenant, '' AS team, toString(c.queue) AS queue, '' AS job_set",
        }
    }
}

/// What somebody used, in unit-milliseconds, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct SpentLine {
    pub tenant: String,
    pub team: String,
    pub queue: String,
    pub job_set: String,
    pub cpu: i128,
    pub memory: i128,
    /// Of all models.
    pub gpu: i128,
    /// Millionths of the currency.
    pub amount_micro: i128,
}

/// Runs by what ended them, and their time within the stretch in unit-milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct EndLine {
    pub cause: String,
    pub runs: u64,
    pub cpu: i128,
    pub memory: i128,
    pub gpu: i128,
}

/// Runs of a size, over or not, and what they used of the resource within the stretch in unit-milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct SizeLine {
    /// cpu or gpu.
    pub resource: String,
    /// Thousandths: the size is at most that, and above half of it. 0: none; 999: a part of one.
    pub up_to_milli: u64,
    pub runs: u64,
    pub quantity: i128,
}

/// A queue's waits for a place, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct WaitLine {
    pub queue: String,
    /// Got a place, and their run is over.
    pub placed: u64,
    /// Ended without one. Their waits are in none of the figures below.
    pub unplaced: u64,
    /// `None`, as the figures below, if none of them got a place.
    pub p50_ms: Option<i64>,
    pub p90_ms: Option<i64>,
    pub p99_ms: Option<i64>,
    pub max_ms: Option<i64>,
}

/// An allocation that waited long.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct LongWait {
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: uuid::Uuid,
    pub tenant: String,
    pub team: String,
    pub queue: String,
    pub job_set: String,
    /// Unix milliseconds.
    pub queued_ms: i64,
    pub waited_ms: i64,
    /// The last that was said of why it waited; empty when nothing was.
    pub reason: String,
    /// Empty: it got a place; otherwise why it ended without one.
    pub ended_by: String,
}

/// Who bears what nobody is charged for; see the view `cost_shares`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer<'a> {
    Nobody,
    InProportion,
    AllEqually,
    CostCentre(&'a str),
}

/// What a tenant bears of a month's capacity.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct ShareLine {
    /// Empty: nobody's.
    pub tenant: String,
    /// charged, credited, discount, reserved, idle, cordoned or unavailable.
    pub part: String,
    pub amount_micro: i128,
}

/// A tenant's amount of the current month, up to now.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct TenantAmount {
    pub tenant: String,
    /// Millionths of the currency.
    pub amount_micro: i128,
}

impl Store {
    pub async fn mark(&self) -> Result<Mark, StoreError> {
        let query = self.query(
            "SELECT toUnixTimestamp64Milli(assumeNotNull((SELECT at FROM known_through))) AS through_ms,
                 min(after_lsn) AS after_lsn, max(to_lsn) AS lsn
             FROM ledger_ranges WHERE state = 'applied'",
        );
        self.fetch_one(query).await
    }

    /// Returns the amount of each tenant of the current month, up to now: the largest first.
    pub async fn month_amounts(&self) -> Result<Vec<TenantAmount>, StoreError> {
        let query = self.query(
            "SELECT toString(c.tenant) AS tenant, sum(c.amount_micro) AS amount_micro
             FROM chargeback_hourly AS c
             WHERE c.billing_period = toStartOfMonth(assumeNotNull((SELECT at FROM known_through)))
             GROUP BY tenant ORDER BY amount_micro DESC, tenant",
        );
        self.fetch_all(query).await
    }

    /// None: the month is open.
    pub async fn closing(&self, month: Month) -> Result<Option<Closing>, StoreError> {
        let query = self.query(
            "SELECT toUnixTimestamp64Milli(closed_at) AS closed_ms, lsn FROM closed_periods
             WHERE period >= toDate(?) ORDER BY period LIMIT 1",
        );
        let found: Vec<Closing> = self.fetch_all(query.bind(format!("{month}-01"))).await?;
        Ok(found.into_iter().next())
    }

    /// By hour and resource, up to now.
    pub async fn capacity(&self, span: Span) -> Result<Vec<CapacityLine>, StoreError> {
        let query = self.query(
            "SELECT toInt64(toUnixTimestamp(c.hour)) * 1000 AS begins_ms, toString(c.resource) AS resource,
                 toInt128(sum(c.allocated)) AS allocated, toInt128(sum(c.reserved)) AS reserved,
                 toInt128(sum(c.idle)) AS idle, toInt128(sum(c.cordoned)) AS cordoned,
                 toInt128(sum(c.unavailable)) AS unavailable
             FROM cluster_hourly AS c
             WHERE c.hour >= toDateTime(?, 'UTC') AND c.hour < toDateTime(?, 'UTC')
             GROUP BY begins_ms, resource ORDER BY begins_ms, resource",
        );
        let query = query.bind(seconds(span.from)).bind(seconds(span.until));
        self.fetch_all(query).await
    }

    pub async fn platform_costs(&self, span: Span) -> Result<Vec<CostLine>, StoreError> {
        let query = self.query(
            "SELECT toString(c.resource) AS resource, toString(c.state) AS state,
                 toInt128(sum(c.quantity)) AS quantity, toInt128(sum(c.amount_micro)) AS amount_micro
             FROM platform_cost_hourly AS c
             WHERE c.hour >= toDateTime(?, 'UTC') AND c.hour < toDateTime(?, 'UTC')
             GROUP BY resource, state ORDER BY resource, state",
        );
        let query = query.bind(seconds(span.from)).bind(seconds(span.until));
        self.fetch_all(query).await
    }

    /// Who spent most comes first.
    pub async fn spenders(
        &self,
        span: Span,
        by: Spender,
        limit: u32,
    ) -> Result<Vec<SpentLine>, StoreError> {
        let sql = format!(
            "SELECT {}, sumIf(c.quantity, c.resource = 'cpu') AS cpu,
                 sumIf(c.quantity, c.resource = 'memory') AS memory,
                 sumIf(c.quantity, startsWith(c.resource, 'gpu')) AS gpu, sum(c.amount_micro) AS amount_micro
             FROM chargeback_hourly AS c
             WHERE c.hour >= toDateTime(?, 'UTC') AND c.hour < toDateTime(?, 'UTC')
             GROUP BY tenant, team, queue, job_set
             ORDER BY amount_micro DESC, gpu DESC, cpu DESC, memory DESC, tenant, team, queue, job_set
             LIMIT ?",
            by.columns()
        );
        let query = self.query(&sql);
        let query = query.bind(seconds(span.from)).bind(seconds(span.until));
        self.fetch_all(query.bind(limit)).await
    }

    /// Of runs that are over; the most GPU time first.
    pub async fn ends(&self, span: Span) -> Result<Vec<EndLine>, StoreError> {
        let query = self.query(
            "WITH
                 fromUnixTimestamp64Milli(toInt64(?), 'UTC') AS begins,
                 fromUnixTimestamp64Milli(toInt64(?), 'UTC') AS ends,
                 toInt128(dateDiff('millisecond', greatest(started_at, begins), least(ended_at, ends))) AS ms
             SELECT toString(r.cause) AS cause, count() AS runs, sum(cpu_milli * ms) AS cpu,
                 sum(memory_bytes * ms) AS memory, sum(gpu_milli * ms) AS gpu
             FROM allocation_intervals AS r
             WHERE started_at < ends AND ended_at > begins
             GROUP BY cause ORDER BY gpu DESC, cpu DESC, cause",
        );
        self.fetch_all(query.bind(span.from.0).bind(span.until.0))
            .await
    }

    /// The smallest first.
    pub async fn sizes(&self, span: Span) -> Result<Vec<SizeLine>, StoreError> {
        let query = self.query(
            "WITH
                 fromUnixTimestamp64Milli(toInt64(?), 'UTC') AS begins,
                 fromUnixTimestamp64Milli(toInt64(?), 'UTC') AS ends,
                 assumeNotNull((SELECT at FROM known_through)) AS now_at,
                 runs AS (
                     SELECT cpu_milli, gpu_milli, started_at, ended_at FROM allocation_intervals
                     WHERE started_at < ends AND ended_at > begins
                     UNION ALL
                     SELECT cpu_milli, gpu_milli, started_at, greatest(now_at, started_at) AS ended_at
                     FROM running_allocations FINAL
                     WHERE started_at < ends AND now_at > begins
                 )
             SELECT size.1 AS resource,
                 multiIf(
                     size.2 = 0, toUInt64(0),
                     size.2 < 1000, toUInt64(999),
                     size.2 = 1000, toUInt64(1000),
                     toUInt64(roundToExp2(intDiv(size.2 + 999, 1000) - 1)) * 2000
                 ) AS up_to_milli,
                 count() AS runs,
                 sum(size.2 * toInt128(dateDiff('millisecond', greatest(started_at, begins), least(ended_at, ends))))
                     AS quantity
             FROM runs
             ARRAY JOIN [('cpu', cpu_milli), ('gpu', gpu_milli)] AS size
             GROUP BY resource, up_to_milli ORDER BY resource, up_to_milli",
        );
        self.fetch_all(query.bind(span.from.0).bind(span.until.0))
            .await
    }

    /// Returns the waits by queue: of allocations that got their place within the stretch, and the number of those that ended in it
    /// without one. Running allocations are not in the tables with their waits, so they are not counted.
    pub async fn waits(&self, span: Span) -> Result<Vec<WaitLine>, StoreError> {
        let query = self.query(
            "SELECT queue, countIf(w.placed) AS placed, countIf(NOT w.placed) AS unplaced,
                 quantileExactLowOrNullIf(0.5)(waited_ms, w.placed) AS p50_ms,
                 quantileExactLowOrNullIf(0.9)(waited_ms, w.placed) AS p90_ms,
                 quantileExactLowOrNullIf(0.99)(waited_ms, w.placed) AS p99_ms,
                 maxOrNullIf(greatest(0, wait_ms) AS waited_ms, w.placed) AS max_ms
             FROM waits AS w
             WHERE waited_until >= fromUnixTimestamp64Milli(toInt64(?), 'UTC')
                 AND waited_until < fromUnixTimestamp64Milli(toInt64(?), 'UTC')
             GROUP BY queue ORDER BY queue",
        );
        let query = query.bind(span.from.0).bind(span.until.0);
        self.fetch_all(query).await
    }

    /// The longest first.
    pub async fn longest_waits(&self, span: Span, limit: u32) -> Result<Vec<LongWait>, StoreError> {
        let query = self.query(
            "SELECT allocation, tenant, team, queue, job_set, toUnixTimestamp64Milli(queued_at) AS queued_ms,
                 wait_ms AS waited_ms, toString(wait_reason) AS reason, toString(cause) AS ended_by
             FROM waits
             WHERE waited_until >= fromUnixTimestamp64Milli(toInt64(?), 'UTC')
                 AND waited_until < fromUnixTimestamp64Milli(toInt64(?), 'UTC') AND wait_ms > 0
             ORDER BY waited_ms DESC, queued_ms, allocation LIMIT ?",
        );
        let query = query.bind(span.from.0).bind(span.until.0);
        self.fetch_all(query.bind(limit)).await
    }

    /// By tenant and part. Runs that ended in the month by one of `credited` are given back to their tenants.
    pub async fn shares(
        &self,
        month: Month,
        bearer: Bearer<'_>,
        credited: &[EndCause],
    ) -> Result<Vec<ShareLine>, StoreError> {
        let (method, cost_centre) = match bearer {
            Bearer::Nobody => ("none", ""),
            Bearer::InProportion => ("proportional", ""),
            Bearer::AllEqually => ("equal", ""),
            Bearer::CostCentre(name) => ("cost_centre", name),
        };
        let credited: Vec<&str> = credited.iter().map(|cause| cause.name()).collect();
        let query = self.query(
            "SELECT tenant, part, sum(s.amount_micro) AS amount_micro
             FROM cost_shares(month = ?, method = ?, cost_centre = ?, credited = ?) AS s
             GROUP BY tenant, part HAVING amount_micro != 0 ORDER BY tenant, part",
        );
        let query = query.bind(format!("{month}-01")).bind(method);
        self.fetch_all(query.bind(cost_centre).bind(credited.join(",")))
            .await
    }
}
