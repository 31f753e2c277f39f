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

use replay::machine;
use serde::Serialize;
use std::{
    fs, io,
    ops::Range,
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
/// Failing seeds that a report names, at most: the lowest.
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

impl Report {
    /// Adds the outcome of a seed. The report does not depend on the order of the seeds.
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        if let Some(violation) = &outcome.violation {
            self.violations += 1;
            let failing = Failing {
                seed,
                invariant: violation.invariant as u8,
                violation: violation.to_string(),
            };
            let place = self.failing.partition_point(|other| other.seed < seed);
            self.failing.insert(place, failing);
            self.failing.truncate(FAILING_MAX);
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
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
        (None, Some(_)) => u64::MAX,
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
    let mut report = examine(
        options.seed..options.seed.saturating_add(seeds),
        machine::cores(),
        |seed| {
            let outcome = (!over()).then(|| run_seed(seed));
            bar.inc(outcome.is_some().into());
            outcome
        },
    );
    bar.finish_and_clear();
    report.wall_s = watch.elapsed().as_secs_f64();
    report.events_per_s = (report.events as f64 / report.wall_s.max(0.001)) as u64;
    report
}

/// Runs seeds on the number of threads, until a run returns `None`. Seeds share nothing.
fn examine(
    seeds: Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> Option<Outcome> + Sync,
) -> Report {
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(Report {
        first_seed: seeds.start,
        ..Report::default()
    });
    machine::on_threads(threads, || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let Some(outcome) = run(seed) else {
                break;
            };
            // A report is whole between any two changes.
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.add(seed, &outcome);
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;

    #[test]
    fn a_report_does_not_depend_on_the_number_of_threads() {
        const FIRST: u64 = 7;
        const SEEDS: u64 = 200;
        let check = |threads: usize| {
            let ended = (Mutex::new(0), Condvar::new());
            let report = examine(FIRST..FIRST + SEEDS, threads, |seed| {
                let (count, changed) = &ended;
                let mut count = count.lock().expect("no run fails");
                // The first seed ends last if another thread runs the others.
                if seed == FIRST && threads > 1 {
                    count = changed
                        .wait_while(count, |count| *count < SEEDS - 1)
                        .expect("no run fails");
                }
                *count += 1;
                changed.notify_all();
                let violation = Violation {
                    invariant: Invariant::Replay,
                    lsn: seed,
                    text: "broken".to_owned(),
                };
                Some(Outcome {
                    events: seed,
                    records: 0,
                    ledger: Vec::new(),
                    digest: [0; 32],
                    // Two of three seeds fail.
                    violation: (seed % 3 > 0).then_some(violation),
                    trace: Vec::new(),
                })
            });
            assert_eq!(
                (report.seeds, report.events, report.violations),
                (200, 21_300, 134),
                "{threads} threads"
            );
            let named: Vec<u64> = report.failing.iter().map(|failing| failing.seed).collect();
            let expected: Vec<u64> = (7..=80).filter(|seed| seed % 3 > 0).collect();
            assert_eq!(named, expected, "{threads} threads");
        };
        [1, 2, 16].into_iter().for_each(check);
    }

    #[test]
    fn no_seed_begins_after_the_end_of_the_time() {
        let report = examine(0..u64::MAX, 2, |_| None);
        assert_eq!(report.seeds, 0);
    }
}
