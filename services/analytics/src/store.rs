//! All SQL of the service that is not in `schemas/clickhouse`.

mod migrate;
mod queries;
mod rows;
mod sink;

pub use migrate::MIGRATIONS;
pub use queries::{BillLine, Conservation, Imbalance, UsageLine};
pub use rows::{EntryRow, IntervalRow, RangeRow, RateRow, Rows};
pub use sink::{Begun, ClickHouseSink};

use clickhouse::{Client, Row, RowOwned, RowRead, RowWrite, query::Query};
use ledger::SinkError;
use serde::Deserialize;
use std::{future::Future, time::Duration};
use vocab::CellNo;

/// An INSERT or a query that takes longer has an outcome that nobody knows; it is tried again.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a statement had no effect, or none that is known.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Away, overloaded, or refusing: the same again may work later.
    #[error("clickhouse: {0}")]
    Unavailable(String),
    /// Who answers has a certificate of somebody else's.
    #[error("clickhouse.ca_file does not vouch for the server: {0}")]
    Untrusted(String),
    /// Somebody else has moved the position, or dropped or emptied tables or database: read the position again.
    #[error("the tables were moved on or emptied by somebody else")]
    Moved,
    /// An applied migration is not to be edited; a change is a new file.
    #[error("{file} was changed after it had been applied; a change of the tables is a new file")]
    MigrationChanged { file: String },
    /// A newer version has been at work here.
    #[error("the tables have {file}, which this version does not know")]
    MigrationUnknown { file: String },
}

impl StoreError {
    /// Whether trying again cannot help.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::MigrationChanged { .. } | Self::MigrationUnknown { .. }
        )
    }
}

impl From<clickhouse::error::Error> for StoreError {
    fn from(error: clickhouse::error::Error) -> Self {
        let text = error.to_string();
        if chassis::tls::is_distrust(&error) {
            return Self::Untrusted(text);
        }
        // UNKNOWN_TABLE and UNKNOWN_DATABASE: they were there when the service booted.
        if text.contains("Code: 60.") || text.contains("Code: 81.") {
            return Self::Moved;
        }
        Self::Unavailable(text)
    }
}

impl From<StoreError> for SinkError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Moved => Self::Moved,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

fn untouched(unknown: Option<String>) -> Result<(), StoreError> {
    unknown.map_or(Ok(()), |file| Err(StoreError::MigrationUnknown { file }))
}

/// Bytes of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Row, Deserialize)]
pub struct DiskSpace {
    /// By whomever.
    pub used: u64,
    pub size: u64,
}

/// One cell's database.
#[derive(Clone)]
pub struct Store {
    client: Client,
    /// On the same server, without a database.
    server: Client,
    database: String,
    cell: CellNo,
}

impl Store {
    /// The database may have to be made first: `migrate` does.
    pub fn new(server: Client, database: &str, cell: CellNo) -> Self {
        let settings = [
            // The batches are made here; the server must not gather them again.
            ("async_insert", "0"),
            // The status of an answer then also tells of errors that come late, such as in the view.
            ("wait_end_of_query", "1"),
            ("insert_deduplicate", "1"),
            ("deduplicate_blocks_in_dependent_materialized_views", "1"),
            ("materialized_views_ignore_errors", "0"),
            // One stream, so that a repeat makes the same blocks in the same order.
            ("max_insert_threads", "1"),
            ("parallel_view_processing", "0"),
        ];
        let client = server.clone().with_database(database);
        let client = settings.into_iter().fold(client, |client, (name, value)| {
            client.with_setting(name, value)
        });
        Self {
            client,
            server,
            database: database.to_owned(),
            cell,
        }
    }

    pub fn cell(&self) -> CellNo {
        self.cell
    }

    fn query(&self, sql: &str) -> Query {
        self.client.query(sql)
    }

    async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        // A question mark in a migration is a question mark, not a parameter.
        within(self.client.query_raw(sql).execute()).await
    }

    async fn fetch_all<R: RowOwned + RowRead>(&self, query: Query) -> Result<Vec<R>, StoreError> {
        within(query.fetch_all::<R>()).await
    }

    async fn fetch_one<R: RowOwned + RowRead>(&self, query: Query) -> Result<R, StoreError> {
        within(query.fetch_one::<R>()).await
    }

    /// Used bytes and size of the server's fullest disk. An answer that waits for its end may need room on it.
    pub async fn disk(&self) -> Result<DiskSpace, StoreError> {
        let fullest = "SELECT toUInt64(total_space - free_space) AS used, total_space AS size
                       FROM system.disks ORDER BY free_space / total_space LIMIT 1";
        self.fetch_one(self.server.query(fullest)).await
    }

    /// One INSERT of one block. Had an earlier one the same token, nothing happens.
    async fn insert<R>(&self, table: &str, rows: &[R], token: &str) -> Result<(), StoreError>
    where
        R: RowOwned + RowWrite,
    {
        within(async {
            let mut insert = self
                .client
                .insert::<R>(table)
                .await?
                .with_setting("insert_deduplication_token", token);
            for row in rows {
                insert.write(row).await?;
            }
            insert.end().await
        })
        .await
    }
}

async fn within<T>(
    statement: impl Future<Output = clickhouse::error::Result<T>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, statement).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(StoreError::Unavailable("no answer in time".to_owned())),
    }
}
