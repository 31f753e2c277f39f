//! Which number a name has.

use std::hash::{BuildHasher, RandomState};
use vocab::Token;

/// A resource inside its space: its place in the order of creation.
pub type ResourceNo = u32;

/// Numbers by the hash of the name; nothing is ever taken out. The hash has a random key, so that nobody can choose names
/// that collide; what is found does not depend on it, and it is never serialised.
///
/// It is cut into parts that grow one by one: growth of the whole would hold up one unlucky create for milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Index {
    parts: Vec<Part>,
    hasher: RandomState,
}

/// A power of two of places, at most three quarters of them in use, with linear probing.
#[derive(Debug, Clone, Default)]
struct Part {
    places: Vec<Place>,
    used: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    hash: u32,
    no: ResourceNo,
}

impl Index {
    /// Not a number of a resource.
    pub const NOBODY: ResourceNo = ResourceNo::MAX;
    const PARTS_BITS: u32 = 7;

    /// The number that has the name's hash and `is_it`.
    pub fn find(&self, name: &Token, is_it: impl Fn(ResourceNo) -> bool) -> Option<ResourceNo> {
        let hash = self.hash(name);
        let part = self.parts.get(Self::part(hash))?;
        let occupied = part
            .probe(hash)
            .take_while(|place| place.no != Self::NOBODY);
        let alike = occupied.filter(|place| place.hash == hash);
        alike.map(|place| place.no).find(|no| is_it(*no))
    }

    /// A name that is not in it.
    pub fn insert(&mut self, name: &Token, no: ResourceNo) {
        let hash = self.hash(name);
        self.parts.resize(1 << Self::PARTS_BITS, Part::default());
        // All bits that the hash has for parts have one.
        self.parts[Self::part(hash)].insert(Place { hash, no });
    }

    fn hash(&self, name: &Token) -> u32 {
        // The lower half is as good as the whole.
        self.hasher.hash_one(name) as u32
    }

    /// By the highest bits; places go by the lowest.
    fn part(hash: u32) -> usize {
        (hash >> (u32::BITS - Self::PARTS_BITS)) as usize
    }
}

impl Part {
    const PLACES_MIN: usize = 4;

    /// All places, from the hash's own.
    fn probe(&self, hash: u32) -> impl Iterator<Item = &Place> {
        let own = hash as usize & self.places.len().saturating_sub(1);
        let (before, from) = self.places.split_at(own);
        from.iter().chain(before)
    }

    fn insert(&mut self, place: Place) {
        if (self.used + 1) * 4 > self.places.len() * 3 {
            let (hash, no) = (0, Index::NOBODY);
            let larger = (self.places.len() * 2).max(Self::PLACES_MIN);
            let empty = vec![Place { hash, no }; larger];
            let old = std::mem::replace(&mut self.places, empty);
            old.into_iter()
                .filter(|place| place.no != Index::NOBODY)
                .for_each(|place| self.put(place));
        }
        self.put(place);
        self.used += 1;
    }

    fn put(&mut self, place: Place) {
        let mask = self.places.len() - 1;
        let mut at = place.hash as usize & mask;
        // A quarter of the places is empty.
        while self.places[at].no != Index::NOBODY {
            at = (at + 1) & mask;
        }
        self.places[at] = place;
    }
}
