//! Each feature once, as its users see it.

use super::*;
use vocab::fact::{AllocationPlaced, CordonSet, PendingGroupExplained, ReservationSet, TaintsSet};
use vocab::{
    AdvanceReservation, Event, Filter, GroupTerm, NumaPolicy, ResourceKind, Spread, Taint,
    TaintEffect, Toleration,
};

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
fn a_reservation_takes_open_nodes_that_no_other_has_then() {
    let mut w = World::new();
    w.nodes(&["n1", "n2", "n3"]);
    w.admin(AdminChange::Cordon(CordonSet {
        node: token("n1"),
        cordoned: true,
        drain: false,
        at_once: 0,
    }));
    let mut reserve = |name: &str, seconds: (i64, i64), nodes: u32| {
        let moment = |seconds: i64| w.now.plus(seconds * 1000);
        w.admin(AdminChange::Reservation(ReservationSet {
            reservation: token(name),
            wanted: Some(AdvanceReservation {
                queue: token("a"),
                from: moment(seconds.0),
                until: moment(seconds.1),
                nodes,
                selector: Vec::new(),
            }),
        }));
        let events = w.settle().into_iter();
        let granted = events.filter_map(|event| match event {
            Event::ReservationDecided(fact) => Some(fact.nodes),
            _ => None,
        });
        let mut nodes: Vec<Vec<Token>> = granted.collect();
        assert_eq!(nodes.len(), 1, "{name}");
        nodes.swap_remove(0)
    };
    let first = reserve("first", (100, 200), 1);
    let second = reserve("second", (150, 250), 1);
    let mut both = [first.clone(), second].concat();
    both.sort();
    assert_eq!(both, [token("n2"), token("n3")]);
    assert_eq!(reserve("third", (150, 160), 1), []);
    assert_eq!(reserve("later", (250, 300), 2).len(), 2);
    assert_eq!(reserve("again", (250, 300), 1), []);
    // The first may take its own node again.
    assert_eq!(reserve("first", (100, 210), 1), first);
}

#[test]
fn a_zone_has_its_own_cores() {
    let mut w = World::new();
    // Zones of 4 cores and 32 GiB.
    w.node("n", 1, two_zones());
    let large = w.submit("t", 2, in_one_zone(job(3, 1)));
    let small = w.submit("t", 1, in_one_zone(job(2, 1)));
    w.settle();
    assert_eq!((w.on_nodes(&large), w.on_nodes(&small)), (2, 0));
    w.report(large[0], "n", RunState::Finished);
    w.settle();
    assert_eq!(w.on_nodes(&small), 1);
}

#[test]
fn a_zone_has_its_own_memory() {
    let mut w = World::new();
    // Zones of 4 cores and 32 GiB.
    w.node("n", 1, two_zones());
    let jobs = w.submit("t", 3, in_one_zone(job(1, 20)));
    w.settle();
    assert_eq!(w.held(&jobs), jobs[..2]);
    let small = w.submit("t", 1, in_one_zone(job(1, 12)));
    w.settle();
    assert_eq!(w.on_nodes(&small), 1);
    w.report(jobs[0], "n", RunState::Finished);
    w.settle();
    assert_eq!(w.held(&jobs), jobs[1..]);
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
            (Filter::GpuModel, 2),
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

pub(super) fn drain(node: &str, drain: bool, at_once: u32) -> AdminChange {
    AdminChange::Cordon(CordonSet {
        node: token(node),
        cordoned: drain,
        drain,
        at_once,
    })
}

fn taint(node: &str, effects: &[TaintEffect]) -> AdminChange {
    let taint = |effect: &TaintEffect| Taint {
        key: token("k"),
        value: None,
        effect: *effect,
    };
    AdminChange::Taints(TaintsSet {
        node: token(node),
        taints: effects.iter().map(taint).collect(),
    })
}

fn tolerating(spec: AllocationSpec) -> AllocationSpec {
    let toleration = Toleration {
        key: Some(token("k")),
        value: None,
    };
    let rules = PlacementRules {
        tolerations: vec![toleration],
        ..PlacementRules::default()
    };
    ruled(spec, rules)
}

/// The highest number that was on the way out at once.
fn most_at_once(said: &[String]) -> usize {
    let mut going = 0;
    let mut most = 0;
    for line in said {
        going += usize::from(line.ends_with("preempted drain"));
        most = most.max(going);
        going -= usize::from(line.ends_with("requeued evicted"));
    }
    most
}

#[test]
fn a_drained_node_is_cleared_at_its_pace() {
    for (at_once, expected) in [(0, 3), (1, 1), (2, 2), (9, 3)] {
        let mut w = World::new();
        w.nodes(&["n"]);
        // Not to be preempted by anybody else.
        let jobs = w.submit("t", 3, class(job(1, 1), 3));
        w.settle();
        assert_eq!(w.on_nodes(&jobs), 3);
        w.nodes(&["m"]);
        w.admin(drain("n", true, at_once));
        let said = spoken(&w.settle());
        assert_eq!(most_at_once(&said), expected, "{said:?}");
        assert_eq!(nodes_of(&w, &jobs), ["m", "m", "m"]);
        assert_eq!(again(&w.state), w.state);
        // Nothing comes until it is open again.
        w.admin(drain("m", true, 0));
        w.settle();
        assert_eq!(w.on_nodes(&jobs), 0);
        w.admin(drain("n", false, 0));
        w.settle();
        assert_eq!(nodes_of(&w, &jobs), ["n", "n", "n"]);
    }
}

#[test]
fn a_gang_leaves_a_drained_node_as_a_whole() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let gang = w.gang("t", "g", 3, job(1, 1));
    w.settle();
    assert_eq!(w.on_nodes(&gang), 3);
    w.nodes(&["m"]);
    w.admin(drain("n", true, 1));
    w.settle();
    assert_eq!(nodes_of(&w, &gang), ["m", "m", "m"]);
}

/// Nodes with room for one member each.
fn small_nodes(w: &mut World, names: &[&str]) {
    for name in names {
        w.node(name, 1, capacity(8, 64, 0));
    }
}

fn on(w: &World, of: &[u64], node: &str) -> Vec<u64> {
    let there = |no: &u64| w.node_of(*no).as_deref() == Some(node);
    of.iter().copied().filter(there).collect()
}

#[test]
fn what_a_drain_or_a_taint_stops_is_evicted_and_not_preempted() {
    let clear = [drain("n", true, 0), taint("n", &[TaintEffect::NoExecute])];
    let level = vocab::Level::EVICTIONS;
    let before = vocab::Level(level.0 - 1);
    for (clear, level, cause) in clear.iter().flat_map(|clear| {
        [(level, "evicted"), (before, "preempted")].map(|(level, cause)| (clear, level, cause))
    }) {
        let mut w = World::new();
        small_nodes(&mut w, &["n", "m"]);
        // The gang is on both nodes: its members go for the same reason.
        let gang = w.gang("t", "g", 2, job(5, 1));
        w.settle();
        assert_eq!(w.on_nodes(&gang), 2);
        w.admin(clear.clone());
        // The fellows follow in the next round.
        w.decide();
        w.decide();
        let told = again(&w.state);
        assert_eq!(told, w.state);
        for no in &gang {
            let node = w.node_of(*no).unwrap();
            w.report(*no, &node, RunState::Finished);
        }
        let said = spoken(&w.decide_with(|draft| {
            *draft = Draft::new(draft.now, draft.next_no()).at_level(level);
        }));
        for no in &gang {
            let requeued = format!("{no} requeued {cause}");
            assert!(said.contains(&requeued), "{requeued}: {said:?}");
        }
    }
}

#[test]
fn the_members_that_stay_of_a_gang_run_on_if_they_are_enough() {
    let check = |min, kept: usize| {
        let mut w = World::new();
        small_nodes(&mut w, &["n", "m", "o"]);
        let gang = Gang {
            name: token("g"),
            size: 3,
            min,
            uniform_label: None,
        };
        let mut spec = job(5, 1);
        spec.restart.never = true;
        let gang = w.gang_of("t", gang, spec);
        w.settle();
        assert_eq!(w.on_nodes(&gang), 3);
        w.admin(drain("n", true, 0));
        w.settle();
        assert_eq!(w.on_nodes(&gang), kept, "{min} of 3");
        assert_eq!(again(&w.state), w.state);
    };
    check(1, 2);
    check(2, 2);
    check(3, 0);

    // What is queued again comes back to those who stayed; the loss of a node is like a drain.
    let lost = |w: &mut World, _: &[u64]| w.lose("n");
    let failed = |w: &mut World, gang: &[u64]| {
        let no = on(w, gang, "n")[0];
        w.report_by_itself(no, "n", RunState::Failed);
    };
    let drained = |w: &mut World, _: &[u64]| w.admin(drain("n", true, 0));
    type Goes<'a> = &'a dyn Fn(&mut World, &[u64]);
    let ways: [Goes<'_>; 3] = [&lost, &failed, &drained];
    for goes in ways {
        let mut w = World::new();
        w.policy(|policy| policy.backoff_ms = 0);
        small_nodes(&mut w, &["n", "m"]);
        let gang = Gang {
            name: token("g"),
            size: 2,
            min: 1,
            uniform_label: None,
        };
        let mut spec = job(5, 1);
        spec.restart.retries = 1;
        let gang = w.gang_of("t", gang, spec);
        w.settle();
        let stays = on(&w, &gang, "m");
        goes(&mut w, &gang);
        small_nodes(&mut w, &["o"]);
        let said = spoken(&w.settle());
        assert!(
            !said.iter().any(|line| line.ends_with("preempted gang")),
            "{said:?}"
        );
        assert_eq!(on(&w, &gang, "m"), stays);
        assert_eq!(w.on_nodes(&gang), 2, "{said:?}");
    }
}

#[test]
fn a_taint_runs_out_who_does_not_tolerate_it() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let stays = w.submit("t", 1, tolerating(job(1, 1)));
    let goes = w.submit("t", 1, job(1, 1));
    w.settle();
    w.admin(taint("n", &[TaintEffect::NoSchedule]));
    w.settle();
    assert_eq!((w.on_nodes(&stays), w.on_nodes(&goes)), (1, 1));
    w.admin(taint("n", &[TaintEffect::NoExecute]));
    let said = spoken(&w.settle());
    assert!(
        said.contains(&format!("{} preempted taint", goes[0])),
        "{said:?}"
    );
    assert_eq!((w.on_nodes(&stays), w.on_nodes(&goes)), (1, 0));
    assert_eq!(w.reason(goes[0]), "no_node_matches");
    assert_eq!(again(&w.state), w.state);
    // A new life of the node has them, too.
    w.node("n", 2, capacity(8, 64, 0));
    w.settle();
    assert_eq!(w.on_nodes(&goes), 0);
    w.admin(taint("n", &[]));
    w.settle();
    assert_eq!(w.on_nodes(&goes), 1);
}

#[test]
fn a_taint_of_the_node_itself_stays_when_an_operators_goes() {
    let mut w = World::new();
    let own = Taint {
        key: token("k"),
        value: None,
        effect: TaintEffect::NoSchedule,
    };
    let node = NodeCapacity {
        taints: vec![own],
        ..capacity(8, 64, 0)
    };
    w.node("n", 1, node);
    let jobs = w.submit("t", 1, job(1, 1));
    for effects in [&[TaintEffect::NoSchedule][..], &[]] {
        w.admin(taint("n", effects));
        w.settle();
        assert_eq!(w.on_nodes(&jobs), 0, "{effects:?}");
    }
}

#[test]
fn a_node_under_pressure_takes_nothing_new_and_keeps_what_it_has() {
    for condition in ["MemoryPressure", "DiskPressure", "NetworkUnavailable"] {
        let mut w = World::new();
        w.nodes(&["n"]);
        let before = w.submit("t", 1, job(1, 1));
        w.settle();
        w.condition("n", condition, true);
        // The other one goes by itself.
        w.admin(taint("n", &[TaintEffect::PreferNoSchedule]));
        w.admin(taint("n", &[]));
        let new = w.submit("t", 1, job(1, 1));
        let toleration = Toleration {
            key: Some(token(condition)),
            value: None,
        };
        let rules = PlacementRules {
            tolerations: vec![toleration],
            ..PlacementRules::default()
        };
        let tolerant = w.submit("t", 1, ruled(job(1, 1), rules));
        w.settle();
        assert_eq!((w.on_nodes(&before), w.on_nodes(&new)), (1, 0));
        assert_eq!(w.on_nodes(&tolerant), 1);
        assert_eq!(w.reason(new[0]), "no_node_matches");
        assert_eq!(again(&w.state), w.state);
        // A new life of the node has it, too.
        w.node("n", 2, capacity(8, 64, 0));
        w.settle();
        assert_eq!(w.on_nodes(&new), 0);
        w.condition("n", condition, false);
        w.settle();
        assert_eq!(w.on_nodes(&new), 1);
    }
}

#[test]
fn a_condition_of_another_name_keeps_nobody_away() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.condition("n", "GpuXid", true);
    let new = w.submit("t", 1, job(1, 1));
    w.settle();
    assert_eq!(w.on_nodes(&new), 1);
}

#[test]
fn preferred_nodes_go_first_and_others_when_there_is_no_other_room() {
    let mut w = World::new();
    for (name, disk) in [("a", "hdd"), ("b", "ssd"), ("c", "hdd")] {
        w.node(name, 1, labelled(capacity(2, 64, 0), &[("disk", disk)]));
    }
    w.admin(taint("a", &[TaintEffect::PreferNoSchedule]));
    let preferred = requires("disk", vocab::Operator::In, &["ssd"]).selector;
    let rules = PlacementRules {
        preferred,
        ..PlacementRules::default()
    };
    let picky = |spec| ruled(spec, rules.clone());
    let jobs = w.submit("t", 2, picky(job(1, 1)));
    w.settle();
    assert_eq!(nodes_of(&w, &jobs), ["b", "b"]);
    let more = w.submit("t", 2, picky(job(1, 1)));
    w.settle();
    assert_eq!(w.on_nodes(&more), 2);
    // Who prefers nothing keeps off the taint as long as there is other room.
    let mut w = World::new();
    for name in ["a", "b"] {
        w.node(name, 1, capacity(2, 64, 0));
    }
    w.admin(taint("a", &[TaintEffect::PreferNoSchedule]));
    let plain = w.submit("t", 2, job(1, 1));
    w.settle();
    assert_eq!(nodes_of(&w, &plain), ["b", "b"]);
    let rest = w.submit("t", 1, job(1, 1));
    let tolerant = w.submit("t", 1, tolerating(job(1, 1)));
    w.settle();
    assert_eq!(nodes_of(&w, &rest), ["a"]);
    assert_eq!(nodes_of(&w, &tolerant), ["a"]);
}

#[test]
fn a_node_that_has_less_keeps_what_runs_and_takes_nobody_before_that_fits() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let jobs = w.submit("t", 4, job(8, 64));
    let waits = w.submit("t", 1, job(1, 1));
    w.settle();
    assert_eq!(w.on_nodes(&jobs), 4);
    assert_eq!(w.on_nodes(&waits), 0);
    // Half of it: what runs goes on, and room that comes free is not there any more.
    w.resize("n", 1, capacity(16, 128, 0));
    assert_eq!(spoken(&w.settle()), Vec::<String>::new());
    for (over, expected) in [(0, 0), (1, 0), (2, 1)] {
        w.report(jobs[over], "n", RunState::Finished);
        w.settle();
        assert_eq!(w.on_nodes(&waits), expected, "after {over}");
        assert_eq!(again(&w.state), w.state);
    }
    // More than ever: there is room at once.
    let large = w.submit("t", 1, job(40, 1));
    w.settle();
    assert_eq!(w.on_nodes(&large), 0);
    w.resize("n", 1, capacity(64, 256, 0));
    w.settle();
    assert_eq!(w.on_nodes(&large), 1);
}

#[test]
fn of_what_a_node_holds_beyond_what_it_has_somebody_goes_for_a_higher_priority() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let jobs = w.submit("t", 4, class(job(8, 8), 0));
    w.settle();
    w.resize("n", 1, capacity(16, 256, 0));
    // Three have to go before eight cores are free.
    let urgent = w.submit("t", 1, class(job(8, 8), 3));
    w.settle();
    assert_eq!((w.on_nodes(&urgent), w.on_nodes(&jobs)), (1, 1));
}
