//! Group commit at the client: while one message waits for its acknowledgement, what is sent meanwhile queues up and goes
//! out as the next one. A synced write at the inbox costs the same for one operation as for hundreds, so whoever sends so
//! much that some is always queued has it gathered for a little longer.

use crate::{
    NoOutcome, Operation,
    connect::Inner,
    envelope::{COUNT_MAX, Envelope},
    publish::Sent,
    replies::Waiters,
};
use schemas::v1::Outcome;
use std::{sync::Weak, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};

/// Operations that wait for their turn. Whoever sends more waits, which bounds the client's memory.
const QUEUE_MAX: usize = 16_384;

/// How long operations are gathered when some were queued already as a message was acknowledged.
const CROWDED: Duration = Duration::from_millis(2);

/// An operation that waits to go out.
struct Queued {
    operation: Operation,
    waiter: oneshot::Sender<Outcome>,
    sent: oneshot::Sender<Result<Sent, NoOutcome>>,
}

/// The queue of one connection. Its task ends with the connection's last clone.
pub(crate) struct Batcher(mpsc::Sender<Queued>);

impl Batcher {
    pub(crate) fn spawn(inner: Weak<Inner>) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(inner, receiver));
        Self(sender)
    }

    /// Queues an operation; what comes back says when it went out.
    pub(crate) async fn send(
        &self,
        operation: Operation,
        waiter: oneshot::Sender<Outcome>,
    ) -> Result<oneshot::Receiver<Result<Sent, NoOutcome>>, NoOutcome> {
        let (sent, receiver) = oneshot::channel();
        let queued = Queued {
            operation,
            waiter,
            sent,
        };
        let refused = |_| NoOutcome::NotReceived {
            why: "the connection was closed".to_owned(),
            retryable: true,
        };
        self.0.send(queued).await.map_err(refused)?;
        Ok(receiver)
    }
}

async fn run(inner: Weak<Inner>, mut queue: mpsc::Receiver<Queued>) {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(queued) => queued,
            None => match queue.recv().await {
                Some(queued) => queued,
                None => return,
            },
        };
        let mut envelope = Envelope::default();
        let mut waiters = Waiters::new();
        let mut sents = Vec::new();
        let mut candidate = Some(first);
        while let Some(queued) = candidate {
            if !envelope.takes(&queued.operation) {
                next = Some(queued);
                break;
            }
            envelope.push(&queued.operation);
            waiters.push((queued.operation.id().to_owned(), queued.waiter));
            sents.push(queued.sent);
            candidate = queue.try_recv().ok();
        }
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let sent = inner.publish(envelope, waiters).await;
        drop(inner);
        for sender in sents {
            // Whoever gave up waiting hears nothing; the operation was sent all the same.
            let _ = sender.send(sent.clone());
        }
        if let Ok(sent) = sent {
            // Whether it was stored, each operation is told by its own share of this.
            let _ = sent.acknowledged.await;
        }
        // What fills a message goes at once.
        if next.is_none() && (1..COUNT_MAX).contains(&queue.len()) {
            sleep(CROWDED).await;
        }
    }
}
