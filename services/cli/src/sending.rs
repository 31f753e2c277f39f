//! How an operation is sent, so that its answer is not lost with a connection.

use crate::{Failure, amount, context::Context, print::note};
use chassis::Stopwatch;
use clap::Args;
use client::{AllocationsQuery, Client, Operation};
use data_encoding::HEXLOWER;
use schemas::v1::SettingView;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Between two tries of what may succeed the next time: to reach a bus that is away, and to send what has no outcome yet.
pub const BETWEEN_TRIES: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Args)]
pub struct Sending {
    /// The operation's id; the same one gets the same outcome, and is how a lost one is asked for again. Without it a new one,
    /// which is told on standard error before anything is sent.
    #[arg(long)]
    operation_id: Option<String>,
    /// How long to send it again and again while its outcome is not known: 30s, 5m. Without it, it is sent once. Connecting
    /// and looking up names may each take as long.
    #[arg(long, value_name = "DURATION", value_parser = amount::duration_ms)]
    deadline: Option<i64>,
}

impl Sending {
    /// The id of the next operation, once it is told.
    pub fn id(&self) -> String {
        let id = self.chosen();
        note!("operation {id}");
        id
    }

    /// What the ids of several operations are made of, once it is told.
    pub fn base(&self) -> String {
        let base = self.chosen();
        note!("operations of {base}");
        base
    }

    /// Returns the IDs of the operations for several things, each given by its title and a text that is unique to it, and prints
    /// them. The only one of its command has the chosen ID.
    pub fn ids<'a>(&self, all: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
        if all.len() == 1 {
            return vec![self.id()];
        }
        let base = self.base();
        let ids = all.map(|(title, of)| {
            let id = derived_id(&[&base, of]);
            note!("operation {id}: {title}");
            id
        });
        ids.collect()
    }

    fn chosen(&self) -> String {
        let said = self.operation_id.clone();
        said.unwrap_or_else(Operation::fresh_id)
    }

    /// Whether it is to be this operation and no other.
    pub fn is_repeated(&self) -> bool {
        self.operation_id.is_some()
    }

    /// The version that this operation has given to a setting, if it is one that was sent before and what it set stands.
    pub fn has_set<'v>(&self, mut views: impl Iterator<Item = &'v SettingView>) -> Option<u64> {
        let id = self.operation_id.as_deref()?;
        let set = views.find(|view| view.operation_id == id);
        set.map(|view| view.version)
    }

    /// Waits until the cell tells of allocations all that was decided here, so that the next command sees it.
    pub async fn seen(client: &Client) {
        let query = AllocationsQuery {
            at_lsn: client.decided_lsn(),
            limit: 1,
            ..AllocationsQuery::default()
        };
        if client.allocations(&query).await.is_err() {
            note!("the cell may tell so a moment later");
        }
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
            .map(|ms| Duration::from_millis(ms.unsigned_abs()))
    }

    /// A tenant's connection that sends so.
    pub async fn tenant(&self, context: &Context, tenant: Option<&str>) -> Result<Client, Failure> {
        let deadline = self.deadline();
        self.connected(async || context.tenant_until(tenant, deadline).await)
            .await
    }

    pub async fn operator(&self, context: &Context) -> Result<Client, Failure> {
        let deadline = self.deadline();
        self.connected(async || context.operator_until(deadline).await)
            .await
    }

    /// A bus that is away may come back before the deadline.
    async fn connected(
        &self,
        connect: impl AsyncFn() -> Result<Client, Failure>,
    ) -> Result<Client, Failure> {
        let Some(deadline) = self.deadline() else {
            return connect().await;
        };
        let mut last = None;
        let tries = async {
            loop {
                match connect().await {
                    Err(failure) if failure.is_unreachable() => last = Some(failure),
                    done => return done,
                }
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
        };
        let done = tokio::time::timeout(deadline, tries).await;
        let late = || Failure::unreachable(NotThere(deadline));
        done.unwrap_or_else(|_| Err(last.unwrap_or_else(late)))
    }
}

/// The ID of an operation made of these parts: the same for the same parts.
pub fn derived_id(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
        digest.update([0]);
    }
    HEXLOWER.encode(&digest.finalize()[..16])
}

#[derive(Debug, thiserror::Error)]
#[error("the bus was not there within {} ms", .0.as_millis())]
struct NotThere(Duration);

/// What is left of a deadline that everything together is to keep.
pub struct Left {
    since: Stopwatch,
    deadline: Option<Duration>,
}

impl Left {
    pub fn of(deadline: Option<Duration>) -> Self {
        let since = Stopwatch::start();
        Self { since, deadline }
    }

    /// None where the deadline came first.
    pub async fn within<T>(&self, waits: impl Future<Output = T>) -> Option<T> {
        match self.deadline {
            None => Some(waits.await),
            Some(deadline) => {
                let left = deadline.saturating_sub(self.since.elapsed());
                tokio::time::timeout(left, waits).await.ok()
            }
        }
    }
}
