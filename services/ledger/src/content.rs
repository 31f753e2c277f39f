//! What a record says, read once for all readers of a process: its head, its digest, and each event when the first of
//! them wants it.

use crate::frame::Digest;
use bytes::Bytes;
use prost::Message;
use std::sync::{Arc, OnceLock};
use vocab::{Event, EventKind, Kinds};
use wire::Message as _;

/// The contract's `Frame` with its events as they were written, so that those alone are decoded that somebody reads.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawFrame {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(uint64, tag = "2")]
    pub frame_no: u64,
    #[prost(uint64, tag = "3")]
    pub through_lsn: u64,
    #[prost(uint64, tag = "4")]
    pub through_inbox: u64,
    #[prost(int64, tag = "5")]
    pub now_ms: i64,
    #[prost(uint64, tag = "6")]
    pub prev_lsn: u64,
    #[prost(bytes = "bytes", tag = "7")]
    pub prev_digest: Bytes,
    #[prost(uint64, tag = "8")]
    pub first_event_no: u64,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub events: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "10")]
    pub leader: Bytes,
    #[prost(message, repeated, tag = "11")]
    pub ahead: Vec<RawAhead>,
    #[prost(bool, tag = "12")]
    pub resigned: bool,
}

/// How far a sender's messages are handled beyond the inbox's position.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawAhead {
    #[prost(string, tag = "1")]
    pub sender: String,
    #[prost(uint64, tag = "2")]
    pub through: u64,
}

/// A frame's bytes, read. Whether it continues the chain is for each reader to say.
#[derive(Debug)]
pub(crate) struct Content {
    /// Without its events.
    pub head: RawFrame,
    pub digest: Digest,
    /// All of it.
    pub bytes: Bytes,
    cells: Vec<Cell>,
}

/// An event's place in its frame.
#[derive(Debug)]
struct Cell {
    kind: EventKind,
    bytes: Bytes,
    event: OnceLock<Event>,
}

/// Read by whoever is first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<OnceLock<Result<Arc<Content>, String>>>);

impl Shared {
    pub fn read(&self, frame: &Bytes) -> Result<Arc<Content>, String> {
        let content = self.0.get_or_init(|| Content::read(frame).map(Arc::new));
        content.clone()
    }
}

impl Content {
    pub fn read(frame: &Bytes) -> Result<Self, String> {
        let mut head = RawFrame::decode(frame.clone()).map_err(|error| error.to_string())?;
        let events = std::mem::take(&mut head.events);
        // A cell is large, so none is moved.
        let mut cells = Vec::with_capacity(events.len());
        for bytes in events {
            cells.push(Cell {
                kind: kind_of(&bytes).ok_or("an event of no kind")?,
                bytes,
                event: OnceLock::new(),
            });
        }
        Ok(Self {
            cells,
            head,
            digest: Digest::of(frame),
            bytes: frame.clone(),
        })
    }

    /// How many events it has.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn kinds(&self) -> impl Iterator<Item = EventKind> {
        self.cells.iter().map(|cell| cell.kind)
    }

    /// Decodes those of these kinds that nobody has decoded yet.
    pub fn decode(&self, read: Kinds) -> Result<(), String> {
        for cell in self.cells.iter().filter(|cell| read.has(cell.kind)) {
            if cell.event.get().is_none() {
                // Another reader may have been faster, with the same.
                let event = Event::decode(&cell.bytes).map_err(|error| error.to_string())?;
                let _ = cell.event.set(event);
            }
        }
        Ok(())
    }

    /// Those of these kinds, with their index; none that was not decoded before.
    pub fn events(&self, read: Kinds) -> impl Iterator<Item = (u32, &Event)> {
        let read = (0..)
            .zip(&self.cells)
            .filter(move |(_, cell)| read.has(cell.kind));
        read.filter_map(|(index, cell)| Some((index, cell.event.get()?)))
    }
}

/// What kind of event these bytes are: an event has one field, its number first.
fn kind_of(event: &Bytes) -> Option<EventKind> {
    let key = prost::encoding::decode_varint(&mut event.as_ref()).ok()?;
    EventKind::from_number(key >> 3)
}
