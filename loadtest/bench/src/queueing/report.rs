//! The cases of a measure: one JSON object per line, and a table.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Case {
    Batch(BatchCase),
    Gang(GangCase),
}

/// Absent figures are null: not published, or not part of the case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchCase {
    pub measure: &'static str,
    pub trace: String,
    pub policy: String,
    /// Null for the waits that the log recorded.
    pub order: Option<&'static str>,
    pub backfill: bool,
    /// How the queue is served: `published`, `ours`, or `recorded`.
    pub service: &'static str,
    pub sequences: usize,
    /// Jobs of the log that could not be used.
    pub skipped_jobs: usize,
    pub avg_bounded_slowdown: f64,
    pub utilization: Option<f64>,
    /// Mean bounded slowdown.
    pub published: Option<f64>,
    pub published_utilization: Option<f64>,
    /// Whose the published figures are.
    pub published_policy: Option<String>,
    /// To the printed digits; only for a policy that was published.
    pub equal: Option<bool>,
    /// Only for a policy of ours.
    pub at_or_below: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GangCase {
    pub measure: &'static str,
    pub trace: String,
    pub policy: String,
    /// What a restart costs: `published` or `in_place`.
    pub accounting: &'static str,
    pub avg_jct_s: f64,
    pub makespan_s: f64,
    pub p99_jct_s: f64,
    pub published_avg_jct_s: Option<f64>,
    pub published_makespan_s: Option<f64>,
    pub published_p99_jct_s: Option<f64>,
    pub published_policy: Option<String>,
    pub equal: Option<bool>,
    pub at_or_below: Option<bool>,
}

impl Case {
    /// Nothing published, or as published, or as good.
    pub fn holds(&self) -> bool {
        let (equal, at_or_below) = match self {
            Self::Batch(case) => (case.equal, case.at_or_below),
            Self::Gang(case) => (case.equal, case.at_or_below),
        };
        equal != Some(false) && at_or_below != Some(false)
    }
}

pub fn table(cases: &[Case]) -> String {
    let mut text = String::new();
    let mut batch: Vec<&BatchCase> = Vec::new();
    let mut gang: Vec<&GangCase> = Vec::new();
    for case in cases {
        match case {
            Case::Batch(case) => batch.push(case),
            Case::Gang(case) => gang.push(case),
        }
    }
    if !batch.is_empty() {
        text += &format!(
            "{:<12} {:<9} {:<8} {:<9} {:>12} {:>11} {:>12}\n",
            "trace", "policy", "backfill", "service", "slowdown", "utilization", "published"
        );
    }
    for case in batch {
        text += &format!(
            "{:<12} {:<9} {:<8} {:<9} {:>12.2} {:>11} {:>12} {}\n",
            case.trace,
            case.policy,
            if case.backfill { "yes" } else { "no" },
            case.service,
            case.avg_bounded_slowdown,
            figure(case.utilization, 3),
            figure(case.published, 2),
            verdict(
                case.equal,
                case.at_or_below,
                case.published_policy.as_deref()
            ),
        );
    }
    if !gang.is_empty() {
        text += &format!(
            "{:<12} {:<9} {:<10} {:>12} {:>12} {:>12} {:>12}\n",
            "trace", "policy", "accounting", "avg jct s", "makespan s", "p99 jct s", "published"
        );
    }
    for case in gang {
        text += &format!(
            "{:<12} {:<9} {:<10} {:>12.1} {:>12.1} {:>12.1} {:>12} {}\n",
            case.trace,
            case.policy,
            case.accounting,
            case.avg_jct_s,
            case.makespan_s,
            case.p99_jct_s,
            figure(case.published_avg_jct_s, 1),
            verdict(
                case.equal,
                case.at_or_below,
                case.published_policy.as_deref()
            ),
        );
    }
    text
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn verdict(equal: Option<bool>, at_or_below: Option<bool>, whose: Option<&str>) -> String {
    match (equal, at_or_below, whose) {
        (Some(true), ..) => "equal".to_owned(),
        (Some(false), ..) => "NOT EQUAL".to_owned(),
        (_, Some(true), Some(whose)) => format!("at or below {whose}"),
        (_, Some(false), Some(whose)) => format!("ABOVE {whose}"),
        _ => String::new(),
    }
}
