//! The written result of a measure.

use replay::{command::Size, machine::Machine};
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, clap::Args)]
pub struct Out {
    /// File for the figures, as JSON: one object, or a line for each case.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the figures as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// A measure that is under way.
pub struct Measure {
    name: &'static str,
    size: Size,
    before: Machine,
}

/// The figures of one measure, and the machine.
#[derive(Debug, Serialize)]
pub struct Report<F> {
    measure: &'static str,
    /// At the smallest size: the figures say nothing about speed.
    smoke: bool,
    machine: Machine,
    #[serde(flatten)]
    figures: F,
}

impl Measure {
    pub fn begin(name: &'static str, size: Size) -> Self {
        let before = Machine::look();
        Self { name, size, before }
    }

    pub fn end<F>(self, figures: F) -> Report<F> {
        Report {
            measure: self.name,
            smoke: self.size.smoke,
            machine: self.before.and_after(),
            figures,
        }
    }
}

impl Out {
    pub fn write(&self, text: &str) -> Result<(), ReportError> {
        match &self.json {
            Some(path) => write(path, text),
            None => Ok(()),
        }
    }
}

pub fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    let failed = |source| ReportError::File {
        path: path.to_owned(),
        source,
    };
    fs::write(path, text).map_err(failed)
}

/// Over several lines, for people as well.
pub fn object(figures: &impl Serialize) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(figures)? + "\n")
}

/// One of many.
pub fn line(case: &impl Serialize) -> Result<String, ReportError> {
    Ok(serde_json::to_string(case)? + "\n")
}

/// A line for each.
pub fn lines<C: Serialize>(cases: &[C]) -> Result<String, ReportError> {
    cases.iter().map(line).collect()
}
