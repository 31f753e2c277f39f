//! Rows that lie beside the tables, where the projection and the answers of one process share them.

use super::{Store, StoreError, tenant::Rows};
use crate::domain::{Change, Kept, Known, RunsOf, UseRow};
use clickhouse::Row;
use ledger::Batch;
use serde::Deserialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vocab::{AllocationId, Lsn, Month, Token};

/// Some 30 MB.
const ROWS_MAX: usize = 200_000;

/// What the sink puts there and the answers are made of.
#[derive(Debug, Clone)]
pub struct Beside(Arc<Mutex<Kept>>);

#[derive(Row, Deserialize)]
struct Newest {
    any: u64,
    applied: u64,
}

impl Default for Beside {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Kept::new(ROWS_MAX))))
    }
}

impl Beside {
    /// Whoever panics with it ends the process.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn resumed(&self, through: Lsn) {
        self.lock().resumed(through);
    }

    pub(super) fn applied(&self, batch: &Batch<Change>) {
        self.lock().applied((batch.after, batch.to), &batch.changes);
    }

    /// Of one tenant, with what is known of time at the position that they are of.
    fn rows(&self, known: &Known, rows: &Rows<'_>) -> Option<(Known, Vec<UseRow>)> {
        let mut kept = self.lock();
        let (clock, all) = kept.of(rows.tenant?, rows.first_bill())?;
        let known = clock.map_or_else(|| known.clone(), |clock| known.at(clock));
        Some((known, all.filter(|row| rows.admit(row.whose())).collect()))
    }
}

impl Store {
    /// The rows of this process are shared with its projection's.
    pub fn beside(self, beside: Beside) -> Self {
        Self {
            beside: Some(beside),
            ..self
        }
    }

    /// Rows of one tenant that need not be read narrowly; they are read once if they are not there and of this month or a
    /// later one. None: read the tables.
    pub(super) async fn kept(
        &self,
        known: &Known,
        rows: &Rows<'_>,
    ) -> Result<Option<(Known, Vec<UseRow>)>, StoreError> {
        let (Some(beside), Some(tenant)) = (&self.beside, rows.tenant) else {
            return Ok(None);
        };
        if let Some(found) = beside.rows(known, rows) {
            return Ok(Some(found));
        }
        let from = Month::of(known.through);
        let at = beside.lock().wants(tenant);
        let Some(at) = at.filter(|_| from <= rows.first_bill()) else {
            return Ok(None);
        };
        // What is read while the tables stand where the rows do, before and after, is of that position.
        if !self.stand_at(at).await? {
            return Ok(None);
        }
        let Some(all) = self.rows_from(tenant, from, beside).await? else {
            return Ok(None);
        };
        if self.stand_at(at).await? {
            beside.lock().keep(tenant, (from, at), all);
        }
        Ok(beside.rows(known, rows))
    }

    /// Runs of an allocation of one tenant, and what is known of time at their position; none: read the tables.
    pub(super) fn runs_beside(
        &self,
        known: &Known,
        rows: &Rows<'_>,
        allocation: AllocationId,
    ) -> Option<(Known, RunsOf)> {
        let beside = self.beside.as_ref()?;
        // Of another cell it has no runs here.
        let Some(no) = allocation.in_cell(self.cell) else {
            let none = RunsOf {
                under_way: Vec::new(),
                all: true,
                clock: None,
            };
            return Some((known.clone(), none));
        };
        let mut runs = beside.lock().runs_of(rows.tenant?, no)?;
        runs.under_way.retain(|run| rows.admit(&run.whose));
        let known = runs
            .clock
            .map_or_else(|| known.clone(), |clock| known.at(clock));
        Some((known, runs))
    }

    /// All of a tenant, of the bills from a month on, if they are worth their room.
    async fn rows_from(
        &self,
        tenant: &Token,
        from: Month,
        beside: &Beside,
    ) -> Result<Option<Vec<UseRow>>, StoreError> {
        let mut all = Vec::new();
        let mut has_room = true;
        let rows_max = beside.lock().rows_max_of_one();
        self.read(&Rows::from(tenant, from), |row| {
            has_room &= all.len() < rows_max;
            if has_room {
                all.push(row);
            }
        })
        .await?;
        if !has_room {
            beside.lock().is_large(tenant);
        }
        Ok(has_room.then_some(all))
    }

    /// Whether all of the range that ends there is in the tables, and nothing of another one behind it.
    async fn stand_at(&self, at: Lsn) -> Result<bool, StoreError> {
        let query = self.query(
            "SELECT max(to_lsn) AS any, maxIf(to_lsn, state = 'applied') AS applied
             FROM ledger_ranges WHERE to_lsn >= ?",
        );
        let newest: Newest = self.fetch_one(query.bind(at.0)).await?;
        Ok((newest.any, newest.applied) == (at.0, at.0))
    }
}
