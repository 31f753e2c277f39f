//! Many small messages into few large ones: a synced append costs the same for one event as for hundreds.

use prost::{Message, encoding::encoded_len_varint};
use std::{collections::HashMap, hash::Hash};

/// A pack's encoded size, at the most; a single message may go beyond.
const BYTES_MAX: usize = 256 * 1024;
/// Messages in a pack, at the most.
const COUNT_MAX: usize = 1000;

/// Messages by where they go. The same messages in the same order give the same packs.
pub struct Packer<K, M> {
    /// In the order of their first messages.
    packs: Vec<Pack<K, M>>,
    /// The pack of each destination that has room.
    open: HashMap<K, usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pack<K, M> {
    pub to: K,
    pub messages: Vec<M>,
    bytes: usize,
}

impl<K: Clone + Eq + Hash, M: Message> Packer<K, M> {
    pub fn new() -> Self {
        Self {
            packs: Vec::new(),
            open: HashMap::new(),
        }
    }

    pub fn push(&mut self, to: K, message: M) {
        let size = message.encoded_len();
        // With the field's tag and the length before it.
        let size = 1 + encoded_len_varint(size as u64) + size;
        let index = match self.open.get(&to) {
            Some(&index) if self.packs[index].takes(size) => index,
            _ => self.begin(to),
        };
        let pack = &mut self.packs[index];
        pack.bytes += size;
        pack.messages.push(message);
    }

    fn begin(&mut self, to: K) -> usize {
        let index = self.packs.len();
        self.open.insert(to.clone(), index);
        self.packs.push(Pack {
            to,
            messages: Vec::new(),
            bytes: 0,
        });
        index
    }

    pub fn packs(self) -> Vec<Pack<K, M>> {
        self.packs
    }
}

impl<K, M> Pack<K, M> {
    fn takes(&self, size: usize) -> bool {
        self.messages.len() < COUNT_MAX && self.bytes + size <= BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{OutcomeMessage as Outcome, outcomes};

    fn outcome(id: &str) -> Outcome {
        Outcome {
            operation_id: id.to_owned(),
            ..Outcome::default()
        }
    }

    /// `to:id` in the order of arrival; then the packs.
    fn check(messages: &str, expected: &str) {
        let mut packer = Packer::new();
        for message in messages.split(' ') {
            let (to, id) = message.split_once(':').unwrap();
            packer.push(to, outcome(id));
        }
        let packs = packer.packs();
        let text = packs.iter().map(|pack| {
            let ids: Vec<_> = pack.messages.iter().map(|m| &*m.operation_id).collect();
            format!("{}:{}", pack.to, ids.join("+"))
        });
        assert_eq!(text.collect::<Vec<_>>().join(" "), expected, "{messages}");
    }

    #[test]
    fn each_destination_keeps_its_order() {
        check("a:1", "a:1");
        check("a:1 b:2 a:3 c:4 b:5 a:6", "a:1+3+6 b:2+5 c:4");
    }

    #[test]
    fn a_pack_is_bounded_in_count_and_bytes() {
        let sizes = |count: usize, id: &str| -> Vec<usize> {
            let mut packer = Packer::new();
            for _ in 0..count {
                packer.push((), outcome(id));
            }
            let packs = packer.packs();
            for pack in &packs {
                assert_eq!(outcomes(pack.messages.clone()).len(), pack.bytes);
            }
            packs.iter().map(|pack| pack.messages.len()).collect()
        };
        assert_eq!(sizes(2001, "x"), [1000, 1000, 1]);
        assert_eq!(sizes(3, &"x".repeat(100_000)), [2, 1]);
        // What is too large by itself goes alone.
        assert_eq!(sizes(2, &"x".repeat(300_000)), [1, 1]);
    }
}
