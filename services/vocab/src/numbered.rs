//! A map from numbers that grow, as those of requests do: its entries lie in pages by number, so that one is found in a
//! few steps, however many there are. To everybody else it is a map in the order of its keys.

use crate::{AllocationNo, EventNo, PendingGroupNo};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};
use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Index};

/// A key of such a map.
pub trait Number: Copy {
    fn number(self) -> u64;
}

impl Number for AllocationNo {
    fn number(self) -> u64 {
        self.0
    }
}

impl Number for EventNo {
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

#[derive(Debug, Clone)]
pub struct Numbered<K, V> {
    /// By the number of their first entry, over what a chapter holds. None is empty.
    chapters: BTreeMap<u64, Box<Chapter<K, V>>>,
    len: usize,
}

type Chapter<K, V> = [Page<K, V>; PAGE as usize];

#[derive(Debug, Clone)]
struct Page<K, V> {
    /// Bit n: the page's nth number is there.
    there: u64,
    /// Bit n: it has a slot, though it may have gone. So nothing is moved when it goes.
    slots: u64,
    /// The slots, in the order of their numbers.
    entries: Vec<Option<(K, V)>>,
}

impl<K: PartialEq, V: PartialEq> PartialEq for Numbered<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for Numbered<K, V> {}

impl<K, V> Page<K, V> {
    fn new() -> Self {
        Self {
            there: 0,
            slots: 0,
            entries: Vec::new(),
        }
    }

    /// Where the number's slot is or would be.
    fn slot(&self, number: u64) -> usize {
        let bit = 1 << (number % PAGE);
        // At most 63.
        (self.slots & (bit - 1)).count_ones() as usize
    }

    fn has(&self, number: u64) -> bool {
        self.there & 1 << (number % PAGE) != 0
    }

    fn get(&self, number: u64) -> Option<&(K, V)> {
        match self.has(number) {
            true => self.entries[self.slot(number)].as_ref(),
            false => None,
        }
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut (K, V)> {
        match self.has(number) {
            true => {
                let at = self.slot(number);
                self.entries[at].as_mut()
            }
            false => None,
        }
    }

    fn insert(&mut self, number: u64, key: K, value: V) -> Option<V> {
        let (at, bit) = (self.slot(number), 1 << (number % PAGE));
        self.there |= bit;
        let entry = Some((key, value));
        if self.slots & bit != 0 {
            let before = std::mem::replace(&mut self.entries[at], entry);
            return before.map(|(_, value)| value);
        }
        self.slots |= bit;
        if self.entries.len() == self.entries.capacity() {
            // In three steps to a full page: most pages become full, and numbers of others lie between those of some.
            let more = match self.entries.len() {
                0..8 => 8,
                8..24 => 16,
                _ => PAGE as usize - self.entries.len(),
            };
            self.entries.reserve_exact(more);
        }
        self.entries.insert(at, entry);
        None
    }

    fn remove(&mut self, number: u64) -> Option<V> {
        if !self.has(number) {
            return None;
        }
        let at = self.slot(number);
        let (_, value) = self.entries[at].take()?;
        self.there &= !(1 << (number % PAGE));
        // The few that stay for long do not keep the room of those that were beside them.
        if self.there.count_ones() as usize * 4 <= self.entries.capacity() {
            self.entries.retain(Option::is_some);
            self.entries.shrink_to_fit();
            self.slots = self.there;
        }
        Some(value)
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
        let entries = pages.flat_map(|page| page.entries.iter().flatten());
        entries.map(|(key, value)| (key, value))
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
        let entries = pages.flat_map(|page| page.entries.iter_mut().flatten());
        entries.map(|(_, value)| value)
    }
}

impl<K: Number, V> Numbered<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        let (chapter, page) = split(key.number());
        let (_, value) = self.chapters.get(&chapter)?[page].get(key.number())?;
        Some(value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (chapter, page) = split(key.number());
        let (_, value) = self.chapters.get_mut(&chapter)?[page].get_mut(key.number())?;
        Some(value)
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The largest.
    pub fn last_key(&self) -> Option<K> {
        let (_, chapter) = self.chapters.last_key_value()?;
        let page = chapter.iter().rfind(|page| page.there != 0)?;
        let last = page.entries.iter().flatten().next_back()?;
        Some(last.0)
    }

    /// What was there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (chapter, page) = split(key.number());
        let new = || Box::new(std::array::from_fn(|_| Page::new()));
        let page = &mut self.chapters.entry(chapter).or_insert_with(new)[page];
        let before = page.insert(key.number(), key, value);
        self.len += usize::from(before.is_none());
        before
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (chapter, page) = split(key.number());
        let pages = self.chapters.get_mut(&chapter)?;
        let value = pages[page].remove(key.number())?;
        self.len -= 1;
        if pages[page].there == 0 && pages.iter().all(|page| page.there == 0) {
            self.chapters.remove(&chapter);
        }
        Some(value)
    }

    /// Removes all up to and with this number.
    pub fn remove_through(&mut self, last: K) {
        let is_over = |key: &K| key.number() <= last.number();
        loop {
            let first = self.keys().next().copied();
            let Some(key) = first.filter(is_over) else {
                return;
            };
            self.remove(&key);
        }
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
            last in prop_oneof![0u64..200, 4000u64..4200],
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
                prop_assert_eq!(numbered.last_key(), map.last_key_value().map(|(key, _)| *key));
                prop_assert!(numbered.values_mut().eq(map.values_mut()));
                prop_assert!(numbered.iter().eq(map.iter()));
            }
            prop_assert!(numbered.chapters.len() <= map.len());
            let other: Numbered<_, _> = {
                let mut other = Numbered::default();
                map.iter().rev().for_each(|(key, value)| _ = other.insert(*key, *value));
                other
            };
            prop_assert_eq!(&numbered, &other);
            let bytes = postcard::to_stdvec(&numbered).unwrap();
            prop_assert_eq!(&bytes, &postcard::to_stdvec(&map).unwrap());
            prop_assert_eq!(&postcard::from_bytes::<Numbered<_, _>>(&bytes).unwrap(), &numbered);
            let last = AllocationNo(last);
            numbered.remove_through(last);
            map.retain(|key, _| *key > last);
            prop_assert!(numbered.iter().eq(map.iter()) && numbered.len() == map.len());
        }
    }
}
