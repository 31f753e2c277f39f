//! Warm state of quota: SQL stands in the files of this module and nowhere else.

mod accounts;
mod budgets;
mod history;
mod keys;
mod planned;
mod tenants;
mod waiting;

pub use accounts::{AccountRow, accounts};
pub use budgets::budgets;
pub use history::{HistoryOf, RETENTION_MS, history};
pub use planned::{PlannedRow, planned};
pub use tenants::tenants;
pub use waiting::{WaitingRow, waiting};

use crate::project::{Change, WarmProjection};
use chassis::warm::{PgSink, Position, WarmError, WarmState, empty};
use ledger::Projection;
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};

/// The tables of `schemas/postgres/quota`.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuotaTables;

/// They are made of the rows, and [`VIEWS`] of them.
pub const TABLES: &[&Table] = &[
    Position::TABLE,
    accounts::Quota::TABLE,
    planned::Plan::TABLE,
    tenants::Tenant::TABLE,
    history::Hour::TABLE,
    budgets::Spending::TABLE,
    waiting::Waiting::TABLE,
];
pub const VIEWS: &str = include_str!("store/views.sql");

/// Where the projection's changes go.
pub fn sink(pool: PgPool) -> PgSink<QuotaTables> {
    PgSink::new(pool, QuotaTables)
}

impl WarmState for QuotaTables {
    type Change = Change;

    const NAME: &'static str = WarmProjection::NAME;
    const DDL: &'static str = include_str!("../../../schemas/postgres/quota/0001_tables.sql");

    async fn write(&self, tx: &mut PgConnection, changes: &[Change]) -> Result<(), WarmError> {
        // A statement may not touch a row twice: of each row only the last state is written.
        let mut accounts = BTreeMap::new();
        let mut hours = BTreeMap::new();
        let mut plans = BTreeMap::new();
        let mut tenants = BTreeMap::new();
        let mut budgets = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        for change in changes {
            match change {
                Change::Account(key, state) => {
                    accounts.insert(key, state.as_deref());
                }
                Change::Hour(key, row) => {
                    hours.insert((key, row.hour), &**row);
                }
                Change::Planned(key, version, planned) => {
                    plans.insert((key, *version), planned.as_deref());
                }
                Change::Tenant(row) => {
                    tenants.insert(&row.tenant, &**row);
                }
                Change::Budget(key, state) => {
                    budgets.insert(key, state.as_deref());
                }
                Change::Waiting(allocation, state) => {
                    waiting.insert(*allocation, state.as_deref());
                }
            }
        }
        accounts::write(tx, accounts).await?;
        history::write(tx, hours).await?;
        planned::write(tx, plans).await?;
        tenants::write(tx, tenants.into_values()).await?;
        budgets::write(tx, budgets).await?;
        waiting::write(tx, waiting).await
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        empty(
            tx,
            &[
                "resource_quotas",
                "quota_limits_planned",
                "quota_tenants",
                "quota_usage_history",
                "quota_budgets",
                "quota_waiting",
            ],
        )
        .await
    }
}

/// What is to be written, and what is to go.
fn parted<K: Copy, V: Copy>(rows: BTreeMap<K, Option<V>>) -> (Vec<(K, V)>, Vec<K>) {
    let mut written = Vec::with_capacity(rows.len());
    let mut gone = Vec::new();
    for (key, row) in rows {
        match row {
            Some(row) => written.push((key, row)),
            None => gone.push(key),
        }
    }
    (written, gone)
}
