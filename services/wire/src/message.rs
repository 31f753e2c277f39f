//! Messages and oneofs: what the derive writes for structs and for enums with data.

use crate::{Fault, FieldDescriptor, MessageDescriptor, Value, WireError, value};
use prost::bytes::BufMut;
use prost::encoding::{
    DecodeContext, WireType, decode_key, encode_key, encode_varint, key_len, skip_field,
};

/// How many more messages may lie in each other; prost allows as many.
#[derive(Debug, Clone, Copy)]
pub struct Depth(u32);

impl Depth {
    pub const MAX: Self = Self(100);

    pub fn inner(self) -> Result<Self, WireError> {
        Ok(Self(self.0.checked_sub(1).ok_or(Fault::TooDeep)?))
    }
}

pub trait Message: Sized {
    const DESCRIPTOR: &'static MessageDescriptor;

    /// Length of all its fields.
    fn body_len(&self) -> usize;
    fn write_body(&self, buf: &mut impl BufMut);
    fn read_body(body: &[u8], depth: Depth) -> Result<Self, WireError>;

    fn encode_to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body_len());
        self.write_body(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Self::read_body(bytes, Depth::MAX)
    }
}

/// Fields of a message of which it has exactly one.
pub trait Oneof: Sized {
    /// In their order.
    const NUMBERS: &'static [u32];
    const FIELDS: &'static [FieldDescriptor];
    /// Oneofs that stand in this one.
    const PARTS: &'static [&'static [FieldDescriptor]];

    /// With its key.
    fn field_len(&self) -> usize;
    fn write_field(&self, buf: &mut impl BufMut);
    /// One of `NUMBERS` was read; the last one counts.
    fn merge_field(
        slot: &mut Option<Self>,
        number: u32,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError>;
}

/// Goes through the fields of a message and skips those that `take` does not know.
pub fn each_field(
    mut body: &[u8],
    depth: Depth,
    message: &'static str,
    mut take: impl FnMut(u32, WireType, &mut &[u8]) -> Result<bool, WireError>,
) -> Result<(), WireError> {
    let buf = &mut body;
    while !buf.is_empty() {
        let (number, wire) = decode_key(buf).map_err(|error| WireError::from(error).at(message))?;
        if !take(number, wire, buf)? {
            // Groups in it are counted from here on; otherwise it goes one deeper, as a message would.
            let skipped = depth
                .inner()
                .and_then(|_| Ok(skip_field(wire, number, buf, DecodeContext::default())?));
            skipped.map_err(|error| error.at(message))?;
        }
    }
    Ok(())
}

/// The body of a message that is a field, and how deep it lies. No message is in two pieces: one that was `seen` is refused.
pub fn open<'a>(
    seen: bool,
    wire: WireType,
    buf: &mut &'a [u8],
    depth: Depth,
) -> Result<(&'a [u8], Depth), WireError> {
    if seen {
        return Err(Fault::Repeated.into());
    }
    Ok((value::read_bytes(wire, buf)?, depth.inner()?))
}

/// For the derive: whether a field's numbers are those of its oneof.
pub const fn same_numbers(a: &[u32], b: &[u32]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

pub fn write_key<T: Value>(number: u32, buf: &mut impl BufMut) {
    encode_key(number, T::KIND.wire_type(), buf);
}

/// Length of a message as a field, with its key.
pub fn message_field_len(number: u32, body_len: usize) -> usize {
    key_len(number) + value::delimited_len(body_len)
}

/// What stands before the body of a message that is a field.
pub fn write_message_head(number: u32, body_len: usize, buf: &mut impl BufMut) {
    encode_key(number, WireType::LengthDelimited, buf);
    encode_varint(body_len as u64, buf);
}
