//! A tenant's event feed: live, by pages, and followed without gaps.

use crate::{Client, Party, QueryError};
use async_nats::Subscriber;
use futures::{FutureExt, StreamExt};
use prost::Message;
use schemas::v1::{FeedPage, FeedQuery, TenantEvent, TenantEvents};
use std::{collections::VecDeque, time::Duration};

/// Events in one page at most.
pub const PAGE_MAX: u32 = 1_000;
/// A follower asks this often without having heard anything: live messages may be lost.
const FOLLOW_IDLE: Duration = Duration::from_secs(1);
/// And never more often than this, so that a page holds many events when there are many.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);

/// Where an event stands in a tenant's feed. Resume after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub lsn: u64,
    pub index: u32,
}

impl From<&TenantEvent> for Position {
    fn from(event: &TenantEvent) -> Self {
        Self {
            lsn: event.lsn,
            index: event.index,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error("operators have no feed")]
    NoTenant,
    #[error("the feed: {0}")]
    Query(#[from] QueryError),
    #[error("subscribing to the feed: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("the feed sent no event: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the feed sent {got:?} after {after:?}")]
    OutOfOrder { after: Position, got: Position },
}

/// Live events, in order inside a job set. Lossy when the reader is slow or the connection breaks; [`Follower`] is not.
pub struct Feed {
    messages: Subscriber,
    /// Of the last message, not returned yet.
    events: VecDeque<TenantEvent>,
}

impl Feed {
    /// The next event; nothing when the connection was closed.
    pub async fn next(&mut self) -> Option<Result<TenantEvent, FeedError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            let message = self.messages.next().await?;
            match TenantEvents::decode(message.payload) {
                Ok(message) => self.events = message.events.into(),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Waits for any message, and takes all that there are.
    async fn heard(&mut self) {
        let mut heard = self.messages.next().await;
        while heard.is_some() {
            heard = self.messages.next().now_or_never().flatten();
        }
    }
}

impl Client {
    fn tenant(&self) -> Result<&str, FeedError> {
        match self.party() {
            Party::Tenant(tenant) => Ok(tenant.as_str()),
            Party::Operator => Err(FeedError::NoTenant),
        }
    }

    /// Events from now on, of all job sets.
    pub async fn feed(&self) -> Result<Feed, FeedError> {
        let subject = self.subjects().event(self.tenant()?, ">");
        Ok(Feed {
            messages: self.0.nats.subscribe(subject).await?,
            events: VecDeque::new(),
        })
    }

    /// Events after a position, in ledger order; `None` asks for all job sets. There may be more than a page holds, also
    /// when it holds less than `limit`: see [`Client::page`].
    pub async fn feed_page(
        &self,
        after: Position,
        job_set: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TenantEvent>, FeedError> {
        Ok(self.page(after, job_set, limit, 0).await?.events)
    }

    /// A page of ledger position `at_lsn` or a later one, such as the `lsn` of an outcome; 0: of any.
    pub async fn page(
        &self,
        after: Position,
        job_set: Option<&str>,
        limit: u32,
        at_lsn: u64,
    ) -> Result<FeedPage, FeedError> {
        self.tenant()?;
        let query = FeedQuery {
            after_lsn: after.lsn,
            after_index: after.index,
            job_set: job_set.unwrap_or_default().to_owned(),
            limit,
            at_lsn,
        };
        let page: FeedPage = self.ask("feed", &query).await?;
        in_order(after, &page.events)?;
        Ok(page)
    }

    /// Every event after a position, without gaps: live messages are only the hint that there is a page to ask for.
    pub async fn follow(
        &self,
        after: Position,
        job_set: Option<String>,
    ) -> Result<Follower, FeedError> {
        Ok(Follower {
            hints: self.feed().await?,
            client: self.clone(),
            job_set,
            after,
            more: true,
        })
    }
}

/// Reads a feed from a position on and never misses an event.
pub struct Follower {
    client: Client,
    hints: Feed,
    job_set: Option<String>,
    after: Position,
    more: bool,
}

impl Follower {
    /// The next events, at least one. After an error the same page may be asked for again.
    pub async fn next_page(&mut self) -> Result<Vec<TenantEvent>, FeedError> {
        loop {
            if !self.more {
                // Timeout and hint mean the same here: ask. One question answers all hints that came meanwhile.
                let _ = tokio::time::timeout(FOLLOW_IDLE, self.hints.heard()).await;
                tokio::time::sleep(FOLLOW_PAUSE).await;
            }
            let page = self.now().await?;
            if !page.is_empty() {
                return Ok(page);
            }
        }
    }

    /// The next events that are there now, perhaps none.
    pub async fn now(&mut self) -> Result<Vec<TenantEvent>, FeedError> {
        self.more = false;
        let job_set = self.job_set.as_deref();
        let page = self.client.page(self.after, job_set, PAGE_MAX, 0).await?;
        self.more = page.more;
        if let Some(last) = page.events.last() {
            self.after = Position::from(last);
        }
        Ok(page.events)
    }

    /// The position of the last event returned.
    pub fn position(&self) -> Position {
        self.after
    }
}

/// A feed that goes back would make its reader count an event twice.
fn in_order(mut after: Position, events: &[TenantEvent]) -> Result<(), FeedError> {
    for event in events {
        let got = Position::from(event);
        if got <= after {
            return Err(FeedError::OutOfOrder { after, got });
        }
        after = got;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_grows_strictly_from_where_it_was_asked() {
        let page = |positions: &[(u64, u32)]| -> Vec<TenantEvent> {
            let event = |&(lsn, index)| TenantEvent {
                lsn,
                index,
                ..TenantEvent::default()
            };
            positions.iter().map(event).collect()
        };
        let after = Position { lsn: 4, index: 1 };
        assert!(in_order(after, &page(&[(4, 2), (5, 0), (5, 1)])).is_ok());
        for bad in [
            &[(4, 1)][..],
            &[(3, 9)],
            &[(5, 1), (5, 1)],
            &[(6, 0), (5, 9)],
        ] {
            assert!(in_order(after, &page(bad)).is_err(), "{bad:?}");
        }
    }
}
