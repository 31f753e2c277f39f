//! The ledger on NATS JetStream, and the loops that read and write it.
//!
//! A [`Leader`] drives a decider: it reads inputs and appends one frame at a time. A [`Projector`] drives a read model
//! into a sink. Both run on any [`ledger::Bus`]; [`jetstream`] is the one of an installation.

pub mod cell;
mod chore;
pub mod copy;
pub mod jetstream;
mod leader;
mod projector;
mod question;
mod repair;
mod safety;
mod snapshots;
mod verify;

pub use copy::{Copy, CopyError};
pub use leader::{Decode, Leader, LeaderError, LeaderOptions, NoObserver, Observer, Standing};
pub use projector::{Projector, ProjectorError, ProjectorObserver};
pub use question::{Question, Questions, View};
pub use repair::{CopyFound, Findings, Found, Lost, NoWay, Survey, Way, survey};
pub use safety::{UnsafeLedger, check_ledger_settings};
pub use verify::{Verified, VerifyError, verify};
