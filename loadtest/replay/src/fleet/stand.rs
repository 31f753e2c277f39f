//! `loadtest fleet`: a few simulated nodes beside a stack that is used by hand.

use super::{Fleet, FleetError, FleetOptions};
use crate::{
    command::{block_on, exit},
    workload::{Node, Selection, Workload, WorkloadError},
};
use chassis::Shutdown;
use chassis::stack::{Stack, StackError};
use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The running stack's file.
    #[arg(long, value_name = "FILE")]
    stack: PathBuf,
    /// Directory with a node list; its nodes are taken at even distances, so that all kinds are there.
    #[arg(long, value_name = "DIR")]
    workload: PathBuf,
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Milliseconds of the cell's clock after which a run finishes by itself; without it, it runs until cancelled.
    #[arg(long, value_name = "MS")]
    run_ms: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
enum StandError {
    #[error("the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// The same as in a replay.
const HEARTBEAT: Duration = Duration::from_secs(5);

pub fn main(options: &Options) -> ExitCode {
    exit("fleet", block_on(stand(options)))
}

async fn stand(options: &Options) -> Result<(), StandError> {
    let shutdown = Shutdown::on_signals()?;
    let stack = Stack::read(&options.stack)?;
    let creds = stack.creds("fleet")?;
    let workload = Workload::read(&options.workload, Selection::plain())?;
    let run_ms = options.run_ms;
    let nodes = evenly(workload.nodes, options.nodes.into());
    let count = nodes.len();
    let _fleet = Fleet::start(FleetOptions {
        url: stack.nats.url.clone(),
        ca_file: stack.ca_file().map(Into::into),
        creds,
        cell: stack.cell.name.clone(),
        nodes,
        clock: stack.clock(),
        heartbeat: HEARTBEAT,
        report_pause: Duration::ZERO,
        asks: false,
        lifetime: Arc::new(move |_| run_ms),
    })
    .await?;
    chassis::out!("{count} nodes registered");
    shutdown.requested().await;
    Ok(())
}

fn evenly(nodes: Vec<Node>, wanted: usize) -> Vec<Node> {
    let step = (nodes.len() / wanted.max(1)).max(1);
    nodes.into_iter().step_by(step).take(wanted).collect()
}
