//! Specifications for who reads them. Tasks that ask for the same differ in their names, and elements of an array in their
//! indexes, too, so all but these lies in memory once.

use crate::{AllocationSpec, Shared, Token};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::sync::Arc;
use wire::Message as _;

/// A specification: what many ask for, and what each has of its own. It is serialised as the whole message, so that a request can get another
/// field without a new version of the state; what a snapshot brings back is shared by nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSpec {
    name: Option<Token>,
    array_index: Option<u32>,
    /// It has neither.
    common: Arc<AllocationSpec>,
}

impl NamedSpec {
    pub fn name(&self) -> Option<&Token> {
        self.name.as_ref()
    }

    pub fn array_index(&self) -> Option<u32> {
        self.array_index
    }

    /// All but the name and the index.
    pub fn common(&self) -> &AllocationSpec {
        &self.common
    }

    pub fn whole(&self) -> AllocationSpec {
        AllocationSpec {
            name: self.name.clone(),
            array_index: self.array_index,
            ..self.common.as_ref().clone()
        }
    }

    /// The same, to be changed; from here on it is shared by nobody.
    pub fn common_mut(&mut self) -> &mut AllocationSpec {
        Arc::make_mut(&mut self.common)
    }
}

impl From<AllocationSpec> for NamedSpec {
    fn from(mut spec: AllocationSpec) -> Self {
        let (name, array_index) = (spec.name.take(), spec.array_index.take());
        let common = Arc::new(spec);
        Self {
            name,
            array_index,
            common,
        }
    }
}

impl Serialize for NamedSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.whole().encode_to_vec())
    }
}

impl<'de> Deserialize<'de> for NamedSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <&[u8]>::deserialize(deserializer)?;
        let spec = AllocationSpec::decode(bytes).map_err(D::Error::custom)?;
        Ok(spec.into())
    }
}

/// The specifications that are there.
#[derive(Debug, Clone, Default)]
pub struct NamedSpecs(Shared<AllocationSpec>);

impl NamedSpecs {
    pub fn of(&mut self, spec: &AllocationSpec) -> NamedSpec {
        let mut common = spec.clone();
        let (name, array_index) = (common.name.take(), common.array_index.take());
        let common = self.0.of(&common, |common| Arc::new(common.clone()));
        NamedSpec {
            name,
            array_index,
            common,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> AllocationSpec {
        let token = |text| Token::new(text).ok();
        AllocationSpec {
            name: token(name),
            team: token("team"),
            ..AllocationSpec::plain(token("j").expect("a token"), 500, 1 << 30)
        }
    }

    #[test]
    fn a_specification_is_whole_whoever_shares_it() {
        let mut specs = NamedSpecs::default();
        let (a, mut b) = (specs.of(&spec("a")), specs.of(&spec("b")));
        assert!(Arc::ptr_eq(&a.common, &b.common));
        assert_eq!((a.whole(), b.whole()), (spec("a"), spec("b")));
        assert_eq!(specs.of(&spec("")).whole(), spec(""));
        let element = |index| AllocationSpec {
            array_index: Some(index),
            ..spec("a")
        };
        let (first, second) = (specs.of(&element(0)), specs.of(&element(1)));
        assert!(Arc::ptr_eq(&first.common, &a.common));
        assert!(Arc::ptr_eq(&second.common, &a.common));
        assert_eq!((first.whole(), second.whole()), (element(0), element(1)));
        assert_ne!(first, a);
        b.common_mut().priority = 7;
        let priority = |spec: &NamedSpec| spec.whole().priority;
        assert_eq!((priority(&a), priority(&b)), (0, 7));
    }

    #[test]
    fn it_is_serialised_as_the_message() {
        let check = |spec: AllocationSpec| {
            let named = NamedSpec::from(spec.clone());
            let bytes = postcard::to_stdvec(&named).unwrap();
            let message = wire::Message::encode_to_vec(&spec);
            assert_eq!(bytes, postcard::to_stdvec(&message).unwrap());
            assert_eq!(postcard::from_bytes::<NamedSpec>(&bytes).unwrap(), named);
        };
        check(spec("a"));
        check(AllocationSpec {
            array_index: Some(0),
            ..spec("a")
        });
        assert!(postcard::from_bytes::<NamedSpec>(&[1, 0xff]).is_err());
    }
}
