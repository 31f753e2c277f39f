//! The texts of some rows, each of them once.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Two keys that nobody outside knows, since the texts are chosen by others.
#[derive(Debug)]
struct Keys(u64, u64);

impl Default for Keys {
    fn default() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(0), random.hash_one(1) | 1)
    }
}

impl Keys {
    /// Multiplies and folds, eight bytes at a time: most texts are short.
    fn hash(&self, text: &[u8]) -> u64 {
        let fold = |hash: u64, word: u64| {
            let product = u128::from(hash ^ word) * u128::from(self.1);
            (product as u64) ^ (product >> 64) as u64
        };
        let start = self.0 ^ text.len() as u64;
        let Some(last) = text.last_chunk() else {
            let short = text
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            return fold(fold(start, short), self.0);
        };
        // The last word has some of the bytes of the one before it.
        let (words, _) = text.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        fold(
            fold(words.fold(start, fold), u64::from_le_bytes(*last)),
            self.0,
        )
    }
}

/// A text's place among the texts.
pub type TextNo = u32;

/// Texts in the order in which they came. What is read of them does not depend on their hashes.
#[derive(Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    texts: Vec<Text>,
    /// Open addressing; one more than a text's place, 0: free. At least twice as many as there are texts.
    slots: Vec<u32>,
    keys: Keys,
    /// Those that are there more than once, in the order of their numbers.
    words: Vec<(u128, TextNo)>,
}

#[derive(Debug)]
struct Text {
    start: u32,
    length: u32,
    uses: u32,
    /// 0: none yet.
    word: u32,
}

impl Text {
    fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

impl Words {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.texts.clear();
        self.words.clear();
        self.slots.fill(0);
    }

    pub fn text(&self, no: TextNo) -> &[u8] {
        &self.bytes[self.range(no)]
    }

    /// Where among `bytes` it lies.
    pub fn range(&self, no: TextNo) -> Range<usize> {
        self.texts[no as usize].range()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// It is used once more.
    pub fn again(&mut self, no: TextNo) {
        self.texts[no as usize].uses += 1;
    }

    /// Its place, and whether it is new.
    pub fn add(&mut self, text: &[u8]) -> (TextNo, bool) {
        if self.slots.len() <= 2 * self.texts.len() {
            self.grow();
        }
        let slot = self.slot(text);
        if let Some(no) = self.slots[slot].checked_sub(1) {
            self.again(no);
            return (no, false);
        }
        let (no, start) = (self.texts.len() as TextNo, self.bytes.len());
        self.bytes.extend_from_slice(text);
        self.texts.push(Text {
            // A draft is full long before it holds 2^32 bytes.
            start: start as u32,
            length: text.len() as u32,
            uses: 1,
            word: 0,
        });
        self.slots[slot] = no + 1;
        (no, true)
    }

    /// Where it is, or where it would be.
    fn slot(&self, text: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.keys.hash(text) as usize & mask;
        while let Some(no) = self.slots[slot].checked_sub(1)
            && self.text(no) != text
        {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let len = (2 * self.slots.len()).max(64);
        self.slots.clear();
        self.slots.resize(len, 0);
        for no in 0..self.texts.len() as TextNo {
            let slot = self.slot(self.text(no));
            self.slots[slot] = no + 1;
        }
    }

    /// Gives numbers to those that are there more than once, in the order of their bytes: neighbours share their
    /// beginnings.
    pub fn number(&mut self) {
        let mut words = std::mem::take(&mut self.words);
        let all = (0..).zip(&self.texts);
        let all = all.filter(|(_, text)| text.uses > 1);
        words.extend(all.map(|(no, text)| (begin(&self.bytes[text.range()]), no)));
        words.sort_unstable_by(|(a, a_no), (b, b_no)| {
            let rest = || self.text(*a_no).cmp(self.text(*b_no));
            a.cmp(b).then_with(rest)
        });
        for (word, (_, no)) in (1..).zip(&words) {
            self.texts[*no as usize].word = word;
        }
        self.words = words;
    }

    /// Its number; 0: it has none.
    pub fn word(&self, no: TextNo) -> u32 {
        self.texts[no as usize].word
    }

    /// In the order of their numbers, from 1.
    pub fn numbered(&self) -> impl Iterator<Item = TextNo> {
        self.words.iter().map(|(_, no)| *no)
    }
}

/// The first bytes of a text as a number of the same order: most texts differ in them.
fn begin(text: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = text.len().min(bytes.len());
    bytes[..length].copy_from_slice(&text[..length]);
    u128::from_be_bytes(bytes)
}
