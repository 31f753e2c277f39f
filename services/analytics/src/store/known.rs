//! What every answer needs beside the rows: how far they are, which months are closed, and the prices. It is remembered, and
//! of the ranges only those are read that are new.

use super::{Store, StoreError};
use crate::domain::{Known, Prices};
use clickhouse::Row;
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use vocab::{Lsn, Millis, Month, RateKey, RatePrice, RateScope, ResourceKey, Token};

/// What is remembered from one answer to the next, of all answers of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Option<Remembered>>>);

#[derive(Debug, Clone)]
struct Remembered {
    ledger: i64,
    through: Lsn,
    clock: Millis,
    accrued_to: Millis,
    prices: Arc<Prices>,
}

#[derive(Debug, Row, Deserialize)]
struct Ranges {
    /// 0: there are none.
    ledger: i64,
    first: u64,
    last: u64,
    clock_ms: i64,
    accrued_ms: i64,
    /// Rates of the ranges behind the first.
    rates: u64,
    calm_ms: i64,
    /// The year and the month, as `202611`; below any: none is closed.
    closed: u32,
}

#[derive(Debug, Row, Deserialize)]
struct Rate {
    resource: String,
    tenant: String,
    priority_class: String,
    pool: String,
    cluster: String,
    from_ms: i64,
    micro_per_unit_hour: u64,
    withdrawn: bool,
}

impl Store {
    /// As of now.
    pub async fn known(&self) -> Result<Known, StoreError> {
        let before = self.memory.lock().clone();
        let after = before.as_ref().map_or(Lsn(0), |before| before.through);
        let ranges = self.ranges(after).await?;
        // The range that was the last one is still there, so that nothing was made anew.
        let goes_on =
            before.filter(|it| it.ledger == ranges.ledger && it.through.0 == ranges.first);
        let (ranges, before) = match goes_on {
            None if after > Lsn(0) => (self.ranges(Lsn(0)).await?, None),
            goes_on => (ranges, goes_on),
        };
        let prices = match &before {
            Some(before) if ranges.rates == 0 => before.prices.clone(),
            _ => Arc::new(self.prices().await?),
        };
        let (clock, accrued_to) = (Millis(ranges.clock_ms), Millis(ranges.accrued_ms));
        let now = Remembered {
            ledger: ranges.ledger,
            through: Lsn(ranges.last),
            clock: before.as_ref().map_or(clock, |it| it.clock.max(clock)),
            accrued_to: (before.as_ref()).map_or(accrued_to, |it| it.accrued_to.max(accrued_to)),
            prices,
        };
        let known = Known {
            through: now.clock.max(Millis(ranges.calm_ms)),
            accrued_to: now.accrued_to,
            closed_through: Some(Month(ranges.closed)).filter(|month| *month > Month::FIRST),
            prices: now.prices.clone(),
        };
        self.memory.keep(now);
        Ok(known)
    }

    async fn ranges(&self, from: Lsn) -> Result<Ranges, StoreError> {
        let query = self.query(
            "SELECT any(r.ledger) AS ledger, min(r.to_lsn) AS first, max(r.to_lsn) AS last,
                 toUnixTimestamp64Milli(max(r.clock)) AS clock_ms, toUnixTimestamp64Milli(max(r.accrued_to)) AS accrued_ms,
                 sumIf(r.rates, r.to_lsn > {from:UInt64}) AS rates,
                 toUnixTimestamp64Milli(assumeNotNull((SELECT max(at) FROM cells))) AS calm_ms,
                 toYYYYMM(assumeNotNull((SELECT max(period) FROM closed_periods))) AS closed
             FROM ledger_ranges AS r WHERE r.state = 'applied' AND r.to_lsn >= {from:UInt64}",
        );
        self.fetch_one(query.param("from", from.0)).await
    }

    async fn prices(&self) -> Result<Prices, StoreError> {
        let query = self.query(
            "SELECT toString(r.resource) AS resource, toString(r.tenant) AS tenant,
                 toString(r.priority_class) AS priority_class, toString(r.pool) AS pool, toString(r.cluster) AS cluster,
                 toUnixTimestamp64Milli(r.applied_from) AS from_ms, r.micro_per_unit_hour AS micro_per_unit_hour,
                 r.withdrawn AS withdrawn
             FROM rates AS r ORDER BY r.lsn, r.event_index",
        );
        let rates: Vec<Rate> = self.fetch_all(query).await?;
        let rates: Result<Vec<_>, StoreError> = rates.into_iter().map(Rate::read).collect();
        Ok(Prices::of(rates?))
    }
}

impl Rate {
    fn read(self) -> Result<(RateKey, Millis, RatePrice), StoreError> {
        let unfit = |text: &str| StoreError::Unfit(text.to_owned());
        let name = |text: &str| match text {
            "" => Ok(None),
            text => Token::new(text).map(Some).map_err(|_| unfit(text)),
        };
        let resource = ResourceKey::parse(&self.resource);
        let key = RateKey {
            resource: resource.ok_or_else(|| unfit(&self.resource))?,
            scope: RateScope {
                tenant: name(&self.tenant)?,
                priority_class: name(&self.priority_class)?,
                pool: name(&self.pool)?,
                cluster: name(&self.cluster)?,
            },
        };
        let price = (!self.withdrawn).then_some(self.micro_per_unit_hour);
        Ok((key, Millis(self.from_ms), price))
    }
}

impl Memory {
    /// What is remembered is never half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, now: Remembered) {
        *self.lock() = Some(now);
    }
}
