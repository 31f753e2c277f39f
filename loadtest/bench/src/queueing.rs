//! `loadtest queueing`: the scheduler's queue orders and its backfilling on published logs, against published figures.
//!
//! The rules are the scheduler's own; here are only the machines that they serve, the files and the report.

mod batch;
mod cases;
mod find;
mod gang;
mod philly;
mod published;
mod report;
mod swf;

use crate::kit::report::{self as written, ReportError};
use find::{FindError, Trace, find};
use philly::PhillyError;
use published::PublishedError;
use replay::command::{Size, exit};
use report::{Case, table};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use swf::SwfError;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Directory with logs (*.swf) or gang traces, itself or in directories of it.
    #[arg(
        long,
        value_name = "DIR",
        required = false,
        required_unless_present = "smoke",
        default_value_if("smoke", "true", SMOKE_DATA)
    )]
    data: PathBuf,
    /// File for the cases, one JSON object per line.
    #[arg(long, value_name = "OUT")]
    json: PathBuf,
    #[command(flatten)]
    _size: Size,
}

/// Two traces of a few jobs.
const SMOKE_DATA: &str = "loadtest/bench/src/queueing";

#[derive(Debug, thiserror::Error)]
enum QueueingError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Swf(#[from] SwfError),
    #[error(transparent)]
    Philly(#[from] PhillyError),
    #[error(transparent)]
    Published(#[from] PublishedError),
    #[error("{path} has {jobs} jobs, too few for the published sequences", path = .path.display())]
    Short { path: PathBuf, jobs: usize },
    #[error(transparent)]
    Report(#[from] ReportError),
}

pub fn main(options: &Options) -> ExitCode {
    let done = run(options);
    exit(
        "queueing",
        done.map(|holds| ExitCode::from(u8::from(!holds))),
    )
}

/// Returns whether all cases hold.
fn run(options: &Options) -> Result<bool, QueueingError> {
    let cases = measure(&options.data)?;
    written::write(&options.json, &written::lines(&cases)?)?;
    chassis::output::text(&table(&cases));
    Ok(cases.iter().all(Case::holds))
}

fn measure(data: &Path) -> Result<Vec<Case>, QueueingError> {
    let mut all = Vec::new();
    for trace in find(data)? {
        all.extend(match trace {
            Trace::Batch(path) => cases::of_log(&path)?,
            Trace::Gang(path) => cases::of_gangs(&path)?,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_measured() {
        let samples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/queueing"));
        let cases = measure(samples).unwrap();
        let line = |case| serde_json::to_value(case).unwrap();
        let (gang, batch): (Vec<_>, Vec<_>) = cases
            .iter()
            .map(line)
            .partition(|case| case.get("accounting").is_some());
        assert_eq!((gang.len(), batch.len()), (4, 14));
        // Without backfilling 0, 90, 130, 120 and 110 s of waiting.
        assert_eq!(batch[0]["measure"], "queueing");
        assert_eq!(batch[0]["policy"], "fcfs");
        let slowdown = batch[0]["avg_bounded_slowdown"].as_f64().unwrap();
        let expected = (1.0 + 140.0 / 50.0 + 190.0 / 60.0 + 320.0 / 200.0 + 120.0 / 10.0) / 5.0;
        assert!((slowdown - expected).abs() < 1e-9);
        // 60.9 s of work alone, then 101.5 s.
        assert_eq!(gang[0]["policy"], "srtf");
        assert_eq!(gang[0]["avg_jct_s"], 111.65);
        assert!(cases.iter().all(Case::holds));
        assert_eq!(table(&cases).lines().count(), 20);
    }

    #[test]
    fn nothing_to_measure_is_an_error() {
        let check = |directory: &str, expected: &str| {
            let error = measure(Path::new(directory)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let nothing = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads");
        check(nothing, "neither *.swf nor gang traces");
        check("no/such/directory", "no/such/directory: ");
    }
}
