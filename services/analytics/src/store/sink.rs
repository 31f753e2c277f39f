//! Batches into ClickHouse, exactly once.
//!
//! ClickHouse has no transaction over several tables. What it has is this: an INSERT with a token that it has seen is
//! taken as done. So a batch is (1) recorded with its bounds, (2) sent table by table with tokens made of the bounds,
//! (3) recorded as applied. Whoever comes after a kill finds a range that was begun and not applied, folds the same
//! range again, which gives the same rows, and sends them with the same tokens: what had landed is skipped, also behind
//! the materialized view, and what had not lands now.
//!
//! Two projectors at once do the same work and no harm: the token of (1) has only the range's beginning, so the first
//! one sets its end, and the other sees that when it reads back and begins again with these bounds.

use super::{
    Store, StoreError,
    rows::{EntryRow, IntervalRow, RateRow, Rows, TABLES, Weigh, chunks},
};
use crate::{
    domain::{Change, Usage},
    metrics::TableRows,
};
use chassis::warm::OnDrift;
use clickhouse::{Row, RowOwned, RowWrite};
use ledger::{Batch, LedgerId, Projection, Resume, Sink, SinkError};
use serde::{Deserialize, Serialize};
use table::clickhouse::Row as _;
use vocab::Lsn;

const BEGUN: &str = "begun";
const APPLIED: &str = "applied";

/// Rows that one INSERT makes in a table, far below the million at which ClickHouse would cut a block in two.
const INSERT_WEIGHT_MAX: usize = 100_000;

#[derive(Row, Deserialize)]
struct Ends {
    applied: u64,
    digest: String,
    begun: u64,
}

#[derive(Row, Deserialize)]
struct Ranges {
    foreign: u64,
    all: u64,
}

#[derive(Row, Deserialize)]
struct BrokenPart {
    table: String,
    name: String,
}

#[derive(Row, Serialize, Deserialize)]
struct Range {
    after_lsn: u64,
    to_lsn: u64,
    state: String,
}

/// What is known of a range before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// Its rows may or may not be there.
    Open,
    /// All of them are.
    Applied,
}

impl Store {
    /// Where the tables stand. The tables of another ledger, those without a position, and those that have lost a part, are
    /// emptied.
    pub async fn resume(&self, ledger: LedgerId) -> Result<Resume, StoreError> {
        let of_ledger = "SELECT countIf(ledger != ?) AS foreign, count() AS all FROM ledger_ranges";
        let ranges: Ranges = self.fetch_one(self.query(of_ledger).bind(ledger.0)).await?;
        if ranges.foreign > 0 {
            tracing::warn!(ledger = ledger.0, "tables of another ledger emptied");
            self.wipe().await?;
        } else if ranges.all == 0 && self.hold_rows().await? {
            tracing::warn!("tables emptied that had no position");
            self.wipe().await?;
        } else if !self.broken_parts().await?.is_empty() {
            tracing::warn!("tables emptied, of which parts were found broken");
            self.wipe().await?;
        }
        let ends: Ends = self
            .fetch_one(
                self.query(
                    "WITH ifNull((SELECT max(to_lsn) FROM ledger_ranges WHERE state = 'applied'), 0) AS through
                     SELECT through AS applied,
                            ifNull((SELECT any(digest) FROM ledger_ranges WHERE state = 'applied' AND to_lsn = through), '')
                                AS digest,
                            min(to_lsn) AS begun
                     FROM ledger_ranges
                     WHERE state = 'begun' AND to_lsn > through AND after_lsn = through",
                ),
            )
            .await?;
        Ok(Resume {
            through: Lsn(ends.applied),
            digest: ends.digest.parse().ok(),
            begun: (ends.begun > ends.applied).then_some(Lsn(ends.begun)),
        })
    }

    /// Parts that the server could not read when it started, and has put aside with their rows. A disk that becomes full
    /// while it writes one leaves it empty, and an INSERT into it acknowledged.
    async fn broken_parts(&self) -> Result<Vec<BrokenPart>, StoreError> {
        let broken = "SELECT table, name FROM system.detached_parts
                      WHERE database = ? AND startsWith(reason, 'broken')";
        self.fetch_all(self.query(broken).bind(&self.database))
            .await
    }

    /// Empties all tables, so that they are built anew from the ledger: the ranges behind the others, and what is broken
    /// goes last, so that a kill in between leaves the reason to empty them.
    pub async fn wipe(&self) -> Result<(), StoreError> {
        for table in TABLES.iter().rev() {
            self.execute(&format!("TRUNCATE TABLE {}", table.name))
                .await?;
        }
        for BrokenPart { table, name } in self.broken_parts().await? {
            self.execute(&format!(
                "ALTER TABLE `{table}` DROP DETACHED PART '{name}' SETTINGS allow_drop_detached = 1"
            ))
            .await?;
        }
        Ok(())
    }

    /// Step 1: records the bounds, and makes sure that they are the only ones.
    pub async fn begin(&self, batch: &Batch<Change>, rows: &Rows) -> Result<Begun, StoreError> {
        let token = format!("{}:{}:{BEGUN}", batch.ledger.0, batch.after.0);
        self.insert(&[rows.range(batch, BEGUN)], &token).await?;
        let found: Vec<Range> = self
            .fetch_all(
                self.query(
                    "SELECT after_lsn, to_lsn, toString(state) AS state FROM ledger_ranges
                     WHERE ledger = ? AND to_lsn >= ? ORDER BY to_lsn",
                )
                .bind(batch.ledger.0)
                .bind(batch.after.0),
            )
            .await?;
        let (after, to) = (batch.after.0, batch.to.0);
        let applied = |range: &&Range| range.state == APPLIED;
        let joins = after == 0 || found.iter().filter(applied).any(|r| r.to_lsn == after);
        let ours = |range: &Range| (range.after_lsn, range.to_lsn) == (after, to);
        let first = found.iter().find(|r| r.after_lsn == after);
        let overtaken = found
            .iter()
            .filter(applied)
            .any(|r| r.to_lsn > after && !ours(r));
        if !joins || overtaken || !first.is_some_and(ours) {
            return Err(StoreError::Moved);
        }
        let landed = found.iter().filter(applied).any(ours);
        Ok(if landed { Begun::Applied } else { Begun::Open })
    }

    /// Step 2: sends the rows. Each part of it may be repeated.
    pub async fn send(&self, batch: &Batch<Change>, rows: &Rows) -> Result<(), StoreError> {
        self.send_table(batch, &rows.rates).await?;
        self.send_table(batch, &rows.entries).await?;
        self.send_table(batch, &rows.intervals).await
    }

    async fn send_table<R>(&self, batch: &Batch<Change>, rows: &[R]) -> Result<(), StoreError>
    where
        R: Weigh + table::clickhouse::Row + RowOwned + RowWrite,
    {
        let (ledger, after, to) = (batch.ledger.0, batch.after.0, batch.to.0);
        let table = R::TABLE.name;
        for (chunk_no, chunk) in chunks(rows, INSERT_WEIGHT_MAX).into_iter().enumerate() {
            let token = format!("{ledger}:{after}-{to}:{table}:{chunk_no}");
            self.insert(chunk, &token).await?;
        }
        Ok(())
    }

    /// Step 3: everything up to the end of the range is there, unless somebody has made the tables anew meanwhile.
    pub async fn complete(&self, batch: &Batch<Change>, rows: &Rows) -> Result<(), StoreError> {
        let (ledger, after, to) = (batch.ledger.0, batch.after.0, batch.to.0);
        let begun =
            "SELECT count() FROM ledger_ranges WHERE ledger = ? AND after_lsn = ? AND to_lsn = ?";
        let begun = self.query(begun).bind(ledger).bind(after).bind(to);
        let begun: u64 = self.fetch_one(begun).await?;
        if begun == 0 {
            return Err(StoreError::Moved);
        }
        let token = format!("{ledger}:{after}-{to}:{APPLIED}");
        self.insert(&[rows.range(batch, APPLIED)], &token).await
    }

    /// All three steps.
    pub async fn apply(&self, batch: &Batch<Change>) -> Result<Rows, StoreError> {
        let rows = Rows::of(self.cell(), &batch.changes);
        if self.begin(batch, &rows).await? == Begun::Open {
            self.send(batch, &rows).await?;
            self.complete(batch, &rows).await?;
        }
        Ok(rows)
    }
}

/// The store as the projector's sink.
pub struct ClickHouseSink {
    store: Store,
    /// The tables are there.
    ensured: bool,
    on_drift: OnDrift,
    metrics: TableRows,
    on_resume: Box<dyn Fn(Lsn) + Send + Sync>,
}

impl ClickHouseSink {
    /// `on_resume` hears from where the rows go on.
    pub fn new(
        store: Store,
        metrics: TableRows,
        on_resume: impl Fn(Lsn) + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            ensured: false,
            on_drift: OnDrift::default(),
            metrics,
            on_resume: Box::new(on_resume),
        }
    }

    /// What to do about tables that are not as the service wants them.
    pub fn on_drift(mut self, on_drift: OnDrift) -> Self {
        self.on_drift = on_drift;
        self
    }

    async fn try_resume(&mut self, ledger: LedgerId) -> Result<Resume, StoreError> {
        if !self.ensured {
            self.on_drift
                .told(Usage::NAME, self.store.ensure().await?)?;
            self.ensured = true;
        }
        self.store.resume(ledger).await
    }

    /// Tables may be missing when something is not as it was.
    fn failed(&mut self, error: StoreError) -> SinkError {
        self.ensured &= !matches!(error, StoreError::Moved);
        error.into()
    }
}

impl Sink for ClickHouseSink {
    type Change = Change;

    /// Also makes tables that somebody has dropped.
    async fn resume(&mut self, ledger: LedgerId) -> Result<Resume, SinkError> {
        let resume = self.try_resume(ledger).await;
        let resume = resume.map_err(|error| self.failed(error))?;
        (self.on_resume)(resume.through);
        Ok(resume)
    }

    async fn apply(&mut self, batch: &Batch<Change>) -> Result<(), SinkError> {
        let rows = self.store.apply(batch).await;
        let rows = rows.map_err(|error| self.failed(error))?;
        self.metrics
            .inserted(IntervalRow::TABLE.name, rows.intervals.len());
        self.metrics
            .inserted(EntryRow::TABLE.name, rows.entries.len());
        self.metrics.inserted(RateRow::TABLE.name, rows.rates.len());
        Ok(())
    }
}
