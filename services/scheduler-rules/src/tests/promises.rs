//! Backfill: which allocation a node is promised to, and which others that keeps away. Node `n` has 32 cores and 256 GiB.

use super::*;
use vocab::fact::ReservationSet;
use vocab::{AdvanceReservation, GroupTerm, Operator, Spread};

/// Returns a job with this number of cores and a run-time estimate; 0 minutes is no estimate.
fn known(cores: u64, minutes: u64) -> AllocationSpec {
    AllocationSpec {
        run_time_ms: minutes * 60_000,
        ..job(cores, 1)
    }
}

fn backfilling(nodes: &[&str]) -> World {
    let mut w = World::new();
    w.policy(|policy| policy.backfill = true);
    w.nodes(nodes);
    w
}

fn in_zone(w: &mut World, name: &str, zone: &str) {
    w.node(name, 1, labelled(capacity(32, 256, 0), &[("zone", zone)]));
}

fn near(group: &str, label: Option<&str>) -> PlacementRules {
    PlacementRules {
        affinity: vec![GroupTerm {
            group: token(group),
            topology_key: label.map(token),
        }],
        ..PlacementRules::default()
    }
}

fn apart(group: &str, label: Option<&str>) -> PlacementRules {
    PlacementRules {
        anti_affinity: near(group, label).affinity,
        ..PlacementRules::default()
    }
}

fn of_group(group: &str, spec: AllocationSpec) -> AllocationSpec {
    let rules = spec.rules.clone().map_or_else(Default::default, |it| *it);
    let group = Some(token(group));
    ruled(spec, PlacementRules { group, ..rules })
}

fn spread(label: &str) -> PlacementRules {
    PlacementRules {
        spread: vec![Spread {
            topology_key: Some(token(label)),
            max_skew: 1,
        }],
        ..PlacementRules::default()
    }
}

#[test]
fn the_earliest_start_is_the_first_estimated_end_that_makes_room() {
    let check = |running: &[(u64, u64)], cores: u64, minutes: Option<i64>| {
        let mut w = World::new();
        w.nodes(&["n"]);
        for (cores, minutes) in running {
            w.submit("t", 1, known(*cores, *minutes));
        }
        w.settle();
        let placed = w.now;
        let waits = w.submit("t", 1, known(cores, 1))[0];
        w.settle();
        let found = w.state.earliest_start(AllocationNo(waits), w.now);
        let found = found.map(|at| at.since(placed) / 60_000);
        // Placed up to a few milliseconds before the moment that they are counted from.
        let expected = minutes.map(|minutes| minutes - 1);
        assert_eq!(found, expected, "{running:?}, {cores}");
        // Past the estimate an end is unknown, and so is the start.
        w.now = w.now.plus(24 * 3_600_000);
        let late = w.state.earliest_start(AllocationNo(waits), w.now);
        assert_eq!(late, None, "{running:?}, {cores}");
    };
    check(&[(32, 120)], 4, Some(120));
    check(&[(16, 120), (16, 10)], 16, Some(10));
    check(&[(16, 120), (16, 10)], 32, Some(120));
    check(&[(16, 120), (16, 0)], 32, None);
    check(&[(32, 0)], 4, None);
    check(&[(32, 120)], 33, None);
}

#[test]
fn no_node_is_promised_to_one_whose_rules_keep_it_away() {
    let check = |rules: PlacementRules| {
        let mut w = backfilling(&["n"]);
        let odd = w.submit(
            "odd",
            1,
            of_group("lonely", ruled(known(4, 10), rules.clone())),
        );
        w.settle();
        let others = w.submit("a", 4, known(8, 0));
        w.settle();
        assert_eq!(w.on_nodes(&odd), 0);
        assert_eq!(w.on_nodes(&others), 4, "{rules:?}");
    };
    check(near("nobody", None));
    check(near("nobody", Some("zone")));
    check(near("lonely", Some("zone")));
    check(spread("rack"));
    // Near and apart from the same.
    check(PlacementRules {
        affinity: near("nobody", None).affinity,
        ..apart("nobody", None)
    });
}

#[test]
fn a_node_is_promised_from_when_the_rules_allow_it() {
    let mut w = backfilling(&["n"]);
    let first = w.submit("a", 1, of_group("web", known(8, 60)));
    w.settle();
    let second = ruled(known(8, 60), apart("web", None));
    let second = w.submit("a", 1, second);
    w.settle();
    // There is free room, but the rules keep the second away until the first ends in an hour. Others may use it until then.
    let short = w.submit("b", 1, known(24, 30));
    w.settle();
    assert_eq!(w.on_nodes(&short), 1);
    w.report(short[0], "n", RunState::Finished);
    w.settle();
    let long = w.submit("b", 1, known(24, 90));
    let longer = w.submit("b", 1, known(8, 90));
    w.settle();
    // In an hour the second fits next to 24 used cores, and not next to 32.
    assert_eq!((w.on_nodes(&long), w.on_nodes(&longer)), (1, 0));
    w.now = w.now.plus(3_600_000);
    w.report(first[0], "n", RunState::Finished);
    w.settle();
    assert_eq!(w.on_nodes(&second), 1);
}

#[test]
fn nothing_is_promised_where_what_it_has_to_be_near_will_have_ended() {
    let mut w = backfilling(&["n"]);
    w.submit("t", 1, of_group("db", known(24, 60)));
    w.settle();
    // Room comes when the one that it wants to be near goes.
    w.submit("t", 1, ruled(known(16, 10), near("db", None)));
    w.settle();
    let others = w.submit("b", 1, known(8, 0));
    w.settle();
    assert_eq!(w.on_nodes(&others), 1);
}

#[test]
fn a_member_of_a_gang_is_promised_no_node_outside_of_its_zone() {
    let mut w = backfilling(&[]);
    in_zone(&mut w, "x1", "x");
    in_zone(&mut w, "y1", "y");
    let busy = w.submit(
        "a",
        1,
        ruled(known(24, 0), requires("zone", Operator::In, &["x"])),
    );
    w.submit(
        "a",
        1,
        ruled(known(26, 60), requires("zone", Operator::In, &["y"])),
    );
    w.settle();
    let gang = Gang {
        name: token("g"),
        size: 2,
        min: 1,
        uniform_label: Some(token("zone")),
    };
    // One member is in x, where the start of the other one is unknown.
    let members = w.gang_of("t", gang, known(8, 10));
    w.settle();
    assert_eq!((w.on_nodes(&busy), w.held(&members).len()), (1, 1));
    let others = w.submit("b", 1, known(6, 90));
    w.settle();
    assert_eq!(w.on_nodes(&others), 1, "{}", w.reason(others[0]));
}

fn reserve(w: &mut World, queue: &str, minutes: (i64, i64)) {
    let moment = |minutes: i64| w.now.plus(minutes * 60_000);
    w.admin(AdminChange::Reservation(ReservationSet {
        reservation: token("demo"),
        wanted: Some(AdvanceReservation {
            queue: token(queue),
            from: moment(minutes.0),
            until: moment(minutes.1),
            nodes: 1,
            selector: Vec::new(),
        }),
    }));
    w.settle();
}

#[test]
fn a_node_that_is_reserved_for_another_queue_is_promised_when_that_is_over() {
    let mut w = backfilling(&["n"]);
    reserve(&mut w, "r", (60, 120));
    // It would still be there when the node is r's.
    let long = w.submit("a", 1, known(32, 90));
    w.settle();
    let short = w.submit("b", 1, known(32, 30));
    w.settle();
    assert_eq!((w.on_nodes(&long), w.on_nodes(&short)), (0, 1));
    w.report(short[0], "n", RunState::Finished);
    let own = w.submit("r", 1, known(32, 30));
    w.now = w.now.plus(61 * 60_000);
    w.settle();
    assert_eq!(w.on_nodes(&own), 1);
    w.report(own[0], "n", RunState::Finished);
    w.settle();
    // The node is r's for an hour; an allocation of r that would delay the promise is not placed.
    let late = w.submit("r", 1, known(32, 120));
    w.settle();
    assert_eq!(w.on_nodes(&late), 0);
    w.now = w.now.plus(60 * 60_000);
    w.settle();
    assert_eq!(w.on_nodes(&long), 1);
}

#[test]
fn a_place_is_looked_for_for_64_kinds_of_requests() {
    let check = |kinds: u64, placed: usize| {
        let mut w = backfilling(&["n"]);
        w.submit("t", 1, known(24, 60));
        w.settle();
        for gib in 1..kinds {
            let odd = AllocationSpec {
                memory_bytes: gib * GIB,
                ..known(1, 10)
            };
            w.submit("t", 1, ruled(odd, near("nobody", None)));
        }
        // The last kind: the node is promised to it when the first has ended.
        w.submit("t", 1, known(32, 10));
        w.settle();
        let others = w.submit("u", 1, known(8, 0));
        w.settle();
        assert_eq!(w.on_nodes(&others), placed, "{kinds}");
    };
    check(1, 0);
    check(64, 0);
    check(65, 1);
}
