//! Who has what when: intervals of time with an amount each, and which of them overlap another.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::Millis;

/// Half-open intervals with keys. Insert, remove and overlap are logarithmic in the number of intervals (and linear in what
/// is found): a balanced interval tree does that part. It is serialised by its content, so that histories do not show.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    from = "Vec<Entry<K>>",
    into = "Vec<Entry<K>>",
    bound = "K: Clone + Ord + Serialize + serde::de::DeserializeOwned"
)]
pub struct Intervals<K: Clone + Ord> {
    tree: iset::IntervalMap<i64, BTreeMap<K, u64>>,
}

type Entry<K> = (i64, i64, K, u64);

impl<K: Clone + Ord> Default for Intervals<K> {
    fn default() -> Self {
        Self {
            tree: iset::IntervalMap::new(),
        }
    }
}

impl<K: Clone + Ord> From<Vec<Entry<K>>> for Intervals<K> {
    fn from(entries: Vec<Entry<K>>) -> Self {
        let mut intervals = Self::default();
        for (from, until, key, amount) in entries {
            intervals.insert(Millis(from), Millis(until), key, amount);
        }
        intervals
    }
}

impl<K: Clone + Ord> From<Intervals<K>> for Vec<Entry<K>> {
    fn from(intervals: Intervals<K>) -> Self {
        intervals.entries().collect()
    }
}

impl<K: Clone + Ord> PartialEq for Intervals<K> {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

impl<K: Clone + Ord> Eq for Intervals<K> {}

impl<K: Clone + Ord> Intervals<K> {
    /// By interval, then by key.
    fn entries(&self) -> impl Iterator<Item = Entry<K>> {
        self.tree.iter(..).flat_map(|(range, keys)| {
            let (from, until) = (range.start, range.end);
            keys.iter()
                .map(move |(key, amount)| (from, until, key.clone(), *amount))
        })
    }

    /// An interval that ends before it begins has no moment, and is not kept.
    pub fn insert(&mut self, from: Millis, until: Millis, key: K, amount: u64) {
        if from < until {
            let keys = self.tree.entry(from.0..until.0).or_default();
            keys.insert(key, amount);
        }
    }

    pub fn remove(&mut self, from: Millis, until: Millis, key: &K) {
        if from >= until {
            return;
        }
        if let Some(keys) = self.tree.get_mut(from.0..until.0) {
            keys.remove(key);
            if keys.is_empty() {
                self.tree.remove(from.0..until.0);
            }
        }
    }

    /// All that share a moment with `[from, until)`.
    pub fn overlapping(&self, from: Millis, until: Millis) -> impl Iterator<Item = &K> {
        let query = (from < until).then(|| self.tree.iter(from.0..until.0));
        query
            .into_iter()
            .flatten()
            .flat_map(|(_, keys)| keys.keys())
    }

    /// The sum of the amounts at a moment.
    pub fn amount_at(&self, at: Millis) -> u64 {
        let here = self.tree.iter(at.0..at.0.saturating_add(1));
        here.flat_map(|(_, keys)| keys.values()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_a_list_finds(
            changes in prop::collection::vec((any::<bool>(), 0i64..20, 0i64..20, 0u8..4, 1u64..9), 0..40),
            from in 0i64..20,
            until in 0i64..22,
        ) {
            let mut list: BTreeMap<(i64, i64, u8), u64> = BTreeMap::new();
            let mut intervals = Intervals::default();
            for (insert, a, b, key, amount) in changes {
                if insert && a < b {
                    list.insert((a, b, key), amount);
                } else {
                    list.remove(&(a, b, key));
                }
                if insert {
                    intervals.insert(Millis(a), Millis(b), key, amount);
                } else {
                    intervals.remove(Millis(a), Millis(b), &key);
                }
            }
            let mut found: Vec<_> = intervals.overlapping(Millis(from), Millis(until)).copied().collect();
            found.sort_unstable();
            let overlaps = |(a, b, _): &&(i64, i64, u8)| *a < until && from < *b && from < until;
            let mut expected: Vec<_> = list.keys().filter(overlaps).map(|(_, _, key)| *key).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
            let at = list.iter().filter(|((a, b, _), _)| *a <= from && from < *b).map(|(_, n)| n).sum::<u64>();
            prop_assert_eq!(intervals.amount_at(Millis(from)), at);
            // The same content, told in another order.
            let mut again = Intervals::default();
            for ((a, b, key), amount) in list.iter().rev() {
                again.insert(Millis(*a), Millis(*b), *key, *amount);
            }
            prop_assert_eq!(ledger::state_digest(&again), ledger::state_digest(&intervals));
            prop_assert_eq!(&again, &intervals);
            let stored = postcard::to_allocvec(&intervals).unwrap();
            let read: Intervals<u8> = postcard::from_bytes(&stored).unwrap();
            prop_assert_eq!(read, intervals);
        }
    }
}
