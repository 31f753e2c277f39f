//! Budgets' rows: what quota's meters say, the version, and since when nothing is left.

use super::Change;
use quota_rules::Quota;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Account, Budget, BudgetOf, Millis, Period};

/// What a budget is of.
pub type BudgetKey = (Account, BudgetOf);

/// A budget as of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetState {
    pub budget: Budget,
    pub version: u64,
    /// The period that `as_of` is in: its beginning, and the beginning of the next.
    pub period: (Millis, Millis),
    /// Up to `as_of`, rounded down.
    pub spent: u128,
    pub as_of: Millis,
    /// What an hour takes of it, by what runs at `as_of`; rounded down.
    pub burn: u128,
    /// When nothing is left of it, or has been since; none: it lasts for the period.
    pub exhausted_at: Option<Millis>,
}

/// What quota does not remember of a budget.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u64,
    period: Period,
    /// As it was said last.
    exhausted_at: Option<Millis>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Budgets {
    notes: BTreeMap<BudgetKey, Note>,
    /// Whose rows this batch has to write.
    #[serde(skip)]
    changed: BTreeSet<BudgetKey>,
}

impl Budgets {
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    pub fn set(&mut self, key: BudgetKey, (budget, version): (Option<Budget>, u64)) {
        self.changed.insert(key.clone());
        let before = self.notes.remove(&key);
        let Some(Budget { period, .. }) = budget else {
            return;
        };
        let same = before.filter(|note| note.period == period);
        let note = Note {
            version,
            period,
            exhausted_at: same.and_then(|note| note.exhausted_at),
        };
        self.notes.insert(key, note);
    }

    pub fn change(&mut self, key: BudgetKey) {
        self.changed.insert(key);
    }

    /// Time has passed, or prices have changed.
    pub fn change_all(&mut self) {
        self.changed.extend(self.notes.keys().cloned());
    }

    /// The rows of what has changed since the last time.
    pub fn rows(&mut self, quota: &Quota, now: Millis, out: &mut Vec<Change>) {
        for key in std::mem::take(&mut self.changed) {
            let forecast = quota.forecast(&key.0, &key.1, now);
            let Some((note, forecast)) = self.notes.get_mut(&key).zip(forecast) else {
                out.push(Change::Budget(key, None));
                continue;
            };
            let as_of = forecast.as_of;
            // What was forecast has come true, and says when.
            let since = note
                .exhausted_at
                .filter(|at| (forecast.period.0..=as_of).contains(at));
            note.exhausted_at = match forecast.spent >= forecast.budget.amount {
                true => Some(since.unwrap_or(as_of)),
                false => forecast.exhausted_at,
            };
            let row = BudgetState {
                budget: forecast.budget,
                version: note.version,
                period: forecast.period,
                spent: forecast.spent.into(),
                as_of,
                burn: forecast.burn,
                exhausted_at: note.exhausted_at,
            };
            out.push(Change::Budget(key, Some(Box::new(row))));
        }
    }
}
