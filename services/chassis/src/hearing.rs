//! What comes by core NATS from outside: queries, heartbeats. It is not stored; what comes while the connection is away is
//! lost, and whoever waits for an answer asks again.

use async_nats::{Client, Message, PublishError, Subject, SubscribeError, Subscriber};
use bytes::Bytes;
use futures::{StreamExt, stream::SelectAll};
use ledger::jetstream::Outside;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::error::BootError;
use crate::service::Context;

/// A message that was heard.
#[derive(Debug)]
pub struct Heard {
    pub subject: Subject,
    pub payload: Bytes,
    /// Nobody waits for an answer where there is none.
    pub reply_to: Option<ReplyTo>,
}

/// Who waits for the answer. The server takes it by the connection alone by which the question came.
#[derive(Clone, Debug)]
pub struct ReplyTo {
    client: Client,
    subject: Subject,
}

impl ReplyTo {
    /// Fails when the client has broken down since.
    pub async fn answer(self, payload: Bytes) -> Result<(), PublishError> {
        self.client.publish(self.subject, payload).await
    }
}

/// Subjects that are heard on a connection of their own.
#[derive(Debug)]
pub struct Hearing {
    heard: mpsc::Receiver<Heard>,
    _task: AbortOnDropHandle<()>,
}

impl Hearing {
    /// The next message; none when the service is to stop. Cancel-safe.
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }
}

/// What is to be heard.
struct Wanted {
    subjects: Vec<String>,
    group: Option<&'static str>,
}

impl<T> Context<T> {
    /// Hears these subjects from now on, sharing the messages with the others of `group`. Who does not take them leaves them
    /// waiting on the connection.
    pub async fn hear(
        &self,
        subjects: Vec<String>,
        group: Option<&'static str>,
    ) -> Result<Hearing, BootError> {
        let outside = self.outside("hearing").await?;
        let (sender, heard) = mpsc::channel(1);
        let wanted = Wanted { subjects, group };
        let task = tokio::spawn(wanted.hear(outside, sender).in_current_span());
        Ok(Hearing {
            heard,
            _task: AbortOnDropHandle::new(task),
        })
    }
}

impl Wanted {
    /// By one client after the other.
    async fn hear(self, mut outside: Outside, sender: mpsc::Sender<Heard>) {
        loop {
            let client = outside.clients.borrow_and_update().clone();
            match self.subscribe(&client).await {
                Ok(messages) => hand_over(&client, messages, &sender).await,
                Err(error) => tracing::warn!(%error, "hearing"),
            }
            // Its successor.
            if outside.clients.changed().await.is_err() {
                return;
            }
        }
    }

    async fn subscribe(&self, client: &Client) -> Result<SelectAll<Subscriber>, SubscribeError> {
        let mut messages = SelectAll::new();
        for subject in self.subjects.iter().cloned() {
            messages.push(match self.group {
                Some(group) => client.queue_subscribe(subject, group.into()).await?,
                None => client.subscribe(subject).await?,
            });
        }
        Ok(messages)
    }
}

/// Until the client has broken down, or nobody listens.
async fn hand_over(
    client: &Client,
    mut messages: SelectAll<Subscriber>,
    sender: &mpsc::Sender<Heard>,
) {
    while let Some(message) = messages.next().await {
        let Message {
            subject,
            payload,
            reply,
            ..
        } = message;
        let reply_to = reply.map(|subject| ReplyTo {
            client: client.clone(),
            subject,
        });
        let heard = Heard {
            subject,
            payload,
            reply_to,
        };
        if sender.send(heard).await.is_err() {
            return;
        }
    }
}
