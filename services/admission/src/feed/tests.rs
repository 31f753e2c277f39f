//! Steps of one allocation, and what its tenant is told.

mod operations;
mod rebuild;

use super::*;
use crate::operation::SubmitState;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationReprioritised, AllocationRequested, AllocationRequeued, AllocationStarted,
    AllocationStopping, AllocationWaiting, PendingGroupExplained, QuotaDenied, QuotaReclaimed,
    QuotaReserved, QuotaWaiting,
};
use vocab::{
    EndCause, Event, Operation, PendingGroupNo, PlacementPolicy, PreemptionCause, QuotaFlags, Rule,
    WaitingReason,
};

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
        by: None,
    };
    match step {
        "submit" => Event::AllocationRequested(AllocationRequested {
            operation,
            spec: AllocationSpec::plain(token("j"), 1, 1),
        }),
        "quota waiting" => Event::QuotaWaiting(QuotaWaiting {
            allocation,
            refusal: Refusal::over(Rule::QuotaExceeded, "gpu", 8, 9),
        }),
        "gang waiting" => Event::QuotaWaiting(QuotaWaiting {
            allocation,
            refusal: Refusal::over(Rule::IncompleteGang, "gang", 4, 3),
        }),
        "denied" => Event::QuotaDenied(QuotaDenied {
            allocation,
            refusal: Refusal::over(Rule::QuotaExceeded, "gpu", 8, 9),
        }),
        "reserved" => Event::QuotaReserved(QuotaReserved {
            allocation,
            flags: QuotaFlags::default(),
            models: None,
        }),
        "reclaimed" => Event::QuotaReclaimed(QuotaReclaimed {
            allocation,
            by: None,
        }),
        "priority" => Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority: 7,
        }),
        "waiting" => Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason: WaitingReason::Nominated,
            pending_group: Some(PendingGroupNo(4)),
        }),
        "explained" => Event::PendingGroupExplained(PendingGroupExplained {
            pending_group: PendingGroupNo(4),
            queue: token("t"),
            reason: WaitingReason::NoRoomNow,
            head: allocation,
            counts: Vec::new(),
            shortfall: Vec::new(),
            share_ppm: 0,
            fair_share_ppm: 0,
        }),
        "nominated" => Event::AllocationNominated(AllocationNominated {
            allocation,
            node: token("n"),
            incarnation: 1,
        }),
        "placed" => Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: token("n"),
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        }),
        "started" => Event::AllocationStarted(AllocationStarted {
            allocation,
            at: now,
        }),
        "preempted" => Event::AllocationPreempted(AllocationPreempted {
            allocation,
            cause: PreemptionCause::Priority,
            by: Some(AllocationNo(2)),
            grace_until: now.plus(100),
        }),
        "stopping" => Event::AllocationStopping(AllocationStopping {
            allocation,
            time_limit: false,
        }),
        "requeued" => Event::AllocationRequeued(AllocationRequeued {
            allocation,
            cause: EndCause::Preempted,
            at: now,
            not_before: now.plus(1000),
            exit: None,
        }),
        "ended" => Event::AllocationEnded(AllocationEnded {
            allocation,
            cause: EndCause::Finished,
            at: now,
            exit: None,
        }),
        other => panic!("{other}"),
    }
}

/// What an item says, in a few words.
fn words(item: &FeedItem) -> String {
    match &item.kind {
        FeedKind::Outcome(outcome) => outcome_words(&outcome.kind),
        FeedKind::Requested { .. } => format!("requested {}", item.job_set),
        FeedKind::PriorityChanged(priority) => format!("priority {priority}"),
        FeedKind::Denied(refusal) => format!("denied {refusal}"),
        FeedKind::Placed { .. } => "placed".into(),
        FeedKind::Waiting(waiting) => waiting_words(waiting),
        FeedKind::Started { at } => format!("started @{}", at.0),
        FeedKind::Stopping { time_limit } => format!(
            "stopping{}",
            if *time_limit {
                " at its time limit"
            } else {
                ""
            }
        ),
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
            ..
        } => format!("requeued {} @{} until {}", cause.name(), at.0, not_before.0),
        FeedKind::Expired {
            lease,
            fencing_token,
        } => {
            format!("expired {} fencing_token {fencing_token}", lease.0)
        }
    }
}

fn waiting_words(waiting: &Waiting) -> String {
    match &waiting.quota {
        None => waiting.reason.name().into(),
        Some(refusal) => format!("{} {refusal}", waiting.reason.name()),
    }
}

fn outcome_words(kind: &OutcomeKind) -> String {
    match kind {
        OutcomeKind::Submitted { state, .. } => match state {
            SubmitState::Placed { .. } => "-> placed".into(),
            SubmitState::Waiting(waiting) => format!("-> {}", waiting_words(waiting)),
            SubmitState::Ended { .. } => "-> ended".into(),
        },
        OutcomeKind::Refused(refusal) => format!("-> {refusal}"),
        OutcomeKind::Cancelled { .. } => "-> cancelled".into(),
        OutcomeKind::JobSetCancelled { allocations } => format!("-> {allocations} cancelled"),
        OutcomeKind::PrioritySet { allocations } => format!("-> {allocations} set"),
        OutcomeKind::Applied { version } => format!("-> applied {version}"),
        OutcomeKind::ResourceCreated => "-> created".into(),
        OutcomeKind::Granted { lease, deadline } => {
            format!("-> granted {} until {deadline}", lease.0)
        }
        OutcomeKind::Confirmed => "-> confirmed".into(),
        OutcomeKind::Released { fencing_token } => {
            format!("-> released fencing_token {fencing_token}")
        }
        OutcomeKind::Revoked { fencing_token } => {
            format!("-> revoked fencing_token {fencing_token}")
        }
        OutcomeKind::Reclaimed => "-> reclaimed".into(),
        OutcomeKind::Passes(_) => "-> passes".into(),
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
        feed.project_event(&at, &event(step, now), &mut items)
            .unwrap();
    }
    let positions = items.iter().map(|item| item.position);
    assert!(positions.is_sorted_by(|a, b| a < b), "{steps}");
    let words: Vec<String> = items.iter().map(words).collect();
    assert_eq!(words.join(", "), expected, "{steps}");
}

#[test]
fn the_first_decision_answers_and_the_inside_stays_inside() {
    check(
        "submit, reserved, nominated, waiting, explained, placed",
        "requested j, -> nominated, nominated, placed",
    );
}

#[test]
fn what_waits_for_quota_is_told_what_it_waits_for() {
    check(
        "submit, quota waiting, reserved, waiting, placed",
        "requested j, -> quota quota exceeded: gpu (limit 8, actual 9), \
         quota quota exceeded: gpu (limit 8, actual 9), nominated, placed",
    );
    check(
        "submit, gang waiting, quota waiting, denied",
        "requested j, -> gang_incomplete, gang_incomplete, quota quota exceeded: gpu (limit 8, actual 9), \
         denied quota exceeded: gpu (limit 8, actual 9)",
    );
    check(
        "submit, denied",
        "requested j, -> quota exceeded: gpu (limit 8, actual 9)",
    );
}

#[test]
fn a_run_that_is_over_is_told_and_so_is_the_next() {
    check(
        "submit, placed, started, reclaimed, preempted, stopping, requeued, waiting, placed, started, ended",
        "requested j, -> placed, placed, started @3, preempted priority until 105, stopping, \
         requeued preempted @7 until 1007, nominated, placed, started @10, ended 10..11",
    );
    // It never ran again.
    check(
        "submit, placed, started, requeued, priority, ended",
        "requested j, -> placed, placed, started @3, requeued preempted @4 until 1004, priority 7, ended 0..6",
    );
}
