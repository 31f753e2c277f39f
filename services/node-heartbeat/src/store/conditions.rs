//! The table `node_conditions`.

use crate::project::ConditionRow;
use chassis::warm::WarmError;
use sqlx::PgPool;
use table::{Row, Table};
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

impl From<Condition> for ConditionRow {
    fn from(row: Condition) -> Self {
        let Condition {
            node,
            condition,
            reason,
            since,
        } = row;
        Self {
            node,
            condition,
            reason,
            since,
        }
    }
}

/// What holds, by node and condition.
pub async fn conditions(pool: &PgPool) -> Result<Vec<ConditionRow>, WarmError> {
    let query = table::select(Condition::TABLE) + " ORDER BY node, condition";
    let rows: Vec<Condition> = sqlx::query_as(&query).fetch_all(pool).await?;
    Ok(rows.into_iter().map(ConditionRow::from).collect())
}
