//! Operations that are under way: who waits for which token.

use crate::{Client, NoOutcome, Operation, Party};
use async_nats::{
    HeaderMap, Subscriber,
    jetstream::{
        self,
        context::{PublishAckFuture, PublishError, PublishErrorKind},
    },
};
use futures::StreamExt;
use prost::Message;
use schemas::{
    subjects::{HEADER_REPLY, HEADER_TRACEPARENT},
    v1::Outcome,
};
use std::{
    collections::HashMap,
    error::Error,
    future::IntoFuture,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// The server's code for a stream that did not store a message, such as a full one that discards new ones.
const STREAM_STORE_FAILED: u64 = 10_077;
/// The server's code for a message beyond what the door takes.
const MESSAGE_TOO_LARGE: u64 = 10_054;

/// The last thing the server forbade this connection.
#[derive(Clone, Default)]
pub(crate) struct Denial(Arc<Mutex<Option<String>>>);

impl Denial {
    pub(crate) fn set(&self, text: &str) {
        *locked(&self.0) = Some(text.to_owned());
    }

    fn append_to(&self, why: String) -> String {
        match &*locked(&self.0) {
            Some(text) => format!("{why}; the server said: {text}"),
            None => why,
        }
    }
}

/// What is locked here is never left half changed, so a poisoned lock is as good as any.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The waiting operations of one connection, by token.
pub(crate) struct Replies {
    /// Tells this connection's tokens from those of the party's other connections.
    prefix: String,
    next: AtomicU64,
    waiting: Mutex<HashMap<String, oneshot::Sender<Outcome>>>,
    denial: Denial,
}

impl Replies {
    pub(crate) fn new(denial: Denial) -> Self {
        Self {
            prefix: Uuid::new_v4().simple().to_string(),
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
            denial,
        }
    }

    /// At most 32 hexadecimal digits, a dash and 20 decimal ones: a token.
    fn register(self: &Arc<Self>) -> (Slot, oneshot::Receiver<Outcome>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let token = format!("{}-{number}", self.prefix);
        let (sender, receiver) = oneshot::channel();
        locked(&self.waiting).insert(token.clone(), sender);
        let slot = Slot {
            token,
            replies: self.clone(),
        };
        (slot, receiver)
    }

    pub(crate) async fn dispatch(
        self: Arc<Self>,
        mut messages: Subscriber,
        observer: Option<mpsc::UnboundedSender<Outcome>>,
    ) {
        while let Some(message) = messages.next().await {
            let outcome = match Outcome::decode(message.payload.clone()) {
                Ok(outcome) => outcome,
                Err(error) => {
                    tracing::warn!(subject = %message.subject, %error, "a reply that is no outcome");
                    continue;
                }
            };
            if let Some(observer) = &observer {
                // An observer that left has seen enough.
                let _ = observer.send(outcome.clone());
            }
            let token = message.subject.rsplit('.').next().unwrap_or_default();
            let waiter = locked(&self.waiting).remove(token);
            if let Some(waiter) = waiter {
                // Whoever gave up waiting will ask again.
                let _ = waiter.send(outcome);
            }
        }
    }
}

/// A place among the waiting ones, given back when dropped.
struct Slot {
    token: String,
    replies: Arc<Replies>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        locked(&self.replies.waiting).remove(&self.token);
    }
}

/// An operation that was sent. Thousands may be held at once.
#[must_use = "nobody waits for the outcome"]
pub struct Pending {
    slot: Slot,
    receiver: oneshot::Receiver<Outcome>,
    ack: PublishAckFuture,
    patience: Duration,
}

impl Client {
    /// Sends an operation without waiting for its outcome. Operations of one connection reach the door in the order
    /// in which they were sent.
    pub async fn send(&self, operation: &Operation) -> Result<Pending, NoOutcome> {
        let inner = &self.0;
        let subject = match &inner.party {
            Party::Tenant(tenant) => inner.subjects.ingress(tenant.as_str()),
            Party::Operator => inner.subjects.admin(),
        };
        let (slot, receiver) = inner.replies.register();
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_REPLY, slot.token.as_str());
        if let Some(traceparent) = operation.traceparent() {
            headers.insert(HEADER_TRACEPARENT, traceparent);
        }
        let ack = inner
            .jetstream
            .publish_with_headers(subject, headers, operation.payload())
            .await
            .map_err(|error| unacknowledged(&error, &inner.replies.denial))?;
        Ok(Pending {
            slot,
            receiver,
            ack,
            patience: inner.patience,
        })
    }

    /// Sends an operation once and waits for its outcome.
    pub async fn call(&self, operation: &Operation) -> Result<Outcome, NoOutcome> {
        self.send(operation).await?.outcome().await
    }

    /// Sends an operation until its outcome is definite, at most `attempts` times and with `pause` before each
    /// repetition. What is returned as indefinite then is so.
    pub async fn settle(
        &self,
        operation: &Operation,
        attempts: u32,
        pause: Duration,
    ) -> Result<Outcome, NoOutcome> {
        let mut attempt = 1;
        loop {
            match self.call(operation).await {
                Err(error) if error.retryable() && attempt < attempts => {
                    tracing::debug!(operation = operation.id(), attempt, %error, "sending again");
                    attempt += 1;
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
        }
    }
}

impl Pending {
    /// Waits for the outcome. It may come before the acknowledgement, and then says more than that would.
    pub async fn outcome(self) -> Result<Outcome, NoOutcome> {
        let Self {
            slot,
            mut receiver,
            ack,
            patience,
        } = self;
        let denial = &slot.replies.denial;
        let mut doubt = None;
        let waiting = async {
            let mut ack = pin!(ack.into_future());
            tokio::select! {
                biased;
                outcome = &mut receiver => return outcome.map_err(|_| gone()),
                acknowledged = &mut ack => if let Err(error) = acknowledged {
                    match unacknowledged(&error, denial) {
                        NoOutcome::Indefinite { why } => doubt = Some(why),
                        definite => return Err(definite),
                    }
                },
            }
            receiver.await.map_err(|_| gone())
        };
        match tokio::time::timeout(patience, waiting).await {
            Ok(done) => done,
            Err(_) => {
                let why = doubt
                    .unwrap_or_else(|| format!("no outcome within {} ms", patience.as_millis()));
                Err(NoOutcome::Indefinite {
                    why: denial.append_to(why),
                })
            }
        }
    }
}

fn gone() -> NoOutcome {
    NoOutcome::Indefinite {
        why: "the connection was closed".to_owned(),
    }
}

/// Only what cannot have stored the message is definite; all else may have been stored.
fn unacknowledged(error: &PublishError, denial: &Denial) -> NoOutcome {
    let refused = |retryable| NoOutcome::NotReceived {
        why: error.to_string(),
        retryable,
    };
    let code = error
        .source()
        .and_then(|source| source.downcast_ref::<jetstream::Error>())
        .map(|source| source.error_code().0);
    match error.kind() {
        // Nobody listens on the subject: the stream does not exist, or not yet.
        PublishErrorKind::StreamNotFound => refused(true),
        PublishErrorKind::MaxPayloadExceeded => refused(false),
        _ if code == Some(STREAM_STORE_FAILED) => refused(true),
        _ if code == Some(MESSAGE_TOO_LARGE) => refused(false),
        _ => NoOutcome::Indefinite {
            why: denial.append_to(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::Token;

    #[test]
    fn tokens_are_tokens_and_given_back() {
        let replies = Arc::new(Replies::new(Denial::default()));
        let (first, _receiver) = replies.register();
        let (second, _other) = replies.register();
        assert_ne!(first.token, second.token);
        assert!(Token::new(&first.token).is_ok());
        assert!(Token::new(&format!("{}-{}", replies.prefix, u64::MAX)).is_ok());
        drop(first);
        assert_eq!(locked(&replies.waiting).len(), 1);
    }

    #[test]
    fn only_what_was_surely_not_stored_is_definite() {
        let denial = Denial::default();
        let of = |kind| unacknowledged(&PublishError::new(kind), &denial);
        assert!(matches!(
            of(PublishErrorKind::StreamNotFound),
            NoOutcome::NotReceived {
                retryable: true,
                ..
            }
        ));
        assert!(matches!(
            of(PublishErrorKind::MaxPayloadExceeded),
            NoOutcome::NotReceived {
                retryable: false,
                ..
            }
        ));
        denial.set("Permissions Violation");
        let NoOutcome::Indefinite { why } = of(PublishErrorKind::TimedOut) else {
            panic!("a lost acknowledgement is indefinite");
        };
        assert!(
            why.ends_with("the server said: Permissions Violation"),
            "{why}"
        );
    }
}
