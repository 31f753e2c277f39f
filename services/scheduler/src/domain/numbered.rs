//! A map from numbers that grow, as those of requests do: its entries lie in pages by number, so that one is found in a
//! few steps, however many there are. To everybody else it is a map in the order of its keys.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};
use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Index};
use vocab::{AllocationNo, PendingGroupNo};

/// A key of such a map.
pub trait Number: Copy {
    fn number(self) -> u64;
}

impl Number for AllocationNo {
    fn number(self) -> u64 {
        self.0
    }
}

impl Number for PendingGroupNo {
    fn number(self) -> u64 {
        self.0
    }
}

/// Numbers of a page, and pages of a chapter.
const PAGE: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered<K, V> {
    /// By the number of their first entry, over what a chapter holds. None is empty.
    chapters: BTreeMap<u64, Box<Chapter<K, V>>>,
    len: usize,
}

type Chapter<K, V> = [Page<K, V>; PAGE as usize];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Page<K, V> {
    /// Bit n: the page's nth number is there.
    there: u64,
    /// In the order of their numbers.
    entries: Vec<(K, V)>,
}

impl<K, V> Page<K, V> {
    fn new() -> Self {
        Self {
            there: 0,
            entries: Vec::new(),
        }
    }

    /// Where the number is or would be, and whether it is there.
    fn find(&self, number: u64) -> (usize, bool) {
        let bit = 1 << (number % PAGE);
        // At most 63.
        let before = (self.there & (bit - 1)).count_ones() as usize;
        (before, self.there & bit != 0)
    }
}

/// The chapter, and the page in it.
fn split(number: u64) -> (u64, usize) {
    // Below PAGE.
    (number / (PAGE * PAGE), (number / PAGE % PAGE) as usize)
}

impl<K, V> Default for Numbered<K, V> {
    fn default() -> Self {
        Self {
            chapters: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<K, V> Numbered<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let pages = self.chapters.values().flat_map(|chapter| chapter.iter());
        pages
            .flat_map(|page| &page.entries)
            .map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let chapters = self.chapters.values_mut();
        let pages = chapters.flat_map(|chapter| chapter.iter_mut());
        pages
            .flat_map(|page| &mut page.entries)
            .map(|(_, value)| value)
    }
}

impl<K: Number, V> Numbered<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        let (chapter, page) = split(key.number());
        let page = &self.chapters.get(&chapter)?[page];
        match page.find(key.number()) {
            (at, true) => Some(&page.entries[at].1),
            (_, false) => None,
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (chapter, page) = split(key.number());
        let page = &mut self.chapters.get_mut(&chapter)?[page];
        match page.find(key.number()) {
            (at, true) => Some(&mut page.entries[at].1),
            (_, false) => None,
        }
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// What was there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (chapter, page) = split(key.number());
        let new = || Box::new(std::array::from_fn(|_| Page::new()));
        let page = &mut self.chapters.entry(chapter).or_insert_with(new)[page];
        match page.find(key.number()) {
            (at, true) => Some(std::mem::replace(&mut page.entries[at].1, value)),
            (at, false) => {
                page.there |= 1 << (key.number() % PAGE);
                page.entries.insert(at, (key, value));
                self.len += 1;
                None
            }
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (chapter, at) = split(key.number());
        let pages = self.chapters.get_mut(&chapter)?;
        let page = &mut pages[at];
        let (at, true) = page.find(key.number()) else {
            return None;
        };
        page.there &= !(1 << (key.number() % PAGE));
        let (_, value) = page.entries.remove(at);
        self.len -= 1;
        // The few that stay for long do not keep the room of those that were beside them.
        if page.entries.len() * 4 <= page.entries.capacity() {
            page.entries.shrink_to_fit();
        }
        if page.there == 0 && pages.iter().all(|page| page.there == 0) {
            self.chapters.remove(&chapter);
        }
        Some(value)
    }
}

impl<K: Number, V> Index<&K> for Numbered<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        match self.get(key) {
            Some(value) => value,
            None => panic!("number {} is not there", key.number()),
        }
    }
}

/// As a `BTreeMap` is written.
impl<K: Serialize, V: Serialize> Serialize for Numbered<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, K: Number + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Numbered<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Number + Deserialize<'de>, V: Deserialize<'de>> de::Visitor<'de> for Entries<K, V> {
            type Value = Numbered<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map by numbers")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut numbered = Numbered::default();
                while let Some((key, value)) = map.next_entry()? {
                    numbered.insert(key, value);
                }
                Ok(numbered)
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_in_the_order_of_its_keys(
            steps in prop::collection::vec(
                (any::<bool>(), prop_oneof![0u64..200, 4000u64..4200, any::<u64>()], any::<u8>()),
                0..400,
            ),
        ) {
            let mut numbered = Numbered::default();
            let mut map = BTreeMap::new();
            for (puts, number, value) in steps {
                let key = AllocationNo(number);
                if puts {
                    prop_assert_eq!(numbered.insert(key, value), map.insert(key, value));
                } else {
                    // One that is there, if any is near.
                    let key = map.range(key..).next().map_or(key, |(key, _)| *key);
                    prop_assert_eq!(numbered.remove(&key), map.remove(&key));
                }
                prop_assert_eq!(numbered.get(&key), map.get(&key));
                prop_assert_eq!(numbered.len(), map.len());
                prop_assert!(numbered.iter().eq(map.iter()));
            }
            prop_assert!(numbered.chapters.len() <= map.len());
            let other: Numbered<_, _> = {
                let mut other = Numbered::default();
                map.iter().rev().for_each(|(key, value)| _ = other.insert(*key, *value));
                other
            };
            prop_assert_eq!(&numbered, &other);
            prop_assert_eq!(ledger::state_digest(&numbered), ledger::state_digest(&map));
        }
    }
}
