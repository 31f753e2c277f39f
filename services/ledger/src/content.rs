//! What a record says, read once for all readers of a process: its head, its digest, and each event when the first of
//! them wants it. Of what the process has written itself nothing has to be read.

use crate::frame::Digest;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use vocab::{Event, EventKind, Kinds, Token};
use wire::{Body, Depth, Message as _, Rows, Wire};

/// The contract's `Frame` without its events: only those that a reader reads are decoded.
#[derive(Debug, Clone, Default, PartialEq, Wire)]
#[wire(name = "Frame")]
pub(crate) struct RawFrame {
    #[wire(1)]
    pub epoch: u64,
    #[wire(2)]
    pub frame_no: u64,
    #[wire(3)]
    pub through_lsn: u64,
    #[wire(4)]
    pub through_inbox: u64,
    #[wire(5)]
    pub now_ms: i64,
    #[wire(6)]
    pub prev_lsn: u64,
    #[wire(7)]
    pub prev_digest: Option<Digest>,
    #[wire(8)]
    pub first_event_no: u64,
    #[wire(10)]
    pub leader: Option<[u8; 16]>,
    #[wire(11, with = wire::Pairs<Ahead>)]
    pub ahead: Vec<(Token, u64)>,
    #[wire(12)]
    pub resigned: bool,
}

/// The number of a frame's events, each a message.
pub(crate) const EVENTS: u32 = 9;
/// The number of a frame's events in columns.
pub(crate) const COLUMNS: u32 = 13;

wire::pair! {
    /// How far a sender's messages are handled beyond the inbox's position.
    pub(crate) Ahead { sender, through }
}

/// A frame's bytes, read. Whether it continues the chain is for each reader to say.
#[derive(Debug)]
pub(crate) struct Content {
    pub head: RawFrame,
    pub digest: Digest,
    /// All of it.
    pub bytes: Bytes,
    events: Events,
    /// None: each event is a message by itself.
    columns: Option<Bytes>,
}

/// The events of a frame, by kind, and in which order they are.
#[derive(Debug, Default)]
pub(crate) struct Events {
    runs: Vec<Run>,
    kinds: Vec<OfKind>,
}

/// Some events of one kind, one behind the other.
#[derive(Debug)]
struct Run {
    /// Which of the kinds.
    of: usize,
    /// How many of the kind, and how many of all, come before.
    from: usize,
    index: u32,
    count: usize,
}

/// A frame's events of a kind.
#[derive(Debug)]
struct OfKind {
    kind: EventKind,
    count: usize,
    /// Where they are messages.
    messages: Vec<Bytes>,
    events: OnceLock<Vec<Event>>,
}

/// Read by whoever is first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<OnceLock<Result<Arc<Content>, String>>>);

impl From<Arc<Content>> for Shared {
    fn from(content: Arc<Content>) -> Self {
        Self(Arc::new(Ok(content).into()))
    }
}

impl Shared {
    pub fn read(&self, frame: &Bytes) -> Result<Arc<Content>, String> {
        let content = self.0.get_or_init(|| Content::read(frame).map(Arc::new));
        content.clone()
    }

    /// None before somebody has read it, or if it cannot be read.
    pub fn known(&self) -> Option<&Content> {
        self.0.get()?.as_deref().ok()
    }
}

impl Content {
    pub fn read(frame: &Bytes) -> Result<Self, String> {
        let head = RawFrame::decode(frame).map_err(|error| error.to_string())?;
        let (messages, columns) = undecoded(frame).map_err(|error| error.to_string())?;
        let mut events = Events::default();
        if let Some(columns) = &columns {
            if !messages.is_empty() {
                return Err("events both in columns and by themselves".to_owned());
            }
            let rows = Rows::parse(columns).map_err(|error| error.to_string())?;
            for (number, count) in rows.runs().map_err(|error| error.to_string())? {
                events.announce(kind_of_number(number.into())?, count);
            }
        }
        for message in messages {
            let kind = kind_of_number(number_of(&message).unwrap_or_default())?;
            events.announce(kind, 1).messages.push(message);
        }
        Ok(Self {
            columns,
            head,
            digest: Digest::of(frame),
            bytes: frame.clone(),
            events,
        })
    }

    /// What this process has written. `head` is as it stands in the frame.
    pub fn written(head: RawFrame, digest: Digest, bytes: Bytes, events: Events) -> Self {
        Self {
            head,
            digest,
            bytes,
            events,
            columns: None,
        }
    }

    /// Whoever reads the frame's bytes finds the same.
    pub fn is_what_is_read(&self) -> bool {
        let read = Self::read(&self.bytes).and_then(|read| {
            read.decode(Kinds::ALL)?;
            Ok(read)
        });
        read.is_ok_and(|read| {
            read.head == self.head
                && read.digest == self.digest
                && read.events(Kinds::ALL).eq(self.events(Kinds::ALL))
        })
    }

    /// How many events it has.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Of which kinds it has events.
    pub fn kinds(&self) -> impl Iterator<Item = EventKind> {
        self.events.kinds.iter().map(|of| of.kind)
    }

    /// Decodes those of these kinds that nobody has decoded yet.
    pub fn decode(&self, read: Kinds) -> Result<(), String> {
        let wanted = |of: &&OfKind| read.has(of.kind) && of.events.get().is_none();
        let mut wanted = self.events.kinds.iter().filter(wanted).peekable();
        if wanted.peek().is_none() {
            return Ok(());
        }
        let rows = self.columns.as_ref().map(|columns| Rows::parse(columns));
        let rows = rows.transpose().map_err(|error| error.to_string())?;
        for of in wanted {
            let events = match &rows {
                None => of.messages(),
                Some(rows) => of.columns(rows),
            };
            let events = events.map_err(|error| error.to_string())?;
            if events.len() != of.count {
                return Err(format!("not as many {} as there are", of.kind.name()));
            }
            // Another reader may have been faster, with the same.
            let _ = of.events.set(events);
        }
        Ok(())
    }

    /// Those of these kinds, with their index; none that was not decoded before.
    pub fn events(&self, read: Kinds) -> impl Iterator<Item = (u32, &Event)> {
        self.events.decoded(read)
    }
}

impl Events {
    /// One more, behind the others.
    pub fn push(&mut self, event: Event) {
        let of = self.announce(event.kind(), 1);
        match of.events.get_mut() {
            Some(events) => events.push(event),
            None => of.events = vec![event].into(),
        }
    }

    /// So many more events of a kind are behind the others, which are known or still to be decoded.
    fn announce(&mut self, kind: EventKind, count: u32) -> &mut OfKind {
        let index = self.len() as u32;
        let known = self.kinds.iter().position(|of| of.kind == kind);
        let of = known.unwrap_or_else(|| {
            self.kinds.push(OfKind {
                kind,
                count: 0,
                messages: Vec::new(),
                events: OnceLock::new(),
            });
            self.kinds.len() - 1
        });
        let (from, count) = (self.kinds[of].count, count as usize);
        self.kinds[of].count += count;
        match self.runs.last_mut() {
            Some(run) if run.of == of => run.count += count,
            _ => self.runs.push(Run {
                of,
                from,
                index,
                count,
            }),
        }
        &mut self.kinds[of]
    }

    pub fn len(&self) -> usize {
        let last = self.runs.last();
        last.map_or(0, |run| run.index as usize + run.count)
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Those of these kinds, with their index; none that was not decoded before.
    pub fn decoded(&self, read: Kinds) -> impl Iterator<Item = (u32, &Event)> {
        self.runs.iter().flat_map(move |run| {
            let of = &self.kinds[run.of];
            let events = of.events.get().filter(|_| read.has(of.kind));
            // Decoded are as many as there are.
            let events = events.map_or(&[][..], |events| &events[run.from..][..run.count]);
            (run.index..).zip(events)
        })
    }
}

impl OfKind {
    fn messages(&self) -> wire::Result<Vec<Event>> {
        let events = self.messages.iter();
        events.map(|bytes| Event::decode(bytes)).collect()
    }

    fn columns(&self, rows: &Rows) -> wire::Result<Vec<Event>> {
        // An event is large, so none is moved.
        let mut events = Vec::with_capacity(self.count);
        rows.read(self.kind as u32, &mut events)?;
        Ok(events)
    }
}

/// The events of a frame as they lie in its bytes: those that are messages, and the columns.
pub(crate) fn undecoded(frame: &Bytes) -> wire::Result<(Vec<Bytes>, Option<Bytes>)> {
    let (mut messages, mut columns) = (Vec::new(), None);
    let name = RawFrame::DESCRIPTOR.name;
    wire::raw::each_field(Body::Bytes(frame), Depth::MAX, name, |number, input| {
        match number {
            EVENTS => messages.push(frame.slice_ref(input.bytes()?)),
            COLUMNS => columns = Some(frame.slice_ref(input.bytes()?)),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((messages, columns))
}

/// The number of the kind that these bytes are of: an event has one field, its number first.
fn number_of(event: &Bytes) -> Option<u64> {
    let key = wire::raw::take_varint(&mut event.as_ref()).ok()?;
    Some(key >> 3)
}

fn kind_of_number(number: u64) -> Result<EventKind, String> {
    EventKind::from_number(number).ok_or_else(|| "an event of no kind".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_the_schema_says() {
        let found = wire::differences(RawFrame::DESCRIPTOR, schemas::FILE_DESCRIPTOR_SET);
        let events = ["Columns columns = 13", "repeated Event events = 9"];
        let events = events.map(|field| format!("Frame: `{field}` only in the schema"));
        assert_eq!(found, Ok(events.to_vec()));
    }
}
