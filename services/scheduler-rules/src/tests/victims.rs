//! Tables of preemption: the victims, kept room, and rest.

use super::*;

fn cores(count: u64, value: i32) -> AllocationSpec {
    class(job(count, 1), value)
}

fn preempted(events: &[Event]) -> Vec<u64> {
    let preempted = events.iter().filter_map(|event| match event {
        Event::AllocationPreempted(fact) => Some(fact.allocation.0),
        _ => None,
    });
    preempted.collect()
}

/// Replaces the leader by one that starts from a snapshot.
fn restart(w: &mut World) {
    w.state = again(&w.state);
}

#[test]
fn a_sweep_that_does_not_fit_into_one_frame_ends() {
    let mut w = World::new();
    for node in 0..60 {
        w.node(&format!("n{node}"), 1, capacity(32, 256, 0));
    }
    let mut seed = 8u64;
    for queue in 0..10 {
        for _ in 0..200 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            w.submit(&format!("q{queue}"), 1, cores(1 + (seed >> 33) % 5, 0));
        }
        w.settle();
    }
    let due = |w: &World| w.state.wake_at().is_some_and(|at| at <= w.now);
    let frames = (0..1000).take_while(|_| {
        w.decide();
        due(&w)
    });
    assert!(frames.count() < 1000, "wake-ups stay due");
}

#[test]
fn all_members_of_a_gang_on_a_node_count_as_room() {
    // Members and cores of each, against a job of higher priority.
    let check = |(size, each): (u32, u64), wanted: u64| {
        let mut w = World::new();
        w.nodes(&["n"]);
        let gang = w.gang("a", "g", size, cores(each, 0));
        w.settle();
        assert_eq!(w.on_nodes(&gang), size as usize);
        let high = w.submit("b", 1, cores(wanted, 3));
        w.settle();
        let text = format!("{size} x {each} against {wanted}");
        assert_eq!(w.on_nodes(&high), 1, "{text}");
        assert_eq!(w.on_nodes(&gang), 0, "{text}");
    };
    check((4, 8), 16);
    check((4, 8), 32);
    check((2, 16), 32);
    check((32, 1), 2);
}

#[test]
fn all_members_of_a_gang_on_a_node_count_as_room_by_share() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let gangs = ["g", "h"].map(|name| w.gang("a", name, 2, cores(8, 0)));
    w.settle();
    let other = w.submit("b", 1, cores(16, 0));
    w.settle();
    assert_eq!(w.on_nodes(&other), 1);
    let left = gangs.map(|gang| w.on_nodes(&gang));
    assert_eq!(left.iter().sum::<usize>(), 2, "{left:?}");
}

#[test]
fn room_of_a_gang_on_other_nodes_counts_for_a_gang() {
    let mut w = World::new();
    w.nodes(&["n", "m"]);
    let one = w.gang("a", "g", 2, cores(32, 0));
    w.settle();
    assert_eq!(w.on_nodes(&one), 2);
    let two = w.gang("b", "h", 2, cores(32, 1));
    let events = w.settle();
    assert_eq!(w.on_nodes(&two), 2);
    assert_eq!(preempted(&events).len(), 2);
}

#[test]
fn members_of_a_gang_take_room_that_is_free() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let low = w.submit("a", 2, cores(10, 0));
    w.settle();
    // 12 of 32 cores are free: enough for one member.
    let gang = w.gang("b", "g", 2, cores(11, 1));
    let events = w.settle();
    assert_eq!((w.on_nodes(&gang), w.on_nodes(&low)), (2, 1));
    assert_eq!(preempted(&events).len(), 1);
}

#[test]
fn a_lower_gang_goes_before_a_higher_single() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let gang = w.gang("a", "g", 2, cores(8, 0));
    let single = w.submit("a", 1, cores(16, 1));
    w.settle();
    assert_eq!((w.on_nodes(&gang), w.on_nodes(&single)), (2, 1));
    let high = w.submit("b", 1, cores(16, 2));
    w.settle();
    assert_eq!(w.on_nodes(&high), 1);
    assert_eq!((w.on_nodes(&gang), w.on_nodes(&single)), (0, 1));
}

/// A gang has the priority of its highest member.
#[test]
fn a_lower_single_goes_before_a_gang_with_a_higher_member() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let wanted = Gang {
        name: token("g"),
        size: 2,
        min: 2,
        uniform_label: None,
    };
    let mut gang = Vec::new();
    for value in [0, 2] {
        let gang_of = Some(wanted.clone());
        let member = AllocationSpec {
            gang: gang_of,
            ..cores(8, value)
        };
        gang.extend(w.submit("a", 1, member));
    }
    let single = w.submit("a", 1, cores(16, 1));
    w.settle();
    assert_eq!((w.on_nodes(&gang), w.on_nodes(&single)), (2, 1));
    let high = w.submit("b", 1, cores(16, 3));
    w.settle();
    assert_eq!(w.on_nodes(&high), 1);
    assert_eq!((w.on_nodes(&gang), w.on_nodes(&single)), (2, 0));
}

#[test]
fn a_zone_that_is_cleared_is_kept_for_whom_it_is_cleared() {
    let mut w = World::new();
    w.node("n", 1, two_zones());
    let low = w.submit("a", 5, class(gpus(job(1, 1), 1, 400), 0));
    w.settle();
    assert_eq!(w.on_nodes(&low), 4);
    let high = w.submit("b", 1, class(in_one_zone(job(3, 1)), 2));
    let mut events = w.settle();
    for _ in 0..10 {
        // Impossible requests of another tenant.
        w.submit("c", 1, class(job(1000, 1), 0));
        events.extend(w.settle());
    }
    assert_eq!(w.on_nodes(&high), 1);
    assert!(preempted(&events).len() <= 2, "{:?}", preempted(&events));
}

#[test]
fn the_first_change_after_a_restart_is_seen_by_preemption() {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    let first = w.submit("a", 7, cores(1, 3));
    w.settle();
    let wide = w.submit("a", 1, cores(2, 3));
    w.settle();
    assert_eq!((w.on_nodes(&first), w.on_nodes(&wide)), (7, 0));
    restart(&mut w);
    w.settle();
    let low = w.submit("a", 1, cores(1, 0));
    w.settle();
    assert_eq!(w.on_nodes(&low), 1);
    let high = w.submit("a", 1, cores(1, 3));
    w.settle();
    assert_eq!((w.on_nodes(&high), w.on_nodes(&low)), (1, 0));
}

#[test]
fn a_nominee_of_a_queue_at_its_limit_stays_one() {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    w.queue("q", |queue| {
        queue.limits = vec![(vocab::ResourceKind::Cpu, 8000)]
    });
    let other = w.submit("u", 1, class(job(8, 1), 0));
    w.settle();
    let high = w.submit("q", 1, class(job(8, 1), 2));
    let numbers = [other[0], high[0]];
    let expected = [
        "1 preempted priority",
        "1 stopping",
        "2 nominated n",
        "2 waits nominated",
    ];
    check(&mut w, &numbers, &expected);
    w.report(other[0], "n", RunState::Finished);
    w.settle();
    assert_eq!(w.on_nodes(&high), 1);
}
