//! Queues, fair share, preemption and gangs: the table of behaviour that must hold. `N` is a node of 32 cores and 256 GiB,
//! `s` a job of 1 core and 4 GiB.

use super::*;
use vocab::fact::CordonSet;

fn s() -> AllocationSpec {
    class(job(1, 4), 0)
}

#[test]
fn row_1_queues_share_equally_and_by_weight() {
    let check = |nodes: &[&str], queues: &[(&str, u32, usize)], expected: &[usize]| {
        let mut w = World::new();
        w.nodes(nodes);
        for (queue, weight_milli, _) in queues {
            w.queue(queue, |q| q.weight_milli = *weight_milli);
        }
        let jobs: Vec<_> = queues
            .iter()
            .map(|(queue, _, count)| w.submit(queue, *count, s()))
            .collect();
        w.settle();
        let mut held: Vec<_> = jobs.iter().map(|of| w.on_nodes(of)).collect();
        held.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(held, expected);
    };
    check(&["n"], &[("a", 1000, 32), ("b", 1000, 32)], &[16, 16]);
    check(
        &["n"],
        &[("a", 1000, 32), ("b", 1000, 32), ("c", 1000, 32)],
        &[11, 11, 10],
    );
    check(
        &["n1", "n2", "n3"],
        &[("a", 1000, 96), ("b", 500, 96)],
        &[64, 32],
    );
}

#[test]
fn row_2_who_holds_much_elsewhere_waits() {
    let mut w = World::new();
    w.node("pool", 1, capacity(100, 1000, 0));
    w.submit("a", 100, job(1, 4));
    w.settle();
    w.nodes(&["n"]);
    let (a, b) = (w.submit("a", 32, s()), w.submit("b", 32, s()));
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (0, 32));
}

#[test]
fn row_3_the_dominant_resource_counts() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let a = w.submit("a", 32, class(job(1, 16), 0));
    let b = w.submit("b", 32, s());
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (10, 22));
}

#[test]
fn row_4_the_youngest_of_who_has_too_much_go_and_then_nothing_moves() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let a = w.submit("a", 32, s());
    w.settle();
    assert_eq!(w.on_nodes(&a), 32);
    let b = w.submit("b", 32, s());
    w.settle();
    assert_eq!((w.held(&a), w.on_nodes(&b)), (a[..16].to_vec(), 16));
    let c = w.submit("c", 10, s());
    w.settle();
    assert_eq!(
        (w.on_nodes(&a), w.on_nodes(&b), w.on_nodes(&c)),
        (11, 11, 10)
    );
    assert_eq!(spoken(&w.settle()), [""; 0]);
}

#[test]
fn row_5_nobody_goes_for_one_who_is_beyond_his_share() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut w = World::new();
        w.nodes(&["n"]);
        let many = w.submit(first, 32, s());
        w.settle();
        let large = w.submit(second, 1, class(job(32, 128), 0));
        w.settle();
        assert_eq!((w.on_nodes(&many), w.on_nodes(&large)), (32, 0));
    }
}

#[test]
fn row_7_a_higher_class_takes_from_the_youngest_of_a_lower() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let a = w.submit("a", 33, class(job(1, 4), 2));
    w.settle();
    assert_eq!(w.held(&a), a[..32]);
    let b = w.submit("b", 1, class(job(1, 4), 3));
    w.settle();
    assert_eq!(w.on_nodes(&b), 1);
    assert_eq!(w.held(&a), a[..31]);
    // It waits in line again, by itself.
    assert_eq!(w.reason(a[31]), "no_room_now");
}

#[test]
fn row_8_only_the_lowest_goes() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    let one = w.submit("a", 1, class(job(32, 256), 1));
    let zero = w.submit("a", 1, class(job(32, 256), 0));
    w.settle();
    let two = w.submit("a", 1, class(job(32, 256), 2));
    w.settle();
    assert_eq!(
        (w.on_nodes(&zero), w.on_nodes(&one), w.on_nodes(&two)),
        (0, 1, 1)
    );
}

#[test]
fn row_9_the_twenty_lowest_and_the_two_youngest_go() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let low: Vec<_> = (0..3)
        .map(|value| w.submit("a", 10, class(job(1, 4), value)))
        .collect();
    w.settle();
    let high = w.submit("a", 24, class(job(1, 4), 3));
    w.settle();
    assert_eq!(w.on_nodes(&high), 24);
    assert_eq!((w.on_nodes(&low[0]), w.on_nodes(&low[1])), (0, 0));
    assert_eq!(w.held(&low[2]), low[2][..8]);
}

#[test]
fn row_10_a_gang_is_placed_and_goes_as_one() {
    let check = |nodes: &[&str], size: u32, cores: u64, placed: usize| {
        let mut w = World::new();
        w.nodes(nodes);
        let gang = w.gang("a", "g", size, class(job(cores, 4), 0));
        w.settle();
        assert_eq!(w.on_nodes(&gang), placed);
        w
    };
    check(&["n"], 33, 1, 0);
    check(&["n"], 32, 1, 32);
    check(&["n1", "n2"], 3, 32, 0);
    let mut w = check(&["n1", "n2"], 2, 32, 2);
    let gang: Vec<_> = w.state.live().keys().map(|no| no.0).collect();
    let high = w.submit("b", 1, class(job(1, 4), 3));
    w.settle();
    assert_eq!((w.on_nodes(&high), w.on_nodes(&gang)), (1, 0));
    assert_eq!(w.reason(gang[0]), "gang_no_room");
}

#[test]
fn row_11_a_gang_stays_within_one_value_of_its_label() {
    let mut w = World::new();
    for (name, zone) in [
        ("n1", "a"),
        ("n2", "a"),
        ("n3", "b"),
        ("n4", "b"),
        ("n5", "b"),
    ] {
        w.node(name, 1, labelled(capacity(32, 256, 0), &[("zone", zone)]));
    }
    let gang = |label: &str| Gang {
        name: token(label),
        size: 3,
        min: 3,
        uniform_label: Some(token(label)),
    };
    let on_b = w.gang_of("a", gang("zone"), job(32, 4));
    let never = w.gang_of("a", gang("rack"), job(32, 4));
    w.settle();
    let mut nodes: Vec<_> = on_b.iter().filter_map(|no| w.node_of(*no)).collect();
    nodes.sort();
    assert_eq!(nodes, ["n3", "n4", "n5"]);
    assert_eq!(
        (w.on_nodes(&never), w.reason(never[0])),
        (0, "no_uniform_label")
    );
}

#[test]
fn row_12_large_jobs_cordons_and_taints() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let large = w.submit("a", 3, job(64, 4));
    let small = w.submit("a", 2, job(1, 4));
    w.settle();
    assert_eq!((w.on_nodes(&large), w.on_nodes(&small)), (0, 2));
    assert_eq!(w.reason(large[0]), "larger_than_any_node");
    let cordon = |cordoned| {
        AdminChange::Cordon(CordonSet {
            node: token("n"),
            cordoned,
            drain: false,
            at_once: 0,
        })
    };
    w.admin(cordon(true));
    let later = w.submit("a", 1, job(2, 4));
    w.settle();
    assert_eq!((w.on_nodes(&small), w.on_nodes(&later)), (2, 0));
    assert_eq!(w.reason(later[0]), "no_node_matches");
    let taint = vocab::Taint {
        key: token("dedicated"),
        value: Some(token("ml")),
        effect: vocab::TaintEffect::NoSchedule,
    };
    let tainted = NodeCapacity {
        taints: vec![taint],
        ..capacity(32, 256, 0)
    };
    w.node("tainted", 1, tainted);
    w.settle();
    assert_eq!(w.on_nodes(&later), 0);
    let tolerates = PlacementRules {
        tolerations: vec![vocab::Toleration {
            key: Some(token("dedicated")),
            value: None,
        }],
        ..PlacementRules::default()
    };
    let tolerant = w.submit("a", 1, ruled(job(2, 4), tolerates));
    w.settle();
    assert_eq!(w.node_of(tolerant[0]).as_deref(), Some("tainted"));
    w.admin(cordon(false));
    w.settle();
    assert_eq!(w.node_of(later[0]).as_deref(), Some("n"));
}

#[test]
fn row_13_a_selector_leaves_two_of_four_nodes() {
    let mut w = World::new();
    for (name, value) in [("n1", "val1"), ("n2", "val2"), ("n3", "val3")] {
        w.node(name, 1, labelled(capacity(32, 256, 0), &[("label", value)]));
    }
    w.node("n4", 1, capacity(32, 256, 0));
    let rules = requires("label", vocab::Operator::NotIn, &["val1", "val2"]);
    let jobs = w.submit("a", 3, ruled(job(32, 4), rules));
    w.settle();
    let mut nodes: Vec<_> = jobs.iter().filter_map(|no| w.node_of(*no)).collect();
    nodes.sort();
    assert_eq!(nodes, ["n3", "n4"]);
    assert_eq!(w.reason(jobs[2]), "no_room_now");
}

#[test]
fn row_14_past_use_counts_until_it_is_forgiven() {
    // `b` has had everything for a long time; now both want the one place.
    let first = |idle_ms: i64| {
        let mut w = World::new();
        w.policy(|policy| policy.half_life_ms = 1000);
        w.nodes(&["n"]);
        let heavy = w.submit("b", 1, job(32, 4));
        w.settle();
        w.now.0 += 1_000_000;
        w.report(heavy[0], "n", RunState::Finished);
        w.settle();
        w.now.0 += idle_ms;
        let b = w.submit("b", 32, job(1, 4));
        let a = w.submit("a", 32, job(1, 4));
        w.settle();
        (w.on_nodes(&a), w.on_nodes(&b))
    };
    assert_eq!(first(0), (32, 0));
    assert_eq!(first(1_000_000), (16, 16));
}

#[test]
fn row_15_a_lost_nodes_allocations_run_elsewhere_and_never_twice() {
    let mut w = World::new();
    w.nodes(&["n1"]);
    let jobs = w.submit("a", 1, job(1, 4));
    w.settle();
    w.report(jobs[0], "n1", RunState::Started);
    w.nodes(&["n2"]);
    w.lose("n1");
    assert_eq!(
        spoken(&w.settle()),
        ["1 started", "1 requeued node_lost", "1 on n2"].map(|text| text.replacen(
            '1',
            &jobs[0].to_string(),
            1
        ))
    );
    // A late word of the first node counts for nothing.
    w.report(jobs[0], "n1", RunState::Finished);
    assert_eq!(spoken(&w.settle()), [""; 0]);
    assert_eq!(w.node_of(jobs[0]).as_deref(), Some("n2"));
}
