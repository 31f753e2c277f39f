//! The bus on NATS JetStream.

mod door;
mod hub;

use crate::bus::{AppendError, Bus, BusError, Door, DoorRecord, LedgerId, Record, Tail};
use async_nats::{
    HeaderMap, HeaderValue,
    header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    jetstream::{
        self,
        consumer::{
            DeliverPolicy,
            pull::{Ordered, OrderedConfig},
        },
        context::PublishErrorKind,
        message::StreamMessage,
        object_store::{GetErrorKind, ObjectStore},
        stream::{LastRawMessageErrorKind, Stream},
    },
};
use bytes::Bytes;
use hub::{Hub, RecordTail};

pub use hub::Readers;
use schemas::subjects::Subjects;
use std::{sync::Arc, time::Duration};
use tokio::{io::AsyncReadExt, runtime::Handle, sync::mpsc, task::JoinHandle};
use vocab::{Lsn, Writer};

/// Messages read ahead at a door.
const READ_AHEAD: usize = 1024;
/// No acknowledgement after this long means that nobody knows.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// One cell's streams.
#[derive(Clone)]
pub struct JetStreamBus {
    jetstream: jetstream::Context,
    subjects: Arc<Subjects>,
    ledger: Stream<()>,
    hub: Arc<Hub>,
    /// Reads the ledger, whichever thread a follower is on.
    runtime: Handle,
}

fn unavailable(error: impl std::fmt::Display) -> BusError {
    BusError::Unavailable(error.to_string())
}

impl JetStreamBus {
    pub async fn open(client: async_nats::Client, subjects: Subjects) -> Result<Self, BusError> {
        Self::open_among(client, subjects, &Readers::default()).await
    }

    /// Shares its reader with the others of `readers` that are on the same ledger.
    pub async fn open_among(
        client: async_nats::Client,
        subjects: Subjects,
        readers: &Readers,
    ) -> Result<Self, BusError> {
        // The server tells its own id, which two names of one server have in common.
        let server = client.server_info().server_id;
        let hub = readers.of(&server, subjects.ledger_stream());
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
            hub,
            runtime: Handle::current(),
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
        Ok(Record::new(lsn, writer, payload))
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

    /// A stream in order, from `from` on.
    async fn consume(&self, stream: &str, from: u64) -> Result<Ordered, BusError> {
        let stream = self
            .jetstream
            .get_stream_no_info(stream)
            .await
            .map_err(unavailable)?;
        let config = OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: from.max(1),
            },
            ..Default::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(unavailable)?;
        consumer.messages().await.map_err(unavailable)
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

impl Bus for JetStreamBus {
    type Records = RecordTail;
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

    async fn follow(&self, from: Lsn) -> Result<RecordTail, BusError> {
        RecordTail::open(self.clone(), from).await
    }

    async fn door(&self, door: Door, from: u64) -> Result<ChannelTail<DoorRecord>, BusError> {
        door::tail(self.clone(), self.door_stream(door), from).await
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
