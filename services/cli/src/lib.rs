//! `apportion`: the suite from the command line.

mod again;
mod amount;
mod apply;
mod bill;
mod bus;
mod cancel;
mod cell;
mod checks;
mod complete;
mod context;
mod explain;
mod failure;
mod follow;
mod get;
mod help;
pub mod inputs;
mod job_sets;
mod ledger_copy;
mod list;
mod look;
mod manifest;
mod manual;
mod names;
mod nodes;
mod operate;
mod operation;
mod pages;
mod print;
mod queues;
mod quotas;
mod refusals;
mod refused_nodes;
mod repair;
mod reservations;
mod resource;
mod schema;
mod sending;
mod serve;
mod settings;
mod submit;
mod tenants;
mod tls;
mod top;
mod wait;
mod watch;
mod what_if;

use clap::error::ContextKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::CompleteEnv;
use failure::EXIT_CODES;
use operate::Flags;
use std::process::ExitCode;

pub(crate) use failure::Failure;

/// Allocates machines to tenants, and explains each decision and its cost.
#[derive(Parser)]
#[command(name = "apportion", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    chosen: context::Chosen,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Manage connection profiles.
    Context {
        #[command(subcommand)]
        command: context::ContextCommand,
    },
    /// Create a cell's streams; show and raise its feature level.
    Cell {
        #[command(subcommand)]
        command: cell::CellCommand,
    },
    /// Manage keys, accounts and users of the bus, as its operator.
    Bus {
        #[command(subcommand)]
        command: bus::BusCommand,
    },
    /// Create certificates for the servers, as their operator.
    Tls {
        #[command(subcommand)]
        command: tls::TlsCommand,
    },
    /// Write the message descriptors; create or compare the tables of the services.
    Schema {
        #[command(subcommand)]
        command: schema::SchemaCommand,
    },
    /// Run all five services in one process.
    Serve(serve::Serve),
    /// Request allocations and wait for the outcome.
    Submit(Box<submit::Submit>),
    /// Cancel allocations, or all of a job set.
    Cancel(cancel::Cancel),
    /// Change the priority of allocations, or of all of a job set.
    Priority(cancel::Priority),
    /// Lease and release named resources of a tenant.
    Resource(resource::Resource),
    /// Show the output of runs.
    Logs(follow::Logs),
    /// Wait until allocations are accepted, started or ended.
    Wait(wait::Wait),
    /// Follow the events of a tenant.
    Watch(watch::Watch),
    /// Create or change a tenant.
    Tenant(operate::Tenant),
    /// Set and show limits and budgets of tenants, teams and namespaces.
    Quota {
        #[command(subcommand)]
        command: quotas::QuotaCommand,
    },
    /// Set and show the prices of resources.
    Rates {
        #[command(subcommand)]
        command: bill::RatesCommand,
    },
    /// Create or change a queue: its tenants, weight and limits.
    QueueSet(operate::QueueSet),
    /// Create or change a priority class.
    PriorityClass(operate::PriorityClass),
    /// Change the cell's scheduling policy.
    Policy(operate::Policy),
    /// Keep new allocations off nodes.
    Cordon(operate::Cordon),
    /// Allow new allocations on nodes again.
    Uncordon(operate::Uncordon),
    /// Keep new allocations off nodes and move running ones elsewhere.
    Drain(operate::Drain),
    /// Add taints to a node, or remove them.
    Taint(operate::Taint),
    /// Reserve nodes for a queue in an interval.
    Reserve(operate::Reserve),
    /// Delete a reservation.
    Unreserve(operate::Unreserve),
    /// Show what files of settings would change, without changing it.
    Plan(apply::Plan),
    /// Change settings to match files.
    Apply(apply::Apply),
    /// Show settings, or print them as a file for `apply`.
    Settings {
        #[command(subcommand)]
        command: settings::SettingsCommand,
    },
    /// List the allocations of a tenant, the newest request first.
    List(Box<list::List>),
    /// Show an allocation.
    Get(get::Get),
    /// Show an allocation with its request, usage and cost.
    Describe(bill::Describe),
    /// Explain why an allocation waits or where it was placed, now or at an earlier position.
    Explain(explain::Explain),
    /// Show the waiting allocations of a tenant in their order.
    Queue(look::Queue),
    /// List queues with their weight, held resources and backlog.
    Queues(queues::Queues),
    /// List preempted allocations.
    Preemptions(queues::Preemptions),
    /// List advance reservations of nodes with their state.
    Reservations(reservations::Reservations),
    /// Show the outcome of an operation by its ID.
    Operation(operation::Operation),
    /// List recent refusals with their rules.
    Refusals(refusals::Refusals),
    /// List job sets with the number of their allocations by state.
    JobSets(job_sets::JobSets),
    /// List tenants with their allocations and resources.
    Tenants(tenants::Tenants),
    /// List nodes with their state, capacity and free resources.
    Nodes(nodes::Nodes),
    /// Show the nodes, tenants or queues with the highest usage.
    Top {
        #[command(subcommand)]
        command: top::TopCommand,
    },
    /// Approve, list, describe and forget nodes.
    Node {
        #[command(subcommand)]
        command: operate::NodeCommand,
    },
    /// Show the bill of a month by tenant.
    Bill(bill::Bill),
    /// Show usage with its cost.
    Usage(Box<bill::Usage>),
    /// Report on a month, as a page or as tables.
    Report(bill::Report),
    /// List budgets with the moment when they will be exhausted.
    Budgets(bill::Budgets),
    /// Close, show, export, explain and reconcile the bill of a month.
    Invoice {
        #[command(subcommand)]
        command: bill::InvoiceCommand,
    },
    /// Check that capacity time is billed exactly once.
    Conservation(checks::Conservation),
    /// Verify the ledger's chain against snapshots, tables and bill.
    Verify(checks::Verify),
    /// Copy the ledger.
    Ledger {
        #[command(subcommand)]
        command: ledger_copy::LedgerCommand,
    },
    /// Show the missing end of a truncated ledger, and repair it by an approved plan.
    Repair(repair::Repair),
    /// Print a script for shell completion: `source <(apportion completions bash)`.
    Completions(manual::Completions),
    /// Write the manual pages.
    Man(manual::Man),
    /// Show what another policy, queue, set of nodes or request would change.
    WhatIf(what_if::WhatIf),
}

fn commands() -> clap::Command {
    let commands = plain(again::with_watch(Args::command()));
    help::grouped(complete::with_names(commands)).max_term_width(help::WIDTH)
}

/// A command as it is described to people: a default that means nothing was said is no value that anybody would write. A number
/// below 0 is a value, which its parser or the cell takes or refuses, and no flag.
fn plain(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let said = arg.get_default_values();
        let is_nothing =
            |it: &clap::builder::OsStr| it.to_str().is_some_and(|it| NOTHING.contains(&it));
        let hides = !said.is_empty() && said.iter().all(is_nothing);
        let takes_values = arg.get_action().takes_values();
        let arg = arg.allow_negative_numbers(takes_values);
        match hides {
            true => arg.hide_default_value(true),
            false => arg,
        }
    });
    command.mut_subcommands(plain)
}

/// What stands for nothing where an option is not given.
const NOTHING: [&str; 4] = ["", "0", "0s", "0.0"];

/// The variable by which a shell asks for completions.
const COMPLETE: &str = "APPORTION_COMPLETE";

/// The whole process. It stands here, and not in `main.rs`, so that the parsers can be fed from other crates.
pub fn main() -> ExitCode {
    // Answers a shell that completes a line, and exits.
    CompleteEnv::with_factory(commands).var(COMPLETE).complete();
    let matches = commands().try_get_matches().unwrap_or_else(|mut error| {
        // What begins with two dashes and is no flag is hardly ever meant as a value.
        error.remove(ContextKind::Suggested);
        error.exit()
    });
    let args = || Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::from(format!("cannot start the runtime: {error}")).end();
        }
    };
    let done = runtime.block_on(async {
        match again::every(&matches) {
            None => run(args()).await,
            Some(every) => again::show(every, async || run(args()).await.map(drop))
                .await
                .map(|()| ExitCode::SUCCESS),
        }
    });
    match done {
        Ok(code) => code,
        Err(failure) => failure.end(),
    }
}

async fn run(args: Args) -> Result<ExitCode, Failure> {
    let chosen = args.chosen;
    let context = || chosen.open();
    let done = match args.command {
        Command::Context { command } => command.run(&chosen),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(commands()),
        Command::Cell { command } => cell::run(command).await,
        Command::Bus { command } => command.run(&chosen).await,
        Command::Tls { command } => tls::run(command),
        Command::Schema { command } => command.run(&chosen).await,
        Command::Serve(serve) => serve.run().await,
        // These may end as a command of the tenant's did.
        Command::Submit(submit) => return submit.run(&context()?).await,
        Command::Logs(logs) => return logs.run(&context()?).await,
        Command::Wait(wait) => return wait.run(&context()?).await,
        Command::Cancel(cancel) => cancel.run(&context()?).await,
        Command::Priority(priority) => priority.run(&context()?).await,
        Command::Resource(resource) => resource.run(&context()?).await,
        Command::Watch(watch) => watch.run(&context()?).await,
        Command::Tenant(tenant) => tenant.run(&context()?).await,
        Command::Quota { command } => command.run(&context()?).await,
        Command::Rates { command } => command.run(&context()?).await,
        Command::QueueSet(queue) => queue.run(&context()?).await,
        Command::PriorityClass(class) => class.run(&context()?).await,
        Command::Policy(policy) => policy.run(&context()?).await,
        Command::Cordon(cordon) => cordon.run(&context()?).await,
        Command::Uncordon(uncordon) => uncordon.run(&context()?).await,
        Command::Drain(drain) => drain.run(&context()?).await,
        Command::Taint(taint) => taint.run(&context()?).await,
        Command::Reserve(reserve) => reserve.run(&context()?).await,
        Command::Unreserve(unreserve) => unreserve.run(&context()?).await,
        Command::Plan(plan) => plan.run(&context()?).await,
        Command::Apply(apply) => apply.run(&context()?).await,
        Command::Settings { command } => command.run(&context()?).await,
        Command::List(list) => list.run(&context()?).await,
        Command::Get(get) => get.run(&context()?).await,
        Command::Describe(describe) => describe.run(&context()?).await,
        Command::Explain(explain) => explain.run(&context()?).await,
        Command::Queue(queue) => queue.run(&context()?).await,
        Command::Queues(queues) => queues.run(&context()?).await,
        Command::Preemptions(preemptions) => preemptions.run(&context()?).await,
        Command::Reservations(reservations) => reservations.run(&context()?).await,
        Command::Operation(operation) => operation.run(&context()?).await,
        Command::Refusals(refusals) => refusals.run(&context()?).await,
        Command::Node { command } => command.run(&context()?).await,
        Command::JobSets(job_sets) => job_sets.run(&context()?).await,
        Command::Tenants(tenants) => tenants.run(&context()?).await,
        Command::Nodes(nodes) => nodes.run(&context()?).await,
        Command::Top { command } => command.run(&context()?).await,
        Command::Bill(bill) => bill.run(&context()?).await,
        Command::Usage(usage) => usage.run(&context()?).await,
        Command::Report(report) => report.run(&context()?).await,
        Command::Budgets(budgets) => budgets.run(&context()?).await,
        Command::Invoice { command } => command.run(&context()?).await,
        Command::Conservation(check) => check.run(&context()?).await,
        Command::Verify(verify) => verify.run(&context()?).await,
        Command::Ledger {
            command: ledger_copy::LedgerCommand::Copy(copy),
        } => copy.run(&context()?).await,
        Command::Repair(repair) => repair.run(&context()?).await,
        Command::WhatIf(what_if) => what_if.run(&context()?).await,
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_fit_together() {
        commands().debug_assert();
        for line in [
            "submit --cpu 4 --memory 1GiB --node-label zone=z1 --node-label !old --tolerate any",
            "queue-set q --parent p --weight 500m --limit cpu=4 --tenant a --tenant b --order sjf",
            "priority-class batch -5 --preemptible --grace 30s --placement best-fit",
            "policy --fair-share-preemption false --half-life 7d --backfill --protected 500m",
            "submit --tenant t --env A=1 --follow -- sh -c true",
            "submit --cpu 500m --memory 16Gi --wait started --deadline 5m --operation-id o",
            "quota set a cpu 3 --operation-id o --deadline 30s",
            "drain n --operation-id o --deadline 30s --timeout 10m",
            "logs --tenant t 00000000-0000-0001-0000-000000000007 --follow",
            "list --tenant t --state waiting --state started --since 2h -o json",
            "list --tenant t --all --queue q --name-prefix a- --until 2026-01-31T08:00:00Z --limit 5",
            "cordon n",
            "wait a b --for started --timeout 10m -o json",
            "--context c list",
            "list --stack f",
            "context list -o yaml",
            "context show c",
            "context set c --nats-url tls://bus:4222 --cell c1 --tenant t --creds f --ca-file f",
            "context set c --operator --stack f",
            "context use c",
            "completions fish",
            "man --out d",
            "context delete c",
            "uncordon n --expected-version 1",
            "cordon n1 n2",
            "drain --node-label cluster=c1 --max-unavailable 2 --at-once 5 --timeout 10m",
            "drain n --watch",
            "taint n k=v:NoExecute old- other:NoSchedule- --expected-version 3",
            "node describe n -o json",
            "nodes --name-prefix a- --gpu-model A100 --state ready --state lost --node-label zone=z1,z2 -o wide",
            "tenants --name-prefix team- -o csv",
            "job-sets --tenant t --queue q --state waiting --name-prefix j --limit 5 -o yaml",
            "job-sets --after k",
            "top nodes --by gpu --limit 5 -o json",
            "top tenants",
            "top queues --by memory",
            "reserve r --queue q --until 2026-01-31T08:00:00Z --nodes 3 --node-label zone=z1",
            "unreserve r",
            "node approve n --cpu 64 --memory 256GiB --gpus 8 --gpu-model A100 --label zone=z1 --extended fpga=2 --token-ttl 7d",
            "node forget n --expected-version 1",
            "node list",
            "plan -f cell.yaml --prune -o json",
            "apply -f a.yaml -f - --prune --yes --operation-id o --deadline 30s",
            "settings list",
            "operation o --tenant t -o json",
            "tenant t --clear cohort --closed=false",
            "priority-class gold --clear grace",
            "quota set a cpu --soft 5 -o json",
            "cordon n --unknown",
            "what-if policy --aging 5m -o json",
            "what-if reserve r --queue q --until 2026-01-31T08:00:00Z --nodes 3 -o json",
            "settings list priority-class --prefix a -o csv",
            "settings get quota team-a/ml gpu -o yaml",
            "settings export quota budget",
            "cancel --tenant t --job-set j",
            "priority --tenant t -5 --job-set j",
            "resource --tenant t acquire r s --holder h --ttl 9",
            "tenant t --cohort c --weight 2 --on-exceed wait --reclaim lower-priority --rate 20 --class a --class b",
            "tenant t --preemptible false --burst 5 --backlog 9 --priority-max -3 --default-cpu 1 --default-memory 1GiB",
            "quota set a cpu 3 --expected-version 2",
            "quota set a/b/c memory 1TiB --soft 512GiB --burst 2TiB --burst-for 10m --borrow 0 --lend 1GiB",
            "quota set a gpu --none --from 2026-01-31T08:00:00Z --until 2026-02-01T08:00:00Z",
            "rates set gpu:A100 3.5 --from 2026-12-01T00:00:00.001Z --expected-version 1",
            "rates list --resource gpu:T4",
            "bill --tenant t --month 2026-11",
            "usage --by team --by job-set --month 2026-11 --resource gpu:A100",
            "usage --tenant t --by day --since 7d -o json",
            "report --html f --month 2026-11",
            "report --html -",
            "report utilization --month 2026-11 -o csv",
            "report top --by job-set --limit 5 --from 2026-11-01T00:00:00Z --until 2h -o json",
            "report sizes",
            "report waits -o table",
            "report forecast",
            "report forecast --tenant t1 -o json",
            "budgets --tenant t",
            "invoice close 2026-11",
            "invoice show 2026-11 --tenant t",
            "invoice export 2026-11 --format focus-parquet --to f --open",
            "invoice explain --tenant t 2026-11-03T10:00:00Z --resource cpu",
            "invoice reconcile 2026-11",
            "quota budget a/b money 250.50 --per month",
            "quota get a/b -o json",
            "quota tree",
            "quota tree a",
            "quota history a gpu:T4 --hours 48",
            "quota history gpu",
            "quota history --tenant t gpu",
            "quota get",
            "quota get --tenant t",
            "queue --tenant t",
            "quota tree --tenant t",
            "cancel a b c --tenant t",
            "logs a b --all -f",
            "wait sweep --all",
            "list --state failed,denied --state waiting",
            "submit --again a --cpu 2 -o json",
            "submit --array 0-3 --wait ended -o json",
            "report top --since 2h",
            "invoice export 2026-11 --out f",
            "ledger copy --out d",
            "schema ensure --config-dir d",
            "schema diff -o json",
            "verify --copy d",
            "ledger copy --to d --follow",
            "tls init --dir d --host nats --host 10.0.0.7",
            "tls renew --dir d",
            "cell init --config c --level 1",
            "cell level --config c",
            "cell raise --config c --to 2",
            "repair --config c --restore d --approve 0",
            "repair --config c --copy d --adopt-shorter",
        ] {
            let words = ["apportion"].into_iter().chain(line.split_whitespace());
            if let Err(error) = commands().try_get_matches_from(words) {
                panic!("{line}: {error}");
            }
        }
    }
}
