//! The feed's sink: outcomes to who waits for them, events to the tenants' feeds, each feed message once.

use crate::{
    feed::{FeedItem, FeedKind, FeedPosition},
    wire,
};
use async_nats::{
    HeaderMap,
    header::{NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID},
    jetstream::{self, context::PublishErrorKind, stream::Stream},
};
use futures::future::join_all;
use ledger::{Batch, LedgerId, Resume, Sink, SinkError, jetstream::JetStreamBus};
use prost::Message;
use schemas::subjects::{HEADER_POSITION, Subjects};
use vocab::{CellNo, Lsn};

/// Which ledger a feed message was made from; a feed made from another one is begun anew.
const HEADER_LEDGER: &str = "Apportion-Ledger";
/// Acknowledgements awaited at the same time, below the client's own bound.
const IN_FLIGHT_MAX: usize = 1000;

pub struct FeedSink {
    jetstream: jetstream::Context,
    subjects: Subjects,
    cell: CellNo,
    /// Where the stream ends, as far as this sink knows.
    last: Option<Last>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Last {
    sequence: u64,
    position: FeedPosition,
}

fn unavailable(error: impl std::fmt::Display) -> SinkError {
    SinkError::Unavailable(error.to_string())
}

/// `<lsn>.<index>`
pub(crate) fn position_text(position: FeedPosition) -> String {
    format!("{}.{}", position.lsn.0, position.index)
}

pub(crate) fn parse_position(text: &str) -> Option<FeedPosition> {
    let (lsn, index) = text.split_once('.')?;
    Some(FeedPosition {
        lsn: Lsn(lsn.parse().ok()?),
        index: index.parse().ok()?,
    })
}

impl FeedSink {
    pub fn new(bus: &JetStreamBus, cell: CellNo) -> Self {
        Self {
            jetstream: bus.context().clone(),
            subjects: bus.subjects().clone(),
            cell,
            last: None,
        }
    }

    async fn stream(&self) -> Result<Stream, SinkError> {
        let name = self.subjects.event_stream();
        self.jetstream.get_stream(name).await.map_err(unavailable)
    }

    /// Outcomes go out at once: the frames that they come from are durable. One that is sent again says the same.
    async fn reply(&self, item: &FeedItem) -> Result<(), SinkError> {
        let FeedKind::Outcome(outcome) = &item.kind else {
            return Ok(());
        };
        let payload = wire::outcome(outcome, self.cell).encode_to_vec();
        let client = self.jetstream.client();
        for token in &item.reply_to {
            let subject = self.subjects.reply(item.tenant.as_str(), token.as_str());
            client
                .publish(subject, payload.clone().into())
                .await
                .map_err(unavailable)?;
        }
        Ok(())
    }

    /// Each message names the one before it, so that a second projector, or a message that got lost, is refused at once.
    async fn publish(&mut self, ledger: LedgerId, items: &[&FeedItem]) -> Result<(), SinkError> {
        let mut last = self.last.unwrap_or_default();
        let mut acks = Vec::with_capacity(items.len());
        for item in items {
            let position = position_text(item.position);
            let mut headers = HeaderMap::new();
            headers.insert(
                NATS_EXPECTED_LAST_SEQUENCE,
                last.sequence.to_string().as_str(),
            );
            headers.insert(HEADER_LEDGER, ledger.0.to_string().as_str());
            headers.insert(NATS_MESSAGE_ID, format!("{}-{position}", ledger.0).as_str());
            headers.insert(HEADER_POSITION, position.as_str());
            let subject = self
                .subjects
                .event(item.tenant.as_str(), item.job_set.as_str());
            let payload = wire::tenant_event(item, self.cell);
            let ack = self
                .jetstream
                .publish_with_headers(subject, headers, payload.into())
                .await
                .map_err(unavailable)?;
            acks.push(ack);
            last = Last {
                sequence: last.sequence + 1,
                position: item.position,
            };
        }
        for ack in join_all(acks.into_iter().map(IntoFuture::into_future)).await {
            match ack {
                Ok(_) => {}
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                    return Err(SinkError::Moved);
                }
                Err(error) => return Err(unavailable(error)),
            }
        }
        self.last = Some(last);
        Ok(())
    }
}

impl Sink for FeedSink {
    type Change = FeedItem;

    async fn resume(&mut self, ledger: LedgerId) -> Result<Resume, SinkError> {
        let stream = self.stream().await?;
        let sequence = stream.cached_info().state.last_sequence;
        let mut last = Last {
            sequence,
            position: FeedPosition::default(),
        };
        if stream.cached_info().state.messages > 0 {
            let message = stream
                .get_raw_message(sequence)
                .await
                .map_err(unavailable)?;
            let header = |name: &str| message.headers.get(name).map(|v| v.as_str().to_owned());
            if header(HEADER_LEDGER) == Some(ledger.0.to_string()) {
                let position = header(HEADER_POSITION).and_then(|text| parse_position(&text));
                last.position = position.unwrap_or_default();
            } else {
                stream.purge().await.map_err(unavailable)?;
            }
        }
        self.last = Some(last);
        Ok(Resume {
            // The last frame's events may be there in part; `apply` leaves out those that are.
            through: Lsn(last.position.lsn.0.saturating_sub(1)),
            begun: None,
        })
    }

    async fn apply(&mut self, batch: &Batch<FeedItem>) -> Result<(), SinkError> {
        let Some(last) = self.last else {
            return Err(SinkError::Moved);
        };
        for item in &batch.changes {
            self.reply(item).await?;
        }
        let new: Vec<&FeedItem> = batch
            .changes
            .iter()
            .filter(|item| item.in_feed && item.position > last.position)
            .collect();
        for items in new.chunks(IN_FLIGHT_MAX) {
            if let Err(error) = self.publish(batch.ledger, items).await {
                // Some may have landed: only the stream knows which.
                self.last = None;
                tracing::warn!(%error, "feed");
                return Err(SinkError::Moved);
            }
        }
        Ok(())
    }
}
