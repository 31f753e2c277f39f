//! What all parts of a run share: the book, the feeds, the time since the beginning, the word to stop.

use super::book::{Asked, Book, Feeds};
use chassis::{Shutdown, Stopwatch};
use client::{Client, Outcome, Position};
use replay::drive::Witness;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use vocab::Token;

/// A feed that does not answer is asked again after this.
const FEED_PAUSE: Duration = Duration::from_millis(200);

pub struct Scene {
    since: Stopwatch,
    stop: Shutdown,
    book: Mutex<Book>,
    followed: Mutex<Followed>,
    /// When the newest of those submits was sent that are answered.
    newest: watch::Sender<Duration>,
}

/// All feeds so far, and what a witness makes of them.
#[derive(Default)]
pub struct Followed {
    pub feeds: Feeds,
    pub witness: Witness,
}

impl Scene {
    pub fn new() -> Self {
        Self {
            since: Stopwatch::start(),
            stop: Shutdown::new(),
            book: Mutex::default(),
            followed: Mutex::default(),
            newest: watch::Sender::new(Duration::ZERO),
        }
    }

    pub fn now(&self) -> Duration {
        self.since.elapsed()
    }

    pub fn stop(&self) {
        self.stop.trigger();
    }

    pub async fn stopped(&self) {
        self.stop.requested().await;
    }

    /// Every change to it is whole, so a poisoned lock is as good as any; never held across an await.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As with the book.
    pub fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn answered(&self, outcome: &Outcome) {
        let sent = {
            let mut book = self.book();
            book.answered(outcome, self.now());
            let operation = book.operation(&outcome.operation_id);
            let submit = operation.filter(|one| matches!(one.asked, Asked::Submit(_)));
            submit.map(|one| one.sent)
        };
        if let Some(sent) = sent {
            self.newest.send_if_modified(|newest| {
                let newer = sent > *newest;
                *newest = sent.max(*newest);
                newer
            });
        }
    }

    /// Until a submit is answered that was sent after the moment.
    pub async fn answered_after(&self, moment: Duration) {
        let mut newest = self.newest.subscribe();
        // It cannot be closed: the sender is here.
        let _ = newest.wait_for(|sent| *sent > moment).await;
    }

    /// Reads one tenant's feed from its beginning on, whatever happens to it.
    pub async fn follow(&self, tenant: &Token, client: &Client) {
        let mut follower = loop {
            match client.follow(Position::default(), None).await {
                Ok(follower) => break follower,
                Err(_) => tokio::time::sleep(FEED_PAUSE).await,
            }
        };
        loop {
            let Ok(events) = follower.next_page().await else {
                tokio::time::sleep(FEED_PAUSE).await;
                continue;
            };
            let mut followed = self.followed();
            for event in &events {
                followed.witness.see(tenant, event);
            }
            let feed = followed.feeds.entry(tenant.clone()).or_default();
            feed.extend(events);
        }
    }
}
