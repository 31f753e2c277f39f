//! The databases alone: rows that Apportion has just written, written again into the same tables on servers of their own,
//! by the fastest way that each has.

use super::{PeersError, own::Rows};
use crate::kit::servers::Servers;
use analytics::store::Store;
use bytes::Bytes;
use chassis::{Stopwatch, stack::Stack};
use futures::TryStreamExt;
use replay::command::Size;
use serde::Serialize;
use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection,
    migrate::Migrator,
    postgres::{PgConnectOptions, PgPoolCopyExt},
};
use std::{str::FromStr, time::Duration};
use vocab::CellNo;

/// The scheduler's tables, as its service makes them.
static SCHEDULER: Migrator = sqlx::migrate!("../../schemas/postgres/scheduler");
const MULTIPLY: &str = include_str!("rows/multiply.sql");
const SCHEMA: &str = "peer_rows";
/// Rows in one transaction of Postgres.
const PER_COPY: usize = 4096;

#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub copy_rows_per_s: f64,
    pub clickhouse_rows_per_s: f64,
}

impl Figures {
    pub fn copy_tasks_per_s(&self, rows: Rows) -> f64 {
        self.copy_rows_per_s / rows.warm_per_task
    }

    pub fn clickhouse_tasks_per_s(&self, rows: Rows) -> f64 {
        self.clickhouse_rows_per_s / rows.facts_per_task
    }
}

pub async fn measure(
    stack: &Stack,
    servers: &Servers,
    window: Duration,
    size: Size,
) -> Result<Figures, PeersError> {
    let (copied, per_insert) = size.pick((100_000, 20_000), (1000, 200));
    Ok(Figures {
        copy_rows_per_s: copy(stack, servers, copied).await?,
        clickhouse_rows_per_s: insert(stack, servers, window, per_insert).await?,
    })
}

/// Rows like the scheduler's of allocations that have ended, with the table's checks and indexes.
async fn copy(stack: &Stack, servers: &Servers, copied: i64) -> Result<f64, PeersError> {
    let samples = samples(stack).await?;
    // As our projections have it: what is lost is made again from the ledger.
    let options = servers
        .postgres()?
        .options([("search_path", SCHEMA), ("synchronous_commit", "off")]);
    let mut connection = options.connect().await?;
    let fresh = format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}");
    connection.execute(sqlx::raw_sql(&fresh)).await?;
    SCHEDULER.run(&mut connection).await?;
    let rows = many(&mut connection, &samples, copied).await?;
    let watch = Stopwatch::start();
    for rows in rows.chunks(PER_COPY) {
        let mut copy = connection
            .copy_in_raw("COPY ended_allocations FROM STDIN")
            .await?;
        copy.send(rows.concat()).await?;
        copy.finish().await?;
    }
    let seconds = watch.elapsed().as_secs_f64();
    let drop = format!("DROP SCHEMA {SCHEMA} CASCADE");
    connection.execute(sqlx::raw_sql(&drop)).await?;
    connection.close().await?;
    Ok(rows.len() as f64 / seconds)
}

/// The stack's own rows.
async fn samples(stack: &Stack) -> Result<Vec<Bytes>, PeersError> {
    let options = PgConnectOptions::from_str(&stack.postgres.url)?;
    let pool = sqlx::PgPool::connect_with(options).await?;
    let rows: Vec<Bytes> = pool
        .copy_out_raw("COPY (SELECT * FROM scheduler.ended_allocations LIMIT 10000) TO STDOUT")
        .await?
        .try_collect()
        .await?;
    pool.close().await;
    match rows.len() {
        0 => Err(PeersError::NoRows("scheduler.ended_allocations")),
        _ => Ok(rows),
    }
}

/// As many rows as are to be copied, each under an id of its own.
async fn many(
    connection: &mut PgConnection,
    samples: &[Bytes],
    copied: i64,
) -> Result<Vec<Bytes>, PeersError> {
    connection
        .execute("CREATE TABLE samples (LIKE ended_allocations)")
        .await?;
    let mut copy = connection.copy_in_raw("COPY samples FROM STDIN").await?;
    copy.send(samples.concat()).await?;
    copy.finish().await?;
    connection
        .execute("CREATE TABLE many (LIKE ended_allocations)")
        .await?;
    sqlx::query(MULTIPLY)
        .bind(copied)
        .execute(&mut *connection)
        .await?;
    let rows = connection.copy_out_raw("COPY many TO STDOUT").await?;
    Ok(rows.try_collect().await?)
}

/// Rows like the bill's intervals.
async fn insert(
    stack: &Stack,
    servers: &Servers,
    window: Duration,
    per_insert: u64,
) -> Result<f64, PeersError> {
    let store = servers.clickhouse()?;
    store
        .query(&format!("CREATE DATABASE {SCHEMA}"))
        .execute()
        .await?;
    let client = store.clone().with_database(SCHEMA);
    Store::new(store.clone(), SCHEMA, CellNo(stack.cell.number))
        .ensure()
        .await?;
    let here: u64 = stack
        .bill()?
        .query("SELECT count() FROM allocation_intervals")
        .fetch_one()
        .await?;
    if here == 0 {
        return Err(PeersError::NoRows("allocation_intervals"));
    }
    let rows = stack
        .bill()?
        .query("SELECT a.* FROM allocation_intervals AS a CROSS JOIN numbers(?) AS n LIMIT ?")
        .bind(per_insert.div_ceil(here))
        .bind(per_insert)
        .fetch_bytes("RowBinary")?
        .collect()
        .await?;
    let watch = Stopwatch::start();
    let mut inserted = 0;
    while watch.elapsed() < window {
        // The same block again is what a retry looks like, and would be passed over.
        let mut insert = client
            .insert_formatted_with("INSERT INTO allocation_intervals FORMAT RowBinary")
            .with_setting("insert_deduplicate", "0")
            .with_setting("async_insert", "0");
        insert.send(rows.clone()).await?;
        insert.end().await?;
        inserted += per_insert;
    }
    let seconds = watch.elapsed().as_secs_f64();
    store
        .query(&format!("DROP DATABASE {SCHEMA}"))
        .execute()
        .await?;
    Ok(inserted as f64 / seconds)
}
