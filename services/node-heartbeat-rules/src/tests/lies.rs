//! What an agent may say that is not so, and what stands on the ledger then: nothing, or what the ledger itself bears out.

use super::*;

/// Node `n` in its second life, with run 7 that was placed at 20 and said to have begun at 25; node `m` with run 8. It is 30.
fn cell() -> Table {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.check(0, of_m(register(1)), &["m registered 1"]);
    t.check(9, of_m(heartbeat(1, 0)), &[]);
    t.check(9, register(2), &["n lost, seen 9", "n registered 2"]);
    for now in [15, 20] {
        t.check(now, of_m(heartbeat(1, 0)), &[]);
        t.check(now, heartbeat(2, 0), &[]);
    }
    t.place(7, "n", 2);
    t.place(8, "m", 1);
    t.check(
        25,
        report(2, 7, RunState::Started, 25),
        &["7 Started at 25"],
    );
    t.check(25, of_m(heartbeat(1, 0)), &[]);
    t.check(29, heartbeat(2, 1), &[]);
    t.effects();
    t
}

fn check(lie: Option<Command>, expected: &[&str]) {
    cell().check(30, lie, expected);
}

#[test]
fn what_is_not_the_nodes_own_is_not_moved() {
    let finished = |boot, no| report(boot, no, RunState::Finished, 30);
    check(finished(2, 8), &[]);
    check(finished(2, 9), &[]);
    // Of a former life, and of one that has not registered.
    check(finished(1, 7), &[]);
    check(finished(3, 7), &[]);
}

#[test]
fn a_moment_is_between_what_the_ledger_knows_and_now() {
    let finished = |at| report(2, 7, RunState::Finished, at);
    check(finished(10), &["7 Finished at 25"]);
    check(finished(28), &["7 Finished at 28"]);
    check(finished(1_000_000), &["7 Finished at 30"]);
    check(finished(i64::MIN), &["7 Finished at 25"]);
    check(finished(i64::MAX), &["7 Finished at 30"]);
}

#[test]
fn a_run_begins_once_and_ends_once() {
    check(report(2, 7, RunState::Started, 29), &[]);
    let mut t = cell();
    t.check(30, report(2, 7, RunState::Failed, 30), &["7 Failed at 30"]);
    for state in [RunState::Started, RunState::Finished, RunState::Rejected] {
        t.check(30, report(2, 7, state, 30), &[]);
    }
}

#[test]
fn an_end_is_of_a_stop_only_if_the_run_was_told_to_stop() {
    // Nobody has told it to: what it says to have seen may be from a leader that reads faster, and then its stop follows.
    let mut t = cell();
    t.stop(7);
    t.check(
        30,
        report(2, 7, RunState::Finished, 30),
        &["7 Stopped at 30"],
    );
    check(report(2, 7, RunState::Finished, 30), &["7 Finished at 30"]);
}

#[test]
fn a_capacity_is_no_more_than_what_was_approved_or_can_be() {
    let register = |change: fn(&mut NodeCapacity)| {
        let mut capacity = capacity();
        change(&mut capacity);
        Some(Command::Register {
            node: token("n"),
            boot: 3,
            capacity: Box::new(capacity),
            change: 0,
        })
    };
    check(
        register(|it| it.labels.reverse()),
        &["n lost, seen 30", "n registered 3"],
    );
    check(register(|it| it.gpus = u16::MAX), &[]);
    check(
        register(|it| it.labels = vec![(token("b"), token("v")), (token("a"), token("v"))]),
        &[],
    );
}

#[test]
fn a_heartbeat_renews_no_other_life_and_asks_for_no_more_than_there_is() {
    for (boot, revision) in [(1, 0), (3, 0), (2, u64::MAX)] {
        let mut t = cell();
        t.check(30, heartbeat(boot, revision), &[]);
        assert_eq!(t.effects(), Vec::<String>::new(), "{boot} {revision}");
    }
    // What is said of other lives keeps nobody alive.
    let mut t = cell();
    for now in 31..=39 {
        t.check(
            now,
            of_m(heartbeat(1, 0)),
            if now == 35 {
                &["n suspected, seen 29"]
            } else {
                &[]
            },
        );
        t.check(now, heartbeat(3, 0), &[]);
    }
    t.check(40, heartbeat(3, 0), &["n lost, seen 29"]);
}
