//! `loadtest history --check FILE` checks a recorded history; `--drive STACK` records one on a running stack first.

use super::{
    BadLine, Bounds, Entry, History, Summary, Violation, check,
    drive::{Connection, Driver, Names, Slots},
    read_lines,
    wire::Entries,
    write_lines,
};
use chassis::{Stopwatch, stack::Stack};
use clap::Args;
use ledger::{Bus, BusError, Chain, ChainError, Tail};
use ledger_nats::jetstream::JetStreamBus;
use replay::{
    command::block_on,
    reach::{self, ReachError},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use vocab::{CellNo, HOUR_MS, Kinds, Lsn, Token};

#[derive(Debug, Args)]
pub struct Options {
    /// A recorded history, as JSON lines.
    #[arg(long, value_name = "FILE", required_unless_present = "drive")]
    check: Option<PathBuf>,
    /// The file of a running stack: random operations on its last tenant, which must not have asked for resources before.
    #[arg(long, value_name = "STACK", conflicts_with = "check")]
    drive: Option<PathBuf>,
    /// How long it is driven.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where to write what was recorded.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error(transparent)]
    BadLine(#[from] BadLine),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Load(#[from] Box<ReachError>),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error("starting the runtime: {0}")]
    Runtime(#[from] io::Error),
    #[error("the history as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0} has asked for resources before; start a fresh stack")]
    Used(Token),
    #[error("what was asked is not decided after {0:?}")]
    Undecided(Duration),
}

const CONNECTIONS: usize = 3;
const CLIENTS: u64 = 24;
/// Short enough that some answers come too late.
const PATIENCE: Duration = Duration::from_millis(25);
const SETTLE_MAX: Duration = Duration::from_secs(30);
const SETTLE_PERIOD: Duration = Duration::from_millis(200);

/// 0: it holds. 1: a rule is broken. 2: it cannot be read or recorded.
pub fn run(options: &Options) -> ExitCode {
    match examine(options) {
        Ok(summary) => {
            chassis::out!("{}", sentence(&summary));
            ExitCode::SUCCESS
        }
        Err(failed) => {
            chassis::note!("{failed}");
            ExitCode::from(match failed {
                Failed::Violation(_) => 1,
                _ => 2,
            })
        }
    }
}

fn examine(options: &Options) -> Result<Summary, Failed> {
    let history = match (&options.check, &options.drive) {
        (Some(path), _) => {
            let text = fs::read_to_string(path).map_err(|source| at(path, source))?;
            read_lines(text.lines())?
        }
        (None, Some(stack)) => recorded(stack, Duration::from_secs(options.seconds))?,
        (None, None) => unreachable!("one of the two is required"),
    };
    if let Some(path) = &options.out {
        let lines: Result<Vec<_>, _> = write_lines(&history).collect();
        let text = lines?.join("\n") + "\n";
        fs::write(path, text).map_err(|source| at(path, source))?;
    }
    Ok(check(&history)?)
}

fn at(path: &Path, source: io::Error) -> Failed {
    let path = path.display().to_string();
    Failed::File { path, source }
}

fn recorded(stack: &Path, time: Duration) -> Result<History, Failed> {
    let stack = Stack::read(stack).map_err(|error| Box::new(error.into()))?;
    block_on(drive(&stack, time))
}

async fn drive(stack: &Stack, time: Duration) -> Result<History, Failed> {
    let ledger = reach::ledger(stack).await.map_err(Box::new)?;
    let tenant = reach::tenants(stack).pop();
    let tenant = tenant.ok_or_else(|| Box::new(ReachError::NoTenant))?;
    if !entries(&ledger, &tenant).await?.0.is_empty() {
        return Err(Failed::Used(tenant));
    }
    let clients = reach::connect(stack, &tenant, CONNECTIONS, Some(PATIENCE)).await;
    let connections = clients.map_err(Box::new)?.into_iter().zip(1..);
    let connections = connections.map(|(client, no)| Connection {
        name: token(&format!("c{no}")),
        client,
    });
    let (cell, bounds) = (CellNo(stack.cell.number), bounds());
    let driver = Driver::new(
        tenant.clone(),
        cell,
        connections.collect(),
        names(&bounds),
        Slots::Clock,
    );
    let since = Stopwatch::start();
    let clients = (1..=CLIENTS).map(|seed| driver.client(seed, || since.elapsed() < time));
    futures::future::join_all(clients).await;
    let entries = decided(&ledger, &tenant).await?;
    Ok(driver.recorder().history(bounds, entries))
}

/// What stands on the ledger once nothing is left to decide.
async fn decided(ledger: &JetStreamBus, tenant: &Token) -> Result<Vec<Entry>, Failed> {
    let since = Stopwatch::start();
    while since.elapsed() < SETTLE_MAX {
        let (entries, open) = entries(ledger, tenant).await?;
        if open == 0 {
            return Ok(entries);
        }
        tokio::time::sleep(SETTLE_PERIOD).await;
    }
    Err(Failed::Undecided(SETTLE_MAX))
}

/// The tenant's entries, and how much of what was asked is not decided.
async fn entries(ledger: &JetStreamBus, tenant: &Token) -> Result<(Vec<Entry>, usize), Failed> {
    let (mut found, mut entries, mut chain) = (Vec::new(), Entries::default(), Chain::default());
    let end = ledger.end().await?;
    if end == Lsn(0) {
        return Ok((found, 0));
    }
    let mut records = ledger.follow(Lsn(1)).await?;
    while chain.last() < end {
        let record = records.recv().await?;
        if let Some(frame) = chain.accept(&record, Kinds::ALL)? {
            let all = frame
                .placed()
                .filter_map(|(at, event)| entries.entry(&at, event));
            found.extend(all.filter(|entry| entry.tenant == *tenant));
        }
    }
    Ok((found, entries.open()))
}

/// As the services have them when nobody sets anything.
fn bounds() -> Bounds {
    let (scheduler, admission) = (
        scheduler::Config::default().leases,
        admission::Config::default(),
    );
    Bounds {
        resources_max: scheduler.resources_max as usize,
        leases_max: scheduler.leases_max as usize,
        members_max: scheduler.bundle_max,
        ttl_slots_max: scheduler.ttl_slots_max,
        window_slots: (admission.operation_window_ms / HOUR_MS * 3600) as u64 - 1,
        history_slots: scheduler.history_slots,
        expirations_max: scheduler.expirations_per_slot_max,
    }
}

fn names(bounds: &Bounds) -> Names {
    let tokens = |prefix: &str| (0..8).map(|no| token(&format!("{prefix}{no}"))).collect();
    Names {
        resources: tokens("r"),
        holders: tokens("h"),
        // So that some expire while it is driven.
        ttl_slots_max: bounds.ttl_slots_max.min(4),
        members_max: bounds.members_max.min(3),
    }
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap_or_else(|_| unreachable!("{text} is made of letters and digits"))
}

fn sentence(summary: &Summary) -> String {
    let Summary {
        calls,
        answered,
        unwritten,
        indefinite,
        reads,
        decisions,
    } = summary;
    format!(
        "strictly serializable: {calls} calls ({answered} answered, {unwritten} not taken, {indefinite} indefinite) and \
         {reads} reads against {decisions} entries of the ledger"
    )
}
