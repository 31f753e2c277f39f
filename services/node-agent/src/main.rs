//! `apportion-node-agent`: the agent of a machine.

use clap::{Args, Parser, Subcommand};
use node_agent::discover::{self, Reserved};
use std::{error::Error, ffi::OsString, path::Path, process::ExitCode};

/// Runs on a machine what it was allotted.
#[derive(Parser)]
#[command(name = "apportion-node-agent", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print what this machine has, as JSON.
    Discover(Discover),
}

#[derive(Args)]
struct Discover {
    /// What the system keeps for itself.
    #[arg(long, default_value_t = 0)]
    reserved_cpu_milli: u64,
    #[arg(long, default_value_t = 0)]
    reserved_memory_bytes: u64,
}

fn main() -> ExitCode {
    // The two that the agent starts for each run are not for people, and do without the weight of a parser.
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [word, dir] if word == "shim" => return node_agent::shim(Path::new(dir)),
        [word, dir, shim] if word == "stage" => {
            return node_agent::stage(Path::new(dir), &shim.to_string_lossy());
        }
        _ => {}
    }
    // All others are the services' own.
    if arguments.first().is_none_or(|word| word != "discover") {
        return chassis::main::<node_agent::NodeAgent>();
    }
    let Command::Discover(arguments) = Arguments::parse().command;
    match print_machine(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            chassis::note!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn print_machine(arguments: &Discover) -> Result<(), Box<dyn Error>> {
    let machine = discover::machine(Reserved {
        cpu_milli: arguments.reserved_cpu_milli,
        memory_bytes: arguments.reserved_memory_bytes,
    })?;
    let text = serde_json::to_string_pretty(&machine)? + "\n";
    chassis::output::result(&text).map_err(|error| format!("standard output: {error}"))?;
    Ok(())
}
