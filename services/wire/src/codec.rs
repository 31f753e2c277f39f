//! How a field holds its values: alone, at most one, any number.

use crate::message::{each_field, open, write_key, write_message_head};
use crate::value::{delimited_len, read_bytes};
use crate::{
    Depth, Fault, FieldDescriptor, Kind, Label, MessageDescriptor, Shape, Value, WireError,
};
use prost::bytes::BufMut;
use prost::encoding::{WireType, key_len};
use std::marker::PhantomData;

/// How a field of the type `T` is written and read. `#[wire(n)]` is `Plain`, `optional` is `Explicit`, `default` is
/// `OrDefault`, and `with = …` names any other.
pub trait Codec<T> {
    const SHAPE: Shape;

    /// With its key; 0 when it is left out.
    fn field_len(value: &T, number: u32) -> usize;
    fn write_field(value: &T, number: u32, buf: &mut impl BufMut);
    /// The field was read; `slot` is what it was before, none at first.
    fn merge_field(
        slot: &mut Option<T>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError>;
    /// What it is when it was not read; none where it has to be there.
    fn absent() -> Option<T>;
}

const fn shape<T: Value>(label: Label) -> Shape {
    let kind = T::KIND;
    Shape { label, kind }
}

/// For the derive: the shape of a field whose type it does not see.
pub const fn shape_of<C: Codec<T>, S, T>(_: fn(&S) -> &T) -> Shape {
    C::SHAPE
}

/// For the derive: what was read, or what an absent field stands for.
pub fn finish<C: Codec<T>, T>(slot: Option<T>, field: &'static str) -> Result<T, WireError> {
    present(slot.or_else(C::absent), field)
}

/// For the derive: the oneof that was read.
pub fn present<T>(slot: Option<T>, field: &'static str) -> Result<T, WireError> {
    slot.ok_or_else(|| WireError::from(Fault::Missing).at(field))
}

fn len<T: Value>(value: &T, number: u32) -> usize {
    key_len(number) + value.value_len()
}

fn write<T: Value>(value: &T, number: u32, buf: &mut impl BufMut) {
    write_key::<T>(number, buf);
    value.write(buf);
}

/// Where protobuf would put two messages together, there is one too many: no writer says one in two pieces.
fn read_once<T: Value>(
    seen: bool,
    wire: WireType,
    buf: &mut &[u8],
    depth: Depth,
) -> Result<Option<T>, WireError> {
    match seen && T::KIND.is_message() {
        true => Err(Fault::Repeated.into()),
        false => T::read(wire, buf, depth),
    }
}

/// For the derive: the value of a oneof, where 0 is a value and no text is none.
pub fn read_chosen<T: Value>(
    seen: bool,
    wire: WireType,
    buf: &mut &[u8],
    depth: Depth,
) -> Result<T, WireError> {
    Ok(read_once(seen, wire, buf, depth)?.ok_or(Fault::Invalid)?)
}

/// What proto3 does when nothing is said: what is 0 or empty is left out. In an `Option`, 0 and the empty text are none.
pub struct Plain;

impl<T: Value> Codec<T> for Plain {
    const SHAPE: Shape = shape::<T>(Label::Implicit);

    fn field_len(value: &T, number: u32) -> usize {
        if value.is_zero() {
            return 0;
        }
        len(value, number)
    }

    fn write_field(value: &T, number: u32, buf: &mut impl BufMut) {
        if !value.is_zero() {
            write(value, number, buf);
        }
    }

    fn merge_field(
        slot: &mut Option<T>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError> {
        *slot = read_once(slot.is_some(), wire, buf, depth)?;
        Ok(())
    }

    fn absent() -> Option<T> {
        T::zero()
    }
}

impl<T: Value> Codec<Option<T>> for Plain {
    const SHAPE: Shape = {
        assert!(!T::BARE, "`Some(0)` would be lost: say `optional`");
        shape::<T>(Label::Implicit)
    };

    fn field_len(value: &Option<T>, number: u32) -> usize {
        value.as_ref().map_or(0, |v| Self::field_len(v, number))
    }

    fn write_field(value: &Option<T>, number: u32, buf: &mut impl BufMut) {
        if let Some(value) = value {
            Self::write_field(value, number, buf);
        }
    }

    fn merge_field(
        slot: &mut Option<Option<T>>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError> {
        let read: Option<T> = read_once(slot.is_some(), wire, buf, depth)?;
        *slot = Some(read.filter(|value| !value.is_zero()));
        Ok(())
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// Numbers are packed; those that are not are read, too.
impl<T: Value> Codec<Vec<T>> for Plain {
    const SHAPE: Shape = shape::<T>(Label::Repeated);

    fn field_len(values: &Vec<T>, number: u32) -> usize {
        let len: usize = values.iter().map(T::value_len).sum();
        match (values.is_empty(), T::KIND.wire_type()) {
            (true, _) => 0,
            (_, WireType::Varint) => key_len(number) + delimited_len(len),
            _ => key_len(number) * values.len() + len,
        }
    }

    fn write_field(values: &Vec<T>, number: u32, buf: &mut impl BufMut) {
        if T::KIND.wire_type() != WireType::Varint {
            return values.iter().for_each(|value| write(value, number, buf));
        }
        if !values.is_empty() {
            let len: usize = values.iter().map(T::value_len).sum();
            write_message_head(number, len, buf);
            values.iter().for_each(|value| value.write(buf));
        }
    }

    fn merge_field(
        slot: &mut Option<Vec<T>>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError> {
        let values = slot.get_or_insert_default();
        if T::KIND.wire_type() == WireType::Varint && wire == WireType::LengthDelimited {
            let mut packed = read_bytes(wire, buf)?;
            while !packed.is_empty() {
                let value = T::read(WireType::Varint, &mut packed, depth)?;
                values.push(value.ok_or(Fault::Invalid)?);
            }
        } else {
            values.push(T::read(wire, buf, depth)?.ok_or(Fault::Invalid)?);
        }
        Ok(())
    }

    fn absent() -> Option<Vec<T>> {
        Some(Vec::new())
    }
}

/// proto3's `optional`: written whenever it is there, 0 too.
pub struct Explicit;

impl<T: Value> Codec<Option<T>> for Explicit {
    const SHAPE: Shape = shape::<T>(Label::Optional);

    fn field_len(value: &Option<T>, number: u32) -> usize {
        value.as_ref().map_or(0, |value| len(value, number))
    }

    fn write_field(value: &Option<T>, number: u32, buf: &mut impl BufMut) {
        if let Some(value) = value {
            write(value, number, buf);
        }
    }

    fn merge_field(
        slot: &mut Option<Option<T>>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError> {
        *slot = Some(Some(read_chosen(slot.is_some(), wire, buf, depth)?));
        Ok(())
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// A message that is left out when it says nothing else than its default.
pub struct OrDefault;

impl<T: Value + Default + PartialEq> Codec<T> for OrDefault {
    const SHAPE: Shape = shape::<T>(Label::Implicit);

    fn field_len(value: &T, number: u32) -> usize {
        if *value == T::default() {
            return 0;
        }
        len(value, number)
    }

    fn write_field(value: &T, number: u32, buf: &mut impl BufMut) {
        if *value != T::default() {
            write(value, number, buf);
        }
    }

    fn merge_field(
        slot: &mut Option<T>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError> {
        Plain::merge_field(slot, wire, buf, depth)
    }

    fn absent() -> Option<T> {
        Some(T::default())
    }
}

/// A message of two fields, numbers 1 and 2, that is a tuple in the domain. `pair!` declares one.
pub trait Pair {
    const NAME: &'static str;
    const DOC: &'static str;
    /// `field` and `Message.field`.
    const FIRST: [&'static str; 2];
    const SECOND: [&'static str; 2];
}

/// Declares the message of a list of tuples: `pair!(/// What it is. pub FilterCount { filter, nodes });`, and the field is
/// `#[wire(5, with = wire::Pairs<FilterCount>)] counts: Vec<(Filter, u32)>`.
#[macro_export]
macro_rules! pair {
    ($(#[doc = $doc:literal])* $vis:vis $name:ident { $first:ident, $second:ident }) => {
        $(#[doc = $doc])*
        $vis struct $name;

        impl $crate::Pair for $name {
            const NAME: &'static str = stringify!($name);
            const DOC: &'static str = concat!($($doc, "\n"),*).trim_ascii();
            const FIRST: [&'static str; 2] =
                [stringify!($first), concat!(stringify!($name), ".", stringify!($first))];
            const SECOND: [&'static str; 2] =
                [stringify!($second), concat!(stringify!($name), ".", stringify!($second))];
        }
    };
}

pub struct Pairs<P>(PhantomData<P>);

struct Described<P, A, B>(PhantomData<(P, A, B)>);

impl<P: Pair, A, B> Described<P, A, B>
where
    Plain: Codec<A> + Codec<B>,
{
    const MESSAGE: MessageDescriptor = MessageDescriptor {
        name: P::NAME,
        doc: P::DOC,
        fields: &[
            FieldDescriptor {
                number: 1,
                name: P::FIRST[0],
                doc: "",
                shape: <Plain as Codec<A>>::SHAPE,
            },
            FieldDescriptor {
                number: 2,
                name: P::SECOND[0],
                doc: "",
                shape: <Plain as Codec<B>>::SHAPE,
            },
        ],
        oneofs: &[],
    };
}

fn pair_len<A, B>((a, b): &(A, B)) -> usize
where
    Plain: Codec<A> + Codec<B>,
{
    Plain::field_len(a, 1) + Plain::field_len(b, 2)
}

impl<P: Pair, A, B> Codec<Vec<(A, B)>> for Pairs<P>
where
    Plain: Codec<A> + Codec<B>,
{
    const SHAPE: Shape = Shape {
        label: Label::Repeated,
        kind: Kind::Message(|| &Described::<P, A, B>::MESSAGE),
    };

    fn field_len(values: &Vec<(A, B)>, number: u32) -> usize {
        let len = |pair| key_len(number) + delimited_len(pair_len(pair));
        values.iter().map(len).sum()
    }

    fn write_field(values: &Vec<(A, B)>, number: u32, buf: &mut impl BufMut) {
        for pair in values {
            write_message_head(number, pair_len(pair), buf);
            Plain::write_field(&pair.0, 1, buf);
            Plain::write_field(&pair.1, 2, buf);
        }
    }

    fn merge_field(
        slot: &mut Option<Vec<(A, B)>>,
        wire: WireType,
        buf: &mut &[u8],
        depth: Depth,
    ) -> Result<(), WireError> {
        let (body, depth) = open(false, wire, buf, depth)?;
        let [_, first] = P::FIRST;
        let [_, second] = P::SECOND;
        let (mut a, mut b) = (None, None);
        each_field(body, depth, P::NAME, |number, wire, buf| {
            match number {
                1 => Plain::merge_field(&mut a, wire, buf, depth).map_err(|e| e.at(first))?,
                2 => Plain::merge_field(&mut b, wire, buf, depth).map_err(|e| e.at(second))?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let pair = (
            finish::<Plain, A>(a, first)?,
            finish::<Plain, B>(b, second)?,
        );
        slot.get_or_insert_default().push(pair);
        Ok(())
    }

    fn absent() -> Option<Vec<(A, B)>> {
        Some(Vec::new())
    }
}
