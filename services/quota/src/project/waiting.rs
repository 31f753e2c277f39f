//! The rows of what waits for quota: since when, and what it was told.

use super::Change;
use quota_rules::Quota;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Account, AllocationNo, Millis, Refusal};

/// An allocation that waits for quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingState {
    pub account: Account,
    pub priority: i32,
    pub since: Millis,
    /// None until it is said of one whose quota was taken back.
    pub refusal: Option<Refusal>,
    pub reclaimed: Option<Reclaimed>,
}

/// It held quota before, which was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// For whose sake; none: its account's burst was over.
    pub by: Option<AllocationNo>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Told {
    since: Millis,
    refusal: Option<Refusal>,
}

/// What quota does not remember of those that wait, and from whom it takes back.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Waiting {
    told: BTreeMap<AllocationNo, Told>,
    reclaimed: BTreeMap<AllocationNo, Reclaimed>,
}

impl Waiting {
    pub fn told(&mut self, allocation: AllocationNo, refusal: &Refusal, now: Millis) {
        let told = self.told.entry(allocation);
        let told = told.or_insert(Told {
            since: now,
            refusal: None,
        });
        told.refusal = Some(refusal.clone());
    }

    pub fn reclaimed(&mut self, allocation: AllocationNo, by: Option<AllocationNo>) {
        self.reclaimed.insert(allocation, Reclaimed { by });
    }

    /// It has given back what it held, and may want it again.
    pub fn released(
        &mut self,
        allocation: AllocationNo,
        quota: &Quota,
        now: Millis,
        out: &mut Vec<Change>,
    ) {
        if quota.asks(allocation).is_some() {
            let (since, refusal) = (now, None);
            self.told.insert(allocation, Told { since, refusal });
        }
        self.row(allocation, quota, out);
    }

    /// It has got what it waited for, or has ended.
    pub fn over(&mut self, allocation: AllocationNo, out: &mut Vec<Change>) {
        self.reclaimed.remove(&allocation);
        if self.told.remove(&allocation).is_some() {
            out.push(Change::Waiting(allocation, None));
        }
    }

    /// Its row as it stands from now on.
    pub fn row(&mut self, allocation: AllocationNo, quota: &Quota, out: &mut Vec<Change>) {
        let Some((account, priority)) = quota.asks(allocation) else {
            if !quota.holds(allocation) {
                self.over(allocation, out);
            }
            return;
        };
        let Some(told) = self.told.get(&allocation) else {
            return;
        };
        let row = WaitingState {
            account: account.clone(),
            priority,
            since: told.since,
            refusal: told.refusal.clone(),
            reclaimed: self.reclaimed.get(&allocation).copied(),
        };
        out.push(Change::Waiting(allocation, Some(Box::new(row))));
    }
}
