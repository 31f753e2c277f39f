//! A simulated fleet: every node's agent, over one connection and in one task.
//!
//! The agents speak the nodes' protocol as it stands in `node.proto`. They know how long a run takes from whoever
//! starts the fleet, and tell time by the recorded clock.

mod agent;
pub mod stand;
mod turns;

pub use agent::{Act, Agent, Conflict, RunId};

use crate::workload::Node;
use async_nats::jetstream;
use bytes::Bytes;
use chassis::{Clock, Stamp, Stopwatch};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use node_heartbeat::RUNS_MAX;
use prost::Message;
use schemas::{
    ToProst as _,
    v1::{
        Assignment, AssignmentList, GpuSample, Heartbeat, LeaseRenewed, NodeReport, NodeSample,
        Register, Run, RunPhase, Runs, node_report::Report,
    },
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    future::pending,
    iter::once,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;
use turns::Turns;
use vocab::subjects::Subjects;

/// Reports whose acknowledgement is outstanding; more wait their turn.
const UNACKNOWLEDGED_MAX: usize = 2_048;
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Heartbeats are spread over their period in steps of this length.
const HEARTBEAT_STEP: Duration = Duration::from_millis(25);
/// What simulated nodes say of all that they do not have.
const SIMULATED_BYTES: u64 = 64 << 30;

/// How long an assigned run takes, in recorded ms; none: until it is stopped.
pub type Lifetime = Arc<dyn Fn(&Assignment) -> Option<i64> + Send + Sync>;

pub struct FleetOptions {
    pub url: String,
    /// Whose certificates the bus's servers have, if they have any.
    pub ca_file: Option<PathBuf>,
    /// Of the user that is all nodes.
    pub creds: PathBuf,
    pub cell: String,
    pub nodes: Vec<Node>,
    pub clock: Clock,
    /// Real time between two heartbeats of a node.
    pub heartbeat: Duration,
    /// Real time from one report of a node to its next, at least; what comes up meanwhile goes in one message, which goes out
    /// when it is full.
    pub report_pause: Duration,
    /// Whether a heartbeat asks how long the lease is, as real agents do.
    pub asks: bool,
    pub lifetime: Lifetime,
}

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("the fleet cannot connect to {url}: {source}")]
    Connect {
        url: String,
        source: async_nats::ConnectError,
    },
    #[error(transparent)]
    Authority(#[from] identity::BadAuthority),
    #[error("the fleet cannot hear its assignments: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
}

/// What the agents did and saw.
#[derive(Debug, Clone, Default)]
pub struct FleetTally {
    pub assignments: u64,
    pub started: u64,
    pub finished: u64,
    pub heartbeats: u64,
    /// How late a heartbeat was sent, at the most.
    pub late_max: Duration,
    /// To heartbeats that ask.
    pub answers: u64,
    /// From one answer that a node got to its next one, at the most; silent nodes do not count.
    pub answer_gap_max: Duration,
    /// As the last answer has it; 0: there was none.
    pub lease_ms: i64,
    pub syncs: u64,
    /// Nodes that were told to register anew.
    pub registered_again: u64,
    /// Reports that were sent again because their acknowledgement did not come.
    pub resent: u64,
    /// Of all reports of runs, each counted once.
    pub report_bytes: u64,
    pub conflicts: Vec<Conflict>,
}

type Shared<T> = Arc<Mutex<T>>;

/// Counters are never left half changed, so a poisoned lock is as good as any.
fn locked<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until it is dropped.
pub struct Fleet {
    tally: Shared<FleetTally>,
    silent: Shared<Range<usize>>,
    task: JoinHandle<()>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    /// Connects, registers every node and goes on by itself. Returns when all registrations are acknowledged.
    pub async fn start(options: FleetOptions) -> Result<Self, FleetError> {
        let connect = identity::connect(options.creds);
        let nats = identity::trusting(connect, options.ca_file.as_deref())?
            .name("apportion simulated fleet")
            .connect(&options.url)
            .await
            .map_err(|source| FleetError::Connect {
                url: options.url.clone(),
                source,
            })?;
        let subjects = Subjects::new(options.cell);
        let assignments = nats.subscribe(subjects.node("*", "assign")).await?;
        let answers_to = options.asks.then(|| nats.new_inbox());
        let answers = match &answers_to {
            Some(inbox) => nats.subscribe(format!("{inbox}.*")).await?.boxed(),
            None => stream::pending().boxed(),
        };
        let jetstream = jetstream::ContextBuilder::new()
            .timeout(ACK_TIMEOUT)
            .ack_timeout(ACK_TIMEOUT)
            .max_ack_inflight(UNACKNOWLEDGED_MAX)
            .backpressure_on_inflight(true)
            .build(nats.clone());
        let tally = Shared::<FleetTally>::default();
        let inbox = Inbox {
            nats,
            jetstream,
            subjects: Arc::new(subjects),
            answers_to,
            tally: tally.clone(),
        };
        let members: Vec<Member> = options.nodes.into_iter().map(Member::new).collect();
        let mut registrations: FuturesUnordered<_> = members
            .iter()
            .map(|member| inbox.report(member, member.register()))
            .collect();
        while registrations.next().await.is_some() {}
        drop(registrations);
        let silent = Shared::<Range<usize>>::default();
        let names = members.iter().map(|member| member.node.name.to_string());
        let brain = Brain {
            inbox,
            clock: options.clock,
            lifetime: options.lifetime,
            heartbeat: options.heartbeat,
            silent: silent.clone(),
            turns: Turns::new(members.len(), options.report_pause),
            since: Stopwatch::start(),
            by_name: names.zip(0..).collect(),
            members,
            wakes: BinaryHeap::new(),
            under_way: FuturesUnordered::new(),
        };
        Ok(Self {
            tally,
            silent,
            task: tokio::spawn(brain.run(assignments, answers)),
        })
    }

    pub fn tally(&self) -> FleetTally {
        locked(&self.tally).clone()
    }

    /// Whether heartbeats are held back, as if they got lost on their way. All else goes on.
    pub fn silence(&self, silent: bool) {
        self.silence_those(if silent { 0..usize::MAX } else { 0..0 });
    }

    /// The same of these nodes only, by their place among all; the others are heard.
    pub fn silence_those(&self, nodes: Range<usize>) {
        *locked(&self.silent) = nodes;
    }
}

/// A node with its agent.
struct Member {
    node: Node,
    agent: Agent,
    boot: u64,
    /// When its last heartbeat was answered that asked.
    answered: Option<Duration>,
    /// What is to be reported when it is the node's turn: the synced write at the inbox then costs the same for all of it.
    unreported: Vec<(RunId, RunPhase, i64)>,
}

impl Member {
    fn new(node: Node) -> Self {
        Self {
            node,
            agent: Agent::default(),
            boot: wall_ms(),
            answered: None,
            unreported: Vec::new(),
        }
    }

    fn name(&self) -> &str {
        self.node.name.as_str()
    }

    fn register(&self) -> Report {
        Report::Register(Register {
            capacity: Some(self.node.capacity.to_prost()),
            change: 0,
        })
    }

    fn heartbeat(&self) -> Bytes {
        let message = Heartbeat {
            boot: self.boot,
            revision: self.agent.revision(),
            sample: Some(self.sample()),
            ..Heartbeat::default()
        };
        message.encode_to_vec().into()
    }

    /// As large as a real agent's: half of what the node has is in use, whatever runs there.
    fn sample(&self) -> NodeSample {
        let capacity = &self.node.capacity;
        let gpu = |device| GpuSample {
            device,
            busy_milli: 500,
            memory_bytes: SIMULATED_BYTES,
        };
        NodeSample {
            cpu_milli: capacity.cpu_milli / 2,
            memory_bytes: capacity.memory_bytes / 2,
            gpus: (0..u32::from(capacity.gpus)).map(gpu).collect(),
            disk_used_bytes: SIMULATED_BYTES,
            disk_free_bytes: SIMULATED_BYTES,
            network_received_bytes: SIMULATED_BYTES,
            network_sent_bytes: SIMULATED_BYTES,
            load_milli: capacity.cpu_milli / 2,
            oom_kills: 0,
            runs: u32::try_from(self.agent.runs()).unwrap_or(u32::MAX),
        }
    }
}

/// Grows from one fleet to the next, which takes longer than a millisecond.
fn wall_ms() -> u64 {
    Stamp::now().unix_ns() / 1_000_000
}

/// The way to node-heartbeat.
#[derive(Clone)]
struct Inbox {
    nats: async_nats::Client,
    jetstream: jetstream::Context,
    subjects: Arc<Subjects>,
    /// Behind this stands a node's place among all.
    answers_to: Option<String>,
    tally: Shared<FleetTally>,
}

impl Inbox {
    /// Publishes a report until it is acknowledged. Reports are idempotent, so sending one twice does no harm.
    fn report(&self, member: &Member, report: Report) -> impl Future<Output = ()> + Send + use<> {
        let inbox = self.clone();
        let subject = self.subjects.node(member.name(), "report");
        let message = NodeReport {
            boot: member.boot,
            report: Some(report),
        };
        let payload = Bytes::from(message.encode_to_vec());
        async move {
            loop {
                let published = inbox
                    .jetstream
                    .publish(subject.clone(), payload.clone())
                    .await;
                let error = match published {
                    Ok(ack) => match ack.await {
                        Ok(_) => return,
                        Err(error) => error,
                    },
                    Err(error) => error,
                };
                tracing::debug!(subject, %error, "report not acknowledged, sending it again");
                locked(&inbox.tally).resent += 1;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Lossy by design: a heartbeat that cannot be sent is as good as one that gets lost.
    async fn heartbeat(&self, node: usize, member: &Member) {
        let subject = self.subjects.node(member.name(), "heartbeat");
        let beat = member.heartbeat();
        let sent = match &self.answers_to {
            Some(inbox) => {
                let reply = format!("{inbox}.{node}");
                self.nats.publish_with_reply(subject, reply, beat).await
            }
            None => self.nats.publish(subject, beat).await,
        };
        if let Err(error) = sent {
            tracing::debug!(node = member.name(), %error, "heartbeat not sent");
        }
    }

    fn sync(&self, member: &Member) -> impl Future<Output = Option<AssignmentList>> + Send + use<> {
        let nats = self.nats.clone();
        let subject = self.subjects.node(member.name(), "sync");
        let payload = member.heartbeat();
        async move {
            let answer = nats.request(subject.clone(), payload).await;
            let answer = answer.inspect_err(|error| tracing::debug!(subject, %error, "no list"));
            AssignmentList::decode(answer.ok()?.payload).ok()
        }
    }
}

/// What came of something that was under way.
enum Done {
    Registered,
    Reported {
        node: usize,
        runs: Vec<(RunId, RunPhase)>,
    },
    Synced {
        node: usize,
        list: Option<AssignmentList>,
    },
}

/// All agents. One task owns them, so nothing is locked.
struct Brain {
    inbox: Inbox,
    clock: Clock,
    lifetime: Lifetime,
    heartbeat: Duration,
    silent: Shared<Range<usize>>,
    since: Stopwatch,
    turns: Turns,
    members: Vec<Member>,
    by_name: BTreeMap<String, usize>,
    /// Ends of runs, earliest first.
    wakes: BinaryHeap<Reverse<(i64, usize, RunId)>>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
}

impl Brain {
    async fn run(
        mut self,
        mut assignments: async_nats::Subscriber,
        mut answers: BoxStream<'static, async_nats::Message>,
    ) {
        let mut step = tokio::time::interval(HEARTBEAT_STEP);
        step.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut beats = Beats::new(self.members.len(), self.heartbeat);
        loop {
            let next_turn = self.turns.next();
            let since = self.since;
            let next_wake = self.wakes.peek().map(|Reverse((at_ms, ..))| *at_ms);
            let clock = self.clock.clone();
            tokio::select! {
                message = assignments.next() => match message {
                    Some(message) => self.pushed(&message),
                    None => return,
                },
                Some(answer) = answers.next() => self.answered(&answer),
                Some(done) = self.under_way.next() => self.done(done),
                () = async { match next_wake {
                    Some(at_ms) => clock.sleep_until(at_ms).await,
                    None => pending().await,
                }} => self.wake(),
                () = async { match next_turn {
                    Some(at) => tokio::time::sleep(at.saturating_sub(since.elapsed())).await,
                    None => pending().await,
                }} => while let Some(node) = self.turns.due(since.elapsed()) {
                    self.report(node);
                },
                _ = step.tick() => {
                    let late = beats.late(since.elapsed());
                    let silent = locked(&self.silent).clone();
                    for node in beats.due(since.elapsed()) {
                        if silent.contains(&node) {
                            self.members[node].answered = None;
                            continue;
                        }
                        self.inbox.heartbeat(node, &self.members[node]).await;
                        let mut tally = locked(&self.inbox.tally);
                        tally.heartbeats += 1;
                        tally.late_max = tally.late_max.max(late);
                    }
                }
            }
        }
    }

    fn answered(&mut self, message: &async_nats::Message) {
        let node = message.subject.rsplit('.').next();
        let node = node.and_then(|node| self.members.get_mut(node.parse::<usize>().ok()?));
        let renewed = LeaseRenewed::decode(message.payload.clone());
        let (Some(member), Ok(renewed)) = (node, renewed) else {
            return;
        };
        let now = self.since.elapsed();
        let before = member.answered.replace(now).unwrap_or(now);
        let mut tally = locked(&self.inbox.tally);
        tally.answers += 1;
        tally.lease_ms = renewed.lease_ms;
        tally.answer_gap_max = tally.answer_gap_max.max(now.saturating_sub(before));
    }

    fn pushed(&mut self, message: &async_nats::Message) {
        let node = self.inbox.subjects.token(&message.subject, 1);
        let Some(&node) = node.and_then(|name| self.by_name.get(name)) else {
            return;
        };
        match Assignment::decode(message.payload.clone()) {
            // To a former life of the agent; it was under way when this one began.
            Ok(change) if change.boot != self.members[node].boot => {}
            Ok(change) if change.register_again => self.register_again(node),
            Ok(mut change) => {
                let more = std::mem::take(&mut change.more);
                locked(&self.inbox.tally).assignments += 1 + more.len() as u64;
                let now_ms = self.clock.now_ms();
                let mut acts = Vec::new();
                for change in once(change).chain(more) {
                    let lifetime_ms = (self.lifetime)(&change);
                    let agent = &mut self.members[node].agent;
                    acts.extend(agent.assigned(&change, lifetime_ms, now_ms));
                }
                self.act(node, acts);
            }
            Err(error) => tracing::warn!(subject = %message.subject, %error, "no assignment"),
        }
    }

    /// The cell gave the node up: it comes back as a new boot with nothing running.
    fn register_again(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.agent.given_up();
        member.unreported.clear();
        member.boot = wall_ms().max(member.boot + 1);
        let report = self.inbox.report(member, member.register());
        self.under_way
            .push(report.map(|()| Done::Registered).boxed());
        locked(&self.inbox.tally).registered_again += 1;
    }

    fn done(&mut self, done: Done) {
        let now_ms = self.clock.now_ms();
        let (node, acts) = match done {
            Done::Registered => return,
            Done::Reported { node, runs } => {
                let mut acts = Vec::new();
                let mut tally = locked(&self.inbox.tally);
                let member = &mut self.members[node];
                self.turns.acknowledged(node);
                for (run, phase) in runs {
                    match phase {
                        RunPhase::Started => tally.started += 1,
                        _ => tally.finished += 1,
                    }
                    acts.extend(member.agent.reported(&run, phase, now_ms));
                }
                (node, acts)
            }
            Done::Synced { node, list } => match list {
                Some(list) if list.boot == self.members[node].boot => {
                    let lifetime = self.lifetime.clone();
                    let agent = &mut self.members[node].agent;
                    (node, agent.listed(&list, |change| lifetime(change), now_ms))
                }
                _ => {
                    self.members[node].agent.unanswered();
                    (node, Vec::new())
                }
            },
        };
        self.act(node, acts);
    }

    fn wake(&mut self) {
        let now_ms = self.clock.now_ms();
        while let Some(Reverse((at_ms, ..))) = self.wakes.peek() {
            if *at_ms > now_ms {
                return;
            }
            // Never empty: just peeked.
            let Some(Reverse((_, node, run))) = self.wakes.pop() else {
                return;
            };
            let acts = self.members[node].agent.due(&run, now_ms);
            self.act(node, acts);
        }
    }

    fn act(&mut self, node: usize, acts: Vec<Act>) {
        let known = locked(&self.inbox.tally).conflicts.len();
        let seen: usize = self.members[node].agent.conflicts().len();
        if seen > 0 {
            // Rare to the point of never, so collecting them anew each time costs nothing.
            let all: Vec<Conflict> = self
                .members
                .iter()
                .flat_map(|member| member.agent.conflicts().to_vec())
                .collect();
            if all.len() > known {
                locked(&self.inbox.tally).conflicts = all;
            }
        }
        for act in acts {
            match act {
                Act::Wake { run, at_ms } => self.wakes.push(Reverse((at_ms, node, run))),
                Act::Report { run, phase, at_ms } => {
                    self.members[node].unreported.push((run, phase, at_ms));
                }
                Act::Sync => {
                    locked(&self.inbox.tally).syncs += 1;
                    let sync = self.inbox.sync(&self.members[node]);
                    self.under_way
                        .push(sync.map(move |list| Done::Synced { node, list }).boxed());
                }
            }
        }
        self.report(node);
    }

    /// If there is anything to report, and it is the node's turn.
    fn report(&mut self, node: usize) {
        let member = &mut self.members[node];
        let full = member.unreported.len() >= RUNS_MAX;
        if member.unreported.is_empty() || !self.turns.take(node, self.since.elapsed(), full) {
            return;
        }
        let count = member.unreported.len().min(RUNS_MAX);
        let due: Vec<_> = member.unreported.drain(..count).collect();
        let run = |(run, phase, at_ms): &(RunId, RunPhase, i64)| Run {
            allocation_id: run.allocation.clone(),
            phase: (*phase).into(),
            at_ms: *at_ms,
            revision: run.revision,
            exit: None,
        };
        let report = Runs {
            runs: due.iter().map(run).collect(),
        };
        locked(&self.inbox.tally).report_bytes += report.encoded_len() as u64;
        let report = Report::Runs(report);
        let runs = due
            .into_iter()
            .map(|(run, phase, _)| (run, phase))
            .collect();
        let report = self.inbox.report(&self.members[node], report);
        let done = report.map(move |()| Done::Reported { node, runs });
        self.under_way.push(done.boxed());
    }
}

/// Spreads one heartbeat per node and period evenly, whatever the steps are.
struct Beats {
    nodes: u128,
    period_us: u128,
    sent: u128,
}

impl Beats {
    fn new(nodes: usize, period: Duration) -> Self {
        Self {
            nodes: nodes as u128,
            period_us: period.as_micros().max(1),
            sent: 0,
        }
    }

    /// How long the next node's turn has come already.
    fn late(&self, elapsed: Duration) -> Duration {
        let due_us = (self.sent + 1) * self.period_us / self.nodes.max(1);
        let due = Duration::from_micros(u64::try_from(due_us).unwrap_or(u64::MAX));
        elapsed.saturating_sub(due)
    }

    /// The nodes whose turn has come. After a long pause each at most once: late heartbeats say nothing new.
    fn due(&mut self, elapsed: Duration) -> Vec<usize> {
        let target = elapsed.as_micros() * self.nodes / self.period_us;
        self.sent = self.sent.max(target.saturating_sub(self.nodes));
        let due = (self.sent..target).map(|beat| (beat % self.nodes.max(1)) as usize);
        let due = due.collect();
        self.sent = target.max(self.sent);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_beats_once_in_a_period() {
        let mut beats = Beats::new(3, Duration::from_millis(300));
        let at = |ms| Duration::from_millis(ms);
        assert_eq!(beats.due(at(50)), [0usize; 0]);
        assert_eq!(beats.due(at(100)), [0]);
        assert_eq!(beats.due(at(300)), [1, 2]);
        assert_eq!(beats.due(at(300)), [0usize; 0]);
        assert_eq!(beats.due(at(60_000)).len(), 3);
        assert_eq!(beats.due(at(60_100)).len(), 1);
        assert_eq!(beats.late(at(60_150)), Duration::ZERO);
        assert_eq!(beats.late(at(60_230)), at(30));
    }
}
