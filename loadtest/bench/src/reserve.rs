//! `loadtest reserve`: how fast named resources are reserved, confirmed and released, by the domain alone and, with a
//! running stack, through the bus.

pub mod bus;
mod domain;
mod workload;

use bus::{Load, LoadError};
use domain::{DomainError, Length};
use replay::machine::Machine;
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to write the figures, as one JSON object.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// How often the domain is measured anew; 0: not at all.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// The file in which the launcher says how to reach a running stack: then it is measured through the bus, too.
    #[arg(long, value_name = "PATH")]
    stack: Option<PathBuf>,
    #[command(flatten)]
    load: Load,
}

/// Chunks of each size in one repetition.
const ROUNDS: usize = 120;

#[derive(Debug, thiserror::Error)]
enum ReserveError {
    #[error(transparent)]
    Domain(#[from] DomainError),
    #[error(transparent)]
    Load(#[from] Box<LoadError>),
    #[error("starting the runtime: {0}")]
    Runtime(io::Error),
    #[error("the figures' file: {0}")]
    Write(#[from] io::Error),
    #[error("the figures as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

#[derive(Debug, Serialize)]
struct Report {
    measure: &'static str,
    machine: Machine,
    #[serde(flatten)]
    domain: Option<domain::Figures>,
    #[serde(flatten)]
    bus: Option<bus::Figures>,
}

pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loadtest reserve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), ReserveError> {
    let before = Machine::look();
    let length = Length {
        repetitions: options.repetitions,
        rounds: ROUNDS,
    };
    let domain = (options.repetitions > 0).then(|| domain::measure(length));
    let domain = domain.transpose()?;
    let stack = options.stack.as_ref();
    let bus = stack.map(|stack| through_the_bus(stack, &options.load));
    let report = Report {
        measure: "reserve",
        domain,
        bus: bus.transpose()?,
        machine: before.and_after(),
    };
    let text = serde_json::to_string_pretty(&report)?;
    println!("{text}");
    if let Some(path) = &options.json {
        fs::write(path, text + "\n")?;
    }
    Ok(())
}

/// In one thread: the machine's others are for the stack.
fn through_the_bus(stack: &Path, load: &Load) -> Result<bus::Figures, ReserveError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ReserveError::Runtime)?;
    let measured = runtime.block_on(bus::measure(stack, load));
    Ok(measured.map_err(Box::new)?)
}
