//! `loadtest core`: how fast the scheduler's domain decides, alone in one thread, without bus or stores.
//!
//! A cluster is filled, a queue is left waiting, then runs end and others take their places. What is timed is `decide`,
//! which finds the decisions and applies each to the state; what comes in is observed outside of it and timed apart.
//! Then crowds: cases in which most of the work is to find out who has to go for whom.

mod cluster;
mod crowd;
mod full;
mod measure;
mod report;

use crate::kit::report::{Out, ReportError, line};
use crowd::{Crowd, Frames};
use measure::{Figures, Setting};
use replay::command::{Size, exit};
use serde::de::DeserializeOwned;
use std::{
    env, io,
    process::{Command, ExitCode, ExitStatus, Stdio},
    time::Duration,
};
use vocab::PlacementPolicy;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Nodes in the cluster; several values are measured one after the other.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000,10000,100000",
        default_value_if("smoke", "true", "20")
    )]
    nodes: Vec<u32>,
    /// Allocations that wait while it is measured.
    #[arg(
        long,
        default_value_t = 1_000_000,
        default_value_if("smoke", "true", "2000")
    )]
    pending: u64,
    /// Placement policies: default, best_fit, spread, gpu_packing, fgd.
    #[arg(long, value_delimiter = ',', value_parser = policy, default_value = "default,best_fit,fgd")]
    policy: Vec<PlacementPolicy>,
    /// Placements to be timed in each case.
    #[arg(
        long,
        default_value_t = 200_000,
        default_value_if("smoke", "true", "500")
    )]
    decisions: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Crowds to be measured after that.
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "queues,shapes,late,both"
    )]
    crowds: Vec<Crowd>,
    /// Measure the crowds alone.
    #[arg(long)]
    crowds_only: bool,
    /// Seconds of deciding after which a crowd is let be that has not come to rest, and once more for the runs that end
    /// after that.
    #[arg(long, default_value_t = 60, default_value_if("smoke", "true", "1"))]
    crowd_s: u64,
    /// Only measure the memory of this number of tenants at the inbox, when each has filled its room.
    #[arg(long, value_name = "TENANTS")]
    full: Option<u32>,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
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
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("starting a case: {0}")]
    Start(#[from] io::Error),
    #[error("the output of a case: {0}")]
    Said(#[from] serde_json::Error),
    #[error("a case ended with {0}")]
    Case(ExitStatus),
    #[error("--alone is for one case")]
    NotOne,
    #[error("{0}")]
    Measure(#[from] measure::MeasureError),
}

pub fn main(options: &Options) -> ExitCode {
    exit("core", run(options))
}

fn run(options: &Options) -> Result<(), CoreError> {
    if let Some(tenants) = options.full {
        let found = line(&full::measure(tenants)?)?;
        chassis::output::text(&found);
        return Ok(options.out.write(&found)?);
    }
    if options.alone {
        return alone(options);
    }
    let mut lines = String::new();
    let mut all: Vec<Figures> = Vec::new();
    let nodes = options.nodes.iter().filter(|_| !options.crowds_only);
    let cases = nodes.flat_map(|nodes| options.policy.iter().map(move |p| (*nodes, *p)));
    for (nodes, policy) in cases {
        let pending = options.pending;
        chassis::note!("{nodes} nodes, {pending} waiting, {} …", policy.name());
        let figures = in_its_own_process(
            options,
            &[
                ("--policy", policy.name().to_owned()),
                ("--nodes", nodes.to_string()),
                ("--pending", options.pending.to_string()),
                ("--decisions", options.decisions.to_string()),
            ],
        )?;
        lines += &line(&figures)?;
        all.push(figures);
    }
    let mut crowds: Vec<Frames> = Vec::new();
    for crowd in &options.crowds {
        chassis::note!("a crowd: {} …", crowd.name());
        let frames = in_its_own_process(
            options,
            &[
                ("--crowds", crowd.name()),
                ("--crowd-s", options.crowd_s.to_string()),
            ],
        )?;
        lines += &line(&frames)?;
        crowds.push(frames);
    }
    if !all.is_empty() {
        chassis::output::text(&report::table(&all));
    }
    if !crowds.is_empty() {
        chassis::output::text(&report::crowds(&crowds));
    }
    Ok(options.out.write(&lines)?)
}

/// One case in this process, for the one that started it.
fn alone(options: &Options) -> Result<(), CoreError> {
    let found = match (&options.crowds[..], &options.nodes[..], &options.policy[..]) {
        ([crowd], _, _) => {
            let budget = Duration::from_secs(options.crowd_s);
            line(&crowd::measure(*crowd, options.size, options.seed, budget)?)?
        }
        (_, [nodes], [policy]) => line(&measure::measure(Setting {
            nodes: *nodes,
            pending: options.pending,
            policy: *policy,
            decisions: options.decisions,
            singles: options.size.pick(measure::SINGLES, 100),
            seed: options.seed,
        })?)?,
        _ => return Err(CoreError::NotOne),
    };
    chassis::output::text(&found);
    Ok(())
}

/// A case that comes after another would find memory that it need not ask the system for.
fn in_its_own_process<F: DeserializeOwned>(
    options: &Options,
    case: &[(&str, String)],
) -> Result<F, CoreError> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["core", "--alone"]);
    command.args(["--seed", &options.seed.to_string()]);
    command.args(options.size.smoke.then_some("--smoke"));
    for (option, value) in case {
        command.args([*option, value]);
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(CoreError::Case(output.status));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
