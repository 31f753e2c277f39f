//! Limits that are to come, and overrides until they are over.

use super::{Change, Key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Limits, Millis, Validity};

/// A change of limits for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// None: no limits.
    pub limits: Option<Limits>,
    pub validity: Validity,
}

impl Planned {
    /// A change is over when it has begun, an override when it has ended.
    fn is_over(&self, now: Millis) -> bool {
        let Validity { from, until } = self.validity;
        until.or(from).is_none_or(|last| last <= now)
    }
}

/// By the version that planned it; and whether it is in force.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Plans(BTreeMap<Key, BTreeMap<u64, (Planned, bool)>>);

impl Plans {
    pub fn add(&mut self, key: Key, version: u64, planned: Planned, out: &mut Vec<Change>) {
        let row = Some(Box::new(planned));
        out.push(Change::Planned(key.clone(), version, row));
        let plans = self.0.entry(key).or_default();
        plans.insert(version, (planned, false));
    }

    /// Whether an override is in force.
    pub fn overridden(&self, key: &Key) -> bool {
        let plans = self.0.get(key).into_iter().flatten();
        plans.into_iter().any(|(_, (_, begun))| *begun)
    }

    /// Quota has said what holds from now on: takes out what is over.
    pub fn in_force(&mut self, key: &Key, now: Millis, out: &mut Vec<Change>) {
        let Some(plans) = self.0.get_mut(key) else {
            return;
        };
        plans.retain(|version, (planned, begun)| {
            let over = planned.is_over(now);
            if over {
                out.push(Change::Planned(key.clone(), *version, None));
            }
            *begun = planned.validity.from.is_none_or(|from| from <= now);
            !over
        });
        if plans.is_empty() {
            self.0.remove(key);
        }
    }
}
