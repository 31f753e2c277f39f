//! A part of a state as the message that it is on the ledger (`#[serde(with = "ledger::as_message")]`). A message can get
//! another field; bytes without names, which a snapshot is of otherwise, cannot: each field of a request would need a new
//! version of every state that holds requests.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use wire::Message;

pub fn serialize<M: Message, S: Serializer>(part: &M, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(&part.encode_to_vec())
}

pub fn deserialize<'de, M: Message, D: Deserializer<'de>>(from: D) -> Result<M, D::Error> {
    let bytes = <&[u8]>::deserialize(from)?;
    M::decode(bytes).map_err(D::Error::custom)
}

/// The same for one that is shared.
pub mod shared {
    use super::{Deserializer, Message, Serializer};
    use std::sync::Arc;

    pub fn serialize<M: Message, S: Serializer>(part: &Arc<M>, to: S) -> Result<S::Ok, S::Error> {
        super::serialize(&**part, to)
    }

    pub fn deserialize<'de, M: Message, D: Deserializer<'de>>(from: D) -> Result<Arc<M>, D::Error> {
        super::deserialize(from).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use std::sync::Arc;

    #[derive(Debug, PartialEq, wire::Wire)]
    struct Before {
        #[wire(1)]
        priority: u64,
    }

    #[derive(Debug, PartialEq, wire::Wire)]
    struct After {
        #[wire(1)]
        priority: u64,
        #[wire(2)]
        retries: u64,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct State<M: wire::Message> {
        #[serde(with = "super")]
        request: M,
        #[serde(with = "super::shared")]
        shared: Arc<M>,
    }

    #[test]
    fn a_state_of_a_message_with_a_field_less_is_read() {
        let before = |priority| Before { priority };
        let (request, shared) = (before(300), Arc::new(before(7)));
        let bytes = postcard::to_allocvec(&State { request, shared }).unwrap();
        let after = |priority| After {
            priority,
            retries: 0,
        };
        let (request, shared) = (after(300), Arc::new(after(7)));
        let read: State<After> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, State { request, shared });
        assert!(postcard::from_bytes::<State<After>>(&[1, 0xff, 0]).is_err());
    }
}
