//! Bytes of a message for tests, made of its description alone: nothing has to be listed for a new type or field.

use crate::{FieldDescriptor, Kind, Label, MessageDescriptor, OneofDescriptor, Out, Row};

/// Texts that are names, resources and what budgets are of: the first three are whatever a type asks for.
const TEXTS: [&str; 5] = ["cpu", "gpu", "memory", "gpu:aZ09_-", "grün"];
/// So many of them are any text.
const USUAL: usize = 3;
/// Messages lie in each other so deep, at the most.
const DEPTH: u32 = 8;

/// A message. `choose` picks one of so many possibilities, 0 being the plainest: all fields are there, and lists have one
/// element. Some choices make a value that the type refuses, such as a number that is too large for it.
pub fn sample(message: &MessageDescriptor, choose: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
    body(message, DEPTH, choose)
}

fn body(message: &MessageDescriptor, depth: u32, choose: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in message.fields {
        let count = match field.shape.label {
            Label::Repeated => (choose(4) + 1) % 4,
            Label::Optional => 1 - choose(2),
            // It may be one that has to be there.
            Label::Implicit => u64::from(choose(32) < 31),
        };
        for _ in 0..count {
            value(field, depth, &mut bytes, choose);
        }
    }
    for OneofDescriptor { fields, .. } in message.oneofs {
        let chosen = choose(fields.len() as u64) as usize;
        value(&fields[chosen], depth, &mut bytes, choose);
    }
    bytes
}

fn value(
    field: &FieldDescriptor,
    depth: u32,
    bytes: &mut Vec<u8>,
    choose: &mut dyn FnMut(u64) -> u64,
) {
    let plain = u64::from(field.number);
    let varint = match field.shape.kind {
        Kind::Uint32 => match choose(64) {
            62 => 300,
            63 => u64::from(u32::MAX),
            _ => plain + choose(100),
        },
        Kind::Uint64 => match choose(8) {
            7 => u64::MAX,
            6 => choose(1 << 40),
            _ => plain + choose(100),
        },
        Kind::Int64 => match choose(8) {
            7 => i64::MIN as u64,
            6 => -1_i64 as u64,
            _ => plain + choose(1 << 40),
        },
        Kind::Sint32 => plain + choose(1 << 31),
        Kind::Bool => 1 - choose(2),
        Kind::Enum(descriptor) => {
            let values = descriptor.values;
            values[choose(values.len() as u64) as usize].number as u64
        }
        Kind::String => {
            let of = if choose(16) == 15 { TEXTS.len() } else { USUAL };
            let text = TEXTS[choose(of as u64) as usize];
            return delimited(field.number, text.as_bytes(), bytes);
        }
        Kind::Bytes(length) => {
            let content: Vec<u8> = (0..length).map(|_| choose(256) as u8).collect();
            return delimited(field.number, &content, bytes);
        }
        Kind::Message(inner) => {
            let Some(depth) = depth.checked_sub(1) else {
                return;
            };
            let content = body(inner(), depth, choose);
            return delimited(field.number, &content, bytes);
        }
    };
    Row::behind(bytes, |row| row.varint(field.number, varint));
}

fn delimited(number: u32, content: &[u8], bytes: &mut Vec<u8>) {
    Row::behind(bytes, |row| row.bytes(number, content));
}
