//! Batches into ClickHouse, exactly once.
//!
//! ClickHouse has no transaction over several tables. What it has is this: an INSERT with a token that it has seen is
//! taken as done. So a batch is (1) recorded with its bounds, (2) sent table by table with tokens made of the bounds,
//! (3) recorded as applied. Whoever comes after a kill finds a range that was begun and not applied, folds the same
//! range again, which gives the same rows, and sends them with the same tokens: what had landed is skipped, and what had
//! not lands now.
//!
//! Nothing is synced to a disk. What a power cut has taken, of these tables or of the ranges, shows in what the ranges say
//! and the tables hold; then all is emptied, and comes from the ledger again. It may also have taken rows and left the
//! memory of their tokens. So the tokens of (2) and (3) also say when (1) was recorded: a range that is begun anew has
//! others. If the record of (1) or (3) itself is not there after it was sent, all is emptied, too.
//!
//! Two projectors at once do the same work and no harm: the token of (1) has only the range's beginning, so the first
//! one sets its end, and the other sees that when it reads back and begins again with these bounds.

use super::{
    Store, StoreError,
    rows::{RangeRow, Rows, of_ledger},
    schema::create_table,
};
use crate::{
    domain::{Change, Usage},
    metrics::TableRows,
};
use chassis::warm::OnDrift;
use clickhouse::{Row, RowOwned, RowWrite};
use ledger::{Batch, LedgerId, Projection, Resume, Sink, SinkError};
use serde::{Deserialize, Serialize};
use table::Snapshot;
use vocab::{Lsn, Millis};

const BEGUN: &str = "begun";
const APPLIED: &str = "applied";

/// Rows of one INSERT, far below the million at which ClickHouse would cut a block in two.
const INSERT_ROWS_MAX: usize = 100_000;

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
    recorded_at_ms: i64,
}

/// What is known of a range before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// When it was recorded as begun, by the server's clock: part of its tokens.
    pub at_ms: i64,
    /// All of its rows are there, and not just some or none.
    pub applied: bool,
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
        let at = self.position().await?;
        if let Some(beside) = &self.beside {
            beside.resumed(at.through);
        }
        Ok(at)
    }

    async fn position(&self) -> Result<Resume, StoreError> {
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

    /// Where the tables hold something else than the ranges say; none while somebody is sending, when nobody can tell.
    ///
    /// Reads all ranges and all hours. Rows are sent between the record of their range as begun and as applied, so what is
    /// read while the position stays and nothing is begun is of one moment.
    async fn differences(&self, at: &Resume) -> Result<Option<Vec<String>>, StoreError> {
        if at.begun.is_some() {
            return Ok(None);
        }
        let differences =
            "SELECT resource FROM range_differences WHERE error != 0 ORDER BY resource";
        let differences = self.fetch_all(self.query(differences)).await?;
        let stays = self.position().await? == *at;
        Ok(stays.then_some(differences))
    }

    /// Parts that the server could not read when it started, and has put aside with their rows. A disk that becomes full
    /// while it writes one leaves it empty, and an INSERT into it acknowledged.
    async fn broken_parts(&self) -> Result<Vec<BrokenPart>, StoreError> {
        let broken = "SELECT table, name FROM system.detached_parts
                      WHERE database = ? AND table IN ? AND startsWith(reason, 'broken')";
        let names: Vec<&str> = of_ledger().map(|table| table.name).collect();
        let broken = self.query(broken).bind(&self.database).bind(names);
        self.fetch_all(broken).await
    }

    /// Empties all tables of the ledger, so that they are built anew from it: the ranges behind the others, and what is broken
    /// goes last, so that a kill in between leaves the reason to empty them. The ranges are replaced: an emptied table keeps
    /// the tokens of parts that a power cut has taken, and the token of step 1 is the same again.
    pub async fn wipe(&self) -> Result<(), StoreError> {
        for table in of_ledger().rev() {
            let empty = match table.name == <RangeRow as table::clickhouse::Row>::TABLE.name {
                true => create_table(table.name).replacen(
                    "CREATE TABLE IF NOT EXISTS",
                    "CREATE OR REPLACE TABLE",
                    1,
                ),
                false => format!("TRUNCATE TABLE {}", table.name),
            };
            self.execute(&empty).await?;
        }
        for BrokenPart { table, name } in self.broken_parts().await? {
            self.execute(&format!(
                "ALTER TABLE `{table}` DROP DETACHED PART '{name}' SETTINGS allow_drop_detached = 1"
            ))
            .await?;
        }
        Ok(())
    }

    /// Step 1: records the bounds, and makes sure that they are the only ones. If no bounds are there then, the server knows
    /// the token and has lost the row, or somebody empties the tables.
    pub async fn begin(&self, batch: &Batch<Change>, rows: &Rows) -> Result<Begun, StoreError> {
        let token = format!("{}:{}:{BEGUN}", batch.ledger.0, batch.after.0);
        self.insert(&[rows.range(batch, BEGUN)], &token).await?;
        let found: Vec<Range> = self
            .fetch_all(
                self.query(
                    "SELECT after_lsn, to_lsn, toString(state) AS state,
                         toUnixTimestamp64Milli(recorded_at) AS recorded_at_ms
                     FROM ledger_ranges
                     WHERE ledger = ? AND to_lsn >= ? ORDER BY to_lsn",
                )
                .bind(batch.ledger.0)
                .bind(batch.after.0),
            )
            .await?;
        let (after, to) = (batch.after.0, batch.to.0);
        let applied = |range: &&Range| range.state == APPLIED;
        let joins = after == 0 || found.iter().filter(applied).any(|r| r.to_lsn == after);
        let ours = |range: &&Range| (range.after_lsn, range.to_lsn) == (after, to);
        let overtaken = found
            .iter()
            .filter(applied)
            .any(|range| range.to_lsn > after && !ours(&range));
        let begun = |range: &&Range| range.after_lsn == after && range.state == BEGUN;
        let Some(begun) = found.iter().find(begun) else {
            tracing::warn!("tables emptied that had lost the record of a range");
            self.wipe().await?;
            return Err(StoreError::Moved);
        };
        if !joins || overtaken || !ours(&begun) {
            return Err(StoreError::Moved);
        }
        Ok(Begun {
            at_ms: begun.recorded_at_ms,
            applied: found.iter().filter(applied).any(|range| ours(&range)),
        })
    }

    /// Step 2: sends the rows. Each part of it may be repeated.
    pub async fn send(
        &self,
        batch: &Batch<Change>,
        rows: &Rows,
        begun: Begun,
    ) -> Result<(), StoreError> {
        let token = token(batch, begun);
        self.send_table(&token, &rows.rates).await?;
        self.send_table(&token, &rows.budgets).await?;
        self.send_table(&token, &rows.periods).await?;
        self.send_table(&token, &rows.capacities).await?;
        self.send_table(&token, &rows.conditions).await?;
        self.send_table(&token, &rows.transfers).await?;
        self.send_table(&token, &rows.intervals).await?;
        self.send_table(&token, &rows.running).await?;
        self.send_table(&token, &rows.unplaced).await?;
        self.send_table(&token, &rows.preemptions).await?;
        self.send_table(&token, &rows.denials).await?;
        self.send_table(&token, &rows.booked).await?;
        self.send_table(&token, &rows.usage).await
    }

    async fn send_table<R>(&self, token: &str, rows: &[R]) -> Result<(), StoreError>
    where
        R: table::clickhouse::Row + RowOwned + RowWrite,
    {
        let table = R::TABLE.name;
        for (chunk_no, chunk) in rows.chunks(INSERT_ROWS_MAX).enumerate() {
            self.insert(chunk, &format!("{token}:{table}:{chunk_no}"))
                .await?;
        }
        Ok(())
    }

    /// Step 3: everything up to the end of the range is there, unless somebody has made the tables anew meanwhile.
    pub async fn complete(
        &self,
        batch: &Batch<Change>,
        rows: &Rows,
        begun: Begun,
    ) -> Result<(), StoreError> {
        let still = self.query(
            "SELECT count() FROM ledger_ranges
             WHERE ledger = ? AND after_lsn = ? AND to_lsn = ? AND state = 'begun'
                 AND toUnixTimestamp64Milli(recorded_at) = ?",
        );
        let still = still.bind(batch.ledger.0).bind(batch.after.0);
        let still = still.bind(batch.to.0).bind(begun.at_ms);
        let still: u64 = self.fetch_one(still).await?;
        if still == 0 {
            return Err(StoreError::Moved);
        }
        let token = token(batch, begun);
        self.insert(&[rows.range(batch, APPLIED)], &format!("{token}:{APPLIED}"))
            .await
    }

    /// All three steps.
    pub async fn apply(&self, batch: &Batch<Change>) -> Result<Rows, StoreError> {
        let rows = Rows::of(self.cell(), &batch.changes);
        let begun = self.begin(batch, &rows).await?;
        if !begun.applied {
            self.send(batch, &rows, begun).await?;
            self.complete(batch, &rows, begun).await?;
        }
        if let Some(beside) = &self.beside {
            beside.applied(batch);
        }
        Ok(rows)
    }

    /// The same for a range that was begun before: the server may know the token of its record as applied, and have lost
    /// the row.
    async fn apply_again(&self, batch: &Batch<Change>) -> Result<Rows, StoreError> {
        let rows = self.apply(batch).await?;
        if self.through().await? < batch.to {
            tracing::warn!("tables emptied that had lost the record of a range");
            self.wipe().await?;
            return Err(StoreError::Moved);
        }
        Ok(rows)
    }
}

/// What all tokens of a range begin with that is begun.
fn token(batch: &Batch<Change>, begun: Begun) -> String {
    let (ledger, after, to) = (batch.ledger.0, batch.after.0, batch.to.0);
    format!("{ledger}:{after}-{to}:{}", begun.at_ms)
}

/// The store as the projector's sink.
pub struct ClickHouseSink {
    store: Store,
    /// The tables and views as they were when they were as they are to be; `None`: not known.
    seen: Option<Snapshot>,
    /// They hold what the ranges say, and the server has not been away since.
    compared: bool,
    /// The end of a range that was found begun.
    begun: Option<Lsn>,
    on_drift: OnDrift,
    /// Code of ISO 4217, of all amounts.
    currency: String,
    metrics: TableRows,
    on_resume: Box<dyn Fn(Lsn) + Send + Sync>,
}

impl ClickHouseSink {
    /// `on_resume` hears from where the rows go on.
    pub fn new(
        store: Store,
        currency: &str,
        metrics: TableRows,
        on_resume: impl Fn(Lsn) + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            seen: None,
            compared: false,
            begun: None,
            on_drift: OnDrift::default(),
            currency: currency.to_owned(),
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
        // A person may have dropped or changed some at any time.
        if self.seen.is_none() || self.seen != Some(self.store.found().await?) {
            self.on_drift
                .told(Usage::NAME, self.store.ensure().await?)?;
            self.seen = Some(self.store.found().await?);
            self.compared = false;
        }
        if self.store.was_found_damaged() {
            tracing::warn!("tables emptied, of which a part is damaged");
            self.store.wipe().await?;
        }
        let resume = self.store.resume(ledger).await?;
        if self.compared {
            return Ok(resume);
        }
        match self.store.differences(&resume).await? {
            None => Ok(resume),
            Some(tables) if tables.is_empty() => {
                self.compared = true;
                Ok(resume)
            }
            Some(tables) => {
                tracing::warn!(?tables, "tables emptied that had lost rows");
                self.store.wipe().await?;
                self.store.resume(ledger).await
            }
        }
    }

    /// Tables may be missing when something is not as it was, and a server that was away may have lost rows.
    fn failed(&mut self, error: StoreError) -> SinkError {
        if let StoreError::Moved = error {
            self.seen = None;
        }
        self.compared = false;
        error.into()
    }
}

impl Sink for ClickHouseSink {
    type Change = Change;

    /// Also makes tables that somebody has dropped.
    async fn resume(&mut self, ledger: LedgerId) -> Result<Resume, SinkError> {
        let resume = self.try_resume(ledger).await;
        let resume = resume.map_err(|error| self.failed(error))?;
        self.begun = resume.begun;
        (self.on_resume)(resume.through);
        Ok(resume)
    }

    async fn apply(&mut self, batch: &Batch<Change>) -> Result<(), SinkError> {
        if batch.after == Lsn(0) {
            // Before any row, so that no export of a month lacks the currency. `Calm` repeats it with the time.
            let said = self.store.says(Millis(0), &self.currency).await;
            said.map_err(|error| self.failed(error))?;
        }
        let rows = match self.begun == Some(batch.to) {
            true => self.store.apply_again(batch).await,
            false => self.store.apply(batch).await,
        };
        let rows = rows.map_err(|error| self.failed(error))?;
        for (table, count) in rows.counts() {
            self.metrics.inserted(table, count);
        }
        Ok(())
    }
}
