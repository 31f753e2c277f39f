//! Which policies are measured on a trace, and what came of them.

use super::{
    QueueingError,
    batch::{self, Policy, Service},
    gang::{self, Accounting},
    philly,
    published::{Published, PublishedError},
    report::{BatchCase, Case, GangCase},
    swf::{Job, Log},
};
use crate::kit::figures::mean;
use indicatif::{ProgressBar, ProgressStyle};
use scheduler_rules::order::Order;
use std::path::Path;

const MEASURE: &str = "queueing";
/// Jobs of a sequence.
const SEQUENCE: usize = 1024;
/// Sequences of a log that has no published ones, equally spaced.
const SEQUENCES: usize = 10;
/// The published log, and where its published sequences begin.
const LUBLIN_FILE: &str = "lublin_256";
const LUBLIN_TRACE: &str = "Lublin-1";
const LUBLIN_BEGINS: [usize; SEQUENCES] =
    [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085];
/// With the names in the published tables.
const BATCH_ORDERS: [(Order, &str); 5] = [
    (Order::Fcfs, "FCFS"),
    (Order::Sjf, "SJF"),
    (Order::F1, "F1"),
    (Order::Wfp3, "WFP3"),
    (Order::Unicep, "UNI"),
];
const GANG_ORDERS: [(Order, &str); 2] = [(Order::Srtf, "SRTF"), (Order::Srsf, "SRSF")];
/// What ours is compared with: the learned policy, and the better of the two orders.
const BATCH_RIVAL: &str = "RL";
const GANG_RIVAL: &str = "SRSF";
const OURS: &str = "default";

/// The bar hides itself where there is no terminal.
fn progress(trace: &str, steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64).with_message(trace.to_owned());
    match ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn published_beside(path: &Path) -> Result<Published, PublishedError> {
    Published::read(path.parent().unwrap_or(Path::new("")))
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn sequences<'a>(path: &Path, jobs: &'a [Job]) -> Result<Vec<&'a [Job]>, QueueingError> {
    let begins: Vec<usize> = if stem(path) == LUBLIN_FILE {
        LUBLIN_BEGINS.to_vec()
    } else if jobs.len() <= SEQUENCE {
        return Ok(vec![jobs]);
    } else {
        let last = jobs.len() - SEQUENCE;
        (0..SEQUENCES)
            .map(|no| no * last / (SEQUENCES - 1))
            .collect()
    };
    let sequences = begins
        .iter()
        .map(|begin| jobs.get(*begin..begin + SEQUENCE));
    let sequences: Option<Vec<&[Job]>> = sequences.collect();
    sequences.ok_or_else(|| QueueingError::Short {
        path: path.to_owned(),
        jobs: jobs.len(),
    })
}

/// Every published order as published, and ours beside it as published and in our own way.
fn batch_policies() -> Vec<(String, Policy, Option<&'static str>)> {
    let ours = Order::default();
    let mut policies = Vec::new();
    for backfill in [false, true] {
        let policy = |order, service| Policy {
            order,
            backfill,
            service,
        };
        for (order, published) in BATCH_ORDERS {
            let name = order.name().to_owned();
            policies.push((name, policy(order, Service::Published), Some(published)));
        }
        let name = ours.name().to_owned();
        policies.push((name, policy(ours, Service::Published), None));
        policies.push((
            OURS.to_owned(),
            policy(ours, Service::Ours),
            Some(BATCH_RIVAL),
        ));
    }
    policies
}

pub fn of_log(path: &Path) -> Result<Vec<Case>, QueueingError> {
    let log = Log::read(path)?;
    let published = published_beside(path)?;
    let trace = match stem(path) {
        stem if stem == LUBLIN_FILE => LUBLIN_TRACE.to_owned(),
        stem => stem,
    };
    let sequences = sequences(path, &log.jobs)?;
    let policies = batch_policies();
    let bar = progress(&trace, policies.len() * sequences.len());
    let case = BatchCase {
        measure: MEASURE,
        trace: trace.clone(),
        policy: String::new(),
        order: None,
        backfill: false,
        service: "recorded",
        sequences: sequences.len(),
        skipped_jobs: log.skipped,
        avg_bounded_slowdown: 0.0,
        utilization: None,
        published: None,
        published_utilization: None,
        published_policy: None,
        equal: None,
        at_or_below: None,
    };
    let mut cases = Vec::new();
    for (name, policy, rival) in policies {
        let run = |jobs: &&[Job]| {
            let outcome = batch::run(jobs, log.processors, policy);
            bar.inc(1);
            outcome
        };
        let outcomes: Vec<batch::Outcome> = sequences.iter().map(run).collect();
        let average =
            |of: fn(&batch::Outcome) -> f64| mean(&outcomes.iter().map(of).collect::<Vec<_>>());
        let avg_bounded_slowdown = average(|outcome| outcome.avg_bounded_slowdown);
        let utilization = average(|outcome| outcome.utilization);
        let figure = rival.and_then(|rival| published.batch(&trace, rival, policy.backfill));
        let is_ours = name == OURS;
        cases.push(Case::Batch(BatchCase {
            policy: name,
            order: Some(policy.order.name()),
            backfill: policy.backfill,
            service: policy.service.name(),
            avg_bounded_slowdown,
            utilization: Some(utilization),
            published: figure.map(|figure| figure.avg_bounded_slowdown),
            published_utilization: figure.map(|figure| figure.utilization),
            published_policy: figure.map(|figure| figure.policy.clone()),
            equal: figure
                .filter(|_| !is_ours)
                .map(|figure| figure.equals(avg_bounded_slowdown, utilization)),
            at_or_below: figure
                .filter(|_| is_ours)
                .map(|figure| avg_bounded_slowdown <= figure.avg_bounded_slowdown),
            ..case.clone()
        }));
    }
    bar.finish_and_clear();
    let recorded: Option<Vec<f64>> = sequences.iter().map(|jobs| batch::recorded(jobs)).collect();
    if let Some(recorded) = recorded {
        cases.push(Case::Batch(BatchCase {
            policy: "recorded".to_owned(),
            avg_bounded_slowdown: mean(&recorded),
            ..case
        }));
    }
    Ok(cases)
}

pub fn of_gangs(path: &Path) -> Result<Vec<Case>, QueueingError> {
    let jobs = philly::read(path)?;
    let published = published_beside(path)?;
    let trace = stem(path);
    let as_published = GANG_ORDERS.map(|(order, published)| {
        let policy = gang::Policy::By(order);
        (order.name(), policy, Accounting::Published, published)
    });
    let ours = [Accounting::Published, Accounting::InPlace]
        .map(|accounting| (OURS, gang::Policy::Densest, accounting, GANG_RIVAL));
    let bar = progress(&trace, as_published.len() + ours.len());
    let mut cases = Vec::new();
    for (name, policy, accounting, rival) in as_published.into_iter().chain(ours) {
        let outcome = gang::run(&jobs, policy, accounting);
        bar.inc(1);
        let figure = published.gang(&trace, rival);
        let is_ours = name == OURS;
        cases.push(Case::Gang(GangCase {
            measure: MEASURE,
            trace: trace.clone(),
            policy: name.to_owned(),
            accounting: accounting.name(),
            avg_jct_s: outcome.avg_jct_s,
            makespan_s: outcome.makespan_s,
            p99_jct_s: outcome.p99_jct_s,
            published_avg_jct_s: figure.map(|figure| figure.avg_jct_s),
            published_makespan_s: figure.map(|figure| figure.makespan_s),
            published_p99_jct_s: figure.map(|figure| figure.p99_jct_s),
            published_policy: figure.map(|figure| figure.policy.clone()),
            equal: figure.filter(|_| !is_ours).map(|figure| {
                figure.equals(outcome.avg_jct_s, outcome.makespan_s, outcome.p99_jct_s)
            }),
            at_or_below: figure
                .filter(|_| is_ours)
                .map(|figure| outcome.avg_jct_s <= figure.avg_jct_s),
        }));
    }
    bar.finish_and_clear();
    Ok(cases)
}
