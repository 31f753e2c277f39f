//! Facts of node-heartbeat that do not fit the state. Each is an error of the ledger or of the code, and the leader stops.

use super::*;

/// Compares the reason for which the state refuses the fact, or `fits`.
fn check(t: &Table, fact: impl Into<Event>, expected: &str) {
    let fact = fact.into();
    let found = t.state.clone().evolve_event(&t.at(0), &fact);
    let found = found.map_or_else(|illegal| illegal.state, |()| "fits");
    assert_eq!(found, expected, "{fact:?}");
}

fn registered(node: &str, incarnation: u64, boot: u64) -> NodeRegistered {
    NodeRegistered {
        node: token(node),
        incarnation,
        boot,
        capacity: capacity(),
    }
}

fn ready(node: &str, incarnation: u64) -> NodeReady {
    NodeReady {
        node: token(node),
        incarnation,
    }
}

fn suspected(node: &str, incarnation: u64) -> NodeSuspected {
    NodeSuspected {
        node: token(node),
        incarnation,
        last_seen: Millis(0),
    }
}

fn lost(node: &str, incarnation: u64) -> NodeLost {
    NodeLost {
        node: token(node),
        incarnation,
        last_seen: Millis(0),
    }
}

fn forgotten(node: &str) -> NodeForgotten {
    NodeForgotten { node: token(node) }
}

fn resized(incarnation: u64, change: u64, cpu_milli: u64) -> NodeCapacityChanged {
    NodeCapacityChanged {
        node: token("n"),
        incarnation,
        change,
        capacity: NodeCapacity {
            cpu_milli,
            ..capacity()
        },
    }
}

fn condition(node: &str, condition: &str, holds: bool) -> NodeConditionChanged {
    NodeConditionChanged {
        node: token(node),
        condition: token(condition),
        holds,
        reason: None,
    }
}

fn reported(no: u64, state: RunState) -> RunReported {
    RunReported {
        allocation: AllocationNo(no),
        node: token("n"),
        state,
        at: Millis(1),
        exit: None,
    }
}

/// Node `n` in its boot 5 and incarnation 1.
fn one_node() -> Table {
    let mut t = Table::new();
    t.check(0, register(5), &["n registered 5"]);
    assert_eq!(t.lives[&(token("n"), 5)], 1);
    t
}

#[test]
fn a_node_registers_with_a_higher_incarnation_and_boot_than_before() {
    let mut t = one_node();
    let refused = "registered already";
    check(&t, registered("n", 2, 6), refused);
    check(&t, registered("m", 1, 1), "fits");
    t.check(11, None, &["n lost, seen 0"]);
    check(&t, registered("n", 1, 6), refused);
    check(&t, registered("n", 2, 5), refused);
    check(&t, registered("n", 2, 4), refused);
    check(&t, registered("n", 2, 6), "fits");
}

#[test]
fn a_node_is_ready_again_only_after_it_was_suspected_or_lost() {
    let mut t = two_nodes(Level::KNOWN);
    let refused = "not suspected or lost in this incarnation";
    check(&t, ready("n", 1), refused);
    check(&t, ready("k", 1), refused);
    t.check(6, of_m(heartbeat(1, 0)), &[]);
    t.check(9, of_m(heartbeat(1, 0)), &["n suspected, seen 3"]);
    check(&t, ready("n", 1), "fits");
    check(&t, ready("n", 2), refused);
    t.check(12, of_m(heartbeat(1, 0)), &[]);
    t.check(14, None, &["n lost, seen 3"]);
    check(&t, ready("n", 1), "fits");
    check(&t, ready("n", 2), refused);
}

#[test]
fn only_a_ready_node_is_suspected_or_lost() {
    let mut t = two_nodes(Level::KNOWN);
    let refused = "not ready in this incarnation";
    for incarnation in [0, 2] {
        check(&t, suspected("n", incarnation), refused);
        check(&t, lost("n", incarnation), refused);
    }
    check(&t, suspected("n", 1), "fits");
    check(&t, lost("n", 1), "fits");
    t.check(6, of_m(heartbeat(1, 0)), &[]);
    t.check(9, of_m(heartbeat(1, 0)), &["n suspected, seen 3"]);
    check(&t, suspected("n", 1), refused);
    check(&t, lost("n", 1), "fits");
    t.check(12, of_m(heartbeat(1, 0)), &[]);
    t.check(14, None, &["n lost, seen 3"]);
    check(&t, suspected("n", 1), refused);
    check(&t, lost("n", 1), refused);
}

#[test]
fn only_a_lost_node_is_forgotten() {
    let mut t = one_node();
    let refused = "not there, or not lost";
    check(&t, forgotten("n"), refused);
    check(&t, forgotten("m"), refused);
    t.check(11, None, &["n lost, seen 0"]);
    check(&t, forgotten("n"), "fits");
}

#[test]
fn a_change_of_capacity_counts_up_in_its_incarnation() {
    let mut t = one_node();
    let change = |change, cpu_milli| {
        let capacity = NodeCapacity {
            cpu_milli,
            ..capacity()
        };
        Some(Command::Register {
            node: token("n"),
            boot: 5,
            capacity: Box::new(capacity),
            change,
        })
    };
    t.check(1, change(2, 2000), &["n has 2000 by 2"]);
    let refused = "no such change in this incarnation";
    check(&t, resized(1, 1, 3000), refused);
    check(&t, resized(1, 2, 3000), refused);
    check(&t, resized(1, 3, 3000), "fits");
    check(&t, resized(2, 3, 3000), refused);
    let mut relabelled = resized(1, 3, 3000);
    relabelled.capacity.labels.clear();
    check(&t, relabelled, refused);
    t.check(12, None, &["n lost, seen 1"]);
    check(&t, resized(1, 3, 3000), refused);
}

#[test]
fn a_condition_changes_only_from_what_it_was() {
    let mut t = one_node();
    let mut beat = heartbeat(5, 0);
    if let Some(Command::Heartbeat { conditions, .. }) = &mut beat {
        conditions.insert(token("A"), None);
    }
    t.check(1, beat, &["n has A"]);
    check(&t, condition("n", "A", true), "as it was");
    check(&t, condition("n", "A", false), "fits");
    check(&t, condition("n", "B", true), "fits");
    check(&t, condition("n", "B", false), "as it was");
    check(&t, condition("m", "B", true), "no such node");
    let fuller = NodeConditionChanged {
        reason: Some(token("fuller")),
        ..condition("n", "A", true)
    };
    check(&t, fuller, "fits");
}

#[test]
fn a_run_starts_once_and_before_its_end() {
    let mut t = one_node();
    t.place(7, "n", 5);
    check(&t, reported(8, RunState::Started), "no such run");
    check(&t, reported(7, RunState::Started), "fits");
    t.check(1, report(5, 7, RunState::Started, 1), &["7 Started at 1"]);
    check(&t, reported(7, RunState::Started), "started already");
    check(&t, reported(7, RunState::Finished), "fits");
    t.check(2, report(5, 7, RunState::Failed, 2), &["7 Failed at 2"]);
    check(&t, reported(7, RunState::Finished), "no such run");
}

#[test]
fn a_name_is_joined_once_by_the_version_of_its_approval() {
    let mut t = Table::new();
    let joined = |version| NodeJoined {
        node: token("n"),
        key: token("A"),
        version,
    };
    let refused = "not approved, or joined already";
    check(&t, joined(1), refused);
    let approval = vocab::NodeApproval {
        capacity: capacity(),
        token: [1; 32],
        until: Millis(100),
    };
    t.state.approve(&t.at(0), &token("n"), Some(&approval), 3);
    check(&t, joined(2), refused);
    check(&t, joined(3), "fits");
    let fact = Event::from(joined(3));
    t.state.evolve_event(&t.at(0), &fact).unwrap();
    check(&t, joined(3), refused);
}
