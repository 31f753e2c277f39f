//! What finance reads: rates, months, reconciliation, what a line is made of, and exports.

use super::{Store, StoreError, within};
use clickhouse::{Row, query::BytesCursor};
use serde::{Deserialize, Serialize};
use vocab::{Millis, Month, RateKey, RateScope, Token};

/// A month's capacity of a pool in money, and what became of it, in millionths of the currency.
#[derive(Debug, Clone, PartialEq, Row, Serialize, Deserialize)]
pub struct Reconciled {
    pub cluster: String,
    pub pool: String,
    pub resource: String,
    pub capacity_micro: i128,
    pub charged_micro: i128,
    /// What was charged less than the list price; below 0, more.
    pub discount_micro: i128,
    pub reserved_micro: i128,
    pub idle_micro: i128,
    pub cordoned_micro: i128,
    pub unavailable_micro: i128,
    /// What the rounded lines come to more than their exact sum.
    pub rounding_micro: f64,
    /// Exact, before any rounding; decimal digits. Only 0 is right.
    pub variance: String,
    pub first_lsn: u64,
    pub last_lsn: u64,
}

/// A month's whole capacity in money, and what became of it, in millionths of the currency.
#[derive(Debug, Clone, PartialEq, Row, Serialize, Deserialize)]
pub struct ReconciledMonth {
    /// `2026-11`.
    pub month: String,
    pub closed: bool,
    pub capacity_micro: i128,
    pub charged_micro: i128,
    /// What was charged less than the list price; below 0, more.
    pub discount_micro: i128,
    pub reserved_micro: i128,
    pub idle_micro: i128,
    pub cordoned_micro: i128,
    pub unavailable_micro: i128,
    pub rounding_micro: f64,
    /// The sum of what each pool's resource varies by, each without its sign; decimal digits. Only 0 is right.
    pub variance: String,
    pub first_lsn: u64,
    pub last_lsn: u64,
}

/// A run, or the part of one that runs, in an hour.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct Part {
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: uuid::Uuid,
    pub operation_id: String,
    pub name: String,
    pub team: String,
    pub job_set: String,
    pub resource: String,
    /// In the resource's unit.
    pub amount: u64,
    /// Of the hour.
    pub ms: i64,
    pub started_ms: i64,
    /// 0: it runs.
    pub ended_ms: i64,
    pub cause: String,
    /// Where in the ledger its end is; 0: it runs.
    pub lsn: u64,
}

/// Charges of the use that a correction would price, before and after it, in millionths of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct Corrected {
    pub before_micro: i128,
    pub after_micro: i128,
}

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    /// The lines of the bill, as CSV.
    Lines,
    /// FOCUS 1.2: rows of texts, each a JSON array, the names first.
    FocusRows,
    /// FOCUS 1.2 as Parquet.
    FocusParquet,
}

/// Lines that one export sorts: a reader has 1 GB of memory.
const EXPORT_LINES: u64 = 100_000;

/// A range of tenants by name, first and last included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenants {
    first: String,
    last: String,
}

impl Tenants {
    /// No tenant.
    pub fn none() -> Self {
        Self {
            first: String::new(),
            last: String::new(),
        }
    }
}

/// Groups tenants, in order with their lines, into ranges of at most `EXPORT_LINES` lines or one tenant.
fn ranges(billed: Vec<(String, u64)>) -> Vec<Tenants> {
    let mut ranges: Vec<(Tenants, u64)> = Vec::new();
    for (tenant, lines) in billed {
        match ranges.last_mut() {
            Some((range, all)) if all.saturating_add(lines) <= EXPORT_LINES => {
                range.last = tenant;
                *all += lines;
            }
            _ => {
                let range = Tenants {
                    first: tenant.clone(),
                    last: tenant,
                };
                ranges.push((range, lines));
            }
        }
    }
    ranges.into_iter().map(|(range, _)| range).collect()
}

/// Columns of the view `focus_charges` that are moments; CSV has them in ISO 8601.
const FOCUS_MOMENTS: [&str; 4] = [
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargePeriodEnd",
    "ChargePeriodStart",
];

/// Those that are decimals, with their digits behind the point; CSV has all of them.
const FOCUS_DECIMALS: [(&str, u8); 13] = [
    ("BilledCost", 6),
    ("ConsumedQuantity", 12),
    ("ContractedCost", 18),
    ("ContractedUnitPrice", 6),
    ("EffectiveCost", 6),
    ("ListCost", 18),
    ("ListUnitPrice", 6),
    ("PricingCurrencyContractedUnitPrice", 6),
    ("PricingCurrencyEffectiveCost", 6),
    ("PricingCurrencyListUnitPrice", 6),
    ("PricingQuantity", 12),
    ("x_AmountMicro", 0),
    ("x_UnitSeconds", 3),
];

/// Total but for rows that are equal in all columns.
const FOCUS_ORDER: &str = "x_Tenant NULLS LAST, ChargePeriodStart, SkuId, x_CapacityState, x_Cluster, x_Pool, x_Team,
     x_Namespace, x_Queue, x_JobSet, x_PriorityClass, ChargeClass NULLS FIRST, SkuPriceId, x_FirstLsn, x_LastLsn,
     x_AmountMicro, x_UnitSeconds, x_Milliseconds";

impl Export {
    fn select(self) -> String {
        match self {
            Self::Lines => {
                "SELECT * EXCEPT unit_hours, (SELECT argMax(currency, at) FROM cells) AS currency
                 FROM chargeback_hourly
                 WHERE billing_period = toDate(?) AND tenant >= ? AND tenant <= ? ORDER BY ALL"
                    .to_owned()
            }
            Self::FocusRows => {
                let moments = FOCUS_MOMENTS.map(|name| {
                    format!("formatDateTime({name}, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS {name}")
                });
                let decimals = FOCUS_DECIMALS
                    .map(|(name, digits)| format!("toDecimalString({name}, {digits}) AS {name}"));
                let texts: Vec<String> = moments.into_iter().chain(decimals).collect();
                let texts = texts.join(", ");
                format!(
                    "SELECT * REPLACE ({texts}) FROM (
                         SELECT * FROM focus_charges
                         WHERE BillingPeriodStart = toDateTime(toDate(?), 'UTC')
                             AND ifNull(x_Tenant, '') >= ? AND ifNull(x_Tenant, '') <= ?
                         ORDER BY {FOCUS_ORDER})"
                )
            }
            Self::FocusParquet => format!(
                "SELECT * FROM focus_charges WHERE BillingPeriodStart = toDateTime(toDate(?), 'UTC')
                 ORDER BY {FOCUS_ORDER}"
            ),
        }
    }

    fn format(self) -> &'static str {
        match self {
            Self::Lines => "CSVWithNames",
            Self::FocusRows => "JSONCompactStringsEachRowWithNames",
            Self::FocusParquet => "Parquet",
        }
    }
}

impl Store {
    pub async fn reconciliation(&self, month: Month) -> Result<Vec<Reconciled>, StoreError> {
        let query = self.query(
            "SELECT r.cluster AS cluster, r.pool AS pool, r.resource AS resource, capacity_micro, charged_micro,
                 discount_micro, reserved_micro, idle_micro, cordoned_micro, unavailable_micro, rounding_micro,
                 toString(r.variance) AS variance, first_lsn, last_lsn
             FROM reconciliation AS r WHERE r.month = toDate(?) ORDER BY cluster, pool, resource",
        );
        self.fetch_all(query.bind(format!("{month}-01"))).await
    }

    /// Every month with capacity, in its order.
    pub async fn reconciled_months(&self) -> Result<Vec<ReconciledMonth>, StoreError> {
        let query = self.query(
            "WITH assumeNotNull((SELECT max(period) FROM closed_periods)) AS closed_through
             SELECT formatDateTime(r.month, '%Y-%m') AS month, r.month <= closed_through AS closed,
                 sum(r.capacity_micro) AS capacity_micro, sum(r.charged_micro) AS charged_micro,
                 sum(r.discount_micro) AS discount_micro, sum(r.reserved_micro) AS reserved_micro, sum(r.idle_micro) AS idle_micro,
                 sum(r.cordoned_micro) AS cordoned_micro, sum(r.unavailable_micro) AS unavailable_micro,
                 sum(r.rounding_micro) AS rounding_micro, toString(sum(abs(r.variance))) AS variance,
                 minIf(r.first_lsn, r.first_lsn != 0) AS first_lsn, max(r.last_lsn) AS last_lsn
             FROM reconciliation AS r GROUP BY r.month ORDER BY r.month",
        );
        self.fetch_all(query).await
    }

    /// Returns the runs that a tenant's use of an hour is made of. `gpu` stands for the GPUs of all models.
    pub async fn parts(
        &self,
        tenant: &Token,
        hour: Millis,
        resource: Option<&str>,
    ) -> Result<Vec<Part>, StoreError> {
        let query = self
            .query(
                "WITH
                     fromUnixTimestamp64Milli(toInt64(?), 'UTC') AS begins, begins + toIntervalHour(1) AS ends,
                     assumeNotNull((SELECT at FROM known_through)) AS now_at,
                     ? AS wanted,
                     runs AS (
                         SELECT allocation, operation_id, name, team, job_set, gpu_model, cpu_milli, memory_bytes,
                             gpu_milli, started_at, ended_at, toUnixTimestamp64Milli(ended_at) AS over_ms, cause, lsn
                         FROM allocation_intervals
                         WHERE tenant = ? AND started_at < ends AND ended_at > begins
                         UNION ALL
                         SELECT allocation, operation_id, name, team, job_set, gpu_model, cpu_milli, memory_bytes,
                             gpu_milli, started_at, greatest(now_at, started_at) AS ended_at, toInt64(0) AS over_ms,
                             '' AS cause, toUInt64(0) AS lsn
                         FROM running_allocations FINAL
                         WHERE tenant = ? AND started_at < ends AND now_at > begins
                     )
                 SELECT allocation, operation_id, name, team, job_set,
                     if(used.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), used.1) AS resource,
                     used.2 AS amount,
                     dateDiff('millisecond', greatest(started_at, begins), least(ended_at, ends)) AS ms,
                     toUnixTimestamp64Milli(started_at) AS started_ms, over_ms AS ended_ms, toString(cause) AS cause, lsn
                 FROM runs
                 ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS used
                 WHERE used.2 != 0 AND (wanted = '' OR resource = wanted OR startsWith(resource, wanted || ':'))
                 ORDER BY resource, started_ms, allocation",
            )
            .bind(hour.0)
            .bind(resource.unwrap_or_default())
            .bind(tenant.as_str())
            .bind(tenant.as_str());
        self.fetch_all(query).await
    }

    /// Returns the tenants in a month's bill in order, as ranges for one export each.
    pub async fn billed_tenants(&self, month: Month) -> Result<Vec<Tenants>, StoreError> {
        let query = self.query(
            "SELECT toString(c.tenant) AS tenant, count() AS lines FROM chargeback_hourly AS c
             WHERE c.billing_period = toDate(?) GROUP BY tenant ORDER BY tenant",
        );
        let billed = query.bind(format!("{month}-01"));
        Ok(ranges(self.fetch_all(billed).await?))
    }

    /// Returns a month's rows of a range of tenants; `Tenants::none()` selects the capacity that no tenant was charged for, and
    /// Parquet has all rows. A closed month always gives the same bytes.
    pub fn export(
        &self,
        what: Export,
        month: Month,
        tenants: &Tenants,
    ) -> Result<BytesCursor, StoreError> {
        let select = what.select();
        let query = self.query(&select).bind(format!("{month}-01"));
        let query = match what {
            Export::Lines | Export::FocusRows => query.bind(&tenants.first).bind(&tenants.last),
            Export::FocusParquet => query,
        };
        Ok(query.fetch_bytes(what.format())?)
    }

    /// Returns the charges, without and with it, of all use that a first rate would price from the beginning of time on. Use with a
    /// narrower rate is left out.
    pub async fn corrected(&self, rate: &RateKey, micro: u64) -> Result<Corrected, StoreError> {
        let RateScope {
            tenant,
            priority_class,
            pool,
            cluster,
        } = &rate.scope;
        let query = self.query(
            "WITH
                 (
                     {tenant:String} != '', {priority_class:String} != '', {pool:String} != '', {cluster:String} != '',
                     startsWith({resource:String}, 'gpu:')
                 ) AS names,
                 toInt256(if({resource:String} = 'memory', 1073741824, 1000)) * 3600000 AS per_unit_hour,
                 used AS (
                     SELECT toString(resource) AS resource, toString(tenant) AS tenant, toString(priority_class) AS priority_class,
                         toString(pool) AS pool, toString(cluster) AS cluster, since, quantity
                     FROM usage_hourly
                     UNION ALL
                     SELECT resource, tenant, priority_class, toString(pool) AS pool, toString(cluster) AS cluster, since, quantity
                     FROM running_usage
                 )
             SELECT
                 toInt128(intDiv(sum(toInt256(u.quantity) * p.micro_per_unit_hour) * 2 + per_unit_hour, per_unit_hour * 2)) AS before_micro,
                 toInt128(intDiv(sum(toInt256(u.quantity)) * {micro:UInt64} * 2 + per_unit_hour, per_unit_hour * 2)) AS after_micro
             FROM used AS u
             ASOF LEFT JOIN prices AS p ON u.resource = p.resource AND u.tenant = p.tenant
                 AND u.priority_class = p.priority_class AND u.pool = p.pool AND u.cluster = p.cluster AND u.since >= p.since
             WHERE (u.resource = {resource:String} OR {resource:String} = 'gpu' AND startsWith(u.resource, 'gpu:'))
                 AND {tenant:String} IN ('', u.tenant) AND {priority_class:String} IN ('', u.priority_class)
                 AND {pool:String} IN ('', u.pool) AND {cluster:String} IN ('', u.cluster)
                 AND (empty(p.fitting) OR p.fitting[-1].1 < names)",
        );
        let names = [
            ("tenant", tenant),
            ("priority_class", priority_class),
            ("pool", pool),
            ("cluster", cluster),
        ];
        let query = names.into_iter().fold(query, |query, (of, name)| {
            query.param(of, name.as_ref().map_or("", Token::as_str))
        });
        let query = query.param("resource", rate.resource.to_string());
        self.fetch_one(query.param("micro", micro)).await
    }

    /// The next piece of an export.
    pub async fn next_bytes(cursor: &mut BytesCursor) -> Result<Option<Vec<u8>>, StoreError> {
        let next = within(cursor.next()).await?;
        Ok(next.map(|bytes| bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(billed: &[(&str, u64)], expected: &[(&str, &str)]) {
        let billed = billed
            .iter()
            .map(|(name, lines)| (name.to_string(), *lines));
        let found = ranges(billed.collect());
        let found = found.iter().map(|range| (&*range.first, &*range.last));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn tenants_are_exported_in_ranges_of_so_many_lines() {
        check(&[], &[]);
        check(&[("a", 1), ("b", EXPORT_LINES - 1)], &[("a", "b")]);
        check(
            &[("a", 1), ("b", EXPORT_LINES), ("c", 1)],
            &[("a", "a"), ("b", "b"), ("c", "c")],
        );
        check(
            &[("a", u64::MAX), ("b", 1), ("c", 1)],
            &[("a", "a"), ("b", "c")],
        );
    }
}
