//! Single values: numbers, texts, bytes, messages.

use crate::{Depth, Fault, Kind, WireError};
use prost::bytes::BufMut;
use prost::encoding::{
    WireType, check_wire_type, decode_varint, encode_varint, encoded_len_varint,
};
use std::borrow::Cow;

/// What a field can hold one of. Lengths and bytes are those of the value without its key, but with its length where it has
/// one.
pub trait Value: Sized {
    const KIND: Kind;
    /// It says nothing by itself of what its 0 would be in an `Option`, so that the field has to say `optional`.
    const BARE: bool = false;

    /// What an absent field stands for; none where a field has to be there.
    fn zero() -> Option<Self>;
    /// Left out of a field that does not have to say it.
    fn is_zero(&self) -> bool;
    fn value_len(&self) -> usize;
    fn write(&self, buf: &mut impl BufMut);
    /// None: it was 0 or empty, and no value is. Such a field counts as absent.
    fn read(wire: WireType, buf: &mut &[u8], depth: Depth) -> Result<Option<Self>, WireError>;
}

/// What is a `string` in messages: a name, or something else that is written as one. `#[derive(Wire)] #[wire(text)]` makes a
/// field's value of it. Nothing is written as an empty text.
pub trait Text: Sized {
    fn as_text(&self) -> Cow<'_, str>;
    fn parse_text(text: &str) -> Option<Self>;
}

pub fn delimited_len(len: usize) -> usize {
    encoded_len_varint(len as u64) + len
}

pub fn write_bytes(bytes: &[u8], buf: &mut impl BufMut) {
    encode_varint(bytes.len() as u64, buf);
    buf.put_slice(bytes);
}

/// The bytes of a text, of bytes, or of a message, where they lie.
pub fn read_bytes<'a>(wire: WireType, buf: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    check_wire_type(WireType::LengthDelimited, wire)?;
    let len = usize::try_from(decode_varint(buf)?).map_err(|_| Fault::Truncated)?;
    let (bytes, rest) = buf.split_at_checked(len).ok_or(Fault::Truncated)?;
    *buf = rest;
    Ok(bytes)
}

pub fn read_text<'a>(wire: WireType, buf: &mut &'a [u8]) -> Result<&'a str, WireError> {
    Ok(std::str::from_utf8(read_bytes(wire, buf)?).map_err(|_| Fault::Invalid)?)
}

pub fn read_varint(wire: WireType, buf: &mut &[u8]) -> Result<u64, WireError> {
    check_wire_type(WireType::Varint, wire)?;
    Ok(decode_varint(buf)?)
}

/// For the derive: a text that is none when it is empty.
pub fn read_parsed<T: Text>(wire: WireType, buf: &mut &[u8]) -> Result<Option<T>, WireError> {
    match read_text(wire, buf)? {
        "" => Ok(None),
        text => Ok(Some(T::parse_text(text).ok_or(Fault::Invalid)?)),
    }
}

/// For the derive: the value of an enum; 0 is none where no value has it.
pub fn read_number<T>(
    wire: WireType,
    buf: &mut &[u8],
    from_number: impl Fn(i32) -> Option<T>,
) -> Result<Option<T>, WireError> {
    let number = read_varint(wire, buf)? as i32;
    match from_number(number) {
        None if number != 0 => Err(Fault::Invalid.into()),
        value => Ok(value),
    }
}

/// A type that is a number: how it becomes a varint, and what a varint is of it. More bits than the message's type has are
/// dropped, as prost does; what is too much for a narrower type here is refused.
macro_rules! numbers {
    ($($type:ty: $kind:ident, $number:ident => $to:expr, $raw:ident => $from:expr;)*) => {$(
        impl Value for $type {
            const KIND: Kind = Kind::$kind;
            const BARE: bool = true;

            fn zero() -> Option<Self> {
                Some(Self::default())
            }

            fn is_zero(&self) -> bool {
                *self == Self::default()
            }

            fn value_len(&self) -> usize {
                let $number = *self;
                encoded_len_varint($to)
            }

            fn write(&self, buf: &mut impl BufMut) {
                let $number = *self;
                encode_varint($to, buf);
            }

            fn read(wire: WireType, buf: &mut &[u8], _: Depth) -> Result<Option<Self>, WireError> {
                let $raw = read_varint(wire, buf)?;
                Ok(Some($from))
            }
        }
    )*};
}

numbers! {
    u8: Uint32, number => number.into(), raw => (raw as u32).try_into().map_err(|_| Fault::Invalid)?;
    u16: Uint32, number => number.into(), raw => (raw as u32).try_into().map_err(|_| Fault::Invalid)?;
    u32: Uint32, number => number.into(), raw => raw as u32;
    u64: Uint64, number => number, raw => raw;
    i64: Int64, number => number as u64, raw => raw as i64;
    // Zigzag: 0, -1, 1, -2, …
    i32: Sint32, number => u64::from(((number << 1) ^ (number >> 31)) as u32),
        raw => ((raw as u32 >> 1) as i32) ^ -((raw & 1) as i32);
    bool: Bool, number => number.into(), raw => raw != 0;
}

impl Value for String {
    const KIND: Kind = Kind::String;
    const BARE: bool = true;

    fn zero() -> Option<Self> {
        Some(Self::new())
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }

    fn value_len(&self) -> usize {
        delimited_len(self.len())
    }

    fn write(&self, buf: &mut impl BufMut) {
        write_bytes(self.as_bytes(), buf);
    }

    fn read(wire: WireType, buf: &mut &[u8], _: Depth) -> Result<Option<Self>, WireError> {
        Ok(Some(read_text(wire, buf)?.to_owned()))
    }
}

/// Exactly so many, or none, which is no value.
impl<const N: usize> Value for [u8; N] {
    const KIND: Kind = Kind::Bytes;

    fn zero() -> Option<Self> {
        None
    }

    fn is_zero(&self) -> bool {
        false
    }

    fn value_len(&self) -> usize {
        delimited_len(N)
    }

    fn write(&self, buf: &mut impl BufMut) {
        write_bytes(self, buf);
    }

    fn read(wire: WireType, buf: &mut &[u8], _: Depth) -> Result<Option<Self>, WireError> {
        match read_bytes(wire, buf)? {
            [] => Ok(None),
            bytes => Ok(Some(bytes.try_into().map_err(|_| Fault::Invalid)?)),
        }
    }
}

impl<T: Value> Value for Box<T> {
    const KIND: Kind = T::KIND;
    const BARE: bool = T::BARE;

    fn zero() -> Option<Self> {
        T::zero().map(Self::new)
    }

    fn is_zero(&self) -> bool {
        (**self).is_zero()
    }

    fn value_len(&self) -> usize {
        (**self).value_len()
    }

    fn write(&self, buf: &mut impl BufMut) {
        (**self).write(buf);
    }

    fn read(wire: WireType, buf: &mut &[u8], depth: Depth) -> Result<Option<Self>, WireError> {
        Ok(T::read(wire, buf, depth)?.map(Self::new))
    }
}
