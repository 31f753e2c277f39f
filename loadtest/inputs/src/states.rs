//! States of deciders and read models, as snapshots contain them.

use admission_rules::Admission;
use analytics::domain::Usage;
use ledger::{Chain, Decider, LedgerId, Projection, Snapshot, Upgrade, decode_state, state_digest};
use node_heartbeat_rules::Nodes;
use quota_rules::Quota;
use scheduler_rules::Scheduler;
use serde::{Serialize, de::DeserializeOwned};

const LEDGER: LedgerId = LedgerId(1);
/// Number of state versions that are tried: the current one and the five before it.
const BEFORE: u32 = 6;

const KINDS: &[fn(u32, &[u8]) -> bool] = &[
    decider::<Admission>,
    decider::<Quota>,
    decider::<Scheduler>,
    decider::<Nodes>,
    projection::<admission::feed::Feed>,
    projection::<admission::project::WarmProjection>,
    projection::<quota::project::WarmProjection>,
    projection::<scheduler::project::WarmProjection>,
    projection::<node_heartbeat::project::WarmProjection>,
    projection::<Usage>,
];

/// Decodes a state; the first byte selects its type, the second the age of its version. Also decodes the whole input as a
/// snapshot.
pub fn state(input: &[u8]) -> bool {
    if let Some(snapshot) = Snapshot::from_bytes(input, LEDGER) {
        let written = snapshot.to_bytes(LEDGER);
        assert_eq!(Snapshot::from_bytes(&written, LEDGER), Some(snapshot));
    }
    let [kind, before, bytes @ ..] = input else {
        return false;
    };
    KINDS[usize::from(*kind) % KINDS.len()](u32::from(*before) % BEFORE, bytes)
}

fn decider<D: Decider>(before: u32, bytes: &[u8]) -> bool {
    read(D::STATE_VERSION, D::upgrade, before, bytes)
}

fn projection<P: Projection>(before: u32, bytes: &[u8]) -> bool {
    read(P::STATE_VERSION, P::upgrade, before, bytes)
}

/// Decodes a state, and asserts that it is unchanged after it is written and read again.
fn read<S>(version: u32, upgrade: Upgrade<S>, before: u32, bytes: &[u8]) -> bool
where
    S: Serialize + DeserializeOwned,
{
    let read = match before {
        0 => decode_state(bytes),
        before => upgrade(version.saturating_sub(before), bytes),
    };
    let Some(state) = read else {
        return false;
    };
    let snapshot = Snapshot::of(version, Chain::default(), &state);
    let found = Snapshot::from_bytes(&snapshot.to_bytes(LEDGER), LEDGER);
    let again = found.and_then(|found| found.upgraded(version, upgrade));
    assert!(
        again.as_ref().map(state_digest) == Some(state_digest(&state)),
        "{}: a state changed when it was written and read",
        std::any::type_name::<S>()
    );
    true
}
