//! Steps of one allocation, and what its tenant is told.

use super::*;
use vocab::{AllocationSpec, LineNo, PlacementPolicy};

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// Of allocation 1.
fn event(step: &str, now: Millis) -> Event {
    let allocation = AllocationNo(1);
    let operation = Operation {
        tenant: token("t"),
        operation_id: Some(token("op")),
        digest: [7; 16],
        reply_to: None,
        trace: None,
    };
    match step {
        "submit" => Event::AllocationRequested {
            operation,
            spec: AllocationSpec::plain(token("j"), 1, 1),
        },
        "waiting" => Event::AllocationWaiting {
            allocation,
            reason: WaitingReason::Nominated,
            line: Some(LineNo(4)),
        },
        "explained" => Event::LineExplained {
            line: LineNo(4),
            queue: token("t"),
            reason: WaitingReason::NoRoomNow,
            head: allocation,
            counts: Vec::new(),
            shortfall: Vec::new(),
            share_ppm: 0,
            fair_share_ppm: 0,
        },
        "nominated" => Event::AllocationNominated {
            allocation,
            node: token("n"),
            incarnation: 1,
        },
        "placed" => Event::AllocationPlaced {
            allocation,
            node: token("n"),
            incarnation: 1,
            gpus: Vec::new(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Vec::new(),
        },
        "started" => Event::AllocationStarted {
            allocation,
            at: now,
        },
        "preempted" => Event::AllocationPreempted {
            allocation,
            cause: PreemptionCause::Priority,
            by: Some(AllocationNo(2)),
            grace_until: now.plus(100),
        },
        "stopping" => Event::AllocationStopping { allocation },
        "requeued" => Event::AllocationRequeued {
            allocation,
            cause: EndCause::Preempted,
            at: now,
            not_before: now.plus(1000),
        },
        "ended" => Event::AllocationEnded {
            allocation,
            cause: EndCause::Finished,
            at: now,
        },
        other => panic!("{other}"),
    }
}

/// Steps, one millisecond apart; then what is told.
fn check(steps: &str, expected: &str) {
    let mut feed = Feed::default();
    let mut items = Vec::new();
    for (i, step) in steps.split(", ").enumerate() {
        let now = Millis(i as i64 + 1);
        let at = At {
            lsn: Lsn(i as u64 + 1),
            index: 0,
            no: EventNo(1),
            now,
        };
        feed.project(&at, &event(step, now), &mut items).unwrap();
    }
    let positions = items.iter().map(|item| item.position);
    assert!(positions.is_sorted_by(|a, b| a < b), "{steps}");
    let words: Vec<String> = items
        .iter()
        .map(|item| match &item.kind {
            FeedKind::Outcome(_) => "outcome".into(),
            FeedKind::Placed { .. } => "placed".into(),
            FeedKind::Waiting(reason) => reason.name().into(),
            FeedKind::Started { at } => format!("started @{}", at.0),
            FeedKind::Stopping => "stopping".into(),
            FeedKind::Ended { started, at, .. } => {
                format!("ended {}..{}", started.map_or(0, |at| at.0), at.0)
            }
            FeedKind::Preempted { cause, grace_until } => {
                format!("preempted {} until {}", cause.name(), grace_until.0)
            }
            FeedKind::Requeued {
                cause,
                at,
                not_before,
            } => format!("requeued {} @{} until {}", cause.name(), at.0, not_before.0),
        })
        .collect();
    assert_eq!(words.join(", "), expected, "{steps}");
}

#[test]
fn the_first_decision_answers_and_the_inside_stays_inside() {
    check(
        "submit, nominated, waiting, explained, placed",
        "outcome, nominated, placed",
    );
}

#[test]
fn a_run_that_is_over_is_told_and_so_is_the_next() {
    check(
        "submit, placed, started, preempted, stopping, requeued, waiting, placed, started, ended",
        "outcome, placed, started @3, preempted priority until 104, stopping, \
         requeued preempted @6 until 1006, nominated, placed, started @9, ended 9..10",
    );
    // It never ran again.
    check(
        "submit, placed, started, requeued, ended",
        "outcome, placed, started @3, requeued preempted @4 until 1004, ended 0..5",
    );
}
