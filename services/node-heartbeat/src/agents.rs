//! Between the agents' subjects and the domain: heartbeats, sync and join requests in, assignments and answers out.

use crate::{line::Line, wire};
use async_nats::Client;
use chassis::{
    Context, Failure, Heard, Hearing, JourneyTap, Metric, ReplyTo, Shutdown, Stamp, Wanted,
};
use identity::NodeSigner;
use node_heartbeat_rules::{Assignment, Command, Effect, IDENTITY_MS};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use vocab::{CellNo, Refusal, Rule, Token, subjects::Subjects};

const HEARTBEATS: Metric =
    Metric::counter("apportion_heartbeats_total", "Heartbeats of nodes heard");
const HEARTBEATS_DROPPED: Metric = Metric::counter(
    "apportion_heartbeats_dropped_total",
    "Heartbeats and questions of nodes that were unreadable, too many, or overtaken by the next ones",
);
const ASSIGNMENTS_SENT: Metric = Metric::counter(
    "apportion_assignments_sent_total",
    "Assignments sent to agents",
);
const NODES_REFUSED: Metric = Metric::counter(
    "apportion_nodes_refused_total",
    "Registrations and joins of nodes that were refused for what was not approved",
);
const NODES_SILENT_TOGETHER: Metric = Metric::gauge(
    "apportion_nodes_silent_together",
    "Nodes that were silent when most were, so that they are lost slowly; 0: the guard does not hold",
);

/// What this service exports beside what all do.
pub const METRICS: &[&Metric] = &[
    &HEARTBEATS,
    &HEARTBEATS_DROPPED,
    &ASSIGNMENTS_SENT,
    &NODES_REFUSED,
    &NODES_SILENT_TOGETHER,
];

const HEARTBEAT: &str = "heartbeat";
const ASSIGN: &str = "assign";
const SYNC: &str = "sync";
/// Questions that the leader has taken, or will, and that are remembered until they are answered.
const ASKED_MAX: usize = 65_536;
/// Effects sent in one go.
const EFFECTS_MAX: usize = 4096;

pub struct Agents {
    client: Client,
    subjects: Subjects,
    cell: CellNo,
    hearing: Hearing,
    /// By a connection of its own: whoever asks to join is no node yet.
    joining: Hearing,
    line: Line,
    /// Nobody can join without.
    signer: Option<NodeSigner>,
    heard: Counter,
    dropped: Counter,
    sent: Counter,
    refused: Counter,
    silent: Gauge,
    tap: JourneyTap,
    /// Sync and join requests under way, by number.
    asked: BTreeMap<u64, ReplyTo>,
    next_request: u64,
}

impl Agents {
    pub async fn new<T>(ctx: &Context<T>, subjects: Subjects) -> Result<Self, Failure> {
        let m = &ctx.metrics;
        let signer = ctx.servers.nats.signing_key.as_ref();
        let signer = signer.map(|key| NodeSigner::parse(key.reveal()));
        let [beats, syncs] = [HEARTBEAT, SYNC].map(|what| Wanted::all(subjects.node("*", what)));
        let joins = Wanted::all(subjects.join());
        Ok(Self {
            hearing: ctx.hear("hearing", vec![beats, syncs]).await?,
            joining: ctx.hear("joining", vec![joins]).await?,
            line: Line::default(),
            signer: signer.transpose()?,
            client: ctx.nats().await?,
            subjects,
            cell: ctx.cell_no(),
            heard: m.counter(&HEARTBEATS),
            dropped: m.counter(&HEARTBEATS_DROPPED),
            sent: m.counter(&ASSIGNMENTS_SENT),
            refused: m.counter(&NODES_REFUSED),
            silent: m.gauge(&NODES_SILENT_TOGETHER),
            tap: ctx.tap.clone(),
            asked: BTreeMap::new(),
            next_request: 0,
        })
    }

    /// Until shutdown.
    pub async fn serve(
        mut self,
        commands: mpsc::Sender<Command>,
        mut effects: mpsc::UnboundedReceiver<Effect>,
        shutdown: &Shutdown,
    ) -> Result<(), Failure> {
        let mut due = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                1.. = effects.recv_many(&mut due, EFFECTS_MAX) => self.perform(due.drain(..)).await?,
                Ok(permit) = commands.reserve(), if !self.line.is_empty() => {
                    if let Some(command) = self.line.take() {
                        permit.send(command);
                    }
                }
                Some(message) = self.hearing.next() => self.hear(message),
                Some(message) = self.joining.next() => self.join(message).await,
                else => return Ok(()),
            }
        }
    }

    /// An agent whose question is dropped asks again.
    fn hear(&mut self, message: Heard) {
        let beats = self.subjects.token(&message.subject, 2) == Some(HEARTBEAT);
        let command = match beats {
            true => self.beat(message),
            false => self.sync(message),
        };
        match command {
            Some(command) => {
                self.heard.inc_by(u64::from(beats));
                self.add(command);
            }
            None => {
                self.dropped.inc();
            }
        }
    }

    /// Nobody waits any more for the answer to what is not in line any more.
    fn add(&mut self, command: Command) {
        let Some(not_in_line) = self.line.add(command) else {
            return;
        };
        self.dropped.inc();
        let request = match not_in_line {
            Command::Sync { request, .. }
            | Command::Heartbeat {
                request: Some(request),
                ..
            } => request,
            Command::Join(join) => join.request,
            _ => return,
        };
        self.asked.remove(&request);
    }

    fn node(&self, message: &Heard) -> Option<Token> {
        let name = self.subjects.token(&message.subject, 1)?;
        Token::new(name).ok()
    }

    fn beat(&mut self, message: Heard) -> Option<Command> {
        let node = self.node(&message)?;
        let request = message.reply_to.map(|reply_to| self.ask(reply_to));
        wire::heartbeat(node, &message.payload, request)
    }

    fn sync(&mut self, message: Heard) -> Option<Command> {
        let node = self.node(&message)?;
        let request = self.ask(message.reply_to?);
        Some(Command::Sync { node, request })
    }

    /// What could not be answered by a user of the bus is refused before it binds the node's name.
    async fn join(&mut self, message: Heard) {
        let Some(reply_to) = message.reply_to else {
            self.dropped.inc();
            return;
        };
        let asked = match self.signer {
            Some(_) => wire::join(&message.payload, self.next_request),
            None => Err(Refusal::new(Rule::NotSupported, "nats.signing_key_file")),
        };
        match asked {
            Ok(command) => {
                self.ask(reply_to);
                self.add(command);
            }
            Err(refusal) => {
                self.refused.inc();
                answer(reply_to, wire::join_refused(&refusal)).await;
            }
        }
    }

    /// Remembers who waits, by the number that the answer will have.
    fn ask(&mut self, reply_to: ReplyTo) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.asked.insert(request, reply_to);
        // Nobody answers while this process stands by.
        if self.asked.len() > ASKED_MAX {
            self.asked.pop_first();
        }
        request
    }

    async fn answer(&mut self, request: u64, payload: Vec<u8>) {
        if let Some(reply_to) = self.asked.remove(&request) {
            answer(reply_to, payload).await;
        }
    }

    /// What was decided together goes out together: one push for each node, in the order of its revisions.
    async fn perform(&mut self, effects: impl Iterator<Item = Effect>) -> Result<(), Failure> {
        let mut pushes: BTreeMap<(Token, u64), Vec<Assignment>> = BTreeMap::new();
        for effect in effects {
            match effect {
                Effect::Assign {
                    node,
                    boot,
                    assignment,
                } => pushes.entry((node, boot)).or_default().push(assignment),
                Effect::RegisterAgain { node, boot } => {
                    self.tell(&node, wire::register_again(boot)).await?;
                }
                Effect::RegistrationRefused {
                    node,
                    boot,
                    refusal,
                } => {
                    tracing::warn!(%node, %refusal, "a registration is refused");
                    self.refused.inc();
                    self.tell(&node, wire::registration_refused(boot, &refusal))
                        .await?;
                }
                Effect::MassLoss(mass) => {
                    self.silent.set(mass.map_or(0, |mass| mass.silent as i64));
                    match mass {
                        Some(it) => tracing::warn!(
                            silent = it.silent,
                            nodes = it.all,
                            "most nodes are silent at once: the network is suspected, and \
                             they are lost slowly"
                        ),
                        None => tracing::info!("no more nodes are silent at once than usual"),
                    }
                }
                Effect::Joined(joined) => {
                    let reply = self.identity(&joined.node, &joined.key);
                    self.answer(joined.request, reply).await;
                }
                Effect::JoinRefused { request, refusal } => {
                    tracing::warn!(%refusal, "a join is refused");
                    self.refused.inc();
                    self.answer(request, wire::join_refused(&refusal)).await;
                }
                Effect::Renewed {
                    request,
                    boot,
                    lease_ms,
                    now,
                } => {
                    self.answer(request, wire::renewed(boot, lease_ms, now))
                        .await;
                }
                Effect::Synced {
                    request,
                    boot,
                    revision,
                    assignments,
                } => {
                    let payload = wire::assignments(revision, &assignments, boot, self.cell);
                    self.answer(request, payload).await;
                }
            }
        }
        for ((node, boot), changes) in pushes {
            for changes in changes.chunks(wire::CHANGES_MAX) {
                let Some(payload) = wire::push(changes, boot, self.cell) else {
                    continue;
                };
                self.sent.inc_by(changes.len() as u64);
                let start = Stamp::now();
                self.tell(&node, payload).await?;
                let subject = self.subjects.node(node.as_str(), ASSIGN);
                for change in changes.iter().filter(|change| !change.stop) {
                    let no = change.allocation;
                    self.tap.published("assign run", no, &subject, start);
                }
            }
        }
        Ok(())
    }

    async fn tell(&self, node: &Token, payload: Vec<u8>) -> Result<(), Failure> {
        let subject = self.subjects.node(node.as_str(), ASSIGN);
        self.client.publish(subject, payload.into()).await?;
        Ok(())
    }

    /// The user of the bus by which the key speaks for the node.
    fn identity(&self, node: &Token, key: &Token) -> Vec<u8> {
        let now_s = i64::try_from(Stamp::now().unix_ns() / 1_000_000_000).unwrap_or(i64::MAX);
        let until_s = now_s.saturating_add(IDENTITY_MS / 1000);
        let signed = self
            .signer
            .as_ref()
            .map(|signer| identity::node_user(signer, node, key.as_str(), now_s, Some(until_s)));
        match signed {
            Some(Ok(user_jwt)) => wire::joined(user_jwt),
            // Both were found out before the name was bound, so this is of a ledger that another process has written.
            Some(Err(error)) => {
                tracing::error!(%error, %node, "no user can be signed");
                wire::join_refused(&Refusal::new(Rule::NotSupported, "public_key"))
            }
            None => wire::join_refused(&Refusal::new(Rule::NotSupported, "nats.signing_key_file")),
        }
    }
}

async fn answer(reply_to: ReplyTo, payload: Vec<u8>) {
    if let Err(error) = reply_to.answer(payload.into()).await {
        tracing::warn!(%error, "answer to an agent");
    }
}
