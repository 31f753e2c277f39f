//! A tenant that sends whatever the inbox takes, and waits for no outcome.

use crate::kit::figures::{per_s, round};
use async_nats::jetstream;
use bytes::Bytes;
use chassis::{Stopwatch, stack::Stack};
use clap::ValueEnum;
use client::{Client, NoOutcome, Operation, Position};
use futures::future::join_all;
use identity::Creds;
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
}

/// Operations in one message.
const BATCH: usize = 200;
const LARGE_BYTES: usize = 96 << 10;
/// Queries, or connections, at a time.
const AT_ONCE: usize = 32;
/// Unreadable messages between two looks whether the server has taken them.
const UNREADABLE_AT_ONCE: usize = 64;
const UNREADABLE: &[u8] = b"NATS/1.0\r\nA: x\rB: y\r\n\r\n";
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
            Flood::Unreadable => self.unreadable(goes_on).await.unwrap_or_else(|error| {
                chassis::note!("loadtest flood: unreadable: {error}");
                0
            }),
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

    /// What the inbox has no room for is counted as well: nobody says.
    async fn unreadable(&self, goes_on: impl Fn() -> bool) -> io::Result<u64> {
        let creds = self.stack.creds(&format!("tenant:{}", self.tenant));
        let creds = Creds::read(&creds.map_err(io::Error::other)?).map_err(io::Error::other)?;
        let mut wire = Wire::connect(&self.stack.nats.url, Some(&creds)).await?;
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
