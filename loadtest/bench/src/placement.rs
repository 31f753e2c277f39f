//! `loadtest placement`: the scheduler's placement policies on lists of nodes and pods, as in the experiments of Weng et
//! al., "Beware of Fragmentation", USENIX ATC 2023.
//!
//! The policies are the scheduler's own; here are only the files, the order of arrivals and the figures. FGD knows the
//! list's classes beforehand, as published. Our own policy knows the nodes, and learns the rest from what has arrived.

mod cluster;
mod departures;
mod fill;
mod lists;
mod report;

use crate::kit::report::{self as written, ReportError};
use fill::Filled;
use ledger::memory::Seeded;
use lists::{ListError, Lists};
use replay::{
    command::{Size, exit},
    machine,
};
use report::{Case, Summary, table};
use scheduler_rules::scoring::Policy;
use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Directory with openb_node_list_gpu_node.csv and openb_pod_list_*.csv.
    #[arg(
        long,
        value_name = "DIR",
        required = false,
        required_unless_present = "smoke",
        default_value_if("smoke", "true", SMOKE_DATA)
    )]
    data: PathBuf,
    /// Pod list: the end of its name, as in openb_pod_list_NAME.csv, or its file name.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        default_value_if("smoke", "true", "pod_list")
    )]
    list: String,
    /// Node list of another cluster.
    #[arg(
        long,
        value_name = "FILE",
        default_value_if("smoke", "true", SMOKE_NODES)
    )]
    nodes: Option<PathBuf>,
    /// random, dot_product, best_fit, spread, gpu_packing, gpu_clustering, fgd, default, or all.
    #[arg(long, value_name = "P", default_value = "default", value_parser = policies)]
    policy: Policies,
    /// Runs, each with its own order of nodes and pods.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        default_value_if("smoke", "true", "1"),
        value_parser = clap::value_parser!(u64).range(1..=10_000)
    )]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 42)]
    seed: u64,
    /// Pods come and go at the recorded times, instead of coming in random order to stay.
    #[arg(long)]
    departures: bool,
    /// File for the cases, one JSON object per line.
    #[arg(long, value_name = "OUT")]
    json: PathBuf,
    #[command(flatten)]
    size: Size,
}

/// The smallest size takes a part of the nodes and pods of this workload: one in [`SMOKE_ONE_IN`].
const SMOKE_DATA: &str = "loadtest/workloads/openb";
const SMOKE_NODES: &str = "loadtest/workloads/openb/node_list.csv";
const SMOKE_ONE_IN: usize = 20;

#[derive(Debug, Clone)]
struct Policies(Vec<Policy>);

fn policies(text: &str) -> Result<Policies, String> {
    if text == "all" {
        return Ok(Policies(Policy::ALL.to_vec()));
    }
    let known = || Policy::ALL.map(Policy::name).join(", ");
    let policy = Policy::parse(text).ok_or_else(|| format!("one of {}, or all", known()))?;
    Ok(Policies(vec![policy]))
}

#[derive(Debug, thiserror::Error)]
enum PlacementError {
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Report(#[from] ReportError),
}

pub fn main(options: &Options) -> ExitCode {
    exit("placement", run(options))
}

fn run(options: &Options) -> Result<(), PlacementError> {
    let mut lists = Lists::read(&options.data, &options.list, options.nodes.as_deref())?;
    lists.thin(options.size.pick(1, SMOKE_ONE_IN));
    if options.departures {
        lists.check_times()?;
    }
    let cases = measure(&lists, options);
    written::write(&options.json, &written::lines(&cases)?)?;
    chassis::output::text(&table(&cases));
    Ok(())
}

fn measure(lists: &Lists, options: &Options) -> Vec<Case> {
    let policies = &options.policy.0;
    // Hidden by itself where there is no terminal.
    let bar = indicatif::ProgressBar::new(policies.len() as u64 * options.seeds);
    let cases = policies.iter().map(|policy| {
        let seeds = options.seed..options.seed.saturating_add(options.seeds);
        if options.departures {
            let runs = each(seeds, &bar, |seed| departures::run(lists, *policy, seed));
            Case::Departures(Summary::new(lists, *policy, options.seeds).departures(&runs))
        } else {
            let runs = each(seeds, &bar, |seed| {
                fill::run(lists, *policy, &mut Seeded::new(seed), seed)
            });
            Case::Fill(Summary::new(lists, *policy, options.seeds).fill(&runs))
        }
    });
    let cases = cases.collect();
    bar.finish_and_clear();
    cases
}

/// Returns the result of each seed, in order.
fn each<T: Send>(
    seeds: std::ops::Range<u64>,
    bar: &indicatif::ProgressBar,
    run: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let result = run(seed);
            // The list is whole between any two changes.
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((seed, result));
            bar.inc(1);
        }
    };
    machine::on_threads(machine::cores(), work);
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests;
