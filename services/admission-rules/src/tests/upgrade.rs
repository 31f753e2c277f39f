//! States of older versions, as snapshots have them.

use super::super::room::{LIVE, LIVE_UP_TO_8, LIVE_UP_TO_10};
use super::*;
use ledger::{Chain, Decider, Snapshot};

/// With a live allocation of tenant `a`, and without what came with later versions.
fn before() -> Table {
    let mut t = Table::new();
    t.check("1", 1, plain(), "requested");
    t
}

/// The same state as version `version` wrote it, which had `fields` fewer at its end.
fn upgraded(version: u32, fields: usize) -> Option<Table> {
    let mut t = before();
    let snapshot = Snapshot::of(1, Chain::default(), &t.state);
    let bytes: Vec<u8> = snapshot.upgraded(2, |_, state| Some(state.to_vec()))?;
    let (rest, later) = bytes.split_at(bytes.len() - fields);
    assert_eq!(later, vec![0; fields], "nothing of the later fields is set");
    t.state = Admission::upgrade(version, rest)?;
    t.recount();
    Some(t)
}

#[test]
fn each_older_version_is_read_with_its_own_cost_of_a_live_allocation() {
    let held = |t: &Table| t.state.room.held(Of::Allocations, &token("a"));
    for (version, fields, cost) in [
        (12, 0, LIVE),
        (11, 1, LIVE),
        (10, 2, LIVE_UP_TO_10),
        (9, 3, LIVE_UP_TO_10),
        (8, 3, LIVE_UP_TO_8),
    ] {
        let found = upgraded(version, fields).unwrap();
        assert_eq!(held(&found) + cost, held(&before()) + LIVE, "{version}");
        // What takes no room is as it was.
        let mut same = found.state.clone();
        same.room = before().state.room;
        same.allocations = before().state.allocations;
        assert!(same == before().state, "{version}");
    }
    assert!(upgraded(7, 3).is_none());
    assert!(upgraded(13, 0).is_none());
    assert!(upgraded(12, 1).is_none(), "cut");
}
