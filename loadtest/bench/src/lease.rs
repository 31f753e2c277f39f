//! `loadtest lease`: how fast named resources are leased, confirmed and released, by the domain alone and, with a
//! running stack, through the bus.

mod bus;
mod domain;
mod workload;

use crate::kit::report::{Measure, Out, ReportError, object};
use bus::{Load, LoadError};
use domain::{DomainError, Length};
use replay::command::{Size, block_on, exit};
use serde::Serialize;
use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    out: Out,
    /// Repetitions of the measure of the domain; 0: none.
    #[arg(long, default_value_t = 5, default_value_if("smoke", "true", "1"))]
    repetitions: usize,
    /// The file in which the launcher says how to reach a running stack: then it is measured through the bus, too.
    #[arg(long, value_name = "PATH")]
    stack: Option<PathBuf>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    size: Size,
}

#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error(transparent)]
    Domain(#[from] DomainError),
    #[error(transparent)]
    Load(#[from] Box<LoadError>),
    #[error("starting the runtime: {0}")]
    Runtime(#[from] io::Error),
    #[error(transparent)]
    Report(#[from] ReportError),
}

#[derive(Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    domain: Option<domain::Figures>,
    #[serde(flatten)]
    bus: Option<bus::Figures>,
}

pub fn main(options: &Options) -> ExitCode {
    exit("lease", run(options))
}

fn run(options: &Options) -> Result<(), LeaseError> {
    let measure = Measure::begin("lease", options.size);
    let length = Length::new(options.repetitions, options.size);
    let domain = (options.repetitions > 0).then(|| domain::measure(length));
    let domain = domain.transpose()?;
    let stack = options.stack.as_ref();
    let bus = stack.map(|stack| through_the_bus(stack, &options.load, options.size));
    let bus = bus.transpose()?;
    let text = object(&measure.end(Figures { domain, bus }))?;
    chassis::output::text(&text);
    Ok(options.out.write(&text)?)
}

fn through_the_bus(stack: &Path, load: &Load, size: Size) -> Result<bus::Figures, LeaseError> {
    block_on(async { Ok(bus::measure(stack, load, size).await.map_err(Box::new)?) })
}
