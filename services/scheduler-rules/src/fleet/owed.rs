//! What runs on a node beyond what it has: it had more when that was placed, and what runs stays.

use crate::topology::ZoneRoom;
use serde::{Deserialize, Serialize};
use vocab::Filter;

/// What is known of a node from before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Past {
    /// It will not come back, or as another machine of its name; it keeps its number.
    pub forgotten: bool,
    /// None: what runs there fits.
    pub owed: Option<Box<Owed>>,
}

/// By how much what is held goes beyond what the node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// In the order of the capacity's extended resources; may be empty.
    pub extended: Vec<u64>,
    /// Of the topology's zones; may be empty.
    pub zones: Vec<ZoneRoom>,
}

impl Owed {
    pub fn unless_nothing(self) -> Option<Box<Self>> {
        let zones = self.zones.iter();
        let nothing = self.cpu_milli == 0
            && self.memory_bytes == 0
            && self.extended.iter().all(|amount| *amount == 0)
            && zones.into_iter().all(|zone| *zone == ZoneRoom::default());
        (!nothing).then(|| Box::new(self))
    }

    /// Of what the node has too little.
    pub fn lacks(&self) -> Filter {
        if self.cpu_milli > 0 {
            Filter::Cpu
        } else if self.memory_bytes > 0 {
            Filter::Memory
        } else if self.extended.iter().any(|amount| *amount > 0) {
            Filter::Extended
        } else {
            Filter::Numa
        }
    }
}

/// What is left of a given amount when a debt is paid by it.
pub fn pay(amount: u64, debt: Option<&mut u64>) -> u64 {
    let Some(debt) = debt else {
        return amount;
    };
    let paid = amount.min(*debt);
    *debt -= paid;
    amount - paid
}

/// What is free, and owed, when a node has `now` instead of `before`.
pub fn balance((free, owed): (u64, &mut u64), (before, now): (u64, u64)) -> u64 {
    // What is held is the same before and after: before - free + owed.
    let held = before.saturating_sub(free).saturating_add(*owed);
    *owed = held.saturating_sub(now);
    now.saturating_sub(held)
}

/// A node was forgotten or not before there could be more to say.
#[derive(Serialize, Deserialize)]
enum Stored {
    Nothing,
    Forgotten,
    Owes { forgotten: bool, owed: Box<Owed> },
}

impl From<Stored> for Past {
    fn from(stored: Stored) -> Self {
        let (forgotten, owed) = match stored {
            Stored::Nothing => (false, None),
            Stored::Forgotten => (true, None),
            Stored::Owes { forgotten, owed } => (forgotten, Some(owed)),
        };
        Self { forgotten, owed }
    }
}

impl From<Past> for Stored {
    fn from(Past { forgotten, owed }: Past) -> Self {
        match (owed, forgotten) {
            (Some(owed), forgotten) => Self::Owes { forgotten, owed },
            (None, true) => Self::Forgotten,
            (None, false) => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_past_is_read_that_was_a_bool() {
        let owed = Owed {
            memory_bytes: 7,
            ..Owed::default()
        };
        let check = |forgotten, owed: Option<&Owed>, bytes: Option<&[u8]>| {
            let past = Past {
                forgotten,
                owed: owed.map(|owed| Box::new(owed.clone())),
            };
            let stored = postcard::to_allocvec(&past).unwrap();
            assert_eq!(postcard::from_bytes::<Past>(&stored).unwrap(), past);
            assert!(bytes.is_none_or(|bytes| bytes == stored), "{stored:?}");
        };
        check(false, None, Some(&[0]));
        check(true, None, Some(&[1]));
        check(false, Some(&owed), None);
        check(true, Some(&owed), None);
    }

    proptest! {
        /// Changes of what there is, and parts given back, in any order: what is free less what is owed is always what there is
        /// less what is held, and never both are more than nothing.
        #[test]
        fn what_is_held_is_free_or_owed(
            first in 0..100u64,
            takes in prop::collection::vec(0..30u64, 0..8),
            steps in prop::collection::vec((any::<bool>(), 0..100u64), 0..20),
        ) {
            let (mut has, mut free, mut owed) = (first, first, 0);
            let mut held = Vec::new();
            for amount in takes {
                if amount <= free {
                    free -= amount;
                    held.push(amount);
                }
            }
            for (gives, amount) in steps {
                let given = if gives { held.pop() } else { None };
                match given {
                    Some(given) => free += pay(given, Some(&mut owed)),
                    None => {
                        free = balance((free, &mut owed), (has, amount));
                        has = amount;
                    }
                }
                let all: u64 = held.iter().sum();
                prop_assert_eq!(i128::from(free) - i128::from(owed), i128::from(has) - i128::from(all));
                prop_assert!(free == 0 || owed == 0);
            }
        }
    }
}
