//! The ledger: the one ordered record from which everything else is folded.
//!
//! A deciding service is a [`Decider`] (pure) with a [`Replica`] of its state; what it decides becomes a sealed [`Frame`]. A read
//! model is a [`Projection`] (pure) into a [`Sink`].
//! The [`Bus`] is where frames, snapshots and inputs are kept; [`memory`] implements it for tests and simulations, with
//! seeded faults. This crate does no IO and needs no runtime: the crate `ledger-nats` has JetStream and the loops.

pub mod bus;
mod content;
mod decider;
pub mod figures;
mod frame;
mod inbox;
pub mod memory;
mod projection;
mod replica;
mod scratch;
mod scribe;
mod snapshot;
mod unread;

pub use bus::{
    AppendError, Bus, BusError, Inbox, InboxMessage, LedgerId, Record, Stored, Tail, Time, Witness,
    Witnesses, Writing,
};
pub use decider::{AboveLevel, Decider, Draft, IllegalEvent, OwnFact, Poison};
pub use figures::{Figures, Metric, Times};
pub use frame::{Chain, ChainError, Digest, Frame, Head, NoDigest};
pub use inbox::{Backlog, Handled, InboxLimits, SAYS_AFTER, Taken};
pub use projection::{Batch, Batching, Projection, Resume, Sink, SinkError};
pub use replica::{Rehearsed, Replica, ReplicaError, Sealed};
pub use scratch::Scratch;
pub use scribe::Scribe;
pub use snapshot::{KEPT, Snapshot, Upgrade, decode_state, state_digest};
pub use unread::Unread;

#[cfg(test)]
mod tests;
