//! Protobuf encoding below the level of messages: varints, keys, and skipping of values.

use crate::{Depth, Fault, Result};

/// Encoding of a field's value, given by the last three bits of the field's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    Varint = 0,
    SixtyFourBit = 1,
    LengthDelimited = 2,
    StartGroup = 3,
    EndGroup = 4,
    ThirtyTwoBit = 5,
}

impl WireType {
    /// Rejects a value with an encoding that differs from that of its field's type.
    #[inline]
    pub(crate) fn check(self, expected: Self) -> Result<(), Fault> {
        match self == expected {
            true => Ok(()),
            false => Err(Fault::WireType),
        }
    }
}

/// Length of the longest varint in bytes; its last byte has one bit of the number.
const VARINT_BYTES_MAX: usize = 10;

/// Returns the length of the number as a varint, in bytes.
#[inline]
pub(crate) const fn varint_len(number: u64) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}

/// Takes a varint from the front of `bytes`. The varint may have more bytes than the number needs.
#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Result<u64, Fault> {
    // Most are keys, lengths of names and numbers of words.
    if let [first, rest @ ..] = *bytes
        && *first < 0x80
    {
        *bytes = rest;
        return Ok(u64::from(*first));
    }
    match long_varint(bytes) {
        (_, 0) => Err(Fault::Varint),
        (number, len) => {
            *bytes = &bytes[len..];
            Ok(number)
        }
    }
}

/// Returns a varint and its length in bytes, which is 0 if there is no valid varint. Not inlined, so that the inlined one-byte
/// path stays small.
#[inline(never)]
fn long_varint(bytes: &[u8]) -> (u64, usize) {
    let mut number = 0;
    for at in 0..VARINT_BYTES_MAX {
        let Some(&byte) = bytes.get(at) else {
            break;
        };
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            // The tenth byte has one bit of the number.
            let fits = at + 1 < VARINT_BYTES_MAX || byte < 2;
            return (number, if fits { at + 1 } else { 0 });
        }
    }
    (0, 0)
}

/// Takes the key of a field from the front of `bytes`: the field's number and wire type.
#[inline]
pub(crate) fn take_key(bytes: &mut &[u8]) -> Result<(u32, WireType), Fault> {
    let key = take_varint(bytes)?;
    let wire = match key & 7 {
        0 => WireType::Varint,
        1 => WireType::SixtyFourBit,
        2 => WireType::LengthDelimited,
        3 => WireType::StartGroup,
        4 => WireType::EndGroup,
        5 => WireType::ThirtyTwoBit,
        _ => return Err(Fault::Key),
    };
    // Field number 0 is invalid, and the key of the highest field number has 32 bits.
    match (1 << 3..1 << 32).contains(&key) {
        true => Ok(((key >> 3) as u32, wire)),
        false => Err(Fault::Key),
    }
}

/// Takes a length as a varint, and then that number of bytes.
#[inline]
pub(crate) fn take_delimited<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], Fault> {
    let len = usize::try_from(take_varint(bytes)?).map_err(|_| Fault::Truncated)?;
    take(bytes, len)
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Result<&'b [u8], Fault> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Fault::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

/// Skips the value of the field `number`, which counts as one level below `depth`; each nested group counts as one more level.
pub(crate) fn skip(
    (number, wire): (u32, WireType),
    bytes: &mut &[u8],
    depth: Depth,
) -> Result<(), Fault> {
    let inner = depth.inner()?;
    match wire {
        WireType::Varint => take_varint(bytes).map(drop),
        WireType::SixtyFourBit => take(bytes, 8).map(drop),
        WireType::ThirtyTwoBit => take(bytes, 4).map(drop),
        WireType::LengthDelimited => take_delimited(bytes).map(drop),
        WireType::StartGroup => loop {
            match take_key(bytes)? {
                (end, WireType::EndGroup) if end == number => return Ok(()),
                field => skip(field, bytes, inner)?,
            }
        },
        WireType::EndGroup => Err(Fault::Group),
    }
}
