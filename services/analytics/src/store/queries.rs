//! What the command line, the load test and people ask.

use super::{Store, StoreError};
use clickhouse::Row;
use ledger::{LedgerId, Witness};
use serde::{Deserialize, Serialize};
use vocab::{Lsn, Millis, Token};

/// What a tenant owes for a resource in a month.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct BillLine {
    pub tenant: String,
    /// `2026-11`.
    pub month: String,
    pub resource: String,
    /// Millionths of the currency.
    pub amount_micro: i128,
}

/// What a tenant used of a resource in an hour, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct UsageLine {
    /// Unix milliseconds of its beginning.
    pub hour_ms: i64,
    pub resource: String,
    /// Millicore-, byte- or milli-GPU-milliseconds; less than 0 in a correction.
    pub quantity: i128,
    pub micro_per_unit_hour: u64,
    /// False: no rate was effective, so it costs nothing yet.
    pub has_rate: bool,
    pub amount_micro: i128,
}

/// One way in which the books could fail to add up, and by how much they do.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct Imbalance {
    /// See the view `conservation`.
    pub kind: String,
    /// A resource; for the kind `rows` a table.
    pub resource: String,
    /// Unit-milliseconds (millicore-, byte- or milli-GPU-milliseconds); for the kind `rows` rows.
    pub error: u128,
}

/// The outcome of the conservation check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conservation {
    /// Everything before is in the tables that were compared.
    pub through: Lsn,
    /// No batch was being sent while the tables were compared. If one was, they may be a batch apart, and an imbalance may be no
    /// more than that.
    pub at_rest: bool,
    pub imbalances: Vec<Imbalance>,
}

impl Conservation {
    /// The sum of all errors: 0 only if everything adds up to the millisecond and no row is missing or doubled.
    pub fn conservation_error_ms(&self) -> u128 {
        self.imbalances
            .iter()
            .fold(0, |sum, imbalance| sum.saturating_add(imbalance.error))
    }
}

impl Store {
    /// Everything up to here is in the tables.
    pub async fn through(&self) -> Result<Lsn, StoreError> {
        let query = self.query("SELECT max(to_lsn) FROM ledger_ranges WHERE state = 'applied'");
        Ok(Lsn(self.fetch_one(query).await?))
    }

    /// What the tables bear witness of, for who only reads them; none if they are of another ledger.
    pub async fn witness(&self, ledger: LedgerId) -> Result<Option<Witness>, StoreError> {
        let query = self.query(
            "SELECT to_lsn, digest FROM ledger_ranges WHERE ledger = ? ORDER BY to_lsn DESC LIMIT 1",
        );
        let found: Vec<(u64, String)> = self.fetch_all(query.bind(ledger.0)).await?;
        let witness = |(lsn, digest): (u64, String)| Witness {
            who: "the bill".to_owned(),
            lsn: Lsn(lsn),
            digest: digest.parse().ok(),
        };
        Ok(found.into_iter().next().map(witness))
    }

    /// Runs that ended behind a position.
    pub async fn runs_behind(&self, lsn: Lsn) -> Result<u64, StoreError> {
        let query = self.query("SELECT count() FROM allocation_intervals WHERE lsn > ?");
        self.fetch_one(query.bind(lsn.0)).await
    }

    /// Every tenant's bill, by month and resource.
    pub async fn monthly_bill(&self) -> Result<Vec<BillLine>, StoreError> {
        let query = self.query(
            "SELECT tenant, formatDateTime(month, '%Y-%m') AS month, resource, amount_micro
             FROM chargeback_monthly
             ORDER BY tenant, month, resource",
        );
        self.fetch_all(query).await
    }

    /// A tenant's lines whose hours begin in `[from, to)`.
    pub async fn tenant_usage(
        &self,
        tenant: &Token,
        (from, to): (Millis, Millis),
    ) -> Result<Vec<UsageLine>, StoreError> {
        let query = self
            .query(
                "SELECT toInt64(toUnixTimestamp(hour)) * 1000 AS hour_ms, resource, sum(quantity) AS quantity,
                     micro_per_unit_hour, has_rate = 1 AS has_rate, sum(amount_micro) AS amount_micro
                 FROM chargeback_hourly
                 WHERE tenant = ? AND hour_ms >= ? AND hour_ms < ?
                 GROUP BY hour_ms, resource, micro_per_unit_hour, has_rate
                 ORDER BY hour_ms, resource, micro_per_unit_hour",
            )
            .bind(tenant.as_str())
            .bind(from.0)
            .bind(to.0);
        self.fetch_all(query).await
    }

    /// Hours in which anything was billed, over all tenants.
    pub async fn hours_billed(&self) -> Result<u64, StoreError> {
        let query = self.query("SELECT uniqExact(tenant, hour) FROM chargeback_hourly");
        self.fetch_one(query).await
    }

    /// The last positions of the ranges that are applied, and of those that are at least begun.
    async fn positions(&self) -> Result<(Lsn, Lsn), StoreError> {
        let query =
            self.query("SELECT maxIf(to_lsn, state = 'applied'), max(to_lsn) FROM ledger_ranges");
        let (applied, begun): (u64, u64) = self.fetch_one(query).await?;
        Ok((Lsn(applied), Lsn(begun)))
    }

    /// Checks that everything adds up.
    pub async fn conservation(&self) -> Result<Conservation, StoreError> {
        let before = self.positions().await?;
        let query = self.query(
            "SELECT kind, toString(resource) AS resource,
                 toUInt128(least(error, toUInt256('340282366920938463463374607431768211455'))) AS error
             FROM conservation
             ORDER BY kind, resource",
        );
        let imbalances = self.fetch_all(query).await?;
        let (through, begun) = before;
        Ok(Conservation {
            through,
            at_rest: through == begun && before == self.positions().await?,
            imbalances,
        })
    }
}
