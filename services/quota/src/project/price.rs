//! What resources cost, from which hour on.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::Excluded,
};
use vocab::{Millis, ResourceKey};

/// Millionths of the currency per billed unit and hour.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Prices {
    by_key: BTreeMap<ResourceKey, BTreeMap<Millis, u64>>,
    changes: BTreeSet<Millis>,
}

impl Prices {
    /// Of two that are effective from the same hour the later counts.
    pub fn set(&mut self, key: &ResourceKey, micro: u64, from: Millis) {
        self.changes.insert(from);
        let prices = self.by_key.entry(key.clone()).or_default();
        prices.insert(from, micro);
    }

    /// The model's own rate goes before the rate of the kind; nothing is free of charge but what has no rate.
    pub fn at(&self, key: &ResourceKey, moment: Millis) -> u64 {
        let own = self.newest(key, moment);
        let any = || {
            let kind = key.kind;
            self.newest(&ResourceKey { kind, model: None }, moment)
        };
        own.or_else(any).unwrap_or(0)
    }

    fn newest(&self, key: &ResourceKey, moment: Millis) -> Option<u64> {
        let mut until = self.by_key.get(key)?.range(..=moment);
        until.next_back().map(|(_, micro)| *micro)
    }

    /// The stretches between two moments in which no price changes.
    pub fn stretches(&self, from: Millis, to: Millis) -> Vec<(Millis, Millis)> {
        if from >= to {
            return Vec::new();
        }
        let cuts = self.changes.range((Excluded(from), Excluded(to))).copied();
        let ends = cuts.chain([to]);
        let mut begin = from;
        let stretches = ends.map(|end| (std::mem::replace(&mut begin, end), end));
        stretches.collect()
    }
}
