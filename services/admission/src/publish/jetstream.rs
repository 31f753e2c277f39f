//! The EVENT stream on a real bus.

use super::{
    Part,
    part::ledger_of,
    stream::{FeedMessage, FeedStream, Fence, Reply, StreamEnd},
};
use async_nats::{
    Client, HeaderMap,
    header::{NATS_EXPECTED_LAST_MESSAGE_ID, NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID},
    jetstream::{
        self,
        context::{PublishAckFuture, PublishErrorKind},
        stream::{LastRawMessageErrorKind, Stream},
    },
};
use futures::future::join_all;
use ledger::{LedgerId, SinkError};
use ledger_nats::jetstream::JetStreamBus;
use vocab::subjects::Subjects;

/// Publishes replies; when they have arrived nobody knows.
pub async fn send_replies(
    client: &Client,
    subjects: &Subjects,
    replies: Vec<Reply>,
) -> Result<(), async_nats::PublishError> {
    for reply in replies {
        let subject = subjects.reply(reply.tenant.as_str(), reply.token.as_str());
        client.publish(subject, reply.payload).await?;
    }
    Ok(())
}

pub struct JetStreamFeed {
    bus: JetStreamBus,
    jetstream: jetstream::Context,
    subjects: Subjects,
}

fn unavailable(error: impl std::fmt::Display) -> SinkError {
    SinkError::Unavailable(error.to_string())
}

fn headers(message: &FeedMessage) -> HeaderMap {
    let mut headers = message.part.headers(message.ledger);
    // The sequence before it; there is none below 1.
    let before = message.sequence.saturating_sub(1).to_string();
    headers.insert(NATS_EXPECTED_LAST_SEQUENCE, before.as_str());
    headers.insert(NATS_MESSAGE_ID, message.id().as_str());
    if let Fence::Behind(id) = &message.fence {
        headers.insert(NATS_EXPECTED_LAST_MESSAGE_ID, id.as_str());
    }
    headers
}

impl JetStreamFeed {
    pub fn new(bus: &JetStreamBus) -> Self {
        Self {
            bus: bus.clone(),
            jetstream: bus.context().clone(),
            subjects: bus.subjects().clone(),
        }
    }

    async fn stream(&self) -> Result<Stream, SinkError> {
        let name = self.subjects.event_stream();
        let stream = self.bus.answered(self.jetstream.get_stream(name));
        stream.await.map_err(unavailable)
    }

    async fn send(&self, message: FeedMessage) -> Result<PublishAckFuture, SinkError> {
        let (tenant, job_set) = &message.of;
        let subject = self.subjects.event(tenant.as_str(), job_set.as_str());
        let headers = headers(&message);
        let sent = self
            .jetstream
            .publish_with_headers(subject, headers, message.payload);
        sent.await.map_err(unavailable)
    }

    async fn send_all(&self, messages: Vec<FeedMessage>) -> Result<(), SinkError> {
        let mut acks = Vec::with_capacity(messages.len());
        let sequences: Vec<u64> = messages.iter().map(|message| message.sequence).collect();
        for message in messages {
            acks.push(self.send(message).await?);
        }
        let acks = join_all(acks.into_iter().map(IntoFuture::into_future)).await;
        for (ack, sequence) in acks.into_iter().zip(sequences) {
            match ack {
                Ok(ack) if ack.sequence == sequence => {}
                // The same message was stored somewhere else.
                Ok(_) => return Err(SinkError::Moved),
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(())
    }
}

fn refused(error: async_nats::jetstream::context::PublishError) -> SinkError {
    match error.kind() {
        PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => {
            SinkError::Moved
        }
        _ => unavailable(error),
    }
}

impl FeedStream for JetStreamFeed {
    async fn end(&self) -> Result<StreamEnd, SinkError> {
        let stream = self.stream().await?;
        let info = stream.cached_info();
        let state = &info.state;
        let bytes_max = u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX);
        Ok(StreamEnd {
            first_sequence: state.first_sequence,
            last_sequence: state.last_sequence,
            messages: state.messages,
            // It drops one message after the other, so it stays far above this.
            full: state.bytes > bytes_max / 2,
        })
    }

    async fn part(&self, sequence: u64) -> Result<Option<(LedgerId, Part)>, SinkError> {
        let name = self.subjects.event_stream();
        let stream = self.jetstream.get_stream_no_info(name);
        let stream = stream.await.map_err(unavailable)?;
        let message = async {
            match stream.get_raw_message(sequence).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let message = self.bus.answered(message).await.map_err(unavailable)?;
        Ok(message.and_then(|message| {
            Some((ledger_of(&message.headers)?, Part::read(&message.headers)?))
        }))
    }

    async fn append(&self, messages: Vec<FeedMessage>) -> Result<(), SinkError> {
        let mut result = Ok(());
        let sending = async {
            result = self.send_all(messages).await;
            Ok::<_, SinkError>(())
        };
        self.bus.answered(sending).await.map_err(unavailable)?;
        result
    }

    async fn trim(&self, sequence: u64) -> Result<(), SinkError> {
        let stream = self.stream().await?;
        let purge = stream.purge().sequence(sequence).into_future();
        self.bus.answered(purge).await.map_err(unavailable)?;
        Ok(())
    }

    async fn reply(&self, replies: Vec<Reply>) -> Result<(), SinkError> {
        let client = self.jetstream.client();
        let sent = send_replies(&client, &self.subjects, replies).await;
        sent.map_err(unavailable)
    }
}
