//! What a derived type looks like on the wire, as data: what a .proto file would say of it.

use crate::WireType;

#[derive(Debug, Clone, Copy)]
pub struct MessageDescriptor {
    /// As the .proto file has it; `Outer.Inner` where it stands in another one.
    pub name: &'static str,
    /// In the order of their numbers; without those of oneofs.
    pub fields: &'static [FieldDescriptor],
    pub oneofs: &'static [OneofDescriptor],
}

#[derive(Debug, Clone, Copy)]
pub struct OneofDescriptor {
    pub name: &'static str,
    pub fields: &'static [FieldDescriptor],
}

#[derive(Debug, Clone, Copy)]
pub struct FieldDescriptor {
    pub number: u32,
    pub name: &'static str,
    pub shape: Shape,
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub label: Label,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// Left out when it is 0, false or empty; a message: always there, or left out when it says nothing.
    Implicit,
    /// `optional`: written even when it is 0.
    Optional,
    Repeated,
}

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Uint32,
    Uint64,
    Int64,
    Sint32,
    Bool,
    String,
    /// So many; of any number, as many as a sample has.
    Bytes(usize),
    Enum(&'static EnumDescriptor),
    /// A function, so that a message can hold itself.
    Message(fn() -> &'static MessageDescriptor),
}

impl Kind {
    pub const fn wire_type(self) -> WireType {
        match self {
            Self::String | Self::Bytes(_) | Self::Message(_) => WireType::LengthDelimited,
            _ => WireType::Varint,
        }
    }

    pub const fn is_message(self) -> bool {
        matches!(self, Self::Message(_))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct EnumDescriptor {
    pub name: &'static str,
    /// Without `…_UNSPECIFIED = 0`, which no value stands for.
    pub values: &'static [EnumValue],
}

#[derive(Debug, Clone, Copy)]
pub struct EnumValue {
    pub number: i32,
    pub name: &'static str,
}
