//! `loadtest bench`: how many tasks a second a running stack takes through their whole life, how fast it answers, and
//! what that costs.
//!
//! A task is submitted by a tenant through the client's library, placed on a simulated node, reported as started and
//! finished by the node's agent, and over when its end is in the read models and on the bill. Each case ends with an
//! audit: every task once, everywhere.

mod audit;
mod case;
mod eye;
mod load;
mod rate;
mod scene;
mod search;
mod task;
mod verdict;

pub use audit::{AuditError, Audited};
pub use case::Case;
pub use rate::RateFigures;

use crate::{
    drive::{BillError, OperatorError},
    fleet::FleetError,
    machine::Machine,
    measure::ReachError,
};
use chassis::{
    Stopwatch,
    stack::{Stack, StackError},
};
use client::{ConnectError, Failed};
use eye::Eye;
use load::{Load, Pace};
use scene::Scene;
use search::Search;
use serde::Serialize;
use std::{fs, io, path::PathBuf, process::ExitCode, time::Duration};
use vocab::BadToken;

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack, which has tenants and nothing else.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    /// Directory for the figures, a file for each case.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Which cases.
    #[arg(
        long,
        value_name = "CASES",
        value_delimiter = ',',
        default_value = "batched"
    )]
    case: Vec<Case>,
    #[command(flatten)]
    length: Length,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Length {
    /// Only these rates, in tasks per second, instead of a search for the highest.
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Requests in one message, where there are many.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(2..=1000))]
    batch: u64,
    /// How long each rate is measured.
    #[arg(long, default_value_t = 10)]
    window_s: u64,
    /// How long each rate warms up before.
    #[arg(long, default_value_t = 3)]
    warm_up_s: u64,
    /// Rates that the search may try.
    #[arg(long, default_value_t = 5)]
    steps: u32,
}

impl Default for Length {
    fn default() -> Self {
        Self {
            rate: Vec::new(),
            batch: 500,
            window_s: 10,
            warm_up_s: 3,
            steps: 5,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the operator's prices: {0}")]
    Prices(#[from] Failed),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("the agents' thread is gone")]
    AgentsGone,
    #[error("a node's name: {0}")]
    Name(#[from] BadToken),
    #[error(
        "the case {case} needs {wanted} tenants, the stack has {there}; start it with --tenants"
    )]
    TooFewTenants {
        case: &'static str,
        wanted: usize,
        there: usize,
    },
    #[error(transparent)]
    Bill(#[from] BillError),
    #[error("the ledger's stream: {0}")]
    Ledger(String),
    #[error(
        "nothing moves: {billed} of {accepted} tasks are on the bill, the slowest read model stands at {applied} of \
         {ledger_end}"
    )]
    Stalled {
        accepted: u64,
        billed: u64,
        ledger_end: u64,
        applied: u64,
    },
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("the figures' files, or a thread: {0}")]
    Io(#[from] io::Error),
    #[error("the figures as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Of the highest rate.
const SWEEP: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];
const LOW_PER_S: f64 = 1000.0;
const PROBE_S: u64 = 6;
/// Tasks under way in the closed loop that makes the first guess.
const PROBE_TASKS: u64 = 30_000;

#[derive(Debug, Serialize)]
pub struct CaseFigures {
    pub measure: &'static str,
    pub case: Case,
    /// Whole lives; 0: none of the rates was sustained.
    pub highest_tasks_per_s: f64,
    pub probe_tasks_per_s: Option<f64>,
    pub rates: Vec<RateFigures>,
    #[serde(flatten)]
    pub audited: Audited,
    pub machine: Machine,
}

pub fn main(options: &Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(BenchError::from)
        .and_then(|runtime| runtime.block_on(run(options)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loadtest bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), BenchError> {
    let stack = Stack::read(&options.stack)?;
    fs::create_dir_all(&options.out)?;
    for case in &options.case {
        let figures = measure(&stack, *case, &options.length).await?;
        let text = serde_json::to_string_pretty(&figures)? + "\n";
        fs::write(options.out.join(format!("{}.json", case.name())), text)?;
    }
    Ok(())
}

async fn measure(stack: &Stack, case: Case, length: &Length) -> Result<CaseFigures, BenchError> {
    let machine = Machine::look();
    let eye = Eye::open(stack).await?;
    let scene = Scene::set(stack, case).await?;
    let load = Load::new(&scene, if case.batched() { length.batch } else { 1 });
    let bench = Bench {
        stack,
        eye: &eye,
        load: &load,
        length,
    };
    let mut rates = Vec::new();
    let mut probe = None;
    if length.rate.is_empty() {
        let guess = bench.probe().await?;
        probe = Some(guess.round());
        bench.search(guess, &mut rates).await?;
    }
    for per_s in &length.rate {
        rates.push(bench.rate(*per_s).await?);
    }
    rates.sort_by(|a, b| a.offered_per_s.total_cmp(&b.offered_per_s));
    let sustained = rates.iter().filter(|rate| rate.sustained);
    let highest = sustained.map(|rate| rate.offered_per_s).fold(0.0, f64::max);
    let audited = audit::audit(stack, load.tasks.job_set(), load.counts.accepted()).await?;
    Ok(CaseFigures {
        measure: "bench",
        case,
        highest_tasks_per_s: highest,
        probe_tasks_per_s: probe,
        rates,
        audited,
        machine: machine.and_after(),
    })
}

struct Bench<'b> {
    stack: &'b Stack,
    eye: &'b Eye<'b>,
    load: &'b Load<'b>,
    length: &'b Length,
}

impl Bench<'_> {
    async fn rate(&self, per_s: f64) -> Result<RateFigures, BenchError> {
        let pace = Pace {
            per_s,
            warm_up: Duration::from_secs(self.length.warm_up_s),
            window: Duration::from_secs(self.length.window_s),
        };
        let figures = rate::measure(self.stack, self.eye, self.load, pace).await?;
        println!("{}", serde_json::to_string(&figures)?);
        Ok(figures)
    }

    /// Whole lives per second in a closed loop.
    async fn probe(&self) -> Result<f64, BenchError> {
        let counts = &self.load.counts;
        let window = Duration::from_secs(PROBE_S);
        self.load.bounded(PROBE_TASKS, window / 3).await;
        let since = Stopwatch::start();
        let before = self.eye.look(since, counts).await?;
        self.load.bounded(PROBE_TASKS, window).await;
        let after = self.eye.look(since, counts).await?;
        self.eye.drained(since, counts).await?;
        let seconds = (after.at - before.at).as_secs_f64();
        Ok((after.billed - before.billed) as f64 / seconds)
    }

    async fn search(&self, guess: f64, rates: &mut Vec<RateFigures>) -> Result<(), BenchError> {
        let mut search = Search::below(guess, self.length.steps);
        while let Some(per_s) = search.next() {
            let figures = self.rate(per_s).await?;
            search.tried(per_s, figures.sustained);
            rates.push(figures);
        }
        let Some(highest) = search.highest() else {
            return Ok(());
        };
        for part in SWEEP {
            rates.push(self.rate(highest * part).await?);
        }
        rates.push(self.rate(LOW_PER_S).await?);
        Ok(())
    }
}
