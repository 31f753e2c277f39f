//! `loadtest heartbeat`: what the heartbeats of many simulated nodes cost, and how soon and how rightly nodes that stop are
//! noticed.
//!
//! Every node's heartbeat is a request, as a real agent's is. Some run something. First nothing else happens; then a few nodes
//! fall silent; then a tenth of all at once, while tasks are submitted at a fixed rate, as before it.

use crate::{
    kit::{
        PROFILE,
        aims::{Aim, Figure, judged},
        facts::{self, Facts},
        report::{Measure, Out, ReportError, object},
        usage::Usage,
    },
    throughput::{
        BenchError,
        audit::nodes_ready,
        case::NodeSize,
        load::{Load, Pace},
        scene::{self, Scene},
        task::Tasks,
    },
};
use chassis::{
    Stopwatch,
    stack::{Stack, StackError},
};
use client::Operation;
use replay::{
    command::{Size, block_on, exit},
    drive::gauge,
    fleet::FleetOptions,
    latency::quantile_ms,
    reach::{ReachError, tenants},
};
use serde::Serialize;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vocab::{Event, EventKind, Kinds, Token};

const SERVICE: &str = "node-heartbeat";
/// Percent of one core, and memory, at 100,000 nodes.
const AIM_CPU: f64 = 50.0;
const AIM_MEMORY_MB: f64 = 1024.0;
const AIM_NOTICED_S: f64 = 1.0;
const AIM_P99_RATIO: f64 = 2.0;
/// Requests in one message, where many are sent at once.
const BATCH: u64 = 500;
const LOOK: Duration = Duration::from_millis(50);
/// Beyond a lease.
const PATIENCE: Duration = Duration::from_secs(120);
const NODE: NodeSize = NodeSize {
    cores: 4,
    memory_bytes: 8 << 30,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack, which has tenants and nothing else, and a lease of three
    /// beats.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
    #[arg(
        long,
        default_value_t = 10_000,
        default_value_if("smoke", "true", "40")
    )]
    nodes: usize,
    /// Seconds between two heartbeats of a node.
    #[arg(long, default_value_t = 10, default_value_if("smoke", "true", "1"))]
    beat_s: u64,
    /// Allocations that run all the time; without it, as many as there are nodes.
    #[arg(long)]
    runs: Option<u64>,
    #[arg(long, default_value_t = 3, default_value_if("smoke", "true", "1"))]
    rounds: usize,
    /// Seconds for which CPU is measured in each round.
    #[arg(long, default_value_t = 20, default_value_if("smoke", "true", "1"))]
    quiet_s: u64,
    /// Number of nodes in the rounds that lose a few.
    #[arg(long, default_value_t = 10, default_value_if("smoke", "true", "2"))]
    few: usize,
    /// Tasks per second while latency is measured.
    #[arg(long, default_value_t = 100.0, default_value_if("smoke", "true", "20"))]
    per_s: f64,
}

#[derive(Debug, thiserror::Error)]
enum HeartbeatError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error("waited in vain until {0}")]
    InVain(&'static str),
    #[error("an agent saw what must not be: {0}")]
    Conflict(String),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("the runtime: {0}")]
    Runtime(#[from] io::Error),
}

#[derive(Debug, Serialize)]
struct Figures {
    profile: &'static str,
    nodes: usize,
    beat_s: u64,
    lease_ms: i64,
    running: u64,
    tasks_per_s: f64,
    figures: Vec<Figure>,
    /// Cores by process in the quiet rounds.
    cpu_cores: BTreeMap<String, Figure>,
    rss_mb: BTreeMap<String, f64>,
    /// Heartbeats and questions that node-heartbeat did not take, since it was started.
    heartbeats_dropped: Option<u64>,
    /// Of the simulated agents: how late a heartbeat was sent at the most, and from one answer to the next.
    sent_late_max_s: f64,
    answer_gap_max_s: f64,
    suspected: u64,
    suspected_falsely: u64,
    /// Tasks that had to wait, and those without an outcome, in all rounds with tasks.
    tasks_waiting: u64,
    tasks_lost: u64,
}

pub fn main(options: &Options) -> ExitCode {
    exit("heartbeat", block_on(run(options)))
}

async fn run(options: &Options) -> Result<(), HeartbeatError> {
    let measure = Measure::begin("heartbeat", options.size);
    let stack = Stack::read(&options.stack)?;
    let scene = scene(&stack, options).await?;
    let runs = options.runs.unwrap_or(options.nodes as u64);
    let batch = options.size.pick(BATCH, 20);
    let standing = Load::new(&scene, Tasks::new(&standing(&scene.run)), batch);
    standing.all(runs).await;
    let bench = Bench::begin(&stack, &scene, options).await?;
    bench
        .until("all of them run", || {
            scene.agents.tally().started >= standing.counts.accepted()
        })
        .await?;
    chassis::out!(
        "{} nodes, {} allocations run",
        options.nodes,
        standing.counts.accepted()
    );
    let quiet = bench.quiet().await?;
    let mut noticed = Vec::new();
    for round in 0..options.rounds {
        let first = round * options.few % options.nodes.max(1);
        noticed.push(bench.few(first..first + options.few).await?);
    }
    let load = Load::new(&scene, Tasks::new(&scene.run), 1);
    let tenth = options.nodes / 10;
    let (mut before, mut during, mut crowd) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let first = round % 10 * tenth;
        before.push(bench.p99_ms(&load).await);
        let seen = bench.tenth(first..first + tenth, &load).await?;
        during.push(seen.0);
        crowd.push(seen.1);
    }
    let ratios = before.iter().zip(&during).map(|(quiet, busy)| busy / quiet);
    let ratio = Figure::new("p99 while a tenth is lost over quiet p99", "times", ratios);
    let dropped = counted(&stack, "heartbeats_dropped_total").await;
    let (seen, tally) = (bench.seen(), scene.agents.tally());
    if let Some(conflict) = tally.conflicts.first() {
        return Err(HeartbeatError::Conflict(format!("{conflict:?}")));
    }
    let rss = |name: &str| quiet.rss_mb.get(name).copied().unwrap_or(0.0);
    let figures = vec![
        quiet.cpu.clone().aims(Aim::Below(AIM_CPU)),
        Figure::new("memory of node-heartbeat", "MB", [rss(SERVICE)])
            .aims(Aim::AtMost(AIM_MEMORY_MB)),
        Figure::new("heartbeats sent", "/s", quiet.beats_per_s),
        Figure::new("lost falsely", "nodes", [seen.falsely.len() as f64]).aims(Aim::AtMost(0.0)),
        Figure::new("a few lost: the last one after its lease", "s", noticed)
            .aims(Aim::AtMost(AIM_NOTICED_S)),
        Figure::new("a tenth lost: the last one after its lease", "s", crowd)
            .aims(Aim::AtMost(AIM_NOTICED_S)),
        Figure::new("p99 of decisions, quiet", "ms", before),
        Figure::new("p99 of decisions while a tenth is lost", "ms", during),
        ratio.aims(Aim::AtMost(AIM_P99_RATIO)),
    ];
    let figures = judged(figures, options.size);
    figures.iter().for_each(|figure| chassis::out!("{figure}"));
    let figures = Figures {
        profile: PROFILE,
        nodes: options.nodes,
        beat_s: options.beat_s,
        lease_ms: bench.lease_ms,
        running: standing.counts.accepted(),
        tasks_per_s: options.per_s,
        figures,
        cpu_cores: quiet.cpu_cores,
        rss_mb: quiet.rss_mb,
        heartbeats_dropped: dropped,
        sent_late_max_s: tally.late_max.as_secs_f64(),
        answer_gap_max_s: tally.answer_gap_max.as_secs_f64(),
        suspected: seen.suspected,
        suspected_falsely: seen.suspected_falsely,
        tasks_waiting: load.counts.waiting.get(),
        tasks_lost: load.counts.lost.get(),
    };
    Ok(options.out.write(&object(&measure.end(figures))?)?)
}

/// Job set of the tasks that run until they are stopped.
fn standing(run: &str) -> String {
    format!("{run}s")
}

async fn scene(stack: &Stack, options: &Options) -> Result<Scene, HeartbeatError> {
    let run = Operation::fresh_id()[..4].to_owned();
    let standing = standing(&run);
    let fleet = FleetOptions {
        nodes: scene::nodes(options.nodes, NODE)?,
        heartbeat: Duration::from_secs(options.beat_s),
        asks: true,
        lifetime: Arc::new(move |change| {
            let spec = change.spec.as_ref()?;
            (spec.job_set != standing).then_some(1)
        }),
        ..scene::fleet(stack)?
    };
    let tenants = tenants(stack);
    let tenant = tenants.first().ok_or(ReachError::NoTenant)?;
    let tenants = std::slice::from_ref(tenant);
    Ok(Scene::with(stack, tenants, run, fleet, true).await?)
}

async fn counted(stack: &Stack, name: &str) -> Option<u64> {
    let service = stack.services.get(SERVICE)?;
    gauge(service.http, &format!("apportion_{name}")).await
}

/// Losses on the ledger, and their times.
#[derive(Debug, Default)]
struct Seen {
    /// Nodes without heartbeats.
    silent: BTreeSet<String>,
    /// Of those that were lost since they fell silent: when that came, and when they were heard last.
    lost: BTreeMap<String, (i64, i64)>,
    /// Lost nodes that had not fallen silent.
    falsely: Vec<String>,
    suspected: u64,
    suspected_falsely: u64,
}

impl Seen {
    fn lost(&mut self, node: &Token, last_seen_ms: i64, now_ms: i64) {
        match self.silent.contains(node.as_str()) {
            true => {
                let times = (now_ms, last_seen_ms);
                self.lost.insert(node.to_string(), times);
            }
            false => self.falsely.push(node.to_string()),
        }
    }

    fn suspected(&mut self, node: &Token) {
        self.suspected += 1;
        self.suspected_falsely += u64::from(!self.silent.contains(node.as_str()));
    }
}

struct Bench<'b> {
    stack: &'b Stack,
    scene: &'b Scene,
    options: &'b Options,
    lease_ms: i64,
    seen: Arc<Mutex<Seen>>,
    _facts: Facts,
}

/// Cost of idle nodes.
struct Quiet {
    cpu: Figure,
    cpu_cores: BTreeMap<String, Figure>,
    rss_mb: BTreeMap<String, f64>,
    beats_per_s: Vec<f64>,
}

impl<'b> Bench<'b> {
    async fn begin(
        stack: &'b Stack,
        scene: &'b Scene,
        options: &'b Options,
    ) -> Result<Self, HeartbeatError> {
        let seen = Arc::<Mutex<Seen>>::default();
        let (sees, clock) = (seen.clone(), stack.clock());
        let kinds = Kinds::of(&[EventKind::NodeLost, EventKind::NodeSuspected]);
        let facts = facts::follow(stack, kinds, move |_, event| match event {
            Event::NodeLost(lost) => {
                locked(&sees).lost(&lost.node, lost.last_seen.0, clock.now_ms());
            }
            Event::NodeSuspected(suspected) => locked(&sees).suspected(&suspected.node),
            _ => {}
        });
        let mut bench = Self {
            stack,
            scene,
            options,
            lease_ms: 0,
            seen,
            _facts: facts.await?,
        };
        let answered = || scene.agents.tally().lease_ms > 0;
        bench.until("a heartbeat is answered", answered).await?;
        bench.lease_ms = scene.agents.tally().lease_ms;
        Ok(bench)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        locked(&self.seen)
    }

    async fn until(&self, what: &'static str, so: impl Fn() -> bool) -> Result<(), HeartbeatError> {
        let patience = PATIENCE + Duration::from_millis(self.lease_ms.unsigned_abs());
        let since = Stopwatch::start();
        while !so() {
            if since.elapsed() > patience {
                return Err(HeartbeatError::InVain(what));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn quiet(&self) -> Result<Quiet, HeartbeatError> {
        let mut cores: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let (mut rss_mb, mut beats_per_s) = (BTreeMap::new(), Vec::new());
        for _ in 0..self.options.rounds {
            let (usage, since) = (Usage::begin(self.stack).await, Stopwatch::start());
            let before = self.scene.agents.tally().heartbeats;
            tokio::time::sleep(Duration::from_secs(self.options.quiet_s)).await;
            let beats = self.scene.agents.tally().heartbeats - before;
            beats_per_s.push(beats as f64 / since.elapsed().as_secs_f64());
            let used = usage.end(self.stack).await;
            for (name, cpu_s) in used.cpu_s {
                cores.entry(name).or_default().push(cpu_s / used.wall_s);
            }
            rss_mb = used.rss_mb;
        }
        let of_service = cores.get(SERVICE).into_iter().flatten();
        let percent = of_service.map(|cores| cores * 100.0);
        let named = cores
            .iter()
            .map(|(name, cores)| (name.clone(), Figure::new("CPU", "cores", cores.clone())));
        Ok(Quiet {
            cpu: Figure::new("CPU of node-heartbeat", "% of a core", percent),
            cpu_cores: named.collect(),
            rss_mb,
            beats_per_s,
        })
    }

    /// Seconds from when the lease of each was over to when that stood on the ledger, of the last one.
    async fn few(&self, nodes: Range<usize>) -> Result<f64, HeartbeatError> {
        self.fall_silent(nodes.clone())?;
        self.all_lost(nodes.len()).await?;
        let noticed = self.noticed_s();
        self.come_back(nodes.len()).await?;
        Ok(noticed)
    }

    /// The p99 while these are lost, and the same as of a few.
    async fn tenth(
        &self,
        nodes: Range<usize>,
        load: &Load<'_>,
    ) -> Result<(f64, f64), HeartbeatError> {
        self.fall_silent(nodes.clone())?;
        // The first lease is over so much later, the last one a beat after that.
        let lease = Duration::from_millis(self.lease_ms.unsigned_abs());
        tokio::time::sleep(lease.saturating_sub(self.beat())).await;
        let p99_ms = self.p99_ms(load).await;
        self.all_lost(nodes.len()).await?;
        let noticed = self.noticed_s();
        self.come_back(nodes.len()).await?;
        Ok((p99_ms, noticed))
    }

    fn beat(&self) -> Duration {
        Duration::from_secs(self.options.beat_s)
    }

    fn fall_silent(&self, nodes: Range<usize>) -> Result<(), HeartbeatError> {
        let all = scene::nodes(self.options.nodes, NODE)?;
        let mut seen = self.seen();
        seen.lost.clear();
        seen.silent = all[nodes.clone()]
            .iter()
            .map(|node| node.name.to_string())
            .collect();
        self.scene.agents.silence_those(nodes);
        Ok(())
    }

    async fn all_lost(&self, count: usize) -> Result<(), HeartbeatError> {
        let lost = || self.seen().lost.len() == count;
        self.until("all silent nodes are lost", lost).await
    }

    fn noticed_s(&self) -> f64 {
        let seen = self.seen();
        let late = seen
            .lost
            .values()
            .map(|(came, heard)| came - heard - self.lease_ms);
        late.max().unwrap_or(0) as f64 / 1000.0
    }

    /// Silent nodes send heartbeats again, learn that they are lost, and register again.
    async fn come_back(&self, count: usize) -> Result<(), HeartbeatError> {
        let before = self.scene.agents.tally().registered_again;
        self.scene.agents.silence_those(0..0);
        let again = before + count as u64;
        let back = || self.scene.agents.tally().registered_again >= again;
        self.until("the lost nodes register again", back).await?;
        let since = Stopwatch::start();
        let wanted = self.options.nodes as u64;
        loop {
            let ready = nodes_ready(self.stack, 0).await.map_err(BenchError::from)?;
            if ready.all == wanted {
                break;
            }
            if since.elapsed() > PATIENCE {
                return Err(HeartbeatError::InVain("all nodes are ready again"));
            }
            tokio::time::sleep(LOOK).await;
        }
        self.seen().silent.clear();
        Ok(())
    }

    /// p99 of the time from when a task was due to its outcome, while all nodes beat once, and a little longer.
    async fn p99_ms(&self, load: &Load<'_>) -> f64 {
        let pace = Pace {
            per_s: self.options.per_s,
            warm_up: Duration::ZERO,
            window: self.beat()
                + self
                    .options
                    .size
                    .pick(Duration::from_secs(2), Duration::ZERO),
        };
        let micros = load
            .paced(&pace, Stopwatch::start(), &Cell::new(false))
            .await;
        quantile_ms(&micros, 0.99)
    }
}

/// Never left half changed.
fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
