//! Whether the connection on which something was begun still holds.
//!
//! What a client had under way when its connection broke is lost without a word: an answer is never sent again, and a
//! consumer that lived in a restarted server's memory is gone. Whoever waits learns here that it broke, and begins anew at
//! once instead of waiting for a time-out: the client keeps what is asked meanwhile for the next connection.

use async_nats::{Client, Event};
use tokio::sync::watch;

/// Counts how often a client's connection broke. Whoever makes the client hands over its events.
#[derive(Debug, Clone, Default)]
pub struct Link(watch::Sender<u64>);

impl Link {
    /// That there is a connection again comes too late to count: things may have been begun on it by then, and when the
    /// client has failed many times before, the library may leave that event out.
    pub fn note(&self, event: &Event) {
        if matches!(event, Event::Disconnected) {
            self.broke();
        }
    }

    /// A client that has broken down says nothing of it.
    pub fn broke(&self) {
        self.0.send_modify(|breaks| *breaks += 1);
    }

    /// How often it broke.
    pub(super) fn breaks(&self) -> u64 {
        *self.0.borrow()
    }

    /// The connection of this moment, or the next one if there is none.
    pub(super) fn held(&self) -> Held {
        Held(self.0.subscribe())
    }
}

/// A connection by which messages of others come, which may break it.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Of this moment, be it broken down, and then the next ones.
    pub clients: watch::Receiver<Client>,
    /// Breaks also when a client has taken the place of another one.
    pub link: Link,
}

/// A connection that something was begun on.
#[derive(Debug)]
pub(super) struct Held(watch::Receiver<u64>);

impl Held {
    /// Until it broke. Cancel-safe.
    pub async fn broken(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody tells any more, so it never does.
            std::future::pending().await
        }
    }
}
