//! One rate for one window: what was offered, what came of it, what it cost.

use super::{
    BenchError,
    eye::{Eye, Sample},
    load::{Load, Pace},
    verdict::{self, Evidence, Shortfall},
};
use crate::measure::{
    quantile_ms,
    usage::{SERVICES, Usage, Used},
};
use chassis::{Stopwatch, stack::Stack};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

/// Of one rate, as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RateFigures {
    pub offered_per_s: f64,
    pub sustained: bool,
    pub shortfalls: Vec<Shortfall>,
    /// Definite outcomes in the window.
    pub outcomes_per_s: f64,
    /// Tasks that came on the bill in the window.
    pub tasks_per_s: f64,
    pub tasks: u64,
    pub requests_per_message: u64,
    /// Share of the tasks whose outcome was that they wait.
    pub waiting_share: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// From the window's end until everything is on the bill and in every read model.
    pub drain_s: f64,
    pub open_outcomes: f64,
    pub open_tasks: f64,
    pub sent_again: u64,
    pub refused: u64,
    /// From the first message until everything was drained, over all tasks of that time.
    pub cpu_us_per_task: f64,
    pub services_us_per_task: f64,
    pub us_per_task: BTreeMap<String, f64>,
    pub cpu_cores: f64,
    pub ledger_bytes_per_task: f64,
    pub frames_per_s: BTreeMap<String, f64>,
    pub rss_mb: BTreeMap<String, f64>,
    /// Why the last one was refused, or sent again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

pub fn round(number: f64, digits: i32) -> f64 {
    let ten = 10_f64.powi(digits);
    (number * ten).round() / ten
}

/// What had been counted before.
struct Before {
    sent: u64,
    answered: u64,
    waiting: u64,
    refused: u64,
    again: u64,
    lost: u64,
    ledger_bytes: u64,
}

impl Before {
    async fn note(load: &Load<'_>, eye: &Eye<'_>) -> Result<Self, BenchError> {
        let counts = &load.counts;
        counts.trouble.borrow_mut().clear();
        Ok(Self {
            sent: counts.sent.get(),
            answered: counts.answered.get(),
            waiting: counts.waiting.get(),
            refused: counts.refused.get(),
            again: counts.again.get(),
            lost: counts.lost.get(),
            ledger_bytes: eye.ledger_size().await?,
        })
    }
}

pub async fn measure(
    stack: &Stack,
    eye: &Eye<'_>,
    load: &Load<'_>,
    pace: Pace,
) -> Result<RateFigures, BenchError> {
    let before = Before::note(load, eye).await?;
    let usage = Usage::begin(stack).await;
    let (since, stop, samples) = (Stopwatch::start(), Cell::new(false), RefCell::default());
    let end = pace.warm_up + pace.window;
    let watch = eye.watch(
        since,
        &load.counts,
        |at| pace.due(at),
        pace.per_s,
        (end, &stop),
        &samples,
    );
    let drained = async {
        watch.await?;
        let over = eye.look(since, &load.counts).await?;
        // A rate that was given up is drained from then on.
        let from = since.elapsed().min(end.max(over.at));
        let drained = eye.drained(since, load).await?;
        Ok::<_, BenchError>((over, drained.at.saturating_sub(from)))
    };
    let (micros, drained) = tokio::join!(load.paced(&pace, since, &stop), drained);
    let (over, drain) = drained?;
    let used = usage.end(stack).await;
    let samples = samples.into_inner();
    let counts = &load.counts;
    let tasks = counts.sent.get() - before.sent;
    let evidence = Evidence {
        per_s: pace.per_s,
        refused: counts.refused.get() - before.refused,
        lost: counts.lost.get() - before.lost,
        open_outcomes: pace.due(over.at) - (over.answered - before.answered) as f64,
        open_tasks: over.accepted.saturating_sub(over.billed) as f64,
        drain_s: drain.as_secs_f64(),
    };
    let shortfalls = verdict::shortfalls(&evidence);
    let (outcomes_per_s, tasks_per_s) = rates(&samples, &over, pace.warm_up);
    let bytes = eye.ledger_size().await? - before.ledger_bytes;
    let per_task = |amount: f64| amount / tasks.max(1) as f64;
    let us = |seconds: f64| round(per_task(seconds * 1e6), 2);
    Ok(RateFigures {
        offered_per_s: pace.per_s.round(),
        sustained: shortfalls.is_empty(),
        shortfalls,
        outcomes_per_s: outcomes_per_s.round(),
        tasks_per_s: tasks_per_s.round(),
        tasks,
        requests_per_message: load.message(pace.per_s),
        waiting_share: round(per_task((counts.waiting.get() - before.waiting) as f64), 3),
        p50_ms: quantile_ms(&micros, 0.5),
        p90_ms: quantile_ms(&micros, 0.9),
        p99_ms: quantile_ms(&micros, 0.99),
        p999_ms: quantile_ms(&micros, 0.999),
        max_ms: quantile_ms(&micros, 1.0),
        drain_s: round(evidence.drain_s, 2),
        open_outcomes: evidence.open_outcomes.round(),
        open_tasks: evidence.open_tasks,
        sent_again: counts.again.get() - before.again,
        refused: evidence.refused,
        cpu_us_per_task: us(used.cpu_s.values().sum()),
        services_us_per_task: us(used.cpu_s_of(&SERVICES)),
        us_per_task: used
            .cpu_s
            .iter()
            .map(|(name, s)| (name.clone(), us(*s)))
            .collect(),
        cpu_cores: used.cpu_cores,
        ledger_bytes_per_task: round(per_task(bytes as f64), 1),
        frames_per_s: frames_per_s(&used),
        rss_mb: used.rss_mb,
        trouble: counts.trouble.borrow().clone(),
    })
}

fn frames_per_s(used: &Used) -> BTreeMap<String, f64> {
    let per_s = |(name, frames): (&&'static str, &u64)| {
        (
            (*name).to_owned(),
            round(*frames as f64 / used.wall_s.max(0.01), 1),
        )
    };
    used.frames.iter().map(per_s).collect()
}

/// Outcomes and whole lives per second, between the first look after the warming up and the last one.
fn rates(samples: &[Sample], over: &Sample, warm_up: Duration) -> (f64, f64) {
    let first = samples.iter().find(|sample| sample.at >= warm_up);
    let Some(first) = first.filter(|first| first.at < over.at) else {
        return (0.0, 0.0);
    };
    let seconds = (over.at - first.at).as_secs_f64();
    (
        (over.answered - first.answered) as f64 / seconds,
        (over.billed - first.billed) as f64 / seconds,
    )
}
