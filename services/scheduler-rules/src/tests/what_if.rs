//! What would be different, in words. Allocations are numbered from 1 in the order of their requests.

use super::*;
use crate::what_if::{self, Change, Preempted, Standing, WhatIfError};
use vocab::fact::{CordonSet, QueueSet};

fn standing(standing: &Standing) -> String {
    match standing {
        Standing::AwaitingQuota => "awaits quota".into(),
        Standing::Waits(reason) => reason.name().into(),
        Standing::On(node) => node.to_string(),
        Standing::Ended(cause) => cause.name().into(),
    }
}

/// Decides what is open, then looks at the changes.
fn check(w: &mut World, changes: &[Change], expected: &[&str]) {
    w.settle();
    check_undecided(w, changes, expected);
}

/// The same, with what the ledger says and nobody has decided yet.
fn check_undecided(w: &World, changes: &[Change], expected: &[&str]) {
    let before = ledger::state_digest(&w.state);
    let found = what_if::run(&w.state, w.now, changes).unwrap();
    assert_eq!(ledger::state_digest(&w.state), before);
    let nothing = what_if::run(&w.state, w.now, &[]).unwrap();
    assert!(nothing.is_empty(), "{nothing:?}");

    let no = |no: AllocationNo| w.state.live().keys().position(|one| *one == no).unwrap() + 1;
    let gone = |one: &Preempted, verb: &str| {
        let by = match (one.by, one.by_extra) {
            (Some(by), _) => no(by).to_string(),
            (_, Some(extra)) => format!("request {}", extra + 1),
            _ => "nobody".into(),
        };
        format!(
            "{} {verb} {} for {by}",
            no(one.allocation),
            one.cause.name()
        )
    };
    let mut words = Vec::new();
    for (one, number) in found.requested.iter().zip(1..) {
        let counts = one
            .counts
            .iter()
            .map(|(filter, count)| format!(" {}:{count}", filter.name()));
        let counts: String = counts.collect();
        words.push(format!(
            "request {number} {}{counts}",
            standing(&one.standing)
        ));
    }
    for one in &found.allocations {
        let (from, to) = (standing(&one.before), standing(&one.after));
        words.push(format!(
            "{} {:?} {from} -> {to}",
            no(one.allocation),
            one.kind()
        ));
    }
    words.extend(found.preempted.iter().map(|one| gone(one, "preempted")));
    words.extend(found.spared.iter().map(|one| gone(one, "spared")));
    for one in &found.queues {
        let percent = |ppm: u32| ppm.div_ceil(10_000);
        words.push(format!(
            "{} {}/{} -> {}/{}",
            one.queue,
            percent(one.before.share_ppm),
            percent(one.before.fair_share_ppm),
            percent(one.after.share_ppm),
            percent(one.after.fair_share_ppm),
        ));
    }
    let (from, to) = (found.nodes_before, found.nodes_after);
    if from != to {
        words.push(format!(
            "nodes {}/{} -> {}/{}",
            from.used, from.ready, to.used, to.ready
        ));
    }
    if found.preemption_limited {
        words.push("preemption limited".into());
    }
    assert_eq!(words, expected);
}

fn request(tenant: &str, spec: AllocationSpec) -> Change {
    Change::Request {
        tenant: token(tenant),
        spec: Box::new(spec),
    }
}

fn weight(queue: &str, weight_milli: u32) -> Change {
    Change::Admin(AdminChange::Queue(QueueSet {
        queue: token(queue),
        closed: false,
        settings: QueueSettings {
            weight_milli,
            ..QueueSettings::default()
        },
    }))
}

#[test]
fn a_weight_moves_places_between_queues() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.submit("a", 4, class(job(8, 1), 1));
    w.settle();
    w.submit("b", 4, class(job(8, 1), 1));
    let expected = [
        "2 Unplaced n -> no_room_now",
        "7 Placed no_room_now -> n",
        "2 preempted fair_share for 7",
        "a 50/50 -> 25/25",
        "b 50/50 -> 75/75",
    ];
    check(&mut w, &[weight("b", 3000)], &expected);
}

#[test]
fn one_more_node_takes_those_who_wait() {
    let mut w = World::new();
    w.nodes(&["n1"]);
    w.submit("t", 3, job(20, 1));
    let like = Box::new(capacity(32, 256, 0));
    let nodes = |names: &[&str]| Change::AddNodes {
        like: like.clone(),
        names: names.iter().map(|name| token(name)).collect(),
    };
    let expected = [
        "2 Placed no_room_now -> n2",
        "t 63/100 -> 63/94",
        "nodes 1/1 -> 2/2",
    ];
    check(&mut w, &[nodes(&["n2"])], &expected);
    let again = what_if::run(&w.state, w.now, &[nodes(&["n1"])]);
    assert_eq!(again, Err(WhatIfError::NodeExists(token("n1"))));
}

#[test]
fn a_lost_node_sends_back_what_ran_there() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    w.policy(|policy| policy.placement = vocab::PlacementPolicy::BestFit);
    let stubborn = AllocationSpec {
        restart: vocab::Restart {
            never: true,
            ..Default::default()
        },
        ..job(8, 1)
    };
    w.submit("t", 1, job(20, 1));
    w.submit("t", 1, job(28, 1));
    w.submit("t", 1, stubborn);
    w.settle();
    let lost = |name: &str| Change::RemoveNode(token(name));
    let expected = [
        "1 Unplaced n1 -> no_room_now",
        "3 Ended n1 -> node_lost",
        "t 88/88 -> 88/100",
        "nodes 2/2 -> 1/1",
    ];
    check(&mut w, &[lost("n1")], &expected);
    w.submit("t", 1, job(20, 1));
    let expected = [
        "1 Unplaced n1 -> no_node_ready",
        "2 Unplaced n2 -> no_node_ready",
        "3 Ended n1 -> node_lost",
        "4 Waits no_room_now -> no_node_ready",
        "t 88/100 -> 0/0",
        "nodes 2/2 -> 0/0",
    ];
    check(&mut w, &[lost("n1"), lost("n2")], &expected);
    let unknown = what_if::run(&w.state, w.now, &[lost("n9")]);
    assert_eq!(unknown, Err(WhatIfError::NoSuchNode(token("n9"))));
}

#[test]
fn a_request_may_send_others_back() {
    let mut w = World::new();
    w.nodes(&["n"]);
    w.submit("t", 2, class(job(16, 1), 0));
    let expected = [
        "request 1 n",
        "2 Unplaced n -> no_room_now",
        "2 preempted priority for request 1",
    ];
    check(&mut w, &[request("t", class(job(16, 1), 2))], &expected);
    let equal = request("t", class(job(16, 1), 0));
    check(&mut w, &[equal], &["request 1 no_room_now cpu:1"]);
    w.policy(|policy| policy.preemptions_per_minute = 1);
    let both = request("t", class(job(32, 1), 2));
    // More than may go in a minute go together after a minute without any.
    let expected = [
        "request 1 n",
        "1 Unplaced n -> no_room_now",
        "2 Unplaced n -> no_room_now",
        "1 preempted priority for request 1",
        "2 preempted priority for request 1",
    ];
    check(&mut w, std::slice::from_ref(&both), &expected);
    w.submit("t", 1, class(job(16, 1), 1));
    w.settle();
    let expected = ["request 1 preemption_limit cpu:1", "preemption limited"];
    check(&mut w, &[both], &expected);
}

#[test]
fn another_policy_chooses_other_nodes() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    let policy = |placement| SchedulingPolicy {
        placement,
        ..SchedulingPolicy::default()
    };
    w.policy(|settings| *settings = policy(vocab::PlacementPolicy::BestFit));
    w.submit("t", 2, job(4, 1));
    let spread = Change::Admin(AdminChange::Scheduling(SchedulingSet {
        policy: policy(vocab::PlacementPolicy::Spread),
    }));
    check_undecided(
        &w,
        std::slice::from_ref(&spread),
        &["2 Moved n1 -> n2", "nodes 1/2 -> 2/2"],
    );
    // What has its place keeps it.
    check(&mut w, &[spread], &[]);
}

#[test]
fn a_request_that_is_too_large_is_told_why() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    w.node("g", 1, capacity(8, 64, 4));
    let reason = "request 1 larger_than_any_node capacity:3";
    check(&mut w, &[request("t", job(64, 1))], &[reason]);
    let devices = gpus(job(1, 1), 8, 1000);
    let reason = "request 1 larger_than_any_node gpu_model:2 capacity:1";
    check(&mut w, &[request("t", devices)], &[reason]);
}

#[test]
fn a_cordon_and_a_gang_are_seen_together() {
    let mut w = World::new();
    w.nodes(&["n1", "n2"]);
    let member = AllocationSpec {
        gang: Some(Gang {
            name: token("g"),
            size: 2,
            min: 2,
            uniform_label: None,
        }),
        ..job(30, 1)
    };
    let gang = [request("t", member.clone()), request("t", member.clone())];
    let expected = [
        "request 1 n1",
        "request 2 n2",
        "t 0/0 -> 94/94",
        "nodes 0/2 -> 2/2",
    ];
    check(&mut w, &gang, &expected);
    check(&mut w, &gang[..1], &["request 1 gang_incomplete"]);
    let cordon = Change::Admin(AdminChange::Cordon(CordonSet {
        node: token("n1"),
        cordoned: true,
        drain: false,
        at_once: 0,
    }));
    let [one, other] = gang;
    let expected = [
        "request 1 gang_no_room cordoned:1",
        "request 2 gang_no_room cordoned:1",
    ];
    check(&mut w, &[cordon, one, other], &expected);
}

#[test]
fn a_sweep_that_does_not_fit_into_one_frame_is_finished() {
    let mut w = World::new();
    let nodes = 300;
    for node in 0..nodes {
        w.node(&format!("n{node}"), 1, two_zones());
    }
    w.submit("a", 2 * nodes, class(in_one_zone(job(3, 1)), 0));
    w.settle();
    w.submit("a", 2 * nodes, class(job(1, 1), 2));
    w.settle();
    // No zone can be cleared for these, but many nodes have to be examined.
    for gib in 1..5 {
        w.submit("b", 1, class(in_one_zone(job(4, gib)), 1));
    }
    w.settle();
    let found = what_if::run(&w.state, w.now, &[request("b", class(job(1, 1), 1))]).unwrap();
    let standing = &found.requested[0].standing;
    assert!(matches!(standing, Standing::On(_)), "{standing:?}");
}
