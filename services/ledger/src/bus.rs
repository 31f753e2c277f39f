//! What the ledger needs from a bus, and no more: fenced append, ordered reading, the writer's last record, an inbox for
//! requests from outside, and a place for snapshots.

use crate::{
    content::{Content, Shared},
    frame::Digest,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{future::Future, sync::Arc};
use vocab::{
    Level, Lsn, Millis, Token, TraceContext, Writer,
    sabotage::{self, Bug},
};

/// One frame as it stands on the ledger. Clones share what has been read of it.
#[derive(Debug, Clone)]
pub struct Record {
    pub lsn: Lsn,
    pub writer: Writer,
    pub frame: Bytes,
    content: Shared,
}

impl Record {
    pub fn new(lsn: Lsn, writer: Writer, frame: Bytes) -> Self {
        Self {
            lsn,
            writer,
            frame,
            content: Shared::default(),
        }
    }

    pub(crate) fn content(&self) -> Result<Arc<Content>, String> {
        self.content.read(&self.frame)
    }

    /// Whether its writer resigned in it. False if it cannot be read.
    pub fn resigned(&self) -> bool {
        self.content().is_ok_and(|content| content.head.resigned)
    }
}

/// A frame that has no position yet, with what is known of it.
#[derive(Debug, Clone)]
pub struct Writing {
    frame: Bytes,
    content: Shared,
}

impl<B: Into<Bytes>> From<B> for Writing {
    fn from(frame: B) -> Self {
        Self {
            frame: frame.into(),
            content: Shared::default(),
        }
    }
}

impl Writing {
    pub(crate) fn of(content: Arc<Content>) -> Self {
        Self {
            frame: content.bytes.clone(),
            content: Shared::from(content),
        }
    }

    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// What is known of it, if anything is, is what whoever reads its bytes finds.
    pub fn is_what_is_read(&self) -> bool {
        let known = self.content.known();
        known.is_none_or(|content| content.is_what_is_read())
    }

    /// As it stands there then.
    pub fn landed(self, lsn: Lsn, writer: Writer) -> Record {
        let Self { frame, content } = self;
        Record {
            lsn,
            writer,
            frame,
            content,
        }
    }
}

/// Which inbox a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbox {
    /// Tenants and operators, decided by admission.
    Ingress,
    /// Node agents, decided by node-heartbeat.
    Report,
}

/// One message at an inbox. Who sent it is what the server authenticated; the payload has had no say in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMessage {
    pub seq: u64,
    /// The tenant, the node, or `_operator`.
    pub sender: Token,
    /// Which of the operators, where it is one with a name.
    pub by: Option<Box<Token>>,
    pub reply_to: Option<Token>,
    pub trace: Option<TraceContext>,
    /// It came with a header of the bus's own, by which the server treats messages of all senders as one's.
    pub reserved_header: bool,
    pub payload: Bytes,
}

/// Tells one ledger from another that was made anew under the same name: its time of creation, Unix nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerId(pub i64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The server refused: somebody else has appended on this writer's subject.
    #[error("fenced: another leader has appended")]
    Fenced,
    /// No answer. The frame may have landed or not.
    #[error("no acknowledgement: {0}")]
    Unknown(String),
    /// It was not sent: the ledger ends before what the frame says that its writer has read.
    #[error("the ledger ends at {} already", .0.0)]
    Shortened(Lsn),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("bus unavailable: {0}")]
    Unavailable(String),
    /// Something stands on the stream that this version cannot take for a record.
    #[error("foreign record at {lsn:?}: {why}")]
    Foreign { lsn: Lsn, why: String },
    /// The ledger is not the one that was read before: it has lost its end, and may have got another one since.
    #[error(
        "the ledger ends at {}, but {witness} holds what stood there up to {}: it has lost its end, or another one was written \
         over it; nothing is decided or shown until a person has looked", end.0, read.0
    )]
    Shortened {
        end: Lsn,
        witness: String,
        read: Lsn,
    },
}

impl BusError {
    /// No retry can mend it.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Unavailable(_))
    }
}

/// Who has read the ledger, how far, and what stood there, where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    pub who: String,
    pub lsn: Lsn,
    pub digest: Option<Digest>,
}

/// A snapshot as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    Whole(Bytes),
    /// It cannot be read to its end.
    Damaged(String),
}

/// An ordered, gap-free reading position.
pub trait Tail<T>: Send {
    /// Waits for the next one. Cancel-safe.
    fn recv(&mut self) -> impl Future<Output = Result<T, BusError>> + Send;
    /// The next one, if it is here already.
    fn try_recv(&mut self) -> Option<Result<T, BusError>>;
}

pub trait Bus: Clone + Send + Sync + 'static {
    type Records: Tail<Record>;
    type Messages: Tail<InboxMessage>;

    fn ledger_id(&self) -> impl Future<Output = Result<LedgerId, BusError>> + Send;

    /// The cell's feature level, as last heard. It never goes down, and nobody is asked: who has heard of the first level alone
    /// writes no more than that allows.
    fn level(&self) -> Level;

    /// Appends behind `expected_last`, the writer's own last frame (0: it has none). The server refuses otherwise. Not sent
    /// if the ledger does not hold what the writer has read, which is everything up to `through`.
    fn append(
        &self,
        writer: Writer,
        expected_last: Lsn,
        through: Lsn,
        frame: Writing,
    ) -> impl Future<Output = Result<Lsn, AppendError>> + Send;

    /// The writer's last record, by a read that cannot be stale.
    fn last(&self, writer: Writer)
    -> impl Future<Output = Result<Option<Record>, BusError>> + Send;

    /// What stands at a position that is not behind the end; none if it is not there.
    fn at(&self, lsn: Lsn) -> impl Future<Output = Result<Option<Record>, BusError>> + Send;

    /// Position of the ledger's last record, by a read that cannot be stale.
    fn end(&self) -> impl Future<Output = Result<Lsn, BusError>> + Send;

    /// What the server's clock shows, in real time; none if the bus has no clock of its own.
    fn server_time(&self) -> impl Future<Output = Result<Option<Millis>, BusError>> + Send;

    /// All records from `from` on.
    fn follow(&self, from: Lsn) -> impl Future<Output = Result<Self::Records, BusError>> + Send;

    /// All messages at the inbox from `from` on.
    fn inbox(
        &self,
        inbox: Inbox,
        from: u64,
    ) -> impl Future<Output = Result<Self::Messages, BusError>> + Send;

    /// Number of the last message that came in by the inbox.
    fn inbox_end(&self, inbox: Inbox) -> impl Future<Output = Result<u64, BusError>> + Send;

    /// The messages with these numbers; none in the place of one that the inbox has forgotten.
    fn inbox_at(
        &self,
        inbox: Inbox,
        seqs: Vec<u64>,
    ) -> impl Future<Output = Result<Vec<Option<InboxMessage>>, BusError>> + Send;

    /// Lets the inbox forget messages up to `through`, and of these senders up to another one each: they are decided, durably.
    fn inbox_trim(
        &self,
        inbox: Inbox,
        through: u64,
        ahead: Vec<(Token, u64)>,
    ) -> impl Future<Output = Result<(), BusError>> + Send;

    /// The latest snapshot of that name (`older` is 0), or the one before it (1); none if there is no such one.
    fn load_snapshot(
        &self,
        name: &str,
        older: usize,
    ) -> impl Future<Output = Result<Option<Stored>, BusError>> + Send;

    /// Saves it beside the latest one, in the place of the one before that, with what it bears witness of.
    fn save_snapshot(
        &self,
        name: &str,
        of: (LedgerId, Witness),
        bytes: Bytes,
    ) -> impl Future<Output = Result<(), BusError>> + Send;

    /// What all snapshots of a ledger bear witness of, without loading them.
    fn witnesses(
        &self,
        ledger: LedgerId,
    ) -> impl Future<Output = Result<Vec<Witness>, BusError>> + Send;
}

/// All records from `from` on, if the ledger still holds what was read: the server may have been restarted without what it
/// had not kept. Looked at behind the connection that the records come by: whatever is lost later breaks it.
pub async fn follow<B: Bus>(bus: &B, from: Lsn, read: &Witness) -> Result<B::Records, BusError> {
    let records = bus.follow(from).await?;
    bears_out(bus, read).await?;
    Ok(records)
}

/// Whether the ledger holds what the witness has read.
///
/// # Errors
/// [`BusError::Shortened`] if it is shorter, or has something else there: it may have lost its end and grown again.
pub async fn bears_out<B: Bus>(bus: &B, witness: &Witness) -> Result<(), BusError> {
    let end = bus.end().await?;
    if holds(bus, end, witness).await? || sabotage::armed(Bug::LostEndIgnored) {
        return Ok(());
    }
    Err(BusError::Shortened {
        end,
        witness: witness.who.clone(),
        read: witness.lsn,
    })
}

/// The same, as a fact, of a ledger that ends there.
async fn holds<B: Bus>(bus: &B, end: Lsn, witness: &Witness) -> Result<bool, BusError> {
    if witness.lsn > end {
        return Ok(false);
    }
    match witness.digest {
        Some(digest) if witness.lsn > Lsn(0) && !sabotage::armed(Bug::DigestIgnored) => {
            let stands = bus.at(witness.lsn).await?;
            Ok(stands.is_some_and(|record| Digest::of(&record.frame) == digest))
        }
        _ => Ok(true),
    }
}

/// Whether the ledger holds what all snapshots bear witness of, whosever they are.
pub async fn all_bear_out<B: Bus>(bus: &B, ledger: LedgerId) -> Result<(), BusError> {
    for witness in bus.witnesses(ledger).await? {
        bears_out(bus, &witness).await?;
    }
    Ok(())
}

/// What others say of the time, when a leader is about to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witnesses {
    /// The clock of the writer's own last frame: time does not go back behind it.
    pub own: Millis,
    /// The latest clock of any frame that has been read, the own ones among them.
    pub newest: Millis,
    /// The bus's clock, in real time.
    pub server: Option<Millis>,
}

/// The one injected clock.
pub trait Time: Clone + Send + Sync + 'static {
    /// The cell's clock, which may be a recorded one.
    fn now(&self) -> Millis;
    /// Sets the clock before a leader leads: no further ahead than the witnesses bear out, and not behind the writer's
    /// last frame. A clock that is not set shows what it shows.
    fn set(&self, _witnesses: &Witnesses) {}
    /// Until the cell's clock shows `at`.
    fn sleep_until(&self, at: Millis) -> impl Future<Output = ()> + Send;
    /// For retries and the like, in real time.
    fn pause(&self, real_ms: u64) -> impl Future<Output = ()> + Send;
}
