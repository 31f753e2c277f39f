//! Between the agents' subjects and the domain: heartbeats and sync requests in, assignments out.

use crate::{
    domain::{Command, Effect},
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
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                Some(effect) = effects.recv() => self.perform(effect).await?,
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

    async fn perform(&mut self, effect: Effect) -> Result<(), Failure> {
        let (subject, payload) = match effect {
            Effect::Assign {
                node,
                incarnation,
                assignment,
            } => {
                self.sent.inc();
                let subject = self.subjects.node(node.as_str(), "assign");
                (
                    subject.into(),
                    wire::assignment(&assignment, incarnation, self.cell),
                )
            }
            Effect::RegisterAgain { node, incarnation } => {
                let subject = self.subjects.node(node.as_str(), "assign");
                (subject.into(), wire::register_again(incarnation))
            }
            Effect::Synced {
                request,
                incarnation,
                revision,
                assignments,
            } => {
                let Some(reply) = self.asked.remove(&request) else {
                    return Ok(());
                };
                (
                    reply,
                    wire::assignments(revision, &assignments, incarnation, self.cell),
                )
            }
        };
        Ok(self.client.publish(subject, payload.into()).await?)
    }
}
