//! Batch logs in Standard Workload Format: comment lines, some of them `; Name: value`, and 18 fields per job.
//!
//! The format: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Times are seconds since the log began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub submitted_s: i64,
    pub run_s: i64,
    /// The requested time, or the run time where none is known.
    pub estimate_s: i64,
    pub processors: u64,
    /// Under the scheduler that made the log, if it was one.
    pub waited_s: Option<i64>,
}

/// Jobs by submit time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub processors: u64,
    pub jobs: Vec<Job>,
    /// Left out: of unknown run time or size, or larger than the machine.
    pub skipped: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum SwfError {
    #[error("{path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}, line {line}: {fault}", path = .path.display())]
    Line {
        path: PathBuf,
        line: usize,
        fault: LineFault,
    },
    #[error("{path}: neither MaxProcs nor MaxNodes says how large the machine is", path = .path.display())]
    NoMachine { path: PathBuf },
    #[error("{path}: no job can be used", path = .path.display())]
    NoJobs { path: PathBuf },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    #[error("{found} fields instead of 18")]
    Fields { found: usize },
    #[error("field {field} is `{text}`, no whole number")]
    NotWhole { field: usize, text: String },
    #[error("field {field} is {value}, out of range")]
    OutOfRange { field: usize, value: i64 },
    #[error("`{text}` processors or nodes")]
    Machine { text: String },
}

const FIELDS: usize = 18;
/// Fields count from 1, as in the format's definition.
const SUBMIT: usize = 2;
const WAIT: usize = 3;
const RUN: usize = 4;
const ALLOCATED: usize = 5;
const REQUESTED: usize = 8;
const REQUESTED_TIME: usize = 9;
/// 31 years in seconds, and more processors than any machine has: sums of a log stay far below an overflow.
const VALUE_MAX: i64 = 1_000_000_000;

impl Log {
    pub fn read(path: &Path) -> Result<Self, SwfError> {
        // Comments of old logs are not always UTF-8.
        let bytes = fs::read(path).map_err(|source| SwfError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &String::from_utf8_lossy(&bytes))
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, SwfError> {
        let (mut processors, mut nodes) = (None, None);
        let mut jobs = Vec::new();
        let mut skipped = 0;
        for (content, line) in text.lines().map(str::trim).zip(1..) {
            let at_line = |fault| SwfError::Line {
                path: path.to_owned(),
                line,
                fault,
            };
            if let Some(comment) = content.strip_prefix(';') {
                match comment.split_once(':').map(|(name, v)| (name.trim(), v)) {
                    Some(("MaxProcs", value)) => processors = machine(value).map_err(at_line)?,
                    Some(("MaxNodes", value)) => nodes = machine(value).map_err(at_line)?,
                    _ => {}
                }
            } else if !content.is_empty() {
                match job(content).map_err(at_line)? {
                    Some(job) => jobs.push(job),
                    None => skipped += 1,
                }
            }
        }
        let Some(processors) = processors.or(nodes) else {
            return Err(SwfError::NoMachine {
                path: path.to_owned(),
            });
        };
        let known = jobs.len();
        jobs.retain(|job| job.processors <= processors);
        skipped += known - jobs.len();
        jobs.sort_by_key(|job| job.submitted_s);
        if jobs.is_empty() {
            return Err(SwfError::NoJobs {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            processors,
            jobs,
            skipped,
        })
    }
}

/// None for the format's "unknown".
fn machine(value: &str) -> Result<Option<u64>, LineFault> {
    let text = value.trim();
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(count @ 1..=VALUE_MAX) => Ok(Some(count.unsigned_abs())),
        _ => Err(LineFault::Machine {
            text: text.to_owned(),
        }),
    }
}

/// None if it is not known how long it ran or how large it was.
fn job(line: &str) -> Result<Option<Job>, LineFault> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if fields.len() != FIELDS {
        return Err(LineFault::Fields {
            found: fields.len(),
        });
    }
    // There are 18 fields: just checked. -1 is "unknown".
    let value = |field: usize| {
        let text = fields[field - 1];
        match text.parse::<i64>() {
            Ok(value) if (-1..=VALUE_MAX).contains(&value) => Ok(value),
            Ok(value) => Err(LineFault::OutOfRange { field, value }),
            Err(_) => Err(LineFault::NotWhole {
                field,
                text: text.to_owned(),
            }),
        }
    };
    let submitted_s = value(SUBMIT)?;
    if submitted_s < 0 {
        return Err(LineFault::OutOfRange {
            field: SUBMIT,
            value: submitted_s,
        });
    }
    let (waited_s, run_s, requested_s) = (value(WAIT)?, value(RUN)?, value(REQUESTED_TIME)?);
    let (allocated, requested) = (value(ALLOCATED)?, value(REQUESTED)?);
    let processors = if requested > 0 { requested } else { allocated };
    Ok((run_s > 0 && processors > 0).then(|| Job {
        submitted_s,
        run_s,
        estimate_s: if requested_s > 0 { requested_s } else { run_s },
        processors: processors.unsigned_abs(),
        waited_s: (waited_s >= 0).then_some(waited_s),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const SAMPLE: &str = include_str!("sample.swf");

    fn check(text: &str, expected: &str) {
        let found = match Log::parse(Path::new("a.swf"), text) {
            Ok(log) => log.jobs.iter().fold(
                format!("{} of {}", log.jobs.len(), log.processors),
                |text, job| {
                    let waited = job.waited_s.map_or("?".to_owned(), |s| s.to_string());
                    let Job {
                        submitted_s: at,
                        run_s,
                        estimate_s,
                        processors,
                        ..
                    } = job;
                    format!("{text}, {at}+{waited} {run_s}/{estimate_s}x{processors}")
                },
            ),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    const REST: &str = "-1 1 1 1 -1 -1 1 -1 -1";

    #[test]
    fn jobs_are_read_by_submit_time() {
        let head = "; MaxNodes: 8\n;MaxProcs: 16 \n; a comment: of two\n\n";
        check(
            &format!("{head}1 50 -1 30 4 -1 -1 -1 -1 {REST}\n 2 20 7 30 4 2.5 -1 8 60 {REST}\r\n"),
            "2 of 16, 20+7 30/60x8, 50+? 30/30x4",
        );
        let unknown = format!("3 0 0 -1 4 -1 -1 4 9 {REST}\n4 0 0 9 -1 -1 -1 0 9 {REST}");
        let large = format!("5 0 0 9 17 -1 -1 -1 9 {REST}");
        check(
            &format!("{head}{unknown}\n{large}\n6 0 0 9 16 -1 -1 -1 9 {REST}"),
            "1 of 16, 0+0 9/9x16",
        );
        check(&format!("{head}{large}"), "a.swf: no job can be used");
        check(
            &format!("; MaxProcs: -1\n; MaxNodes: 8\n1 0 0 9 8 -1 -1 -1 9 {REST}"),
            "1 of 8, 0+0 9/9x8",
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let head = "; MaxProcs: 16\n";
        check(
            "",
            "a.swf: neither MaxProcs nor MaxNodes says how large the machine is",
        );
        check(
            "; MaxProcs: many",
            "a.swf, line 1: `many` processors or nodes",
        );
        check("; MaxNodes: 0", "a.swf, line 1: `0` processors or nodes");
        check(
            &format!("{head}1 2 3"),
            "a.swf, line 2: 3 fields instead of 18",
        );
        check(
            &format!("{head}1 2 3 4 5 6 7 8 9 {REST} 0"),
            "a.swf, line 2: 19 fields instead of 18",
        );
        check(
            &format!("{head}\n1 x 3 4 5 6 7 8 9 {REST}"),
            "a.swf, line 3: field 2 is `x`, no whole number",
        );
        check(
            &format!("{head}1 0 3 4.5 5 6 7 8 9 {REST}"),
            "a.swf, line 2: field 4 is `4.5`, no whole number",
        );
        check(
            &format!("{head}1 -1 3 4 5 6 7 8 9 {REST}"),
            "a.swf, line 2: field 2 is -1, out of range",
        );
        check(
            &format!("{head}1 0 3 4 5 6 7 99999999999 9 {REST}"),
            "a.swf, line 2: field 8 is 99999999999, out of range",
        );
        check(
            &format!("{head}1 0 3 99999999999999999999 5 6 7 8 9 {REST}"),
            "a.swf, line 2: field 4 is `99999999999999999999`, no whole number",
        );
        check(
            &format!("{head}1 0 3 -2 5 6 7 8 9 {REST}"),
            "a.swf, line 2: field 4 is -2, out of range",
        );
    }

    #[test]
    fn the_sample_is_read() {
        check(
            SAMPLE,
            "5 of 4, 0+? 100/100x3, 10+? 50/50x4, 20+? 60/60x1, 30+? 200/200x1, 40+? 10/10x1",
        );
    }
}
