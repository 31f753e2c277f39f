//! Specifications for who reads them. Tasks that ask for the same differ in their names, so all but the name lies in memory
//! once.

use crate::{AllocationSpec, Shared, Token};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::sync::Arc;
use wire::Message as _;

/// A specification: what many ask for, and the name. It is serialised as the whole message, so that a request can get another
/// field without a new version of the state; what a snapshot brings back is shared by nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSpec {
    name: Option<Token>,
    /// It has no name.
    common: Arc<AllocationSpec>,
}

impl NamedSpec {
    pub fn name(&self) -> Option<&Token> {
        self.name.as_ref()
    }

    /// All but the name.
    pub fn common(&self) -> &AllocationSpec {
        &self.common
    }

    pub fn whole(&self) -> AllocationSpec {
        AllocationSpec {
            name: self.name.clone(),
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
        let name = spec.name.take();
        let common = Arc::new(spec);
        Self { name, common }
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
        let name = common.name.take();
        let common = self.0.of(&common, |common| Arc::new(common.clone()));
        NamedSpec { name, common }
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
        b.common_mut().priority = 7;
        let priority = |spec: &NamedSpec| spec.whole().priority;
        assert_eq!((priority(&a), priority(&b)), (0, 7));
    }

    #[test]
    fn it_is_serialised_as_the_message() {
        let named = NamedSpec::from(spec("a"));
        let bytes = postcard::to_stdvec(&named).unwrap();
        let message = wire::Message::encode_to_vec(&spec("a"));
        assert_eq!(bytes, postcard::to_stdvec(&message).unwrap());
        assert_eq!(postcard::from_bytes::<NamedSpec>(&bytes).unwrap(), named);
        assert!(postcard::from_bytes::<NamedSpec>(&[1, 0xff]).is_err());
    }
}
