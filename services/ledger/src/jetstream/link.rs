//! Whether the connection is still the one on which something was begun.
//!
//! What a client had under way when its connection broke is lost without a word: an answer is never sent again, and a
//! consumer that lived in a restarted server's memory is gone. Whoever waits learns of the new connection here, and begins
//! anew at once instead of waiting for a time-out.

use async_nats::Event;
use tokio::sync::watch;

/// Counts a client's connections. Whoever makes the client hands over its events.
#[derive(Debug, Clone, Default)]
pub struct Link(watch::Sender<u64>);

impl Link {
    pub fn note(&self, event: &Event) {
        if matches!(event, Event::Connected) {
            self.0.send_modify(|connections| *connections += 1);
        }
    }

    /// The connection of this moment.
    pub(super) fn held(&self) -> Held {
        Held(self.0.subscribe())
    }
}

/// A connection that something was begun on.
#[derive(Debug)]
pub(super) struct Held(watch::Receiver<u64>);

impl Held {
    /// Until there is another one. Cancel-safe.
    pub async fn replaced(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody tells any more, so there never is.
            std::future::pending().await
        }
    }
}
