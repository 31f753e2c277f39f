//! Where bytes go to. A message is written from its end to its beginning: the length of what it holds is known when it is to
//! be written, and nothing is gone through twice.

use prost::encoding::{WireType, encode_varint, encoded_len_varint};

/// Each call puts its bytes before those of the calls before it.
pub trait Out {
    /// How many bytes there are.
    fn written(&self) -> usize;
    fn put(&mut self, bytes: &[u8]);

    fn varint(&mut self, number: u64) {
        // Most are keys and lengths of names.
        if number < 0x80 {
            return self.put(&[number as u8]);
        }
        let mut bytes = [0; 10];
        encode_varint(number, &mut bytes.as_mut_slice());
        self.put(&bytes[..encoded_len_varint(number)]);
    }

    fn key(&mut self, number: u32, wire: WireType) {
        self.varint(u64::from(number << 3 | wire as u32));
    }

    /// Bytes and their length.
    fn bytes(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
    }

    /// What `body` writes, and its length.
    fn delimited(&mut self, body: impl FnOnce(&mut Self)) {
        let before = self.written();
        body(self);
        self.varint((self.written() - before) as u64);
    }

    /// The same as a field.
    fn field(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        self.delimited(body);
        self.key(number, WireType::LengthDelimited);
    }
}

/// Behind what is there, the last byte first.
pub struct Backwards<'a>(pub &'a mut Vec<u8>);

impl Out for Backwards<'_> {
    fn written(&self) -> usize {
        self.0.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }
}
