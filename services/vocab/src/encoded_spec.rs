//! Specifications for who passes them on. Tasks that ask for the same differ in their names, and elements of an array in their
//! indexes, too, so all but these lies in memory once.

use crate::{AllocationSpec, Shared, Token};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::sync::Arc;
use wire::{Message as _, Out as _, Row};

/// A specification as the message that it is, for who passes it on and decides nothing by it. It is serialised as the whole
/// message; what a snapshot brings back is shared by nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedSpec {
    /// Begins with the job set, which every specification has.
    common: Arc<[u8]>,
    name: Option<Token>,
    array_index: Option<u32>,
}

/// The numbers of the first two fields, both of them texts.
const JOB_SET: u32 = 1;
const NAME: u32 = 2;
/// That of the last one.
const ARRAY_INDEX: u32 = 24;
/// How a text is written, beside its number.
const TEXT: u32 = 2;

/// The name that the field at the beginning of these bytes has, and how long the field is. Names are so short that their length
/// is one byte.
fn field(number: u32, bytes: &[u8]) -> Option<(&[u8], usize)> {
    let [found, length, rest @ ..] = bytes else {
        return None;
    };
    let text = rest.get(..usize::from(*length))?;
    (u32::from(*found) == number << 3 | TEXT && text.len() <= Token::LENGTH_MAX)
        .then_some((text, 2 + text.len()))
}

impl EncodedSpec {
    /// Its fields, as a message by itself.
    pub fn write_body(&self, out: &mut Row) {
        let job_set = field(JOB_SET, &self.common).map_or(0, |(_, length)| length);
        let (before, behind) = self.common.split_at(job_set);
        if let Some(index) = self.array_index {
            out.varint(ARRAY_INDEX, index.into());
        }
        out.put(behind);
        if let Some(name) = &self.name {
            out.text(NAME, name.as_str().as_bytes());
        }
        out.put(before);
    }

    fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.common.len() + 2 + Token::LENGTH_MAX);
        Row::behind(&mut bytes, |out| self.write_body(out));
        bytes
    }

    fn decoded(bytes: &[u8]) -> Option<Self> {
        let spec = AllocationSpec::decode(bytes).ok()?;
        Some(EncodedSpecs::default().of(&spec))
    }
}

impl Serialize for EncodedSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.encoded().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EncodedSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Self::decoded(&bytes).ok_or_else(|| D::Error::custom("not a specification"))
    }
}

/// The specifications that are there.
#[derive(Debug, Clone, Default)]
pub struct EncodedSpecs {
    common: Shared<[u8]>,
    scratch: Vec<u8>,
}

impl EncodedSpecs {
    pub fn of(&mut self, spec: &AllocationSpec) -> EncodedSpec {
        let array_index = spec.array_index;
        let of_none;
        let spec = match array_index {
            None => spec,
            Some(_) => {
                of_none = AllocationSpec {
                    array_index: None,
                    ..spec.clone()
                };
                &of_none
            }
        };
        let bytes = &mut self.scratch;
        bytes.clear();
        Row::behind(bytes, |out| spec.write_body(out));
        if let Some((_, before)) = field(JOB_SET, bytes)
            && let Some((_, length)) = field(NAME, &bytes[before..])
        {
            bytes.drain(before..before + length);
        }
        let common = self.common.of(bytes.as_slice(), Arc::from);
        let name = spec.name.clone();
        EncodedSpec {
            common,
            name,
            array_index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).expect("a literal token")
    }

    fn spec(name: &str, cpu_milli: u64) -> AllocationSpec {
        AllocationSpec {
            name: Token::new(name).ok(),
            team: Some(token("team")),
            ..AllocationSpec::plain(token(&"j".repeat(64)), cpu_milli, 1 << 30)
        }
    }

    fn encoded(spec: &AllocationSpec) -> EncodedSpec {
        EncodedSpecs::default().of(spec)
    }

    #[test]
    fn a_specification_is_kept_as_the_message_that_it_is() {
        let check = |spec: &AllocationSpec| {
            let (kept, bytes) = (encoded(spec), wire::Message::encode_to_vec(spec));
            assert_eq!(kept.encoded(), bytes);
            assert_eq!(EncodedSpec::decoded(&bytes), Some(kept));
        };
        let element = |index, name| AllocationSpec {
            array_index: Some(index),
            ..spec(name, 1)
        };
        check(&element(0, ""));
        check(&element(u32::MAX, "a"));
        check(&spec("", 1));
        check(&spec("a", 1));
        check(&spec(&"n".repeat(64), 1));
        check(&AllocationSpec::plain(token("j"), 0, 0));
        assert_eq!(EncodedSpec::decoded(&[]), None);
        assert_eq!(EncodedSpec::decoded(&[0x12, 1, b'n']), None);
        assert_eq!(EncodedSpec::decoded(&[0x0a, 9, b'j']), None);
        assert_eq!(EncodedSpec::decoded(&[0x0a, 1, b'j', 0x12, 1, b'.']), None);
    }

    #[test]
    fn what_differs_by_its_name_lies_there_once() {
        let mut specs = EncodedSpecs::default();
        let (a, b) = (specs.of(&spec("a", 1)), specs.of(&spec("b", 1)));
        assert!(Arc::ptr_eq(&a.common, &b.common) && a != b);
        assert_eq!(specs.of(&spec("a", 1)), a);
        assert_ne!(specs.of(&spec("a", 2)), a);
        assert!(Arc::ptr_eq(&specs.of(&spec("c", 1)).common, &a.common));
        let element = specs.of(&AllocationSpec {
            array_index: Some(1),
            ..spec("a", 1)
        });
        assert!(Arc::ptr_eq(&element.common, &a.common) && element != a);
    }
}
