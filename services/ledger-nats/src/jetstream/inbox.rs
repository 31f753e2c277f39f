//! Messages at an inbox: all of them, whatever their senders put into them.
//!
//! Header blocks are the senders' own bytes, stored and delivered as they are. The client library closes a connection on which
//! one comes that it cannot read, and a carriage return in a value ends the client for good. A consumer would then get the
//! same message again on each new connection, and nothing behind it. So what is there when an inbox is opened, and what does
//! not come though it is there, is fetched message by message, which a header block cannot break: such an answer has it
//! encoded in its payload. Whoever decides brings a connection for the consumer alone, so that none of this breaks the one by
//! which everything else is done.

use super::{JetStreamBus, link::Held, unavailable};
use async_nats::{
    HeaderMap, HeaderValue,
    jetstream::{
        ErrorCode, consumer::pull::Ordered, message::StreamMessage, response::Response,
        stream::RawMessage,
    },
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ledger::{BusError, InboxMessage, Tail};
use serde::Deserialize;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    select,
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};
use vocab::{
    Token, TraceContext,
    subjects::{ADMIN, HEADER_REPLY, HEADER_TRACEPARENT, OPERATOR, Subjects},
};

/// Messages read ahead at an inbox, and bytes of them: a message can be a thousand times as large as another one.
const READ_AHEAD: usize = 8192;
const READ_AHEAD_BYTES: u32 = 16 << 20;
/// Messages that the consumer is sent at a time, of up to a MiB each, before anybody looks at them.
const PULLED: i64 = 128;
/// Messages that are asked for one by one at the same time.
const ASKED: usize = 16;
/// Looks for which messages are fetched after one that the client library cannot read, some seconds of them: whoever sends
/// one sends more, and each would break the consumer's connection.
const LOOKS_AFTER_UNREADABLE: usize = 1000;

/// Real time without a message after which it is looked whether there is one.
const STALLED: Duration = Duration::from_secs(1);
/// Real time that a consumer may take to be made.
const CONSUMING: Duration = Duration::from_secs(1);
/// Between two looks while no consumer can be made.
const UNCONSUMED: Duration = Duration::from_millis(5);
/// Messages fetched one by one before a consumer is tried, or tried again: bad ones seldom come alone.
const FETCHED_MAX: usize = 1000;
/// Stands for a sender whose name is no token. Subjects take more than tokens, so such a message can be stored; it must
/// be passed over like any other that cannot be read, and not stop the inbox for everybody.
const NOBODY: &str = "_nobody";
const RESERVED: &str = "Nats-";

#[derive(Deserialize)]
struct Fetched {
    message: RawMessage,
}

struct Reader {
    bus: JetStreamBus,
    stream: String,
    next: u64,
    sender: mpsc::Sender<Result<InboxMessage, BusError>>,
    room: Arc<Semaphore>,
}

/// An inbox's messages, read in order.
pub struct InboxTail {
    receiver: mpsc::Receiver<Result<InboxMessage, BusError>>,
    room: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Drop for InboxTail {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl InboxTail {
    fn taken(&self, read: Result<InboxMessage, BusError>) -> Result<InboxMessage, BusError> {
        if let Ok(message) = &read {
            self.room.add_permits(room_of(message) as usize);
        }
        read
    }
}

impl Tail<InboxMessage> for InboxTail {
    async fn recv(&mut self) -> Result<InboxMessage, BusError> {
        match self.receiver.recv().await {
            Some(read) => self.taken(read),
            None => Err(unavailable("the reader has ended")),
        }
    }

    fn try_recv(&mut self) -> Option<Result<InboxMessage, BusError>> {
        let read = self.receiver.try_recv().ok()?;
        Some(self.taken(read))
    }
}

/// How much of `READ_AHEAD_BYTES` it takes.
fn room_of(message: &InboxMessage) -> u32 {
    let bytes = message.payload.len().try_into().unwrap_or(u32::MAX);
    bytes.min(READ_AHEAD_BYTES)
}

/// Reads from `from` on in a task of its own, which ends with the tail or its first error.
pub(super) async fn tail(
    bus: JetStreamBus,
    stream: String,
    from: u64,
) -> Result<InboxTail, BusError> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let room = Arc::new(Semaphore::new(READ_AHEAD_BYTES as usize));
    let mut reader = Reader {
        bus,
        stream,
        next: from.max(1),
        sender,
        room: room.clone(),
    };
    let task = tokio::spawn(async move {
        if let Err(error) = reader.run().await {
            // The tail may be gone.
            let _ = reader.sender.send(Err(error)).await;
        }
    });
    Ok(InboxTail {
        receiver,
        room,
        task,
    })
}

/// The messages with these numbers; none in the place of one that is not there.
pub(super) async fn at(
    bus: &JetStreamBus,
    stream: &str,
    seqs: Vec<u64>,
) -> Result<Vec<Option<InboxMessage>>, BusError> {
    let get = |seq: u64| async move {
        let raw = get(bus, stream, &serde_json::json!({ "seq": seq })).await?;
        raw.map(|raw| raw_record(bus.subjects(), &raw)).transpose()
    };
    let got = stream::iter(seqs).map(get).buffered(ASKED);
    got.try_collect().await
}

/// One message, by a read that cannot be stale.
async fn get(
    bus: &JetStreamBus,
    stream: &str,
    wanted: &serde_json::Value,
) -> Result<Option<RawMessage>, BusError> {
    let fetched = bus
        .context()
        .request(format!("STREAM.MSG.GET.{stream}"), wanted);
    match bus.answered(fetched).await? {
        Response::Ok(Fetched { message }) => Ok(Some(message)),
        Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
        Response::Err { error } => Err(unavailable(error)),
    }
}

fn raw_record(subjects: &Subjects, raw: &RawMessage) -> Result<InboxMessage, BusError> {
    let block = decoded(raw, raw.headers.clone().unwrap_or_default())?;
    let payload = decoded(raw, raw.payload.clone())?;
    Ok(inbox_message(
        subjects,
        raw.sequence,
        &raw.subject,
        &block,
        &payload,
    ))
}

/// Reads a message as an inbox stores it; the header block may be any bytes.
pub fn inbox_message(
    subjects: &Subjects,
    seq: u64,
    subject: &str,
    block: &[u8],
    payload: &Bytes,
) -> InboxMessage {
    let header = |name: &str| header_of(block, name);
    let reserved = names_of(block).any(is_reserved);
    record(subjects, seq, subject, header, reserved, payload)
}

impl Reader {
    async fn consume(&self) -> Result<(Ordered, Held), BusError> {
        let bus = self.bus.at_inboxes();
        bus.consume(&self.stream, self.next, PULLED, HashMap::new())
            .await
    }

    /// When there is one again. Meanwhile what comes is fetched, as long as the bus answers at all.
    async fn consume_again(&mut self) -> Result<(Ordered, Held), BusError> {
        loop {
            let mut held = self.bus.at_inboxes().link.held();
            if let Ok(Ok(consumer)) = tokio::time::timeout(CONSUMING, self.consume()).await {
                return Ok(consumer);
            }
            if !self.fetch_stalled().await? {
                // What failed because the connection broke is tried at once on the next one.
                select! {
                    () = tokio::time::sleep(UNCONSUMED) => {}
                    () = held.broken() => {}
                }
            }
        }
    }

    /// Until the tail is gone.
    async fn run(&mut self) -> Result<(), BusError> {
        // A server that does not answer is seen by the consumer.
        let _ = self.fetch_stalled().await;
        let (mut messages, mut held) = self.consume_again().await?;
        while !self.sender.is_closed() {
            let heard = select! {
                biased;
                heard = tokio::time::timeout(STALLED, messages.next()) => Some(heard),
                () = held.broken() => None,
            };
            match heard {
                Some(Ok(Some(Ok(message)))) => {
                    let seq = message.info().map_err(unavailable)?.stream_sequence;
                    let headers = message.headers.as_ref();
                    let header = |name: &str| headers?.get(name).map(HeaderValue::as_str);
                    let (subject, payload) = (&message.subject, &message.payload);
                    let mut names = headers.into_iter().flat_map(HeaderMap::iter);
                    let reserved = names.any(|(name, _)| is_reserved(name.as_ref()));
                    let subjects = self.bus.subjects();
                    let record = record(subjects, seq, subject, header, reserved, payload);
                    self.deliver(record).await;
                    continue;
                }
                // Nothing there: the usual reason for silence.
                Some(Err(_)) if self.fetch_stalled().await == Ok(false) => continue,
                Some(Ok(None | Some(Err(_))) | Err(_)) | None => {}
            }
            // Without the consumer, which would break the connection again and again. The next message itself may have broken
            // it, and a server that comes back may not answer yet: whether it does is seen by the consumer.
            drop(messages);
            let _ = self.fetch_stalled().await;
            (messages, held) = self.consume_again().await?;
        }
        Ok(())
    }

    /// Whether there was anything that the consumer has not brought. Goes on while what comes cannot be read otherwise.
    async fn fetch_stalled(&mut self) -> Result<bool, BusError> {
        let (mut fetched, mut width) = (0, 1);
        let mut looks_left = 0_usize;
        loop {
            looks_left = looks_left.saturating_sub(1);
            let messages = self.fetch(width).await?;
            // As many at a time as there are.
            width = match messages.len() == width {
                true => (width * 2).min(ASKED),
                false => 1,
            };
            fetched += messages.len();
            let none = messages.is_empty();
            for raw in messages {
                if !self.deliver_raw(&raw).await? {
                    looks_left = LOOKS_AFTER_UNREADABLE;
                }
            }
            let enough = looks_left == 0 && (none || fetched >= FETCHED_MAX);
            if self.sender.is_closed() || enough {
                return Ok(fetched > 0);
            }
            if none {
                tokio::time::sleep(UNCONSUMED).await;
            }
        }
    }

    /// The next messages, so many at the most; fewer where some have gone from the inbox, or there are no more.
    async fn fetch(&self, most: usize) -> Result<Vec<RawMessage>, BusError> {
        let next = serde_json::json!({ "seq": self.next, "next_by_subj": ">" });
        let Some(first) = get(&self.bus, &self.stream, &next).await? else {
            return Ok(Vec::new());
        };
        let behind = (first.sequence + 1..).take(most - 1);
        let one = |seq: u64| async move {
            get(&self.bus, &self.stream, &serde_json::json!({ "seq": seq })).await
        };
        let mut others = stream::iter(behind).map(one).buffered(ASKED);
        let mut messages = vec![first];
        while let Some(Some(raw)) = others.try_next().await? {
            messages.push(raw);
        }
        Ok(messages)
    }

    /// Whether the client library could have read it.
    async fn deliver_raw(&mut self, raw: &RawMessage) -> Result<bool, BusError> {
        let block = decoded(raw, raw.headers.clone().unwrap_or_default())?;
        let record = raw_record(self.bus.subjects(), raw)?;
        self.deliver(record).await;
        Ok(is_readable(&block))
    }

    async fn deliver(&mut self, record: InboxMessage) {
        self.next = record.seq + 1;
        // Neither is closed while this task lives but by the tail's end, which ends the loop.
        if let Ok(room) = self.room.acquire_many(room_of(&record)).await {
            room.forget();
            let _ = self.sender.send(Ok(record)).await;
        }
    }
}

/// The bytes of one of the message's encoded parts. The library decodes payloads; a header block it would also read.
fn decoded(raw: &RawMessage, part: String) -> Result<Bytes, BusError> {
    let alone = RawMessage {
        payload: part,
        headers: None,
        ..raw.clone()
    };
    let message = StreamMessage::try_from(alone).map_err(unavailable)?;
    Ok(message.payload)
}

/// Whether a header block is as every client writes it. What is not may still be readable; nobody needs it.
fn is_readable(block: &[u8]) -> bool {
    let Some(lines) = block.strip_prefix(b"NATS/1.0\r\n") else {
        return block.is_empty();
    };
    let Some(lines) = lines.strip_suffix(b"\r\n") else {
        return false;
    };
    let printable = |byte: &u8| (b' '..=b'~').contains(byte) || *byte == b'\t';
    let is_header = |line: &[u8]| {
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return false;
        };
        let name = line.iter().position(|byte| *byte == b':');
        let name = name.map_or(&[][..], |end| &line[..end]);
        !name.is_empty()
            && name
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
            && line.iter().all(printable)
    };
    lines.split_inclusive(|byte| *byte == b'\n').all(is_header)
}

/// The names of headers in a block that may be anything.
fn names_of(block: &[u8]) -> impl Iterator<Item = &str> {
    let lines = block.split(|byte| *byte == b'\n').skip(1);
    let named = lines.filter(|line| line.contains(&b':'));
    let names = named.filter_map(|line| line.split(|byte| *byte == b':').next());
    names.filter_map(|name| std::str::from_utf8(name).ok())
}

/// The server itself acts by headers of this name, for all who publish into a stream: with `Nats-Msg-Id` it drops what it takes
/// for a repetition, whoever sent the first one. It compares names as they are; what it lets through is none of ours either.
fn is_reserved(name: &str) -> bool {
    let prefix = name.trim().get(..RESERVED.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(RESERVED))
}

/// The first value of a header, of a block that may be anything. What cannot be read is as good as not there.
fn header_of<'h>(block: &'h [u8], name: &str) -> Option<&'h str> {
    let lines = block.split(|byte| *byte == b'\n').skip(1);
    let mut values = lines.filter_map(|line| {
        let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        (key == name).then(|| value.trim())
    });
    values.next()
}

/// Total: whatever was stored is a message that can be decided.
fn record<'h>(
    subjects: &Subjects,
    seq: u64,
    subject: &str,
    header: impl Fn(&str) -> Option<&'h str>,
    reserved_header: bool,
    payload: &Bytes,
) -> InboxMessage {
    match sender(subjects, subject) {
        Some((sender, by)) => InboxMessage {
            seq,
            sender,
            reply_to: header(HEADER_REPLY).and_then(|text| Token::new(text).ok()),
            trace: header(HEADER_TRACEPARENT).and_then(sampled_trace),
            by,
            reserved_header,
            payload: payload.clone(),
        },
        None => InboxMessage {
            seq,
            // A literal of the token's alphabet.
            sender: Token::new(NOBODY).expect("a token"),
            reply_to: None,
            trace: None,
            by: None,
            reserved_header: false,
            payload: Bytes::new(),
        },
    }
}

/// Whose subject it is, and which operator's. All operators are one sender: they are served in one turn, and an operation id is
/// one for all of them.
fn sender(subjects: &Subjects, subject: &str) -> Option<(Token, Option<Box<Token>>)> {
    let token = |name: &str| Token::new(name).ok();
    let name = subjects.token(subject, 1);
    if subjects.token(subject, 0) != Some(ADMIN) {
        return Some((token(name?)?, None));
    }
    let by = match name {
        None => None,
        Some(name) => Some(Box::new(token(name)?)),
    };
    Some((token(OPERATOR)?, by))
}

/// The trace of a header, only if it is sampled: what is not sampled costs nothing further on.
fn sampled_trace(text: &str) -> Option<TraceContext> {
    TraceContext::parse(text).filter(TraceContext::sampled)
}

#[cfg(test)]
mod tests {
    use super::{header_of, is_readable, is_reserved, names_of, sampled_trace, sender};
    use vocab::subjects::Subjects;

    #[test]
    fn a_subject_says_who_sent_it_and_which_of_the_operators() {
        let s = Subjects::new("c1");
        let check = |subject: &str, expected: Option<(&str, Option<&str>)>| {
            let found = sender(&s, subject);
            let found = found
                .as_ref()
                .map(|(who, by)| (who.as_str(), by.as_deref().map(|by| by.as_str())));
            assert_eq!(found, expected, "{subject}");
        };
        check(&s.ingress("team-a"), Some(("team-a", None)));
        check(&s.ingress("admin"), Some(("admin", None)));
        check(&s.node("n1", "report"), Some(("n1", None)));
        check(&s.admin(), Some(("_operator", None)));
        check(&s.admin_of("alice"), Some(("_operator", Some("alice"))));
        for nobody in [
            &s.ingress("a$b"),
            &s.admin_of("a$b"),
            &Subjects::new("c2").admin(),
            "x",
        ] {
            check(nobody, None);
        }
    }

    #[test]
    fn a_header_is_read_from_a_block_that_may_be_anything() {
        fn check(block: &[u8], value: Option<&str>) {
            assert_eq!(header_of(block, "Reply"), value, "{block:?}");
        }
        check(b"", None);
        check(b"Reply: x", None);
        check(b"NATS/1.0\r\nReply: x\r\nReply: y\r\n\r\n", Some("x"));
        check(b"NATS/1.0\r\nreply: x\r\n\r\n", None);
        check(b"NATS/1.0\r\nA: a\rReply: x\r\n\r\n", None);
        check(b"NATS/1.0\r\nA: a\rb\r\nReply:x \r\n", Some("x"));
        check(
            b"NATS/1.0\r\nReply: \xff\r\nno colon\r\nReply: x\r\n",
            Some("x"),
        );
        check(b"\xff\n:\n\n\n\r", None);
    }

    #[test]
    fn a_block_as_clients_write_it_is_known() {
        let check = |block: &[u8], readable: bool| {
            assert_eq!(is_readable(block), readable, "{block:?}");
        };
        check(b"", true);
        check(b"NATS/1.0\r\n\r\n", true);
        check(b"NATS/1.0\r\nReply: x\r\nTrace-1:\ty:z\r\n\r\n", true);
        for block in [
            &b"NATS/1.0\r\n"[..],
            b"NATS/1.0\r\nA: x\rB: y\r\n\r\n",
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\n: x\r\n\r\n",
            b"NATS/1.0\r\nbad name: x\r\n\r\n",
            b"NATS/1.0\r\nA: \xff\r\n\r\n",
            b"NATS/1.0\r\nA: x\n\r\n",
            b"NATS/1.0 503\r\n\r\n",
            b"HTTP/1.1\r\n\r\n",
            b"\r\n",
        ] {
            check(block, false);
        }
    }

    #[test]
    fn headers_of_the_bus_are_known_in_a_block_that_may_be_anything() {
        fn check(block: &[u8], reserved: bool) {
            assert_eq!(names_of(block).any(is_reserved), reserved, "{block:?}");
        }
        check(b"", false);
        check(b"Nats-Msg-Id: x", false);
        check(b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n", true);
        check(b"NATS/1.0\r\nA: b\r\n nats-ttl : x\r\n\r\n", true);
        check(b"NATS/1.0\r\nA: Nats-Msg-Id: x\r\nNat: y\r\n\r\n", false);
        check(b"NATS/1.0\r\n\xff: x\r\nNats-: \xff\r\n", true);
        check(b"NATS/1.0\r\n\xc3\xa9\xc3\xa9\xc3\xa9: x\r\n", false);
    }

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
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(sampled_trace(bad), None, "{bad}");
        }
    }
}
