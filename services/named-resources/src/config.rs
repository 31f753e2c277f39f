//! What decisions depend on beside the ledger.

use super::Bounds;
use serde::Deserialize;

/// As the service's configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What each tenant may have of named resources and leases.
    pub leases: Bounds,
    /// The length of a slot of leases on the cell's clock, in milliseconds; 0: requests say which slot they are of.
    /// The ledger says it, no file does.
    #[serde(skip)]
    pub slot_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            leases: Bounds::default(),
            slot_ms: 1000,
        }
    }
}
