//! All cases that a directory has figures of, as tables.

use super::{
    BenchError, aims, case::Case, figures::CaseFigures, live::LiveFigures, rate::RateFigures,
};
use clap::ValueEnum;
use replay::command::Size;
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, Default)]
pub struct Report {
    pub cases: Vec<CaseFigures>,
    pub live: Option<LiveFigures>,
    pub peers: Option<PeersFigures>,
    size: Size,
}

/// What `loadtest peers` has written in the same directory.
#[derive(Debug, Deserialize)]
pub struct PeersFigures {
    pub ratio_vs_task_tables: f64,
}

const PEERS: &str = "peers.json";

impl Report {
    pub fn file(directory: &Path, case: Case) -> PathBuf {
        directory.join(format!("bench-{}.json", case.name()))
    }

    pub fn read(directory: &Path, size: Size) -> Result<Self, BenchError> {
        let mut report = Self {
            size,
            peers: figures(&directory.join(PEERS))?,
            ..Self::default()
        };
        for case in Case::value_variants() {
            let path = Self::file(directory, *case);
            match case {
                Case::Live => report.live = figures(&path)?,
                _ => report.cases.extend(figures(&path)?),
            }
        }
        Ok(report)
    }
}

/// None of a case that was not measured.
fn figures<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BenchError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// One rate, while the next one is measured.
pub fn line(rate: &RateFigures) -> String {
    let verdict = match rate.sustained {
        true => "sustained".to_owned(),
        false => format!("{:?}", rate.shortfalls),
    };
    format!(
        "{:>7.0}/s: {:.0} tasks/s, p50 {:.1} p99 {:.1} p99.9 {:.1} ms, {:.1} us of CPU, services {:.1}; {verdict}",
        rate.offered_per_s,
        rate.tasks_per_s,
        rate.p50_ms,
        rate.p99_ms,
        rate.p999_ms,
        rate.cpu_us_per_task,
        rate.services_us_per_task,
    )
}

fn or_dash(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<10}{:>10}{:>12}{:>14}{:>14}{:>10}{:>10}{:>12}{:>12}",
            "case",
            "tasks/s",
            "us of CPU",
            "services us",
            "ledger bytes",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "p99 at 1k"
        )?;
        for case in &self.cases {
            writeln!(
                f,
                "{:<10}{:>10}{:>12}{:>14}{:>14}{:>10}{:>10}{:>12}{:>12}",
                case.case.name(),
                case.highest_tasks_per_s,
                or_dash(case.cpu_us_per_task),
                or_dash(case.services_us_per_task),
                or_dash(case.ledger_bytes_per_task),
                or_dash(case.p50_ms_at_half),
                or_dash(case.p99_ms_at_half),
                or_dash(case.p999_ms_at_half),
                or_dash(case.p99_ms_at_1k),
            )?;
        }
        if self.size.smoke {
            return Ok(());
        }
        writeln!(f, "\n{:<68}{:>12}{:>12}", "aim", "", "measured")?;
        for line in aims::lines(self) {
            let met = match line.met() {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "not measured",
            };
            let (aim, measured) = (line.aim(), or_dash(line.measured));
            let (what, unit) = (&line.what, line.unit);
            writeln!(f, "{what:<68}{aim:>12}{measured:>12} {unit:<8}{met}")?;
        }
        Ok(())
    }
}
