//! Operations that are under way.

use crate::{Client, NoOutcome, Operation, envelope::Envelope, publish::Sent, replies::Denial};
use futures::future::join_all;
use schemas::v1::Outcome;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two sendings of an operation that the caller insists on.
const PAUSE: Duration = Duration::from_millis(250);

/// An operation that was sent. Thousands may be held at once.
#[must_use = "nobody waits for the outcome"]
pub struct Pending {
    outcome: oneshot::Receiver<Outcome>,
    way: Way,
    patience: Duration,
    denial: Denial,
    id: String,
}

enum Way {
    Sent(Sent),
    /// In the connection's queue.
    Queued(oneshot::Receiver<Result<Sent, NoOutcome>>),
}

impl Client {
    /// Sends an operation without waiting for its outcome. Operations of one connection reach the inbox in the order
    /// in which they were sent.
    pub async fn send(&self, operation: &Operation) -> Result<Pending, NoOutcome> {
        let inner = &self.0;
        let (waiter, outcome) = oneshot::channel();
        let way = match &inner.batcher {
            Some(batcher) => Way::Queued(batcher.send(operation.clone(), waiter).await?),
            None => {
                let mut envelope = Envelope::default();
                envelope.push(operation);
                let waiters = vec![(operation.id().to_owned(), waiter)];
                Way::Sent(inner.publish(envelope, waiters).await?)
            }
        };
        Ok(self.pending(operation.id(), outcome, way))
    }

    /// Sends operations in as few messages as they fit into, in their order. One that could not be sent says so; those
    /// behind it are sent all the same.
    pub async fn send_all(&self, operations: &[Operation]) -> Vec<Result<Pending, NoOutcome>> {
        let mut all = Vec::with_capacity(operations.len());
        let mut rest = operations;
        while !rest.is_empty() {
            let mut envelope = Envelope::default();
            let fitting = rest.iter().take_while(|operation| {
                let takes = envelope.takes(operation);
                if takes {
                    envelope.push(operation);
                }
                takes
            });
            let (message, behind) = rest.split_at(fitting.count());
            rest = behind;
            let (waiters, receivers): (Vec<_>, Vec<_>) = message
                .iter()
                .map(|operation| {
                    let (waiter, receiver) = oneshot::channel();
                    ((operation.id().to_owned(), waiter), receiver)
                })
                .unzip();
            let sent = self.0.publish(envelope, waiters).await;
            for (operation, outcome) in message.iter().zip(receivers) {
                let way = sent.clone().map(Way::Sent);
                all.push(way.map(|way| self.pending(operation.id(), outcome, way)));
            }
        }
        all
    }

    /// Sends an array once and waits for the outcomes of its elements, of which these are the ids, in the same order.
    pub(crate) async fn call_array(
        &self,
        array: &Operation,
        ids: &[String],
    ) -> Vec<Result<Outcome, NoOutcome>> {
        let (waiters, receivers): (Vec<_>, Vec<_>) = ids
            .iter()
            .map(|id| {
                let (waiter, receiver) = oneshot::channel();
                ((id.clone(), waiter), receiver)
            })
            .unzip();
        match self.0.publish(Envelope::of_array(array), waiters).await {
            Ok(sent) => {
                let pending = ids.iter().zip(receivers);
                let pending = pending.map(|(id, outcome)| {
                    self.pending(id, outcome, Way::Sent(sent.clone())).outcome()
                });
                join_all(pending).await
            }
            Err(none) => ids.iter().map(|_| Err(none.clone())).collect(),
        }
    }

    fn pending(&self, id: &str, outcome: oneshot::Receiver<Outcome>, way: Way) -> Pending {
        Pending {
            outcome,
            way,
            patience: self.0.patience,
            denial: self.0.replies.denial.clone(),
            id: id.to_owned(),
        }
    }

    /// Sends an operation once and waits for its outcome.
    pub async fn call(&self, operation: &Operation) -> Result<Outcome, NoOutcome> {
        self.send(operation).await?.outcome().await
    }

    /// Sends operations once, in as few messages as they fit into, and waits for their outcomes, in the same order.
    pub async fn call_all(&self, operations: &[Operation]) -> Vec<Result<Outcome, NoOutcome>> {
        let sent = self.send_all(operations).await;
        join_all(sent.into_iter().map(|pending| async move {
            match pending {
                Ok(pending) => pending.outcome().await,
                Err(none) => Err(none),
            }
        }))
        .await
    }

    /// Sends an operation until its outcome is definite or the connection's deadline has come; without a deadline, once.
    pub(crate) async fn insist(&self, operation: &Operation) -> Result<Outcome, NoOutcome> {
        let Some(deadline) = self.0.deadline else {
            return self.call(operation).await;
        };
        let mut tries = Tries::default();
        let insisting = async {
            loop {
                tries.begin(deadline);
                let done = self.call(operation).await;
                match tries.end(done) {
                    Err(error) if error.retryable() => tokio::time::sleep(PAUSE).await,
                    done => return done,
                }
            }
        };
        match tokio::time::timeout(deadline, insisting).await {
            Ok(done) => done,
            Err(_) => Err(tries.outcome()),
        }
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
        let mut tries = Tries::default();
        loop {
            let done = self.call(operation).await;
            match tries.end(done) {
                Err(error) if error.retryable() && attempt < attempts => {
                    tracing::debug!(operation = operation.id(), attempt, %error, "sending again");
                    attempt += 1;
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
        }
    }

    /// Like [`Client::settle`] for many: those without a definite outcome are sent again, together.
    pub async fn settle_all(
        &self,
        operations: &[Operation],
        attempts: u32,
        pause: Duration,
    ) -> Vec<Result<Outcome, NoOutcome>> {
        let mut tries: Vec<Tries> = operations.iter().map(|_| Tries::default()).collect();
        let ended = tries.iter_mut().zip(self.call_all(operations).await);
        let mut done: Vec<_> = ended.map(|(tries, done)| tries.end(done)).collect();
        for attempt in 1..attempts {
            let open: Vec<usize> = (0..done.len())
                .filter(|&i| matches!(&done[i], Err(error) if error.retryable()))
                .collect();
            if open.is_empty() {
                break;
            }
            tracing::debug!(operations = open.len(), attempt, "sending again");
            tokio::time::sleep(pause).await;
            let again: Vec<Operation> = open.iter().map(|&i| operations[i].clone()).collect();
            for (i, outcome) in open.into_iter().zip(self.call_all(&again).await) {
                done[i] = tries[i].end(outcome);
            }
        }
        done
    }
}

/// Several sendings of one operation: what the last one says is not all, because one before it may have been received.
#[derive(Default)]
struct Tries {
    doubt: Option<NoOutcome>,
    last: Option<NoOutcome>,
}

impl Tries {
    /// Until it ends, nobody knows how.
    fn begin(&mut self, deadline: Duration) {
        let why = format!("no outcome within {} ms", deadline.as_millis());
        self.last = Some(NoOutcome::Indefinite { why });
    }

    /// What is known after a sending that has ended so.
    fn end(&mut self, done: Result<Outcome, NoOutcome>) -> Result<Outcome, NoOutcome> {
        let error = match done {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        if matches!(error, NoOutcome::Indefinite { .. }) {
            self.doubt = Some(error.clone());
        }
        self.last = Some(error);
        Err(self.outcome())
    }

    /// Of all of them.
    fn outcome(&self) -> NoOutcome {
        let of_any = self.doubt.as_ref().or(self.last.as_ref());
        of_any.cloned().unwrap_or_else(gone)
    }
}

impl Pending {
    /// Of the operation that was sent.
    pub fn operation_id(&self) -> &str {
        &self.id
    }

    /// Waits for the outcome. It may come before the acknowledgement, and then says more than that would.
    pub async fn outcome(self) -> Result<Outcome, NoOutcome> {
        let Self {
            outcome,
            way,
            patience,
            denial,
            id: _,
        } = self;
        let mut doubt = None;
        let waiting = wait(outcome, way, &mut doubt);
        match tokio::time::timeout(patience, waiting).await {
            Ok(done) => done,
            Err(_) => {
                let silence = || format!("no outcome within {} ms", patience.as_millis());
                let why = doubt.unwrap_or_else(|| denial.append_to(silence()));
                Err(NoOutcome::Indefinite { why })
            }
        }
    }
}

/// What an unacknowledged message leaves open goes to `doubt`.
async fn wait(
    mut outcome: oneshot::Receiver<Outcome>,
    way: Way,
    doubt: &mut Option<String>,
) -> Result<Outcome, NoOutcome> {
    // The message's slot is held until the outcome is there.
    let Sent {
        slot: _slot,
        acknowledged,
    } = match way {
        Way::Sent(sent) => sent,
        Way::Queued(sent) => sent.await.map_err(|_| gone())??,
    };
    tokio::select! {
        biased;
        outcome = &mut outcome => return outcome.map_err(|_| gone()),
        acknowledged = acknowledged => match acknowledged {
            Ok(()) => {}
            Err(NoOutcome::Indefinite { why }) => *doubt = Some(why),
            Err(definite) => return Err(definite),
        },
    }
    outcome.await.map_err(|_| gone())
}

fn gone() -> NoOutcome {
    NoOutcome::Indefinite {
        why: "the connection was closed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_received_once_stays_indefinite() {
        let indefinite = || NoOutcome::Indefinite {
            why: "silence".to_owned(),
        };
        let not_received = || NoOutcome::NotReceived {
            why: "no stream".to_owned(),
            retryable: true,
        };
        let check = |ends: &[NoOutcome], expected: NoOutcome| {
            let mut tries = Tries::default();
            for end in ends {
                tries.begin(Duration::from_secs(1));
                let _ = tries.end(Err(end.clone()));
            }
            assert_eq!(tries.outcome(), expected, "{ends:?}");
        };
        check(&[not_received()], not_received());
        check(&[indefinite()], indefinite());
        check(&[indefinite(), not_received()], indefinite());
        check(&[not_received(), indefinite()], indefinite());
        let mut cut = Tries::default();
        cut.begin(Duration::from_secs(1));
        assert!(matches!(cut.outcome(), NoOutcome::Indefinite { .. }));
        assert!(Tries::default().end(Ok(Outcome::default())).is_ok());
    }
}
