//! A quick hash for tables that are never walked through: nothing depends on it but where in its table a value lies.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Two keys, drawn for each table, so that nobody can choose names that lie in the same place.
#[derive(Debug, Clone)]
pub struct Quick(u64, u64);

impl Default for Quick {
    fn default() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(0), random.hash_one(1) | 1)
    }
}

impl BuildHasher for Quick {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded {
            bits: self.0,
            key: self.1,
        }
    }
}

/// Multiplies and folds, a word at a time.
#[derive(Debug)]
pub struct Folded {
    bits: u64,
    key: u64,
}

impl Folded {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.bits ^ word) * u128::from(self.key);
        // The halves of it.
        self.bits = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let last = rest.iter().fold(bytes.len() as u64, |word, byte| {
            word << 8 | u64::from(*byte)
        });
        self.mix(last);
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.mix(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.bits
    }
}
