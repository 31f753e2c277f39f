//! Warm state of admission: SQL stands in the files of this module and nowhere else.

mod answered;
mod operations;
mod rates;
mod refusals;
mod settings;

pub use operations::{StoredOperation, StoredRefusal, operation};
pub use rates::{Rate, rates};
pub use refusals::{RefusedOperation, refusals};
pub use settings::{Own, Setting, setting, settings};

use crate::project::{AnsweredRow, Change, OperationRow, SettingRow, TenantRow, WarmProjection};
use answered::Window;
use chassis::warm::{PgSink, Position, WarmError, WarmState, bigint, empty, insert, merge};
use ledger::Projection;
use operations::Operation;
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{CellNo, Event, EventNo, Millis, Token};

/// The tables of `schemas/postgres/admission`.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionTables {
    /// Part of every allocation's id.
    pub cell: CellNo,
}

/// They are made of the rows, and [`VIEWS`] of them.
pub const TABLES: &[&Table] = &[
    Position::TABLE,
    Tenant::TABLE,
    Setting::TABLE,
    Rate::TABLE,
    Operation::TABLE,
    answered::PARTS[0],
    answered::PARTS[1],
    Window::TABLE,
];
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
        let settings = rows.settings.into_values().map(Setting::from);
        merge(tx, &settings.collect::<Vec<_>>()).await?;
        merge(tx, &rows.rates).await?;
        let columns = |row| Operation::of(self.cell, row);
        insert(tx, rows.new_operations.into_iter().map(columns)).await?;
        let changed: Vec<_> = rows.operations.into_iter().map(columns).collect();
        merge(tx, &changed).await?;
        answered::write(tx, rows.answered, &rows.no_more_open, rows.forgotten).await
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        empty(
            &mut *tx,
            &[
                "tenants",
                "settings",
                "rates",
                "other_operations",
                "answered_submits_1",
                "answered_submits_2",
                "submit_window",
            ],
        )
        .await?;
        insert(tx, [Window::fresh(self.cell)]).await
    }
}

/// What a batch writes, without what it forgets again.
#[derive(Default)]
struct Rows<'a> {
    forgotten: Option<EventNo>,
    /// Of those whose window is counted in slots.
    forgotten_of: BTreeMap<&'a Token, EventNo>,
    tenants: Vec<Tenant>,
    /// The last of each.
    settings: BTreeMap<(&'a str, &'a str), &'a SettingRow>,
    rates: Vec<Rate>,
    /// That no batch has written before.
    new_operations: Vec<&'a OperationRow>,
    operations: Vec<&'a OperationRow>,
    answered: Vec<&'a AnsweredRow>,
    /// Those of them that were written as open operations.
    no_more_open: Vec<EventNo>,
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

impl Tenant {
    /// Of a tenant's rows the last one counts, since the first.
    fn note<'a>(row: &'a TenantRow, tenants: &mut BTreeMap<&'a Token, Self>) {
        let tenant = tenants.entry(&row.tenant).or_insert_with(|| Self {
            tenant: row.tenant.clone(),
            version: row.version,
            created_at: row.at,
            changed_at: row.at,
        });
        tenant.version = row.version;
        tenant.changed_at = row.at;
    }
}

impl<'a> Rows<'a> {
    fn of(changes: &'a [Change]) -> Self {
        let mut rows = Self::default();
        let mut tenants: BTreeMap<&Token, Tenant> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Tenant(row) => Tenant::note(row, &mut tenants),
                Change::Setting(row) => {
                    if matches!(row.fact, Event::RateSet(_)) {
                        rows.rates.push(Rate::from(&**row));
                    }
                    rows.settings.insert((row.setting, &row.key), row);
                }
                Change::Operation { row, first: true } => rows.new_operations.push(row),
                Change::Operation { row, first: false } => rows.operations.push(row),
                Change::Answered { row, first } => {
                    rows.answered.push(row);
                    if !first {
                        rows.no_more_open.push(row.no);
                    }
                }
                Change::Forgotten { through, slots_of } => {
                    rows.forget(*through, slots_of.as_ref());
                }
            }
        }
        rows.tenants = tenants.into_values().collect();
        let (forgotten, forgotten_of) = (rows.forgotten, &rows.forgotten_of);
        let stays = |row: &&OperationRow| match row.by_slots {
            true => forgotten_of.get(&row.tenant) < Some(&row.no),
            false => Some(row.no) > forgotten,
        };
        rows.new_operations.retain(stays);
        rows.operations.retain(stays);
        rows.answered.retain(|row| Some(row.no) > forgotten);
        rows
    }

    fn forget(&mut self, through: EventNo, slots_of: Option<&'a Token>) {
        match slots_of {
            None => self.forgotten = self.forgotten.max(Some(through)),
            Some(tenant) => {
                let known = self.forgotten_of.entry(tenant).or_default();
                *known = (*known).max(through);
            }
        }
    }
}

async fn forget(tx: &mut PgConnection, through: EventNo) -> Result<(), WarmError> {
    let through = bigint("event_no", through.0)?;
    sqlx::query!(
        "DELETE FROM other_operations WHERE event_no <= $1 AND NOT by_slots",
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
        "DELETE FROM other_operations WHERE tenant = $1 AND event_no <= $2 AND by_slots",
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
    use crate::operation::Answer;
    use crate::project::OperationState;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn pending(no: u64) -> Change {
        let row = Box::new(OperationRow {
            no: EventNo(no),
            tenant: token("t"),
            operation_id: None,
            digest: [0; 16],
            verb: Some(vocab::Verb::Submit),
            allocation: None,
            by_slots: false,
            requested_at: Millis(0),
            state: OperationState::Pending,
            by: None,
        });
        Change::Operation { row, first: true }
    }

    fn answered(no: u64, first: bool) -> Change {
        let row = AnsweredRow {
            no: EventNo(no),
            tenant: token("t"),
            operation_id: None,
            digest: [0; 16],
            requested_at: Millis(0),
            answered_at: Millis(9),
            answer: Answer::Ended,
        };
        Change::Answered { row, first }
    }

    fn tenant(name: &str, version: u64, at: i64) -> Change {
        Change::Tenant(TenantRow {
            tenant: token(name),
            version,
            at: Millis(at),
        })
    }

    fn forgotten(through: u64) -> Change {
        Change::Forgotten {
            through: EventNo(through),
            slots_of: None,
        }
    }

    #[test]
    fn a_batch_does_not_write_what_it_forgets() {
        let changes = [
            pending(1),
            answered(3, true),
            answered(2, false),
            tenant("a", 1, 5),
            answered(4, false),
            forgotten(2),
            tenant("a", 2, 6),
            pending(5),
            forgotten(1),
        ];
        let rows = Rows::of(&changes);
        assert_eq!(rows.forgotten, Some(EventNo(2)));
        let operations = rows.new_operations.iter().map(|row| row.no.0);
        assert_eq!(operations.collect::<Vec<_>>(), [5]);
        assert!(rows.operations.is_empty());
        let answered = rows.answered.iter().map(|row| row.no.0);
        assert_eq!(answered.collect::<Vec<_>>(), [3, 4]);
        // The first of them is gone by being forgotten.
        assert_eq!(rows.no_more_open, [EventNo(2), EventNo(4)]);
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
