//! Who waits for which outcome: a token for each message that was sent, an operation id inside of it.

use async_nats::Subscriber;
use futures::StreamExt;
use prost::Message;
use schemas::v1::{Outcome, Outcomes};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

/// The last thing the server forbade this client.
#[derive(Clone)]
pub(crate) struct Denial(Arc<watch::Sender<Said>>);

#[derive(Default)]
struct Said {
    text: Option<String>,
    /// Connections that were lost. What one of them was allowed says nothing about the next one.
    lost: u64,
}

impl Default for Denial {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }
}

impl Denial {
    pub(crate) fn set(&self, text: &str) {
        self.0.send_modify(|said| said.text = Some(text.to_owned()));
    }

    pub(crate) fn connection_lost(&self) {
        self.0.send_modify(|said| said.lost += 1);
    }

    /// What was forbidden before says nothing about what is asked now.
    pub(crate) fn clear(&self) {
        self.0.send_modify(|said| said.text = None);
    }

    /// Until the server says that it did not let through what this connection says from now on on `subject`. Never where the
    /// connection is lost before.
    pub(crate) fn of(&self, subject: &str) -> impl Future<Output = String> + Send + 'static {
        let (mut said, quoted) = (self.0.subscribe(), format!("\"{subject}\""));
        let connection = said.borrow_and_update().lost;
        async move {
            loop {
                if said.changed().await.is_err() || said.borrow().lost != connection {
                    return std::future::pending().await;
                }
                let text = said.borrow_and_update().text.clone();
                if let Some(text) = text.filter(|text| text.contains(&quoted)) {
                    return text;
                }
            }
        }
    }

    pub(crate) fn append_to(&self, why: String) -> String {
        match &self.0.borrow().text {
            Some(text) => format!("{why}; the server said: {text}"),
            None => why,
        }
    }
}

/// What is locked here is never left half changed, so a poisoned lock is as good as any.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operations of one message, each with its id.
pub(crate) type Waiters = Vec<(String, oneshot::Sender<Outcome>)>;

/// The operations of a message that have no outcome.
struct Waiting {
    by_id: HashMap<String, oneshot::Sender<Outcome>>,
    /// The message has one operation, so whatever is answered answers that.
    alone: bool,
    /// The message is an array of this operation id: what is said of that is said of all its elements.
    array: Option<String>,
}

/// The waiting operations of one connection.
pub(crate) struct Replies {
    /// Tells this connection's tokens from those of the party's other connections.
    prefix: String,
    next: AtomicU64,
    waiting: Mutex<HashMap<String, Waiting>>,
    /// The newest position that an outcome has named.
    decided: AtomicU64,
    pub(crate) denial: Denial,
}

impl Replies {
    pub(crate) fn new(denial: Denial) -> Self {
        Self {
            prefix: Uuid::new_v4().simple().to_string(),
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
            decided: AtomicU64::new(0),
            denial,
        }
    }

    pub(crate) fn decided(&self) -> u64 {
        self.decided.load(Ordering::Relaxed)
    }

    /// A token for one message: at most 32 hexadecimal digits, a dash and 20 decimal ones.
    pub(crate) fn register(self: &Arc<Self>, waiters: Waiters, array: Option<String>) -> Slot {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let token = format!("{}-{number}", self.prefix);
        let waiting = Waiting {
            alone: waiters.len() == 1,
            by_id: waiters.into_iter().collect(),
            array,
        };
        locked(&self.waiting).insert(token.clone(), waiting);
        Slot {
            token,
            replies: self.clone(),
        }
    }

    pub(crate) async fn dispatch(
        self: Arc<Self>,
        mut messages: Subscriber,
        observer: Option<mpsc::UnboundedSender<Outcome>>,
    ) {
        while let Some(message) = messages.next().await {
            let outcomes = match Outcomes::decode(message.payload.clone()) {
                Ok(outcomes) => outcomes.outcomes,
                Err(error) => {
                    tracing::warn!(subject = %message.subject, %error, "a reply that is no outcome");
                    continue;
                }
            };
            let token = message.subject.rsplit('.').next().unwrap_or_default();
            for outcome in outcomes {
                if let Some(observer) = &observer {
                    // An observer that left has seen enough.
                    let _ = observer.send(outcome.clone());
                }
                self.deliver(token, outcome);
            }
        }
    }

    /// Whoever gave up waiting will ask again.
    fn deliver(&self, token: &str, outcome: Outcome) {
        self.decided.fetch_max(outcome.lsn, Ordering::Relaxed);
        let mut waiting = locked(&self.waiting);
        let Some(Waiting {
            by_id,
            alone,
            array,
        }) = waiting.get_mut(token)
        else {
            return;
        };
        let id = &outcome.operation_id;
        let of_all = id.is_empty() || *alone || array.as_ref() == Some(id);
        if let Some(waiter) = by_id.remove(id) {
            let _ = waiter.send(outcome);
        } else if of_all {
            // What could not be read as far as its operations was refused as a whole.
            for (_, waiter) in by_id.drain() {
                let _ = waiter.send(outcome.clone());
            }
        }
        if by_id.is_empty() {
            waiting.remove(token);
        }
    }
}

/// A message's place among the waiting ones, given back when dropped.
pub(crate) struct Slot {
    pub(crate) token: String,
    pub(crate) replies: Arc<Replies>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        locked(&self.replies.waiting).remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::Token;

    fn waiters(ids: &[&str]) -> (Waiters, Vec<oneshot::Receiver<Outcome>>) {
        let pair = |id: &&str| {
            let (sender, receiver) = oneshot::channel();
            ((id.to_string(), sender), receiver)
        };
        ids.iter().map(pair).unzip()
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_of_its_subject_and_its_connection() {
        let check = async |steps: &[&str], expected: Option<&str>| {
            let denial = Denial::default();
            let said = denial.of("a.b");
            let waits = tokio::time::timeout(std::time::Duration::from_secs(1), said);
            let says = async {
                for step in steps {
                    match *step {
                        "lost" => denial.connection_lost(),
                        "clear" => denial.clear(),
                        text => denial.set(text),
                    }
                    tokio::task::yield_now().await;
                }
            };
            let (found, ()) = tokio::join!(waits, says);
            assert_eq!(found.ok().as_deref(), expected, "{steps:?}");
        };
        let of = |subject| format!("Permissions Violation for Publish to \"{subject}\"");
        let (own, other) = (of("a.b"), of("a.b.c"));
        check(&[&own], Some(&own)).await;
        check(&[&other, &own], Some(&own)).await;
        check(&[&other], None).await;
        check(&["clear"], None).await;
        check(&["lost", &own], None).await;
    }

    #[test]
    fn tokens_are_tokens_and_given_back() {
        let replies = Arc::new(Replies::new(Denial::default()));
        let first = replies.register(Waiters::new(), None);
        let second = replies.register(Waiters::new(), None);
        assert_ne!(first.token, second.token);
        assert!(Token::new(&first.token).is_ok());
        assert!(Token::new(&format!("{}-{}", replies.prefix, u64::MAX)).is_ok());
        drop(first);
        assert_eq!(locked(&replies.waiting).len(), 1);
    }

    /// Operations of one message, outcomes as they arrive (`-` has no id); then who got which.
    fn check(ids: &[&str], outcomes: &[&str], expected: &[Option<&str>]) {
        check_array(None, ids, outcomes, expected);
    }

    /// The same of the elements of an array.
    fn check_array(
        array: Option<&str>,
        ids: &[&str],
        outcomes: &[&str],
        expected: &[Option<&str>],
    ) {
        let replies = Arc::new(Replies::new(Denial::default()));
        let (waiters, receivers) = waiters(ids);
        let slot = replies.register(waiters, array.map(str::to_owned));
        for (lsn, id) in (1..).zip(outcomes) {
            let outcome = Outcome {
                operation_id: id.trim_start_matches('-').to_owned(),
                lsn,
                ..Outcome::default()
            };
            replies.deliver(&slot.token, outcome);
        }
        let got: Vec<Option<String>> = receivers
            .into_iter()
            .map(|mut receiver| Some(receiver.try_recv().ok()?.lsn.to_string()))
            .collect();
        let got: Vec<Option<&str>> = got.iter().map(Option::as_deref).collect();
        assert_eq!(got, expected, "{ids:?} {outcomes:?}");
    }

    #[test]
    fn each_outcome_goes_to_its_own_operation() {
        check(&["a", "b"], &["b", "a"], &[Some("2"), Some("1")]);
        check(&["a", "b"], &["b", "b"], &[None, Some("1")]);
        check(&["a", "b"], &["c"], &[None, None]);
        // The first outcome is the one.
        check(&["a"], &["a", "a"], &[Some("1")]);
        // A message that was refused before its ids were read.
        check(&["a", "b"], &["-"], &[Some("1"), Some("1")]);
        // Bytes that hold another id than their sender says.
        check(&["a"], &["other"], &[Some("1")]);
        let elements = ["a-1", "a-2"];
        let array = |outcomes: &[&str], expected: &[Option<&str>]| {
            check_array(Some("a"), &elements, outcomes, expected);
        };
        array(&["a-2", "a-1"], &[Some("2"), Some("1")]);
        array(&["a"], &[Some("1"), Some("1")]);
        array(&["a-2", "b"], &[None, Some("1")]);
    }
}
