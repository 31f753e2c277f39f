//! Another tenant that sends as much as the inbox takes, in a thread of its own, as if from elsewhere.

use super::{
    book::{Ask, Asked},
    clients::published,
    plan,
    scene::Scene,
};
use async_nats::jetstream;
use bytes::Bytes;
use chassis::stack::Stack;
use ledger::memory::Seeded;
use prost::Message;
use replay::reach::{ReachError, plain};
use schemas::v1::{Batch, Cancel, Request, request::Verb};
use std::{io, sync::Arc, thread, time::Duration};
use tokio::sync::oneshot;
use vocab::{AllocationNo, CellNo, Token, subjects::Subjects};

/// What each of the flood's submits asks for.
pub const ASK: Ask = Ask {
    cpu_milli: 1_000,
    memory_bytes: 1 << 30,
    gpu_milli: 0,
};
const RUN_MS: u64 = 500;
/// Operations in one message.
const BATCH: usize = 200;
/// Of one flood: thousands, and not so many that the feeds cannot be compared event by event.
const OPERATIONS_MAX: usize = 4_000;
const CONNECTIONS: usize = 60;
/// What the inbox takes, with its headers; half as much again as a request may have.
const LARGE_BYTES: u64 = 95 << 10;
const LARGE_MAX: usize = 400;

#[derive(Debug, thiserror::Error)]
pub enum FloodError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error("the flood's thread: {0}")]
    Io(#[from] io::Error),
    #[error("the flood's thread has gone")]
    Gone,
}

/// Floods for as long as it is let, and returns how many messages the inbox took.
pub async fn flood(
    scene: &Arc<Scene>,
    stack: &Stack,
    tenant: &Token,
    (kind, no, length): (plan::Flood, usize, Duration),
) -> Result<u64, FloodError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let flooding = Flooder {
        scene: scene.clone(),
        stack: stack.clone(),
        tenant: tenant.clone(),
        until: scene.now() + length,
        prefix: format!("{tenant}-flood-{no}"),
    };
    let (done, result) = oneshot::channel();
    thread::Builder::new()
        .name("flood".to_owned())
        .spawn(move || {
            let sent = runtime.block_on(flooding.run(kind, no as u64));
            // Whoever waited has gone, then.
            let _ = done.send(sent);
        })?;
    Ok(result.await.map_err(|_| FloodError::Gone)??)
}

struct Flooder {
    scene: Arc<Scene>,
    stack: Stack,
    tenant: Token,
    until: Duration,
    /// Of the operations' ids.
    prefix: String,
}

impl Flooder {
    async fn run(self, kind: plan::Flood, seed: u64) -> Result<u64, ReachError> {
        match kind {
            plan::Flood::Submits => self.batches(Asked::Submit(ASK)).await,
            plan::Flood::Cancels => self.batches(Asked::Cancel).await,
            plan::Flood::Large => self.large(seed).await,
            plan::Flood::Connections => self.connections().await,
        }
    }

    fn goes_on(&self) -> bool {
        self.scene.now() < self.until
    }

    async fn inbox(&self) -> Result<(jetstream::Context, String), ReachError> {
        let nats = plain(&self.stack, &format!("tenant:{}", self.tenant)).await?;
        let subject = Subjects::new(&self.stack.cell.name).ingress(self.tenant.as_str());
        Ok((jetstream::new(nats), subject))
    }

    async fn batches(&self, asked: Asked) -> Result<u64, ReachError> {
        let (inbox, subject) = self.inbox().await?;
        let mut taken = 0;
        for batch in 0..OPERATIONS_MAX / BATCH {
            if !self.goes_on() {
                break;
            }
            let first = batch * BATCH;
            let ids = (first..first + BATCH).map(|no| format!("{}-{no}", self.prefix));
            let requests: Vec<Request> = ids.map(|id| self.request(asked, id)).collect();
            taken += u64::from(self.send(&inbox, &subject, requests, asked).await);
        }
        Ok(taken)
    }

    fn request(&self, asked: Asked, id: String) -> Request {
        let verb = match asked {
            Asked::Submit(ask) => Verb::Submit(ask.submit("flood", &id, RUN_MS)),
            Asked::Cancel | Asked::SetPriority => Verb::Cancel(Cancel {
                allocation_id: AllocationNo(u64::MAX)
                    .id(CellNo(self.stack.cell.number))
                    .to_string(),
            }),
        };
        Request {
            operation_id: id,
            verb: Some(verb),
        }
    }

    /// What the inbox takes is recorded: each of it needs its outcome, in the feed.
    async fn send(
        &self,
        inbox: &jetstream::Context,
        subject: &str,
        requests: Vec<Request>,
        asked: Asked,
    ) -> bool {
        let ids: Vec<String> = requests
            .iter()
            .map(|one| one.operation_id.clone())
            .collect();
        let now = self.scene.now();
        for id in &ids {
            let mut book = self.scene.book();
            book.sent(id, &self.tenant, asked, now, false);
        }
        let batch = Request {
            operation_id: String::new(),
            verb: Some(Verb::Batch(Batch { requests })),
        };
        let taken = published(inbox, subject, batch.encode_to_vec().into()).await;
        if taken {
            let mut book = self.scene.book();
            ids.iter().for_each(|id| book.acknowledged(id));
        }
        taken
    }

    /// Bytes that are no request, up to far more than one may have. None of it has an operation id, and none is recorded.
    async fn large(&self, seed: u64) -> Result<u64, ReachError> {
        let (inbox, subject) = self.inbox().await?;
        let mut dice = Seeded::new(seed);
        let mut taken = 0;
        for _ in 0..LARGE_MAX {
            if !self.goes_on() {
                break;
            }
            let size = dice.below(LARGE_BYTES) as usize;
            let payload = Bytes::from(vec![0xff; size]);
            taken += u64::from(published(&inbox, &subject, payload).await);
        }
        Ok(taken)
    }

    /// Connections that come, ask for one thing and go.
    async fn connections(&self) -> Result<u64, ReachError> {
        let (mut taken, mut no) = (0, 0);
        while self.goes_on() && no < OPERATIONS_MAX {
            let some = (no..no + CONNECTIONS).map(|no| async move {
                let (inbox, subject) = self.inbox().await?;
                let id = format!("{}-{no}", self.prefix);
                let asked = Asked::Submit(ASK);
                let request = self.request(asked, id);
                let sent = self.send(&inbox, &subject, vec![request], asked).await;
                Ok::<bool, ReachError>(sent)
            });
            // A connection that is refused is no failure of this run.
            let some = futures::future::join_all(some).await;
            taken += some.iter().filter(|sent| matches!(sent, Ok(true))).count() as u64;
            no += CONNECTIONS;
        }
        Ok(taken)
    }
}
