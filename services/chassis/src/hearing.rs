//! What comes by core NATS from outside: queries, heartbeats. It is not stored; what comes while the connection is away is
//! lost, and whoever waits for an answer asks again.
//!
//! Header blocks are the senders' own bytes, and the client library of the ledger closes the connection on which one comes
//! that it cannot read. So this connection asks the server for messages without headers, which that library cannot be told
//! to.

mod line;
mod talk;

use async_nats::Subject;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::error::BootError;
use crate::service::Context;
pub(crate) use line::Line;
use talk::Talk;

/// Answers that wait for the connection. Who has more waits with them.
const ANSWERS_MAX: usize = 1024;

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
    answers: mpsc::Sender<Answer>,
    subject: String,
}

#[derive(Debug)]
struct Answer {
    subject: String,
    payload: Bytes,
}

/// The connection by which the question came is gone, and the server takes the answer by no other.
#[derive(Debug, thiserror::Error)]
#[error("the connection of the question is gone")]
pub struct NobodyWaits;

impl ReplyTo {
    pub async fn answer(self, payload: Bytes) -> Result<(), NobodyWaits> {
        let Self { answers, subject } = self;
        let sent = answers.send(Answer { subject, payload }).await;
        sent.map_err(|_| NobodyWaits)
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

    /// Appends what was heard, at most so many, and returns how many; 0 when the service is to stop. Cancel-safe.
    pub async fn next_many(&mut self, heard: &mut Vec<Heard>, most: usize) -> usize {
        self.heard.recv_many(heard, most).await
    }
}

/// What is to be heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    subject: String,
    group: Option<&'static str>,
}

impl Wanted {
    /// Each process hears all of it.
    pub fn all(subject: String) -> Self {
        let group = None;
        Self { subject, group }
    }

    /// The processes of a group share it: each message is heard by one of them.
    pub fn shared(subject: String, group: &'static str) -> Self {
        let group = Some(group);
        Self { subject, group }
    }
}

impl<T> Context<T> {
    /// Hears these subjects from now on. Who does not take the messages leaves them waiting on the connection, which metrics and
    /// health call `name`. While it is away the service is degraded.
    pub async fn hear(
        &self,
        name: &'static str,
        wanted: Vec<Wanted>,
    ) -> Result<Hearing, BootError> {
        let hearing = self.line(name, wanted).open(1).await;
        hearing.ok_or_else(|| self.stopped())
    }

    /// The same, to be opened by the thread that hears.
    pub(crate) fn line(&self, name: &'static str, wanted: Vec<Wanted>) -> Line {
        Line {
            service: self.service,
            config: self.servers.nats.clone(),
            wanted,
            events: self.nats_events.beside(name),
            health: self.health.component(name),
            shutdown: self.shutdown.clone(),
        }
    }
}

impl Line {
    /// None when the service is to stop. `ahead`: messages that are taken from the connection before they are asked for.
    pub async fn open(self, ahead: usize) -> Option<Hearing> {
        let talk = self.connect().await?;
        let (sender, heard) = mpsc::channel(ahead);
        let task = tokio::spawn(self.hear(talk, sender).in_current_span());
        Some(Hearing {
            heard,
            _task: AbortOnDropHandle::new(task),
        })
    }
}
