//! The bus on NATS JetStream.

mod hub;
mod inbox;
mod link;
mod program;

use crate::cell;
use async_nats::{
    HeaderMap, HeaderValue,
    header::{NATS_EXPECTED_LAST_SEQUENCE, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE},
    jetstream::{
        self, ErrorCode,
        consumer::{
            DeliverPolicy,
            pull::{Ordered, OrderedConfig},
        },
        context::PublishErrorKind,
        message::StreamMessage,
        object_store::{
            GetErrorKind, InfoErrorKind, Object, ObjectInfo, ObjectMetadata, ObjectStore,
        },
        response::Response,
        stream::{Info, LastRawMessageErrorKind, Stream},
    },
};
use bytes::Bytes;
use futures::TryStreamExt;
use hub::{Hub, RecordTail};
use inbox::InboxTail;
pub use inbox::inbox_message;
use ledger::{
    AppendError, Bus, BusError, Inbox, InboxMessage, KEPT, LedgerId, Record, Stored, Witness,
    Writing, bus::bears_out,
};
use link::Held;
use serde::Deserialize;
use std::{
    cmp::Reverse,
    collections::HashMap,
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{io::AsyncReadExt, runtime::Handle, select, time::timeout};
use vocab::{
    Level, Lsn, Millis, Token, Writer,
    subjects::{OPERATOR, Subjects},
};

pub use hub::Readers;
pub use link::{Link, Outside};
pub use program::Program;

/// No acknowledgement after this long means that nobody knows.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// A part of a snapshot that has not come after this long does not come.
const PART_TIMEOUT: Duration = Duration::from_secs(5);
/// A consumer's pull request lasts this long; the server says each half of it that it is still there, and a consumer that
/// has heard nothing for twice this long is made anew, should nobody have told that the connection broke.
const PULL_EXPIRES: Duration = Duration::from_secs(4);

/// An answer of the server, with its time.
#[derive(Deserialize)]
struct Stamped {
    ts: Option<String>,
}

fn millis(text: &str) -> Result<Millis, BusError> {
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(unavailable)?;
    // Milliseconds of a four-digit year fit.
    Ok(Millis((time.unix_timestamp_nanos() / 1_000_000) as i64))
}

/// Why something was given up that might have gone on waiting.
const BROKEN: &str = "the connection broke meanwhile";

/// Snapshots of one name are saved in these places by turns.
fn places_of(name: &str) -> [String; KEPT] {
    [name.to_owned(), format!("{name}.2")]
}

/// Those of them that there are, the latest first, with their times.
async fn places(
    store: &ObjectStore,
    name: &str,
) -> Result<Vec<(String, Option<OffsetDateTime>)>, BusError> {
    let mut found = Vec::new();
    for place in places_of(name) {
        match store.info(&place).await {
            Ok(info) => found.push((place, info.modified)),
            Err(error) if error.kind() == InfoErrorKind::NotFound => {}
            Err(error) => return Err(unavailable(error)),
        }
    }
    found.sort_by_key(|(_, modified)| Reverse(*modified));
    Ok(found)
}

/// The server sends nothing in the place of a part that it has lost, and says nothing of it.
async fn read_whole(mut object: Object) -> Result<Stored, BusError> {
    let mut bytes = Vec::with_capacity(object.info().size);
    loop {
        match timeout(PART_TIMEOUT, object.read_buf(&mut bytes)).await {
            Ok(Ok(0)) => return Ok(Stored::Whole(bytes.into())),
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => {
                return Ok(Stored::Damaged(error.to_string()));
            }
            Ok(Err(error)) => return Err(unavailable(error)),
            Err(_) => return Ok(Stored::Damaged("a part of it does not come".into())),
        }
    }
}

/// A list knows its end by what the server says of its last entry, and waits for ever where that entry was replaced meanwhile.
async fn whole_list<V, E: std::fmt::Display>(
    entries: impl futures::Stream<Item = Result<V, E>>,
) -> Result<Vec<V>, BusError> {
    match timeout(PART_TIMEOUT, entries.try_collect()).await {
        Ok(entries) => entries.map_err(unavailable),
        Err(_) => Err(unavailable("the list of snapshots does not end")),
    }
}

/// One cell's streams.
#[derive(Clone)]
pub struct JetStreamBus {
    jetstream: jetstream::Context,
    subjects: Arc<Subjects>,
    ledger: Stream<()>,
    link: Link,
    inboxes: Option<Outside>,
    hub: Arc<Hub>,
    /// One more than how often the connection had broken when the ledger's end was looked at before an append.
    sure: Arc<AtomicU64>,
    /// The cell's feature level, by the stream's last answer.
    level: Arc<AtomicU32>,
    /// What its readers of the ledger say of this process.
    program: Option<Arc<Program>>,
    /// Reads the ledger, whichever thread a follower is on.
    runtime: Handle,
}

fn unavailable(error: impl std::fmt::Display) -> BusError {
    BusError::Unavailable(error.to_string())
}

fn context_of(client: async_nats::Client) -> jetstream::Context {
    jetstream::ContextBuilder::new()
        .timeout(ACK_TIMEOUT)
        .ack_timeout(ACK_TIMEOUT)
        .build(client)
}

/// No two streams of a name are made within as many nanoseconds as a ledger was cut short and adopted, so no other one has
/// this id.
fn id_of(ledger: &Info) -> LedgerId {
    // Nanoseconds since 1970 fit 63 bits until the year 2262.
    let created = ledger.created.unix_timestamp_nanos() as i64;
    LedgerId(created.saturating_add(cell::adopted(&ledger.config)))
}

const WITNESS_LEDGER: &str = "apportion-ledger";
const WITNESS_LSN: &str = "apportion-lsn";
const WITNESS_DIGEST: &str = "apportion-digest";

/// Stored beside a snapshot, where it is read without loading that.
fn to_metadata(ledger: LedgerId, witness: &Witness) -> HashMap<String, String> {
    let mut metadata = HashMap::from([
        (WITNESS_LEDGER.to_owned(), ledger.0.to_string()),
        (WITNESS_LSN.to_owned(), witness.lsn.0.to_string()),
    ]);
    if let Some(digest) = witness.digest {
        metadata.insert(WITNESS_DIGEST.to_owned(), digest.to_string());
    }
    metadata
}

/// None if it is of another ledger, or does not say.
fn from_metadata(
    name: &str,
    metadata: &HashMap<String, String>,
    ledger: LedgerId,
) -> Option<Witness> {
    let of: i64 = metadata.get(WITNESS_LEDGER)?.parse().ok()?;
    let lsn = metadata.get(WITNESS_LSN)?.parse().ok()?;
    let digest = metadata.get(WITNESS_DIGEST);
    (of == ledger.0).then(|| Witness {
        who: format!("the snapshot of {name}"),
        lsn: Lsn(lsn),
        digest: digest.and_then(|text| text.parse().ok()),
    })
}

impl JetStreamBus {
    /// For a client that nobody watches: that its connection broke is noticed by the server's silence.
    pub async fn open(client: async_nats::Client, subjects: Subjects) -> Result<Self, BusError> {
        Self::open_among(client, &Link::default(), subjects, &Readers::default()).await
    }

    /// Shares its reader with the others of `readers` that are on the same ledger. The client's events go to `link`.
    pub async fn open_among(
        client: async_nats::Client,
        link: &Link,
        subjects: Subjects,
        readers: &Readers,
    ) -> Result<Self, BusError> {
        // The server tells its own id, which two names of one server have in common.
        let server = client.server_info().server_id;
        let hub = readers.of(&server, subjects.ledger_stream());
        let jetstream = context_of(client);
        let ledger = jetstream
            .get_stream_no_info(subjects.ledger_stream())
            .await
            .map_err(unavailable)?;
        Ok(Self {
            jetstream,
            subjects: Arc::new(subjects),
            ledger,
            link: link.clone(),
            inboxes: None,
            hub,
            sure: Arc::default(),
            level: Arc::new(AtomicU32::new(Level::FIRST.0)),
            program: readers.program(),
            runtime: Handle::current(),
        })
    }

    /// Reads inboxes by consumers on a connection of their own.
    pub fn with_inboxes(self, inboxes: Outside) -> Self {
        let inboxes = Some(inboxes);
        Self { inboxes, ..self }
    }

    /// The bus as it is reached by the connection for the inboxes.
    fn at_inboxes(&self) -> Self {
        let mut bus = self.clone();
        if let Some(Outside { clients, link }) = &self.inboxes {
            bus.jetstream = context_of(clients.borrow().clone());
            bus.link = link.clone();
        }
        bus
    }

    pub fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    pub fn context(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// The ledger stream's settings, for the check at boot.
    pub async fn ledger_config(&self) -> Result<jetstream::stream::Config, BusError> {
        Ok(self.info().await?.config)
    }

    async fn info(&self) -> Result<Info, BusError> {
        let info = self.answered(self.ledger.get_info()).await?;
        self.hears_level(&info);
        Ok(info)
    }

    /// Another server of a cluster may answer with what was.
    fn hears_level(&self, ledger: &Info) {
        if let Ok(level) = cell::level(&ledger.config) {
            self.level.fetch_max(level.0, Ordering::Relaxed);
        }
    }

    /// Which ledger it is and where it ends; none when the server has none.
    pub async fn stands(&self) -> Result<Option<(LedgerId, Lsn)>, BusError> {
        let subject = format!("STREAM.INFO.{}", self.subjects.ledger_stream());
        let nothing = serde_json::json!({});
        let asked = self.jetstream.request(subject, &nothing);
        match self.answered(asked).await? {
            Response::Ok(info) => {
                self.hears_level(&info);
                Ok(Some((id_of(&info), Lsn(info.state.last_sequence))))
            }
            Response::Err { error } if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            Response::Err { error } => Err(unavailable(error)),
        }
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

    fn read(&self, message: StreamMessage) -> Result<Record, BusError> {
        let (subject, seq) = (&message.subject, message.sequence);
        Self::record(&self.subjects, subject, seq, message.payload)
    }

    fn inbox_stream(&self, inbox: Inbox) -> String {
        match inbox {
            Inbox::Ingress => self.subjects.ingress_stream(),
            Inbox::Report => self.subjects.report_stream(),
        }
    }

    /// What a sender publishes on.
    fn inbox_subjects(&self, inbox: Inbox, sender: &Token) -> Vec<String> {
        match (inbox, sender.as_str()) {
            (Inbox::Ingress, OPERATOR) => vec![self.subjects.admin(), self.subjects.admin_of("*")],
            (Inbox::Ingress, tenant) => vec![self.subjects.ingress(tenant)],
            (Inbox::Report, node) => vec![self.subjects.node(node, "report")],
        }
    }

    async fn snapshots(&self) -> Result<ObjectStore, BusError> {
        self.jetstream
            .get_object_store(&self.subjects.snapshot_bucket())
            .await
            .map_err(unavailable)
    }

    /// The next append may be the first on its connection: the server may have come back without what was read.
    async fn is_sure_of_end(&self, through: Lsn) -> Result<(), AppendError> {
        let connection = self.link.breaks() + 1;
        if self.sure.load(Ordering::Relaxed) == connection {
            return Ok(());
        }
        // Looked at before the end is asked for: others append meanwhile, and what is read of that says nothing of this end.
        let read = through.max(self.hub.read());
        let end = self.end().await;
        let end = end.map_err(|error| AppendError::Unknown(error.to_string()))?;
        if read > end {
            return Err(AppendError::Shortened(end));
        }
        self.sure.store(connection, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the ledger holds what all snapshots bear witness of. Those in `held` were found to hold and are not asked for
    /// again.
    pub async fn bears_out_all(
        &self,
        ledger: LedgerId,
        held: &mut Vec<Witness>,
    ) -> Result<(), BusError> {
        let witnesses = self.witnesses(ledger).await?;
        for witness in witnesses.iter().filter(|witness| !held.contains(witness)) {
            bears_out(self, witness).await?;
        }
        *held = witnesses;
        Ok(())
    }

    /// Appends a record where it stood before, behind a ledger that ends there: for a repair.
    pub async fn append_again(&self, record: &Record) -> Result<(), AppendError> {
        let mut headers = HeaderMap::new();
        // There is none below 1.
        let before = record.lsn.0.saturating_sub(1);
        headers.insert(NATS_EXPECTED_LAST_SEQUENCE, HeaderValue::from(before));
        let subject = self.subjects.ledger(record.writer.name());
        let frame = record.frame.clone();
        let unknown = |error: jetstream::context::PublishError| match error.kind() {
            PublishErrorKind::WrongLastSequence => AppendError::Fenced,
            _ => AppendError::Unknown(error.to_string()),
        };
        let publish = self.jetstream.publish_with_headers(subject, headers, frame);
        publish.await.map_err(unknown)?.await.map_err(unknown)?;
        Ok(())
    }

    /// Makes another ledger of it, to which nothing belongs that was made of the one before: for a repair.
    pub async fn adopt(&self) -> Result<LedgerId, BusError> {
        let mut config = self.ledger_config().await?;
        cell::adopt(&mut config);
        let updated = self.answered(self.jetstream.update_stream(config)).await?;
        Ok(id_of(&updated))
    }

    /// Lets leaders write the facts of that level, from when they hear of it. Not for services: the operator of the bus has
    /// made sure that all who read the ledger know them.
    pub async fn raise(&self, level: Level) -> Result<(), BusError> {
        let mut config = self.ledger_config().await?;
        cell::set_level(&mut config, level);
        let updated = self.answered(self.jetstream.update_stream(config)).await?;
        self.hears_level(&updated);
        Ok(())
    }

    /// The processes of services that read the ledger, by what their readers say. One that has ended may be among them for
    /// half a minute.
    pub async fn programs(&self) -> Result<Vec<Program>, BusError> {
        let list = async { self.ledger.consumers().try_collect::<Vec<_>>().await };
        let consumers = self.answered(list).await?;
        Ok(program::listed(
            consumers.iter().map(|consumer| &consumer.config.metadata),
        ))
    }

    /// What the server answers. It answers on the connection that it was asked on, or never.
    pub async fn answered<V, E: std::fmt::Display>(
        &self,
        answer: impl Future<Output = Result<V, E>>,
    ) -> Result<V, BusError> {
        let mut held = self.link.held();
        select! {
            biased;
            answer = answer => answer.map_err(unavailable),
            () = held.broken() => Err(unavailable(BROKEN)),
        }
    }

    /// A stream in order, from `from` on, and the connection that it comes by. Once that broke nothing comes any more: the
    /// consumer may be gone, and the client library takes its time to see it.
    async fn consume(
        &self,
        stream: &str,
        from: u64,
        max_batch: i64,
        metadata: HashMap<String, String>,
    ) -> Result<(Ordered, Held), BusError> {
        let held = self.link.held();
        let stream = self
            .jetstream
            .get_stream_no_info(stream)
            .await
            .map_err(unavailable)?;
        let config = OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: from.max(1),
            },
            max_batch,
            metadata,
            max_expires: PULL_EXPIRES,
            ..Default::default()
        };
        let consumer = self.answered(stream.create_consumer(config)).await?;
        Ok((consumer.messages().await.map_err(unavailable)?, held))
    }
}

impl Bus for JetStreamBus {
    type Records = RecordTail;
    type Messages = InboxTail;

    async fn ledger_id(&self) -> Result<LedgerId, BusError> {
        Ok(id_of(&self.info().await?))
    }

    fn level(&self) -> Level {
        Level(self.level.load(Ordering::Relaxed))
    }

    async fn append(
        &self,
        writer: Writer,
        expected_last: Lsn,
        through: Lsn,
        writing: Writing,
    ) -> Result<Lsn, AppendError> {
        self.is_sure_of_end(through).await?;
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
        let mut held = self.link.held();
        let frame = writing.frame().clone();
        let publish = self.jetstream.publish_with_headers(subject, headers, frame);
        let ack = select! {
            biased;
            ack = async { publish.await?.await } => ack.map_err(unknown)?,
            () = held.broken() => return Err(AppendError::Unknown(BROKEN.into())),
        };
        let lsn = Lsn(ack.sequence);
        debug_assert!(writing.is_what_is_read(), "{writer:?} at {lsn:?}");
        self.hub.landed(writing.landed(lsn, writer));
        Ok(lsn)
    }

    async fn last(&self, writer: Writer) -> Result<Option<Record>, BusError> {
        let subject = self.subjects.ledger(writer.name());
        let last = async {
            match self.ledger.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let last = self.answered(last).await?;
        last.map(|message| self.read(message)).transpose()
    }

    async fn at(&self, lsn: Lsn) -> Result<Option<Record>, BusError> {
        let message = async {
            match self.ledger.get_raw_message(lsn.0).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let message = self.answered(message).await?;
        message.map(|message| self.read(message)).transpose()
    }

    async fn end(&self) -> Result<Lsn, BusError> {
        Ok(Lsn(self.info().await?.state.last_sequence))
    }

    async fn server_time(&self) -> Result<Option<Millis>, BusError> {
        let subject = format!("STREAM.INFO.{}", self.subjects.ledger_stream());
        let nothing = serde_json::json!({});
        let asked = self.jetstream.request(subject, &nothing);
        match self.answered(asked).await? {
            Response::Ok(Stamped { ts }) => ts.map(|text| millis(&text)).transpose(),
            Response::Err { error } => Err(unavailable(error)),
        }
    }

    async fn follow(&self, from: Lsn) -> Result<RecordTail, BusError> {
        RecordTail::open(self.clone(), from).await
    }

    async fn inbox(&self, inbox: Inbox, from: u64) -> Result<InboxTail, BusError> {
        inbox::tail(self.clone(), self.inbox_stream(inbox), from).await
    }

    async fn inbox_end(&self, inbox: Inbox) -> Result<u64, BusError> {
        let stream = self.jetstream.get_stream(self.inbox_stream(inbox));
        let stream = self.answered(stream).await?;
        Ok(stream.cached_info().state.last_sequence)
    }

    async fn inbox_at(
        &self,
        inbox: Inbox,
        seqs: Vec<u64>,
    ) -> Result<Vec<Option<InboxMessage>>, BusError> {
        inbox::at(self, &self.inbox_stream(inbox), seqs).await
    }

    async fn inbox_trim(
        &self,
        inbox: Inbox,
        through: u64,
        ahead: Vec<(Token, u64)>,
    ) -> Result<(), BusError> {
        let stream = self
            .jetstream
            .get_stream_no_info(self.inbox_stream(inbox))
            .await
            .map_err(unavailable)?;
        // Everything below a sequence goes.
        let purge = stream.purge().sequence(through + 1).into_future();
        self.answered(purge).await?;
        for (sender, through) in ahead {
            for subject in self.inbox_subjects(inbox, &sender) {
                let of_sender = stream.purge().sequence(through + 1).filter(subject);
                self.answered(of_sender.into_future()).await?;
            }
        }
        Ok(())
    }

    async fn load_snapshot(&self, name: &str, older: usize) -> Result<Option<Stored>, BusError> {
        let load = async {
            let store = self.snapshots().await?;
            let found = places(&store, name).await?;
            let Some((place, _)) = found.get(older) else {
                return Ok(None);
            };
            match store.get(place).await {
                Ok(object) => read_whole(object).await.map(Some),
                Err(error) if error.kind() == GetErrorKind::NotFound => Ok(None),
                Err(error) => Err(unavailable(error)),
            }
        };
        self.answered(load).await
    }

    async fn save_snapshot(
        &self,
        name: &str,
        (ledger, witness): (LedgerId, Witness),
        bytes: Bytes,
    ) -> Result<(), BusError> {
        let save = async {
            let store = self.snapshots().await?;
            let found = places(&store, name).await?;
            let taken = |place: &String| found.iter().any(|(of, _)| of == place);
            let free = places_of(name).into_iter().find(|place| !taken(place));
            let oldest = || found.last().map(|(place, _)| place.clone());
            let place = free.or_else(oldest).unwrap_or_else(|| name.to_owned());
            let place = ObjectMetadata {
                name: place,
                metadata: to_metadata(ledger, &witness),
                ..ObjectMetadata::default()
            };
            let saved = store.put(place, &mut bytes.as_ref()).await;
            saved.map_err(unavailable)
        };
        self.answered(save).await?;
        Ok(())
    }

    async fn witnesses(&self, ledger: LedgerId) -> Result<Vec<Witness>, BusError> {
        let list = async {
            let store = self.snapshots().await?;
            whole_list(store.list().await.map_err(unavailable)?).await
        };
        let found = self.answered(list).await?;
        let witness = |info: &ObjectInfo| from_metadata(&info.name, &info.metadata, ledger);
        Ok(found.iter().filter_map(witness).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};

    #[tokio::test(start_paused = true)]
    async fn a_list_that_does_not_end_is_given_up() {
        let some = || stream::iter([Ok::<_, String>(1), Ok(2)]);
        assert_eq!(whole_list(some()).await, Ok(vec![1, 2]));
        let endless = whole_list(some().chain(stream::pending())).await;
        let why = endless.map_err(|error| error.to_string());
        let expected = "bus unavailable: the list of snapshots does not end";
        assert_eq!(why, Err(expected.to_owned()));
    }
}
