//! One rate for one window: what was offered, what came of it, what it cost.

use super::{
    BenchError,
    load::{Load, Pace},
    observer::{LedgerSize, Observer, Sample},
    verdict::{self, Evidence, LAG, Shortfall},
};
use crate::kit::{
    figures::round,
    usage::{SERVICES, Usage, Used},
};
use chassis::{Stopwatch, stack::Stack};
use replay::latency::quantile_ms;
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
    /// Over the tasks that were accepted.
    pub ledger_bytes_per_task: f64,
    /// Over all requests that were sent, whatever became of them; one that was sent again is another one.
    pub ledger_bytes_per_request: f64,
    /// Of requests and of agents' reports of runs, as encoded.
    pub inbox_bytes_per_task: f64,
    /// Of all writers' frames, on average.
    pub frame_bytes: f64,
    pub frames_per_s: BTreeMap<String, f64>,
    pub rss_mb: BTreeMap<String, f64>,
    /// Why the last one was refused, or sent again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

/// What had been counted before.
struct Before {
    sent: u64,
    answered: u64,
    accepted: u64,
    waiting: u64,
    refused: u64,
    again: u64,
    lost: u64,
    request_bytes: u64,
    report_bytes: u64,
    ledger: LedgerSize,
}

impl Before {
    async fn note(load: &Load<'_>, observer: &Observer<'_>) -> Result<Self, BenchError> {
        let counts = &load.counts;
        counts.trouble.borrow_mut().clear();
        Ok(Self {
            sent: counts.sent.get(),
            answered: counts.answered.get(),
            accepted: counts.accepted(),
            waiting: counts.waiting.get(),
            refused: counts.refused.get(),
            again: counts.again.get(),
            lost: counts.lost.get(),
            request_bytes: load.tasks.bytes(),
            report_bytes: load.scene.agents.tally().report_bytes,
            ledger: observer.ledger_size().await?,
        })
    }
}

pub async fn measure(
    stack: &Stack,
    observer: &Observer<'_>,
    load: &Load<'_>,
    pace: Pace,
) -> Result<RateFigures, BenchError> {
    let before = Before::note(load, observer).await?;
    let usage = Usage::begin(stack).await;
    let (since, stop, samples) = (Stopwatch::start(), Cell::new(false), RefCell::default());
    let end = pace.end();
    let watch = observer.watch(
        since,
        &load.counts,
        |at| pace.due(at),
        pace.per_s,
        (end, &stop),
        &samples,
    );
    let drained = async {
        watch.await?;
        let over = observer.look(since, &load.counts).await?;
        // A rate that was given up is drained from then on.
        let from = since.elapsed().min(end.max(over.at));
        let drained = observer.drained(since, load).await?;
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
        // Everything before was drained, so what was accepted then was on the bill.
        finished_share: finished_share(&pace, &samples, &over, before.accepted),
        drain_s: drain.as_secs_f64(),
    };
    let shortfalls = verdict::shortfalls(&evidence);
    let (outcomes_per_s, tasks_per_s) = rates(&samples, &over, pace.warm_up);
    let ledger = observer.ledger_size().await?.since(before.ledger);
    let reported = load.scene.agents.tally().report_bytes - before.report_bytes;
    let inbox = load.tasks.bytes() - before.request_bytes + reported;
    let accepted = counts.accepted() - before.accepted;
    let again = counts.again.get() - before.again;
    let mean = |bytes: u64, of: u64| round(bytes as f64 / of.max(1) as f64, 1);
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
        sent_again: again,
        refused: evidence.refused,
        cpu_us_per_task: us(used.cpu_s.values().sum()),
        services_us_per_task: us(used.cpu_s_of(&SERVICES)),
        us_per_task: used
            .cpu_s
            .iter()
            .map(|(name, s)| (name.clone(), us(*s)))
            .collect(),
        cpu_cores: used.cpu_cores,
        ledger_bytes_per_task: mean(ledger.bytes, accepted),
        ledger_bytes_per_request: mean(ledger.bytes, tasks + again),
        inbox_bytes_per_task: mean(inbox, accepted),
        frame_bytes: mean(ledger.bytes, ledger.frames),
        frames_per_s: frames_per_s(&used),
        rss_mb: used.rss_mb,
        trouble: counts.trouble.borrow().clone(),
    })
}

/// As [`Evidence::finished_share`] has it. Looks that are too early to say anything say that all is well.
fn finished_share(pace: &Pace, samples: &[Sample], over: &Sample, billed_before: u64) -> f64 {
    let early = pace.due(pace.warm_up);
    let share = |look: &Sample| {
        let billed = look.billed.saturating_sub(billed_before) as f64;
        let offered = pace.due(look.at.min(pace.end()).saturating_sub(LAG)) - early;
        if offered > 0.0 {
            ((billed - early) / offered).clamp(0.0, 1.0)
        } else {
            1.0
        }
    };
    let late = samples.iter().filter(|look| look.at + LAG >= over.at);
    late.map(share).fold(share(over), f64::max)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 a second from 2 s to 10 s; what was on the bill at these seconds, of which the last is the window's end.
    fn share(looks: &[(f64, u64)]) -> f64 {
        let pace = Pace {
            per_s: 1000.0,
            warm_up: Duration::from_secs(2),
            window: Duration::from_secs(8),
        };
        let look = |(at, billed): &(f64, u64)| Sample {
            at: Duration::from_secs_f64(*at),
            billed: 500 + billed,
            ..Sample::default()
        };
        let all: Vec<Sample> = looks.iter().map(look).collect();
        let (over, samples) = all.split_last().expect("at least one look");
        finished_share(&pace, samples, over, 500)
    }

    #[test]
    fn a_second_of_lag_is_allowed_and_no_more() {
        assert_eq!(share(&[(10.0, 9000)]), 1.0);
        assert_eq!(share(&[(10.0, 5500)]), 0.5);
        assert_eq!(share(&[(10.0, 1000)]), 0.0);
    }

    #[test]
    fn the_best_look_of_the_last_second_counts() {
        // A lump has come just before 9.5 s, and the next one has not.
        assert_eq!(share(&[(9.5, 8500), (10.0, 8500)]), 1.0);
        assert_eq!(share(&[(8.5, 8000), (10.0, 5500)]), 0.5);
    }

    #[test]
    fn a_rate_that_was_given_up_while_warming_up_says_nothing() {
        assert_eq!(share(&[(2.5, 0)]), 1.0);
    }
}
