//! What came of a run: as JSON for programs, as a table for people.

use super::{
    plan::Kind,
    times::{Done, Row},
};
use replay::machine::Machine;
use serde::Serialize;
use std::fmt;

const SAMPLES_MAX: usize = 10;

/// One thing that has to hold.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub holds: bool,
    /// How much was looked at, where that says something.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// How often it does not hold.
    pub wrong: usize,
    /// The first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

impl Check {
    pub fn passed(name: &'static str) -> Self {
        Self::of(name, &[])
    }

    /// It holds if nothing is wrong.
    pub fn of(name: &'static str, wrong: &[String]) -> Self {
        Self {
            name,
            holds: wrong.is_empty(),
            of: String::new(),
            wrong: wrong.len(),
            samples: wrong.iter().take(SAMPLES_MAX).cloned().collect(),
        }
    }

    pub fn with(self, of: String) -> Self {
        Self { of, ..self }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds { "holds" } else { "BROKEN" };
        write!(f, "  {word:<7} {}", self.name)?;
        if !self.of.is_empty() {
            write!(f, ": {}", self.of)?;
        }
        if !self.holds {
            write!(f, ": {} times", self.wrong)?;
        }
        self.samples
            .iter()
            .try_for_each(|sample| write!(f, "\n          {sample}"))
    }
}

/// What the clients did.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Operations {
    /// Of the clients that are measured, and of the one that floods.
    pub recorded: u64,
    pub acknowledged_once: u64,
    pub answered: u64,
    pub refused: u64,
    /// Sendings beyond the first of each.
    pub resent: u64,
    pub events_in_feeds: u64,
}

/// Names are part of what other programs read: they are added to, never changed.
#[derive(Debug, Serialize)]
pub struct Report {
    pub measure: &'static str,
    /// At the smallest size: each way to break something once.
    pub smoke: bool,
    pub seed: u64,
    pub minutes: f64,
    pub machine: Machine,
    /// Kinds of faults that this machine or this stack cannot have.
    pub not_supported: Vec<String>,
    pub faults_done: usize,
    pub operations: Operations,
    pub by_kind: Vec<Row>,
    pub checks: Vec<Check>,
    pub good: bool,
    pub faults: Vec<Done>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operations {
            recorded,
            resent,
            events_in_feeds,
            ..
        } = self.operations;
        writeln!(
            f,
            "\n{} faults in {:.1} minutes, seed {}; {recorded} operations, {resent} sent again, {events_in_feeds} events \
             in feeds\n",
            self.faults_done, self.minutes, self.seed
        )?;
        writeln!(
            f,
            "  {:<32} {:>5} {:>7} {:>7} {:>7} {:>11} {:>11} {:>11}",
            "fault (ms to the first outcome)",
            "count",
            "p50",
            "p99",
            "max",
            "beyond p50",
            "beyond max",
            "longest gap"
        )?;
        for row in &self.by_kind {
            let Row {
                kind,
                count,
                p50_ms,
                p99_ms,
                max_ms,
                beyond_p50_ms,
                beyond_max_ms,
                gap_max_ms,
                back_p50_ms,
                back_max_ms,
                without,
            } = row;
            let kind: &Kind = kind;
            let name = kind.to_string();
            write!(
                f,
                "  {name:<32} {count:>5} {p50_ms:>7} {p99_ms:>7} {max_ms:>7} {beyond_p50_ms:>11} {beyond_max_ms:>11} \
                 {gap_max_ms:>11}"
            )?;
            if *without > 0 {
                write!(f, "  {without} without any outcome")?;
            }
            if let (Some(p50), Some(max)) = (back_p50_ms, back_max_ms) {
                write!(f, "  since the bus took connections: p50 {p50}, max {max}")?;
            }
            writeln!(f)?;
        }
        for kind in &self.not_supported {
            writeln!(f, "  not supported: {kind}")?;
        }
        writeln!(f)?;
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        let broken = self.checks.iter().filter(|check| !check.holds);
        let broken: Vec<&str> = broken.map(|check| check.name).collect();
        match broken.as_slice() {
            [] => write!(f, "\nNothing was lost, doubled or billed wrongly."),
            broken => write!(f, "\nBroken: {}", broken.join("; ")),
        }
    }
}
