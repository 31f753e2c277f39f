//! Single values: numbers, texts, bytes, messages.

use crate::encoding::{take_delimited, take_varint};
use crate::{Column, Depth, Fault, Kind, Out, Result, WireType};
use bytes::Bytes;
use smol_str::SmolStr;
use std::borrow::Cow;
use std::sync::Arc;

/// What a field can hold one of.
pub trait Value: Sized {
    const KIND: Kind;
    /// It says nothing by itself of what its 0 would be in an `Option`, so that the field has to say `optional`.
    const BARE: bool = false;

    /// What an absent field stands for; none where a field has to be there.
    fn zero() -> Option<Self>;
    /// Left out of a field that does not have to say it.
    fn is_zero(&self) -> bool;
    /// As the field of this number.
    fn write<O: Out>(&self, number: u32, out: &mut O);
    /// None: it was 0 or empty, and no value is. Such a field counts as absent.
    fn read(input: Input) -> Result<Option<Self>>;
}

/// What is a `string` in messages: a name, or something else that is written as one. `#[derive(Wire)] #[wire(text)]` makes a
/// field's value of it. Nothing is written as an empty text.
pub trait Text: Sized {
    fn as_text(&self) -> Cow<'_, str>;
    fn parse_text(text: &str) -> Option<Self>;
}

/// One value of a field, and how deep it is.
pub struct Input<'a, 'b> {
    pub source: Source<'a, 'b>,
    pub depth: Depth,
}

/// Where a value comes from.
pub enum Source<'a, 'b> {
    /// A field as it lies in the bytes: how it is written, and where it begins.
    Field {
        wire: WireType,
        buf: &'a mut &'b [u8],
    },
    /// A number of a column.
    Number(u64),
    /// A text or bytes of a column.
    Bytes(&'a [u8]),
    /// The next message of a column.
    Message(&'a mut Column<'b>),
}

/// The fields of a message.
pub enum Body<'a, 'b> {
    Bytes(&'a [u8]),
    /// Those of the next row.
    Columns(&'a mut Column<'b>),
}

impl<'a, 'b> Input<'a, 'b> {
    /// How protobuf would have written it.
    #[inline]
    pub fn wire(&self) -> WireType {
        match &self.source {
            Source::Field { wire, .. } => *wire,
            Source::Number(_) => WireType::Varint,
            Source::Bytes(_) | Source::Message(_) => WireType::LengthDelimited,
        }
    }

    #[inline]
    pub fn varint(self) -> Result<u64> {
        self.wire().check(WireType::Varint)?;
        match self.source {
            Source::Field { buf, .. } => Ok(take_varint(buf)?),
            Source::Number(number) => Ok(number),
            Source::Bytes(_) | Source::Message(_) => Err(Fault::Invalid.into()),
        }
    }

    /// The bytes of a text, of bytes, or of a message, where they lie.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8]> {
        self.wire().check(WireType::LengthDelimited)?;
        match self.source {
            Source::Field { buf, .. } => Ok(take_delimited(buf)?),
            Source::Bytes(bytes) => Ok(bytes),
            // A column of messages where texts are expected.
            Source::Message(_) | Source::Number(_) => Err(Fault::Invalid.into()),
        }
    }

    #[inline]
    pub fn text(self) -> Result<&'a str> {
        Ok(std::str::from_utf8(self.bytes()?).map_err(|_| Fault::Invalid)?)
    }

    /// The body of a message and its depth. No message is in two pieces: one that was `seen` is refused.
    pub fn message(self, seen: bool) -> Result<(Body<'a, 'b>, Depth)> {
        if seen {
            return Err(Fault::Repeated.into());
        }
        let depth = self.depth;
        let body = match self.source {
            Source::Message(column) => Body::Columns(column),
            // Columns have messages in columns, and nowhere else.
            Source::Bytes(_) => return Err(Fault::Invalid.into()),
            Source::Field { .. } | Source::Number(_) => Body::Bytes(self.bytes()?),
        };
        Ok((body, depth.inner()?))
    }
}

/// For the derive: a text that is none when it is empty.
pub fn read_parsed<T: Text>(input: Input) -> Result<Option<T>> {
    match input.text()? {
        "" => Ok(None),
        text => Ok(Some(T::parse_text(text).ok_or(Fault::Invalid)?)),
    }
}

/// For the derive: the value of an enum; 0 is none where no value has it.
pub fn read_number<T>(input: Input, from_number: impl Fn(i32) -> Option<T>) -> Result<Option<T>> {
    let number = input.varint()? as i32;
    match from_number(number) {
        None if number != 0 => Err(Fault::Invalid.into()),
        value => Ok(value),
    }
}

/// A type that is a number: how it becomes a varint, and what a varint is of it. More bits than the message's type has are
/// dropped, as prost does; what is too much for a narrower type here is refused.
macro_rules! numbers {
    ($($type:ty: $kind:ident, $value:ident => $to:expr, $raw:ident => $from:expr;)*) => {$(
        impl Value for $type {
            const KIND: Kind = Kind::$kind;
            const BARE: bool = true;

            fn zero() -> Option<Self> {
                Some(Self::default())
            }

            fn is_zero(&self) -> bool {
                *self == Self::default()
            }

            fn write<O: Out>(&self, number: u32, out: &mut O) {
                let $value = *self;
                out.varint(number, $to);
            }

            fn read(input: Input) -> Result<Option<Self>> {
                let $raw = input.varint()?;
                Ok(Some($from))
            }
        }
    )*};
}

numbers! {
    u8: Uint32, value => value.into(), raw => (raw as u32).try_into().map_err(|_| Fault::Invalid)?;
    u16: Uint32, value => value.into(), raw => (raw as u32).try_into().map_err(|_| Fault::Invalid)?;
    u32: Uint32, value => value.into(), raw => raw as u32;
    u64: Uint64, value => value, raw => raw;
    i64: Int64, value => value as u64, raw => raw as i64;
    // Zigzag: 0, -1, 1, -2, …
    i32: Sint32, value => u64::from(((value << 1) ^ (value >> 31)) as u32),
        raw => ((raw as u32 >> 1) as i32) ^ -((raw & 1) as i32);
    bool: Bool, value => value.into(), raw => raw != 0;
}

/// Text as it was written, whatever it says.
macro_rules! texts {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const KIND: Kind = Kind::String;
            const BARE: bool = true;

            fn zero() -> Option<Self> {
                Some(Self::default())
            }

            fn is_zero(&self) -> bool {
                self.is_empty()
            }

            fn write<O: Out>(&self, number: u32, out: &mut O) {
                out.text(number, self.as_bytes());
            }

            fn read(input: Input) -> Result<Option<Self>> {
                Ok(Some(input.text()?.into()))
            }
        }
    )*};
}

texts!(String, SmolStr);

/// Exactly so many, or none, which is no value.
impl<const N: usize> Value for [u8; N] {
    const KIND: Kind = Kind::Bytes(N);

    fn zero() -> Option<Self> {
        None
    }

    fn is_zero(&self) -> bool {
        false
    }

    fn write<O: Out>(&self, number: u32, out: &mut O) {
        out.bytes(number, self);
    }

    fn read(input: Input) -> Result<Option<Self>> {
        match input.bytes()? {
            [] => Ok(None),
            bytes => Ok(Some(bytes.try_into().map_err(|_| Fault::Invalid)?)),
        }
    }
}

/// Any number of them.
impl Value for Bytes {
    /// What a sample has.
    const KIND: Kind = Kind::Bytes(5);
    const BARE: bool = true;

    fn zero() -> Option<Self> {
        Some(Self::new())
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }

    fn write<O: Out>(&self, number: u32, out: &mut O) {
        out.bytes(number, self);
    }

    fn read(input: Input) -> Result<Option<Self>> {
        Ok(Some(Self::copy_from_slice(input.bytes()?)))
    }
}

macro_rules! pointers {
    ($($pointer:ident),*) => {$(
        impl<T: Value> Value for $pointer<T> {
            const KIND: Kind = T::KIND;
            const BARE: bool = T::BARE;

            fn zero() -> Option<Self> {
                T::zero().map(Self::new)
            }

            fn is_zero(&self) -> bool {
                (**self).is_zero()
            }

            fn write<O: Out>(&self, number: u32, out: &mut O) {
                (**self).write(number, out);
            }

            fn read(input: Input) -> Result<Option<Self>> {
                Ok(T::read(input)?.map(Self::new))
            }
        }
    )*};
}

pointers!(Box, Arc);

/// An enum's value whose number may be one that no value has: for what others have written, so that it is refused by name and
/// not as bytes that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open<E> {
    Known(E),
    Unknown(i32),
}

impl<E: Copy> Open<E> {
    /// None: no value has the number.
    pub fn known(self) -> Option<E> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<E: Value> Default for Open<E> {
    fn default() -> Self {
        E::zero().map_or(Self::Unknown(0), Self::Known)
    }
}

impl<E: Value> Value for Open<E> {
    const KIND: Kind = {
        assert!(matches!(E::KIND, Kind::Enum(_)), "only an enum is open");
        E::KIND
    };
    const BARE: bool = true;

    fn zero() -> Option<Self> {
        Some(Self::default())
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Known(value) => value.is_zero(),
            Self::Unknown(number) => *number == 0,
        }
    }

    fn write<O: Out>(&self, number: u32, out: &mut O) {
        match self {
            Self::Known(value) => value.write(number, out),
            // Protobuf writes a negative number as one of 64 bits.
            Self::Unknown(unknown) => out.varint(number, i64::from(*unknown) as u64),
        }
    }

    fn read(input: Input) -> Result<Option<Self>> {
        let depth = input.depth;
        let value = input.varint()?;
        let source = Source::Number(value);
        let known = E::read(Input { source, depth }).ok().flatten();
        let number = value as i32;
        Ok(Some(known.map_or(Self::Unknown(number), Self::Known)))
    }
}
