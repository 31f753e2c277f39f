//! `loadtest core`: how fast the scheduler's domain decides, alone in one thread, without bus or stores.
//!
//! A cluster is filled, a queue is left waiting, then runs end and others take their places. What is timed is `decide`,
//! which finds the decisions and applies each to the state; what comes in is observed outside of it and timed apart.

mod cluster;
mod measure;
mod report;

use measure::{Figures, Setting};
use std::{fs, io, path::PathBuf, process::ExitCode};
use vocab::PlacementPolicy;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Nodes in the cluster; several values are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    nodes: Vec<u32>,
    /// Allocations that wait while it is measured.
    #[arg(long, default_value_t = 1_000_000)]
    pending: u64,
    /// Placement policies: default, best_fit, spread, gpu_packing, fgd.
    #[arg(long, value_delimiter = ',', value_parser = policy, default_value = "default,best_fit,fgd")]
    policy: Vec<PlacementPolicy>,
    /// Placements to be timed in each case.
    #[arg(long, default_value_t = 200_000)]
    decisions: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the cases, one JSON object per line.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

fn policy(text: &str) -> Result<PlacementPolicy, String> {
    let names: Vec<_> = PlacementPolicy::ALL.iter().map(|policy| policy.name()).collect();
    PlacementPolicy::parse(text).ok_or_else(|| format!("none of {}", names.join(", ")))
}

#[derive(Debug, thiserror::Error)]
enum CoreError {
    #[error("writing the cases: {0}")]
    Write(#[from] io::Error),
    #[error("writing the cases: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Measure(#[from] measure::MeasureError),
}

pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loadtest core: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), CoreError> {
    let mut all: Vec<Figures> = Vec::new();
    for nodes in &options.nodes {
        for policy in &options.policy {
            let setting = Setting {
                nodes: *nodes,
                pending: options.pending,
                policy: *policy,
                decisions: options.decisions,
                seed: options.seed,
            };
            eprintln!("{} nodes, {} waiting, {} …", nodes, options.pending, policy.name());
            let figures = measure::measure(setting)?;
            println!("{}", report::line(&figures));
            all.push(figures);
        }
    }
    print!("{}", report::table(&all));
    if let Some(path) = &options.json {
        let mut lines = String::new();
        for figures in &all {
            lines += &serde_json::to_string(figures)?;
            lines.push('\n');
        }
        fs::write(path, lines)?;
    }
    Ok(())
}
