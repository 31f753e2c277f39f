//! Limits that are to come, and overrides until they are over.

use super::{Change, Key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{EventNo, Limits, Validity};

/// A change of limits for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// None: no limits.
    pub limits: Option<Limits>,
    pub validity: Validity,
}

/// The versions that have rows, by the numbers of what planned them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Plans(BTreeMap<Key, BTreeMap<EventNo, u64>>);

impl Plans {
    pub fn add(
        &mut self,
        key: &Key,
        (no, version): (EventNo, u64),
        planned: Planned,
        out: &mut Vec<Change>,
    ) {
        let row = Some(Box::new(planned));
        out.push(Change::Planned(key.clone(), version, row));
        self.0.entry(key.clone()).or_default().insert(no, version);
    }

    /// Takes out the rows of what quota has not planned any more.
    pub fn keep(&mut self, key: &Key, planned: &[EventNo], out: &mut Vec<Change>) {
        let Some(versions) = self.0.get_mut(key) else {
            return;
        };
        versions.retain(|no, version| {
            let stays = planned.contains(no);
            if !stays {
                out.push(Change::Planned(key.clone(), *version, None));
            }
            stays
        });
        if versions.is_empty() {
            self.0.remove(key);
        }
    }
}
