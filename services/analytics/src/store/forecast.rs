//! What is forecast: each tenant's month, how good such forecasts were, and the budgets.

use super::{Store, StoreError};
use clickhouse::Row;
use serde::{Deserialize, Serialize};

/// What a tenant pays for a resource in the month that is now. Millionths of the currency.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct MonthForecast {
    pub tenant: String,
    pub resource: String,
    /// Of the month's hours up to now.
    pub so_far_micro: i128,
    /// At the end of the month; none: no day of the tenant is wholly known yet.
    pub expected_micro: Option<i128>,
    /// None: no error of the method is known yet.
    pub low_micro: Option<i128>,
    pub high_micro: Option<i128>,
    /// Of the last 28 days, those for which there was an interval a week before.
    pub judged: u64,
    /// Of these, those that lay in it.
    pub within: u64,
}

/// A budget in the period that it is in now, in its own unit.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct BudgetForecast {
    pub tenant: String,
    pub team: String,
    pub namespace: String,
    /// money, cpu, memory or gpu.
    pub budget_of: String,
    pub period: String,
    /// Unix milliseconds, as all moments.
    pub ends_ms: i64,
    pub amount: u64,
    pub spent: i128,
    /// At the end of the period; none: no day of the tenant is wholly known yet.
    pub expected: Option<i128>,
    /// None: no error of the method is known yet.
    pub low: Option<i128>,
    pub high: Option<i128>,
    /// With the high, the expected and the low days; none: not in this period.
    pub exhausted_early_ms: Option<i64>,
    pub exhausted_ms: Option<i64>,
    pub exhausted_late_ms: Option<i64>,
}

impl Store {
    /// Of all tenants, or of one. Days' intervals are added up, as if all days and resources erred the same way.
    pub async fn month_forecast(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<MonthForecast>, StoreError> {
        let query = self.query(
            "WITH
                 assumeNotNull((SELECT at FROM known_through)) AS now_at,
                 toDateTime(toStartOfMonth(now_at), 'UTC') AS begins_at,
                 toDate(begins_at + toIntervalMonth(1)) AS next_month,
                 parts AS (
                     SELECT toString(c.tenant) AS tenant, toString(c.resource) AS resource, toInt128(c.amount_micro) AS so_far,
                         [CAST(NULL, 'Nullable(Int256)'), NULL, NULL] AS coming,
                         toUInt64(0) AS judged, toUInt64(0) AS within
                     FROM chargeback_hourly AS c
                     WHERE c.hour >= begins_at
                     UNION ALL
                     SELECT o.tenant, o.resource, toInt128(0),
                         arrayMap(
                             of_day -> intDiv(
                                 toInt256(of_day) * dateDiff(
                                     'millisecond',
                                     greatest(now_at, toDateTime64(o.day, 3, 'UTC')),
                                     toDateTime64(o.day + 1, 3, 'UTC')
                                 ),
                                 86400000
                             ),
                             [toNullable(o.expected), o.low, o.high]
                         ),
                         toUInt64(0), toUInt64(0)
                     FROM demand_outlook AS o
                     WHERE o.kind = 'tenant' AND o.measure = 'amount' AND o.day < next_month
                     UNION ALL
                     SELECT b.tenant, b.resource, toInt128(0), [NULL, NULL, NULL], toUInt64(b.within IS NOT NULL),
                         toUInt64(ifNull(b.within, 0))
                     FROM demand_backtest AS b
                     WHERE b.measure = 'amount'
                 )
             SELECT p.tenant AS tenant, p.resource AS resource, sum(p.so_far) AS so_far_micro,
                 toInt128(so_far_micro + sum(p.coming[1])) AS expected_micro,
                 toInt128(so_far_micro + sum(p.coming[2])) AS low_micro,
                 toInt128(so_far_micro + sum(p.coming[3])) AS high_micro,
                 sum(p.judged) AS judged, sum(p.within) AS within
             FROM parts AS p
             WHERE ? IN ('', p.tenant)
             GROUP BY tenant, resource ORDER BY tenant, resource",
        );
        self.fetch_all(query.bind(tenant.unwrap_or_default())).await
    }

    /// Of all tenants, or of one.
    pub async fn budget_forecast(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<BudgetForecast>, StoreError> {
        let query = self.query(
            "SELECT b.tenant AS tenant, team, namespace, budget_of, period, toInt64(toUnixTimestamp(ends_at)) * 1000 AS ends_ms,
                 amount, spent, expected, low, high,
                 toUnixTimestamp64Milli(exhausted_early) AS exhausted_early_ms,
                 toUnixTimestamp64Milli(exhausted_at) AS exhausted_ms,
                 toUnixTimestamp64Milli(exhausted_late) AS exhausted_late_ms
             FROM budget_forecast AS b
             WHERE ? IN ('', b.tenant)
             ORDER BY tenant, team, namespace, budget_of",
        );
        self.fetch_all(query.bind(tenant.unwrap_or_default())).await
    }
}
