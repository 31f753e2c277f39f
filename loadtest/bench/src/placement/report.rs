//! The cases of a measure: one JSON object per line, and a table.

use super::{Filled, departures::Visited, lists::Lists};
use crate::kit::figures::mean;
use scheduler_rules::scoring::Policy;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Case {
    Fill(FillCase),
    Departures(DeparturesCase),
}

/// What all cases have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    measure: &'static str,
    list: String,
    policy: &'static str,
    seeds: u64,
    departures: bool,
    pods: usize,
    nodes: usize,
    gpu_capacity_milli: u64,
    #[serde(skip)]
    usual_nodes: bool,
}

/// Percentages are means over the seeds; null when the load was not reached by all of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FillCase {
    #[serde(flatten)]
    summary: Summary,
    pub unallocated_pct_at_100: Option<f64>,
    /// Sample standard deviation over the seeds; null with one.
    sd: Option<f64>,
    /// Of the capacity.
    frag_amount_pct_at_100: Option<f64>,
    /// Of what is free.
    frag_ratio_pct_at_100: Option<f64>,
    decisions_per_s: f64,
    /// The least over the seeds.
    last_load_pct: u64,
    published_mean: Option<f64>,
}

/// Means are over the time and the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeparturesCase {
    #[serde(flatten)]
    summary: Summary,
    allocated_pct_mean: f64,
    allocated_pct_peak: f64,
    frag_amount_pct_mean: f64,
    frag_ratio_pct_mean: f64,
    placed_pct: f64,
    /// Per seed.
    failed_pods: f64,
    /// Of these, those that do not fit in the empty cluster.
    never_fitting_pods: f64,
    decisions_per_s: f64,
}

impl Summary {
    pub fn new(lists: &Lists, policy: Policy, seeds: u64) -> Self {
        Self {
            measure: "placement",
            list: lists.name.clone(),
            policy: policy.name(),
            seeds,
            departures: false,
            pods: lists.pods.len(),
            nodes: lists.nodes.len(),
            gpu_capacity_milli: lists.gpu_capacity_milli(),
            usual_nodes: lists.usual_nodes,
        }
    }

    pub fn fill(self, runs: &[Filled]) -> FillCase {
        let full: Option<Vec<_>> = runs.iter().map(|run| run.full.as_ref()).collect();
        let of = |figure: fn(&super::fill::Full) -> f64| {
            full.as_ref()
                .map(|full| full.iter().map(|full| figure(full)).collect::<Vec<_>>())
        };
        let unallocated = of(|full| full.unallocated);
        FillCase {
            unallocated_pct_at_100: unallocated.as_deref().map(mean),
            sd: unallocated.as_deref().and_then(deviation),
            frag_amount_pct_at_100: of(|full| full.frag_amount).as_deref().map(mean),
            frag_ratio_pct_at_100: of(|full| full.frag_ratio).as_deref().map(mean),
            decisions_per_s: rate(runs.iter().map(|run| (run.decisions, run.deciding))),
            last_load_pct: runs.iter().map(|run| run.last_load_pct).min().unwrap_or(0),
            published_mean: self.published(),
            summary: self,
        }
    }

    pub fn departures(self, runs: &[Visited]) -> DeparturesCase {
        let of = |figure: fn(&Visited) -> f64| mean(&runs.iter().map(figure).collect::<Vec<_>>());
        let share = |run: &Visited| 100.0 * run.placed as f64 / (run.placed + run.failed) as f64;
        DeparturesCase {
            allocated_pct_mean: of(|run| run.allocated_mean),
            allocated_pct_peak: of(|run| run.allocated_peak),
            frag_amount_pct_mean: of(|run| run.frag_amount_mean),
            frag_ratio_pct_mean: of(|run| run.frag_ratio_mean),
            placed_pct: of(share),
            failed_pods: of(|run| run.failed as f64),
            never_fitting_pods: of(|run| run.never as f64),
            decisions_per_s: rate(runs.iter().map(|run| (run.decisions, run.deciding))),
            summary: Self {
                departures: true,
                ..self
            },
        }
    }

    /// Unallocated percent at full load, as the mean of ten seeds: the expected results in the repository of Weng et al.,
    /// "Beware of Fragmentation", USENIX ATC 2023.
    fn published(&self) -> Option<f64> {
        const GPU_CAPACITY_MILLI: u64 = 6_212_000;
        if !self.usual_nodes || self.gpu_capacity_milli != GPU_CAPACITY_MILLI {
            return None;
        }
        match (self.list.as_str(), self.policy) {
            ("default", "random") => Some(13.70),
            ("default", "dot_product") => Some(9.38),
            ("default", "gpu_clustering") => Some(8.35),
            ("default", "gpu_packing") => Some(8.22),
            ("default", "best_fit") => Some(7.14),
            ("default", "fgd") => Some(4.77),
            ("cpu050", "random") => Some(10.98),
            ("cpu050", "dot_product") => Some(6.97),
            ("cpu050", "gpu_clustering") => Some(6.48),
            ("cpu050", "gpu_packing") => Some(6.54),
            ("cpu050", "best_fit") => Some(6.44),
            ("cpu050", "fgd") => Some(5.00),
            _ => None,
        }
    }
}

pub fn table(cases: &[Case]) -> String {
    let mut text = String::new();
    for (at, case) in cases.iter().enumerate() {
        match case {
            Case::Fill(case) => {
                if at == 0 {
                    text += &format!(
                        "{:<14} {:<14} {:>13} {:>6} {:>10} {:>11} {:>11} {:>12}\n",
                        "list",
                        "policy",
                        "unallocated %",
                        "sd",
                        "published",
                        "frag amount",
                        "frag ratio",
                        "decisions/s"
                    );
                }
                text += &format!(
                    "{:<14} {:<14} {:>13} {:>6} {:>10} {:>11} {:>11} {:>12.0}\n",
                    case.summary.list,
                    case.summary.policy,
                    figure(case.unallocated_pct_at_100),
                    figure(case.sd),
                    figure(case.published_mean),
                    figure(case.frag_amount_pct_at_100),
                    figure(case.frag_ratio_pct_at_100),
                    case.decisions_per_s,
                );
                if case.unallocated_pct_at_100.is_none() {
                    text += &format!("  ends at load {} %\n", case.last_load_pct);
                }
            }
            Case::Departures(case) => {
                if at == 0 {
                    text += &format!(
                        "{:<14} {:<14} {:>11} {:>7} {:>9} {:>8} {:>11} {:>11} {:>12}\n",
                        "list",
                        "policy",
                        "allocated %",
                        "peak %",
                        "placed %",
                        "failed",
                        "frag amount",
                        "frag ratio",
                        "decisions/s"
                    );
                }
                text += &format!(
                    "{:<14} {:<14} {:>11.2} {:>7.2} {:>9.2} {:>8.1} {:>11.2} {:>11.2} {:>12.0}\n",
                    case.summary.list,
                    case.summary.policy,
                    case.allocated_pct_mean,
                    case.allocated_pct_peak,
                    case.placed_pct,
                    case.failed_pods,
                    case.frag_amount_pct_mean,
                    case.frag_ratio_pct_mean,
                    case.decisions_per_s,
                );
            }
        }
    }
    text
}

fn figure(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Of one thread.
fn rate(runs: impl Iterator<Item = (u64, Duration)>) -> f64 {
    let (decisions, deciding) = runs.fold((0, Duration::ZERO), |(all, time), (some, took)| {
        (all + some, time + took)
    });
    decisions as f64 / deciding.as_secs_f64().max(1e-9)
}
