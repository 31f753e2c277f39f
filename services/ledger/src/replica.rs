//! A decider's state at a position of the ledger, without any IO: folds records, drafts frames, knows its own.

use crate::{
    bus::{Record, Witness, Writing},
    content::Content,
    decider::{AboveLevel, Decider, Draft, IllegalEvent, Poison},
    frame::{self, Chain, ChainError, Encoded, Frame, Head},
    inbox::Handled,
    snapshot::Snapshot,
    unread::Unread,
};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vocab::fact::Inputs;
use vocab::{
    Kinds, Level, Lsn, Millis, Writer,
    sabotage::{self, Bug},
};
use wire::Columns;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error("{lsn:?}: {illegal}")]
    Illegal { lsn: Lsn, illegal: IllegalEvent },
    #[error(transparent)]
    AboveLevel(#[from] AboveLevel),
    /// Another leader of the same writer appended a frame while this replica had already gone another way.
    #[error("another leader's frame at {0:?} overtook this replica")]
    Overtaken(Lsn),
}

impl From<Poison> for ReplicaError {
    fn from(poison: Poison) -> Self {
        match poison {
            Poison::Illegal(illegal) => Self::Illegal {
                lsn: Lsn(0),
                illegal,
            },
            Poison::AboveLevel(above) => above.into(),
        }
    }
}

/// There was nothing to decide.
#[derive(Debug, Clone, Copy)]
pub struct Rehearsed {
    /// The next record to read at the time.
    through: Lsn,
    /// When there may be something again though nothing was read.
    until: Option<Millis>,
}

impl Rehearsed {
    pub fn holds(self, next: Lsn, now: Millis) -> bool {
        self.is_of(next) && self.until.is_none_or(|until| now < until)
    }

    /// Nothing was read since.
    pub fn is_of(self, next: Lsn) -> bool {
        next == self.through
    }
}

/// A frame ready to be appended.
#[derive(Debug, Clone)]
pub struct Sealed {
    content: Arc<Content>,
    writer: Writer,
    /// The writer's own last position, the fence of the append.
    pub expected_last: Lsn,
    /// What its writer has read of the others.
    pub through: Lsn,
    head: Head,
}

impl Sealed {
    pub fn digest(&self) -> frame::Digest {
        self.head.digest
    }

    pub fn bytes(&self) -> &Bytes {
        &self.content.bytes
    }

    /// As it is appended.
    pub fn writing(&self) -> Writing {
        Writing::of(self.content.clone())
    }

    /// As somebody reads it who reads all kinds of events, once it stands there.
    pub fn at(&self, lsn: Lsn) -> Frame {
        Frame::of(lsn, self.writer, self.content.clone(), Kinds::ALL)
    }
}

/// What was taken in since the writer's own last frame said how far it had read.
#[derive(Debug, Clone, Copy, Default)]
struct Unsaid {
    events: u64,
    /// Some of it is read by this writer.
    concerns: bool,
}

/// The state of `D`, folded in the order in which its leader saw things: the other writers' frames up to a frame's
/// `through_lsn`, then that frame.
#[derive(Debug)]
pub struct Replica<D> {
    state: D,
    /// What this replica has read.
    seen: Chain,
    /// What its state has taken in of the other writers.
    folded: Lsn,
    /// The other writers' heads at `folded`.
    folded_chain: Chain,
    /// With their writers' heads.
    pending: Unread<Head>,
    unsaid: Unsaid,
    /// What the columns of the last frame were put together in.
    columns: Mutex<Option<Box<Columns>>>,
}

impl<D: Decider> Default for Replica<D> {
    fn default() -> Self {
        Self {
            state: D::default(),
            seen: Chain::default(),
            folded: Lsn(0),
            folded_chain: Chain::default(),
            pending: Unread::default(),
            unsaid: Unsaid::default(),
            columns: Mutex::default(),
        }
    }
}

impl<D: Decider> Replica<D> {
    pub fn state(&self) -> &D {
        &self.state
    }

    /// For the leader, which decides on it.
    pub fn state_mut(&mut self) -> &mut D {
        &mut self.state
    }

    pub fn head(&self) -> Head {
        self.seen.head(D::WRITER)
    }

    /// What the state has taken in of the other writers.
    pub fn folded(&self) -> Lsn {
        self.folded
    }

    /// The latest clock of any frame that has been read.
    pub fn newest(&self) -> Millis {
        self.seen.newest()
    }

    /// What is known of the ledger, as far as it is known.
    pub fn witness(&self) -> Witness {
        self.seen.witness(D::WRITER.name())
    }

    /// How far all of these have read that have written something yet, as far as is known here.
    pub fn read_by(&self, readers: &[Writer]) -> Lsn {
        let heads = readers.iter().map(|reader| self.seen.head(*reader));
        let begun = heads.filter(|head| head.frame_no > 0);
        let through = begun.map(|head| head.through_lsn).min();
        through.unwrap_or(Lsn(u64::MAX))
    }

    /// The next record to read.
    pub fn next(&self) -> Lsn {
        Lsn(self.seen.last().0 + 1)
    }

    /// Whether others have said something that the state has not taken in.
    pub fn has_pending(&self) -> bool {
        self.pending.frames().any(Frame::concerns)
    }

    /// Whether the state has taken in something that no frame of the writer confirms.
    pub fn is_unsaid(&self) -> bool {
        self.unsaid.concerns
    }

    /// Takes in one record. An own frame that somebody else appended is folded behind the inputs that it names; if this
    /// state has gone beyond those, it cannot be mended and must be built anew.
    pub fn receive(&mut self, record: &Record) -> Result<Option<Frame>, ReplicaError> {
        let read = if record.writer == D::WRITER {
            Kinds::ALL
        } else {
            D::Input::KINDS
        };
        let Some(frame) = self.seen.accept(record, read)? else {
            return Ok(None);
        };
        if frame.writer != D::WRITER {
            let head = self.seen.head(frame.writer);
            self.pending.push(frame.clone(), head);
            return Ok(Some(frame));
        }
        if self.folded > frame.through_lsn {
            return Err(ReplicaError::Overtaken(frame.lsn));
        }
        self.fold_through(frame.through_lsn)?;
        for (at, event) in frame.placed() {
            self.state
                .evolve_event(&at, event)
                .map_err(|illegal| ReplicaError::Illegal {
                    lsn: frame.lsn,
                    illegal,
                })?;
        }
        // What somebody else's frame has its leader do is done by that leader, and would only pile up here.
        drop(self.state.take_effects());
        self.unsaid = Unsaid::default();
        Ok(Some(frame))
    }

    /// Folds all inputs that have been read.
    pub fn fold_all(&mut self) -> Result<(), ReplicaError> {
        self.fold_through(self.seen.last())
    }

    fn fold_through(&mut self, through: Lsn) -> Result<(), ReplicaError> {
        while let Some((frame, head)) = self.pending.next(through) {
            for (at, event) in frame.placed() {
                self.state
                    .observe_event(&at, event)
                    .map_err(|illegal| ReplicaError::Illegal {
                        lsn: frame.lsn,
                        illegal,
                    })?;
            }
            self.unsaid.events += u64::from(frame.count);
            self.unsaid.concerns |= frame.concerns();
            self.folded_chain.set(frame.writer, head);
        }
        self.folded = self.folded.max(through);
        Ok(())
    }

    /// What deciding would come to: none if to something, or to an error. Tried on a copy, which takes in no inputs.
    pub fn rehearse(&self, config: &D::Config, now: Millis, level: Level) -> Option<Rehearsed> {
        let mut copy = Self::restore(&self.snapshot())?;
        let mut draft = copy.draft(now, level);
        copy.state.decide(config, &mut draft);
        let (through, until) = (self.next(), copy.state.wake_at());
        (draft.is_empty() && draft.poison().is_none()).then_some(Rehearsed { through, until })
    }

    /// Begins a frame in a cell of that feature level. The clock never goes backwards along the chain.
    pub fn draft(&self, now: Millis, level: Level) -> Draft {
        let head = self.head();
        let columns = self.columns().take().unwrap_or_default();
        Draft::in_columns(now.max(head.now), head.next_event, columns).at_level(level)
    }

    /// Closes a frame. None if there is nothing to record: no event, no progress at the inbox, and fewer events read than what
    /// is said so.
    pub fn seal(
        &self,
        draft: Draft,
        leader: &[u8; 16],
        epoch: u64,
        handled: Handled,
        says_after: u64,
    ) -> Result<Option<Sealed>, ReplicaError> {
        if let Some(poison) = draft.poison {
            return Err(poison.into());
        }
        let head = self.head();
        // Before its first frame nobody waits for it, and that frame must be one that only this ledger takes.
        let says = head.frame_no > 0 && self.unsaid.events >= says_after;
        let idle = draft.events.is_empty() && handled == head.handled && !says;
        if idle {
            self.reuse(draft.encoded);
            return Ok(None);
        }
        Ok(Some(self.close(draft, leader, epoch, handled, false)))
    }

    fn columns(&self) -> MutexGuard<'_, Option<Box<Columns>>> {
        // Whatever is in them is cleared.
        self.columns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a draft was put together in for the next one.
    fn reuse(&self, encoded: Encoded) {
        if let Encoded::Columns(columns) = encoded {
            *self.columns() = Some(columns);
        }
    }

    /// A frame without events: how far its leader has read, and whether it is that leader's last.
    pub fn seal_bare(
        &self,
        now: Millis,
        leader: &[u8; 16],
        epoch: u64,
        handled: Handled,
        resigned: bool,
    ) -> Sealed {
        self.close(
            self.draft(now, Level::KNOWN),
            leader,
            epoch,
            handled,
            resigned,
        )
    }

    fn close(
        &self,
        mut draft: Draft,
        leader: &[u8; 16],
        epoch: u64,
        handled: Handled,
        resigned: bool,
    ) -> Sealed {
        let head = self.head();
        let off = u64::from(sabotage::armed(Bug::WatermarkOffByOne));
        let through = (Lsn(self.folded.0 + off), handled);
        let events = (draft.events, &mut draft.encoded);
        let (content, next) =
            frame::write(&head, leader, epoch, draft.now, through, events, resigned);
        self.reuse(draft.encoded);
        Sealed {
            content: Arc::new(content),
            writer: D::WRITER,
            expected_last: head.lsn,
            through: self.folded,
            head: next,
        }
    }

    /// The sealed frame is durable at `lsn`; the state has its events already.
    pub fn committed(&mut self, sealed: &Sealed, lsn: Lsn) {
        let head = Head {
            lsn,
            ..sealed.head.clone()
        };
        self.seen.set(D::WRITER, head);
        self.unsaid = Unsaid::default();
    }

    /// The state at the frame just committed or folded. Valid only there: in between, the state may hold inputs that no
    /// frame has confirmed.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_with_room(0)
    }

    /// The same, with room for that many bytes.
    pub fn snapshot_with_room(&self, room: usize) -> Snapshot {
        let chain = self.folded_chain.at(self.folded, D::WRITER, self.head());
        Snapshot::with_room(D::STATE_VERSION, chain, &self.state, room)
    }

    /// Continues from a snapshot; none if it is of a shape that is not known.
    pub fn restore(snapshot: &Snapshot) -> Option<Self> {
        let state = snapshot.upgraded(D::STATE_VERSION, D::upgrade)?;
        Some(Self {
            state,
            folded: snapshot.chain.last(),
            folded_chain: snapshot.chain.clone(),
            seen: snapshot.chain.clone(),
            pending: Unread::default(),
            unsaid: Unsaid::default(),
            columns: Mutex::default(),
        })
    }
}
