//! Snapshots are a shortcut: snapshot and tail equal a replay from the beginning, byte for byte.

use crate::{
    bus::LedgerId,
    frame::{Chain, Digest},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vocab::Lsn;

/// A state with the position and the chain that it was taken at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    version: u32,
    pub chain: Chain,
    digest: Digest,
    state: Vec<u8>,
}

/// Format of the envelope; the state inside has a version of its own.
const ENVELOPE: u8 = 1;

impl Snapshot {
    pub fn of(version: u32, chain: Chain, state: &impl Serialize) -> Self {
        let state = encode(state);
        Self {
            version,
            chain,
            digest: Digest::of(&state),
            state,
        }
    }

    pub fn state<S: DeserializeOwned>(&self, version: u32) -> Option<S> {
        (self.version == version)
            .then(|| postcard::from_bytes(&self.state).ok())
            .flatten()
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn position(&self) -> Lsn {
        self.chain.last()
    }

    pub fn to_bytes(&self, ledger: LedgerId) -> Bytes {
        let mut bytes = vec![ENVELOPE];
        bytes.extend_from_slice(&encode(&(ledger, self)));
        bytes.into()
    }

    /// None for anything that is not an intact snapshot of this very ledger: a shortcut that fails is not taken.
    pub fn from_bytes(bytes: &[u8], ledger: LedgerId) -> Option<Self> {
        let (&ENVELOPE, rest) = bytes.split_first()? else {
            return None;
        };
        let (of, snapshot): (LedgerId, Self) = postcard::from_bytes(rest).ok()?;
        (of == ledger && Digest::of(&snapshot.state) == snapshot.digest).then_some(snapshot)
    }
}

/// SHA-256 over the serialised state. Two states with one digest are the same state.
pub fn state_digest(state: &impl Serialize) -> Digest {
    Digest::of(&encode(state))
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // Serialising into a growing vector fails only for types that postcard has no form for (untagged, unsized
    // sequences); the state types have none of those, which every decider's restore test shows.
    postcard::to_stdvec(value).expect("state types have a postcard form")
}
