//! What decisions depend on beside the ledger.

use super::Shares;
use serde::Deserialize;
use vocab::CellNo;

/// As the service's configuration has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long an operation id is remembered, and an allocation after its end, in milliseconds of the cell's clock.
    pub operation_window_ms: i64,
    /// Operations of one tenant that are remembered at the same time.
    pub operations_max: u64,
    /// Allocations of one tenant that have not ended.
    pub allocations_max: u64,
    /// Memory of the cell's services that is counted for what tenants have.
    pub room: Shares,
    /// How long an operation is remembered whose request says its slot, in slots: the longest time to live and the time
    /// for retries after it.
    pub window_slots: u64,
    /// The length of a slot of leases on the cell's clock, in milliseconds; 0: requests say which slot they are of.
    /// The ledger says it, no file does.
    #[serde(skip)]
    pub slot_ms: u64,
    /// The cell's own, as all its services have it.
    #[serde(skip)]
    pub cell: CellNo,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            operation_window_ms: 24 * vocab::HOUR_MS,
            operations_max: 5_000_000,
            allocations_max: 5_000_000,
            room: Shares::default(),
            window_slots: 2 * 86_400,
            slot_ms: 1000,
            cell: CellNo(1),
        }
    }
}
