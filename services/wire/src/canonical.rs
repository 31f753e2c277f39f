//! What makes a message other than it would be written here: a field that is not known, or its encoding alone.

use crate::WireType;
use crate::encoding::{take_delimited, take_key, take_varint};
use std::collections::BTreeMap;

/// The fields of a message by their numbers, each as often as it stands there; none: it is no message.
fn fields(mut message: &[u8]) -> Option<BTreeMap<u32, Vec<&[u8]>>> {
    let mut found: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
    while !message.is_empty() {
        let (number, wire) = take_key(&mut message).ok()?;
        let value = value(&mut message, wire)?;
        found.entry(number).or_default().push(value);
    }
    Some(found)
}

/// The bytes of a value, without its length.
fn value<'a>(rest: &mut &'a [u8], wire: WireType) -> Option<&'a [u8]> {
    let whole = *rest;
    let len = match wire {
        WireType::Varint => {
            take_varint(rest).ok()?;
            whole.len() - rest.len()
        }
        WireType::LengthDelimited => return take_delimited(rest).ok(),
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        // Of no message of the contract.
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (value, behind) = whole.split_at_checked(len)?;
    *rest = behind;
    Some(value)
}

/// The path of the first field of `given` that `written`, the same message as it is written here, does not have, such as
/// `10.17`; none: they say the same in other bytes. A field without a value says nothing.
pub fn unknown_field(given: &[u8], written: &[u8]) -> Option<String> {
    let (given, written) = (fields(given)?, fields(written)?);
    for (number, values) in given {
        let Some(known) = written.get(&number) else {
            let says = values
                .iter()
                .any(|value| value.iter().any(|byte| *byte != 0));
            match says {
                true => return Some(number.to_string()),
                false => continue,
            }
        };
        let differ = values
            .iter()
            .zip(known)
            .filter(|(given, known)| given != known);
        for (given, known) in differ {
            if let Some(path) = unknown_field(given, known) {
                return Some(format!("{number}.{path}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_told_from_an_encoding() {
        let check = |given: &[u8], written: &[u8], expected: Option<&str>| {
            assert_eq!(
                unknown_field(given, written).as_deref(),
                expected,
                "{given:?}"
            );
        };
        // Field 1 is 5; field 2 is a message with field 1.
        check(&[8, 5, 24, 1], &[8, 5], Some("3"));
        check(
            &[8, 5, 18, 4, 8, 1, 32, 9],
            &[8, 5, 18, 2, 8, 1],
            Some("2.4"),
        );
        // The long form of 5, a value that stands there twice, a default that is written, repeated numbers one by one.
        check(&[8, 133, 0], &[8, 5], None);
        check(&[8, 4, 8, 5], &[8, 5], None);
        check(&[8, 5, 16, 0], &[8, 5], None);
        check(&[8, 1, 8, 2], &[10, 2, 1, 2], None);
        // No message at all.
        check(&[7], &[8, 5], None);
    }
}
