#![doc = include_str!("../README.md")]
//!
//! What would be lost is an error when it is compiled:
//!
//! ```compile_fail
//! #[derive(wire::Wire)]
//! struct Limits {
//!     #[wire(1)]
//!     soft: Option<u64>,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(wire::Wire)]
//! #[wire(oneof)]
//! enum Target {
//!     #[wire(1)]
//!     No(u64),
//! }
//!
//! #[derive(wire::Wire)]
//! struct Change {
//!     #[wire(oneof(1, 2))]
//!     target: Target,
//! }
//! ```

// The derive names this crate; so it can be used in here, too.
extern crate self as wire;

mod canonical;
mod codec;
mod columns;
mod descriptor;
mod encoding;
mod error;
mod message;
mod out;
mod sample;
mod schema;
mod value;

pub use canonical::unknown_field;
pub use codec::{Codec, Explicit, OrDefault, Pair, Pairs, Plain};
pub use columns::{Column, Columns, Rows};
pub use descriptor::{
    EnumDescriptor, EnumValue, FieldDescriptor, Kind, Label, MessageDescriptor, OneofDescriptor,
    Shape,
};
pub use encoding::WireType;
pub use error::{Fault, Result, WireError};
pub use message::{Depth, Message, Oneof};
pub use out::{Out, Row};
pub use sample::sample;
pub use schema::differences;
pub use value::{Body, Input, Open, Source, Text, Value};
pub use wire_derive::Wire;

/// What the derived code calls, and what a `Codec` or `Value` by hand may.
pub mod raw {
    pub use crate::codec::{finish, present, read_chosen, shape_of};
    pub use crate::encoding::take_varint;
    pub use crate::message::{each_field, same_numbers};
    pub use crate::value::{read_number, read_parsed};
}
