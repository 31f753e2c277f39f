//! States of older versions, as snapshots have them.

use super::*;

/// A state without rates is the same in versions 7 and 8.
#[test]
fn a_state_of_version_7_keeps_all_that_it_had() {
    let mut world = World::new();
    for step in [
        "tenant a cohort=c wait",
        "limit a cpu 4 from=10 until=20",
        "limit b/x memory 4",
        "budget a cpu 9 day",
        "node n T4",
        "ask 1 a cpu=3",
        "ask 2 b/x memory=2 gang=g/2",
        "ask 3 a cpu=1 after=1",
    ] {
        step_on(&mut world, step);
    }
    world.decide();
    let snapshot = Snapshot::of(7, ledger::Chain::default(), &world.state);
    let found = snapshot.upgraded::<Quota>(Quota::STATE_VERSION, Quota::upgrade);
    assert!(found.is_some_and(|state| state == world.state));
    for version in [6, 8] {
        assert!(Quota::upgrade(version, &[]).is_none(), "{version}");
    }
}
