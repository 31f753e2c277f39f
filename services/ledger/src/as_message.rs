//! A part of a state as the message that it is on the ledger (`#[serde(with = "ledger::as_message")]`). A message can get
//! another field; bytes without names, which a snapshot is of otherwise, cannot: each field of a request would need a new
//! version of every state that holds requests.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::sync::Arc;
use wire::Message;

pub fn serialize<M: Message, S: Serializer>(part: &Arc<M>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(&part.encode_to_vec())
}

pub fn deserialize<'de, M: Message, D: Deserializer<'de>>(from: D) -> Result<Arc<M>, D::Error> {
    let bytes = <&[u8]>::deserialize(from)?;
    M::decode(bytes).map(Arc::new).map_err(D::Error::custom)
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
        request: Arc<M>,
        behind: u8,
    }

    #[test]
    fn a_state_of_a_message_with_a_field_less_is_read() {
        let request = Arc::new(Before { priority: 300 });
        let bytes = postcard::to_allocvec(&State { request, behind: 7 }).unwrap();
        let read: State<After> = postcard::from_bytes(&bytes).unwrap();
        let request = Arc::new(After {
            priority: 300,
            retries: 0,
        });
        assert_eq!(read, State { request, behind: 7 });
        assert!(postcard::from_bytes::<State<After>>(&[1, 0xff, 7]).is_err());
    }
}
