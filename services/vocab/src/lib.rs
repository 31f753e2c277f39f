//! The words that all services share: ids, quantities, time, refusals and the facts of the ledger.
//!
//! No IO, no clock, no async, no generated types. The contract crate has the same words as messages; `ledger::wire`
//! is the one place that converts between the two.

mod event;
mod ids;
mod refusal;
pub mod sabotage;
mod spec;
mod time;
mod token;

pub use event::{
    AdminChange, At, CancelVerdict, EndCause, Event, GpuShare, Operation, RunState, TraceContext,
    WaitingReason, Writer,
};
pub use ids::{AllocationId, AllocationNo, CellNo, EventNo, Lsn};
pub use refusal::{Refusal, Rule};
pub use spec::{AllocationSpec, GpuRequest, NodeCapacity, ResourceKey, ResourceKind};
pub use time::{HOUR_MS, Millis};
pub use token::{BadToken, Token};
