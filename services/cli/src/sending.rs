//! How an operation is sent, so that its answer is not lost with a connection.

use crate::{Failure, amount, context::Context, print::note};
use chassis::Stopwatch;
use clap::Args;
use client::{Client, Operation};
use std::time::Duration;

#[derive(Debug, Clone, Args)]
pub struct Sending {
    /// The operation's id; the same one gets the same outcome, and is how a lost one is asked for again. Without it a new one,
    /// which is told on standard error before anything is sent.
    #[arg(long)]
    operation_id: Option<String>,
    /// How long to send it again and again while its outcome is not known: 30s, 5m. Without it, it is sent once.
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

    fn chosen(&self) -> String {
        let said = self.operation_id.clone();
        said.unwrap_or_else(Operation::fresh_id)
    }

    /// Whether it is to be this operation and no other.
    pub fn is_repeated(&self) -> bool {
        self.operation_id.is_some()
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
            .map(|ms| Duration::from_millis(ms.unsigned_abs()))
    }

    /// A tenant's connection that sends so.
    pub async fn tenant(&self, context: &Context, tenant: Option<&str>) -> Result<Client, Failure> {
        context.tenant_until(tenant, self.deadline()).await
    }

    pub async fn operator(&self, context: &Context) -> Result<Client, Failure> {
        context.operator_until(self.deadline()).await
    }
}

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
