//! Between the agents' subjects and the domain: heartbeats and sync requests in, assignments out.

use crate::{
    domain::{Assignment, Command, Effect},
    wire,
};
use async_nats::Client;
use chassis::{Context, Failure, Heard, Hearing, ReplyTo, Shutdown};
use prometheus_client::metrics::counter::Counter;
use schemas::subjects::Subjects;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use vocab::{CellNo, Token};

const HEARTBEAT: &str = "heartbeat";
const SYNC: &str = "sync";
/// Questions remembered until they are answered.
const ASKED_MAX: usize = 4096;
/// Effects sent in one go.
const EFFECTS_MAX: usize = 4096;

pub struct Agents {
    client: Client,
    subjects: Subjects,
    cell: CellNo,
    hearing: Hearing,
    heard: Counter,
    dropped: Counter,
    sent: Counter,
    /// Sync requests under way, by number.
    asked: BTreeMap<u64, ReplyTo>,
    next_request: u64,
}

impl Agents {
    pub async fn new<T>(ctx: &Context<T>, subjects: Subjects) -> Result<Self, Failure> {
        let m = &ctx.metrics;
        let wanted = [HEARTBEAT, SYNC].map(|what| subjects.node("*", what));
        Ok(Self {
            hearing: ctx.hear(wanted.to_vec(), None).await?,
            client: ctx.nats().await?,
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
                Some(message) = self.hearing.next() => self.hear(message, &commands),
                else => return Ok(()),
            }
        }
    }

    /// An agent whose question is dropped asks again.
    fn hear(&mut self, message: Heard, commands: &mpsc::Sender<Command>) {
        let is_sync = self.subjects.token(&message.subject, 2) == Some(SYNC);
        let command = if is_sync {
            self.sync(message)
        } else {
            self.node(&message)
                .and_then(|node| wire::heartbeat(node, &message.payload))
        };
        match command.map(|command| commands.try_send(command)) {
            Some(Ok(())) if is_sync => {}
            Some(Ok(())) => {
                self.heard.inc();
            }
            Some(Err(_)) | None => {
                self.dropped.inc();
            }
        }
    }

    fn node(&self, message: &Heard) -> Option<Token> {
        let name = self.subjects.token(&message.subject, 1)?;
        Token::new(name).ok()
    }

    fn sync(&mut self, message: Heard) -> Option<Command> {
        let node = self.node(&message)?;
        let request = self.next_request;
        self.next_request += 1;
        self.asked.insert(request, message.reply_to?);
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
                    if let Some(reply_to) = self.asked.remove(&request)
                        && let Err(error) = reply_to.answer(payload.into()).await
                    {
                        tracing::warn!(%error, "sync");
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
