//! A cell's feature level: which facts may be written on its ledger, and how.

use crate::EventKind;
use std::{fmt, num::ParseIntError, str::FromStr};

/// Every fact is of a level, and is written only in cells that are at that level or above. A build knows the levels up to its
/// own newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u32);

impl Level {
    /// Of the facts that were there before there were levels, and of a cell that says nothing.
    pub const FIRST: Self = Self(1);
    /// From here on a frame has its events in columns.
    pub const COLUMNS: Self = Self(3);
    /// From here on a rate may have a scope.
    pub const SCOPED_RATES: Self = Self(5);
    /// From here on taints have effects, nodes a bound of allocations, conditions and an operator's own taints, and are drained,
    /// and an allocation may prefer nodes.
    pub const NODE_RULES: Self = Self(6);
    /// From here on tenants, queues and priority classes may be closed.
    pub const CLOSING: Self = Self(8);
    /// From here on an allocation may have bounds of its time.
    pub const TIME_BOUNDS: Self = Self(8);
    /// From here on an allocation may be an element of an array.
    pub const ARRAYS: Self = Self(8);
    /// From here on a rate may be taken back.
    pub const RATE_WITHDRAWALS: Self = Self(9);
    /// From here on an operation says which of the operators asked.
    pub const NAMED_OPERATORS: Self = Self(9);
    /// From here on a tenant may have a list of its teams.
    pub const TEAMS: Self = Self(10);
    /// From here on a refusal by admission says which verb was refused.
    pub const REFUSED_VERBS: Self = Self(10);
    /// From here on a run that a drain or a taint of its node ends is evicted, and no longer preempted.
    pub const EVICTIONS: Self = Self(11);
    /// From here on a run that used too much room on the disk of its node says so.
    pub const OUT_OF_DISK: Self = Self(12);
    /// The newest that this build knows: it reads all facts up to this level.
    pub const KNOWN: Self = {
        let (mut newest, mut i) = (Self::OUT_OF_DISK, 0);
        while i < EventKind::ALL.len() {
            let since = EventKind::ALL[i].since();
            if since.0 > newest.0 {
                newest = since;
            }
            i += 1;
        }
        newest
    };
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Level {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_level_has_something_and_none_joins_the_first() {
        let mut facts: BTreeMap<u32, usize> = BTreeMap::new();
        for kind in EventKind::ALL {
            *facts.entry(kind.since().0).or_default() += 1;
        }
        let of_fields = [
            Level::COLUMNS,
            Level::SCOPED_RATES,
            Level::NODE_RULES,
            Level::TIME_BOUNDS,
            Level::RATE_WITHDRAWALS,
            Level::NAMED_OPERATORS,
            Level::TEAMS,
            Level::EVICTIONS,
            Level::OUT_OF_DISK,
        ];
        for level in of_fields {
            facts.entry(level.0).or_default();
        }
        let levels: Vec<u32> = facts.keys().copied().collect();
        let all: Vec<u32> = (Level::FIRST.0..=Level::KNOWN.0).collect();
        assert_eq!(levels, all);
        // A cell of the first level may have processes that know no more than these.
        assert_eq!(facts[&Level::FIRST.0], 46);
    }
}
