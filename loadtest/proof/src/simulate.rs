//! `loadtest simulate`: all deciders in one process on a seeded bus, with everything going wrong that can, and a
//! checker that shares no code with them but the naive model of named resources.
//!
//! A seed decides who is polled next, what is lost, who dies and what the clients ask, so a seed that fails fails again
//! in exactly the same way. The deciders, the leaders, the projector and the ledger logic are the real ones.

mod agents;
mod check;
mod clock;
mod feed;
mod frame;
mod process;
mod tenants;
mod trials;
mod world;

pub use check::{Invariant, Violation};
pub use clock::{SimTime, WorldClock};
pub use feed::MemoryFeed;
pub use process::{Ended, Orders, Process, Role, Shared};
pub use world::Outcome;

use serde::Serialize;
use std::{
    fs, io,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use world::World;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How many seeds to run; without it, and without --seconds, 2000.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Go on with new seeds until the time is over.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Where to write the report; `-` is standard output.
    #[arg(long, value_name = "OUT", default_value = "-")]
    json: PathBuf,
}

const SEEDS: u64 = 2000;
/// Seeds share nothing, but a laptop has other things to do.
const THREADS_MAX: usize = 2;
/// Failing seeds that a report names, at most.
const FAILING_MAX: usize = 50;

/// Runs one seed on this thread.
pub fn run_seed(seed: u64) -> Outcome {
    World::new(seed, false).run()
}

/// The same, with the last steps.
pub fn trace_seed(seed: u64) -> Outcome {
    World::new(seed, true).run()
}

#[derive(Debug, Default, Serialize)]
struct Report {
    events: u64,
    seeds: u64,
    violations: u64,
    events_per_s: u64,
    first_seed: u64,
    wall_s: f64,
    failing: Vec<Failing>,
}

#[derive(Debug, Serialize)]
struct Failing {
    seed: u64,
    invariant: u8,
    violation: String,
}

#[derive(Debug, thiserror::Error)]
enum SimulateError {
    #[error("writing the report: {0}")]
    Write(#[from] io::Error),
    #[error("writing the report: {0}")]
    Json(#[from] serde_json::Error),
}

pub fn main(options: &Options) -> ExitCode {
    let report = simulate(options);
    for failing in &report.failing {
        chassis::note!("seed {}: {}", failing.seed, failing.violation);
    }
    if let [failing, ..] = report.failing.as_slice() {
        chassis::note!("\nthe last steps of seed {}:", failing.seed);
        for line in trace_seed(failing.seed).trace {
            chassis::note!("{line}");
        }
    }
    if let Err(error) = write(&report, options) {
        chassis::note!("loadtest simulate: {error}");
        return ExitCode::FAILURE;
    }
    if report.violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn write(report: &Report, options: &Options) -> Result<(), SimulateError> {
    let text = serde_json::to_string_pretty(report)?;
    if options.json.as_os_str() == "-" {
        chassis::output::result(&(text + "\n"))?;
    } else {
        fs::write(&options.json, text + "\n")?;
    }
    Ok(())
}

fn simulate(options: &Options) -> Report {
    let watch = chassis::Stopwatch::start();
    let seeds = match (options.seeds, options.seconds) {
        (Some(seeds), _) => seeds,
        (None, Some(_)) => u64::MAX - options.seed,
        (None, None) => SEEDS,
    };
    let over = || {
        let limit = options.seconds;
        limit.is_some_and(|seconds| watch.elapsed().as_secs() >= seconds)
    };
    // Hidden by itself where there is no terminal.
    let bar = match options.seconds {
        None => indicatif::ProgressBar::new(seeds),
        Some(_) => indicatif::ProgressBar::new_spinner(),
    };
    let next = AtomicU64::new(0);
    let total = Mutex::new(Report {
        first_seed: options.seed,
        ..Report::default()
    });
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds || over() {
                break;
            }
            let seed = options.seed + index;
            let outcome = run_seed(seed);
            // A report is whole between any two changes.
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.seeds += 1;
            total.events += outcome.events;
            if let Some(violation) = outcome.violation {
                total.violations += 1;
                if total.failing.len() < FAILING_MAX {
                    total.failing.push(Failing {
                        seed,
                        invariant: violation.invariant as u8,
                        violation: violation.to_string(),
                    });
                }
            }
            bar.inc(1);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(THREADS_MAX) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let mut report = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.failing.sort_by_key(|failing| failing.seed);
    report.wall_s = watch.elapsed().as_secs_f64();
    report.events_per_s = (report.events as f64 / report.wall_s.max(0.001)) as u64;
    report
}
