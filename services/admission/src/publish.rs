//! The feed's sink: outcomes to who waits for them, events to the tenants' feeds, each feed message once.
//!
//! A batch of the projection becomes one message per job set. The stream itself says how far it is: its last message
//! names its batch and its number in it. A batch that was begun is folded again with the same bounds, makes the same
//! messages, and those that are there are left out.

mod pack;
mod part;
mod refuse;

pub use part::Part;
pub use refuse::refuse;

use crate::{
    feed::{FeedItem, FeedKind, Outcome},
    wire,
};
use async_nats::{
    Client,
    header::NATS_EXPECTED_LAST_SEQUENCE,
    jetstream::{self, context::PublishErrorKind, stream::Stream},
};
use futures::future::join_all;
use ledger::{Batch, LedgerId, Resume, Sink, SinkError, jetstream::JetStreamBus};
use pack::{Pack, Packer};
use part::ledger_of;
use schemas::subjects::Subjects;
use vocab::{CellNo, Lsn, Token};

/// Acknowledgements awaited at the same time, below the client's own bound.
const IN_FLIGHT_MAX: usize = 64;

pub struct FeedSink {
    bus: JetStreamBus,
    jetstream: jetstream::Context,
    subjects: Subjects,
    cell: CellNo,
    /// Where the stream ends, as far as this sink knows.
    end: Option<End>,
}

#[derive(Debug, Clone, Copy)]
struct End {
    sequence: u64,
    /// The last message, when its batch is not complete.
    begun: Option<Part>,
}

fn unavailable(error: impl std::fmt::Display) -> SinkError {
    SinkError::Unavailable(error.to_string())
}

/// Who waits for outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReplyTo {
    tenant: Token,
    token: Token,
}

/// Outcomes on their way to who waits for them.
struct Replies {
    cell: CellNo,
    packer: Packer<ReplyTo, wire::OutcomeMessage>,
}

impl Replies {
    fn new(cell: CellNo) -> Self {
        Self {
            cell,
            packer: Packer::new(),
        }
    }

    fn push(&mut self, to: ReplyTo, outcome: &Outcome) {
        self.packer.push(to, wire::outcome(outcome, self.cell));
    }

    async fn send(
        self,
        client: &Client,
        subjects: &Subjects,
    ) -> Result<(), async_nats::PublishError> {
        for Pack { to, messages, .. } in self.packer.packs() {
            let subject = subjects.reply(to.tenant.as_str(), to.token.as_str());
            let payload = wire::outcomes(messages);
            client.publish(subject, payload.into()).await?;
        }
        Ok(())
    }
}

/// A feed: the tenant and the job set.
type FeedOf = (Token, Token);

impl FeedSink {
    pub fn new(bus: &JetStreamBus, cell: CellNo) -> Self {
        Self {
            bus: bus.clone(),
            jetstream: bus.context().clone(),
            subjects: bus.subjects().clone(),
            cell,
            end: None,
        }
    }

    async fn stream(&self) -> Result<Stream, SinkError> {
        let name = self.subjects.event_stream();
        let stream = self.bus.answered(self.jetstream.get_stream(name));
        stream.await.map_err(unavailable)
    }

    /// Outcomes go out at once: the frames that they come from are durable. One that is sent again says the same.
    async fn reply(&self, items: &[FeedItem]) -> Result<(), SinkError> {
        let mut replies = Replies::new(self.cell);
        for item in items {
            let FeedKind::Outcome(outcome) = &item.kind else {
                continue;
            };
            for token in &item.reply_to {
                let to = ReplyTo {
                    tenant: item.tenant.clone(),
                    token: token.clone(),
                };
                replies.push(to, outcome);
            }
        }
        let client = self.jetstream.client();
        let sent = replies.send(&client, &self.subjects).await;
        sent.map_err(unavailable)
    }

    fn packs(&self, items: &[FeedItem]) -> Vec<Pack<FeedOf, wire::EventMessage>> {
        let mut packer = Packer::new();
        for item in items.iter().filter(|item| item.in_feed) {
            let to = (item.tenant.clone(), item.job_set.clone());
            packer.push(to, wire::tenant_event(item, self.cell));
        }
        packer.packs()
    }

    /// Each message names the one before it, so that a second projector, or a message that got lost, is refused at once.
    async fn publish(
        &self,
        ledger: LedgerId,
        mut sequence: u64,
        messages: Vec<(Part, Pack<FeedOf, wire::EventMessage>)>,
    ) -> Result<u64, SinkError> {
        let mut acks = Vec::with_capacity(messages.len());
        for (part, pack) in messages {
            let mut headers = part.headers(ledger);
            headers.insert(NATS_EXPECTED_LAST_SEQUENCE, sequence.to_string().as_str());
            let (tenant, job_set) = &pack.to;
            let subject = self.subjects.event(tenant.as_str(), job_set.as_str());
            let ack = self
                .jetstream
                .publish_with_headers(subject, headers, wire::tenant_events(pack.messages).into())
                .await
                .map_err(unavailable)?;
            acks.push(ack);
            sequence += 1;
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
        Ok(sequence)
    }

    /// Sends what of the batch is not there.
    async fn feed(&self, batch: &Batch<FeedItem>, end: End) -> Result<End, SinkError> {
        let packs = self.packs(&batch.changes);
        // A batch has 4096 changes or one frame's: far from the bound.
        let count = u32::try_from(packs.len()).map_err(unavailable)?;
        let landed = match end.begun {
            Some(begun) if begun.to == batch.to && begun.count == count => begun.number,
            Some(begun) => {
                self.begin_anew(begun, batch.to, count).await?;
                return Err(SinkError::Moved);
            }
            None => 0,
        };
        let part = |number| Part {
            after: batch.after,
            to: batch.to,
            number,
            count,
        };
        let mut missing = (1..).map(part).zip(packs).skip(landed as usize).peekable();
        let mut sequence = end.sequence;
        while missing.peek().is_some() {
            let some = missing.by_ref().take(IN_FLIGHT_MAX).collect();
            sequence = self.publish(batch.ledger, sequence, some).await?;
        }
        Ok(End {
            sequence,
            begun: None,
        })
    }

    /// Another version has begun the batch and made other messages of it, so nobody can say what is missing.
    async fn begin_anew(&self, begun: Part, to: Lsn, count: u32) -> Result<(), SinkError> {
        tracing::error!(
            ?begun,
            to = to.0,
            count,
            "feed begun by another version, made anew"
        );
        self.purge(&self.stream().await?).await
    }

    async fn purge(&self, stream: &Stream) -> Result<(), SinkError> {
        stream.purge().await.map_err(unavailable)?;
        Ok(())
    }

    /// The last message, if it is of this ledger and this version.
    async fn last_part(
        &self,
        stream: &Stream,
        ledger: LedgerId,
    ) -> Result<Option<Part>, SinkError> {
        let sequence = stream.cached_info().state.last_sequence;
        let message = stream.get_raw_message(sequence).await;
        let headers = message.map_err(unavailable)?.headers;
        let own = ledger_of(&headers) == Some(ledger);
        Ok(Part::read(&headers).filter(|_| own))
    }
}

impl Sink for FeedSink {
    type Change = FeedItem;

    async fn resume(&mut self, ledger: LedgerId) -> Result<Resume, SinkError> {
        let stream = self.stream().await?;
        let state = &stream.cached_info().state;
        let mut last = None;
        if state.messages > 0 {
            last = self.last_part(&stream, ledger).await?;
            if last.is_none() {
                tracing::info!("the feed is another ledger's or an older version's, made anew");
                self.purge(&stream).await?;
            }
        }
        let begun = last.filter(|part| !part.is_last());
        self.end = Some(End {
            sequence: state.last_sequence,
            begun,
        });
        Ok(Resume {
            through: last.map_or(Lsn(0), Part::readable),
            begun: begun.map(|part| part.to),
        })
    }

    async fn apply(&mut self, batch: &Batch<FeedItem>) -> Result<(), SinkError> {
        // Until it is known again, only the stream knows where it ends.
        let Some(end) = self.end.take() else {
            return Err(SinkError::Moved);
        };
        if let Err(error) = self.reply(&batch.changes).await {
            self.end = Some(end);
            return Err(error);
        }
        match self.bus.answered(self.feed(batch, end)).await {
            Ok(end) => {
                self.end = Some(end);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "feed");
                Err(SinkError::Moved)
            }
        }
    }
}
