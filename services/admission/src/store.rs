//! Warm state of admission: SQL stands in the files of this module and nowhere else.

mod operations;

pub use operations::{StoredOperation, StoredRefusal, operation};

use crate::project::{Change, OperationRow, TenantRow, WarmProjection};
use chassis::warm::{PgSink, Position, WarmError, WarmState, bigint, insert, merge};
use ledger::Projection;
use operations::Operation;
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{CellNo, EventNo, Millis, Token};

/// The tables of `schemas/postgres/admission`.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionTables {
    /// Part of every allocation's id.
    pub cell: CellNo,
}

/// They are made of the rows, and [`VIEWS`] of them.
pub const TABLES: &[&Table] = &[Position::TABLE, Tenant::TABLE, Operation::TABLE];
pub const VIEWS: &str = include_str!("store/views.sql");

/// Where the projection's changes go.
pub fn sink(pool: PgPool, cell: CellNo) -> PgSink<AdmissionTables> {
    PgSink::new(pool, AdmissionTables { cell })
}

impl WarmState for AdmissionTables {
    type Change = Change;

    const NAME: &'static str = WarmProjection::NAME;
    const DDL: &'static str = include_str!("../../../schemas/postgres/admission/0001_tables.sql");

    /// Forgets first: an operation id may be used again from then on.
    async fn write(&self, tx: &mut PgConnection, changes: &[Change]) -> Result<(), WarmError> {
        let rows = Rows::of(changes);
        if let Some(through) = rows.forgotten {
            forget(tx, through).await?;
        }
        for (tenant, through) in &rows.forgotten_of {
            forget_of(tx, tenant, *through).await?;
        }
        merge(tx, &rows.tenants).await?;
        let columns = |row| Operation::of(self.cell, row);
        let new: Vec<_> = rows.new_operations.into_iter().map(columns).collect();
        insert(tx, &new).await?;
        let changed: Vec<_> = rows.operations.into_iter().map(columns).collect();
        merge(tx, &changed).await
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        sqlx::query!("TRUNCATE tenants, operations")
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// A batch with one row per key, as a statement may not touch a row twice.
#[derive(Default)]
struct Rows<'a> {
    forgotten: Option<EventNo>,
    /// Of those whose window is counted in slots.
    forgotten_of: BTreeMap<&'a Token, EventNo>,
    tenants: Vec<Tenant>,
    /// That no batch has written before.
    new_operations: Vec<&'a OperationRow>,
    operations: Vec<&'a OperationRow>,
}

/// Who may ask.
#[derive(Table)]
#[table(name = "tenants", key(tenant))]
pub struct Tenant {
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'")]
    tenant: Token,
    #[table(check = "version > 0")]
    version: u64,
    #[table(fixed)]
    created_at: Millis,
    changed_at: Millis,
}

impl<'a> Rows<'a> {
    fn of(changes: &'a [Change]) -> Self {
        let mut forgotten = None;
        let mut forgotten_of: BTreeMap<&Token, EventNo> = BTreeMap::new();
        let mut tenants: BTreeMap<&Token, Tenant> = BTreeMap::new();
        let mut operations = BTreeMap::new();
        for change in changes {
            match change {
                Change::Tenant(TenantRow {
                    tenant,
                    version,
                    at,
                }) => {
                    let row = tenants.entry(tenant).or_insert_with(|| Tenant {
                        tenant: tenant.clone(),
                        version: *version,
                        created_at: *at,
                        changed_at: *at,
                    });
                    row.version = *version;
                    row.changed_at = *at;
                }
                Change::Operation { row, first } => {
                    operations.insert(row.no, (row, *first));
                }
                Change::Forgotten {
                    through,
                    slots_of: None,
                } => forgotten = forgotten.max(Some(*through)),
                Change::Forgotten {
                    through,
                    slots_of: Some(tenant),
                } => {
                    let known = forgotten_of.entry(tenant).or_default();
                    *known = (*known).max(*through);
                }
            }
        }
        operations.retain(
            |no, (row, _): &mut (&OperationRow, bool)| match row.by_slots {
                true => forgotten_of.get(&row.tenant) < Some(no),
                false => Some(*no) > forgotten,
            },
        );
        let operations = operations.into_values();
        let (new, others): (Vec<_>, Vec<_>) = operations.partition(|(_, first)| *first);
        let rows = |operations: Vec<(&'a OperationRow, bool)>| {
            operations.into_iter().map(|(row, _)| row).collect()
        };
        Self {
            forgotten,
            forgotten_of,
            tenants: tenants.into_values().collect(),
            new_operations: rows(new),
            operations: rows(others),
        }
    }
}

async fn forget(tx: &mut PgConnection, through: EventNo) -> Result<(), WarmError> {
    let through = bigint("event_no", through.0)?;
    sqlx::query!(
        "DELETE FROM operations WHERE event_no <= $1 AND NOT by_slots",
        through
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn forget_of(
    tx: &mut PgConnection,
    tenant: &Token,
    through: EventNo,
) -> Result<(), WarmError> {
    sqlx::query!(
        "DELETE FROM operations WHERE tenant = $1 AND event_no <= $2 AND by_slots",
        tenant.as_str(),
        bigint("event_no", through.0)?,
    )
    .execute(tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{OutcomeKind, SubmitState, Verb};
    use crate::project::OperationState;
    use vocab::{AllocationNo, EndCause};

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn operation(no: u64, state: OperationState) -> Change {
        let row = OperationRow {
            no: EventNo(no),
            tenant: token("t"),
            operation_id: None,
            digest: [0; 16],
            verb: Some(Verb::Submit),
            allocation: None,
            by_slots: false,
            requested_at: Millis(0),
            state,
        };
        Change::Operation { row, first: true }
    }

    fn tenant(name: &str, version: u64, at: i64) -> Change {
        Change::Tenant(TenantRow {
            tenant: token(name),
            version,
            at: Millis(at),
        })
    }

    #[test]
    fn a_batch_has_one_row_per_key() {
        let ended = OperationState::Decided {
            at: Millis(9),
            outcome: OutcomeKind::Submitted {
                allocation: AllocationNo(3),
                state: SubmitState::Ended {
                    cause: EndCause::Cancelled,
                    at: Millis(9),
                },
            },
        };
        let changes = [
            operation(1, OperationState::Pending),
            operation(3, OperationState::Pending),
            tenant("a", 1, 5),
            operation(2, OperationState::Pending),
            Change::Forgotten {
                through: EventNo(2),
                slots_of: None,
            },
            tenant("a", 2, 6),
            operation(3, ended.clone()),
            Change::Forgotten {
                through: EventNo(1),
                slots_of: None,
            },
        ];
        let rows = Rows::of(&changes);
        assert_eq!(rows.forgotten, Some(EventNo(2)));
        let operations: Vec<_> = rows
            .new_operations
            .iter()
            .map(|row| (row.no.0, &row.state))
            .collect();
        assert_eq!(operations, [(3, &ended)]);
        assert!(rows.operations.is_empty());
        let tenants: Vec<_> = rows
            .tenants
            .iter()
            .map(|row| {
                (
                    row.tenant.as_str(),
                    row.version,
                    row.created_at.0,
                    row.changed_at.0,
                )
            })
            .collect();
        assert_eq!(tenants, [("a", 2, 5, 6)]);
    }
}
