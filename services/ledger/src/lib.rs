//! The ledger: the one ordered record from which everything else is folded.
//!
//! A deciding service is a [`Decider`] (pure) driven by a [`Leader`] (reads inputs, appends one frame at a time). A
//! read model is a [`Projection`] (pure) driven by a [`Projector`] into a [`Sink`]. Both stand on the thin [`Bus`],
//! which JetStream and a seeded in-memory double implement.

pub mod bus;
pub mod cell;
mod chore;
mod content;
mod copy;
mod decider;
pub mod figures;
mod frame;
mod inbox;
pub mod jetstream;
mod leader;
pub mod memory;
mod projector;
mod question;
mod repair;
mod replica;
mod safety;
mod scratch;
mod scribe;
mod snapshot;
mod unread;
mod verify;

pub use bus::{
    AppendError, Bus, BusError, Inbox, InboxMessage, LedgerId, Record, Stored, Tail, Time, Witness,
    Witnesses, Writing,
};
pub use copy::{Copy, CopyError};
pub use decider::{AboveLevel, Decider, Draft, IllegalEvent, OwnFact, Poison};
pub use figures::{Figures, Metric, Times};
pub use frame::{Chain, ChainError, Digest, Frame, Head, NoDigest};
pub use inbox::{Handled, InboxLimits, SAYS_AFTER};
pub use leader::{Decode, Leader, LeaderError, LeaderOptions, NoObserver, Observer, Standing};
pub use projector::{
    Batch, Batching, Projection, Projector, ProjectorError, ProjectorObserver, Resume, Sink,
    SinkError,
};
pub use question::{Question, Questions, View};
pub use repair::{CopyFound, Findings, Found, Lost, NoWay, Survey, Way, survey};
pub use replica::{Replica, ReplicaError, Sealed};
pub use safety::{UnsafeLedger, check_ledger_settings};
pub use scratch::Scratch;
pub use scribe::Scribe;
pub use snapshot::{Snapshot, Upgrade, decode_state, state_digest};
pub use unread::Unread;
pub use verify::{Verified, VerifyError, verify};
