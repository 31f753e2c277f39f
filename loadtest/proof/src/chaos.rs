//! `loadtest chaos`: breaks a running stack at random while recorded clients use it, and looks in the end whether anything
//! was lost, doubled or billed wrongly.
//!
//! The plan of faults follows from the seed; when each is over depends on the stack, so two runs of a seed have the same
//! faults in the same order, and not at the same moments.

mod agents;
mod book;
mod clients;
mod flood;
mod inject;
mod ledger;
mod plan;
mod report;
mod runs;
mod scene;
mod settle;
mod times;

use ::ledger::memory::Seeded;
use agents::Agents;
use async_nats::jetstream;
use chassis::stack::Stack;
use client::{Client, ConnectError, ConnectOptions};
use clients::{Recorded, Way};
use inject::{BreakError, Breakable, Breaker, Performed};
use plan::{Fault, Kind, Plan, Supported};
use replay::{
    command::{Size, block_on, exit},
    drive::{OperatorError, Quota, Rate, Settings},
    fleet::FleetError,
    machine::Machine,
    reach::{ReachError, operator, plain, tenants},
};
use report::{Check, Operations, Report};
use scene::Scene;
use schemas::v1::outcome::Result as Decided;
use settle::EndError;
use std::{
    collections::BTreeMap, fs, io, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};
use times::Done;
use tokio::{sync::mpsc, task::JoinSet};
use vocab::{ResourceKind, Token, subjects::Subjects};

/// Tenants that repeat requests until they are answered, tenants that send once, and one that floods.
const TENANTS: usize = 4;
const ASKING_ON: usize = 2;
/// All tenants but the flooding one.
const RECORDED: u32 = 3;
/// Period of each recorded tenant: together 20 operations a second.
const PERIOD: Duration = Duration::from_millis(150);
/// One sending waits this long for its outcome.
const PATIENCE: Duration = Duration::from_secs(2);
/// After a fault, submits are answered again within this.
const OUTCOME_MAX: Duration = Duration::from_secs(60);
const QUOTA: u64 = 1 << 53;
/// Quota of the flooding tenant in cores: most of a flood is refused.
const FLOOD_CORES: u64 = 8;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack; one that was started to be broken, with four tenants.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    /// Minutes with faults. The waits and checks at the end come on top.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Instead: kill, pause and end the leading process of each service, this number of times each.
    #[arg(long, value_name = "TIMES", conflicts_with = "minutes")]
    takeovers: Option<usize>,
    /// Instead: kill and restart the bus, this number of times each.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["minutes", "takeovers"])]
    bus_restarts: Option<usize>,
    /// Connections of recorded clients, shared out among the tenants; together they ask as much as three.
    #[arg(long, default_value_t = RECORDED, value_parser = clap::value_parser!(u32).range(i64::from(RECORDED)..))]
    clients: u32,
    /// File for the figures, as one JSON object; the data of the bill go into a directory next to it.
    #[arg(long, value_name = "OUT")]
    json: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    size: Size,
    /// Program that computes the bill separately.
    #[arg(long, value_name = "SCRIPT", default_value = "loadtest/check_bill.py")]
    check_bill: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum ChaosError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "the stack has {0} tenants and {TENANTS} are needed; start it with --tenants {TENANTS}"
    )]
    Tenants(usize),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Agents(#[from] FleetError),
    #[error(transparent)]
    Break(#[from] BreakError),
    #[error(transparent)]
    End(#[from] EndError),
    #[error("no submit was answered within {} s, before anything was broken", OUTCOME_MAX.as_secs())]
    NeverBegan,
    #[error("the figures' file, or the runtime: {0}")]
    Io(#[from] io::Error),
    #[error("the figures as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

pub fn main(options: &Options) -> ExitCode {
    let said = |report: Report| {
        chassis::out!("{report}");
        ExitCode::from(u8::from(!report.good))
    };
    exit("chaos", block_on(run(options)).map(said))
}

async fn run(options: &Options) -> Result<Report, ChaosError> {
    let machine = Machine::look();
    let stack = Stack::read(&options.stack).map_err(ReachError::from)?;
    let breakable = Breakable::read(&options.stack)?;
    let supported = breakable.supported();
    let mut show = Show::begin(&stack, options).await?;
    let agents = Agents::start(&stack).await?;
    let flooder = show.flooder.clone();
    let scene = show.scene.clone();
    let breaker = Breaker::new(scene.clone(), stack.clone(), breakable, agents, flooder)?;
    let breaker = Arc::new(breaker);
    let began = tokio::time::timeout(OUTCOME_MAX, scene.answered_after(Duration::ZERO)).await;
    began.map_err(|_| ChaosError::NeverBegan)?;
    let from = scene.now();
    let (kinds, pauses_ms, count, length) = match (options.takeovers, options.bus_restarts) {
        (None, None) if options.size.smoke => {
            let kinds = plan::one_of_each_way(&supported);
            let count = kinds.len();
            (kinds, plan::SHORT_PAUSES_MS, count, Duration::MAX)
        }
        (None, None) => {
            let length = Duration::from_secs_f64(options.minutes * 60.0);
            (plan::kinds(&supported), plan::PAUSES_MS, usize::MAX, length)
        }
        (Some(times), _) => {
            let kinds = plan::takeovers();
            let count = times * kinds.len();
            (kinds, plan::LONG_PAUSES_MS, count, Duration::MAX)
        }
        (None, Some(times)) => {
            let kinds = vec![Kind::Kill(plan::BUS), Kind::Restart(plan::BUS)];
            let count = times * kinds.len();
            (kinds, plan::PAUSES_MS, count, Duration::MAX)
        }
    };
    let plan = Plan::new(options.seed, kinds.clone(), pauses_ms).take(count);
    let end = from.saturating_add(length);
    let (mut faults, failed) = break_things(&scene, &breaker, plan, end).await;
    let broken_for = scene.now() - from;

    scene.stop();
    while show.asking.join_next().await.is_some() {}
    let mut checks = vec![
        Check::of("every fault could be done", &failed),
        settle::services_ready(&stack).await,
        settle::all_ended(&scene).await,
    ];
    checks.extend(settle::compared(&scene, &stack).await?);
    let feeds = scene.followed().feeds.clone();
    checks.push(settle::read_again(&feeds, &show.clients).await?);
    checks.push(settle::witnessed(&scene, &breaker.conflicts().await));
    let beside = options.json.with_extension("bill");
    let files = (beside.as_path(), options.check_bill.as_path());
    checks.extend(settle::billed(&scene, &stack, &show.settings, files).await?);

    let submits = scene.book().submits_answered();
    times::measure(&mut faults, &submits, from + broken_for);
    let without = faults.iter().filter(|done| {
        let first = done.first_outcome_ms;
        first.is_none_or(|first| first > OUTCOME_MAX + done.fault.length())
    });
    let without: Vec<String> = without.map(|done| done.fault.kind.to_string()).collect();
    checks.push(Check::of("outcomes came again after every fault", &without));
    let report = Report {
        measure: "chaos",
        smoke: options.size.smoke,
        seed: options.seed,
        minutes: broken_for.as_secs_f64() / 60.0,
        machine: machine.and_after(),
        not_supported: not_supported(&supported),
        faults_done: faults.len(),
        operations: operations(&scene),
        by_kind: times::table(&faults, &kinds),
        good: checks.iter().all(|check| check.holds),
        checks,
        faults,
    };
    fs::write(&options.json, serde_json::to_string_pretty(&report)? + "\n")?;
    Ok(report)
}

fn not_supported(supported: &Supported) -> Vec<String> {
    let planned = plan::kinds(supported);
    let missing = plan::kinds(&Supported::all()).into_iter();
    let missing = missing.filter(|kind| !planned.contains(kind));
    missing.map(|kind| kind.to_string()).collect()
}

/// One fault after the other, each when submits are answered again after the one before. An agent is silent for longer than
/// the others take, so it is meanwhile.
async fn break_things(
    scene: &Arc<Scene>,
    breaker: &Arc<Breaker>,
    plan: impl Iterator<Item = Fault>,
    end: Duration,
) -> (Vec<Done>, Vec<String>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let mut meanwhile = JoinSet::new();
    for (no, fault) in plan.enumerate() {
        if scene.now() >= end {
            break;
        }
        let since = scene.now();
        chassis::out!("  {:>7.1} s  {}", since.as_secs_f64(), fault.kind);
        let broken = if fault.kind == Kind::SilentAgent {
            let breaker = breaker.clone();
            meanwhile.spawn(async move { (no, fault, breaker.perform(no, &fault).await) });
            since
        } else {
            let performed = breaker.perform(no, &fault).await;
            keep((no, fault, performed), &mut done, &mut failed);
            // While the bus is told to stop, it answers still.
            let last = done.last();
            last.map_or(since, |last| last.back_ms.unwrap_or(last.injected_ms))
                .max(since)
        };
        // Whether it was in time is looked at in the end.
        let _ = tokio::time::timeout(OUTCOME_MAX, scene.answered_after(broken)).await;
        tokio::time::sleep(fault.then()).await;
    }
    while let Some(Ok(last)) = meanwhile.join_next().await {
        keep(last, &mut done, &mut failed);
    }
    done.sort_by_key(|done: &Done| done.injected_ms);
    (done, failed)
}

fn keep(
    (no, fault, performed): (usize, Fault, Result<Performed, BreakError>),
    done: &mut Vec<Done>,
    failed: &mut Vec<String>,
) {
    match performed {
        Ok(Performed {
            injected,
            healed,
            back,
        }) => done.push(Done {
            no,
            fault,
            injected_ms: injected,
            healed_ms: healed,
            back_ms: back,
            back_to_outcome_ms: None,
            first_outcome_ms: None,
            gap_ms: Duration::ZERO,
        }),
        Err(error) => failed.push(format!("{}: {error}", fault.kind)),
    }
}

fn operations(scene: &Scene) -> Operations {
    let (book, followed) = (scene.book(), scene.followed());
    let mut found = Operations {
        resent: book.resent,
        events_in_feeds: followed.feeds.values().map(|feed| feed.len() as u64).sum(),
        ..Operations::default()
    };
    for (_, operation) in book.operations() {
        found.recorded += 1;
        found.acknowledged_once += u64::from(operation.acknowledged);
        found.answered += u64::from(operation.answered.is_some());
        let refused =
            |outcome: &client::Outcome| matches!(outcome.result, Some(Decided::Refused(_)));
        found.refused += u64::from(operation.outcomes.first().is_some_and(refused));
    }
    found
}

/// Everything that goes on while things are broken.
struct Show {
    scene: Arc<Scene>,
    settings: Settings,
    flooder: Token,
    /// Of every tenant, for its feed.
    clients: BTreeMap<Token, Client>,
    /// Ends when it is told to stop, and everything asked is answered or given up.
    asking: JoinSet<()>,
    /// Feeds and late outcomes, to the end.
    _listening: JoinSet<()>,
}

impl Show {
    async fn begin(stack: &Stack, options: &Options) -> Result<Self, ChaosError> {
        let all = tenants(stack);
        if all.len() != TENANTS {
            return Err(ChaosError::Tenants(all.len()));
        }
        let flooder = all[TENANTS - 1].clone();
        let settings = settings(&all);
        settings.apply(&operator(stack).await?).await?;
        let scene = Arc::new(Scene::new());
        let (mut asking, mut listening) = (JoinSet::new(), JoinSet::new());
        let mut clients = BTreeMap::new();
        let (observer, observed) = mpsc::unbounded_channel();
        listening.spawn(clients::observe(scene.clone(), observed));
        for (at, name) in all.iter().enumerate() {
            let creds = stack
                .creds(&format!("tenant:{name}"))
                .map_err(ReachError::from)?;
            let (url, cell) = (&stack.nats.url, &stack.cell.name);
            let connect = || {
                let connect = ConnectOptions::tenant(url, cell, name.clone())
                    .creds(&creds)
                    .ca_file(stack.ca_file())
                    .patience(PATIENCE)
                    .observed_by(observer.clone());
                Client::connect(connect)
            };
            let client = connect().await?;
            let (scene_, name_, client_) = (scene.clone(), name.clone(), client.clone());
            listening.spawn(async move { scene_.follow(&name_, &client_).await });
            clients.insert(name.clone(), client);
            if *name == flooder {
                continue;
            }
            // Those of one tenant ask in turn, so that not all of them ask at once.
            let share = (at as u32..options.clients).step_by(RECORDED as usize);
            let period = PERIOD * share.len() as u32;
            for (turn, number) in share.enumerate() {
                let way = if at < ASKING_ON {
                    Way::AskOn(connect().await?)
                } else {
                    let nats = plain(stack, &format!("tenant:{name}")).await?;
                    Way::Once {
                        inbox: Box::new(jetstream::new(nats)),
                        subject: Subjects::new(cell).ingress(name.as_str()),
                    }
                };
                let recorded = Recorded {
                    tenant: name.clone(),
                    number,
                    way,
                    from: scene.now() + PERIOD * turn as u32,
                    period,
                    size: options.size,
                    dice: Seeded::new(options.seed.wrapping_add(number.into())),
                };
                asking.spawn(recorded.run(scene.clone()));
            }
        }
        Ok(Self {
            scene,
            settings,
            flooder,
            clients,
            asking,
            _listening: listening,
        })
    }
}

/// Limits that only the flooding tenant reaches; prices that show every rounding.
fn settings(tenants: &[Token]) -> Settings {
    let quota = |(at, tenant): (usize, &Token)| {
        ResourceKind::ALL.map(|resource| Quota {
            tenant: tenant.clone(),
            resource,
            limit: match resource {
                ResourceKind::Cpu if at == TENANTS - 1 => FLOOD_CORES * 1_000,
                _ => QUOTA,
            },
        })
    };
    let rate = |(resource, micro_per_unit_hour): (&str, u64)| Rate {
        resource: resource.to_owned(),
        micro_per_unit_hour,
    };
    // High ones: the runs are short, and what they cost is to have many digits.
    let rates = [
        ("cpu", 31_611_007),
        ("memory", 4_237_003),
        ("gpu", 1_006_000_009),
        ("gpu:T4", 350_003_011),
    ];
    Settings {
        tenants: tenants.to_vec(),
        quotas: tenants.iter().enumerate().flat_map(quota).collect(),
        rates: rates.map(rate).to_vec(),
        tight: None,
    }
}
