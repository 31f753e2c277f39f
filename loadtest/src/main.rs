//! `loadtest`: one module of a library per command.

#[cfg(feature = "measures")]
mod measures;

use clap::{Parser, Subcommand};
use replay::{drive, fleet::stand, plan};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "loadtest", version, about = "Recorded workloads for Apportion")]
#[cfg_attr(
    not(feature = "measures"),
    command(after_help = "There are more commands after `make build`.")
)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Says what a workload needs: tenants, nodes, the rate of the recorded clock.
    Plan(plan::Options),
    /// Replays a workload against a running stack and checks what came of it.
    Drive(drive::Options),
    /// Brings up a few simulated nodes beside a running stack, until it is stopped.
    Fleet(stand::Options),
    #[cfg(feature = "measures")]
    #[command(flatten)]
    Measures(measures::Command),
}

fn main() -> ExitCode {
    match Options::parse().command {
        Command::Plan(options) => plan::main(&options),
        Command::Drive(options) => drive::main(options),
        Command::Fleet(options) => stand::main(&options),
        #[cfg(feature = "measures")]
        Command::Measures(command) => measures::main(command),
    }
}
