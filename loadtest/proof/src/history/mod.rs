//! Checks what clients saw of named resources against the ledger: strict serializability, by a naive model of them.
//!
//! A history is what was seen from outside: calls with the moments of their invocation and answer, reads, and what the
//! ledger says was decided. Since the ledger gives the order away, nothing has to be searched for: it is enough that
//!
//! 1. an operation has one outcome, and another content under its id a conflict,
//! 2. the decisions, replayed in the ledger's order by a naive sequential model, are those that were given,
//! 3. what was answered before something else was invoked stands before it,
//! 4. what stands on the ledger was asked for, and what was answered stands there.
//!
//! A call without an answer may stand on the ledger or not, at any place after its invocation. Only
//! [`run`] and [`drive`] do IO.

mod call;
mod cause;
mod check;
mod command;
pub mod drive;
mod ledger;
mod lines;
mod order;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;
mod violation;
pub mod wire;

pub use call::{Answer, Call, Decision, Entry, Fact, Found, Read, Seen};
pub use check::{Summary, check};
pub use command::{Options, run};
pub use lines::{BadLine, read_lines, write_lines};
pub use recorder::{CallNo, Recorder, Sent};
pub use violation::{Broken, Party, Violation};

use serde::{Deserialize, Serialize};

/// Settings of the cell that decisions depend on. All of them are of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub resources_max: usize,
    /// Ended ones count for as long as they are remembered.
    pub leases_max: usize,
    pub members_max: usize,
    pub ttl_slots_max: u64,
    /// An operation is known at its own slot and this many after it. Where the window is one of the clock, one slot less
    /// than fits into it: the slot at which it was asked began before it.
    pub window_slots: u64,
    /// What has ended is remembered for this many slots more.
    pub history_slots: u64,
    /// Leases of one deadline.
    pub expirations_max: usize,
}

/// Those of them that the decider of the resources is given.
impl From<Bounds> for named_resources::Bounds {
    fn from(bounds: Bounds) -> Self {
        Self {
            resources_max: bounds.resources_max as u64,
            leases_max: bounds.leases_max as u64,
            bundle_max: bounds.members_max,
            ttl_slots_max: bounds.ttl_slots_max,
            history_slots: bounds.history_slots,
            expirations_per_slot_max: bounds.expirations_max,
        }
    }
}

/// All that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    pub bounds: Bounds,
    /// In any order.
    pub calls: Vec<Call>,
    /// In any order.
    pub reads: Vec<Read>,
    /// In the ledger's order, from the first decision about these tenants' resources to one after the last answer.
    pub ledger: Vec<Entry>,
}
