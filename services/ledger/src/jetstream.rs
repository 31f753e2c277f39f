//! The bus on NATS JetStream.

use crate::bus::{AppendError, Bus, BusError, Door, DoorRecord, LedgerId, Record, Tail};
use async_nats::{
    HeaderMap, HeaderValue,
    header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    jetstream::{
        self,
        consumer::{DeliverPolicy, pull::OrderedConfig},
        context::PublishErrorKind,
        message::StreamMessage,
        object_store::{GetErrorKind, ObjectStore},
        stream::{LastRawMessageErrorKind, Stream},
    },
};
use bytes::Bytes;
use futures::StreamExt;
use schemas::subjects::{HEADER_REPLY, HEADER_TRACEPARENT, OPERATOR, Subjects};
use std::{sync::Arc, time::Duration};
use tokio::{io::AsyncReadExt, sync::mpsc, task::JoinHandle};
use vocab::{Lsn, Token, TraceContext, Writer};

/// Records read ahead of the fold.
const READ_AHEAD: usize = 1024;
/// No acknowledgement after this long means that nobody knows.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// One cell's streams.
#[derive(Clone)]
pub struct JetStreamBus {
    jetstream: jetstream::Context,
    subjects: Arc<Subjects>,
    ledger: Stream<()>,
}

fn unavailable(error: impl std::fmt::Display) -> BusError {
    BusError::Unavailable(error.to_string())
}

impl JetStreamBus {
    pub async fn open(client: async_nats::Client, subjects: Subjects) -> Result<Self, BusError> {
        let jetstream = jetstream::ContextBuilder::new()
            .timeout(ACK_TIMEOUT)
            .ack_timeout(ACK_TIMEOUT)
            .build(client);
        let ledger = jetstream
            .get_stream_no_info(subjects.ledger_stream())
            .await
            .map_err(unavailable)?;
        Ok(Self {
            jetstream,
            subjects: Arc::new(subjects),
            ledger,
        })
    }

    pub fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    pub fn context(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// The ledger stream's settings, for the check at boot.
    pub async fn ledger_config(&self) -> Result<jetstream::stream::Config, BusError> {
        let info = self.ledger.get_info().await.map_err(unavailable)?;
        Ok(info.config)
    }

    fn record(
        subjects: &Subjects,
        subject: &str,
        seq: u64,
        payload: Bytes,
    ) -> Result<Record, BusError> {
        let lsn = Lsn(seq);
        let writer = subjects
            .token(subject, 1)
            .and_then(Writer::parse)
            .ok_or_else(|| BusError::Foreign {
                lsn,
                why: format!("no writer has the subject {subject}"),
            })?;
        Ok(Record {
            lsn,
            writer,
            frame: payload,
        })
    }

    fn door_stream(&self, door: Door) -> String {
        match door {
            Door::Ingress => self.subjects.ingress_stream(),
            Door::Report => self.subjects.report_stream(),
        }
    }

    async fn snapshots(&self) -> Result<ObjectStore, BusError> {
        self.jetstream
            .get_object_store(&self.subjects.snapshot_bucket())
            .await
            .map_err(unavailable)
    }

    /// Reads a stream in order from `from` in a task of its own, which ends with the tail or its first error.
    async fn tail<T: Send + 'static>(
        &self,
        stream: &str,
        from: u64,
        read: impl Fn(async_nats::Message, u64) -> Result<T, BusError> + Send + 'static,
    ) -> Result<ChannelTail<T>, BusError> {
        let stream = self
            .jetstream
            .get_stream_no_info(stream)
            .await
            .map_err(unavailable)?;
        let consumer = stream
            .create_consumer(OrderedConfig {
                deliver_policy: DeliverPolicy::ByStartSequence {
                    start_sequence: from.max(1),
                },
                ..Default::default()
            })
            .await
            .map_err(unavailable)?;
        let mut messages = consumer.messages().await.map_err(unavailable)?;
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let task = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                let item = message.map_err(unavailable).and_then(|message| {
                    let seq = message.info().map_err(unavailable)?.stream_sequence;
                    read(message.message, seq)
                });
                let last = item.is_err();
                if sender.send(item).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(ChannelTail { receiver, task })
    }
}

/// A task's output, read in order.
pub struct ChannelTail<T> {
    receiver: mpsc::Receiver<Result<T, BusError>>,
    task: JoinHandle<()>,
}

impl<T> Drop for ChannelTail<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: Send> Tail<T> for ChannelTail<T> {
    async fn recv(&mut self) -> Result<T, BusError> {
        self.receiver
            .recv()
            .await
            .unwrap_or_else(|| Err(unavailable("the reader has ended")))
    }

    fn try_recv(&mut self) -> Option<Result<T, BusError>> {
        self.receiver.try_recv().ok()
    }
}

/// A binary trace context from the text form, only if it is sampled: what is not sampled costs nothing further on.
fn sampled_trace(text: &str) -> Option<TraceContext> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let well_formed = version.len() == 2
        && version != "ff"
        && trace.len() == 32
        && span.len() == 16
        && flags.len() == 2
        && text.is_ascii();
    if !well_formed {
        return None;
    }
    let context = TraceContext {
        trace_id: u128::from_str_radix(trace, 16).ok()?.to_be_bytes(),
        span_id: u64::from_str_radix(span, 16).ok()?.to_be_bytes(),
        flags: u8::from_str_radix(flags, 16).ok()?,
    };
    let sampled = context.flags & 1 == 1;
    let real = context.trace_id != [0; 16] && context.span_id != [0; 8];
    (sampled && real).then_some(context)
}

fn door_record(
    subjects: &Subjects,
    message: async_nats::Message,
    seq: u64,
) -> Result<DoorRecord, BusError> {
    let header = |name: &str| {
        let headers = message.headers.as_ref()?;
        headers.get(name).map(HeaderValue::as_str)
    };
    let sender = if message.subject.as_str() == subjects.admin() {
        Some(OPERATOR)
    } else {
        subjects.token(&message.subject, 1)
    };
    let sender = sender
        .and_then(|name| Token::new(name).ok())
        .ok_or_else(|| BusError::Foreign {
            lsn: Lsn(seq),
            why: format!("no sender has the subject {}", message.subject),
        })?;
    Ok(DoorRecord {
        seq,
        sender,
        reply_to: header(HEADER_REPLY).and_then(|text| Token::new(text).ok()),
        trace: header(HEADER_TRACEPARENT).and_then(sampled_trace),
        payload: message.payload.clone(),
    })
}

impl Bus for JetStreamBus {
    type Records = ChannelTail<Record>;
    type Messages = ChannelTail<DoorRecord>;

    async fn ledger_id(&self) -> Result<LedgerId, BusError> {
        let info = self.ledger.get_info().await.map_err(unavailable)?;
        // Nanoseconds since 1970 fit 63 bits until the year 2262.
        Ok(LedgerId(info.created.unix_timestamp_nanos() as i64))
    }

    async fn append(
        &self,
        writer: Writer,
        expected_last: Lsn,
        frame: Bytes,
    ) -> Result<Lsn, AppendError> {
        let mut headers = HeaderMap::new();
        headers.insert(
            NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
            HeaderValue::from(expected_last.0),
        );
        let subject = self.subjects.ledger(writer.name());
        let unknown = |error: jetstream::context::PublishError| match error.kind() {
            PublishErrorKind::WrongLastSequence => AppendError::Fenced,
            _ => AppendError::Unknown(error.to_string()),
        };
        let ack = self
            .jetstream
            .publish_with_headers(subject, headers, frame)
            .await
            .map_err(unknown)?
            .await
            .map_err(unknown)?;
        Ok(Lsn(ack.sequence))
    }

    async fn last(&self, writer: Writer) -> Result<Option<Record>, BusError> {
        let subject = self.subjects.ledger(writer.name());
        match self.ledger.get_last_raw_message_by_subject(&subject).await {
            Ok(StreamMessage {
                subject,
                sequence,
                payload,
                ..
            }) => Self::record(&self.subjects, &subject, sequence, payload).map(Some),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn end(&self) -> Result<Lsn, BusError> {
        let info = self.ledger.get_info().await.map_err(unavailable)?;
        Ok(Lsn(info.state.last_sequence))
    }

    async fn follow(&self, from: Lsn) -> Result<ChannelTail<Record>, BusError> {
        let subjects = self.subjects.clone();
        self.tail(
            &self.subjects.ledger_stream(),
            from.0,
            move |message, seq| {
                Self::record(&subjects, &message.subject, seq, message.payload.clone())
            },
        )
        .await
    }

    async fn door(&self, door: Door, from: u64) -> Result<ChannelTail<DoorRecord>, BusError> {
        let subjects = self.subjects.clone();
        self.tail(&self.door_stream(door), from, move |message, seq| {
            door_record(&subjects, message, seq)
        })
        .await
    }

    async fn door_end(&self, door: Door) -> Result<u64, BusError> {
        let stream = self
            .jetstream
            .get_stream(self.door_stream(door))
            .await
            .map_err(unavailable)?;
        Ok(stream.cached_info().state.last_sequence)
    }

    async fn door_trim(&self, door: Door, through: u64) -> Result<(), BusError> {
        let stream = self
            .jetstream
            .get_stream_no_info(self.door_stream(door))
            .await
            .map_err(unavailable)?;
        // Everything below the sequence goes.
        stream
            .purge()
            .sequence(through + 1)
            .await
            .map_err(unavailable)?;
        Ok(())
    }

    async fn load_snapshot(&self, name: &str) -> Result<Option<Bytes>, BusError> {
        let mut object = match self.snapshots().await?.get(name).await {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unavailable(error)),
        };
        let mut bytes = Vec::with_capacity(object.info().size);
        object.read_to_end(&mut bytes).await.map_err(unavailable)?;
        Ok(Some(bytes.into()))
    }

    async fn save_snapshot(&self, name: &str, bytes: Bytes) -> Result<(), BusError> {
        self.snapshots()
            .await?
            .put(name, &mut bytes.as_ref())
            .await
            .map_err(unavailable)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::sampled_trace;

    #[test]
    fn only_a_sampled_and_well_formed_trace_is_carried() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(sampled_trace(good).is_some());
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-zzf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-x1",
        ] {
            assert_eq!(sampled_trace(bad), None, "{bad}");
        }
    }
}
