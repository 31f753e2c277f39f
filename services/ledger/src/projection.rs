//! A read model: what it makes of the ledger, and where its changes go.

use crate::{
    bus::LedgerId,
    decider::IllegalEvent,
    frame::{Digest, Frame},
};
use serde::{Serialize, de::DeserializeOwned};
use std::future::Future;
use vocab::{At, Event, Lsn, fact::Inputs};

/// How much goes into a batch, and how often one is written.
#[derive(Debug, Clone, Copy)]
pub struct Batching {
    /// Events, at the most; a single frame may go beyond.
    pub events_max: usize,
    /// Frames, at the most.
    pub frames_max: usize,
    /// Real milliseconds between two batches, at the least. The first after a while goes out at once; while there is more
    /// and more to write, rows that change again meanwhile are written once, and what a batch costs by itself is shared
    /// by more.
    pub pause_ms: u64,
    /// The longest pause: one more millisecond for each so many changes of the batch before.
    pub pause_ms_max: u64,
}

/// Changes that make the pause behind their batch a millisecond longer.
const CHANGES_PER_MS: usize = 16;

impl Batching {
    /// What is there goes out.
    pub const PROMPT: Self = Self {
        events_max: 4096,
        frames_max: 1024,
        pause_ms: 0,
        pause_ms_max: 0,
    };
    /// For tables.
    pub const BULK: Self = Self {
        events_max: 65_536,
        frames_max: 4096,
        pause_ms: 150,
        pause_ms_max: 1000,
    };

    /// Whether somebody waits for each batch, so that it should stand behind nothing else.
    pub fn is_prompt(self) -> bool {
        self.pause_ms_max == 0
    }

    /// Behind a batch of so many changes.
    pub fn pause(self, changes: usize) -> u64 {
        let longer = (changes / CHANGES_PER_MS) as u64;
        self.pause_ms.saturating_add(longer).min(self.pause_ms_max)
    }
}

/// A pure fold of the whole ledger into changes of a read model: in its order, unless it [takes](Projection::take) frames in
/// another one.
pub trait Projection: Default + Serialize + DeserializeOwned + Send + 'static {
    type Change: Send + Sync + 'static;
    /// The facts that it reads; the others are not even decoded.
    type Input<'a>: Inputs<'a>;

    /// Names its snapshots.
    const NAME: &'static str;
    /// As a decider's.
    const STATE_VERSION: u32;
    const BATCHING: Batching = Batching::PROMPT;

    /// As a decider's.
    fn upgrade(_version: u32, _state: &[u8]) -> Option<Self> {
        None
    }

    fn project(
        &mut self,
        at: &At,
        input: Self::Input<'_>,
        out: &mut Vec<Self::Change>,
    ) -> Result<(), IllegalEvent>;

    /// Takes in an event, if it reads such.
    fn project_event(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<Self::Change>,
    ) -> Result<(), IllegalEvent> {
        match Self::Input::of(event) {
            Some(input) => self.project(at, input, out),
            None => Ok(()),
        }
    }

    /// Takes in a frame: its events that it reads, in their order.
    fn take(&mut self, frame: &Frame, out: &mut Vec<Self::Change>) -> Result<(), IllegalEvent> {
        for (at, event) in frame.placed() {
            self.project_event(&at, event, out)?;
        }
        Ok(())
    }

    /// Returns the position up to which all that was read has an effect. Frames after it wait for a frame of another writer.
    fn reached(&self, read: Lsn) -> Lsn {
        read
    }

    /// Adds what is written once for a batch, however often it has changed in it. What a state holds for this is not part
    /// of it: a snapshot is taken between batches.
    fn end_batch(&mut self, _out: &mut Vec<Self::Change>) {}
}

/// Changes of the frames `from..=to`; the same bounds give the same changes.
#[derive(Debug)]
pub struct Batch<C> {
    pub ledger: LedgerId,
    /// The last position that the sink had applied before.
    pub after: Lsn,
    pub to: Lsn,
    /// Of what stands at `to`.
    pub digest: Option<Digest>,
    pub changes: Vec<C>,
}

/// Where a sink stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// Everything up to here is applied.
    pub through: Lsn,
    /// Of what stood there, if the sink knows it.
    pub digest: Option<Digest>,
    /// A batch up to here was begun; it must be sent again with exactly these bounds.
    pub begun: Option<Lsn>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// Try the same batch again.
    #[error("sink unavailable: {0}")]
    Unavailable(String),
    /// Another projector has moved the position.
    #[error("sink moved on by another projector")]
    Moved,
    /// No retry can mend it: the projector ends.
    #[error("sink refused: {0}")]
    Refused(String),
}

/// Where changes go. Applies a batch together with its position, at once or so that a repeat does no harm.
pub trait Sink: Send + 'static {
    type Change: Send + Sync;

    /// The position; a sink that belongs to another ledger wipes itself first. It is asked again from time to time, because
    /// somebody may have emptied the sink, or put it back to what it was.
    fn resume(
        &mut self,
        ledger: LedgerId,
    ) -> impl Future<Output = Result<Resume, SinkError>> + Send;

    fn apply(
        &mut self,
        batch: &Batch<Self::Change>,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;
}
