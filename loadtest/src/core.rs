//! `loadtest core`: how fast the scheduler's domain decides, alone in one thread, without bus or stores.
//!
//! A cluster is filled, a queue is left waiting, then runs end and others take their places. What is timed is `decide`,
//! which finds the decisions and applies each to the state; what comes in is observed outside of it and timed apart.

mod cluster;
mod measure;
mod report;

use measure::{Figures, Setting};
use std::{
    env, fs, io,
    path::PathBuf,
    process::{Command, ExitCode, ExitStatus, Stdio},
};
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
    /// Measure the one case in this process and print it.
    #[arg(long, hide = true)]
    alone: bool,
}

fn policy(text: &str) -> Result<PlacementPolicy, String> {
    let names: Vec<_> = PlacementPolicy::ALL
        .iter()
        .map(|policy| policy.name())
        .collect();
    PlacementPolicy::parse(text).ok_or_else(|| format!("none of {}", names.join(", ")))
}

#[derive(Debug, thiserror::Error)]
enum CoreError {
    #[error("a case, or its file: {0}")]
    Write(#[from] io::Error),
    #[error("a case as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("a case ended with {0}")]
    Case(ExitStatus),
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
    let cases = options
        .nodes
        .iter()
        .flat_map(|nodes| options.policy.iter().map(move |p| (*nodes, *p)));
    let cases: Vec<_> = cases.collect();
    if let ([(nodes, policy)], true) = (&cases[..], options.alone) {
        let figures = measure::measure(Setting {
            nodes: *nodes,
            pending: options.pending,
            policy: *policy,
            decisions: options.decisions,
            seed: options.seed,
        })?;
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(());
    }
    for (nodes, policy) in cases {
        eprintln!(
            "{nodes} nodes, {} waiting, {} …",
            options.pending,
            policy.name()
        );
        all.push(in_its_own_process(options, nodes, policy)?);
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

/// A case that comes after another would find memory that it need not ask the system for.
fn in_its_own_process(
    options: &Options,
    nodes: u32,
    policy: PlacementPolicy,
) -> Result<Figures, CoreError> {
    let output = Command::new(env::current_exe()?)
        .args(["core", "--alone", "--policy", policy.name()])
        .args(["--nodes", &nodes.to_string()])
        .args(["--pending", &options.pending.to_string()])
        .args(["--decisions", &options.decisions.to_string()])
        .args(["--seed", &options.seed.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(CoreError::Case(output.status));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
