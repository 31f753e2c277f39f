//! A tenant that sends a little, at moments that were fixed before.

use chassis::Stopwatch;
use client::{Client, NoOutcome, Operation, Outcome};
use futures::{StreamExt, stream::FuturesUnordered};
use schemas::v1::{self, outcome::Result as Decided, request::Verb};
use std::time::Duration;

pub struct Gentle {
    client: Client,
    period: Duration,
}

#[derive(Debug, Default)]
pub struct Seen {
    /// Microseconds from the due moment of each operation to its outcome, or to the end of the patience.
    pub micros: Vec<u64>,
    /// Without an outcome.
    pub unanswered: u64,
    /// With an outcome other than that the resource is created.
    pub not_created: u64,
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

    /// Returns how long it took, and the outcome.
    async fn one(&self, since: Stopwatch, due: Duration) -> (Duration, Result<Outcome, NoOutcome>) {
        let id = Operation::fresh_id();
        let create = v1::CreateResource {
            resource: id.clone(),
            slot: None,
        };
        let operation = Operation::new(id, Verb::CreateResource(create));
        let outcome = self.client.call(&operation).await;
        (since.elapsed() - due, outcome)
    }
}

impl Seen {
    fn add(&mut self, (took, outcome): (Duration, Result<Outcome, NoOutcome>)) {
        self.micros.push(took.as_micros() as u64);
        match outcome.map(|outcome| outcome.result) {
            Ok(Some(Decided::ResourceCreated(_))) => {}
            Ok(_) => self.not_created += 1,
            Err(_) => self.unanswered += 1,
        }
    }
}
