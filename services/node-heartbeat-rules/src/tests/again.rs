//! Allocations with several runs, one after the other.

use super::*;
use vocab::Event;
use vocab::fact::{AllocationEnded, AllocationPlaced, AllocationRequeued};

/// 7 has failed on n and is there again, with revision 2; the clock is at 10.
fn placed_again() -> Table {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(7, "n", 1);
    t.check(1, report(1, 7, RunState::Started, 1), &["7 Started at 1"]);
    t.check(2, report(1, 7, RunState::Failed, 2), &["7 Failed at 2"]);
    t.requeue(7);
    t.check(3, report(1, 7, RunState::Failed, 2), &[]);
    t.now = 10;
    t.place_again(7, "n", 1);
    assert_eq!(
        t.effects(),
        ["n 7 rev 1 stop false", "n 7 rev 2 stop false"]
    );
    t
}

#[test]
fn what_was_said_of_a_former_run_is_not_said_of_the_next() {
    for state in [
        RunState::Started,
        RunState::Finished,
        RunState::Failed,
        RunState::Rejected,
    ] {
        let mut t = placed_again();
        // By the revision, whatever the agent's clock; without one, by the clock.
        t.check(10, report_of(1, 7, state, 99), &[]);
        t.check(10, report(1, 7, state, 9), &[]);
        let counts = format!("7 {state:?} at 10");
        t.check(10, report_of(2, 7, state, 9), &[counts.as_str()]);
        let mut t = placed_again();
        t.check(10, report(1, 7, state, 10), &[counts.as_str()]);
        // The agent may have seen the stop, or not yet: then what is over has ended by itself. Who does not say has seen it.
        let stopped = match state {
            RunState::Started => counts.as_str(),
            _ => "7 Stopped at 10",
        };
        for (revision, expected) in [(2, counts.as_str()), (3, stopped), (0, stopped)] {
            let mut t = placed_again();
            t.stop(7);
            t.check(10, report_of(1, 7, state, 10), &[]);
            t.check(10, report_of(revision, 7, state, 10), &[expected]);
        }
        // Another leader, which reads faster, has told it of the stop.
        let mut t = placed_again();
        t.check(10, report_of(3, 7, state, 10), &[stopped]);
    }
}

#[test]
fn a_run_may_be_on_another_node_next() {
    let mut t = placed_again();
    t.check(
        10,
        report(1, 7, RunState::Rejected, 10),
        &["7 Rejected at 10"],
    );
    t.requeue(7);
    let m = Command::Register {
        node: token("m"),
        boot: 1,
        capacity: Box::new(capacity()),
        change: 0,
    };
    t.check(10, Some(m), &["m registered 1"]);
    t.place_again(7, "m", 1);
    t.check(10, report(1, 7, RunState::Finished, 11), &[]);
    let sync = |node| {
        Some(Command::Sync {
            node: token(node),
            request: 1,
        })
    };
    t.check(10, sync("n"), &[]);
    t.check(10, sync("m"), &[]);
    assert_eq!(
        t.effects(),
        ["m 7 rev 1 stop false", "synced rev 2: 0", "synced rev 1: 1"]
    );
}

#[test]
fn what_a_lost_node_ran_can_be_placed_again() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(7, "n", 1);
    t.check(3, register(2), &["n lost, seen 3", "n registered 2"]);
    // Void, too: placed before the scheduler knew.
    t.place(8, "n", 1);
    for no in [7, 8] {
        t.requeue(no);
        t.place_again(no, "n", 2);
    }
    assert_eq!(
        t.effects(),
        [
            "n 7 rev 1 stop false",
            "n 7 rev 1 stop false",
            "n 8 rev 2 stop false"
        ]
    );
    // The clock of an agent may be behind; there is no former run in this life.
    t.check(5, report(2, 7, RunState::Started, 2), &["7 Started at 3"]);
    t.check(5, report(1, 7, RunState::Finished, 5), &[]);
}

#[test]
fn only_what_waits_is_placed_or_queued_again() {
    let mut t = placed_again();
    let at = t.at(0);
    let mut illegal = |event: Event| {
        let found = t.state.observe_event(&at, &event);
        found.map_err(|illegal| illegal.state)
    };
    let placed = |no| {
        Event::AllocationPlaced(AllocationPlaced {
            allocation: AllocationNo(no),
            node: token("n"),
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        })
    };
    let requeued = |no| {
        Event::AllocationRequeued(AllocationRequeued {
            allocation: AllocationNo(no),
            cause: EndCause::Failed,
            at: Millis(0),
            not_before: Millis(0),
            exit: None,
        })
    };
    let ended = Event::AllocationEnded(AllocationEnded {
        allocation: AllocationNo(7),
        cause: EndCause::Failed,
        at: Millis(0),
        exit: None,
    });
    let twice = Err("not requested, or placed already");
    assert_eq!(illegal(placed(7)), twice);
    assert_eq!(illegal(ended), Ok(()));
    assert_eq!(illegal(placed(7)), twice);
    assert_eq!(illegal(requeued(7)), Err("never requested"));
}
