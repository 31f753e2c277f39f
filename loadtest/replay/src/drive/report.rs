//! The report: sums, checks and files.

use super::{
    bill::Charges,
    desk::{Latency, Tally},
    faults::FaultDone,
    operator::Settings,
    probe::Explained,
    witness::{Findings, Interval},
};
use crate::{fleet::FleetTally, plan::Plan};
use analytics::store::{Imbalance, ReconciledMonth};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

const MICRO: u128 = 1_000_000;
const SAMPLES_MAX: usize = 10;

/// Other programs read the fields by name: fields are added, never renamed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Submits and cancels that were published, each once however often it was sent.
    pub requests: u64,
    /// Requests that have an outcome.
    pub outcomes: u64,
    pub placed: u64,
    pub finished: u64,
    pub cancelled: u64,
    /// Submits, by the broken rule.
    pub refused: BTreeMap<&'static str, u64>,
    pub lost: u64,
    pub duplicated: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub latency: Latency,
    /// Hours with a line on the bill, over all tenants.
    pub hours_billed: u64,
    /// Length of all runs that have ended, by the feeds.
    pub allocation_hours: f64,
    /// Charges by tenant and month, in the currency.
    pub charges: BTreeMap<String, BTreeMap<String, String>>,
    /// The same in whole millionths.
    pub charges_micro: Charges,
    /// Unit-milliseconds by which anything does not add up.
    pub conservation_error_ms: u128,
    pub conservation: BTreeMap<String, u128>,
    /// Cost of each month's capacity, by its use.
    pub months: Vec<ReconciledMonth>,
    pub decisions_per_s: f64,
    pub peak_rss_mb: BTreeMap<String, f64>,
    pub wall_s: f64,
    pub replay_s: f64,
    pub accepted: u64,
    pub first_state: BTreeMap<&'static str, u64>,
    pub cancels_refused: BTreeMap<&'static str, u64>,
    pub ended: BTreeMap<&'static str, u64>,
    /// Runs after which the allocation was queued again, by cause.
    pub requeued: BTreeMap<&'static str, u64>,
    /// Allocations that waited, by reason.
    pub waiting: BTreeMap<&'static str, u64>,
    /// Requests of the end that cannot be placed, and the reasons that the read model gives.
    pub explained: Vec<Explained>,
    pub retries: u64,
    /// Ended runs longer than 0 ms, in the feeds and in ClickHouse.
    pub intervals: u64,
    pub intervals_billed: u64,
    pub rates: BTreeMap<String, u64>,
    pub faults: Vec<FaultDone>,
    pub fleet: FleetReport,
    pub traced_services: Vec<String>,
    pub workload: Option<Plan>,
    /// Why the run is not good; empty when it is.
    pub problems: Vec<String>,
    pub interrupted: bool,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct FleetReport {
    pub assignments: u64,
    pub started: u64,
    pub finished: u64,
    pub heartbeats: u64,
    pub syncs: u64,
    pub registered_again: u64,
    pub resent: u64,
    pub conflicts: u64,
}

impl From<&FleetTally> for FleetReport {
    fn from(tally: &FleetTally) -> Self {
        Self {
            assignments: tally.assignments,
            started: tally.started,
            finished: tally.finished,
            heartbeats: tally.heartbeats,
            syncs: tally.syncs,
            registered_again: tally.registered_again,
            resent: tally.resent,
            conflicts: tally.conflicts.len() as u64,
        }
    }
}

impl Report {
    pub fn count(&mut self, tally: &Tally, latency: Latency, replay_s: f64) {
        self.requests = tally.requests;
        self.outcomes = tally.outcomes;
        self.lost = tally.requests - tally.outcomes;
        self.duplicated += tally.contradicted;
        self.refused.clone_from(&tally.refused);
        self.accepted = tally.accepted;
        self.first_state.clone_from(&tally.first_state);
        self.cancels_refused.clone_from(&tally.cancels_refused);
        self.retries = tally.retries;
        (self.p50_ms, self.p99_ms, self.p999_ms) =
            (latency.p50_ms, latency.p99_ms, latency.p999_ms);
        self.latency = latency;
        self.replay_s = replay_s;
        if replay_s > 0.0 {
            self.decisions_per_s = tally.outcomes as f64 / replay_s;
        }
        if tally.contradicted > 0 {
            let count = tally.contradicted;
            self.problems
                .push(format!("{count} operations were answered in two ways"));
        }
    }

    pub fn ended(&mut self, ended: BTreeMap<&'static str, u64>) {
        self.finished = ended.get("finished").copied().unwrap_or(0);
        self.cancelled = ended.get("cancelled").copied().unwrap_or(0);
        self.ended = ended;
    }

    pub fn found(&mut self, findings: &Findings) {
        let kinds = [&findings.twice, &findings.double_booked, &findings.strange];
        for found in kinds {
            self.duplicated += found.len() as u64;
            self.problems
                .extend(found.iter().take(SAMPLES_MAX).cloned());
            if found.len() > SAMPLES_MAX {
                self.problems
                    .push(format!("and {} more like this", found.len() - SAMPLES_MAX));
            }
        }
    }

    pub fn billed(&mut self, charges: Charges, hours: u64) {
        self.charges = charges
            .iter()
            .map(|(tenant, months)| {
                let months = months
                    .iter()
                    .map(|(month, micro)| (month.clone(), decimal(*micro)));
                (tenant.clone(), months.collect())
            })
            .collect();
        self.charges_micro = charges;
        self.hours_billed = hours;
    }

    pub fn conserved(&mut self, checks: &[Imbalance]) {
        for check in checks {
            self.conservation_error_ms = self.conservation_error_ms.saturating_add(check.error);
            let name = format!("{} {}", check.kind, check.resource);
            self.conservation.insert(name, check.error);
        }
        if checks.is_empty() {
            self.problems
                .push("the conservation check has no lines".to_owned());
        }
        for check in checks.iter().filter(|check| check.error > 0) {
            let Imbalance {
                kind,
                resource,
                error,
            } = check;
            self.problems.push(format!(
                "{kind} {resource} do not add up by {error} unit-milliseconds"
            ));
        }
    }

    pub fn reconciled(&mut self, months: Vec<ReconciledMonth>) {
        for line in months.iter().filter(|line| line.variance != "0") {
            let (month, variance) = (&line.month, &line.variance);
            self.problems.push(format!(
                "what the capacity of {month} costs and what became of it differ by {variance}"
            ));
        }
        self.months = months;
    }

    /// The last look: what must hold whatever happened on the way.
    pub fn judge(&mut self, given_up: &[String]) {
        if self.lost > 0 {
            let (lost, sample) = (self.lost, given_up.first().map_or("", String::as_str));
            self.problems
                .push(format!("{lost} requests have no outcome; {sample}"));
        }
        if self.intervals != self.intervals_billed {
            self.problems.push(format!(
                "the feeds have {} ended runs longer than 0 ms, ClickHouse has {}",
                self.intervals, self.intervals_billed
            ));
        }
        if self.interrupted {
            self.problems.push("the run was interrupted".to_owned());
        }
    }

    pub fn good(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Micro-units as a decimal number, exactly.
pub fn decimal(micro: i128) -> String {
    let (sign, micro) = (if micro < 0 { "-" } else { "" }, micro.unsigned_abs());
    format!("{sign}{}.{:06}", micro / MICRO, micro % MICRO)
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = .path.display())]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{path}: {source}", path = .path.display())]
    Csv { path: PathBuf, source: csv::Error },
}

/// Writes the report, and to the same directory the files that an independent check of the bill needs.
pub fn write(
    path: &Path,
    report: &Report,
    intervals: &[Interval],
    settings: &Settings,
) -> Result<(), WriteError> {
    let failed = |source| WriteError::Io {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let header = [
        "tenant",
        "pod",
        "job_set",
        "node",
        "gpu_model",
        "cpu_milli",
        "memory_bytes",
        "gpu_milli",
        "started_ms",
        "ended_ms",
        "cause",
    ];
    table(
        &path.with_file_name("intervals.csv"),
        header,
        intervals,
        |interval| {
            [
                interval.tenant.clone(),
                interval.pod.clone(),
                interval.job_set.clone(),
                interval.node.clone(),
                interval.gpu_model.clone(),
                interval.cpu_milli.to_string(),
                interval.memory_bytes.to_string(),
                interval.gpu_milli.to_string(),
                interval.started_ms.to_string(),
                interval.ended_ms.to_string(),
                interval.cause.to_owned(),
            ]
        },
    )?;
    let header = ["resource", "micro_per_unit_hour", "effective_from_ms"];
    table(
        &path.with_file_name("rates.csv"),
        header,
        &settings.rates,
        |rate| {
            [
                rate.resource.clone(),
                rate.micro_per_unit_hour.to_string(),
                "0".to_owned(),
            ]
        },
    )?;
    let text = serde_json::to_string_pretty(report).map_err(|source| WriteError::Json {
        path: path.to_owned(),
        source,
    })?;
    std::fs::write(path, text + "\n").map_err(failed)
}

/// Writes lines of text to a file in the directory of the report.
pub fn write_lines(report: &Path, name: &str, lines: &[String]) -> Result<(), WriteError> {
    let path = report.with_file_name(name);
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|source| WriteError::Io { path, source })
}

fn table<T, const N: usize>(
    path: &Path,
    header: [&str; N],
    rows: &[T],
    cells: impl Fn(&T) -> [String; N],
) -> Result<(), WriteError> {
    let failed = |source| WriteError::Csv {
        path: path.to_owned(),
        source,
    };
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    writer.write_record(header).map_err(failed)?;
    for row in rows {
        writer.write_record(cells(row)).map_err(failed)?;
    }
    writer.flush().map_err(|source| WriteError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact() {
        assert_eq!(decimal(0), "0.000000");
        assert_eq!(decimal(1), "0.000001");
        assert_eq!(decimal(1_234_567_000_001), "1234567.000001");
    }

    #[test]
    fn a_report_is_good_only_when_nothing_is_missing_or_wrong() {
        let check = |error| Imbalance {
            kind: "runs".to_owned(),
            resource: "cpu".to_owned(),
            error,
        };
        let tally = |requests, outcomes, contradicted| Tally {
            requests,
            outcomes,
            contradicted,
            ..Tally::default()
        };
        let judged = |tally: Tally, error, findings: Findings, billed| {
            let mut report = Report {
                intervals_billed: billed,
                ..Report::default()
            };
            report.count(&tally, Latency::default(), 2.0);
            report.found(&findings);
            report.conserved(&[check(error)]);
            report.judge(&[]);
            (report.good(), report.lost, report.duplicated)
        };
        assert_eq!(
            judged(tally(4, 4, 0), 0, Findings::default(), 0),
            (true, 0, 0)
        );
        assert_eq!(
            judged(tally(4, 3, 0), 0, Findings::default(), 0),
            (false, 1, 0)
        );
        assert_eq!(
            judged(tally(4, 4, 1), 0, Findings::default(), 0),
            (false, 0, 1)
        );
        assert_eq!(
            judged(tally(4, 4, 0), 7, Findings::default(), 0),
            (false, 0, 0)
        );
        assert_eq!(
            judged(tally(4, 4, 0), 0, Findings::default(), 1),
            (false, 0, 0)
        );
        let twice = Findings {
            twice: vec!["a was placed 2 times".to_owned()],
            ..Findings::default()
        };
        assert_eq!(judged(tally(4, 4, 0), 0, twice, 0), (false, 0, 1));
    }
}
