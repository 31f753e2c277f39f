//! Between the agents' subjects and the domain: heartbeats and sync requests in, assignments out.

use crate::{
    domain::{Assignment, Command, Effect},
    wire,
};
use async_nats::{Client, Message, Subject, Subscriber};
use chassis::{Context, Failure, Shutdown};
use futures::StreamExt;
use prometheus_client::metrics::counter::Counter;
use schemas::subjects::Subjects;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use vocab::{CellNo, Token};

/// Questions remembered until they are answered.
const ASKED_MAX: usize = 4096;
/// Effects sent in one go.
const EFFECTS_MAX: usize = 4096;

pub struct Agents {
    client: Client,
    subjects: Subjects,
    cell: CellNo,
    heartbeats: Subscriber,
    syncs: Subscriber,
    heard: Counter,
    dropped: Counter,
    sent: Counter,
    /// Sync requests under way, by number.
    asked: BTreeMap<u64, Subject>,
    next_request: u64,
}

impl Agents {
    pub async fn new<T>(ctx: &Context<T>, subjects: Subjects) -> Result<Self, Failure> {
        let client = ctx.nats().await?;
        let m = &ctx.metrics;
        Ok(Self {
            heartbeats: client.subscribe(subjects.node("*", "heartbeat")).await?,
            syncs: client.subscribe(subjects.node("*", "sync")).await?,
            client,
            subjects,
            cell: ctx.cell_no(),
            heard: m.counter("heartbeats", "Heartbeats heard"),
            dropped: m.counter(
                "heartbeats_dropped",
                "Heartbeats and questions unreadable or too many",
            ),
            sent: m.counter("assignments_sent", "Assignments sent to agents"),
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
                Some(message) = self.syncs.next() => {
                    // An agent whose question is dropped asks again.
                    if let Some(command) = self.sync(&message)
                        && commands.try_send(command).is_err()
                    {
                        self.dropped.inc();
                    }
                }
                Some(message) = self.heartbeats.next() => {
                    let command = self.node(&message).and_then(|n| wire::heartbeat(n, &message.payload));
                    match command.map(|command| commands.try_send(command)) {
                        Some(Ok(())) => self.heard.inc(),
                        Some(Err(_)) | None => self.dropped.inc(),
                    };
                }
                else => return Ok(()),
            }
        }
    }

    fn node(&self, message: &Message) -> Option<Token> {
        let name = self.subjects.token(&message.subject, 1)?;
        Token::new(name).ok()
    }

    fn sync(&mut self, message: &Message) -> Option<Command> {
        let node = self.node(message)?;
        let request = self.next_request;
        self.next_request += 1;
        self.asked.insert(request, message.reply.clone()?);
        // Nobody answers while this process stands by.
        if self.asked.len() > ASKED_MAX {
            self.asked.pop_first();
        }
        Some(Command::Sync { node, request })
    }

    /// What was decided together goes out together: one push for each node, in the order of its revisions.
    async fn perform(&mut self, effects: impl Iterator<Item = Effect>) -> Result<(), Failure> {
        let mut pushes: BTreeMap<(Token, u64), Vec<Assignment>> = BTreeMap::new();
        for effect in effects {
            match effect {
                Effect::Assign {
                    node,
                    incarnation,
                    assignment,
                } => pushes
                    .entry((node, incarnation))
                    .or_default()
                    .push(*assignment),
                Effect::RegisterAgain { node, incarnation } => {
                    let subject = self.subjects.node(node.as_str(), "assign");
                    let payload = wire::register_again(incarnation);
                    self.client.publish(subject, payload.into()).await?;
                }
                Effect::Synced {
                    request,
                    incarnation,
                    revision,
                    assignments,
                } => {
                    let payload = wire::assignments(revision, &assignments, incarnation, self.cell);
                    if let Some(reply) = self.asked.remove(&request) {
                        self.client.publish(reply, payload.into()).await?;
                    }
                }
            }
        }
        for ((node, incarnation), changes) in pushes {
            for changes in changes.chunks(wire::CHANGES_MAX) {
                let Some(payload) = wire::push(changes, incarnation, self.cell) else {
                    continue;
                };
                self.sent.inc_by(changes.len() as u64);
                let subject = self.subjects.node(node.as_str(), "assign");
                self.client.publish(subject, payload.into()).await?;
            }
        }
        Ok(())
    }
}
