//! `loadtest drive`: replays a workload against a running stack and checks what came of it.
//!
//! It is a client like any other: it knows the stack by its public subjects, its tenants' feeds and the bill in
//! ClickHouse, and shares no rule with the deciders that it checks.

mod bill;
mod demand;
mod desk;
mod draw;
mod faults;
mod gauges;
mod memory;
mod operator;
mod print;
mod probe;
mod progress;
mod replay;
mod report;
mod scene;
mod screen;
mod settle;
mod witness;

pub use bill::{Bill, BillError};
pub use faults::{FaultError, command};
pub use gauges::{gauge, projected_lsn, ready};
pub use operator::{OperatorError, Quota, Rate, Settings};
pub use report::{Report, WriteError, write as write_report};
pub use settle::{SettleError, balance, bill_at};
pub use witness::{Interval, Witness};

use crate::{
    command::block_on,
    fleet::{Fleet, FleetError, FleetOptions, FleetTally},
    otlp::{Collector, Span, Spans},
    plan::Plan,
    workload::{EPOCH_MS, Selection, Workload, WorkloadError},
};
use chassis::stack::{Stack, StackError};
use chassis::{Journey, Metrics, Stopwatch, TelemetryConfig};
use client::{Client, ConnectError, ConnectOptions, Outcome};
use faults::Fault;
use memory::MemoryWatch;
use scene::Scene;
use schemas::v1::EndCause;
use std::{
    collections::BTreeMap,
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};
use vocab::{HOUR_MS, Millis, Month, Token};

/// Real time between two heartbeats of a node: a third of the lease that the launcher sets.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// An outcome that takes longer is asked for again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Real time for which the end of a recorded month is waited for.
const MONTH_END_MAX: Duration = Duration::from_secs(20);
/// Maximum wait for spans after the replay.
const SPANS_TIMEOUT: Duration = Duration::from_secs(5);
const SPANS_PERIOD: Duration = Duration::from_millis(100);
const INTERRUPTED: u8 = 130;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    /// Directory with a node list and a pod list.
    #[arg(long, value_name = "DIR")]
    workload: PathBuf,
    /// Path of report.json; intervals.csv, rates.csv, summary.txt and screen.txt are written to its directory.
    #[arg(long, value_name = "PATH")]
    report: PathBuf,
    /// Text file to print above the result, such as screen.txt of an earlier replay.
    #[arg(long, value_name = "PATH")]
    above: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// kill:PROCESS@FRACTION, or stop:PROCESS@FRACTION:SECONDSs; may be given several times.
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Trace one in N submits.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    trace_one_in: u32,
    /// Print only the verdict.
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(
        "the stack's clock is the real one, but the workload is of 2024; start the stack for the workload"
    )]
    RealClock,
    #[error("listening for spans on the stack's otlp_listen: {0}")]
    Collector(io::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("the driver's own spans: {0}")]
    Telemetry(#[from] chassis::BootError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("--above {path}: {source}", path = .path.display())]
    Above { path: PathBuf, source: io::Error },
    #[error("starting the runtime: {0}")]
    Runtime(#[from] io::Error),
}

pub fn main(options: Options) -> ExitCode {
    match block_on(run(options)) {
        Ok(report) if report.good() => ExitCode::SUCCESS,
        Ok(report) if report.interrupted => ExitCode::from(INTERRUPTED),
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            chassis::note!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Replays the workload and writes the report, also after a fault or an interruption.
pub async fn run(options: Options) -> Result<Report, DriveError> {
    let since = Stopwatch::start();
    let workload = Workload::read(&options.workload, options.selection)?;
    let stack = Arc::new(Stack::read(&options.stack)?);
    if stack.clock.is_none() {
        return Err(DriveError::RealClock);
    }
    let above = options.above.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|source| DriveError::Above {
            path: path.clone(),
            source,
        })
    });
    let above = above.transpose()?.unwrap_or_default();
    let memory = MemoryWatch::start(Stack::clone(&stack));
    let collector = Collector::listen(stack.otlp_listen, stack.otlp())
        .await
        .map_err(DriveError::Collector)?;
    let journey = journey(&stack, &collector)?;
    let settings = Settings::of(&workload, stack.rate());
    let mut drive = Drive::prepare(&options, workload, stack, settings, journey).await?;
    let mut report = Report {
        rates: drive.settings.prices(),
        ..Report::default()
    };
    tokio::select! {
        () = drive.perform(&options, &mut report) => {}
        () = interrupted() => report.interrupted = true,
    }
    drive.sum_up(&mut report);
    report.peak_rss_mb = memory.peaks_mb();
    let trace = if report.interrupted {
        Vec::new()
    } else {
        drive.scene.journey.close(SPANS_TIMEOUT).await;
        fullest_trace(&collector.spans).await
    };
    report.traced_services = services(&trace);
    report.wall_s = since.elapsed().as_secs_f64();
    let intervals = drive.scene.witness().intervals(&drive.scene.workload);
    report::write(&options.report, &report, &intervals, &drive.settings)?;
    let shown = print::Shown {
        report: &report,
        workload: &drive.scene.workload,
        intervals: &intervals,
        trace: &trace,
        report_path: short(&options.report),
        stack_path: short(&options.stack),
    };
    report::write_lines(&options.report, "summary.txt", &print::summary(&shown))?;
    let screen = screen::screen(&shown);
    report::write_lines(&options.report, "screen.txt", &screen)?;
    if options.quiet {
        chassis::out!("{}", print::verdict(&report, usize::MAX).join("\n"));
    } else {
        chassis::out!("{above}{}", screen.join("\n"));
    }
    Ok(report)
}

/// Returns the path as typed in the current directory.
fn short(path: &Path) -> &Path {
    let here = std::env::current_dir();
    here.ok()
        .and_then(|here| path.strip_prefix(here).ok())
        .unwrap_or(path)
}

/// The driver's own spans take the same way as those of the services.
fn journey(stack: &Stack, collector: &Collector) -> Result<Journey, chassis::BootError> {
    let cell = &stack.cell.name;
    let config = TelemetryConfig {
        otlp_endpoint: collector.url(),
        ca_file: stack.ca_file().map(Into::into),
    };
    let (metrics, instance) = (Metrics::new("client", cell), chassis::instance());
    Journey::start("client", (cell, &instance), Some(&config), &metrics)
}

struct Drive {
    operator: Client,
    scene: Arc<Scene>,
    stack: Arc<Stack>,
    settings: Settings,
    fleet: Fleet,
    replay_s: f64,
    /// Feeds, observers, cancels: ended with the drive.
    background: JoinSet<()>,
}

impl Drive {
    /// Everything that has to be there before the recorded clock gets to the beginning.
    async fn prepare(
        options: &Options,
        workload: Workload,
        stack: Arc<Stack>,
        settings: Settings,
        journey: Journey,
    ) -> Result<Self, DriveError> {
        let say = |line: String| {
            if !options.quiet {
                chassis::out!("{line}");
            }
        };
        let operator = connect(&stack, "operator", None, None).await?;
        settings.apply(&operator).await?;
        say(format!(
            "  {} tenants, {} quotas, {} rates set",
            settings.tenants.len(),
            settings.quotas.len(),
            settings.rates.len()
        ));
        let fleet = Fleet::start(fleet_options(&stack, &workload)?).await?;
        say(format!("  {} nodes registered", workload.nodes.len()));
        let (observer, observed) = mpsc::unbounded_channel();
        let mut clients = BTreeMap::new();
        for tenant in workload.tenants() {
            let key = format!("tenant:{tenant}");
            let client = connect(&stack, &key, Some(&tenant), Some(&observer)).await?;
            clients.insert(tenant, client);
        }
        let (clock, rate) = (stack.clock(), stack.rate());
        let one_in = options.trace_one_in as usize;
        let scene = Arc::new(Scene::new(workload, clients, clock, rate, journey, one_in));
        let mut background = JoinSet::new();
        background.spawn(observe(scene.clone(), observed));
        for (tenant, client) in scene.clients.clone() {
            let scene = scene.clone();
            background.spawn(async move { scene.read_feed(&tenant, &client).await });
        }
        Ok(Self {
            operator,
            scene,
            stack,
            settings,
            fleet,
            replay_s: 0.0,
            background,
        })
    }

    /// Replays the pods and waits for the results. Errors are added to the problems of the report.
    async fn perform(&mut self, options: &Options, report: &mut Report) {
        let scene = self.scene.clone();
        let lead = scene.real(EPOCH_MS - scene.clock.now_ms());
        if !options.quiet {
            chassis::out!(
                "  the recorded clock begins in {:.1} s and runs {} times as fast",
                lead.as_secs_f64(),
                scene.rate
            );
            self.background.spawn(progress::show(scene.clone()));
        }
        scene.clock.sleep_until(EPOCH_MS).await;
        let replayed = replay::replay(
            &scene,
            &self.stack,
            options.fault.clone(),
            &mut self.background,
        )
        .await;
        self.replay_s = replayed.took.as_secs_f64();
        report.faults = replayed.faults;
        let failed = replayed.failed_faults.iter().map(ToString::to_string);
        report.problems.extend(failed);
        let say = |line: &str| {
            if !options.quiet {
                chassis::out!("{line}");
            }
        };
        say("  all submitted; waiting for the last allocations to end");
        if let Err(error) = settle::all_ended(&scene).await {
            report.problems.push(error.to_string());
        }
        say("  asking for what cannot be placed, to read why it waits");
        match probe::probe(&scene, &self.stack, self.settings.most_gpus()).await {
            Ok(explained) => report.explained = explained,
            Err(error) => report.problems.push(error.to_string()),
        }
        if let Err(error) = settle::all_ended(&scene).await {
            report.problems.push(error.to_string());
        }
        say("  waiting for the bill");
        if let Err(error) = self.take_bill(report).await {
            report.problems.push(error.to_string());
        }
    }

    async fn take_bill(&self, report: &mut Report) -> Result<(), SettleError> {
        let bill = Bill::of(&self.stack)?;
        settle::bill_caught_up(&self.scene, &bill).await?;
        report.intervals_billed = bill.standing().await?.intervals;
        report.billed(bill.charges().await?, bill.hours().await?);
        report.conserved(&settle::balance(&bill).await?);
        let closed = self.close_months().await?;
        let months = settle::months_closed(&bill, self.months(), closed).await?;
        report.reconciled(months);
        settle::warm_state_caught_up(&self.scene, &self.stack).await?;
        Ok(())
    }

    /// Returns the months between the first pod's creation and the last pod's deletion.
    fn months(&self) -> RangeInclusive<Month> {
        let workload = &self.scene.workload;
        let of = |ms| Month::of(Millis(ms));
        of(workload.first_ms())..=of(workload.last_ms())
    }

    /// Closes the recorded months until the end of one is too far away. Returns the last closed month.
    async fn close_months(&self) -> Result<Option<Month>, OperatorError> {
        let mut closed = None;
        let (mut month, last) = self.months().into_inner();
        while month <= last {
            let due = month.end().0 + HOUR_MS;
            if self.scene.real(due - self.scene.clock.now_ms()) > MONTH_END_MAX {
                break;
            }
            self.scene.clock.sleep_until(due).await;
            operator::close(&self.operator, month).await?;
            closed = Some(month);
            month = month.next();
        }
        Ok(closed)
    }

    /// Adds the sums to the report, complete or not.
    fn sum_up(&self, report: &mut Report) {
        let (tally, latency, given_up) = {
            let desk = self.scene.desk();
            let open = desk.open().map(|id| format!("{id}: no outcome"));
            let given_up: Vec<String> = desk.given_up.iter().cloned().chain(open).collect();
            (desk.tally(), desk.latency(), given_up)
        };
        report.count(&tally, latency, self.replay_s);
        let fleet = self.fleet.tally();
        let workload = &self.scene.workload;
        let witness = self.scene.witness();
        report.placed = witness.progress().1 as u64;
        report.ended(witness.ended_by_cause());
        report.requeued = witness.requeued_by_cause();
        report.waiting = witness.waiting_reasons();
        let intervals = witness.intervals(workload);
        // A run without length is no use, and has no interval on the bill.
        let took_time = |run: &&Interval| run.ended_ms > run.started_ms;
        report.intervals = intervals.iter().filter(took_time).count() as u64;
        let lengths = intervals.iter().map(|run| run.ended_ms - run.started_ms);
        report.allocation_hours = lengths.sum::<i64>() as f64 / HOUR_MS as f64;
        let mut findings = witness.findings(workload);
        findings.double_booked.extend(conflicts(&fleet, &witness));
        report.found(&findings);
        report.fleet = (&fleet).into();
        report.workload = Some(Plan {
            rate: self.scene.rate,
            ..Plan::of(workload, u32::MAX)
        });
        report.judge(&given_up);
    }
}

/// Devices that agents were given twice, but for runs that had ended when their node was given up.
fn conflicts(fleet: &FleetTally, witness: &Witness) -> Vec<String> {
    let real = fleet
        .conflicts
        .iter()
        .filter(|conflict| !witness.ended_with(&conflict.held_by, EndCause::NodeLost));
    real.map(|conflict| {
        let (device, held_by, assigned_to) =
            (conflict.device, &conflict.held_by, &conflict.assigned_to);
        format!("an agent was given device {device} for {assigned_to} while {held_by} ran on it")
    })
    .collect()
}

async fn connect(
    stack: &Stack,
    key: &str,
    tenant: Option<&Token>,
    observer: Option<&mpsc::UnboundedSender<Outcome>>,
) -> Result<Client, DriveError> {
    let creds = stack.creds(key)?;
    let (url, cell) = (&stack.nats.url, &stack.cell.name);
    let options = match tenant {
        Some(tenant) => ConnectOptions::tenant(url, cell, tenant.clone()),
        None => ConnectOptions::operator(url, cell),
    };
    let mut options = options
        .creds(creds)
        .ca_file(stack.ca_file())
        .patience(PATIENCE);
    if let Some(observer) = observer {
        options = options.observed_by(observer.clone());
    }
    Ok(Client::connect(options).await?)
}

fn fleet_options(stack: &Stack, workload: &Workload) -> Result<FleetOptions, StackError> {
    let lifetimes: BTreeMap<String, i64> = workload
        .pods
        .iter()
        .map(|pod| (pod.name.to_string(), pod.lifetime_ms))
        .collect();
    Ok(FleetOptions {
        url: stack.nats.url.clone(),
        ca_file: stack.ca_file().map(Into::into),
        creds: stack.creds("fleet")?,
        cell: stack.cell.name.clone(),
        nodes: workload.nodes.clone(),
        clock: stack.clock(),
        heartbeat: HEARTBEAT,
        report_pause: Duration::ZERO,
        asks: false,
        lifetime: Arc::new(move |change| {
            let name = change.spec.as_ref().map(|spec| spec.name.as_str())?;
            lifetimes.get(name).copied()
        }),
    })
}

/// Late and repeated outcomes go into the book as well.
async fn observe(scene: Arc<Scene>, mut observed: mpsc::UnboundedReceiver<Outcome>) {
    while let Some(outcome) = observed.recv().await {
        scene.desk().answered(&outcome);
    }
}

/// Ctrl-C in the terminal, or the launcher's word.
async fn interrupted() {
    let (interrupt, terminate) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        // Without handlers the signals end the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// The trace of the client's with the most services in it; the last of them may still be on its way.
async fn fullest_trace(spans: &Spans) -> Vec<Span> {
    const ALL: [&str; 5] = ["client", "admission", "quota", "scheduler", "analytics"];
    let waited = Stopwatch::start();
    loop {
        let traces = spans.services_by_trace();
        let ours = traces
            .iter()
            .filter(|(_, services)| services.contains("client"));
        let known = |services: &std::collections::BTreeSet<String>| {
            ALL.iter()
                .filter(|service| services.contains(**service))
                .count()
        };
        let best = ours.max_by_key(|(_, services)| (known(services), services.len()));
        match best {
            Some((id, services)) if known(services) == ALL.len() => return spans.trace(*id),
            best if waited.elapsed() > SPANS_TIMEOUT => {
                return best.map(|(id, _)| spans.trace(*id)).unwrap_or_default();
            }
            _ => tokio::time::sleep(SPANS_PERIOD).await,
        }
    }
}

/// In the order in which they begin.
fn services(trace: &[Span]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for span in trace {
        if !names.contains(&span.service) {
            names.push(span.service.clone());
        }
    }
    names
}
