//! Many small messages into few large ones: a synced append costs the same for one event as for hundreds.

use std::{collections::HashMap, hash::Hash};
use wire::{Out as _, Row};

/// A pack's encoded size, at the most; a single message may go beyond.
const BYTES_MAX: usize = 256 * 1024;
/// Messages in a pack, at the most.
const COUNT_MAX: usize = 1000;

/// Messages by where they go. The same messages in the same order give the same packs.
pub struct Packer<K> {
    /// The number of the list that a pack is.
    list: u32,
    /// In the order of their first messages.
    packs: Vec<Pack<K>>,
    /// The pack of each destination that has room.
    open: HashMap<K, usize>,
}

/// A list of messages, encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Pack<K> {
    pub to: K,
    pub payload: Vec<u8>,
    count: usize,
}

impl<K: Clone + Eq + Hash> Packer<K> {
    pub fn new(list: u32) -> Self {
        Self {
            list,
            packs: Vec::new(),
            open: HashMap::new(),
        }
    }

    /// `body` writes the message's fields.
    pub fn push(&mut self, to: K, body: impl FnOnce(&mut Row)) {
        let index = match self.open.get(&to) {
            Some(&index) if self.packs[index].count < COUNT_MAX => index,
            _ => self.begin(to.clone(), Vec::new()),
        };
        let pack = &mut self.packs[index];
        let before = pack.payload.len();
        Row::behind(&mut pack.payload, |out| out.message(self.list, body));
        if before > 0 && pack.payload.len() > BYTES_MAX {
            let message = pack.payload.split_off(before);
            self.begin(to, message);
        } else {
            pack.count += 1;
        }
    }

    /// A pack with this message, or with none yet.
    fn begin(&mut self, to: K, payload: Vec<u8>) -> usize {
        let index = self.packs.len();
        self.open.insert(to.clone(), index);
        self.packs.push(Pack {
            to,
            count: usize::from(!payload.is_empty()),
            payload,
        });
        index
    }

    pub fn packs(self) -> Vec<Pack<K>> {
        self.packs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    const LIST: u32 = 4;

    #[derive(Clone, PartialEq, Message)]
    struct List {
        #[prost(message, repeated, tag = "4")]
        messages: Vec<Named>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(string, tag = "1")]
        id: String,
    }

    fn push<K: Clone + Eq + Hash>(packer: &mut Packer<K>, to: K, id: &str) {
        packer.push(to, |out| out.text(1, id.as_bytes()));
    }

    fn read<K>(pack: &Pack<K>) -> Vec<Named> {
        List::decode(pack.payload.as_slice()).unwrap().messages
    }

    /// `to:id` in the order of arrival; then the packs.
    fn check(messages: &str, expected: &str) {
        let mut packer = Packer::new(LIST);
        for message in messages.split(' ') {
            let (to, id) = message.split_once(':').unwrap();
            push(&mut packer, to, id);
        }
        let packs = packer.packs();
        let text = packs.iter().map(|pack| {
            let messages = read(pack);
            let ids: Vec<_> = messages.iter().map(|one| &*one.id).collect();
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
            let mut packer = Packer::new(LIST);
            for _ in 0..count {
                push(&mut packer, (), id);
            }
            let packs = packer.packs();
            for pack in &packs {
                assert_eq!(read(pack).len(), pack.count);
            }
            packs.iter().map(|pack| pack.count).collect()
        };
        assert_eq!(sizes(2001, "x"), [1000, 1000, 1]);
        assert_eq!(sizes(3, &"x".repeat(100_000)), [2, 1]);
        // What is too large by itself goes alone.
        assert_eq!(sizes(2, &"x".repeat(300_000)), [1, 1]);
    }
}
