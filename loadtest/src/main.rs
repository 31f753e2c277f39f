//! `loadtest`: one module of the library per command.

use clap::{Parser, Subcommand};
use loadtest::{drive, plan};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "loadtest", version, about = "Recorded workloads for Apportion")]
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
}

fn main() -> ExitCode {
    match Options::parse().command {
        Command::Plan(options) => plan::main(&options),
        Command::Drive(options) => drive::main(options),
    }
}
