//! `loadtest query`: how fast every question is answered beside many live allocations of many tenants while tasks go on, and
//! what the questions do to the decisions.
//!
//! Phases alternate in each round: tasks alone, tasks and questions, questions alone. Both loads are open: each task and each
//! question has its moment fixed before, and its time is counted from there, however late it is sent.

mod askers;
mod figures;
mod fill;
mod question;

use crate::{
    kit::{
        PROFILE,
        report::{Measure, Out, ReportError, object},
        usage::Usage,
    },
    throughput::{
        BenchError,
        case::NodeSize,
        load::{Load, Pace},
        observer::Observer,
        scene::{self, Scene},
        task::Tasks,
    },
};
use askers::Askers;
use chassis::{
    Stopwatch,
    stack::{Stack, StackError},
};
use client::{Failed, Operation, QueryError};
use figures::{Decisions, Figures, Sums};
use question::{Mix, Question};
use replay::{
    command::{Size, block_on, exit},
    fleet::FleetOptions,
    reach::{ReachError, operator, tenants},
};
use serde::Serialize;
use std::{cell::Cell, io, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

const WARM_UP: Duration = Duration::from_secs(3);
/// Requests in one message of the tasks, at most.
const BATCH: u64 = 500;
const LOOK: Duration = Duration::from_millis(100);
/// Until all that has room runs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Room for all that runs and all tasks.
const NODE: NodeSize = NodeSize {
    cores: 1_000_000,
    memory_bytes: 1 << 50,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack, which has as many tenants and nothing else.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
    /// Allocations that have not ended, of all tenants together.
    #[arg(
        long,
        default_value_t = 100_000,
        default_value_if("smoke", "true", "40")
    )]
    allocations: u64,
    /// Percent of them that wait for a place, which no node has; the others run.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=100))]
    waiting: u64,
    #[arg(
        long,
        default_value_t = 1000,
        default_value_if("smoke", "true", "4"),
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    tenants: u64,
    #[arg(long, default_value_t = 100, default_value_if("smoke", "true", "8"))]
    nodes: usize,
    /// Questions per second, of all tenants and the operator together.
    #[arg(
        long,
        default_value_t = 200.0,
        default_value_if("smoke", "true", "100")
    )]
    rate: f64,
    /// Tasks per second meanwhile.
    #[arg(
        long,
        default_value_t = 2000.0,
        default_value_if("smoke", "true", "50")
    )]
    tasks_rate: f64,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 60, default_value_if("smoke", "true", "1"))]
    seconds: u64,
    /// Rounds of all phases.
    #[arg(long, default_value_t = 3, default_value_if("smoke", "true", "1"))]
    rounds: u64,
    /// Questions that are not asked, to see what the others do without them.
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Question>,
    /// Seed of the order of the questions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, thiserror::Error)]
enum QueriesError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error("what the questions are to be about: {0}")]
    Fill(#[from] Failed),
    #[error("the first question: {0}")]
    Query(#[from] QueryError),
    #[error("the question {question} has no answer: {source}")]
    Unanswered {
        question: String,
        source: QueryError,
    },
    #[error("{started} allocations run and should be {wanted}")]
    NotRunning { started: u64, wanted: u64 },
    #[error("the askers' thread is gone")]
    AskersGone,
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("the runtime, or a thread: {0}")]
    Runtime(#[from] io::Error),
}

/// Loads at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Tasks,
    TasksAndQueries,
    Queries,
}

const PHASES: [Phase; 3] = [Phase::Tasks, Phase::TasksAndQueries, Phase::Queries];

impl Phase {
    fn has_tasks(self) -> bool {
        self != Self::Queries
    }

    fn has_queries(self) -> bool {
        self != Self::Tasks
    }
}

/// Parameters of the run, written with the figures.
#[derive(Debug, Serialize)]
struct Parameters {
    profile: &'static str,
    allocations: u64,
    waiting: u64,
    running: u64,
    tenants: u64,
    nodes: usize,
    queries_per_s: f64,
    tasks_per_s: f64,
    seconds: u64,
    rounds: u64,
    seed: u64,
    without: Vec<Question>,
}

pub fn main(options: &Options) -> ExitCode {
    exit("query", block_on(run(options)))
}

async fn run(options: &Options) -> Result<(), QueriesError> {
    let measure = Measure::begin("query", options.size);
    let stack = Stack::read(&options.stack)?;
    let observer = Observer::open(&stack).await?;
    let scene = scene(&stack, options).await?;
    let load = Load::new(&scene, Tasks::new(&scene.run), BATCH);
    let since = Stopwatch::start();
    let operator = operator(&stack).await?;
    let filled = fill::fill(&scene, &operator, options).await?;
    until_running(&scene, filled.running).await?;
    observer.settled(since, &load.counts, |_| true).await?;
    chassis::out!(
        "{} allocations wait, {} run; {:.0} s",
        filled.waiting,
        filled.running,
        since.elapsed().as_secs_f64()
    );
    let askers = Askers::start(
        &stack,
        fill::known(&scene, filled.tenants).await?,
        Mix::without(&options.without),
    )
    .await?;
    let bench = Bench {
        stack: &stack,
        observer: &observer,
        load: &load,
        askers: &askers,
        options,
    };
    let mut sums = Sums::default();
    for round in 0..options.rounds {
        for phase in PHASES {
            bench.phase(phase, round, &mut sums).await?;
        }
    }
    let parameters = Parameters {
        profile: PROFILE,
        allocations: filled.waiting + filled.running,
        waiting: filled.waiting,
        running: filled.running,
        tenants: options.tenants,
        nodes: options.nodes,
        queries_per_s: options.rate,
        tasks_per_s: options.tasks_rate,
        seconds: options.seconds,
        rounds: options.rounds,
        seed: options.seed,
        without: options.without.clone(),
    };
    let figures = Figures::of(parameters, &sums, options.size);
    chassis::output::text(&figures.to_string());
    Ok(options.out.write(&object(&measure.end(figures))?)?)
}

async fn scene(stack: &Stack, options: &Options) -> Result<Scene, QueriesError> {
    let all = tenants(stack);
    let wanted = usize::try_from(options.tenants).unwrap_or(usize::MAX);
    let tenants = all.get(..wanted).ok_or(BenchError::TooFewTenants {
        case: "query",
        wanted,
        there: all.len(),
    })?;
    let run = Operation::fresh_id()[..4].to_owned();
    let tasks = run.clone();
    let fleet = FleetOptions {
        nodes: scene::nodes(options.nodes, NODE)?,
        lifetime: Arc::new(move |change| {
            let spec = change.spec.as_ref()?;
            (spec.job_set == tasks).then_some(1)
        }),
        ..scene::fleet(stack)?
    };
    Ok(Scene::with(stack, tenants, run, fleet, true).await?)
}

async fn until_running(scene: &Scene, wanted: u64) -> Result<(), QueriesError> {
    let since = Stopwatch::start();
    loop {
        let started = scene.agents.tally().started;
        if started >= wanted {
            return Ok(());
        }
        if since.elapsed() > PATIENCE {
            return Err(QueriesError::NotRunning { started, wanted });
        }
        tokio::time::sleep(LOOK).await;
    }
}

struct Bench<'b> {
    stack: &'b Stack,
    observer: &'b Observer<'b>,
    load: &'b Load<'b>,
    askers: &'b Askers,
    options: &'b Options,
}

impl Bench<'_> {
    async fn phase(&self, phase: Phase, round: u64, sums: &mut Sums) -> Result<(), QueriesError> {
        let window = Duration::from_secs(self.options.seconds);
        let warm_up = self.options.size.pick(WARM_UP, Duration::ZERO);
        let pace = |per_s| Pace {
            per_s,
            warm_up,
            window,
        };
        let usage = Usage::begin(self.stack).await;
        let since = Stopwatch::start();
        let asked = async {
            if !phase.has_queries() {
                return Ok(None);
            }
            // The same questions in the same order in both phases of a round.
            let seed = self.options.seed.wrapping_add(round);
            let asked = self.askers.ask(pace(self.options.rate), since, seed).await;
            asked.map(Some)
        };
        let decided = async {
            if !phase.has_tasks() {
                return None;
            }
            let before = Decisions::counted(&self.load.counts);
            let pace = pace(self.options.tasks_rate);
            let micros = self.load.paced(&pace, since, &Cell::new(false)).await;
            let took = since.elapsed();
            Some(before.since(&self.load.counts, &micros, took))
        };
        let (asked, decided) = tokio::join!(asked, decided);
        sums.used(phase, &usage.end(self.stack).await);
        if let Some(decided) = decided {
            chassis::out!("{phase:?}, decisions: {decided}");
            sums.decided(phase, decided);
        }
        if let Some(asked) = asked? {
            chassis::out!("{phase:?}, queries: {asked}");
            sums.asked(phase, asked);
        }
        // What a phase has left is not the next one's.
        self.observer
            .settled(since, &self.load.counts, |_| true)
            .await?;
        Ok(())
    }
}
