//! A tenant that sends a little, at moments that were fixed before.

use chassis::Stopwatch;
use client::{Client, Operation};
use futures::{StreamExt, stream::FuturesUnordered};
use schemas::v1::{self, request::Verb};
use std::time::Duration;

pub struct Gentle {
    client: Client,
    period: Duration,
}

#[derive(Debug, Default)]
pub struct Seen {
    /// From the moment that it was due to its outcome, or to when nobody waited for it any more.
    pub micros: Vec<u64>,
    pub unanswered: u64,
}

impl Gentle {
    pub fn new(client: Client, period: Duration) -> Self {
        Self { client, period }
    }

    /// Sends for as long as the window is, and waits for all outcomes.
    pub async fn run(&self, window: Duration) -> Seen {
        let since = Stopwatch::start();
        let mut under_way = FuturesUnordered::new();
        let (mut due, mut seen) = (Duration::ZERO, Seen::default());
        while due < window {
            let pause = tokio::time::sleep(due.saturating_sub(since.elapsed()));
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    Some(done) = under_way.next() => seen.add(done),
                    () = &mut pause => break,
                }
            }
            under_way.push(self.one(since, due));
            due += self.period;
        }
        while let Some(done) = under_way.next().await {
            seen.add(done);
        }
        seen
    }

    /// How long it took, and whether it was answered.
    async fn one(&self, since: Stopwatch, due: Duration) -> (Duration, bool) {
        let id = Operation::fresh_id();
        let create = v1::CreateResource {
            resource: id.clone(),
            slot: None,
        };
        let operation = Operation::new(id, Verb::CreateResource(create));
        let outcome = self.client.call(&operation).await;
        (since.elapsed() - due, outcome.is_ok())
    }
}

impl Seen {
    fn add(&mut self, (took, answered): (Duration, bool)) {
        self.micros.push(took.as_micros() as u64);
        self.unanswered += u64::from(!answered);
    }
}
