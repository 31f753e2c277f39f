//! The questions of docs/sql.md, each asked a few times.

use super::{BillError, history::MONTH};
use crate::kit::figures::{median, round};
use chassis::Stopwatch;
use clickhouse::Client;
use replay::command::Size;
use serde::Serialize;
use std::{fs, path::Path, time::Duration};
use vocab::Month;

const TIMES: usize = 3;
/// The smallest size asks one in this number of questions: the tests of analytics ask each.
const SMOKE_ONE_IN: usize = 8;
/// A slower question is asked once.
const SLOW: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
pub struct Asked {
    pub question: String,
    /// The median.
    pub seconds: f64,
    pub rows: usize,
    /// Why there is no answer.
    pub failed: Option<String>,
}

struct Question {
    heading: String,
    sql: String,
}

/// Each block of SQL, under the heading that it stands below.
fn questions(text: &str) -> Vec<Question> {
    let mut found = Vec::new();
    let mut heading = String::new();
    let mut sql: Option<String> = None;
    for line in text.lines() {
        match &mut sql {
            Some(lines) if line == "```" => {
                let sql = std::mem::take(lines);
                found.push(Question {
                    heading: heading.clone(),
                    sql,
                });
            }
            Some(lines) => {
                lines.push_str(line);
                lines.push('\n');
                continue;
            }
            None if line == "```sql" => {
                sql = Some(String::new());
                continue;
            }
            None => {
                if let Some(title) = line.strip_prefix('#') {
                    heading = title.trim_start_matches('#').trim().to_owned();
                }
                continue;
            }
        }
        sql = None;
    }
    found
}

/// Who asks, and for which time: every parameter of the page.
fn parameters() -> [(&'static str, String); 13] {
    let moment = |at: Month| format!("{at}-01 00:00:00");
    [
        ("tenant", "tenant-0001".to_owned()),
        ("job_set", "job-set-0001".to_owned()),
        ("resource", "cpu".to_owned()),
        ("month", format!("{MONTH}-01")),
        ("hour", format!("{MONTH}-15 10:00:00")),
        ("from", moment(MONTH)),
        ("until", moment(MONTH.next())),
        ("days", "1".to_owned()),
        ("label", "none".to_owned()),
        ("operation_id", "none".to_owned()),
        ("method", "proportional".to_owned()),
        ("cost_centre", String::new()),
        ("credited", "preempted".to_owned()),
    ]
}

/// Asks each question; at the smallest size only some, once.
pub async fn ask(client: &Client, file: &Path, size: Size) -> Result<Vec<Asked>, BillError> {
    let all = questions(&fs::read_to_string(file)?);
    let mut asked = Vec::new();
    for Question { heading, sql } in all.into_iter().step_by(size.pick(1, SMOKE_ONE_IN)) {
        let mut times = Vec::new();
        let mut answer = Ok(0);
        for _ in 0..size.pick(TIMES, 1) {
            let since = Stopwatch::start();
            answer = answered(client, &sql).await;
            times.push(since.elapsed().as_secs_f64());
            if since.elapsed() > SLOW {
                break;
            }
        }
        asked.push(Asked {
            question: heading,
            seconds: round(median(&times), 3),
            rows: *answer.as_ref().unwrap_or(&0),
            failed: answer.err().map(|error| error.to_string()),
        });
    }
    Ok(asked)
}

/// Returns the number of rows of the answer.
async fn answered(client: &Client, sql: &str) -> Result<usize, clickhouse::error::Error> {
    let known = parameters();
    let asked = known
        .iter()
        .filter(|(name, _)| sql.contains(&format!("{{{name}:")));
    let query = asked.fold(client.query_raw(sql), |query, (name, value)| {
        query.param(name, value)
    });
    let mut bytes = query.fetch_bytes("TSV")?;
    let mut rows = 0;
    while let Some(piece) = bytes.next().await? {
        rows += piece.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::questions;

    #[test]
    fn a_question_is_the_heading_above_its_sql() {
        let text = "# Title\n\n## Who?\n\nText.\n\n```sql\nSELECT 1\nFROM x\n```\n```\nno\n```\n### What?\n```sql\nSELECT 2\n```\n";
        let found = questions(text);
        let found: Vec<_> = found
            .iter()
            .map(|question| (question.heading.as_str(), question.sql.as_str()))
            .collect();
        assert_eq!(
            found,
            [("Who?", "SELECT 1\nFROM x\n"), ("What?", "SELECT 2\n")]
        );
    }
}
