//! The commands that a running stack needs none of: measures and proofs.

use bench::{
    agent, bill, core as domain_core, flood, heartbeat, lease, peers, placement, query, queueing,
    quota, throughput,
};
use clap::Subcommand;
use proof::{chaos, history, simulate};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Command {
    /// Measures how many commands a second a running stack starts and ends on this machine's agent, and what that costs idle.
    Agent(agent::Options),
    /// Measures how fast a ledger becomes a bill, and how long the questions of docs/sql.md take.
    Analytics(bill::Options),
    /// Measures how many tasks a second a running stack takes through their whole life, how fast, and at what cost.
    Bench(throughput::Options),
    /// Breaks a running stack at random while recorded clients use it, and checks that nothing was lost, doubled or billed
    /// wrongly.
    Chaos(chaos::Options),
    /// Measures how fast the scheduler's domain decides, alone in one thread.
    Core(domain_core::Options),
    /// Fills published clusters with the scheduler's placement policies, against published figures.
    Placement(placement::Options),
    /// Lets one tenant flood the inbox of a running stack and looks at what the others feel of it.
    Flood(flood::Options),
    /// Measures what the heartbeats of many simulated nodes cost a running stack, and how soon it notices nodes that stop.
    Heartbeat(heartbeat::Options),
    /// Checks what clients saw of named resources against the ledger: recorded before, or now on a running stack.
    History(history::Options),
    /// Measures Apportion beside task tables in Postgres, and beside what the bus and the databases take by themselves.
    Peers(peers::Options),
    /// Asks a running stack every question beside many live allocations and a load of tasks, and measures how fast it answers.
    Query(query::Options),
    /// Serves published batch and GPU traces with the scheduler's queue orders and backfilling, against published figures.
    Queueing(queueing::Options),
    /// Measures how fast quota's domain decides, alone in one thread.
    Quota(quota::Options),
    /// Measures how fast named resources are leased, by the domain alone and through a running stack.
    Lease(lease::Options),
    /// Runs all deciders on a seeded bus where everything goes wrong that can, and checks the invariants.
    Simulate(simulate::Options),
}

pub fn main(command: Command) -> ExitCode {
    match command {
        Command::Agent(options) => agent::main(&options),
        Command::Analytics(options) => bill::main(&options),
        Command::Bench(options) => throughput::main(&options),
        Command::Chaos(options) => chaos::main(&options),
        Command::Core(options) => domain_core::main(&options),
        Command::Placement(options) => placement::main(&options),
        Command::Flood(options) => flood::main(&options),
        Command::Heartbeat(options) => heartbeat::main(&options),
        Command::History(options) => history::run(&options),
        Command::Peers(options) => peers::main(&options),
        Command::Query(options) => query::main(&options),
        Command::Queueing(options) => queueing::main(&options),
        Command::Quota(options) => quota::main(&options),
        Command::Lease(options) => lease::main(&options),
        Command::Simulate(options) => simulate::main(&options),
    }
}
