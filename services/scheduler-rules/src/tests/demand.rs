//! Impossible requests: they are no demand and do not affect placement, so that others are decided as without them.

use super::*;
use vocab::{GroupTerm, NumaPolicy, Operator, ResourceKind, Spread, Topology, Zone};

fn cores(count: u64, value: i32) -> AllocationSpec {
    class(job(count, 1), value)
}

fn single(spec: AllocationSpec) -> AllocationSpec {
    let rules = PlacementRules {
        numa: NumaPolicy::Single,
        ..PlacementRules::default()
    };
    ruled(spec, rules)
}

fn term(group: &str, label: Option<&str>) -> Vec<GroupTerm> {
    vec![GroupTerm {
        group: token(group),
        topology_key: label.map(token),
    }]
}

fn grouped(rules: PlacementRules) -> AllocationSpec {
    let group = Some(token("odd"));
    ruled(cores(1, 0), PlacementRules { group, ..rules })
}

/// Requests that no node may ever hold by their rules or its zones, though amounts and labels would do.
fn odd() -> Vec<AllocationSpec> {
    let none = PlacementRules::default;
    let affinity = |group, label| PlacementRules {
        affinity: term(group, label),
        ..none()
    };
    let spread = |label: &str| PlacementRules {
        spread: vec![Spread {
            topology_key: Some(token(label)),
            max_skew: 1,
        }],
        ..none()
    };
    vec![
        single(cores(1, 0)),
        grouped(affinity("nobody", None)),
        grouped(affinity("nobody", Some("zone"))),
        grouped(affinity("odd", Some("rack"))),
        grouped(spread("rack")),
        grouped(PlacementRules {
            anti_affinity: term("nobody", None),
            ..affinity("nobody", None)
        }),
        ruled(cores(1, 0), requires("rack", Operator::Exists, &[])),
    ]
}

#[test]
fn what_rules_forbid_takes_no_share() {
    for odd in odd() {
        let mut w = World::new();
        w.nodes(&["n"]);
        w.queue("a", |q| q.weight_milli = 3000);
        w.queue("odd", |q| q.weight_milli = 8000);
        let b = w.submit("b", 32, cores(1, 0));
        w.settle();
        let odd_ones = w.submit("odd", 31, odd.clone());
        let a = w.submit("a", 32, cores(1, 0));
        w.settle();
        assert_eq!(w.on_nodes(&odd_ones), 0);
        assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (24, 8), "{odd:?}");
    }
}

#[test]
fn what_rules_forbid_makes_nobody_go() {
    for odd in odd() {
        let mut w = World::new();
        w.node("n", 1, capacity(8, 64, 0));
        w.queue("a", |q| q.weight_milli = 3000);
        w.queue("odd", |q| q.weight_milli = 8000);
        let large = w.submit("b", 1, cores(8, 0));
        w.settle();
        w.submit("odd", 8, odd.clone());
        w.submit("a", 2, cores(1, 0));
        w.settle();
        assert_eq!(w.on_nodes(&large), 1, "{odd:?}");
    }
}

#[test]
fn what_rules_forbid_teaches_placement_nothing() {
    let learned = |odd: Option<AllocationSpec>| {
        let mut w = World::new();
        w.node("n", 1, capacity(8, 64, 4));
        let odd = odd.map(|odd| gpus(odd, 1, 1000));
        w.submit("odd", odd.iter().len() * 3, odd.unwrap_or(job(1, 1)));
        w.submit("a", 5, gpus(job(1, 1), 1, 500));
        w.settle();
        w.state.fleet.popularity().clone()
    };
    let without = learned(None);
    for odd in odd() {
        assert_eq!(learned(Some(odd.clone())), without, "{odd:?}");
    }
}

fn zoned(zones: &[u64]) -> NodeCapacity {
    let zone = |cores: &u64| Zone {
        cpu_milli: cores * 1000,
        memory_bytes: 16 << 30,
        gpus: 0,
    };
    NodeCapacity {
        topology: Some(Box::new(Topology {
            zones: zones.iter().map(zone).collect(),
            distances: vec![10; zones.len() * zones.len()],
            links: Vec::new(),
        })),
        ..capacity(zones.iter().sum(), 16 * zones.len() as u64, 0)
    }
}

#[test]
fn one_zone_has_to_be_large_enough() {
    let check = |zones: &[u64], asked: u64, expected: (usize, usize)| {
        let mut w = World::new();
        w.node("n", 1, zoned(zones));
        w.queue("odd", |q| q.weight_milli = 3000);
        let b = w.submit("b", 16, cores(1, 0));
        w.settle();
        let odd = w.submit("odd", 4, single(cores(asked, 0)));
        w.settle();
        assert_eq!(
            (w.on_nodes(&b), w.on_nodes(&odd)),
            expected,
            "{zones:?} {asked}"
        );
    };
    // The queue is due twelve of sixteen cores, and uses as many of them as its requests fit.
    check(&[8, 8], 4, (4, 3));
    check(&[8, 8], 8, (8, 1));
    check(&[8, 8], 9, (16, 0));
    check(&[12, 4], 9, (7, 1));
}

#[test]
fn what_may_be_near_another_is_demand_while_that_one_is_there() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.queue("t", |q| q.weight_milli = 3000);
    let others = w.submit("b", 32, cores(1, 0));
    w.settle();
    let web = PlacementRules {
        affinity: term("db", None),
        ..PlacementRules::default()
    };
    let web = w.submit("t", 24, ruled(cores(1, 0), web));
    w.settle();
    assert_eq!((w.on_nodes(&others), w.on_nodes(&web)), (32, 0));
    let db = PlacementRules {
        group: Some(token("db")),
        ..PlacementRules::default()
    };
    let db = w.submit("t", 1, ruled(cores(1, 0), db));
    w.settle();
    assert_eq!((w.on_nodes(&others), w.on_nodes(&web)), (8, 23));
    // Without it no more of them come, and those that are there stay.
    w.report(db[0], "n", RunState::Finished);
    w.report(web[0], "n", RunState::Finished);
    w.settle();
    assert_eq!((w.on_nodes(&others), w.on_nodes(&web)), (10, 22));
}

#[test]
fn a_queue_with_a_limit_is_not_due_what_rules_forbid() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.queue("above", |q| q.limits = vec![(ResourceKind::Cpu, 16_000)]);
    for queue in ["odd", "a"] {
        w.queue(queue, |q| q.parent = Some(token("above")));
    }
    let b = w.submit("b", 32, cores(1, 0));
    w.settle();
    w.submit("odd", 31, single(cores(1, 0)));
    let a = w.submit("a", 32, cores(1, 0));
    w.settle();
    assert_eq!((w.on_nodes(&a), w.on_nodes(&b)), (16, 16));
}
