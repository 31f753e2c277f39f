//! Where bytes go to. A message is written from its end to its beginning: the length of what it holds is known when it is to
//! be written, and nothing is gone through twice.

use prost::encoding::{WireType, encode_varint, encoded_len_varint};

/// Each call puts its bytes before those of the calls before it. They are inlined, because all that call them are in other
/// crates and nothing else is optimised across those.
pub struct Out<'a>(&'a mut Vec<u8>);

impl<'a> Out<'a> {
    /// What `write` writes is put behind `bytes`.
    pub fn behind(bytes: &'a mut Vec<u8>, write: impl FnOnce(&mut Out)) {
        let before = bytes.len();
        // The last byte first.
        write(&mut Out(bytes));
        bytes[before..].reverse();
    }

    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    #[inline]
    pub fn varint(&mut self, number: u64) {
        // Most are keys and lengths of names.
        if number < 0x80 {
            return self.put(&[number as u8]);
        }
        let mut bytes = [0; 10];
        encode_varint(number, &mut bytes.as_mut_slice());
        self.put(&bytes[..encoded_len_varint(number)]);
    }

    #[inline]
    pub fn key(&mut self, number: u32, wire: WireType) {
        self.varint(u64::from(number << 3 | wire as u32));
    }

    /// Bytes and their length.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
    }

    /// What `body` writes, and its length.
    pub fn delimited(&mut self, body: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        body(self);
        self.varint((self.0.len() - before) as u64);
    }

    /// The same as a field.
    pub fn field(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        self.delimited(body);
        self.key(number, WireType::LengthDelimited);
    }
}
