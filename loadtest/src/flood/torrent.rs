//! A tenant that sends whatever the door takes, and waits for no outcome.

use async_nats::jetstream;
use bytes::Bytes;
use chassis::Stopwatch;
use client::{Client, NoOutcome, Operation};
use futures::future::join_all;
use prost::Message;
use schemas::v1::{self, Batch, Request, request::Verb};
use std::time::Duration;

/// Operations in one message.
const BATCH: usize = 200;
const PAUSE: Duration = Duration::from_millis(20);

pub struct Torrent {
    /// Plain ones: a client would wait for outcomes.
    connections: Vec<jetstream::Context>,
    subject: String,
    client: Client,
}

#[derive(Debug, Default)]
pub struct Flooded {
    ops: u64,
    took: Duration,
    drain: Duration,
    phases: u32,
}

impl Torrent {
    /// The client is to ask how far the door is.
    pub fn new(connections: Vec<async_nats::Client>, subject: String, client: Client) -> Self {
        Self {
            connections: connections.into_iter().map(jetstream::new).collect(),
            subject,
            client,
        }
    }

    /// Each connection sends its next message when the door has stored the one before; of outcomes nobody hears.
    pub async fn run(&self, window: Duration) -> Flooded {
        let since = Stopwatch::start();
        let floods = self.connections.iter().map(|connection| async move {
            let mut ops = 0;
            while since.elapsed() < window {
                let sent = connection.publish(self.subject.clone(), batch()).await;
                if let Ok(stored) = sent
                    && stored.await.is_ok()
                {
                    ops += BATCH as u64;
                }
            }
            ops
        });
        let ops = join_all(floods).await.iter().sum();
        Flooded {
            ops,
            took: since.elapsed(),
            ..Flooded::default()
        }
    }

    /// Until what was sent is decided: the door is one queue, so that the last one's answer says so.
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

fn create() -> Verb {
    Verb::CreateResource(v1::CreateResource {
        resource: "flood".to_owned(),
        slot: None,
    })
}

fn batch() -> Bytes {
    let request = |_| Request {
        operation_id: Operation::fresh_id(),
        verb: Some(create()),
    };
    let requests = (0..BATCH).map(request).collect();
    let batch = Request {
        operation_id: String::new(),
        verb: Some(Verb::Batch(Batch { requests })),
    };
    batch.encode_to_vec().into()
}

impl Flooded {
    pub fn add(&mut self, other: &Self, drain: Duration) {
        self.ops += other.ops;
        self.took += other.took;
        self.drain += drain;
        self.phases += 1;
    }

    pub fn ops_per_s(&self) -> u64 {
        (self.ops as f64 / self.took.as_secs_f64().max(1e-9)) as u64
    }

    pub fn drain_s(&self) -> f64 {
        let mean = self.drain.as_secs_f64() / f64::from(self.phases.max(1));
        (mean * 100.0).round() / 100.0
    }
}
