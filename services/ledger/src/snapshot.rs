//! Snapshots are a shortcut: snapshot and tail equal a replay from the beginning, byte for byte.

use crate::{
    bus::LedgerId,
    frame::{Chain, Digest},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vocab::{
    Lsn,
    sabotage::{self, Bug},
};

/// A state with the position and the chain that it was taken at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    version: u32,
    pub chain: Chain,
    digest: Digest,
    state: Bytes,
}

/// Makes a state of one of an older version, given as it was serialised; none: that version is not known any more.
pub type Upgrade<S> = fn(u32, &[u8]) -> Option<S>;

/// Format of the envelope; the state inside has a version of its own.
const ENVELOPE: u8 = 3;
/// Room for what stands before a state: the seal, the ledger's id, the chain and the digest.
const HEAD_ROOM: usize = 1024;

impl Snapshot {
    pub fn of(version: u32, chain: Chain, state: &impl Serialize) -> Self {
        Self::with_room(version, chain, state, 0)
    }

    /// With room for that many bytes of state, so that they need not be moved while they become more.
    pub fn with_room(version: u32, chain: Chain, state: &impl Serialize, room: usize) -> Self {
        let state = Bytes::from(encode(state, room));
        Self {
            version,
            chain,
            digest: Digest::of(&state),
            state,
        }
    }

    pub fn state<S: DeserializeOwned>(&self, version: u32) -> Option<S> {
        (self.version == version)
            .then(|| decode_state(&self.state))
            .flatten()
    }

    /// The state where this version's shape may be newer than the snapshot's; none: not even an older shape that is known.
    pub fn upgraded<S: DeserializeOwned>(&self, version: u32, upgrade: Upgrade<S>) -> Option<S> {
        match self.version < version {
            true => upgrade(self.version, &self.state),
            false => self.state(version),
        }
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn position(&self) -> Lsn {
        self.chain.last()
    }

    pub fn to_bytes(&self, ledger: LedgerId) -> Bytes {
        let room = self.state.len() + HEAD_ROOM;
        encode(&(ENVELOPE, self.seal(ledger), ledger, self), room).into()
    }

    /// Over all that stands beside the state, the state's digest among it: a damaged position or watermark would have its
    /// reader take the ledger for a broken one.
    fn seal(&self, ledger: LedgerId) -> Digest {
        let head = (ledger, self.version, &self.chain, self.digest);
        Digest::of(&encode(&head, HEAD_ROOM))
    }

    /// None for anything that is not an intact snapshot of this very ledger: a shortcut that fails is not taken.
    pub fn from_bytes(bytes: &[u8], ledger: LedgerId) -> Option<Self> {
        let (&ENVELOPE, rest) = bytes.split_first()? else {
            return None;
        };
        let (seal, of, snapshot): (Digest, LedgerId, Self) = postcard::from_bytes(rest).ok()?;
        let intact = snapshot.seal(of) == seal && Digest::of(&snapshot.state) == snapshot.digest;
        let taken = intact || sabotage::armed(Bug::DamagedSnapshotTaken);
        (of == ledger && taken).then_some(snapshot)
    }
}

/// So many are kept of a name: if the latest cannot be read, the one before is.
pub const KEPT: usize = 2;

/// A state as a snapshot has it, for a step from one version to the next; none when it is not of this shape.
pub fn decode_state<S: DeserializeOwned>(bytes: &[u8]) -> Option<S> {
    postcard::from_bytes(bytes).ok()
}

/// SHA-256 over the serialised state. Two states with one digest are the same state.
pub fn state_digest(state: &impl Serialize) -> Digest {
    Digest::of(&encode(state, 0))
}

fn encode(value: &impl Serialize, room: usize) -> Vec<u8> {
    // Serialising into a growing vector fails only for types that postcard has no form for (untagged, unsized
    // sequences); the state types have none of those, which every decider's restore test shows.
    postcard::to_extend(value, Vec::with_capacity(room)).expect("state types have a postcard form")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Head;
    use vocab::{Token, Writer};

    #[test]
    fn a_snapshot_with_a_changed_bit_is_none() {
        let mut chain = Chain::default();
        let sender = Token::new("sender").expect("a name");
        let handled = Head::default().handled;
        let handled = handled.moved(3, [(sender, 7)].into_iter());
        let head = Head {
            lsn: Lsn(5),
            frame_no: 2,
            through_lsn: Lsn(4),
            handled: handled.expect("forwards"),
            ..Head::default()
        };
        chain.set(Writer::Quota, head);
        let snapshot = Snapshot::of(1, chain, &(7_u64, "state"));
        let bytes = snapshot.to_bytes(LedgerId(1));
        assert_eq!(
            Snapshot::from_bytes(&bytes, LedgerId(1)),
            Some(snapshot.clone())
        );
        assert_eq!(Snapshot::from_bytes(&bytes, LedgerId(2)), None);
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let found = Snapshot::from_bytes(&changed, LedgerId(1));
            assert_eq!(found, None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            let found = Snapshot::from_bytes(&bytes[..length], LedgerId(1));
            assert_eq!(found, None, "cut at {length}");
        }
    }

    /// Of a state that was a number, then had a second one, and now has a flag.
    #[test]
    fn a_snapshot_of_an_older_version_is_upgraded_step_by_step() {
        type Second = (u8, u16);
        type Third = (u8, u16, bool);
        fn second(first: u8) -> Second {
            (first, 7)
        }
        fn third((number, other): Second) -> Third {
            (number, other, true)
        }
        fn upgrade(version: u32, state: &[u8]) -> Option<Third> {
            match version {
                2 => Some(third(second(postcard::from_bytes(state).ok()?))),
                3 => Some(third(postcard::from_bytes(state).ok()?)),
                _ => None,
            }
        }
        fn check(version: u32, state: impl Serialize, expected: Option<Third>) {
            let snapshot = Snapshot::of(version, Chain::default(), &state);
            assert_eq!(snapshot.upgraded(4, upgrade), expected, "{version}");
        }
        check(1, 1_u8, None);
        check(2, 1_u8, Some((1, 7, true)));
        check(3, (1_u8, 8_u16), Some((1, 8, true)));
        check(4, (1_u8, 8_u16, false), Some((1, 8, false)));
        // A service that was replaced by an older one.
        check(5, (1_u8, 8_u16, false), None);
    }
}
