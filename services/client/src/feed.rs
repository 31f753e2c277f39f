//! A tenant's event feed: live, by pages, and followed without gaps.

use crate::{Client, Party};
use async_nats::Subscriber;
use futures::{FutureExt, StreamExt};
use prost::Message;
use schemas::v1::{FeedPage, FeedQuery, TenantEvent};
use std::time::Duration;

/// Events in one page at most.
pub const PAGE_MAX: u32 = 1_000;
/// A follower asks this often without having heard anything: live messages may be lost.
const FOLLOW_IDLE: Duration = Duration::from_secs(1);
/// And never more often than this, so that a page holds many events when there are many.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
const SERVICE_ERROR: &str = "Nats-Service-Error";

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
    #[error("the feed does not answer: {0}")]
    Request(#[from] async_nats::RequestError),
    #[error("subscribing to the feed: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("the feed answers with an error: {0}")]
    Service(String),
    #[error("the feed sent no event: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the feed refuses the query: rule {rule}, {subject}")]
    Refused { rule: i32, subject: String },
    #[error("the feed sent {got:?} after {after:?}")]
    OutOfOrder { after: Position, got: Position },
}

/// Live events. Lossy when the reader is slow or the connection breaks; [`Follower`] is not.
pub struct Feed(Subscriber);

impl Feed {
    /// The next event; nothing when the connection was closed.
    pub async fn next(&mut self) -> Option<Result<TenantEvent, FeedError>> {
        let message = self.0.next().await?;
        Some(TenantEvent::decode(message.payload).map_err(FeedError::from))
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
        Ok(Feed(self.0.nats.subscribe(subject).await?))
    }

    /// Events after a position, in ledger order; `None` asks for all job sets.
    pub async fn feed_page(
        &self,
        after: Position,
        job_set: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TenantEvent>, FeedError> {
        let query = FeedQuery {
            after_lsn: after.lsn,
            after_index: after.index,
            job_set: job_set.unwrap_or_default().to_owned(),
            limit,
        };
        let subject = self.subjects().query(self.tenant()?, "feed");
        let message = self
            .0
            .nats
            .request(subject, query.encode_to_vec().into())
            .await?;
        let failure = message.headers.as_ref().and_then(|h| h.get(SERVICE_ERROR));
        if let Some(text) = failure {
            return Err(FeedError::Service(text.to_string()));
        }
        let page = FeedPage::decode(message.payload)?;
        if let Some(refusal) = page.refusal {
            return Err(FeedError::Refused {
                rule: refusal.rule,
                subject: refusal.subject,
            });
        }
        in_order(after, &page.events)?;
        Ok(page.events)
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
                // Timeout and hint mean the same here: ask.
                let _ = tokio::time::timeout(FOLLOW_IDLE, self.hints.0.next()).await;
                tokio::time::sleep(FOLLOW_PAUSE).await;
                // One question answers all hints that came meanwhile.
                while let Some(Some(_)) = self.hints.0.next().now_or_never() {}
            }
            let job_set = self.job_set.as_deref();
            let page = self
                .client
                .feed_page(self.after, job_set, PAGE_MAX)
                .await
                .inspect_err(|_| self.more = false)?;
            self.more = page.len() >= PAGE_MAX as usize;
            if let Some(last) = page.last() {
                self.after = Position::from(last);
                return Ok(page);
            }
        }
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
