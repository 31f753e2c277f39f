//! Gang jobs of the Philly-derived traces of Zhao et al., "Multi-Resource Interleaving for Deep Learning Training",
//! SIGCOMM 2022.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// All or nothing. Times are microseconds, so that the work is a whole number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    pub gpus: u64,
    pub submitted_us: i64,
    pub work_us: i64,
    /// Of a start or restart, without work.
    pub overhead_us: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum PhillyError {
    #[error("{path}: {source}", path = .path.display())]
    Csv { path: PathBuf, source: csv::Error },
    #[error("{path}, line {line}: {fault}", path = .path.display())]
    Line {
        path: PathBuf,
        line: u64,
        fault: GangFault,
    },
    #[error("{path} has no jobs", path = .path.display())]
    Empty { path: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GangFault {
    #[error("{0} GPUs are neither a part of a node nor whole nodes of the cluster")]
    Gpus(u64),
    #[error("a time or the work is out of range")]
    OutOfRange,
}

/// The columns that a header must have to be one of these traces.
pub const COLUMNS: [&str; 5] = [
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "iteration_time",
];

#[derive(Deserialize)]
struct Row {
    num_gpu: u64,
    /// Milliseconds.
    submit_time: i64,
    iterations: i64,
    model_name: String,
    /// Milliseconds.
    iteration_time: i64,
}

pub const GPUS_PER_NODE: u64 = 8;
pub const NODES: usize = 8;
/// 1.015 in microseconds per millisecond: what the published simulator adds to an iteration.
const US_PER_ITERATION_MS: i64 = 1015;
/// 31 years.
const TIME_US_MAX: i64 = 1_000_000_000_000_000;
/// Of a whole trace: times stay far below an overflow even if one job runs after the other.
const WORK_US_MAX: i64 = i64::MAX / 4;

pub fn read(path: &Path) -> Result<Vec<Gang>, PhillyError> {
    let csv = |source| PhillyError::Csv {
        path: path.to_owned(),
        source,
    };
    gangs(path, csv::Reader::from_path(path).map_err(csv)?)
}

fn gangs<R: std::io::Read>(
    path: &Path,
    mut reader: csv::Reader<R>,
) -> Result<Vec<Gang>, PhillyError> {
    let csv = |source| PhillyError::Csv {
        path: path.to_owned(),
        source,
    };
    let header = reader.headers().map_err(csv)?.clone();
    let mut gangs: Vec<Gang> = Vec::new();
    let mut work_us = 0;
    for record in reader.records() {
        let record = record.map_err(csv)?;
        let row: Row = record.deserialize(Some(&header)).map_err(csv)?;
        let gang = row.read().and_then(|gang| {
            work_us += gang.work_us;
            let in_range = work_us <= WORK_US_MAX;
            in_range.then_some(gang).ok_or(GangFault::OutOfRange)
        });
        gangs.push(gang.map_err(|fault| PhillyError::Line {
            path: path.to_owned(),
            line: record.position().map_or(0, csv::Position::line),
            fault,
        })?);
    }
    if gangs.is_empty() {
        return Err(PhillyError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(gangs)
}

impl Row {
    fn read(&self) -> Result<Gang, GangFault> {
        let gpus = self.num_gpu;
        let whole_nodes =
            gpus.is_multiple_of(GPUS_PER_NODE) && gpus <= GPUS_PER_NODE * NODES as u64;
        if gpus == 0 || (gpus > GPUS_PER_NODE && !whole_nodes) {
            return Err(GangFault::Gpus(gpus));
        }
        let in_range = |us: Option<i64>| {
            us.filter(|us| (0..=TIME_US_MAX).contains(us))
                .ok_or(GangFault::OutOfRange)
        };
        let work_ms = self.iterations.checked_mul(self.iteration_time);
        Ok(Gang {
            gpus,
            submitted_us: in_range(self.submit_time.checked_mul(1000))?,
            work_us: in_range(work_ms.and_then(|ms| ms.checked_mul(US_PER_ITERATION_MS)))?,
            overhead_us: overhead_s(&self.model_name, gpus) * 1_000_000,
        })
    }
}

/// Measured by the authors for 1, 2, 4, 8, 16 and 32 GPUs, ten seconds for any other model; a number between two counts
/// as the larger.
fn overhead_s(model: &str, gpus: u64) -> i64 {
    let of_model = match model {
        "vgg16" => [7, 7, 8, 9, 9, 10],
        "vgg19" => [7, 7, 8, 9, 10, 10],
        "resnet18" => [4, 5, 5, 7, 7, 7],
        "shufflenet_v2_x1_0" => [4, 4, 5, 5, 7, 8],
        "a2c" => [38, 39, 39, 46, 46, 46],
        "dqn" => [5, 5, 6, 6, 8, 8],
        _ => [10; 6],
    };
    let doublings = gpus.next_power_of_two().ilog2().min(5);
    of_model[doublings as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &str, expected: &str) {
        let text = format!("job_id,{}\n{rows}", COLUMNS.join(","));
        let reader = csv::Reader::from_reader(text.as_bytes());
        let found = match gangs(Path::new("t.csv"), reader) {
            Ok(gangs) => format!("{gangs:?}"),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn jobs_are_read() {
        check(
            "0,16,2000,10,vgg16,214",
            "gpus: 16, submitted_us: 2000000, work_us: 2172100, overhead_us: 9000000",
        );
        check("0,3,0,1,dqn,1", "overhead_us: 6000000");
        check("0,64,0,1,gpt2,1", "overhead_us: 10000000");
    }

    #[test]
    fn a_bad_line_is_named() {
        check("", "t.csv has no jobs");
        check(
            "0,8,0,1,dqn,1\n1,12,0,1,dqn,1",
            "t.csv, line 3: 12 GPUs are neither",
        );
        check("0,0,0,1,dqn,1", "line 2: 0 GPUs");
        check("0,72,0,1,dqn,1", "line 2: 72 GPUs");
        check(
            "0,8,-1,1,dqn,1",
            "line 2: a time or the work is out of range",
        );
        check(
            "0,8,0,9999999999,dqn,9999999999",
            "line 2: a time or the work is out of range",
        );
        let year_31 = "0,8,0,985221674876,dqn,1\n";
        check(&year_31.repeat(2305), "[Gang");
        check(
            &year_31.repeat(2306),
            "line 2307: a time or the work is out of range",
        );
        check("0,8,0", "line: 2");
        check("0,eight,0,1,dqn,1", "line: 2");
    }
}
