//! The agent of a node: it runs what the cell places on the machine. What to do is said by [`protocol`](crate::protocol), and done here.

mod capacity;
mod conditions;
mod join;
mod settings;
mod vitals;
mod work;

use crate::{
    Ended, Exit, Found, LogPart, Means, RunError, RunKey, Runs, Settings as RunSettings,
    discover::{self, DiscoverError, Machine, Reserved},
    lease::{Lease, Moment},
    protocol::{Act, Plan, Report},
};
use async_nats::{Client, Subscriber, jetstream};
use chassis::{ComponentHandle, Context, Failure, Metric, Service, Stamp, Stopwatch};
use conditions::Little;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use join::Identity;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use prost::Message as _;
use schemas::{
    ToProst as _,
    v1::{self, RunPhase, node_report},
};
pub use settings::{OnStop, Settings};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::pending,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;
use vitals::Sampler;
use vocab::{NodeCapacity, Refusal, Rule, Token, subjects::Subjects};
use wire::Message as _;

/// Before the cell has said how long a lease is.
const FIRST_BEAT: Duration = Duration::from_millis(500);
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Runs in one report, as the contract has it.
const RUNS_MAX: usize = 1000;
const LOG_BYTES_MAX: usize = 65_536;
/// Between two looks at the room that runs use on the disk. A disk takes some GB in that time.
const MEASURE: Duration = Duration::from_secs(2);
const BOOT: &str = "boot";

/// The agent, for the chassis.
pub struct NodeAgent;

#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error("the node's name: {0}")]
    Name(#[from] vocab::BadToken),
    #[error("cannot connect as a node: {0}")]
    Connect(#[from] async_nats::ConnectError),
    #[error("cannot hear the cell: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
}

impl Service for NodeAgent {
    const NAME: &'static str = "node-agent";
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        // From the first moment on: whoever does not listen is ended by it.
        let looks = signal(SignalKind::hangup())?;
        let machine = machine(&ctx.settings)?;
        let node = match ctx.settings.node.as_str() {
            "" => machine.hostname.clone(),
            name => name.to_owned(),
        };
        let node = Token::new(&node).map_err(AgentError::Name)?;
        identity::files::make_dir(&ctx.settings.state_dir)?;
        identity::files::make_dir(&conditions::folder(&ctx.settings.state_dir))?;
        let detected = Means::detect();
        if let Some(why_not) = &detected.why_not {
            tracing::warn!(%why_not, "runs are held to their bounds one process at a time");
        }
        let (runs, found) = Runs::open(RunSettings {
            dir: ctx.settings.state_dir.join("runs"),
            means: detected.means,
            program: PathBuf::from(RunSettings::OWN_PROGRAM),
            exec_plugin: ctx.settings.exec_plugin.clone(),
            work_dir: ctx.settings.work_dir.clone(),
            users: ctx.settings.run_users.clone(),
            margin: RunSettings::MARGIN,
        })?;
        let runs = Arc::new(runs);
        let subjects = ctx.subjects();
        let identity = match &ctx.settings.token_file {
            Some(token) => {
                let identity = Identity::open(&ctx.settings.state_dir, node.as_str(), token)?;
                if !until_joined(&identity, &ctx, &subjects).await? {
                    return Ok(());
                }
                Some(identity)
            }
            None => None,
        };
        let creds = identity.as_ref().map(Identity::creds);
        let client = connect(&ctx, creds, &node).await?;
        let measuring = end_excesses(Arc::clone(&runs), ctx.settings.clone());
        let agent = Agent::new(&ctx, client, subjects, (node, machine), (runs, found))?;
        let renewing = async {
            match &identity {
                Some(identity) => renew(identity, &ctx).await,
                None => pending().await,
            }
        };
        tokio::select! {
            done = agent.serve(&ctx, looks) => done,
            () = renewing => Ok(()),
            () = measuring => Ok(()),
        }
    }
}

fn machine(settings: &Settings) -> Result<Machine, DiscoverError> {
    discover::machine(Reserved {
        cpu_milli: settings.reserved_cpu_milli,
        memory_bytes: settings.reserved_memory_bytes,
    })
}

/// Ends runs that fill the disk, for ever.
async fn end_excesses(runs: Arc<Runs>, settings: Settings) {
    loop {
        tokio::time::sleep(MEASURE).await;
        let (runs, bytes_max) = (Arc::clone(&runs), settings.work_bytes_max);
        let percent = settings.disk_pressure_percent;
        let measured = move || runs.end_excesses(bytes_max, percent);
        match tokio::task::spawn_blocking(measured).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the room on the disk is not known"),
            Err(error) => tracing::error!(%error, "the room of runs was not measured"),
        }
    }
}

/// Tries until it may, or is to stop; whether it may. An operator may approve the node later.
async fn until_joined(
    identity: &Identity,
    ctx: &Context<Settings>,
    subjects: &Subjects,
) -> Result<bool, Failure> {
    let health = ctx.health.component("join");
    loop {
        match identity.join(&ctx.servers.nats, subjects).await {
            Ok(()) => {
                health.ready();
                return Ok(true);
            }
            Err(error) => {
                tracing::warn!(%error, "not joined yet");
                health.not_ready(error.to_string());
            }
        }
        tokio::select! {
            () = ctx.shutdown.requested() => return Ok(false),
            () = tokio::time::sleep(ANSWER_TIMEOUT) => {}
        }
    }
}

/// The connection ends with the user, and comes back by the one that is in the file then.
async fn renew(identity: &Identity, ctx: &Context<Settings>) {
    loop {
        tokio::time::sleep(join::RENEW).await;
        while let Err(error) = identity.join(&ctx.servers.nats, &ctx.subjects()).await {
            tracing::warn!(%error, "the node's user is not renewed");
            tokio::time::sleep(ANSWER_TIMEOUT).await;
        }
    }
}

async fn connect(
    ctx: &Context<Settings>,
    creds: Option<PathBuf>,
    node: &Token,
) -> Result<Client, Failure> {
    let nats = &ctx.servers.nats;
    let options = identity::connect(creds.unwrap_or_else(|| nats.creds.clone()));
    let options = identity::trusting(options, nats.ca_file.as_deref())?
        // A node hears no other inbox than its own.
        .custom_inbox_prefix(format!("_INBOX.{node}"))
        .name(format!("node agent {node}"))
        .retry_on_initial_connect();
    let client = options.connect(&nats.url).await;
    Ok(client.map_err(AgentError::Connect)?)
}

/// What is to be received by the cell, in this order.
#[derive(Debug, Clone, Copy)]
enum Said {
    Register,
    /// The node has another capacity in this life.
    Capacity,
    Run(Report),
}

/// A heartbeat's answer, with the moment at which the heartbeat was sent.
type Answer = (Moment, Option<v1::LeaseRenewed>);

struct Agent {
    client: Client,
    jetstream: jetstream::Context,
    subjects: Subjects,
    cell: String,
    node: Token,
    machine: Machine,
    /// What the node has, as the cell is told.
    capacity: v1::Register,
    settings: Settings,
    runs: Arc<Runs>,
    plan: Plan,
    /// Runs without a command: they hold their place.
    held: BTreeSet<RunKey>,
    /// What was assigned while no lease is held, as between a registration and the first answer to a heartbeat. Nothing begins
    /// that the shim would have to stop at once, or that nothing would stop.
    waiting: BTreeMap<RunKey, Box<v1::Assignment>>,
    /// Of former lives: before they are over, the node does not come back.
    leftover: BTreeSet<RunKey>,
    lease: Option<Lease>,
    /// When the last heartbeat was sent, and how long after it the next one is due.
    beat: (Stopwatch, Duration),
    /// The cell has not taken the node: it is asked again, and not at once.
    refused: bool,
    outbox: VecDeque<Said>,
    /// How many of the outbox are under way, and whether they were received.
    sending: Option<(usize, BoxFuture<'static, bool>)>,
    beating: Option<BoxFuture<'static, Answer>>,
    syncing: Option<BoxFuture<'static, Option<v1::AssignmentList>>>,
    /// The newest run of each allocation, whose log is kept.
    logs: BTreeMap<Uuid, RunKey>,
    /// Those that are over, the oldest first, with their ends.
    kept: VecDeque<(RunKey, i64)>,
    draining: bool,
    sampler: Sampler,
    health: ComponentHandle,
    metrics: Instruments,
}

const RUNS_STARTED: Metric = Metric::counter(
    "apportion_runs_started_total",
    "Commands that the agent has started",
);
const RUNS_ENDED: Metric = Metric::counter(
    "apportion_runs_ended_total",
    "Commands of the agent that have ended",
);
const REPORTS_RESENT: Metric = Metric::counter(
    "apportion_reports_resent_total",
    "Reports of the agent that were not acknowledged in time",
);
const LEASES_LAPSED: Metric = Metric::counter(
    "apportion_leases_lapsed_total",
    "Leases of the agent that were not renewed in time",
);
const RUNS: Metric = Metric::gauge("apportion_runs", "Runs of the agent that are not over");

/// What an agent exports beside what all do.
pub const METRICS: &[&Metric] = &[
    &RUNS_STARTED,
    &RUNS_ENDED,
    &REPORTS_RESENT,
    &LEASES_LAPSED,
    &RUNS,
];

struct Instruments {
    started: Counter,
    ended: Counter,
    resent: Counter,
    lapsed: Counter,
    running: Gauge,
}

impl Agent {
    fn new(
        ctx: &Context<Settings>,
        client: Client,
        subjects: Subjects,
        (node, machine): (Token, Machine),
        (runs, found): (Arc<Runs>, Vec<Found>),
    ) -> Result<Self, Failure> {
        let m = &ctx.metrics;
        let metrics = Instruments {
            started: m.counter(&RUNS_STARTED),
            ended: m.counter(&RUNS_ENDED),
            resent: m.counter(&REPORTS_RESENT),
            lapsed: m.counter(&LEASES_LAPSED),
            running: m.gauge(&RUNS),
        };
        let jetstream = jetstream::ContextBuilder::new()
            .timeout(ACK_TIMEOUT)
            .ack_timeout(ACK_TIMEOUT)
            .build(client.clone());
        let mut agent = Self {
            client,
            jetstream,
            subjects,
            cell: ctx.cell.name.clone(),
            node,
            machine,
            capacity: v1::Register::default(),
            settings: ctx.settings.clone(),
            runs,
            plan: Plan::new(0),
            held: BTreeSet::new(),
            waiting: BTreeMap::new(),
            leftover: BTreeSet::new(),
            lease: None,
            beat: (Stopwatch::start(), FIRST_BEAT),
            refused: false,
            outbox: VecDeque::new(),
            sending: None,
            beating: None,
            syncing: None,
            logs: BTreeMap::new(),
            kept: VecDeque::new(),
            draining: false,
            sampler: Sampler::new(
                ctx.settings.state_dir.clone(),
                Little {
                    memory_percent: ctx.settings.memory_pressure_percent,
                    disk_percent: ctx.settings.disk_pressure_percent,
                },
            ),
            health: ctx.health.component("lease"),
            metrics,
        };
        agent.find(found)?;
        Ok(agent)
    }

    /// Goes on with what runs, or begins a new life.
    fn find(&mut self, found: Vec<Found>) -> Result<(), Failure> {
        let (mut running, mut ended) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Found::Running(key) => running.push(key),
                Found::Ended(one) => ended.push(one),
                Found::Damaged { path, error, .. } => {
                    tracing::error!(path = %path.display(), %error, "a run's directory is damaged");
                }
            }
        }
        ended.sort_by_key(|one| one.end.ended_ms);
        for key in ended
            .iter()
            .map(|one| one.key)
            .chain(running.iter().copied())
        {
            let newest = self.logs.entry(key.allocation).or_insert(key);
            *newest = key.max(*newest);
        }
        self.kept
            .extend(ended.iter().map(|one| (one.key, one.end.ended_ms)));
        // Within the lease the cell has given nothing of it to others, so what ended meanwhile counts, too.
        let lease = Lease::read(self.runs.dir()).filter(|lease| !lease.stop().is_over());
        match (self.boot_before(), lease) {
            (Some(boot), Some(lease)) => {
                tracing::info!(runs = running.len(), boot, "goes on with what there is");
                self.plan = Plan::resumed(boot, running, ended);
                self.lease = Some(lease);
                self.sync(Duration::ZERO);
                self.tell_capacity()?;
            }
            (before, _) => {
                running
                    .into_iter()
                    .for_each(|key| self.end(key, Duration::ZERO));
                self.begin_life(before.unwrap_or(0))?;
            }
        }
        Ok(())
    }

    fn boot_before(&self) -> Option<u64> {
        let text = identity::files::read(&self.settings.state_dir.join(BOOT)).ok()?;
        text.trim().parse().ok()
    }

    /// The life after the one with this boot. What runs is void for the cell.
    fn begin_life(&mut self, before: u64) -> Result<(), Failure> {
        let boot = now_ms().max(before.saturating_add(1));
        identity::files::write(&self.settings.state_dir.join(BOOT), boot.to_string())?;
        let capacity = capacity::capacity(&self.machine, &self.settings);
        self.capacity = capacity::first(&self.settings.state_dir, capacity)?;
        self.plan = Plan::new(boot);
        self.held.clear();
        self.waiting.clear();
        self.lease = None;
        self.sending = None;
        self.beating = None;
        self.syncing = None;
        self.outbox = VecDeque::from([Said::Register]);
        Ok(())
    }

    /// In a life that goes on: what the cell has not taken yet is told again, which changes nothing where it has.
    fn tell_capacity(&mut self) -> Result<(), Failure> {
        let capacity = capacity::capacity(&self.machine, &self.settings);
        self.capacity = capacity::next(&self.settings.state_dir, capacity)?;
        self.outbox.push_back(Said::Capacity);
        Ok(())
    }

    /// The machine or the configuration may be another one. What runs stays as it is.
    fn look_again(&mut self, ctx: &Context<Settings>) -> Result<(), Failure> {
        match ctx.settings_again() {
            Ok(settings) => {
                self.settings.reserved_cpu_milli = settings.reserved_cpu_milli;
                self.settings.reserved_memory_bytes = settings.reserved_memory_bytes;
                self.settings.max_runs = settings.max_runs;
            }
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
        match machine(&self.settings) {
            Ok(machine) => self.machine = machine,
            Err(error) => tracing::error!(%error, "the machine stays as it was"),
        }
        tracing::info!("looks at the machine and the configuration again");
        self.tell_capacity()
    }

    /// Ends a run that is void; the node comes back when all of them are over.
    fn end(&mut self, key: RunKey, grace: Duration) {
        match self.runs.stop(key, grace) {
            Err(RunError::NotFound(_)) => return,
            // Its shim stops it when the lease is over, and the node waits for that.
            Err(error) => tracing::error!(%key, %error, "a run cannot be stopped"),
            Ok(()) => {}
        }
        self.leftover.insert(key);
    }

    /// The lease is over, or will be before it can be renewed.
    fn give_up(&mut self, grace: Duration) -> Result<(), Failure> {
        let running: Vec<RunKey> = self.plan.running().collect();
        tracing::warn!(runs = running.len(), "what runs is stopped");
        for key in running {
            if !self.held.contains(&key) && !self.waiting.contains_key(&key) {
                self.end(key, grace);
            }
        }
        self.health.not_ready("no lease");
        self.begin_life(self.plan.boot())
    }

    async fn serve(mut self, ctx: &Context<Settings>, mut looks: Signal) -> Result<(), Failure> {
        let shutdown = &ctx.shutdown;
        let subjects = ["assign", "logs"].map(|what| self.subjects.node(self.node.as_str(), what));
        let mut heard = [
            self.hear(&subjects[0]).await?,
            self.hear(&subjects[1]).await?,
        ];
        self.health.not_ready("no lease yet");
        let mut stop_by: Option<(Stopwatch, Duration)> = None;
        loop {
            self.metrics.running.set(self.plan.running().count() as i64);
            self.begin_talks();
            let idle = self.plan.running().next().is_none() && self.outbox.is_empty();
            if self.draining && idle {
                return Ok(());
            }
            let [assign, logs] = &mut heard;
            tokio::select! {
                biased;
                () = shutdown.requested(), if !self.draining => {
                    if self.settings.on_stop == OnStop::Leave {
                        return Ok(());
                    }
                    self.drain();
                    let grace = Duration::from_millis(self.settings.grace_ms.unsigned_abs());
                    stop_by = Some((Stopwatch::start(), grace + ACK_TIMEOUT));
                }
                () = until(stop_by) => return Ok(()),
                () = until_stop(self.lease) => {
                    self.metrics.lapsed.inc();
                    let grace = self.lease.map_or(Duration::ZERO, |lease| lease.grace());
                    self.give_up(grace)?;
                }
                ended = self.runs.next() => self.ended(&ended),
                Some(message) = assign.next() => {
                    if let Ok(told) = v1::Assignment::decode(message.payload) {
                        self.assigned(told)?;
                    }
                }
                received = done(&mut self.sending) => self.received(received),
                list = answered(&mut self.syncing) => self.listed(list)?,
                answer = answered(&mut self.beating) => self.renewed(answer),
                Some(message) = logs.next() => self.answer(message).await,
                Some(()) = looks.recv() => self.look_again(ctx)?,
                () = until(Some(self.beat)), if self.beating.is_none() => self.beat(),
            }
        }
    }

    async fn hear(&mut self, subject: &str) -> Result<Subscriber, AgentError> {
        Ok(self.client.subscribe(subject.to_owned()).await?)
    }

    /// What is to be said next, if nothing is under way.
    fn begin_talks(&mut self) {
        let Some(first) = self.outbox.front() else {
            return;
        };
        if self.sending.is_some() {
            return;
        }
        let (count, report) = match first {
            // Before what ran is over, nothing new may be placed here.
            Said::Register if !self.leftover.is_empty() => return,
            // A life that the cell does not know begins by `Register` alone, when all of the former one is over.
            Said::Capacity if !self.plan.is_known() => return,
            Said::Register | Said::Capacity => {
                let capacity = self.capacity.clone();
                (1, node_report::Report::Register(capacity))
            }
            Said::Run(_) => {
                let reports = self.outbox.iter().map_while(|said| match said {
                    Said::Run(report) => Some(self.run(report)),
                    Said::Register | Said::Capacity => None,
                });
                let runs: Vec<v1::Run> = reports.take(RUNS_MAX).collect();
                (runs.len(), node_report::Report::Runs(v1::Runs { runs }))
            }
        };
        let report = v1::NodeReport {
            boot: self.plan.boot(),
            report: Some(report),
        };
        let (jetstream, subject) = (
            self.jetstream.clone(),
            self.subjects.node(self.node.as_str(), "report"),
        );
        let payload = report.encode_to_vec().into();
        let pause = std::mem::take(&mut self.refused).then_some(ANSWER_TIMEOUT);
        let sending = async move {
            tokio::time::sleep(pause.unwrap_or_default()).await;
            let received = match jetstream.publish(subject, payload).await {
                Ok(ack) => ack.await.is_ok(),
                Err(_) => false,
            };
            if !received {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            received
        };
        self.sending = Some((count, sending.boxed()));
    }

    fn received(&mut self, (count, received): (usize, bool)) {
        if !received {
            self.metrics.resent.inc();
            return;
        }
        for said in self.outbox.drain(..count.min(self.outbox.len())) {
            match said {
                Said::Register => {
                    tracing::info!(node = %self.node, boot = self.plan.boot(), "registered")
                }
                Said::Capacity => {
                    tracing::info!(node = %self.node, change = self.capacity.change, "told what it has")
                }
                Said::Run(report) if report.phase != RunPhase::Started => {
                    self.plan.told(report.key)
                }
                Said::Run(_) => {}
            }
        }
        if self.lease.is_none() && self.beating.is_none() {
            self.beat();
        }
    }

    fn renewed(&mut self, (sent, renewed): Answer) {
        let Some(renewed) = renewed.filter(|it| it.boot == self.plan.boot()) else {
            return;
        };
        let lease = Lease::renewed(sent, renewed.lease_ms).heard_at(sent, renewed.now_ms);
        // What is not written is not held: the shims would stop what they keep.
        if let Err(error) = lease.write(self.runs.dir()) {
            tracing::error!(%error, "the lease cannot be written down");
            return;
        }
        self.beat.1 = lease.beat();
        self.lease = Some(lease);
        self.health.ready();
        for (key, assignment) in std::mem::take(&mut self.waiting) {
            self.start(key, assignment);
        }
    }

    /// A new life first registers.
    fn beat(&mut self) {
        self.beat.0 = Stopwatch::start();
        if matches!(self.outbox.front(), Some(Said::Register)) {
            return;
        }
        let (boot, revision) = (self.plan.boot(), self.plan.revision());
        let subject = self.subjects.node(self.node.as_str(), "heartbeat");
        let (sampler, runs) = (self.sampler.clone(), self.plan.running().count());
        let client = self.client.clone();
        let renewed = async move {
            let measured = sampler.sample(runs).await;
            let beat = v1::Heartbeat {
                boot,
                revision,
                sample: measured.sample,
                conditions: measured.conditions,
            };
            let sent = Moment::now();
            let answer = request(client, subject, beat.encode_to_vec()).await;
            let renewed = answer.and_then(|answer| v1::LeaseRenewed::decode(answer).ok());
            (sent, renewed)
        };
        self.beating = Some(renewed.boxed());
    }

    fn sync(&mut self, after: Duration) {
        let subject = self.subjects.node(self.node.as_str(), "sync");
        let client = self.client.clone();
        let list = async move {
            tokio::time::sleep(after).await;
            let list = request(client, subject, Vec::new()).await;
            list.and_then(|list| v1::AssignmentList::decode(list).ok())
        };
        self.syncing = Some(list.boxed());
    }

    /// Returns why the cell refuses the node, with the limit, the reported value and the remedy.
    fn why_refused(&self, refusal: &v1::Refusal) -> String {
        let why = join::explanation(refusal);
        let reported = self.capacity.capacity.as_ref();
        let reported = reported.and_then(|it| NodeCapacity::decode(&it.encode_to_vec()).ok());
        match (refusal.rule(), reported) {
            (v1::Rule::CapacityNotApproved | v1::Rule::NodeNotApproved, Some(reported)) => {
                let command = reported
                    .approval_command(self.node.as_str(), self.settings.token_file.is_some());
                format!("{why}; to approve it as it is: {command}")
            }
            _ => why,
        }
    }

    fn assigned(&mut self, told: v1::Assignment) -> Result<(), Failure> {
        if let Some(refusal) = told
            .registration_refused
            .as_ref()
            .filter(|_| told.boot == self.plan.boot())
        {
            let why = self.why_refused(refusal);
            tracing::warn!(node = %self.node, why, "the cell refuses the node");
            // One that holds a lease is known, with what it had before.
            if self.lease.is_none() {
                self.health.not_ready("the cell does not take the node");
                self.refused = true;
                self.outbox.push_front(Said::Register);
            }
        }
        let acts = self.plan.assigned(told);
        self.perform(acts)
    }

    fn listed(&mut self, list: Option<v1::AssignmentList>) -> Result<(), Failure> {
        let acts = match list {
            Some(list) => self.plan.listed(list),
            None => {
                self.plan.not_listed();
                // A heartbeat with the old revision brings it up again; what was found is not confirmed by that.
                self.sync(RETRY_PAUSE);
                Vec::new()
            }
        };
        self.perform(acts)
    }

    fn perform(&mut self, acts: Vec<Act>) -> Result<(), Failure> {
        for act in acts {
            match act {
                Act::Start { key, assignment } => self.start(key, assignment),
                Act::Stop { key, by_ms } => self.stop(key, by_ms),
                Act::Report(report) => self.say(report),
                Act::Sync => self.sync(Duration::ZERO),
                Act::RegisterAnew => return self.give_up(Duration::ZERO),
            }
        }
        Ok(())
    }

    fn start(&mut self, key: RunKey, assignment: Box<v1::Assignment>) {
        if self.draining {
            let reports = self.plan.returned(key, Exit::default());
            return self.report(reports);
        }
        if self.lease.is_none_or(|lease| lease.stop().is_over()) {
            self.waiting.insert(key, assignment);
            return;
        }
        let reports = match work::of(&assignment, &self.machine, &self.settings) {
            None => {
                self.held.insert(key);
                self.plan.begun(key)
            }
            Some((work, bounds)) => {
                let env = work::environment(&assignment, &self.node, &self.cell);
                match self.runs.start(key, &work, &bounds, &env) {
                    Ok(()) => {
                        self.metrics.started.inc();
                        self.logs.insert(key.allocation, key);
                        self.plan.begun(key)
                    }
                    Err(error) => {
                        tracing::warn!(%key, %error, "cannot be started");
                        let (phase, exit) = work::refused(&error);
                        self.plan.not_begun(key, phase, exit)
                    }
                }
            }
        };
        self.report(reports);
    }

    fn stop(&mut self, key: RunKey, by_ms: Option<i64>) {
        if self.held.remove(&key) || self.waiting.remove(&key).is_some() {
            let reports = self.plan.let_go(key);
            return self.report(reports);
        }
        let now_ms = self.cell_ms(Moment::now());
        let left = by_ms.map(|by| by.saturating_sub(now_ms));
        let grace_ms = left.unwrap_or(self.settings.grace_ms).max(0);
        let grace = Duration::from_millis(grace_ms.unsigned_abs());
        if let Err(error) = self.runs.stop(key, grace) {
            tracing::error!(%key, %error, "a run cannot be stopped");
        }
    }

    /// Everything is asked to stop, and goes back to the queue.
    fn drain(&mut self) {
        self.draining = true;
        self.health.not_ready("stopping");
        let running: Vec<RunKey> = self.plan.running().collect();
        tracing::info!(runs = running.len(), "what runs is returned");
        for key in running {
            if self.held.remove(&key) || self.waiting.remove(&key).is_some() {
                let reports = self.plan.returned(key, Exit::default());
                self.report(reports);
            } else {
                self.stop(key, None);
            }
        }
    }

    fn ended(&mut self, ended: &Ended) {
        self.metrics.ended.inc();
        self.leftover.remove(&ended.key);
        let reports = match self.draining && !ended.end.exit.succeeded() {
            true => self.plan.returned(ended.key, ended.end.exit),
            false => self.plan.ended(ended),
        };
        self.report(reports);
        self.kept.push_back((ended.key, ended.end.ended_ms));
        self.forget();
    }

    /// When it happened is when it was noticed, at the latest, and not when it is received.
    fn say(&mut self, report: Report) {
        let at = report.at.or_else(|| Some(Moment::now()));
        self.outbox.push_back(Said::Run(Report { at, ..report }));
    }

    /// What the cell's clock showed then. Only a cell of an earlier version does not say, and then it is the node's own clock.
    fn cell_ms(&self, then: Moment) -> i64 {
        let by_cell = self.lease.and_then(|lease| lease.cell_ms(then));
        by_cell.unwrap_or_else(|| {
            let ago_ms = then.ago().as_millis();
            now_ms().saturating_sub(u64::try_from(ago_ms).unwrap_or(0)) as i64
        })
    }

    fn run(&self, report: &Report) -> v1::Run {
        v1::Run {
            allocation_id: report.key.allocation.to_string(),
            phase: report.phase.into(),
            at_ms: self.cell_ms(report.at.unwrap_or_else(Moment::now)),
            revision: report.revision,
            exit: report.exit.map(|exit| work::exit(exit, report.usage)),
        }
    }

    fn report(&mut self, acts: Vec<Act>) {
        for act in acts {
            if let Act::Report(report) = act {
                self.say(report);
            }
        }
    }

    /// Logs that are too many or too old.
    fn forget(&mut self) {
        let oldest = (now_ms() as i64).saturating_sub(self.settings.log_age_ms);
        while let Some((key, ended_ms)) = self.kept.front().copied() {
            if self.kept.len() <= self.settings.logs_max && ended_ms >= oldest {
                return;
            }
            self.kept.pop_front();
            if self.logs.get(&key.allocation) == Some(&key) {
                self.logs.remove(&key.allocation);
            }
            if let Err(error) = self.runs.forget(key) {
                tracing::warn!(%key, %error, "what is kept of a run cannot be removed");
            }
        }
    }

    async fn answer(&mut self, message: async_nats::Message) {
        let Some(reply) = message.reply else {
            return;
        };
        let answer = self.log(&message.payload).unwrap_or_else(|| v1::LogsReply {
            refusal: Some(Refusal::new(Rule::LogUnavailable, "allocation_id").to_prost()),
            ..v1::LogsReply::default()
        });
        if let Err(error) = self
            .client
            .publish(reply, answer.encode_to_vec().into())
            .await
        {
            tracing::warn!(%error, "answer to a question for a log");
        }
    }

    /// None: nothing is kept of it, or it is another tenant's, which is the same for who asks.
    fn log(&self, payload: &[u8]) -> Option<v1::LogsReply> {
        let query = v1::NodeLogsQuery::decode(payload).ok()?;
        let allocation = Uuid::try_parse(&query.allocation_id).ok()?;
        let key = *self.logs.get(&allocation)?;
        let tenant = self.runs.variable(key, work::TENANT)?;
        if tenant != query.tenant {
            return None;
        }
        let bytes_max = LOG_BYTES_MAX.min(query.max_bytes as usize);
        let part = self.runs.log(key, query.offset, bytes_max).ok()?;
        let LogPart {
            offset, bytes, end, ..
        } = part;
        let behind = offset + bytes.len() as u64;
        Some(v1::LogsReply {
            over: end.is_some_and(|end| behind >= end),
            data: bytes,
            refusal: None,
            offset,
            run: key.revision,
        })
    }
}

async fn request(client: Client, subject: String, payload: Vec<u8>) -> Option<bytes::Bytes> {
    let answer = client.request(subject, payload.into());
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok()?;
    answer.ok().map(|answer| answer.payload)
}

fn now_ms() -> u64 {
    Stamp::now().unix_ns() / 1_000_000
}

async fn until(moment: Option<(Stopwatch, Duration)>) {
    match moment {
        Some((since, after)) => tokio::time::sleep(after.saturating_sub(since.elapsed())).await,
        None => pending().await,
    }
}

async fn until_stop(lease: Option<Lease>) {
    match lease {
        Some(lease) => tokio::time::sleep(lease.stop().until()).await,
        None => pending().await,
    }
}

/// What is under way, once it has come.
async fn answered<T>(under_way: &mut Option<BoxFuture<'static, T>>) -> T {
    match under_way {
        Some(future) => {
            let answer = future.await;
            *under_way = None;
            answer
        }
        None => pending().await,
    }
}

async fn done<T>(under_way: &mut Option<(usize, BoxFuture<'static, T>)>) -> (usize, T) {
    match under_way {
        Some((count, future)) => {
            let done = (*count, future.await);
            *under_way = None;
            done
        }
        None => pending().await,
    }
}
