//! Frames and the hash chain that every reader checks.

use crate::{
    bus::{Record, Witness},
    content::{COLUMNS, Content, EVENTS, Events, RawFrame},
    inbox::Handled,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};
use vocab::{
    At, Event, EventNo, Kinds, Lsn, Millis, Writer,
    sabotage::{self, Bug},
};
use wire::{Columns, Message as _, Row, Wire};

/// SHA-256 of an encoded frame.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Wire)]
#[wire(transparent)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The first 16 bytes, enough for content that nobody gains from colliding.
    pub fn short(&self) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&self.0[..16]);
        short
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let mut digest = [0; 32];
        if text.len() != 2 * digest.len() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NoDigest);
        }
        for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| NoDigest)?;
        }
        Ok(Self(digest))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct NoDigest;

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A frame whose place in the chain was checked, as one reader sees it. It is serialised as it was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Kept", into = "Kept")]
pub struct Frame {
    pub lsn: Lsn,
    pub writer: Writer,
    pub epoch: u64,
    pub frame_no: u64,
    pub through_lsn: Lsn,
    pub now: Millis,
    pub first_event: EventNo,
    /// How many events it has.
    pub count: u32,
    /// Its leader writes no more.
    pub resigned: bool,
    content: Arc<Content>,
    read: Kinds,
}

/// A frame in the state of a reader who keeps it.
#[derive(Serialize, Deserialize)]
struct Kept {
    lsn: Lsn,
    writer: Writer,
    bytes: Bytes,
}

impl From<Frame> for Kept {
    fn from(frame: Frame) -> Self {
        Self {
            lsn: frame.lsn,
            writer: frame.writer,
            bytes: frame.content.bytes.clone(),
        }
    }
}

impl TryFrom<Kept> for Frame {
    type Error = String;

    fn try_from(kept: Kept) -> Result<Self, String> {
        let content = Content::read(&kept.bytes)?;
        // Which of them the reader reads is for the reader to say again.
        content.decode(Kinds::ALL)?;
        Ok(Self::of(
            kept.lsn,
            kept.writer,
            Arc::new(content),
            Kinds::ALL,
        ))
    }
}

impl Frame {
    pub(crate) fn of(lsn: Lsn, writer: Writer, content: Arc<Content>, read: Kinds) -> Self {
        let raw = &content.head;
        Self {
            lsn,
            writer,
            epoch: raw.epoch,
            frame_no: raw.frame_no,
            through_lsn: Lsn(raw.through_lsn),
            now: Millis(raw.now_ms),
            first_event: EventNo(raw.first_event_no),
            count: content.len() as u32,
            resigned: raw.resigned,
            content,
            read,
        }
    }

    /// Whether any of its events is of these kinds.
    pub fn has(&self, kinds: Kinds) -> bool {
        self.content.kinds().any(|kind| kinds.has(kind))
    }

    /// Whether the reader reads any of its events.
    pub(crate) fn concerns(&self) -> bool {
        self.has(self.read)
    }

    /// The events that the reader reads, with their places.
    pub fn placed(&self) -> impl Iterator<Item = (At, &Event)> {
        self.content.events(self.read).map(|(index, event)| {
            let at = At {
                lsn: self.lsn,
                index,
                no: EventNo(self.first_event.0 + u64::from(index)),
                now: self.now,
            };
            (at, event)
        })
    }
}

/// A writer's last frame, as far as a reader has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub lsn: Lsn,
    pub digest: Digest,
    pub epoch: u64,
    pub frame_no: u64,
    pub next_event: EventNo,
    pub through_lsn: Lsn,
    /// Of its inbox.
    pub handled: Handled,
    pub now: Millis,
}

impl Head {
    /// Returns the digest that the next frame must contain as its link; `None` before the first frame.
    fn digest_in_chain(&self) -> Option<Digest> {
        (self.frame_no > 0).then_some(self.digest)
    }
}

impl Default for Head {
    /// Before the first frame.
    fn default() -> Self {
        Self {
            lsn: Lsn(0),
            digest: Digest([0; 32]),
            epoch: 0,
            frame_no: 0,
            next_event: EventNo(1),
            through_lsn: Lsn(0),
            handled: Handled::default(),
            now: Millis(i64::MIN),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("the ledger skips from {expected:?} to {found:?}")]
    Gap { expected: Lsn, found: Lsn },
    #[error("{lsn:?}: {writer:?}'s frame is not readable: {why}")]
    Unreadable {
        lsn: Lsn,
        writer: Writer,
        why: String,
    },
    #[error("{lsn:?}: {writer:?}'s frame does not follow its previous one: {rule}")]
    Broken {
        lsn: Lsn,
        writer: Writer,
        rule: &'static str,
    },
}

/// All writers' heads. Accepts records one by one, and only the ones that continue the chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    heads: BTreeMap<Writer, Head>,
    /// Position of the last accepted record.
    last: Lsn,
}

impl Chain {
    pub fn head(&self, writer: Writer) -> Head {
        self.heads.get(&writer).cloned().unwrap_or_default()
    }

    pub fn last(&self) -> Lsn {
        self.last
    }

    /// The furthest position that is known of the ledger: a writer's own last frame may lie beyond what was read in order.
    pub fn furthest(&self) -> Lsn {
        let heads = self.heads.values().map(|head| head.lsn);
        heads.fold(self.last, Lsn::max)
    }

    /// What stood at the furthest position.
    pub fn digest(&self) -> Option<Digest> {
        let furthest = self.furthest();
        let mut heads = self.heads.values();
        heads.find(|head| head.lsn == furthest).map(|h| h.digest)
    }

    /// What was read, as `who` bears witness of it.
    pub fn witness(&self, who: impl Into<String>) -> Witness {
        Witness {
            who: who.into(),
            lsn: self.furthest(),
            digest: self.digest(),
        }
    }

    /// The latest clock of any writer.
    pub fn newest(&self) -> Millis {
        let clocks = self.heads.values().map(|head| head.now);
        clocks.max().unwrap_or(Head::default().now)
    }

    /// The frame with those of its events that are `read`, or none if this chain knows it already.
    pub fn accept(&mut self, record: &Record, read: Kinds) -> Result<Option<Frame>, ChainError> {
        let expected = Lsn(self.last.0 + 1);
        if record.lsn != expected {
            return Err(ChainError::Gap {
                expected,
                found: record.lsn,
            });
        }
        let head = self.head(record.writer);
        if record.lsn <= head.lsn {
            self.last = record.lsn;
            return Ok(None);
        }
        let decoded = decode(record, &head, read);
        if decoded.is_err() && sabotage::armed(Bug::ForeignSkipped) {
            self.last = record.lsn;
            return Ok(None);
        }
        let (frame, next) = decoded?;
        self.heads.insert(record.writer, next);
        self.last = record.lsn;
        Ok(Some(frame))
    }

    /// Sets a writer's head: of a frame that this process has just appended, whose record comes along later.
    pub(crate) fn set(&mut self, writer: Writer, head: Head) {
        self.heads.insert(writer, head);
    }

    /// The chain as it stood for a reader that has `head` of one writer and all others up to `last`.
    pub(crate) fn at(&self, last: Lsn, writer: Writer, head: Head) -> Self {
        let mut chain = self.clone();
        chain.heads.insert(writer, head);
        chain.last = last;
        chain
    }
}

fn decode(record: &Record, head: &Head, read: Kinds) -> Result<(Frame, Head), ChainError> {
    let (lsn, writer) = (record.lsn, record.writer);
    let broken = |rule| ChainError::Broken { lsn, writer, rule };
    let unreadable = |why: String| ChainError::Unreadable { lsn, writer, why };
    let content = record.content().map_err(unreadable)?;
    let raw = &content.head;
    let prev = head.digest_in_chain();
    let rules = [
        (raw.prev_lsn == head.lsn.0, "position of the previous frame"),
        (raw.prev_digest == prev, "digest of the previous frame"),
        (raw.frame_no == head.frame_no + 1, "frame number"),
        (raw.epoch >= head.epoch.max(1), "epoch goes backwards"),
        (
            raw.through_lsn >= head.through_lsn.0,
            "watermark goes backwards",
        ),
        (raw.through_lsn < lsn.0, "watermark beyond the frame"),
        (raw.now_ms >= head.now.0, "clock goes backwards"),
        (
            raw.first_event_no == head.next_event.0,
            "number of the first event",
        ),
        (
            content.kinds().all(|kind| kind.writer() == writer),
            "an event of another writer",
        ),
    ];
    if let Some((_, rule)) = rules.iter().find(|(holds, _)| !holds) {
        return Err(broken(rule));
    }
    let handled = head
        .handled
        .moved(raw.through_inbox, raw.ahead.iter().cloned())
        .map_err(broken)?;
    content.decode(read).map_err(unreadable)?;
    let frame = Frame::of(lsn, writer, content.clone(), read);
    let next = Head {
        lsn,
        digest: content.digest,
        epoch: frame.epoch,
        frame_no: frame.frame_no,
        next_event: EventNo(frame.first_event.0 + u64::from(frame.count)),
        through_lsn: frame.through_lsn,
        handled,
        now: frame.now,
    };
    Ok((frame, next))
}

/// The most bytes of a frame without its events and the senders that are ahead, and of one such sender.
const HEAD_BYTES_MAX: usize = 140;
const AHEAD_BYTES_MAX: usize = 80;

/// The events of a frame in the making, as they will stand there.
#[derive(Debug)]
pub(crate) enum Encoded {
    /// Each by itself.
    Messages(Vec<u8>),
    Columns(Box<Columns>),
}

impl Encoded {
    pub fn push(&mut self, event: &Event) {
        match self {
            Self::Messages(bytes) => event.append_field(EVENTS, bytes),
            Self::Columns(columns) => columns.push(event),
        }
    }

    /// About how many bytes it will be.
    pub fn size(&self) -> usize {
        match self {
            Self::Messages(bytes) => bytes.len(),
            Self::Columns(columns) => columns.size(),
        }
    }
}

/// A frame that continues `head`, and the head that it makes (its position is not known yet). Events that are too many
/// for columns stand each by itself.
pub(crate) fn write(
    head: &Head,
    leader: &[u8; 16],
    epoch: u64,
    now: Millis,
    (through_lsn, handled): (Lsn, Handled),
    (events, encoded): (Events, &mut Encoded),
    resigned: bool,
) -> (Content, Head) {
    let before_events = RawFrame {
        epoch,
        frame_no: head.frame_no + 1,
        through_lsn: through_lsn.0,
        through_inbox: handled.through,
        now_ms: now.0,
        prev_lsn: head.lsn.0,
        prev_digest: head.digest_in_chain(),
        first_event_no: head.next_event.0,
        ..RawFrame::default()
    };
    let moved = handled.moved_since(&head.handled);
    let ahead = moved.map(|(sender, through)| (sender.clone(), through));
    let after_events = RawFrame {
        leader: Some(*leader),
        ahead: ahead.collect(),
        resigned,
        ..RawFrame::default()
    };
    // A message's fields may be encoded apart: their bytes one behind the other are the message.
    let ahead_bytes = AHEAD_BYTES_MAX * after_events.ahead.len();
    let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX + ahead_bytes + encoded.size());
    Row::behind(&mut bytes, |out| before_events.write_body(out));
    match encoded {
        Encoded::Messages(messages) => bytes.extend_from_slice(messages),
        Encoded::Columns(columns) if columns.fit() => {}
        Encoded::Columns(_) => {
            let each = events.decoded(Kinds::ALL);
            each.for_each(|(_, event)| event.append_field(EVENTS, &mut bytes));
        }
    }
    Row::behind(&mut bytes, |out| after_events.write_body(out));
    if let Encoded::Columns(columns) = encoded
        && columns.fit()
        && !events.is_empty()
    {
        columns.append_field(COLUMNS, &mut bytes);
    }
    let bytes = Bytes::from(bytes);
    let digest = Digest::of(&bytes);
    let next = Head {
        lsn: Lsn(0),
        digest,
        epoch,
        frame_no: before_events.frame_no,
        next_event: EventNo(head.next_event.0 + events.len() as u64),
        through_lsn,
        handled,
        now,
    };
    let written = RawFrame {
        leader: after_events.leader,
        ahead: after_events.ahead,
        resigned,
        ..before_events
    };
    (Content::written(written, digest, bytes, events), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{AllocationNo, Token, fact::QuotaReleased};

    /// Encodes a frame with one event and compares it with `expected`, which is in hexadecimal with a space after each
    /// field. Then reads it as the frame behind `head`.
    fn check(head: &Head, mut encoded: Encoded, handled: Handled, resigned: bool, expected: &str) {
        let event = Event::from(QuotaReleased {
            allocation: AllocationNo(77),
        });
        let mut events = Events::default();
        encoded.push(&event);
        events.push(event);
        let (epoch, now) = (head.epoch + 1, Millis(1_700_000_000_000));
        let read = (Lsn(head.lsn.0 + 10), handled);
        let events = (events, &mut encoded);
        let (content, next) = write(head, &[7; 16], epoch, now, read, events, resigned);
        let expected = expected.replace(' ', "");
        let bytes = content.bytes.iter().map(|byte| format!("{byte:02x}"));
        assert_eq!(bytes.collect::<String>(), expected);
        assert!(content.is_what_is_read());
        let record = Record::new(Lsn(head.lsn.0 + 11), Writer::Quota, content.bytes);
        let (frame, found) = decode(&record, head, Kinds::ALL).expect("it continues the chain");
        let lsn = record.lsn;
        assert_eq!(found, Head { lsn, ..next });
        assert_eq!((frame.count, frame.resigned), (1, resigned));
    }

    #[test]
    fn frames_have_the_bytes_of_the_contract() {
        let messages = || Encoded::Messages(Vec::new());
        let columns = || Encoded::Columns(Box::default());
        let handled = |through, ahead: &[(&str, u64)]| {
            let ahead = ahead.iter();
            let ahead = ahead.map(|(sender, at)| (Token::new(sender).expect("a name"), *at));
            let moved = Handled::default().moved(through, ahead);
            moved.expect("they move forwards")
        };
        let first = Head::default();
        check(
            &first,
            messages(),
            Handled::default(),
            false,
            "0801 1001 180a 2880d095ffbc31 4001 4a05b20102084d 521007070707070707070707070707070707",
        );
        check(
            &first,
            columns(),
            Handled::default(),
            false,
            "0801 1001 180a 2880d095ffbc31 4001 521007070707070707070707070707070707 \
             6a0d08012a0908165205080122014d",
        );
        let later = Head {
            lsn: Lsn(300),
            digest: Digest([0xab; 32]),
            epoch: 2,
            frame_no: 6,
            next_event: EventNo(1000),
            through_lsn: Lsn(299),
            handled: handled(5, &[("a", 8)]),
            now: Millis(1),
        };
        let digest = "ab".repeat(32);
        let ahead = || handled(6, &[("a", 8), ("b", 9), ("c", 300)]);
        check(
            &later,
            messages(),
            ahead(),
            true,
            &format!(
                "0803 1007 18b602 2006 2880d095ffbc31 30ac02 3a20{digest} 40e807 4a05b20102084d \
                 521007070707070707070707070707070707 5a050a01621009 5a060a016310ac02 6001"
            ),
        );
        check(
            &later,
            columns(),
            ahead(),
            true,
            &format!(
                "0803 1007 18b602 2006 2880d095ffbc31 30ac02 3a20{digest} 40e807 \
                 521007070707070707070707070707070707 5a050a01621009 5a060a016310ac02 6001 \
                 6a0d08012a0908165205080122014d"
            ),
        );
    }
}
