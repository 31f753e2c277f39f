//! `apportion-node-agent`: the agent of a machine.

use clap::{Args, Command, FromArgMatches};
use node_agent::{
    NodeAgent,
    discover::{self, Reserved},
};
use std::{error::Error, ffi::OsString, path::Path, process::ExitCode};

#[derive(Args)]
struct Discover {
    /// Millicores that the system keeps for itself
    #[arg(long, value_name = "MILLICORES", default_value_t = 0)]
    reserved_cpu_milli: u64,
    /// Memory that the system keeps for itself
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    reserved_memory_bytes: u64,
}

/// The command line of the service, with what else the program can do.
fn command() -> Command {
    let discover = Command::new("discover")
        .about("Print the resources of this machine as JSON, for `apportion node approve`");
    chassis::command::<NodeAgent>()
        .about("Agent of a machine: joins a cell as a node, runs commands within their bounds and keeps the node's lease")
        .subcommand(Discover::augment_args(discover))
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .arg_required_else_help(true)
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
    let matches = command().get_matches();
    let Some(("discover", discover)) = matches.subcommand() else {
        return chassis::run::<NodeAgent>(&matches);
    };
    let arguments = Discover::from_arg_matches(discover).unwrap_or_else(|error| error.exit());
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
