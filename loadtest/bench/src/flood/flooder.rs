//! A tenant that sends whatever the inbox takes, and waits for no outcome.

use crate::kit::figures::{per_s, round};
use async_nats::jetstream;
use bytes::Bytes;
use chassis::{Stopwatch, stack::Stack};
use clap::ValueEnum;
use client::{Client, NoOutcome, Operation, Position};
use futures::future::join_all;
use identity::{Creds, TENANT_SUBSCRIPTIONS_MAX};
use prost::Message;
use replay::{reach::plain, wire::Wire};
use schemas::v1::{self, Batch, Request, request::Verb};
use serde::Serialize;
use std::{io, time::Duration};
use vocab::{Token, subjects::Subjects};

/// What a tenant floods with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Flood {
    /// Batches of submits, for which it has no quota.
    Submits,
    /// Batches of creations of named resources: each is recorded and decided.
    Resources,
    /// Batches of cancels of what is not there.
    Cancels,
    /// Messages as large as the inbox takes them, that are no requests.
    Large,
    /// Connections that come, publish once, and go.
    Connections,
    /// Queries of its feed.
    Queries,
    /// Cancels whose headers the client library cannot read: its connection breaks for each.
    Unreadable,
    /// Cancels on eight connections that wait for no acknowledgement.
    Unacknowledged,
    /// Messages of 60 KB in the same way.
    UnacknowledgedLarge,
    /// Subscriptions to its own feed on 60 connections that are never read, beside creations of resources.
    Feeds,
    /// Queries of its allocations on one connection that waits for no answer.
    Questions,
}

/// Operations in one message.
const BATCH: usize = 200;
const LARGE_BYTES: usize = 96 << 10;
/// Queries, or connections, at a time.
const AT_ONCE: usize = 32;
/// Unreadable messages between two looks whether the server has taken them.
const UNREADABLE_AT_ONCE: usize = 64;
const UNREADABLE: &[u8] = b"NATS/1.0\r\nA: x\rB: y\r\n\r\n";
/// Connections that wait for no acknowledgement.
const UNACKNOWLEDGED: usize = 8;
const UNACKNOWLEDGED_BYTES: usize = 60_000;
/// Bytes that are sent at a time on a connection that waits for nothing.
const SENT_AT_ONCE: usize = 64 << 10;
/// Connections with subscriptions that are never read.
const FEEDS: usize = 60;
const PAUSE: Duration = Duration::from_millis(20);

pub struct Flooder {
    /// Plain ones: a client would wait for outcomes.
    connections: Vec<async_nats::Client>,
    stack: Stack,
    tenant: Token,
    subject: String,
    client: Client,
}

#[derive(Debug, Default)]
pub struct Flooded {
    /// Operations, messages or queries that were taken.
    ops: u64,
    took: Duration,
    drain: Duration,
    phases: u32,
}

impl Flooder {
    /// The client is to ask how far the inbox is.
    pub fn new(
        connections: Vec<async_nats::Client>,
        (stack, tenant): (&Stack, &Token),
        client: Client,
    ) -> Self {
        Self {
            connections,
            stack: stack.clone(),
            tenant: tenant.clone(),
            subject: Subjects::new(&stack.cell.name).ingress(tenant.as_str()),
            client,
        }
    }

    /// For as long as the window is; of outcomes nobody hears.
    pub async fn run(&self, flood: Flood, window: Duration) -> Flooded {
        let since = Stopwatch::start();
        let goes_on = || since.elapsed() < window;
        let ops = match flood {
            Flood::Submits => self.publish(goes_on, || batch(submit)).await,
            Flood::Resources => self.publish(goes_on, || batch(create)).await,
            Flood::Cancels => self.publish(goes_on, || batch(cancel)).await,
            Flood::Large => {
                let large = Bytes::from(vec![0xff; LARGE_BYTES]);
                self.publish(goes_on, || (large.clone(), 1)).await
            }
            Flood::Connections => self.connects(goes_on).await,
            Flood::Queries => self.queries(goes_on).await,
            Flood::Unreadable => told(self.unreadable(goes_on).await),
            Flood::Unacknowledged => {
                let message = self.publication(&request(cancel).encode_to_vec());
                self.unacknowledged(goes_on, UNACKNOWLEDGED, &message).await
            }
            Flood::UnacknowledgedLarge => {
                let message = self.publication(&vec![0xff; UNACKNOWLEDGED_BYTES]);
                self.unacknowledged(goes_on, UNACKNOWLEDGED, &message).await
            }
            Flood::Feeds => {
                let unread = self.unread_feeds().await;
                let taken = self.publish(goes_on, || batch(create)).await;
                drop(unread);
                taken
            }
            Flood::Questions => {
                let subject = Subjects::new(&self.stack.cell.name);
                let subject = subject.query(self.tenant.as_str(), "allocations");
                let question = format!("PUB {subject} _INBOX.nobody 0\r\n\r\n");
                self.unacknowledged(goes_on, 1, question.as_bytes()).await
            }
        };
        Flooded {
            ops,
            took: since.elapsed(),
            ..Flooded::default()
        }
    }

    /// Each connection sends its next message when the inbox has stored the one before.
    async fn publish(&self, goes_on: impl Fn() -> bool, next: impl Fn() -> (Bytes, u64)) -> u64 {
        let (goes_on, next) = (&goes_on, &next);
        let floods = self.connections.iter().map(|connection| async move {
            let inbox = jetstream::new(connection.clone());
            let mut taken = 0;
            while goes_on() {
                let (message, operations) = next();
                taken += stored(&inbox, &self.subject, message, operations).await;
            }
            taken
        });
        join_all(floods).await.iter().sum()
    }

    async fn connects(&self, goes_on: impl Fn() -> bool) -> u64 {
        let goes_on = &goes_on;
        let floods = (0..AT_ONCE).map(|_| async move {
            let mut taken = 0;
            while goes_on() {
                // Refused, once there are as many as it may have.
                if let Ok(connection) = plain(&self.stack, &format!("tenant:{}", self.tenant)).await
                {
                    let (message, operations) = batch(cancel);
                    let inbox = jetstream::new(connection);
                    taken += stored(&inbox, &self.subject, message, operations)
                        .await
                        .min(1);
                }
            }
            taken
        });
        join_all(floods).await.iter().sum()
    }

    async fn queries(&self, goes_on: impl Fn() -> bool) -> u64 {
        let goes_on = &goes_on;
        let floods = (0..AT_ONCE).map(|_| async move {
            let mut answered = 0;
            while goes_on() {
                let page = self.client.feed_page(Position::default(), None, 0).await;
                answered += u64::from(page.is_ok());
            }
            answered
        });
        join_all(floods).await.iter().sum()
    }

    async fn wire(&self) -> io::Result<Wire> {
        let creds = self.stack.creds(&format!("tenant:{}", self.tenant));
        let creds = Creds::read(&creds.map_err(io::Error::other)?).map_err(io::Error::other)?;
        Wire::connect(&self.stack.nats.url, Some(&creds)).await
    }

    fn publication(&self, payload: &[u8]) -> Vec<u8> {
        let line = format!("PUB {} {}\r\n", self.subject, payload.len());
        [line.as_bytes(), payload, b"\r\n"].concat()
    }

    /// Sends a message again and again. Whether it was taken is not known.
    async fn unacknowledged(
        &self,
        goes_on: impl Fn() -> bool,
        connections: usize,
        message: &[u8],
    ) -> u64 {
        let goes_on = &goes_on;
        let count = (SENT_AT_ONCE / message.len()).max(1);
        let messages = message.repeat(count);
        let messages = messages.as_slice();
        let floods = (0..connections).map(|_| async move {
            let mut sent = 0;
            let sending = async {
                let mut wire = self.wire().await?;
                while goes_on() {
                    wire.send(messages).await?;
                    sent += count as u64;
                }
                wire.flush().await
            };
            told(sending.await.map(|_| 0));
            sent
        });
        join_all(floods).await.iter().sum()
    }

    /// As many subscriptions to the feed as a tenant may have on each connection.
    async fn unread_feeds(&self) -> Vec<Wire> {
        let feed = Subjects::new(&self.stack.cell.name).event(self.tenant.as_str(), ">");
        let lines: String = (1..=TENANT_SUBSCRIPTIONS_MAX)
            .map(|number| format!("SUB {feed} {number}\r\n"))
            .collect();
        let mut unread = Vec::new();
        for _ in 0..FEEDS {
            let subscribed = async {
                let mut wire = self.wire().await?;
                wire.send(lines.as_bytes()).await?;
                Ok(wire)
            };
            match subscribed.await {
                Ok(wire) => unread.push(wire),
                Err(error) => drop(told(Err(error))),
            }
        }
        unread
    }

    /// What the inbox has no room for is counted as well: nobody says.
    async fn unreadable(&self, goes_on: impl Fn() -> bool) -> io::Result<u64> {
        let mut wire = self.wire().await?;
        let mut sent = 0;
        while goes_on() {
            for _ in 0..UNREADABLE_AT_ONCE {
                let request = request(cancel).encode_to_vec();
                wire.publish(&self.subject, UNREADABLE, &request).await?;
                sent += 1;
            }
            wire.flush().await?;
        }
        Ok(sent)
    }

    /// Until what was sent is decided: a tenant's messages are one queue, so that the last one's answer says so.
    pub async fn drained(&self) {
        let operation = Operation::new(Operation::fresh_id(), create());
        loop {
            match self.client.call(&operation).await {
                Err(NoOutcome::Indefinite { .. }) => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(NoOutcome::NotReceived { .. }) => return,
            }
        }
    }
}

fn told(sent: io::Result<u64>) -> u64 {
    sent.unwrap_or_else(|error| {
        chassis::note!("loadtest flood: {error}");
        0
    })
}

async fn stored(inbox: &jetstream::Context, subject: &str, message: Bytes, operations: u64) -> u64 {
    let Ok(stored) = inbox.publish(subject.to_owned(), message).await else {
        return 0;
    };
    match stored.await {
        Ok(_) => operations,
        Err(_) => 0,
    }
}

fn create() -> Verb {
    Verb::CreateResource(v1::CreateResource {
        resource: "flood".to_owned(),
        slot: None,
    })
}

fn submit() -> Verb {
    Verb::Submit(v1::Submit {
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
        ..v1::Submit::default()
    })
}

fn cancel() -> Verb {
    Verb::Cancel(v1::Cancel {
        allocation_id: "00000000-0000-0000-0000-000000000000".to_owned(),
    })
}

fn request(verb: fn() -> Verb) -> Request {
    Request {
        operation_id: Operation::fresh_id(),
        verb: Some(verb()),
    }
}

fn batch(verb: fn() -> Verb) -> (Bytes, u64) {
    let requests = (0..BATCH).map(|_| request(verb)).collect();
    let batch = Request {
        operation_id: String::new(),
        verb: Some(Verb::Batch(Batch { requests })),
    };
    (batch.encode_to_vec().into(), BATCH as u64)
}

impl Flooded {
    pub fn add(&mut self, other: &Self, drain: Duration) {
        self.ops += other.ops;
        self.took += other.took;
        self.drain += drain;
        self.phases += 1;
    }

    pub fn ops_per_s(&self) -> u64 {
        per_s(self.ops, self.took)
    }

    pub fn drain_s(&self) -> f64 {
        let mean = self.drain.as_secs_f64() / f64::from(self.phases.max(1));
        round(mean, 2)
    }
}
