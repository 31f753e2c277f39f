//! `loadtest plan`: what a workload needs before it can be driven.

use crate::workload::{EPOCH_MS, Selection, Workload, WorkloadError};
use serde::Serialize;
use std::{fs, io, path::PathBuf, process::ExitCode};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Directory with a node list and a pod list.
    #[arg(long, value_name = "DIR")]
    workload: PathBuf,
    /// Where to write the plan; `-` is standard output.
    #[arg(long, value_name = "PATH", default_value = "-")]
    json: PathBuf,
    /// Real seconds from the recorded beginning to the last deletion.
    #[arg(long, value_name = "N", default_value_t = 75, value_parser = clap::value_parser!(u32).range(1..))]
    replay_seconds: u32,
    #[command(flatten)]
    selection: Selection,
}

/// Times are Unix milliseconds of the recorded clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub tenants: Vec<String>,
    pub nodes: usize,
    pub pods: usize,
    /// How much of the nodes' GPUs and time the pods ask for.
    pub load_percent: u64,
    pub first_ms: i64,
    pub last_ms: i64,
    /// Recorded milliseconds per real one.
    pub rate: u32,
    pub epoch_ms: i64,
}

impl Plan {
    pub fn of(workload: &Workload, replay_seconds: u32) -> Self {
        let span_ms = workload.last_ms() - EPOCH_MS;
        let real_ms = i64::from(replay_seconds) * 1000;
        // Never slower than real time, and at most what a clock can do; in between rounded up, so as not to take longer.
        let rate = (span_ms / real_ms + i64::from(span_ms % real_ms > 0)).max(1);
        Self {
            tenants: workload.tenants().iter().map(ToString::to_string).collect(),
            nodes: workload.nodes.len(),
            pods: workload.pods.len(),
            load_percent: workload.load_percent(),
            first_ms: workload.first_ms(),
            last_ms: workload.last_ms(),
            rate: u32::try_from(rate).unwrap_or(u32::MAX),
            epoch_ms: EPOCH_MS,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum PlanError {
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error("writing the plan: {0}")]
    Write(#[from] io::Error),
    #[error("writing the plan: {0}")]
    Json(#[from] serde_json::Error),
}

pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            chassis::note!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), PlanError> {
    let workload = Workload::read(&options.workload, options.selection)?;
    let plan = Plan::of(&workload, options.replay_seconds);
    let text = serde_json::to_string_pretty(&plan)? + "\n";
    if options.json.as_os_str() == "-" {
        chassis::output::result(&text)?;
    } else {
        fs::write(&options.json, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::openb;

    #[test]
    fn openb_takes_as_long_as_it_is_told() {
        let plan = Plan::of(&openb(Selection::plain()), 75);
        assert_eq!(plan.rate, 172_040);
        assert_eq!((plan.nodes, plan.pods, plan.tenants.len()), (1213, 8152, 8));
        assert_eq!((plan.first_ms, plan.epoch_ms), (EPOCH_MS, EPOCH_MS));
        let few = Selection {
            limit_pods: Some(1),
            limit_nodes: Some(1),
            ..Selection::plain()
        };
        assert_eq!(Plan::of(&openb(few), u32::MAX).rate, 1);
    }
}
