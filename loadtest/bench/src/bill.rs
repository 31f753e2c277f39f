//! `loadtest analytics`: speed and cost of the bill of a ledger, and latency of the questions of docs/sql.md.
//!
//! Analytics is the program itself, in a separate process; the ledger is written beforehand, in the shape in which the
//! deciders write it, on the bus of the launcher's `with-servers`.

mod history;
mod program;
mod questions;

use crate::kit::{
    figures::round,
    report::{Measure, Out, ReportError, object},
    servers::{Servers, ServersError},
    usage::{Usage, Used},
};
use analytics::store::{Store, StoreError};
use async_nats::jetstream;
use chassis::{Stopwatch, stack::StackError};
use hdrhistogram::Histogram;
use history::{History, MONTH};
use ledger::{AppendError, BusError, Record};
use ledger_nats::{
    cell::{self, Chosen},
    jetstream::JetStreamBus,
};
use program::Program;
use questions::Asked;
use replay::{
    command::{Size, block_on, exit},
    reach::{ReachError, plain},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};
use vocab::{CellNo, Lsn, Writer, subjects::Subjects};

/// Events per second into ClickHouse, and the lag at the other rate.
const AIM_EVENTS_PER_S: f64 = 300_000.0;
const AIM_LAG_P99_S: f64 = 2.0;
const AIM_CPU_US_PER_TASK: f64 = 3.0;
/// Time between two reads of the position.
const LOOK: Duration = Duration::from_millis(50);
/// Without any progress.
const STALL_MAX: Duration = Duration::from_secs(120);
const WRITERS: [Writer; 4] = [
    Writer::Admission,
    Writer::Quota,
    Writer::Scheduler,
    Writer::NodeHeartbeat,
];

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
    /// Allocations of the month.
    #[arg(
        long,
        default_value_t = 1_000_000,
        default_value_if("smoke", "true", "1000")
    )]
    allocations: u64,
    #[arg(
        long,
        default_value_t = 1000,
        default_value_if("smoke", "true", "10"),
        value_parser = clap::value_parser!(u64).range(1..=9999)
    )]
    tenants: u64,
    /// Events per second while the lag is measured.
    #[arg(
        long,
        default_value_t = 50_000,
        default_value_if("smoke", "true", "2000")
    )]
    rate: u64,
    /// Seconds for which the lag is measured.
    #[arg(long, default_value_t = 20, default_value_if("smoke", "true", "1"))]
    lag_seconds: u64,
    /// File with the questions that are asked at the end.
    #[arg(long, default_value = "docs/sql.md")]
    questions: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum BillError {
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Streams(#[from] cell::CellError),
    #[error("ClickHouse: {0}")]
    Clickhouse(#[from] clickhouse::error::Error),
    #[error("ClickHouse: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("a file, a process or the runtime: {0}")]
    Io(#[from] io::Error),
    #[error("analytics ended: {0}")]
    Ended(String),
    #[error("ClickHouse stood at {through} for {} s", STALL_MAX.as_secs())]
    Stalled { through: u64 },
    #[error("{0} does not add up")]
    Wrong(String),
    #[error("these questions have no answer: {0}")]
    Unanswered(String),
}

#[derive(Debug, Serialize)]
struct Figures {
    allocations: u64,
    tenants: u64,
    ledger: Ledger,
    ingest: Ingest,
    lag: Lag,
    tables: Vec<Table>,
    bytes_per_million_allocations: u64,
    /// From the fact on the ledger to the month that is shown as closed and reconciled.
    close_s: f64,
    questions: Vec<Asked>,
    slowest_question_s: f64,
    questions_over_1_s: usize,
    aims: BTreeMap<&'static str, bool>,
}

#[derive(Debug, Serialize)]
struct Ledger {
    events: u64,
    frames: u64,
    bytes: u64,
}

/// The whole ledger into empty tables.
#[derive(Debug, Serialize)]
struct Ingest {
    seconds: f64,
    events_per_s: f64,
    tasks_per_s: f64,
    /// CPU of analytics.
    cpu_us_per_task: f64,
    clickhouse_cpu_us_per_task: f64,
    nats_cpu_us_per_task: f64,
    rss_mb: BTreeMap<String, f64>,
}

/// From when the bus has acknowledged a frame to when its rows are seen in ClickHouse.
#[derive(Debug, Serialize)]
struct Lag {
    events_per_s: f64,
    p50_s: f64,
    p99_s: f64,
    max_s: f64,
}

#[derive(Debug, Serialize, serde::Deserialize, clickhouse::Row)]
struct Table {
    table: String,
    rows: u64,
    bytes: u64,
}

pub fn main(options: &Options) -> ExitCode {
    exit("analytics", block_on(run(options)))
}

async fn run(options: &Options) -> Result<(), BillError> {
    let measure = Measure::begin("analytics", options.size);
    let mut bench = Bench::prepare(options).await?;
    let ledger = bench.write_month().await?;
    chassis::out!(
        "{} allocations, {} events in {} frames, {} MB of ledger",
        options.allocations,
        ledger.events,
        ledger.frames,
        ledger.bytes >> 20
    );
    let ingest = bench.ingest(&ledger).await?;
    chassis::out!(
        "into empty tables: {:.0} events/s in {:.1} s; per task {:.2} us of CPU by analytics, {:.2} by ClickHouse",
        ingest.events_per_s,
        ingest.seconds,
        ingest.cpu_us_per_task,
        ingest.clickhouse_cpu_us_per_task
    );
    let lag = bench.lag(options.rate, options.lag_seconds).await?;
    chassis::out!(
        "lag at {:.0} events/s: p50 {:.2} s, p99 {:.2} s, max {:.2} s",
        lag.events_per_s,
        lag.p50_s,
        lag.p99_s,
        lag.max_s
    );
    let close_s = bench.close().await?;
    chassis::out!("closed and reconciled in {close_s:.2} s");
    let tables = bench.tables().await?;
    let bytes: u64 = tables.iter().map(|table| table.bytes).sum();
    let questions = questions::ask(&bench.client, &options.questions, options.size).await?;
    for asked in &questions {
        chassis::out!(
            "{:8.3} s  {:>7} rows  {}",
            asked.seconds,
            asked.rows,
            asked.question
        );
        if let Some(why) = &asked.failed {
            chassis::out!("            {why}");
        }
    }
    let slowest = questions
        .iter()
        .map(|asked| asked.seconds)
        .fold(0.0, f64::max);
    let over = questions
        .iter()
        .filter(|asked| asked.seconds >= 1.0 || asked.failed.is_some())
        .count();
    let failed = questions.iter().filter(|asked| asked.failed.is_some());
    let failed = Vec::from_iter(failed.map(|asked| asked.question.clone())).join(", ");
    let aims = BTreeMap::from([
        ("events_per_s", ingest.events_per_s >= AIM_EVENTS_PER_S),
        ("lag_p99", lag.p99_s < AIM_LAG_P99_S),
        (
            "cpu_us_per_task",
            ingest.cpu_us_per_task <= AIM_CPU_US_PER_TASK,
        ),
        ("questions", over == 0),
        ("close", close_s < 60.0),
    ]);
    let figures = Figures {
        allocations: bench.history.requested(),
        tenants: options.tenants,
        ledger,
        ingest,
        lag,
        bytes_per_million_allocations: bytes * 1_000_000 / bench.history.requested().max(1),
        tables,
        close_s,
        questions,
        slowest_question_s: slowest,
        questions_over_1_s: over,
        aims: options.size.pick(aims, BTreeMap::new()),
    };
    bench.clear().await?;
    options.out.write(&object(&measure.end(figures))?)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(BillError::Unanswered(failed)),
    }
}

struct Bench {
    servers: Servers,
    history: History,
    buses: BTreeMap<Writer, JetStreamBus>,
    subjects: Subjects,
    client: clickhouse::Client,
    database: String,
    store: Store,
    program: Option<Program>,
    end: Lsn,
}

impl Bench {
    async fn prepare(options: &Options) -> Result<Self, BillError> {
        let servers = Servers::read()?;
        let subjects = Subjects::new("bill");
        let maker = jetstream::new(plain(&servers.stack, "bus").await?);
        cell::init(&maker, &subjects, Chosen::default()).await?;
        let mut buses = BTreeMap::new();
        for writer in WRITERS {
            let client = plain(&servers.stack, writer.name()).await?;
            buses.insert(writer, JetStreamBus::open(client, subjects.clone()).await?);
        }
        let database = "bill".to_owned();
        let server = servers.clickhouse()?;
        let store = Store::new(server.clone(), &database, CellNo(1));
        Ok(Self {
            history: History::new(options.tenants, options.allocations),
            client: server.with_database(&database),
            servers,
            buses,
            subjects,
            database,
            store,
            program: None,
            end: Lsn(0),
        })
    }

    async fn append(&mut self, records: Vec<Record>) -> Result<u64, BillError> {
        let mut bytes = 0;
        for record in records {
            bytes += record.frame.len() as u64;
            self.buses[&record.writer].append_again(&record).await?;
            self.end = record.lsn;
        }
        Ok(bytes)
    }

    async fn write_month(&mut self) -> Result<Ledger, BillError> {
        let beginning = self.history.beginning();
        let mut bytes = self.append(beginning).await?;
        while let Some(records) = self.history.step() {
            bytes += self.append(records).await?;
        }
        Ok(Ledger {
            events: self.history.events(),
            frames: self.end.0,
            bytes,
        })
    }

    async fn ingest(&mut self, ledger: &Ledger) -> Result<Ingest, BillError> {
        let program = Program::start(&self.servers, &self.subjects, &self.database)?;
        let usage = Usage::begin_with(&self.servers.stack, vec![program.named()]).await;
        self.program = Some(program);
        let since = Stopwatch::start();
        self.caught_up().await?;
        let seconds = since.elapsed().as_secs_f64();
        let used = usage.end(&self.servers.stack).await;
        let tasks = self.history.requested() as f64;
        let per_task = |used: &Used, name: &str| round(used.cpu_s_of(&[name]) * 1e6 / tasks, 2);
        Ok(Ingest {
            seconds: round(seconds, 2),
            events_per_s: (ledger.events as f64 / seconds).round(),
            tasks_per_s: (tasks / seconds).round(),
            cpu_us_per_task: per_task(&used, program::NAME),
            clickhouse_cpu_us_per_task: per_task(&used, "clickhouse"),
            nats_cpu_us_per_task: per_task(&used, "nats"),
            rss_mb: used.rss_mb,
        })
    }

    /// Where the tables stand; 0 before they are there.
    async fn through(&mut self) -> Result<Lsn, BillError> {
        if let Some(program) = &mut self.program {
            program.lives()?;
        }
        match self.store.through().await {
            Err(StoreError::Moved) => Ok(Lsn(0)),
            through => Ok(through?),
        }
    }

    async fn caught_up(&mut self) -> Result<(), BillError> {
        let (mut last, mut still) = (Lsn(0), Stopwatch::start());
        loop {
            let through = self.through().await?;
            if through >= self.end {
                return Ok(());
            }
            if through != last {
                (last, still) = (through, Stopwatch::start());
            }
            if still.elapsed() > STALL_MAX {
                return Err(BillError::Stalled { through: through.0 });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Frames at a steady rate, and when each of them is seen.
    async fn lag(&mut self, rate: u64, seconds: u64) -> Result<Lag, BillError> {
        let since = Stopwatch::start();
        let before = self.history.events();
        let mut under_way: VecDeque<(Lsn, Duration)> = VecDeque::new();
        // Milliseconds.
        let mut lags =
            Histogram::<u64>::new_with_bounds(1, 600_000, 3).expect("the bounds are a histogram's");
        let over = Duration::from_secs(seconds);
        let mut events_per_s = 0.0;
        loop {
            let now = since.elapsed();
            let written = self.history.events() - before;
            if now < over && written < rate * now.as_millis() as u64 / 1000 {
                let records = self.history.written();
                self.append(records).await?;
                under_way.push_back((self.end, since.elapsed()));
                events_per_s = written as f64 / now.as_secs_f64();
                continue;
            }
            if now >= over && under_way.is_empty() {
                break;
            }
            let through = self.through().await?;
            while let Some((lsn, at)) = under_way.front()
                && *lsn <= through
            {
                let lag = since.elapsed().saturating_sub(*at).as_millis() as u64;
                lags.saturating_record(lag.max(1));
                under_way.pop_front();
            }
            if now > over + STALL_MAX {
                return Err(BillError::Stalled { through: through.0 });
            }
            tokio::time::sleep(LOOK).await;
        }
        let s = |ms: u64| ms as f64 / 1000.0;
        Ok(Lag {
            events_per_s: f64::round(events_per_s),
            p50_s: s(lags.value_at_quantile(0.5)),
            p99_s: s(lags.value_at_quantile(0.99)),
            max_s: s(lags.max()),
        })
    }

    async fn close(&mut self) -> Result<f64, BillError> {
        let since = Stopwatch::start();
        let closed = self.history.close();
        self.append(vec![closed]).await?;
        self.caught_up().await?;
        let months = self.store.reconciled_months().await?;
        let month = MONTH.to_string();
        let ours = months.iter().find(|line| line.month == month);
        let ours = ours.ok_or_else(|| BillError::Wrong(month.clone()))?;
        if !ours.closed || ours.variance != "0" || ours.charged_micro <= 0 {
            return Err(BillError::Wrong(format!("{ours:?}")));
        }
        Ok(round(since.elapsed().as_secs_f64(), 2))
    }

    async fn tables(&self) -> Result<Vec<Table>, BillError> {
        let query = self.client.query(
            "SELECT table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes FROM system.parts
             WHERE active AND database = ? GROUP BY table ORDER BY table",
        );
        Ok(query.bind(&self.database).fetch_all().await?)
    }

    /// Leaves nothing behind.
    async fn clear(mut self) -> Result<(), BillError> {
        self.program.take();
        self.client
            .query("DROP DATABASE ?")
            .bind(clickhouse::sql::Identifier(&self.database))
            .execute()
            .await?;
        Ok(())
    }
}
