//! Messages and oneofs: what the derive writes for structs and for enums with data.

use crate::encoding::{skip, take_key};
use crate::{
    Body, Fault, FieldDescriptor, Input, MessageDescriptor, Out, Result, Row, Source, WireError,
};

/// How many more messages may lie in each other.
#[derive(Debug, Clone, Copy)]
pub struct Depth(u32);

impl Depth {
    /// As many as prost allows.
    pub const MAX: Self = Self(100);

    pub fn inner(self) -> Result<Self, Fault> {
        Ok(Self(self.0.checked_sub(1).ok_or(Fault::TooDeep)?))
    }
}

pub trait Message: Sized {
    const DESCRIPTOR: &'static MessageDescriptor;

    fn write_body<O: Out>(&self, out: &mut O);
    fn read_body(body: Body, depth: Depth) -> Result<Self>;

    fn encode_to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        Row::behind(&mut bytes, |out| self.write_body(out));
        bytes
    }

    /// Puts it behind `bytes` as a field of this number, with its length.
    fn append_field(&self, number: u32, bytes: &mut Vec<u8>) {
        Row::behind(bytes, |out| {
            out.message(number, |out| self.write_body(out));
        });
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read_body(Body::Bytes(bytes), Depth::MAX)
    }
}

/// Fields of a message of which it has exactly one.
pub trait Oneof: Sized {
    /// In their order.
    const NUMBERS: &'static [u32];
    const FIELDS: &'static [FieldDescriptor];

    fn write_field<O: Out>(&self, out: &mut O);
    /// One of `NUMBERS` was read; the last one counts.
    fn merge_field(slot: &mut Option<Self>, number: u32, input: Input) -> Result<()>;
}

/// Goes through the fields of a message and skips those that `take` does not know, which says so and leaves them.
pub fn each_field(
    body: Body,
    depth: Depth,
    message: &'static str,
    mut take: impl FnMut(u32, Input) -> Result<bool>,
) -> Result<()> {
    let mut bytes = match body {
        Body::Bytes(bytes) => bytes,
        Body::Columns(row) => return row.each_field(depth, take),
    };
    let buf = &mut bytes;
    while !buf.is_empty() {
        let at = |fault| WireError::from(fault).at(message);
        let (number, wire) = take_key(buf).map_err(at)?;
        let source = Source::Field { wire, buf };
        if !take(number, Input { source, depth })? {
            skip((number, wire), buf, depth).map_err(at)?;
        }
    }
    Ok(())
}

/// For the derive: whether a field's numbers are those of its oneof.
pub const fn same_numbers(a: &[u32], b: &[u32]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
