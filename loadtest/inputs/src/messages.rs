//! Messages of the contract, decoded by this project's own codec and by prost.

use schemas::v1;
use std::fmt::Debug;
use vocab::TenantSettings;
use vocab::{
    AllocationSpec, Event, Limits, NodeCapacity, Operation, PlacementRules, PriorityClass, Refusal,
    RunExit, Topology,
    fact::{Applied, LimitsInForce, PendingGroupExplained, QuotaSet},
};
use wire::Message;

const KINDS: &[fn(&[u8]) -> bool] = &[
    agree::<AllocationSpec, v1::AllocationSpec>,
    agree::<Operation, v1::Operation>,
    agree::<PlacementRules, v1::PlacementRules>,
    agree::<PriorityClass, v1::PriorityClass>,
    agree::<Limits, v1::Limits>,
    agree::<Applied<QuotaSet>, v1::QuotaSet>,
    agree::<LimitsInForce, v1::LimitsInForce>,
    agree::<PendingGroupExplained, v1::PendingGroupExplained>,
    agree::<Topology, v1::Topology>,
    agree::<Refusal, v1::Refusal>,
    agree::<NodeCapacity, v1::NodeCapacity>,
    agree::<RunExit, v1::RunExit>,
];

/// Decodes a message; the first byte selects its type.
pub fn message(input: &[u8]) -> bool {
    let Some((kind, bytes)) = input.split_first() else {
        return false;
    };
    KINDS[usize::from(*kind) % KINDS.len()](bytes)
}

/// Decodes a single ledger event, outside a frame.
pub fn event(input: &[u8]) -> bool {
    let Ok(event) = Event::decode(input) else {
        return false;
    };
    check::<Event, v1::Event>(&event, input, !leaves_defaults_out(&event));
    true
}

/// Returns whether the event contains default settings, which the encoder omits even if the input contained them.
pub fn leaves_defaults_out(event: &Event) -> bool {
    matches!(event, Event::TenantSet(set) if set.change.settings == TenantSettings::default())
}

fn agree<T, P>(bytes: &[u8]) -> bool
where
    T: Message + PartialEq + Debug,
    P: prost::Message + Default + Debug,
{
    let Ok(value) = T::decode(bytes) else {
        return false;
    };
    check::<T, P>(&value, bytes, true);
    true
}

/// Asserts that both codecs agree on `value`. If `same`, prost must also encode its value of `bytes` like this project's codec.
fn check<T, P>(value: &T, bytes: &[u8], same: bool)
where
    T: Message + PartialEq + Debug,
    P: prost::Message + Default + Debug,
{
    let written = value.encode_to_vec();
    assert_eq!(T::decode(&written).as_ref(), Ok(value), "decoded again");
    let theirs = P::decode(bytes).expect("prost decodes all accepted bytes");
    if same {
        assert_eq!(theirs.encode_to_vec(), written, "{value:?} and {theirs:?}");
    }
    let theirs = P::decode(&*written).expect("prost decodes all written bytes");
    assert_eq!(theirs.encode_to_vec(), written, "{value:?} and {theirs:?}");
}
