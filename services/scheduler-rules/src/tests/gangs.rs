//! Gangs: the order in which places are found for members, and the reasons that members have while they wait for each other.

use super::*;
use vocab::{GroupTerm, Spread};

fn gang(name: &str, size: u32, min: u32) -> Option<Gang> {
    Some(Gang {
        name: token(name),
        size,
        min,
        uniform_label: None,
    })
}

fn of_group(group: &str, spec: AllocationSpec) -> AllocationSpec {
    let rules = spec.rules.clone().map_or_else(Default::default, |it| *it);
    let group = Some(token(group));
    ruled(spec, PlacementRules { group, ..rules })
}

fn near(group: &str, spec: AllocationSpec) -> AllocationSpec {
    let affinity = vec![GroupTerm {
        group: token(group),
        topology_key: None,
    }];
    ruled(
        spec,
        PlacementRules {
            affinity,
            ..PlacementRules::default()
        },
    )
}

fn spread(spec: AllocationSpec) -> AllocationSpec {
    let spread = vec![Spread {
        topology_key: None,
        max_skew: 1,
    }];
    ruled(
        spec,
        PlacementRules {
            spread,
            ..PlacementRules::default()
        },
    )
}

/// Members of one gang, in this order.
fn submit(w: &mut World, members: &[AllocationSpec]) -> Vec<u64> {
    let size = members.len() as u32;
    let with = |spec: &AllocationSpec| AllocationSpec {
        gang: gang("g", size, size),
        ..spec.clone()
    };
    let all = members.iter().map(|spec| w.submit("t", 1, with(spec))[0]);
    all.collect()
}

#[test]
fn members_find_places_whichever_has_to_come_first() {
    let check = |members: &[AllocationSpec]| {
        for turn in 0..members.len() {
            let mut members = members.to_vec();
            members.rotate_left(turn);
            for members in [members.clone(), members.into_iter().rev().collect()] {
                let mut w = World::new();
                w.node("n", 1, capacity(8, 64, 0));
                w.node("m", 1, capacity(8, 64, 0));
                let placed = submit(&mut w, &members);
                w.settle();
                assert_eq!(w.on_nodes(&placed), members.len(), "{members:?}");
            }
        }
    };
    // The smallest has to be spread before the next one comes, and the largest leaves one node to both.
    check(&[
        of_group("web", spread(job(2, 1))),
        of_group("web", job(1, 60)),
        job(8, 1),
    ]);
    // The largest has to wait for the one that it wants to be near.
    check(&[near("db", job(5, 1)), of_group("db", job(2, 1)), job(6, 1)]);
    let ring = |of, to, cores| of_group(of, near(to, job(cores, 1)));
    check(&[
        ring("b", "a", 3),
        ring("c", "b", 2),
        of_group("a", job(1, 1)),
        job(8, 8),
    ]);
}

#[test]
fn members_that_lack_others_are_told_so() {
    let retried = |retries| {
        let mut spec = job(1, 1);
        spec.restart.retries = retries;
        spec
    };
    let gang_of = |w: &mut World, retries| {
        let spec = AllocationSpec {
            gang: gang("g", 3, 3),
            ..retried(retries)
        };
        w.nodes(&["n"]);
        let members = w.submit("t", 3, spec);
        w.settle();
        assert_eq!(w.on_nodes(&members), 3);
        members
    };
    let told = |w: &World, members: &[u64]| {
        let reasons = members.iter().map(|no| w.reason(*no));
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            vec!["gang_incomplete"; members.len()]
        );
    };

    // One member failed and has no retries left; then the node is lost.
    let mut w = World::new();
    let members = gang_of(&mut w, 0);
    w.report_by_itself(members[0], "n", RunState::Failed);
    w.settle();
    w.lose("n");
    w.settle();
    told(&w, &members[1..]);

    // A fellow is cancelled, the others pause.
    let mut w = World::new();
    w.policy(|policy| policy.backoff_ms = 1000);
    let members = gang_of(&mut w, 3);
    for no in &members {
        w.report_by_itself(*no, "n", RunState::Failed);
    }
    w.decide();
    w.cancel(members[0]);
    w.settle();
    w.now = w.now.plus(60_000);
    w.settle();
    told(&w, &members[1..]);

    // Only one comes back from its pause.
    let mut w = World::new();
    w.policy(|policy| policy.backoff_ms = 1000);
    let members = gang_of(&mut w, 3);
    w.report_by_itself(members[0], "n", RunState::Failed);
    w.settle();
    told(&w, &members[1..]);
    assert_eq!(w.on_nodes(&members), 0);
    w.now = w.now.plus(60_000);
    w.settle();
    assert_eq!(w.on_nodes(&members), 3);
}

#[test]
fn members_are_told_where_their_gang_stands_once_it_is_complete() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    w.submit("b", 1, job(4, 1));
    let spec = AllocationSpec {
        gang: gang("g", 3, 3),
        ..job(1, 1)
    };
    let mut members = w.submit("t", 2, spec.clone());
    w.settle();
    assert_eq!(w.reason(members[0]), "gang_incomplete");
    members.extend(w.submit("t", 1, spec));
    let events = w.settle();
    let told = events.iter().filter_map(|event| match event {
        Event::AllocationWaiting(told) if told.pending_group.is_some() => Some(told.allocation.0),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), members);
    assert_eq!(w.reason(members[0]), "gang_no_room");
    // Without one of them it lacks members again.
    w.cancel(members[1]);
    w.settle();
    assert_eq!(w.reason(members[0]), "gang_incomplete");
    assert_eq!(w.reason(members[2]), "gang_incomplete");
}

#[test]
fn a_member_whose_return_completes_its_gang_is_told_where_the_gang_stands() {
    let mut w = World::new();
    w.policy(|policy| policy.backoff_ms = 1000);
    w.node("n", 1, capacity(4, 64, 0));
    let mut spec = job(2, 1);
    spec.restart.retries = 3;
    spec.gang = gang("g", 2, 2);
    let members = w.submit("t", 2, spec);
    w.settle();
    assert_eq!(w.on_nodes(&members), 2);
    w.report_by_itself(members[0], "n", RunState::Failed);
    w.settle();
    let other = w.submit("b", 1, job(4, 1));
    w.settle();
    assert_eq!(w.on_nodes(&other), 1);
    w.now = w.now.plus(60_000);
    let events = w.settle();
    for no in members {
        let mut last = events.iter().rev().filter_map(|event| match event {
            Event::AllocationWaiting(told) if told.allocation.0 == no => Some(told.pending_group),
            _ => None,
        });
        assert!(last.next().is_some_and(|it| it.is_some()), "{no}");
    }
}
