//! `loadtest peers`: Apportion compared with other uses of the same machine in one run: partitioned task tables in Postgres,
//! and the bus and the databases without any decisions.
//!
//! One after the other, the others idle meanwhile; Apportion before and after the peers.

mod jetstream;
mod own;
mod report;
mod rest;
mod rows;
mod task_tables;

use crate::{
    kit::{
        report::{Measure, Out, ReportError, object},
        servers::{Servers, ServersError},
    },
    throughput::BenchError,
};
use chassis::stack::{Stack, StackError};
use own::{Written, own};
use replay::{
    command::{Size, block_on, exit},
    reach::ReachError,
};
pub(crate) use report::AIM_TASK_TABLES;
use report::Figures;
use rest::rest;
use std::{io, path::PathBuf, process::ExitCode, time::Duration};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the running stack.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
    /// Seconds for each case of each peer.
    #[arg(long, default_value_t = 6.0, default_value_if("smoke", "true", "0.3"))]
    seconds: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error("Apportion sustained none of the rates that were tried")]
    NoneSustained,
    #[error("Apportion's own measure: {0}")]
    Own(#[from] Box<BenchError>),
    #[error("the stack was still busy after {0} looks")]
    NeverAtRest(usize),
    #[error(
        "the peer's Postgres acknowledges before it has written; set synchronous_commit and fsync to on"
    )]
    NotDurable,
    #[error("the run left no frame on the ledger")]
    NoFrames,
    #[error("the run left no row in {0}")]
    NoRows(&'static str),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Bus(#[from] ledger::BusError),
    #[error(transparent)]
    Streams(#[from] ledger_nats::cell::CellError),
    #[error("publishing: {0}")]
    Publish(#[from] async_nats::jetstream::context::PublishError),
    #[error("finding or deleting a stream: {0}")]
    Stream(#[from] async_nats::jetstream::context::DeleteStreamError),
    #[error("lifting a stream's limit: {0}")]
    Lift(#[from] async_nats::jetstream::context::UpdateStreamError),
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    #[error("Postgres: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("ClickHouse: {0}")]
    Clickhouse(#[from] clickhouse::error::Error),
    #[error("ClickHouse: {0}")]
    Store(#[from] analytics::store::StoreError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("a file, or the runtime: {0}")]
    Io(#[from] io::Error),
}

pub fn main(options: &Options) -> ExitCode {
    exit("peers", block_on(run(options)))
}

async fn run(options: &Options) -> Result<(), PeersError> {
    let measure = Measure::begin("peers", options.size);
    let stack = Stack::read(&options.stack)?;
    let servers = Servers::read()?;
    let size = options.size;
    let window = Duration::from_secs_f64(options.seconds);

    rest(&stack, size).await?;
    let written = Written::look(&stack).await?;
    let end = jetstream::end(&stack).await?;
    let before = own(&stack, None, size).await?;
    rest(&stack, size).await?;
    let rows = Written::look(&stack).await?.since(written, before.tasks);
    let run = end + 1..=jetstream::end(&stack).await?;

    let task_tables = task_tables::measure(&servers, window, size).await?;
    rest(&servers.stack, size).await?;
    let jetstream = jetstream::measure(&stack, run, &servers, window).await?;
    rest(&servers.stack, size).await?;
    let raw_rows = rows::measure(&stack, &servers, window, size).await?;
    rest(&servers.stack, size).await?;
    let after = own(&stack, Some(before.tasks_per_s), size).await?;

    let figures = Figures::of([before, after], rows, task_tables, jetstream, raw_rows);
    let figures = figures.judged(size);
    chassis::out!("{figures}");
    Ok(options.out.write(&object(&measure.end(figures))?)?)
}
