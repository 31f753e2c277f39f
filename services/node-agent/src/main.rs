//! `apportion-node-agent`: the agent of a machine.

use clap::{Args, Parser, Subcommand};
use node_agent::discover::{self, Reserved};
use std::{ffi::OsString, path::Path, process::ExitCode};

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
    match Arguments::parse().command {
        Command::Discover(arguments) => print_machine(&arguments),
    }
}

fn print_machine(arguments: &Discover) -> ExitCode {
    let reserved = Reserved {
        cpu_milli: arguments.reserved_cpu_milli,
        memory_bytes: arguments.reserved_memory_bytes,
    };
    let text = discover::machine(reserved)
        .map_err(|error| error.to_string())
        .and_then(|machine| serde_json::to_string_pretty(&machine).map_err(|e| e.to_string()));
    match text {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
