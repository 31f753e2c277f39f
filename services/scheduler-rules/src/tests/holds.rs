//! Decisions that once did not hold: each a table of what has to come of it. `N` is a node of 32 cores and 256 GiB, `s` a
//! job of 1 core and 4 GiB, `@k` its priority class.

use super::*;
use vocab::fact::{
    AllocationPlaced, AllocationPreempted, AllocationWaiting, PendingGroupExplained, ReservationSet,
};
use vocab::{AdvanceReservation, Event, GroupTerm, ResourceKind, Spread};

fn s(value: i32) -> AllocationSpec {
    class(job(1, 4), value)
}

fn cores(count: u64, value: i32) -> AllocationSpec {
    class(job(count, 1), value)
}

fn grouped(spec: AllocationSpec, group: &str, rules: PlacementRules) -> AllocationSpec {
    let group = Some(token(group));
    ruled(spec, PlacementRules { group, ..rules })
}

fn term(group: &str, domain: Option<&str>) -> Vec<GroupTerm> {
    vec![GroupTerm {
        group: token(group),
        topology_key: domain.map(token),
    }]
}

fn limited(w: &mut World, queue: &str, cores: u64) {
    w.queue(queue, |q| {
        q.limits = vec![(ResourceKind::Cpu, cores * 1000)]
    });
}

fn preemptions(events: &[Event]) -> usize {
    let preempted = |event: &&Event| matches!(event, Event::AllocationPreempted(_));
    events.iter().filter(preempted).count()
}

fn nominated(w: &World, no: u64) -> bool {
    matches!(w.state.live()[&AllocationNo(no)].phase, Phase::Nominated(_))
}

#[test]
fn fair_share_preemption_comes_to_rest() {
    for cores_of_third in [8, 1000] {
        let mut w = World::new();
        w.node("g", 1, capacity(8, 256, 8));
        w.nodes(&["n"]);
        for tenant in ["a", "b"] {
            w.submit(tenant, 1, class(gpus(job(1, 1), 4, 1000), 0));
        }
        w.settle();
        // Possible or not: what matters is that it makes the others' shares larger than they are due.
        w.submit("c", 1, class(gpus(job(cores_of_third, 1), 8, 1000), 0));
        let (a, b) = (
            w.submit("a", 1, cores(17, 0)),
            w.submit("b", 1, cores(17, 0)),
        );
        let events = w.settle();
        assert_eq!(preemptions(&events), 0);
        assert_eq!(w.on_nodes(&a) + w.on_nodes(&b), 1);
    }
}

#[test]
fn nobody_comes_to_a_suspect_node_and_whoever_is_there_stays() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let before = w.submit("a", 4, s(0));
    w.settle();
    w.suspect("n");
    let after = w.submit("a", 4, s(0));
    let events = w.settle();
    assert_eq!((w.on_nodes(&before), w.on_nodes(&after)), (4, 0));
    assert_eq!(reasons(&events), [WaitingReason::NoNodeReady]);
    // Others come to other nodes.
    w.nodes(&["m"]);
    w.settle();
    let on_m = |no: &u64| w.node_of(*no).as_deref() == Some("m");
    assert!(after.iter().all(on_m));
    let more = w.submit("a", 40, s(0));
    w.settle();
    assert_eq!(w.on_nodes(&more), 28);
    w.is_heard("n");
    w.settle();
    assert_eq!(w.on_nodes(&more), 40);
    // Whoever was there when it is lost is queued again.
    w.suspect("n");
    w.lose("n");
    let events = w.settle();
    let requeued = |event: &&Event| matches!(event, Event::AllocationRequeued(_));
    assert_eq!(events.iter().filter(requeued).count(), 16);
}

fn reasons(events: &[Event]) -> Vec<WaitingReason> {
    let reason = |event: &Event| match event {
        Event::PendingGroupExplained(PendingGroupExplained { reason, .. }) => Some(*reason),
        _ => None,
    };
    events.iter().filter_map(reason).collect()
}

#[test]
fn a_nominee_waits_for_a_suspect_node_and_leaves_a_lost_one() {
    for lost in [false, true] {
        let mut w = World::new();
        w.nodes(&["n"]);
        let low = w.submit("a", 32, s(0));
        w.settle();
        let high = w.submit("b", 1, s(1))[0];
        w.decide();
        assert!(nominated(&w, high));
        w.suspect("n");
        // Whoever has to go goes, and nobody comes.
        w.settle();
        assert!(nominated(&w, high));
        assert_eq!(w.on_nodes(&low), 31);
        match lost {
            true => w.lose("n"),
            false => w.is_heard("n"),
        }
        w.settle();
        assert_eq!(w.node_of(high).is_some(), !lost);
        assert!(!nominated(&w, high));
    }
}

#[test]
fn a_reservation_keeps_a_suspect_node_and_gives_up_a_lost_one() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let now = w.now;
    let wanted = Some(AdvanceReservation {
        queue: token("a"),
        from: now.plus(60_000),
        until: now.plus(120_000),
        nodes: 1,
        selector: Vec::new(),
    });
    w.admin(AdminChange::Reservation(ReservationSet {
        reservation: token("r"),
        wanted,
    }));
    w.settle();
    w.nodes(&["m"]);
    w.settle();
    let decided = |events: &[Event]| {
        let decided = |event: &&Event| matches!(event, Event::ReservationDecided(_));
        events.iter().filter(decided).count()
    };
    w.suspect("n");
    assert_eq!(decided(&w.settle()), 0);
    w.lose("n");
    assert_eq!(decided(&w.settle()), 1);
}

#[test]
fn limits_of_queues_hold_against_preemption() {
    // What a and b hold in the end, and what the first held of it before.
    let check = |w: &mut World, a: &[u64], b: &[u64], expected: (usize, usize)| {
        w.settle();
        assert_eq!((w.on_nodes(a), w.on_nodes(b)), expected);
    };
    let full = |w: &mut World, value| {
        w.nodes(&["n"]);
        let a = w.submit("a", 32, s(value));
        w.settle();
        a
    };
    let mut w = World::new();
    limited(&mut w, "b", 10);
    let a = full(&mut w, 0);
    let b = w.submit("b", 32, s(1));
    check(&mut w, &a, &b, (22, 10));
    // By fair share.
    let mut w = World::new();
    limited(&mut w, "b", 4);
    let a = full(&mut w, 0);
    let b = w.submit("b", 32, s(0));
    check(&mut w, &a, &b, (28, 4));
    // The limit of a queue above.
    let mut w = World::new();
    limited(&mut w, "team", 4);
    w.queue("b", |q| q.parent = Some(token("team")));
    w.queue("c", |q| q.parent = Some(token("team")));
    let a = full(&mut w, 0);
    let mut b = w.submit("b", 32, s(1));
    b.extend(w.submit("c", 32, s(1)));
    check(&mut w, &a, &b, (28, 4));
    // Of two gangs of 16 cores one is within a limit of 20.
    let mut w = World::new();
    limited(&mut w, "b", 20);
    let a = full(&mut w, 0);
    let mut b = w.gang("b", "one", 2, cores(8, 1));
    b.extend(w.gang("b", "two", 2, cores(8, 1)));
    check(&mut w, &a, &b, (16, 2));
}

#[test]
fn what_goes_counts_for_its_queues_limit_until_it_has_gone() {
    let mut w = World::new();
    limited(&mut w, "b", 32);
    w.nodes(&["n"]);
    let b = w.submit("b", 33, s(0));
    w.settle();
    w.submit("c", 8, s(1));
    w.decide();
    w.nodes(&["m"]);
    w.decide();
    // Eight of its jobs are told to go and have not gone.
    assert_eq!(w.on_nodes(&b), 32);
    w.settle();
    assert_eq!(w.on_nodes(&b), 32);
}

#[test]
fn preemption_does_not_starve_behind_many_who_wait() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let low = w.submit("a", 32, s(0));
    w.settle();
    for number in 0..257 {
        let value = format!("v{number}");
        let none = requires("zone", vocab::Operator::In, &[value.as_str()]);
        w.submit("b", 1, ruled(s(3), none));
    }
    let high = w.submit("c", 4, s(3));
    w.settle();
    assert_eq!((w.on_nodes(&high), w.on_nodes(&low)), (4, 28));
}

#[test]
fn a_late_queue_gets_its_share_among_many() {
    let mut w = World::new();
    let names: Vec<_> = (0..25).map(|number| format!("n{number}")).collect();
    w.nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for queue in 0..260 {
        w.submit(&format!("q{queue}"), 10, s(0));
    }
    w.settle();
    let late = w.submit("late", 10, s(0));
    w.settle();
    // 800 cores among 261 queues.
    assert_eq!(w.on_nodes(&late), 3);
}

#[test]
fn a_nominee_is_judged_by_its_node_as_it_came_back() {
    let zone = |zone| requires("zone", vocab::Operator::In, &[zone]);
    let of_zone = |zone| labelled(capacity(32, 256, 0), &[("zone", zone)]);
    let tainted = NodeCapacity {
        taints: vec![vocab::Taint {
            key: token("maintenance"),
            value: None,
            effect: vocab::TaintEffect::NoSchedule,
        }],
        ..of_zone("a")
    };
    let smaller = labelled(capacity(16, 256, 0), &[("zone", "a")]);
    for (came_back, on) in [
        (of_zone("a"), Some("n")),
        (smaller, None),
        (tainted, None),
        (of_zone("b"), None),
    ] {
        for beside in [false, true] {
            let mut w = World::new();
            w.node("n", 1, of_zone("a"));
            w.submit("a", 1, cores(32, 0));
            w.settle();
            let high = w.submit("b", 1, ruled(cores(32, 3), zone("a")))[0];
            w.decide();
            assert!(nominated(&w, high));
            // Lost and there again before anything is decided.
            w.lose("n");
            w.node("n", 2, came_back.clone());
            if beside {
                w.node("m", 1, of_zone("a"));
            }
            w.settle();
            let found = w.node_of(high);
            let expected = if beside { on.or(Some("m")) } else { on };
            if beside && on.is_some() {
                assert!(found.is_some());
            } else {
                assert_eq!(found.as_deref(), expected, "{came_back:?} {beside}");
            }
            assert!(!nominated(&w, high));
        }
    }
}

#[test]
fn rules_about_others_hold_for_those_who_preempt() {
    // Two that want to be apart, and one node to be cleared for both.
    let mut w = World::new();
    w.nodes(&["n"]);
    w.submit("a", 32, s(0));
    w.settle();
    let anti_affinity = PlacementRules {
        anti_affinity: term("web", None),
        ..PlacementRules::default()
    };
    let two = w.submit("b", 2, grouped(s(3), "web", anti_affinity));
    w.settle();
    assert_eq!(w.on_nodes(&two), 1);
    // Spread by zone with a skew of 1.
    let mut w = World::new();
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        w.node(name, 1, labelled(capacity(8, 64, 0), &[("zone", zone)]));
    }
    let a = w.submit(
        "a",
        8,
        ruled(s(0), requires("zone", vocab::Operator::In, &["a"])),
    );
    let b = w.submit(
        "a",
        8,
        ruled(s(3), requires("zone", vocab::Operator::In, &["b"])),
    );
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (8, 8));
    let spread = PlacementRules {
        spread: vec![Spread {
            topology_key: Some(token("zone")),
            max_skew: 1,
        }],
        ..PlacementRules::default()
    };
    let eight = w.submit("c", 8, grouped(s(2), "web", spread));
    w.settle();
    assert_eq!(w.on_nodes(&eight), 1);
    // The one that it wants to be near is not the one that goes for it.
    let mut w = World::new();
    w.nodes(&["n", "m"]);
    let server = w.submit(
        "a",
        1,
        grouped(cores(32, 0), "server", PlacementRules::default()),
    );
    w.settle();
    let affinity = PlacementRules {
        affinity: term("server", None),
        ..PlacementRules::default()
    };
    let client = w.submit("a", 1, ruled(cores(32, 3), affinity));
    let events = w.settle();
    assert_eq!((w.on_nodes(&server), w.on_nodes(&client)), (1, 0));
    assert_eq!(preemptions(&events), 0);
}

#[test]
fn who_waits_to_be_near_another_is_woken_when_that_one_comes() {
    let check = |first: PlacementRules, name: &str| {
        let mut w = World::new();
        w.nodes(&["n", "m"]);
        let follower = w.submit("a", 1, grouped(s(0), "follower", first));
        w.settle();
        assert_eq!(w.on_nodes(&follower), 0, "{name}");
        w.submit("a", 1, grouped(s(0), "leader", PlacementRules::default()));
        w.settle();
        assert_eq!(w.on_nodes(&follower), 1, "{name}");
    };
    let affinity = term("leader", None);
    let rules = PlacementRules {
        affinity,
        ..PlacementRules::default()
    };
    check(rules, "near");
    // Spread: one more in the emptier zone makes room in the other.
    let mut w = World::new();
    for (name, zone, size) in [("n1", "a", 8), ("n2", "b", 2)] {
        w.node(name, 1, labelled(capacity(size, 64, 0), &[("zone", zone)]));
    }
    let spread = PlacementRules {
        spread: vec![Spread {
            topology_key: Some(token("zone")),
            max_skew: 1,
        }],
        ..PlacementRules::default()
    };
    let in_b = requires("zone", vocab::Operator::In, &["b"]);
    let web = w.submit("a", 2, grouped(s(0), "web", spread));
    w.settle();
    assert_eq!(w.on_nodes(&web), 2);
    let filler = w.submit("b", 1, ruled(s(0), in_b.clone()));
    w.settle();
    let spread = PlacementRules {
        spread: vec![Spread {
            topology_key: Some(token("zone")),
            max_skew: 1,
        }],
        ..PlacementRules::default()
    };
    let more = w.submit("a", 2, grouped(s(0), "web", spread));
    w.settle();
    assert_eq!((w.on_nodes(&filler), w.on_nodes(&more)), (1, 1));
    // A member comes to zone b, without rules of its own, once there is room.
    w.report(filler[0], "n2", RunState::Finished);
    w.submit("a", 1, grouped(s(0), "web", in_b));
    w.settle();
    assert_eq!(w.on_nodes(&more), 2);
}

#[test]
fn what_had_finished_when_it_was_preempted_is_not_run_again() {
    for (state, ended) in [
        (RunState::Finished, "finished"),
        (RunState::Failed, "failed"),
    ] {
        let mut w = World::new();
        w.nodes(&["n"]);
        let low = w.submit("a", 1, cores(32, 0));
        w.settle();
        w.submit("b", 1, cores(32, 3));
        w.decide();
        w.report_by_itself(low[0], "n", state);
        let said = spoken(&w.settle());
        assert!(
            said.contains(&format!("{} ended {ended}", low[0])),
            "{said:?}"
        );
        assert!(!w.state.live().contains_key(&AllocationNo(low[0])));
    }
}

#[test]
fn nothing_is_placed_to_be_preempted_at_once() {
    let in_one_frame = |events: &[Event]| {
        let placed = |no: &AllocationNo| {
            let this = |event: &&Event| matches!(event, Event::AllocationPlaced(AllocationPlaced { allocation, .. }) if allocation == no);
            events.iter().any(|event| this(&event))
        };
        events.iter().any(|event| match event {
            Event::AllocationPreempted(AllocationPreempted { allocation, .. }) => {
                placed(allocation)
            }
            _ => false,
        })
    };
    for never in [false, true] {
        let mut w = World::new();
        w.nodes(&["n"]);
        let mut low = s(0);
        low.restart.never = never;
        let (low, high) = (w.submit("a", 32, low), w.submit("b", 17, s(3)));
        let mut preempted = 0;
        for _ in 0..10 {
            let events = w.decide();
            assert!(!in_one_frame(&events));
            preempted += preemptions(&events);
        }
        assert_eq!(preempted, 0);
        assert_eq!((w.on_nodes(&low), w.on_nodes(&high)), (15, 17));
        assert_eq!(w.state.live().len(), 49);
    }
    // Past use counts, and is not undone by fair share at once.
    let mut w = World::new();
    w.policy(|policy| policy.half_life_ms = 3_600_000);
    w.nodes(&["n"]);
    let before = w.submit("a", 32, s(0));
    w.settle();
    w.now.0 += 36_000_000;
    for no in before {
        w.report(no, "n", RunState::Finished);
    }
    let (a, b) = (w.submit("a", 32, s(0)), w.submit("b", 32, s(0)));
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (0, 32));
    // Once it is forgiven, both have the same.
    for _ in 0..100 {
        w.now.0 += 3_600_000;
        w.settle();
    }
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (16, 16));
}

#[test]
fn a_promise_goes_to_the_first_for_whom_it_can_be_known() {
    let known = |cores, minutes: u64| AllocationSpec {
        run_time_ms: minutes * 60_000,
        ..job(cores, 1)
    };
    let mut w = World::new();
    w.policy(|policy| policy.backfill = true);
    w.nodes(&["n"]);
    w.node("m", 1, capacity(64, 64, 0));
    // On m something runs of which nobody knows when it ends; on n something ends in an hour.
    w.submit("a", 1, job(64, 1));
    let first = w.submit("a", 1, known(24, 60));
    w.settle();
    assert_eq!(w.on_nodes(&first), 1);
    let unknowable = w.submit("a", 1, known(64, 10));
    w.settle();
    let promised = w.submit("a", 1, known(32, 10));
    w.settle();
    let small = w.submit("b", 1, known(8, 90));
    w.settle();
    assert_eq!(
        w.on_nodes(&small),
        0,
        "it would delay whom a place is promised"
    );
    w.report(first[0], "n", RunState::Finished);
    w.settle();
    assert_eq!((w.on_nodes(&promised), w.on_nodes(&unknowable)), (1, 0));
}

#[test]
fn impossible_demand_is_no_demand() {
    let check = |odd: Option<AllocationSpec>| {
        let mut w = World::new();
        w.nodes(&["n"]);
        w.queue("a", |q| q.weight_milli = 3000);
        w.queue("odd", |q| {
            q.weight_milli = 8000;
            q.limits = vec![(ResourceKind::Gpu, 0)];
        });
        let b = w.submit("b", 32, s(0));
        w.settle();
        w.submit("odd", 40, odd.clone().unwrap_or(cores(1000, 0)));
        let a = w.submit("a", 32, s(0));
        w.settle();
        assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (24, 8), "{odd:?}");
    };
    check(None);
    check(Some(ruled(
        s(0),
        requires("zone", vocab::Operator::Exists, &[]),
    )));
    check(Some(class(gpus(job(1, 1), 1, 1000), 0)));
    let gang = Some(Gang {
        name: token("g"),
        size: 40,
        min: 40,
        uniform_label: None,
    });
    check(Some(AllocationSpec { gang, ..s(0) }));
}

#[test]
fn a_victim_that_hangs_keeps_nobody_from_another_node() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let low = w.submit("a", 1, cores(32, 0));
    w.settle();
    let high = w.submit("b", 1, cores(32, 3));
    w.decide();
    assert!(nominated(&w, high[0]));
    w.nodes(&["m"]);
    w.decide();
    assert_eq!(w.node_of(high[0]).as_deref(), Some("m"));
    assert_eq!(w.on_nodes(&low), 1);
    w.settle();
    assert_eq!((w.on_nodes(&low), w.on_nodes(&high)), (1, 1));
}

#[test]
fn members_of_a_gang_are_packed_whatever_their_order() {
    use vocab::PlacementPolicy;
    let gang = || {
        Some(Gang {
            name: token("g"),
            size: 2,
            min: 2,
            uniform_label: None,
        })
    };
    for policy in PlacementPolicy::ALL {
        for sizes in [[8, 32], [32, 8]] {
            let mut w = World::new();
            w.policy(|settings| settings.placement = policy);
            w.node("large", 1, capacity(32, 256, 0));
            w.node("small", 1, capacity(8, 256, 0));
            let members = sizes.map(|size| {
                let member = AllocationSpec {
                    gang: gang(),
                    ..job(size, 1)
                };
                w.submit("t", 1, member)[0]
            });
            w.settle();
            assert_eq!(w.on_nodes(&members), 2, "{policy:?} {sizes:?}");
        }
        // Three that are near each other fit on the large one only, whichever node looks best for the first.
        let mut w = World::new();
        w.policy(|settings| settings.placement = policy);
        w.node("large", 1, capacity(32, 256, 0));
        for small in ["s1", "s2", "s3"] {
            w.node(small, 1, capacity(8, 256, 0));
        }
        let affinity = PlacementRules {
            affinity: term("ring", None),
            ..PlacementRules::default()
        };
        let members = w.gang("t", "near", 3, grouped(job(8, 1), "ring", affinity));
        w.settle();
        assert_eq!(w.on_nodes(&members), 3, "{policy:?}");
    }
}

#[test]
fn a_gang_never_starts_with_less_than_it_needs() {
    let mut w = World::new();
    w.node("n", 1, capacity(3, 64, 0));
    let gang = w.gang("t", "g", 4, job(1, 1));
    w.settle();
    w.cancel(gang[3]);
    w.settle();
    w.nodes(&["m"]);
    w.settle();
    assert_eq!(w.on_nodes(&gang), 0);
    assert_eq!(w.reason(gang[0]), "gang_incomplete");
    // Who has finished is not missing.
    let mut w = World::new();
    w.nodes(&["n"]);
    let gang = w.gang("t", "g", 4, job(1, 1));
    w.settle();
    w.report(gang[0], "n", RunState::Finished);
    w.settle();
    w.lose("n");
    w.node("n", 2, capacity(32, 256, 0));
    w.settle();
    assert_eq!(w.on_nodes(&gang), 3);
}

fn reserve(w: &mut World, queue: &str, from_ms: i64, nodes: u32) {
    let from = Millis(w.now.0 + from_ms);
    w.admin(AdminChange::Reservation(ReservationSet {
        reservation: token("demo"),
        wanted: Some(AdvanceReservation {
            queue: token(queue),
            from,
            until: Millis(from.0 + 100_000),
            nodes,
            selector: Vec::new(),
        }),
    }));
}

#[test]
fn a_reserved_node_that_is_lost_is_replaced() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    reserve(&mut w, "a", 100_000, 1);
    let granted = spoken(&w.settle());
    let first = if granted == ["demo has [n1]"] {
        "n1"
    } else {
        "n2"
    };
    let second = if first == "n1" { "n2" } else { "n1" };
    w.lose(first);
    assert_eq!(spoken(&w.settle()), [format!("demo has [{second}]")]);
    // Back again, it is anybody's.
    w.node(first, 2, capacity(32, 256, 0));
    let long = w.submit("b", 2, job(32, 1));
    w.settle();
    assert_eq!(w.on_nodes(&long), 1);
    assert_eq!(
        w.node_of(long[0]).or(w.node_of(long[1])).as_deref(),
        Some(first)
    );
}

#[test]
fn a_nominee_does_not_come_to_a_node_that_was_reserved_meanwhile() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.submit("a", 1, cores(32, 0));
    w.settle();
    let high = w.submit("b", 1, cores(32, 3));
    w.decide();
    assert!(nominated(&w, high[0]));
    reserve(&mut w, "c", 100_000, 1);
    w.settle();
    assert_eq!(w.on_nodes(&high), 0);
    assert!(!nominated(&w, high[0]));
}

#[test]
fn more_than_may_go_in_a_minute_go_after_a_minute_without_any() {
    let mut w = World::new();
    w.policy(|policy| policy.preemptions_per_minute = 4);
    w.nodes(&["n"]);
    let low = w.submit("a", 32, s(0));
    w.settle();
    w.submit("b", 1, s(1));
    w.settle();
    let large = w.submit("b", 1, cores(8, 3));
    w.settle();
    assert_eq!((w.on_nodes(&large), w.on_nodes(&low)), (0, 31));
    let told = |w: &World| {
        let told = w.said.iter().rev().find_map(|event| match event {
            Event::AllocationWaiting(AllocationWaiting {
                allocation, reason, ..
            }) if allocation.0 == large[0] => Some(*reason),
            _ => None,
        });
        let explained = w.said.iter().rev().find_map(|event| match event {
            Event::PendingGroupExplained(PendingGroupExplained { head, reason, .. })
                if head.0 == large[0] =>
            {
                Some(*reason)
            }
            _ => None,
        });
        (told.unwrap(), explained.unwrap())
    };
    let limit = WaitingReason::PreemptionLimit;
    assert_eq!(told(&w), (limit, limit));
    let again_at = w.state.wake_at().unwrap();
    assert!(again_at > w.now && again_at.0 <= w.now.0 + 60_000);
    w.now = again_at;
    w.settle();
    assert_eq!((w.on_nodes(&large), w.on_nodes(&low)), (1, 23));
}

#[test]
fn a_newcomer_gets_its_share_of_what_can_be_taken() {
    let mut w = World::new();
    w.policy(|policy| policy.protected_milli = 1000);
    w.nodes(&["n"]);
    let (a, b) = (w.submit("a", 9, s(0)), w.submit("b", 23, s(3)));
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (9, 23));
    let c = w.submit("c", 1, s(0));
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b), w.on_nodes(&c)), (8, 23, 1));
}

#[test]
fn a_reservation_that_begins_at_once_for_another_queue_lets_that_one_in() {
    let mut w = World::new();
    w.nodes(&["n"]);
    reserve(&mut w, "a", 0, 1);
    let b = w.submit("b", 1, cores(1, 0));
    w.decide();
    assert_eq!(w.on_nodes(&b), 0);
    reserve(&mut w, "b", 0, 1);
    w.decide();
    assert_eq!(w.on_nodes(&b), 1);
}

#[test]
fn a_nominee_comes_to_where_another_that_it_wants_to_be_near_was_placed() {
    let affinity = PlacementRules {
        affinity: term("web", None),
        ..PlacementRules::default()
    };
    let mut w = World::new();
    w.nodes(&["n1"]);
    let first = w.submit(
        "b",
        1,
        grouped(cores(1, 2), "web", PlacementRules::default()),
    );
    let low = w.submit("a", 31, s(0));
    w.settle();
    let high = w.submit("b", 1, grouped(cores(8, 1), "web", affinity));
    w.decide();
    assert!(nominated(&w, high[0]));
    w.node("n2", 1, capacity(32, 256, 0));
    let anti_affinity = PlacementRules {
        anti_affinity: term("web", None),
        ..PlacementRules::default()
    };
    let second = w.submit("b", 1, grouped(cores(1, 2), "web", anti_affinity));
    w.decide();
    assert_eq!(w.node_of(second[0]).as_deref(), Some("n2"));
    assert!(w.state.wake_at().is_some_and(|at| at <= w.now));
    w.decide();
    assert_eq!(w.node_of(high[0]).as_deref(), Some("n2"));
    assert_eq!((w.on_nodes(&first), w.on_nodes(&low)), (1, 31));
}

#[test]
fn nobody_comes_where_that_keeps_a_nominee_off() {
    let anti_affinity = |domain| PlacementRules {
        anti_affinity: term("web", domain),
        ..PlacementRules::default()
    };
    let web = |value| grouped(s(value), "web", PlacementRules::default());
    // Two whom the same node would do are not nominated beside one who wants to be apart from them; they come after it.
    let mut w = World::new();
    w.nodes(&["n"]);
    let low = w.submit("a", 1, cores(32, 0));
    w.settle();
    let high = w.submit("b", 1, grouped(s(2), "web", anti_affinity(None)));
    let webs = w.submit("b", 2, web(1));
    let events = w.settle();
    assert_eq!((w.on_nodes(&high), w.on_nodes(&webs)), (1, 2));
    assert_eq!((w.on_nodes(&low), preemptions(&events)), (0, 1));
    // Nor is one placed on another node, if all of the zone counts, whatever its priority.
    for value in [0, 3] {
        let mut w = World::new();
        w.node("n1", 1, labelled(capacity(32, 256, 0), &[("zone", "a")]));
        w.submit("a", 1, cores(32, 0));
        w.settle();
        let high = w.submit("b", 1, ruled(cores(32, 2), anti_affinity(Some("zone"))));
        w.decide();
        assert!(nominated(&w, high[0]));
        w.node("n2", 1, labelled(capacity(8, 64, 0), &[("zone", "a")]));
        let beside = w.submit("b", 1, web(value));
        let said = w.decide();
        assert_eq!(w.on_nodes(&beside), 0, "{value}");
        let kept = |event: &Event| match event {
            Event::PendingGroupExplained(PendingGroupExplained { counts, .. }) => {
                counts == &[(vocab::Filter::Backfill, 2)]
            }
            _ => false,
        };
        assert!(said.iter().any(kept), "{said:?}");
        // Another tenant's is not meant.
        let other = w.submit("c", 1, web(value));
        w.decide();
        assert_eq!(w.on_nodes(&other), 1, "{value}");
        w.settle();
        assert_eq!((w.on_nodes(&high), w.on_nodes(&beside)), (1, 1), "{value}");
    }
}

#[test]
fn who_is_kept_from_a_nominee_comes_once_that_one_has_gone_or_minds_no_more() {
    let zone = |zone| requires("zone", vocab::Operator::In, &[zone]);
    let set_up = || {
        let mut w = World::new();
        for (name, zone) in [("n1", "a"), ("n3", "b")] {
            w.node(name, 1, labelled(capacity(32, 256, 0), &[("zone", zone)]));
        }
        w.submit("a", 1, ruled(cores(32, 0), zone("a")));
        w.submit("a", 1, ruled(cores(32, 3), zone("b")));
        w.settle();
        let spread = PlacementRules {
            spread: vec![Spread {
                topology_key: Some(token("zone")),
                max_skew: 1,
            }],
            ..PlacementRules::default()
        };
        let high = w.submit("b", 1, grouped(cores(32, 2), "web", spread))[0];
        w.decide();
        assert!(nominated(&w, high));
        for (name, zone) in [("n2", "a"), ("n4", "b")] {
            w.node(name, 1, labelled(capacity(8, 64, 0), &[("zone", zone)]));
        }
        let beside = w.submit("b", 1, grouped(s(0), "web", zone("a")));
        w.decide();
        assert_eq!(w.on_nodes(&beside), 0);
        (w, high, beside)
    };
    let (mut w, high, beside) = set_up();
    w.cancel(high);
    w.decide();
    assert_eq!(w.on_nodes(&beside), 1);
    // One in the other zone, and one more in this does not make it too many.
    let (mut w, high, beside) = set_up();
    w.submit("b", 1, grouped(s(0), "web", zone("b")));
    w.decide();
    assert_eq!(w.on_nodes(&beside), 1);
    w.settle();
    assert_eq!(w.on_nodes(&[high]), 1);
}

#[test]
fn nobody_goes_whom_a_nominee_wants_to_be_near() {
    let mut w = World::new();
    w.node("n1", 1, labelled(capacity(32, 256, 0), &[("zone", "a")]));
    w.submit("a", 1, cores(32, 0));
    w.settle();
    w.node("n2", 1, labelled(capacity(8, 256, 0), &[("zone", "a")]));
    let server = w.submit(
        "b",
        1,
        grouped(cores(8, 0), "server", PlacementRules::default()),
    );
    w.settle();
    assert_eq!(w.on_nodes(&server), 1);
    let affinity = PlacementRules {
        affinity: term("server", Some("zone")),
        ..PlacementRules::default()
    };
    let client = w.submit("b", 1, ruled(cores(32, 2), affinity));
    w.decide();
    assert!(nominated(&w, client[0]));
    let other = w.submit("c", 1, cores(8, 1));
    w.decide();
    assert!(!nominated(&w, other[0]));
    w.settle();
    assert_eq!((w.on_nodes(&client), w.on_nodes(&other)), (1, 1));
}

#[test]
fn nobody_goes_for_the_first_of_a_ring_whose_second_comes_elsewhere_before() {
    let mut w = World::new();
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        w.node(name, 1, labelled(capacity(32, 256, 0), &[("zone", zone)]));
    }
    let low = w.submit("a", 2, cores(32, 0));
    w.settle();
    let in_b = requires("zone", vocab::Operator::In, &["b"]);
    let fixed = w.submit("b", 1, grouped(cores(32, 2), "ring", in_b));
    let affinity = PlacementRules {
        affinity: term("ring", None),
        ..PlacementRules::default()
    };
    let affinity = w.submit("b", 1, grouped(cores(8, 1), "ring", affinity));
    let events = w.settle();
    assert_eq!((w.on_nodes(&fixed), w.on_nodes(&affinity)), (1, 0));
    assert_eq!((w.on_nodes(&low), preemptions(&events)), (1, 1));
}

#[test]
fn members_of_a_gang_come_as_they_were_planned_to() {
    let mut w = World::new();
    for (name, zone, size) in [("n1", "a", 10), ("n2", "b", 4)] {
        w.node(name, 1, labelled(capacity(size, 64, 0), &[("zone", zone)]));
    }
    let low = w.submit("a", 14, s(0));
    w.settle();
    assert_eq!(w.on_nodes(&low), 14);
    // The second in number is planned last, beside the first.
    let members = [8, 2, 4].map(|size| {
        let spread = PlacementRules {
            spread: vec![Spread {
                topology_key: Some(token("zone")),
                max_skew: 1,
            }],
            ..PlacementRules::default()
        };
        let gang = Some(Gang {
            name: token("g"),
            size: 3,
            min: 3,
            uniform_label: None,
        });
        let member = grouped(cores(size, 2), "web", spread);
        w.submit("b", 1, AllocationSpec { gang, ..member })[0]
    });
    let events = w.decide();
    assert_eq!(preemptions(&events), 14);
    for _ in 0..2 {
        assert!(members.iter().all(|no| nominated(&w, *no)));
        w.decide();
    }
    w.settle();
    assert_eq!(w.on_nodes(&members), 3);
}

#[test]
fn what_is_not_said_in_one_frame_is_said_in_the_next() {
    let told = |events: &[Event]| {
        let waits = |event: &&Event| matches!(event, Event::AllocationWaiting(_));
        events.iter().filter(waits).count()
    };
    let mut w = World::new();
    for queue in 0..2500 {
        w.submit(&format!("q{queue}"), 1, s(0));
    }
    let first = told(&w.decide());
    assert!(first < 2500, "{first}");
    assert!(w.state.wake_at().is_some_and(|at| at <= w.now));
    let then = told(&w.settle());
    assert_eq!(first + then, 2500);
}

#[test]
fn what_is_told_of_a_pending_group_is_why_it_waits_now() {
    let mut w = World::new();
    limited(&mut w, "above", 1);
    for queue in ["q0", "q1"] {
        w.queue(queue, |q| q.parent = Some(token("above")));
    }
    w.nodes(&["n"]);
    let anti_affinity = PlacementRules {
        anti_affinity: term("web", None),
        ..PlacementRules::default()
    };
    let web = w.submit("q0", 1, grouped(s(0), "web", anti_affinity))[0];
    let large = || class(gpus(job(1, 1), 2, 1000), 0);
    let before = w.submit("q1", 1, large())[0];
    w.decide();
    assert_eq!(w.reason(before), "queue_limit");
    w.report_by_itself(web, "n", RunState::Failed);
    let no = w.submit("q1", 1, large())[0];
    w.decide();
    assert_eq!(w.reason(no), "no_node_of_model");
}

/// Else the higher one among them would clear nodes for the lower one, which those who had to go would clear again.
#[test]
fn a_member_of_a_gang_takes_by_its_own_priority() {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    let there = w.submit("q0", 2, class(job(4, 1), 1));
    w.settle();
    let gang = Gang {
        name: token("g"),
        size: 2,
        min: 1,
        uniform_label: None,
    };
    let member = |cores, value| AllocationSpec {
        gang: Some(gang.clone()),
        ..class(job(cores, 1), value)
    };
    // The higher one fits on no node.
    w.submit("q0", 1, member(9, 3));
    let low = w.submit("q0", 1, member(4, 0))[0];
    w.settle();
    assert!(there.iter().all(|no| w.node_of(*no).is_some()));
    assert_eq!(w.node_of(low), None);

    // One that may goes for itself.
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    w.submit("q0", 2, class(job(4, 1), 1));
    w.settle();
    w.submit("q0", 1, member(9, 0));
    let high = w.submit("q0", 1, member(4, 3))[0];
    w.settle();
    assert!(w.node_of(high).is_some());
}

#[test]
fn a_refused_change_of_a_reservation_leaves_it_as_it_was_granted() {
    let mut w = World::new();
    w.nodes(&["n", "m"]);
    reserve(&mut w, "a", 0, 1);
    let granted = spoken(&w.settle());
    assert_eq!(granted.len(), 1, "{granted:?}");
    // Three nodes there are not, and one there is.
    for nodes in [3, 1, 3] {
        let others = w.submit("b", 2, class(job(32, 1), 0));
        w.settle();
        assert_eq!(w.on_nodes(&others), 1, "the other node is a's");
        reserve(&mut w, "a", 0, nodes);
        let said = spoken(&w.settle());
        let expected = if nodes == 3 {
            "demo has []"
        } else {
            &granted[0]
        };
        assert_eq!(said, [expected]);
        assert_eq!(w.on_nodes(&others), 1, "{nodes} nodes were asked for");
        for no in others {
            w.cancel(no);
        }
        w.settle();
    }
    let own = w.submit("a", 1, job(32, 1));
    w.settle();
    assert_eq!(w.on_nodes(&own), 1);
    // The grant ends with its own terms.
    w.now = w.now.plus(3_600_000);
    assert_eq!(spoken(&w.settle()), ["demo has []"]);
    assert!(!w.state.reservations.any());
}
