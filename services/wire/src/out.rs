//! Where a message is written to: into bytes of its own here, or into columns of many messages (`Columns`).

use crate::encoding::varint_len;
use crate::{Value, WireType};

/// Takes the fields of a message, from the last to the first.
pub trait Out: Sized {
    fn varint(&mut self, number: u32, value: u64);
    /// A text or name, which others may say, too.
    fn text(&mut self, number: u32, text: &[u8]);
    /// Bytes that nobody else has, such as a digest.
    fn bytes(&mut self, number: u32, bytes: &[u8]);
    /// A message with the fields that `body` writes.
    fn message(&mut self, number: u32, body: impl FnOnce(&mut Self));
    /// The elements of a list, each a field by itself.
    fn each<T>(&mut self, values: &[T], write: impl FnMut(&mut Self, &T));
    /// The elements of a list of numbers, in one field.
    fn packed<T: Value>(&mut self, number: u32, values: &[T]);
}

/// A message by itself. It is written from its end to its beginning: the length of what it holds is known when it is to
/// be written, and nothing is gone through twice. Its methods are inlined, because all that call them are in other
/// crates and nothing else is optimised across those.
pub struct Row<'a>(&'a mut Vec<u8>);

/// No field has this number: what is written with it has no key.
const KEYLESS: u32 = 0;

impl<'a> Row<'a> {
    /// What `write` writes is put behind `bytes`.
    pub fn behind(bytes: &'a mut Vec<u8>, write: impl FnOnce(&mut Row)) {
        let before = bytes.len();
        // The last byte first.
        write(&mut Row(bytes));
        bytes[before..].reverse();
    }

    /// Fields that were encoded before, or any other bytes as they are.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    #[inline]
    fn number(&mut self, number: u64) {
        // Most are keys, lengths of names and numbers of words.
        if number < 0x80 {
            return self.0.push(number as u8);
        }
        if number < 0x4000 {
            return self.0.extend([(number >> 7) as u8, number as u8 | 0x80]);
        }
        self.long_number(number);
    }

    fn long_number(&mut self, number: u64) {
        let len = varint_len(number);
        let byte = |at| (number >> (7 * at)) as u8;
        self.0.push(byte(len - 1));
        self.0.extend((0..len - 1).rev().map(|at| byte(at) | 0x80));
    }

    #[inline]
    fn key(&mut self, number: u32, wire: WireType) {
        if number != KEYLESS {
            self.number(u64::from(number << 3 | wire as u32));
        }
    }

    pub(crate) fn delimited(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        body(self);
        self.number((self.0.len() - before) as u64);
        self.key(number, WireType::LengthDelimited);
    }

    /// Numbers in one field, given from the last to the first.
    pub(crate) fn numbers(&mut self, number: u32, from_the_end: impl Iterator<Item = u64>) {
        self.delimited(number, |out| from_the_end.for_each(|it| out.number(it)));
    }
}

impl Out for Row<'_> {
    #[inline]
    fn varint(&mut self, number: u32, value: u64) {
        self.number(value);
        self.key(number, WireType::Varint);
    }

    #[inline]
    fn text(&mut self, number: u32, text: &[u8]) {
        self.bytes(number, text);
    }

    #[inline]
    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put(bytes);
        self.number(bytes.len() as u64);
        self.key(number, WireType::LengthDelimited);
    }

    fn message(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        self.delimited(number, body);
    }

    fn each<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        values.iter().rev().for_each(|value| write(self, value));
    }

    fn packed<T: Value>(&mut self, number: u32, values: &[T]) {
        if !values.is_empty() {
            self.delimited(number, |out| {
                let from_the_end = values.iter().rev();
                from_the_end.for_each(|value| value.write(KEYLESS, out));
            });
        }
    }
}
