//! All SQL of the service that is not in `schemas/clickhouse`.

mod beside;
mod comments;
mod forecast;
mod invoice;
mod known;
mod queries;
mod report;
mod rows;
mod samples;
mod schema;
mod sink;
mod tenant;

pub use beside::Beside;
pub use forecast::{BudgetForecast, MonthForecast};
pub use invoice::{Corrected, Export, Part, Reconciled, ReconciledMonth, Tenants};
pub use queries::{BillLine, Conservation, Imbalance, UsageLine};
pub use report::{
    Bearer, CapacityLine, Closing, CostLine, EndLine, LongWait, Mark, ShareLine, SizeLine, Span,
    Spender, SpentLine, TenantAmount, WaitLine,
};
pub use rows::{Rows, TABLES};
pub use samples::{SampleRow, slot};
pub use sink::{Begun, ClickHouseSink};
pub use tenant::{Dimension, InvoiceLine, UseLine, Wanted, When};

use chassis::warm::Drifted;
use clickhouse::{Client, Compression, Row, RowOwned, RowRead, RowWrite, query::Query};
use ledger::SinkError;
use serde::Deserialize;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
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
    /// A part of a table cannot be read: a full disk or a broken one has damaged it. The tables come from the ledger again.
    #[error("a part of a table is damaged: {0}")]
    Damaged(String),
    /// Somebody else has moved the position, or dropped or emptied tables or database: read the position again.
    #[error("the tables were moved on or emptied by somebody else")]
    Moved,
    #[error(transparent)]
    Drifted(#[from] Drifted),
    /// Not written by this service.
    #[error("a row says `{0}` where a name or a resource stands")]
    Unfit(String),
}

/// CHECKSUM_DOESNT_MATCH, CORRUPTED_DATA and POTENTIALLY_BROKEN_DATA_PART.
const DAMAGED: [&str; 3] = ["Code: 40.", "Code: 246.", "Code: 740."];

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
        if DAMAGED.iter().any(|code| text.contains(code)) {
            return Self::Damaged(text);
        }
        Self::Unavailable(text)
    }
}

impl From<StoreError> for SinkError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Moved => Self::Moved,
            StoreError::Drifted(drifted) => Self::Refused(drifted.to_string()),
            other => Self::Unavailable(other.to_string()),
        }
    }
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
    /// For rows: their types are those of the tables, which `ensure` compares, so that they are not compared again with each
    /// row; and a server on the same machine or network is not worth the CPU of packing.
    rows: Client,
    /// On the same server, without a database.
    server: Client,
    database: String,
    cell: CellNo,
    memory: known::Memory,
    beside: Option<Beside>,
    /// A statement has found a damaged part. It may have been a question, and the sink is to make the tables again.
    damaged: Arc<AtomicBool>,
}

impl Store {
    /// The database may have to be made first: `ensure` does.
    pub fn new(server: Client, database: &str, cell: CellNo) -> Self {
        let settings = [
            // The batches are made here; the server must not gather them again.
            ("async_insert", "0"),
            // The status of an answer then also tells of errors that come late.
            ("wait_end_of_query", "1"),
            ("insert_deduplicate", "1"),
            // One stream, so that a repeat makes the same blocks in the same order.
            ("max_insert_threads", "1"),
        ];
        let client = server.clone().with_database(database);
        let client = settings.into_iter().fold(client, |client, (name, value)| {
            client.with_setting(name, value)
        });
        let rows = client.clone().with_validation(false);
        Self {
            rows: rows.with_compression(Compression::None),
            client,
            server,
            database: database.to_owned(),
            cell,
            memory: known::Memory::default(),
            beside: None,
            damaged: Arc::default(),
        }
    }

    pub fn cell(&self) -> CellNo {
        self.cell
    }

    fn query(&self, sql: &str) -> Query {
        self.client.query(sql)
    }

    async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        // A question mark in a file is a question mark, not a parameter.
        self.noted(within(self.client.query_raw(sql).execute()).await)
    }

    async fn fetch_all<R: RowOwned + RowRead>(&self, query: Query) -> Result<Vec<R>, StoreError> {
        self.noted(within(query.fetch_all::<R>()).await)
    }

    async fn fetch_one<R: RowOwned + RowRead>(&self, query: Query) -> Result<R, StoreError> {
        self.noted(within(query.fetch_one::<R>()).await)
    }

    fn noted<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(_)) = &outcome {
            self.damaged.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Returns whether a damaged part was found since this was asked last.
    fn was_found_damaged(&self) -> bool {
        self.damaged.swap(false, Ordering::Relaxed)
    }

    /// Fails where the server answers nothing for so long: one that hangs would be waited for by the first statement otherwise.
    pub async fn answers_within(&self, patience: Duration) -> Result<(), StoreError> {
        let one = self.server.query("SELECT toUInt8(1)").fetch_one::<u8>();
        match tokio::time::timeout(patience, one).await {
            Ok(answer) => answer.map(drop).map_err(StoreError::from),
            Err(_) => {
                let patience = patience.as_secs();
                let text = format!("the server does not answer within {patience} s");
                Err(StoreError::Unavailable(text))
            }
        }
    }

    /// Used bytes and size of the server's fullest disk. An answer that waits for its end may need room on it.
    pub async fn disk(&self) -> Result<DiskSpace, StoreError> {
        let fullest = "SELECT toUInt64(total_space - free_space) AS used, total_space AS size
                       FROM system.disks ORDER BY free_space / total_space LIMIT 1";
        self.fetch_one(self.server.query(fullest)).await
    }

    /// One INSERT of one block. Had an earlier one the same token, nothing happens.
    async fn insert<R>(&self, rows: &[R], token: &str) -> Result<(), StoreError>
    where
        R: table::clickhouse::Row + RowOwned + RowWrite,
    {
        within(async {
            let mut insert = self
                .rows
                .insert::<R>(R::TABLE.name)
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
