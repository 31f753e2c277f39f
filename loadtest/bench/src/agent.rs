//! `loadtest agent`: commands per second that this machine's agent starts and ends, and the cost of an idle agent.
//!
//! Each command is `true`, and goes the whole way: submitted through the client's library, placed, assigned, run by the real
//! agent with its own shim, reported, ended on the ledger. A bounded number is under way, and ends are counted.

use crate::{
    kit::{
        aims::{Aim, Figure, judged},
        facts::{self, Facts},
        figures::{mean, round},
        report::{Measure, Out, ReportError, object},
        usage::Usage,
    },
    throughput::{BenchError, scene},
};
use chassis::{Stopwatch, stack::Stack};
use client::{Client, NoOutcome, Operation, Submit};
use futures::{StreamExt, stream::FuturesUnordered};
use replay::{
    command::{Size, block_on, exit},
    reach::{ReachError, connect, operator, tenants},
};
use schemas::v1::{self, outcome::Result as Decided, request::Verb};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use vocab::{EndCause, Event, EventKind, Kinds};

const AIM_RUNS_PER_S: f64 = 200.0;
/// Percent of one core.
const AIM_IDLE_CPU: f64 = 0.2;
const AIM_MEMORY_MB: f64 = 20.0;
/// The launcher's name of the agent.
const AGENT: &str = "node-agent";
const CPU_MILLI: i64 = 10;
const MEMORY_BYTES: i64 = 32 << 20;
const LOOK: Duration = Duration::from_millis(1);
/// Without a single end.
const STALL_MAX: Duration = Duration::from_secs(30);
/// The kernel's unit of CPU time, and where that of a process and of its children stands behind the program's name.
const TICK_S: f64 = 0.01;
const OWN_TIME: usize = 11;
const CHILDREN_TIME: usize = 13;
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack, which has an agent and no other nodes.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
    #[arg(long, default_value_t = 3, default_value_if("smoke", "true", "1"))]
    rounds: usize,
    /// Seconds with commands in each round.
    #[arg(long, default_value_t = 10, default_value_if("smoke", "true", "1"))]
    seconds: u64,
    /// Seconds without commands in each round.
    #[arg(long, default_value_t = 60, default_value_if("smoke", "true", "1"))]
    idle_seconds: u64,
    /// Commands that are under way at a time.
    #[arg(long, default_value_t = 32, default_value_if("smoke", "true", "4"))]
    at_once: u64,
}

#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Outcome(#[from] NoOutcome),
    #[error("the stack has no agent; start it with --agent")]
    NoAgent,
    #[error("a command was not accepted: {0:?}")]
    NotAccepted(Option<Decided>),
    #[error("no command has ended for {} s; {under_way} are under way", STALL_MAX.as_secs())]
    Stalled { under_way: u64 },
    #[error("a command did not end well")]
    Failed,
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("a figure of the kernel's, or the runtime: {0}")]
    Io(#[from] io::Error),
}

#[derive(Debug, Serialize)]
struct Figures {
    profile: &'static str,
    at_once: u64,
    commands: u64,
    figures: Vec<Figure>,
    /// Of a core, by process, while commands ran; children that have ended are in `shims_and_commands`.
    cpu_cores: BTreeMap<String, f64>,
}

pub fn main(options: &Options) -> ExitCode {
    exit("agent", block_on(run(options)))
}

async fn run(options: &Options) -> Result<(), AgentError> {
    let measure = Measure::begin("agent", options.size);
    let stack = Stack::read(&options.stack).map_err(ReachError::from)?;
    let agent = Process::of(&stack)?;
    let fresh_mb = agent.memory_mb()?;
    let mut bench = Bench::prepare(&stack, options.at_once).await?;
    let (mut rates, mut cpu, mut cpu_ms) = (Vec::new(), BTreeMap::new(), Vec::new());
    for _ in 0..options.rounds {
        let (before, commands) = (agent.children_s()?, bench.submitted);
        let usage = Usage::begin(&stack).await;
        rates.push(bench.round(Duration::from_secs(options.seconds)).await?);
        let used = usage.end(&stack).await;
        let children_s = agent.children_s()? - before;
        let commands = (bench.submitted - commands) as f64;
        cpu_ms.push((used.cpu_s_of(&[AGENT]) + children_s) * 1000.0 / commands);
        let children = ("shims_and_commands".to_owned(), children_s);
        for (name, cpu_s) in used.cpu_s.into_iter().chain([children]) {
            let cores: &mut Vec<f64> = cpu.entry(name).or_default();
            cores.push(cpu_s / used.wall_s);
        }
    }
    let (mut idle, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let (before, since) = (agent.own_s()?, Stopwatch::start());
        tokio::time::sleep(Duration::from_secs(options.idle_seconds)).await;
        let busy_s = agent.own_s()? - before;
        idle.push(busy_s * 100.0 / since.elapsed().as_secs_f64());
        memory.push(agent.memory_mb()?);
    }
    let figures = vec![
        Figure::new("commands started and ended, the whole way", "/s", rates)
            .aims(Aim::AtLeast(AIM_RUNS_PER_S)),
        Figure::new("CPU of agent, shim and command", "ms/command", cpu_ms),
        Figure::new("CPU of the idle agent", "% of a core", idle).aims(Aim::AtMost(AIM_IDLE_CPU)),
        Figure::new("memory of the agent before", "MB", [fresh_mb])
            .aims(Aim::AtMost(AIM_MEMORY_MB)),
        Figure::new("memory of the idle agent", "MB", memory).aims(Aim::AtMost(AIM_MEMORY_MB)),
    ];
    let figures = judged(figures, options.size);
    figures.iter().for_each(|figure| chassis::out!("{figure}"));
    let cpu = cpu.into_iter();
    let cpu_cores = cpu.map(|(name, rounds)| (name, round(mean(&rounds), 2)));
    let figures = Figures {
        profile: crate::kit::PROFILE,
        at_once: options.at_once,
        commands: bench.submitted,
        figures,
        cpu_cores: cpu_cores.collect(),
    };
    Ok(options.out.write(&object(&measure.end(figures))?)?)
}

struct Bench {
    client: Client,
    at_once: u64,
    submitted: u64,
    seen: Arc<Seen>,
    _facts: Facts,
}

/// By the ledger.
#[derive(Default)]
struct Seen {
    ended: AtomicU64,
    failed: AtomicU64,
}

impl Bench {
    async fn prepare(stack: &Stack, at_once: u64) -> Result<Self, AgentError> {
        let tenants = tenants(stack);
        let tenant = tenants.first().ok_or(ReachError::NoTenant)?;
        let settings = scene::settings(std::slice::from_ref(tenant));
        let operator = operator(stack).await?;
        settings.apply(&operator).await.map_err(BenchError::from)?;
        scene::until_ready(stack, 1, 0).await?;
        let seen = Arc::<Seen>::default();
        let sees = seen.clone();
        let kinds = Kinds::of(&[EventKind::AllocationEnded]);
        let facts = facts::follow(stack, kinds, move |_, event| {
            if let Event::AllocationEnded(end) = event {
                let failed = end.cause != EndCause::Finished;
                sees.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
                sees.ended.fetch_add(1, Ordering::Relaxed);
            }
        });
        let facts = facts.await?;
        let clients = connect(stack, tenant, 1, None).await?;
        Ok(Self {
            client: clients.into_iter().next().ok_or(ReachError::NoTenant)?,
            at_once,
            submitted: 0,
            seen,
            _facts: facts,
        })
    }

    /// Ends per second in the window, which begins when commands have been under way for a while. In the end none is.
    async fn round(&mut self, window: Duration) -> Result<f64, AgentError> {
        let client = &self.client;
        let mut asked = FuturesUnordered::new();
        let since = Stopwatch::start();
        let mut last = (0, Stopwatch::start());
        let (mut began, mut per_s) = (None, None);
        loop {
            let (now, ended) = (since.elapsed(), self.seen.ended.load(Ordering::Relaxed));
            if now >= WARM_UP {
                let (before, from) = *began.get_or_insert((ended, now));
                if per_s.is_none() && now - from >= window {
                    per_s = Some((ended - before) as f64 / (now - from).as_secs_f64());
                }
            }
            match (per_s, self.seen.failed.load(Ordering::Relaxed)) {
                (_, 1..) => return Err(AgentError::Failed),
                (Some(per_s), _) if ended == self.submitted => return Ok(per_s),
                (Some(_), _) => {}
                (None, _) => {
                    while self.submitted - ended < self.at_once {
                        asked.push(ask(client));
                        self.submitted += 1;
                    }
                }
            }
            if ended != last.0 {
                last = (ended, Stopwatch::start());
            } else if last.1.elapsed() > STALL_MAX {
                let under_way = self.submitted - ended;
                return Err(AgentError::Stalled { under_way });
            }
            let pause = tokio::time::sleep(LOOK);
            tokio::pin!(pause);
            tokio::select! {
                () = &mut pause => {}
                Some(asked) = asked.next() => asked?,
            }
        }
    }
}

async fn ask(client: &Client) -> Result<(), AgentError> {
    let work = v1::Work {
        command: "true".to_owned(),
        ..v1::Work::default()
    };
    let submit = Submit {
        job_set: "commands".to_owned(),
        cpu_milli: CPU_MILLI,
        memory_bytes: MEMORY_BYTES,
        work: Some(work),
        ..Submit::default()
    };
    let operation = Operation::new(Operation::fresh_id(), Verb::Submit(submit));
    match client.call(&operation).await?.result {
        Some(Decided::Submitted(_)) => Ok(()),
        other => Err(AgentError::NotAccepted(other)),
    }
}

/// The agent's own process, as the kernel sees it.
struct Process(PathBuf);

impl Process {
    fn of(stack: &Stack) -> Result<Self, AgentError> {
        let pid = stack.pids().into_iter().find(|(name, _)| name == AGENT);
        let (_, pid) = pid.ok_or(AgentError::NoAgent)?;
        Ok(Self(PathBuf::from(format!("/proc/{pid}"))))
    }

    /// CPU seconds of its threads, also of those that have ended.
    fn own_s(&self) -> io::Result<f64> {
        self.cpu_s(OWN_TIME)
    }

    /// CPU seconds of the children that it has waited for, with theirs: shims and commands.
    fn children_s(&self) -> io::Result<f64> {
        self.cpu_s(CHILDREN_TIME)
    }

    fn cpu_s(&self, field: usize) -> io::Result<f64> {
        let text = fs::read_to_string(self.0.join("stat"))?;
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut fields = fields.split_whitespace().skip(field);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        let (user, system) = (ticks(), ticks());
        let both = user.zip(system).ok_or(io::ErrorKind::InvalidData)?;
        Ok((both.0 + both.1) * TICK_S)
    }

    fn memory_mb(&self) -> io::Result<f64> {
        let text = fs::read_to_string(self.0.join("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.ok_or(io::ErrorKind::InvalidData)? / 1024.0)
    }
}
