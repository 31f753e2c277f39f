//! How a field holds its values: alone, at most one, any number.

use crate::message::each_field;
use crate::{
    Fault, FieldDescriptor, Input, Kind, Label, MessageDescriptor, Out, Result, Shape, Source,
    Value, WireError, WireType,
};
use smallvec::SmallVec;
use std::marker::PhantomData;

/// How a field of the type `T` is written and read. `#[wire(n)]` is `Plain`, `optional` is `Explicit`, `default` is
/// `OrDefault`, and `with = …` names any other.
pub trait Codec<T> {
    const SHAPE: Shape;

    fn write_field<O: Out>(value: &T, number: u32, out: &mut O);
    /// The field was read; `slot` is what it was before, none at first.
    fn merge_field(slot: &mut Option<T>, input: Input) -> Result<()>;
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
pub fn finish<C: Codec<T>, T>(slot: Option<T>, field: &'static str) -> Result<T> {
    present(slot.or_else(C::absent), field)
}

/// For the derive: the oneof that was read.
pub fn present<T>(slot: Option<T>, field: &'static str) -> Result<T> {
    slot.ok_or_else(|| WireError::from(Fault::Missing).at(field))
}

/// Where protobuf would put two messages together, there is one too many: no writer says one in two pieces.
fn read_once<T: Value>(seen: bool, input: Input) -> Result<Option<T>> {
    match seen && T::KIND.is_message() {
        true => Err(Fault::Repeated.into()),
        false => T::read(input),
    }
}

/// For the derive: the value of a oneof, where 0 is a value and no text is none.
pub fn read_chosen<T: Value>(seen: bool, input: Input) -> Result<T> {
    Ok(read_once(seen, input)?.ok_or(Fault::Invalid)?)
}

/// What proto3 does when nothing is said: what is 0 or empty is left out. In an `Option`, 0 and the empty text are none.
pub struct Plain;

impl<T: Value> Codec<T> for Plain {
    const SHAPE: Shape = shape::<T>(Label::Implicit);

    fn write_field<O: Out>(value: &T, number: u32, out: &mut O) {
        if !value.is_zero() {
            value.write(number, out);
        }
    }

    fn merge_field(slot: &mut Option<T>, input: Input) -> Result<()> {
        *slot = read_once(slot.is_some(), input)?;
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

    fn write_field<O: Out>(value: &Option<T>, number: u32, out: &mut O) {
        if let Some(value) = value {
            Self::write_field(value, number, out);
        }
    }

    fn merge_field(slot: &mut Option<Option<T>>, input: Input) -> Result<()> {
        let read: Option<T> = read_once(slot.is_some(), input)?;
        *slot = Some(read.filter(|value| !value.is_zero()));
        Ok(())
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// Numbers are packed.
fn write_list<T: Value, O: Out>(values: &[T], number: u32, out: &mut O) {
    match T::KIND.wire_type() {
        WireType::Varint => out.packed(number, values),
        _ => out.each(values, |out, value| value.write(number, out)),
    }
}

/// Numbers that are not packed are read, too.
fn read_list<T: Value>(input: Input, mut push: impl FnMut(T)) -> Result<()> {
    let wire = T::KIND.wire_type();
    if wire == WireType::LengthDelimited || input.wire() == wire {
        push(T::read(input)?.ok_or(Fault::Invalid)?);
        return Ok(());
    }
    let depth = input.depth;
    let buf = &mut input.bytes()?;
    while !buf.is_empty() {
        let source = Source::Field { wire, buf };
        push(T::read(Input { source, depth })?.ok_or(Fault::Invalid)?);
    }
    Ok(())
}

impl<T: Value> Codec<Vec<T>> for Plain {
    const SHAPE: Shape = shape::<T>(Label::Repeated);

    fn write_field<O: Out>(values: &Vec<T>, number: u32, out: &mut O) {
        write_list(values, number, out);
    }

    fn merge_field(slot: &mut Option<Vec<T>>, input: Input) -> Result<()> {
        let values = slot.get_or_insert_default();
        read_list(input, |value| values.push(value))
    }

    fn absent() -> Option<Vec<T>> {
        Some(Vec::new())
    }
}

impl<T: Value, const N: usize> Codec<SmallVec<[T; N]>> for Plain {
    const SHAPE: Shape = shape::<T>(Label::Repeated);

    fn write_field<O: Out>(values: &SmallVec<[T; N]>, number: u32, out: &mut O) {
        write_list(values, number, out);
    }

    fn merge_field(slot: &mut Option<SmallVec<[T; N]>>, input: Input) -> Result<()> {
        let values = slot.get_or_insert_default();
        read_list(input, |value| values.push(value))
    }

    fn absent() -> Option<SmallVec<[T; N]>> {
        Some(SmallVec::new())
    }
}

/// proto3's `optional`: written whenever it is there, 0 too.
pub struct Explicit;

impl<T: Value> Codec<Option<T>> for Explicit {
    const SHAPE: Shape = shape::<T>(Label::Optional);

    fn write_field<O: Out>(value: &Option<T>, number: u32, out: &mut O) {
        if let Some(value) = value {
            value.write(number, out);
        }
    }

    fn merge_field(slot: &mut Option<Option<T>>, input: Input) -> Result<()> {
        *slot = Some(Some(read_chosen(slot.is_some(), input)?));
        Ok(())
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// A message that is left out when it says nothing else than its default.
pub struct OrDefault;

impl<T: Value + Default + PartialEq> Codec<T> for OrDefault {
    const SHAPE: Shape = {
        assert!(
            T::KIND.is_message(),
            "only messages have defaults of their own"
        );
        shape::<T>(Label::Implicit)
    };

    fn write_field<O: Out>(value: &T, number: u32, out: &mut O) {
        if *value != T::default() {
            value.write(number, out);
        }
    }

    fn merge_field(slot: &mut Option<T>, input: Input) -> Result<()> {
        Plain::merge_field(slot, input)
    }

    fn absent() -> Option<T> {
        Some(T::default())
    }
}

/// A message of two fields, numbers 1 and 2, that is a tuple in the domain. `pair!` declares one.
pub trait Pair {
    const NAME: &'static str;
    /// `field` and `Message.field`.
    const FIRST: [&'static str; 2];
    const SECOND: [&'static str; 2];
}

/// Declares the message of a list of tuples: `pair!(/// What it is. pub FilterCount { filter, nodes });`, and the field is
/// `#[wire(5, with = wire::Pairs<FilterCount>)] counts: Vec<(Filter, u32)>`.
#[macro_export]
macro_rules! pair {
    ($(#[$meta:meta])* $vis:vis $name:ident { $first:ident, $second:ident }) => {
        $(#[$meta])*
        $vis struct $name;

        impl $crate::Pair for $name {
            const NAME: &'static str = stringify!($name);
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
        fields: &[
            FieldDescriptor {
                number: 1,
                name: P::FIRST[0],
                shape: <Plain as Codec<A>>::SHAPE,
            },
            FieldDescriptor {
                number: 2,
                name: P::SECOND[0],
                shape: <Plain as Codec<B>>::SHAPE,
            },
        ],
        oneofs: &[],
    };
}

impl<P: Pair, A, B> Codec<Vec<(A, B)>> for Pairs<P>
where
    Plain: Codec<A> + Codec<B>,
{
    const SHAPE: Shape = Shape {
        label: Label::Repeated,
        kind: Kind::Message(|| &Described::<P, A, B>::MESSAGE),
    };

    fn write_field<O: Out>(values: &Vec<(A, B)>, number: u32, out: &mut O) {
        out.each(values, |out, (a, b)| {
            out.message(number, |out| {
                Plain::write_field(b, 2, out);
                Plain::write_field(a, 1, out);
            });
        });
    }

    fn merge_field(slot: &mut Option<Vec<(A, B)>>, input: Input) -> Result<()> {
        let (body, depth) = input.message(false)?;
        let ([_, first], [_, second]) = (P::FIRST, P::SECOND);
        let (mut a, mut b) = (None, None);
        each_field(body, depth, P::NAME, |number, input| {
            match number {
                1 => Plain::merge_field(&mut a, input).map_err(|error| error.at(first))?,
                2 => Plain::merge_field(&mut b, input).map_err(|error| error.at(second))?,
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
