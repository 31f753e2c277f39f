//! The table `node_conditions`.

use crate::project::ConditionRow;
use table::Table;
use vocab::{Millis, Token};

/// What holds of the nodes by the word of their agents. MemoryPressure, DiskPressure and NetworkUnavailable keep new allocations
/// away.
#[derive(Table)]
#[table(name = "node_conditions", key(node, condition))]
pub struct Condition {
    #[table(check = "node ~ '^[A-Za-z0-9_-]{1,64}$'")]
    node: Token,
    condition: Token,
    /// NULL when its agent says none.
    reason: Option<Token>,
    /// It holds for this reason since then.
    since: Millis,
}

impl From<&ConditionRow> for Condition {
    fn from(row: &ConditionRow) -> Self {
        let ConditionRow {
            node,
            condition,
            reason,
            since,
        } = row.clone();
        Self {
            node,
            condition,
            reason,
            since,
        }
    }
}
