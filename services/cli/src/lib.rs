//! `apportion`: the suite from the command line.

mod again;
mod amount;
mod apply;
mod bill;
mod bus;
mod cancel;
mod cell;
mod checks;
mod context;
mod explain;
mod failure;
mod follow;
mod get;
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
mod print;
mod queues;
mod quotas;
mod refusals;
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
use failure::EXIT_CODES;
use operate::Flags;
use std::process::ExitCode;

pub(crate) use failure::Failure;

/// Shares out machines among tenants, and shows why and for how much.
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
    /// Say where the cell is and who one is, once for all commands.
    Context {
        #[command(subcommand)]
        command: context::ContextCommand,
    },
    /// Make a cell's streams; show and raise its feature level.
    Cell {
        #[command(subcommand)]
        command: cell::CellCommand,
    },
    /// Say who is who on the bus: keys, accounts, users. For the operator of the bus.
    Bus {
        #[command(subcommand)]
        command: bus::BusCommand,
    },
    /// Make the certificates by which servers are known. For the operator of the servers.
    Tls {
        #[command(subcommand)]
        command: tls::TlsCommand,
    },
    /// Hand out the contract; make the tables of the services, or compare them.
    Schema {
        #[command(subcommand)]
        command: schema::SchemaCommand,
    },
    /// Run all five services in this one process.
    Serve(serve::Serve),
    /// Ask for an allocation, and wait for the outcome.
    Submit(Box<submit::Submit>),
    /// End an allocation, or take it out of the queue; or all of a job set.
    Cancel(cancel::Cancel),
    /// Change the priority of an allocation, or of all of a job set.
    Priority(cancel::Priority),
    /// Lease named resources of a tenant, and give them back.
    Resource(resource::Resource),
    /// Show what a run has written.
    Logs(follow::Logs),
    /// Wait until allocations were accepted, have started or have ended.
    Wait(wait::Wait),
    /// Follow a tenant's events.
    Watch(watch::Watch),
    /// Bring a tenant into being, or change how it is treated.
    Tenant(operate::Tenant),
    /// Limit what tenants, teams and namespaces may hold and spend, or show it.
    Quota {
        #[command(subcommand)]
        command: quotas::QuotaCommand,
    },
    /// Say what resources cost, or show it.
    Rates {
        #[command(subcommand)]
        command: bill::RatesCommand,
    },
    /// Set a queue: whom it is for, its part and its limits.
    QueueSet(operate::QueueSet),
    /// Set what a priority is worth against others.
    PriorityClass(operate::PriorityClass),
    /// Set the cell's scheduling policy.
    Policy(operate::Policy),
    /// Keep new allocations off nodes.
    Cordon(operate::Cordon),
    /// Let new allocations on nodes again.
    Uncordon(operate::Uncordon),
    /// Clear nodes: nothing new comes, and what runs there is placed elsewhere.
    Drain(operate::Drain),
    /// Give taints to a node, or take them from it.
    Taint(operate::Taint),
    /// Keep nodes for one queue in an interval.
    Reserve(operate::Reserve),
    /// Take a reservation back.
    Unreserve(operate::Unreserve),
    /// Show what files of settings would change; nothing is changed.
    Plan(apply::Plan),
    /// Change settings to what files say.
    Apply(apply::Apply),
    /// Show what operators have set, or print it as a file that `apply` takes.
    Settings {
        #[command(subcommand)]
        command: settings::SettingsCommand,
    },
    /// List a tenant's allocations, the newest request first.
    List(Box<list::List>),
    /// Show an allocation.
    Get(get::Get),
    /// Show an allocation of a tenant's: what it asked for, what it used, what it costs.
    Describe(bill::Describe),
    /// Say why an allocation stands where it stands, now or at an earlier position.
    Explain(explain::Explain),
    /// Show what a tenant has waiting.
    Queue(look::Queue),
    /// Show the queues: their weight, what they hold, what waits.
    Queues(queues::Queues),
    /// Show what a tenant lost to others, or, for an operator, anybody.
    Preemptions(queues::Preemptions),
    /// Show the advance reservations of nodes, and what became of them.
    Reservations(reservations::Reservations),
    /// Say what became of an operation, by the id that was told before it was sent.
    Operation(operation::Operation),
    /// Show what was refused of late, and by which rule.
    Refusals(refusals::Refusals),
    /// Show a tenant's job sets: how many of their allocations stand where.
    JobSets(job_sets::JobSets),
    /// Show the tenants, with what each has.
    Tenants(tenants::Tenants),
    /// Show the nodes: what each has, how much is taken, what is said of it.
    Nodes(nodes::Nodes),
    /// Show who takes the most: nodes, tenants or queues.
    Top {
        #[command(subcommand)]
        command: top::TopCommand,
    },
    /// Say who may be a node of the cell.
    Node {
        #[command(subcommand)]
        command: operate::NodeCommand,
    },
    /// Show what tenants owe for a month.
    Bill(bill::Bill),
    /// Show what was used, and what it costs.
    Usage(Box<bill::Usage>),
    /// Report on a month: a page for people, or its summaries here.
    Report(bill::Report),
    /// Show a tenant's budgets, or all, and when they will be exhausted.
    Budgets(bill::Budgets),
    /// Close, show, export, explain and reconcile the bill of a month.
    Invoice {
        #[command(subcommand)]
        command: bill::InvoiceCommand,
    },
    /// Check that no moment of any machine is lost or billed twice.
    Conservation(checks::Conservation),
    /// Read the whole ledger, check its chain, and ask all who have read it before.
    Verify(checks::Verify),
    /// Copy the ledger.
    Ledger {
        #[command(subcommand)]
        command: ledger_copy::LedgerCommand,
    },
    /// Say what a ledger that lost its end lacks, and mend it as a person approves.
    Repair(repair::Repair),
    /// Print a script by which a shell completes commands: `source <(apportion completions bash)`.
    Completions(manual::Completions),
    /// Write the pages of the manual.
    Man(manual::Man),
    /// Say what another policy, queue, set of nodes or request would change; nothing is changed.
    WhatIf(what_if::WhatIf),
}

fn commands() -> clap::Command {
    plain(again::with_watch(Args::command()))
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

/// The whole process. It stands here, and not in `main.rs`, so that the parsers can be fed from other crates.
pub fn main() -> ExitCode {
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
        Command::Completions(completions) => completions.run(commands()),
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
