//! Small numbers for values that many share.

use foldhash::fast::RandomState;
use ledger::Scratch;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::HashMap, hash::Hash};

/// Numbers are given out again once nobody uses the value, in an order that the history alone decides.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "T: Serialize + DeserializeOwned")]
pub struct Interner<T: Eq + Hash> {
    slots: Vec<Option<(T, u32)>>,
    free: Vec<u32>,
    #[serde(skip)]
    index: Scratch<HashMap<T, u32, RandomState>>,
}

impl<T: Eq + Hash> Default for Interner<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: Scratch::default(),
        }
    }
}

impl<T: Eq + Hash> PartialEq for Interner<T> {
    fn eq(&self, other: &Self) -> bool {
        self.slots == other.slots && self.free == other.free
    }
}

impl<T: Eq + Hash> Eq for Interner<T> {}

impl<T: Clone + Eq + Hash> Interner<T> {
    fn index(&mut self) -> &mut HashMap<T, u32, RandomState> {
        if self.index.is_empty() {
            for (slot, number) in self.slots.iter().zip(0..) {
                if let Some((value, _)) = slot {
                    self.index.insert(value.clone(), number);
                }
            }
        }
        &mut self.index
    }

    pub fn find(&mut self, value: &T) -> Option<u32> {
        self.index().get(value).copied()
    }

    /// The same, where nothing may be made anew: without an index all values are looked through.
    pub fn known(&self, value: &T) -> Option<u32> {
        match self.index.is_empty() {
            false => self.index.get(value).copied(),
            true => {
                let mut slots = self.slots.iter().zip(0..);
                let is = |slot: &Option<(T, u32)>| slot.as_ref().is_some_and(|(it, _)| it == value);
                slots.find(|(slot, _)| is(slot)).map(|(_, number)| number)
            }
        }
    }

    /// One more user of the value.
    pub fn acquire(&mut self, value: &T) -> u32 {
        if let Some(number) = self.find(value) {
            self.retain(number);
            return number;
        }
        let slot = Some((value.clone(), 1));
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                // Each value takes memory: it runs out long before the numbers do.
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(value.clone(), number);
        number
    }

    /// One more user of a value that is in use.
    pub fn retain(&mut self, number: u32) {
        if let Some((_, users)) = &mut self.slots[number as usize] {
            *users += 1;
        }
    }

    /// One user less; the value, if that was the last.
    pub fn release(&mut self, number: u32) -> Option<T> {
        let (_, users) = self.slots.get_mut(number as usize)?.as_mut()?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.index();
        let (value, _) = self.slots[number as usize].take()?;
        self.index.remove(&value);
        self.free.push(number);
        Some(value)
    }

    /// A value in use.
    pub fn get(&self, number: u32) -> &T {
        match &self.slots[number as usize] {
            Some((value, _)) => value,
            // Whoever has a number is one of its users.
            None => unreachable!("number {number} is in nobody's use"),
        }
    }

    /// Numbers are below this.
    pub fn bound(&self) -> usize {
        self.slots.len()
    }

    /// Each value in use, with the number of its users.
    pub fn users(&self) -> impl Iterator<Item = (u32, u32)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(slot, number)| slot.as_ref().map(|(_, users)| (number, *users)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shared_and_given_out_again() {
        let mut names = Interner::default();
        let (a, b) = (names.acquire(&"a"), names.acquire(&"b"));
        assert_eq!((a, b, names.acquire(&"a")), (0, 1, 0));
        assert_eq!(names.release(a), None);
        assert_eq!(names.find(&"a"), Some(a));
        assert_eq!(names.release(a), Some("a"));
        assert_eq!(names.find(&"a"), None);
        assert_eq!(names.acquire(&"c"), a);
        assert_eq!(*names.get(a), "c");
        // A clone has no index yet and finds the same.
        assert_eq!(names.clone().known(&"b"), Some(b));
        assert_eq!(names.clone().find(&"b"), Some(b));
        assert_eq!((names.known(&"b"), names.known(&"d")), (Some(b), None));
    }
}
