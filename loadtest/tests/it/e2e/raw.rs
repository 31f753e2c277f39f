//! Bytes as nobody's library would write them.

pub use replay::wire::Wire;

/// A protobuf field of bytes, text or a message.
pub fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut field = varint(number << 3 | 2);
    field.extend(varint(bytes.len() as u64));
    field.extend(bytes);
    field
}

/// A protobuf field of a number.
pub fn number(number: u64, value: u64) -> Vec<u8> {
    let mut field = varint(number << 3);
    field.extend(varint(value));
    field
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
