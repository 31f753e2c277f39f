//! Each feature once, as its users see it.

use super::*;
use vocab::fact::{AllocationPlaced, PendingGroupExplained, ReservationSet};
use vocab::{AdvanceReservation, Event, Filter, GroupTerm, NumaPolicy, ResourceKind, Spread};

fn nodes_of(w: &World, of: &[u64]) -> Vec<String> {
    let mut nodes: Vec<_> = of.iter().filter_map(|no| w.node_of(*no)).collect();
    nodes.sort();
    nodes
}

fn grouped(change: impl FnOnce(&mut PlacementRules)) -> PlacementRules {
    let mut rules = PlacementRules {
        group: Some(token("web")),
        ..PlacementRules::default()
    };
    change(&mut rules);
    rules
}

fn term(domain: Option<&str>) -> GroupTerm {
    GroupTerm {
        group: token("web"),
        topology_key: domain.map(token),
    }
}

#[test]
fn affinity_and_spread_look_at_the_same_tenants_others() {
    let mut w = World::new();
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        w.node(name, 1, labelled(capacity(32, 256, 0), &[("zone", zone)]));
    }
    let anti_affinity = w.submit(
        "t",
        4,
        ruled(
            job(1, 1),
            grouped(|rules| rules.anti_affinity = vec![term(None)]),
        ),
    );
    w.settle();
    assert_eq!(nodes_of(&w, &anti_affinity), ["n1", "n2", "n3"]);
    assert_eq!(w.reason(anti_affinity[3]), "no_room_now");
    // Another tenant's group of the same name is another group.
    let affinity = |rules: &mut PlacementRules| rules.affinity = vec![term(Some("zone"))];
    let others = w.submit("u", 3, ruled(job(1, 1), grouped(affinity)));
    w.settle();
    let zones: BTreeSet<_> = nodes_of(&w, &others)
        .iter()
        .map(|node| node == "n3")
        .collect();
    assert_eq!((w.on_nodes(&others), zones.len()), (3, 1));
    let domain = Some(token("zone"));
    let spread = |rules: &mut PlacementRules| {
        rules.spread = vec![Spread {
            topology_key: domain,
            max_skew: 1,
        }];
    };
    let spread = w.submit("v", 5, ruled(job(1, 1), grouped(spread)));
    w.settle();
    let in_b = nodes_of(&w, &spread)
        .iter()
        .filter(|node| *node == "n3")
        .count();
    assert!(
        w.on_nodes(&spread) == 5 && (2..=3).contains(&in_b),
        "{in_b}"
    );
}

#[test]
fn a_queues_limit_holds_for_all_below_it() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.queue("team", |q| q.limits = vec![(ResourceKind::Cpu, 8000)]);
    w.queue("a", |q| q.parent = Some(token("team")));
    w.queue("b", |q| q.parent = Some(token("team")));
    let (a, b) = (w.submit("a", 10, job(1, 1)), w.submit("b", 10, job(1, 1)));
    let over = w.submit("a", 1, job(9, 1));
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (4, 4));
    assert_eq!(
        (w.reason(a[9]), w.reason(over[0])),
        ("queue_limit", "over_limit")
    );
    w.report(a[0], "n", RunState::Finished);
    w.settle();
    assert_eq!(w.on_nodes(&a) + w.on_nodes(&b), 8);
}

#[test]
fn queues_below_a_queue_share_what_it_is_due() {
    let mut w = World::new();
    w.nodes(&["n"]);
    for name in ["a1", "a2", "a3"] {
        w.queue(name, |q| q.parent = Some(token("a")));
    }
    let of_a: Vec<_> = ["a1", "a2", "a3"]
        .map(|name| w.submit(name, 32, job(1, 1)))
        .concat();
    let b = w.submit("b", 32, job(1, 1));
    w.settle();
    assert_eq!((w.on_nodes(&of_a), w.on_nodes(&b)), (16, 16));
    let each: Vec<_> = of_a.chunks(32).map(|of| w.on_nodes(of)).collect();
    assert!(each.iter().all(|held| (5..=6).contains(held)), "{each:?}");
}

#[test]
fn what_comes_later_does_not_delay_whom_a_place_was_promised() {
    let known = |cores, minutes: u64| AllocationSpec {
        run_time_ms: minutes * 60_000,
        ..job(cores, 1)
    };
    let check = |backfill: bool, small_minutes: u64, placed: usize| {
        let mut w = World::new();
        w.policy(|policy| policy.backfill = backfill);
        w.nodes(&["n"]);
        let first = w.submit("a", 1, known(24, 60));
        w.settle();
        w.submit("a", 1, known(32, 60));
        w.settle();
        let small = w.submit("b", 1, known(8, small_minutes));
        w.settle();
        assert_eq!(w.on_nodes(&first), 1);
        assert_eq!(
            w.on_nodes(&small),
            placed,
            "{small_minutes} minutes, backfill {backfill}"
        );
    };
    check(true, 30, 1);
    check(true, 90, 0);
    check(true, 0, 0);
    check(false, 90, 1);
}

#[test]
fn reserved_nodes_are_for_their_queue_in_their_time() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    let (from, until) = (Millis(w.now.0 + 100_000), Millis(w.now.0 + 200_000));
    w.admin(AdminChange::Reservation(ReservationSet {
        reservation: token("demo"),
        wanted: Some(AdvanceReservation {
            queue: token("a"),
            from,
            until,
            nodes: 1,
            selector: Vec::new(),
        }),
    }));
    let granted = spoken(&w.settle());
    assert_eq!(granted.len(), 1);
    let reserved = granted[0].replace("demo has [", "").replace(']', "");
    // Who is gone by then may be there, who may be too long may not.
    let long = w.submit("b", 2, class(job(32, 1), 0));
    let short = AllocationSpec {
        run_time_ms: 50_000,
        ..class(job(32, 1), 0)
    };
    let short = w.submit("b", 1, short);
    w.settle();
    assert_eq!((w.on_nodes(&long), w.on_nodes(&short)), (1, 1));
    assert_eq!(w.node_of(short[0]).as_deref(), Some(reserved.as_str()));
    assert_eq!(w.state.wake_at(), Some(from));
    // It overstays and has to go when the time begins.
    w.now = from;
    let a = w.submit("a", 1, job(32, 1));
    let events = spoken(&w.settle());
    assert!(
        events.contains(&format!("{} preempted reservation", short[0])),
        "{events:?}"
    );
    assert_eq!(w.node_of(a[0]).as_deref(), Some(reserved.as_str()));
    w.now = until;
    assert_eq!(spoken(&w.settle()), ["demo has []"]);
    // More nodes than there are.
    w.admin(AdminChange::Reservation(ReservationSet {
        reservation: token("large"),
        wanted: Some(AdvanceReservation {
            queue: token("a"),
            from: Millis(until.0 + 1000),
            until: Millis(until.0 + 2000),
            nodes: 3,
            selector: Vec::new(),
        }),
    }));
    assert_eq!(spoken(&w.settle()), ["large has []"]);
}

#[test]
fn devices_and_zones_are_in_the_placement() {
    let zone = |gpus| vocab::Zone {
        cpu_milli: 16_000,
        memory_bytes: 128 << 30,
        gpus,
    };
    let node = NodeCapacity {
        topology: Some(Box::new(vocab::Topology {
            zones: vec![zone(0x0f), zone(0xf0)],
            distances: vec![10, 21, 21, 10],
            links: vec![(0, 1), (2, 3), (4, 5), (6, 7)],
        })),
        ..capacity(32, 256, 8)
    };
    let mut w = World::new();
    w.node("n", 1, node);
    let numa = |numa, spec| {
        ruled(
            spec,
            PlacementRules {
                numa,
                ..PlacementRules::default()
            },
        )
    };
    let single = |count| numa(NumaPolicy::Single, gpus(job(4, 8), count, 1000));
    let jobs = [
        single(2),
        single(4),
        single(3),
        single(2),
        numa(NumaPolicy::BestEffort, gpus(job(4, 8), 2, 1000)),
    ];
    let mut placed = Vec::new();
    for spec in jobs {
        w.submit("t", 1, spec);
        placed.extend(w.settle().into_iter().filter_map(|event| match event {
            Event::AllocationPlaced(AllocationPlaced { gpus, zones, .. }) => {
                let devices: Vec<_> = gpus.iter().map(|share| share.device).collect();
                Some(format!("{devices:?} in {zones:02b}"))
            }
            _ => None,
        }));
    }
    assert_eq!(
        placed,
        ["[0, 1] in 01", "[4, 5, 6, 7] in 10", "[2, 3] in 01"]
    );
}

#[test]
fn a_pending_group_is_explained_by_filters_and_what_is_missing() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    w.node("gpu", 1, capacity(8, 64, 2));
    w.node("lost", 1, capacity(8, 64, 2));
    w.lose("lost");
    w.submit("a", 1, gpus(job(6, 4), 1, 1000));
    w.settle();
    w.submit("a", 3, gpus(job(4, 4), 2, 1000));
    let said = w.settle().into_iter().find_map(|event| match event {
        Event::PendingGroupExplained(PendingGroupExplained {
            reason,
            counts,
            shortfall,
            ..
        }) => Some((reason, counts, shortfall)),
        _ => None,
    });
    let (reason, counts, shortfall) = said.unwrap();
    assert_eq!(reason, WaitingReason::NoRoomNow);
    assert_eq!(
        counts,
        [
            (Filter::NotReady, 1),
            (Filter::Capacity, 2),
            (Filter::Cpu, 1)
        ]
    );
    assert_eq!(
        shortfall,
        [(ResourceKind::Cpu, 2000), (ResourceKind::Gpu, 1000)]
    );
    // Nothing has changed: nothing is said.
    assert_eq!(w.settle(), []);
    w.cordon_all();
    let reasons: Vec<_> = w
        .settle()
        .iter()
        .filter_map(|event| match event {
            Event::PendingGroupExplained(PendingGroupExplained { reason, .. }) => {
                Some(reason.name())
            }
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["no_node_matches"]);
}

#[test]
fn a_node_takes_as_many_runs_as_it_may_whatever_they_ask_for() {
    let mut w = World::new();
    let node = NodeCapacity {
        max_runs: 2,
        ..capacity(32, 256, 0)
    };
    w.node("n", 1, node);
    let small = w.submit("t", 3, class(job(0, 1), 0));
    let explained = w.settle().into_iter().find_map(|event| match event {
        Event::PendingGroupExplained(PendingGroupExplained { counts, .. }) => Some(counts),
        _ => None,
    });
    assert_eq!(explained, Some(vec![(Filter::MaxRuns, 1)]));
    assert_eq!(w.held(&small), small[..2]);
    assert_eq!(w.reason(small[2]), "no_room_now");
    // What is worth more takes the place of one, and no more than one has to go.
    let urgent = w.submit("t", 1, class(job(1, 1), 1))[0];
    let said = spoken(&w.settle());
    let preempted: Vec<_> = said
        .iter()
        .filter(|it| it.ends_with("preempted priority"))
        .collect();
    let one = format!("{} preempted priority", small[1]);
    assert_eq!(preempted, [&one], "{said:?}");
    assert_eq!(w.held(&small), small[..1]);
    assert_eq!(w.node_of(urgent).as_deref(), Some("n"));
    // A gang of three waits, though nothing else is there.
    w.report(urgent, "n", RunState::Finished);
    w.settle();
    for no in w.held(&small) {
        w.report(no, "n", RunState::Finished);
        w.settle();
    }
    for no in w.held(&small) {
        w.report(no, "n", RunState::Finished);
    }
    let gang = w.gang("t", "g", 3, job(0, 1));
    w.settle();
    assert_eq!((w.held(&small), w.held(&gang)), (vec![], vec![]));
}
