//! What was published for a trace: `expected_results.csv` beside it, in one of two shapes.

use serde::{Deserialize, de::DeserializeOwned};
use std::{
    io,
    path::{Path, PathBuf},
};

pub const FILE: &str = "expected_results.csv";

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BatchFigure {
    pub trace: String,
    /// 0 or 1.
    pub backfilling: u8,
    pub policy: String,
    pub avg_bounded_slowdown: f64,
    pub utilization: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GangFigure {
    pub trace: String,
    pub policy: String,
    pub avg_jct_s: f64,
    pub makespan_s: f64,
    pub p99_jct_s: f64,
}

/// Half of the last printed digit.
const SLOWDOWN_DIGIT: f64 = 0.005;
const UTILIZATION_DIGIT: f64 = 0.0005;
const SECONDS_DIGIT: f64 = 0.05;
/// For a figure that lies on the border between two digits.
const FLOAT_ERROR: f64 = 1e-9;

impl BatchFigure {
    pub fn equals(&self, avg_bounded_slowdown: f64, utilization: f64) -> bool {
        within(
            SLOWDOWN_DIGIT,
            self.avg_bounded_slowdown,
            avg_bounded_slowdown,
        ) && within(UTILIZATION_DIGIT, self.utilization, utilization)
    }
}

impl GangFigure {
    /// All three to a tenth of a second.
    pub fn equals(&self, avg_jct_s: f64, makespan_s: f64, p99_jct_s: f64) -> bool {
        within(SECONDS_DIGIT, self.avg_jct_s, avg_jct_s)
            && within(SECONDS_DIGIT, self.makespan_s, makespan_s)
            && within(SECONDS_DIGIT, self.p99_jct_s, p99_jct_s)
    }
}

fn within(digit: f64, published: f64, found: f64) -> bool {
    (published - found).abs() <= digit + FLOAT_ERROR
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = .path.display())]
pub struct PublishedError {
    path: PathBuf,
    source: csv::Error,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Published {
    batch: Vec<BatchFigure>,
    gang: Vec<GangFigure>,
}

impl Published {
    /// Nothing if there is no such file in the directory.
    pub fn read(directory: &Path) -> Result<Self, PublishedError> {
        let path = directory.join(FILE);
        let read = || match csv::Reader::from_path(&path) {
            Ok(reader) => Self::of(reader),
            Err(error) => match error.kind() {
                csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                    Ok(Self::default())
                }
                _ => Err(error),
            },
        };
        read().map_err(|source| PublishedError {
            path: path.clone(),
            source,
        })
    }

    fn of<R: io::Read>(mut reader: csv::Reader<R>) -> Result<Self, csv::Error> {
        let has =
            |name: &str, header: &csv::StringRecord| header.iter().any(|column| column == name);
        let header = reader.headers()?.clone();
        let mut published = Self::default();
        if has("avg_bounded_slowdown", &header) {
            published.batch = rows(reader)?;
        } else if has("avg_jct_s", &header) {
            published.gang = rows(reader)?;
        }
        Ok(published)
    }

    pub fn batch(&self, trace: &str, policy: &str, backfill: bool) -> Option<&BatchFigure> {
        self.batch.iter().find(|figure| {
            figure.trace == trace
                && figure.policy == policy
                && figure.backfilling == u8::from(backfill)
        })
    }

    pub fn gang(&self, trace: &str, policy: &str) -> Option<&GangFigure> {
        let mut of_trace = self.gang.iter().filter(|figure| figure.trace == trace);
        of_trace.find(|figure| figure.policy == policy)
    }
}

fn rows<R: io::Read, T: DeserializeOwned>(reader: csv::Reader<R>) -> Result<Vec<T>, csv::Error> {
    reader.into_deserialize().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = match Published::of(csv::Reader::from_reader(text.as_bytes())) {
            Ok(published) => format!("{} {}", published.batch.len(), published.gang.len()),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{found}");
    }

    const BATCH: &str = "trace,backfilling,policy,avg_bounded_slowdown,utilization\n";

    #[test]
    fn both_shapes_are_read() {
        check(&format!("{BATCH}L,1,SJF,73.31,0.778\n"), "1 0");
        check(
            "trace,policy,avg_jct_s,makespan_s,p99_jct_s\nt,SRTF,1.5,2,3\nt,SRSF,1,2,3\n",
            "0 2",
        );
        check("trace,policy\nt,SRTF\n", "0 0");
        check(&format!("{BATCH}L,1,SJF,many,0.778\n"), "line: 2");
    }

    #[test]
    fn equal_is_to_the_printed_digit() {
        let reader = csv::Reader::from_reader(BATCH.as_bytes());
        assert_eq!(Published::of(reader).unwrap().batch("L", "SJF", true), None);
        let figure = BatchFigure {
            trace: "L".to_owned(),
            backfilling: 1,
            policy: "SJF".to_owned(),
            avg_bounded_slowdown: 73.31,
            utilization: 0.778,
        };
        assert!(figure.equals(73.3149, 0.7784));
        assert!(!figure.equals(73.316, 0.778));
        assert!(!figure.equals(73.31, 0.779));
        assert!(!figure.equals(f64::NAN, 0.778));
    }
}
