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
    /// Returns the forecast of all tenants, or of one.
    pub async fn month_forecast(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<MonthForecast>, StoreError> {
        let query = self.query(
            "SELECT f.tenant AS tenant, resource, so_far_micro, expected_micro, low_micro, high_micro, judged, within
             FROM month_forecast AS f
             WHERE ? IN ('', f.tenant)
             ORDER BY tenant, resource",
        );
        self.fetch_all(query.bind(tenant.unwrap_or_default())).await
    }

    /// Returns the forecast of the budgets of all tenants, or of one.
    pub async fn budget_forecast(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<BudgetForecast>, StoreError> {
        // Planning the forecast takes some sixty times as long.
        let in_force = self.query("SELECT count() FROM budgets_in_force");
        if self.fetch_one::<u64>(in_force).await? == 0 {
            return Ok(Vec::new());
        }
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
