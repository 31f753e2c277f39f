use super::*;
use crate::explain::json;
use scheduler::{project::Position, store::Ahead};
use vocab::fact::{
    AllocationPlaced, AllocationPreempted, AllocationRequeued, AllocationWaiting,
    PendingGroupExplained, QuotaWaiting,
};
use vocab::{
    AllocationNo, AllocationSpec, Candidate, EndCause, Event, GpuShare, PendingGroupNo,
    PlacementPolicy, PreemptionCause, Refusal, Rule, Token, WaitingReason,
};

const CELL: CellNo = CellNo(3);

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn allocation(state: &str) -> Allocation {
    let on_node = matches!(state, "placed" | "running" | "stopping");
    Allocation {
        id: NO.id(CELL),
        tenant: "t".into(),
        operation: None,
        spec: AllocationSpec {
            priority: 5,
            priority_class: Some(token("batch")),
            ..AllocationSpec::plain(token("j"), 4000, 1 << 30)
        },
        queue: "research".into(),
        quota: None,
        quota_flags: Default::default(),
        state: state.into(),
        waiting_reason: None,
        pending_group: (state == "queued").then_some(PendingGroupNo(7)),
        nominated_node: (state == "nominated").then(|| "n1".into()),
        node: on_node.then(|| "n1".into()),
        gpus: Default::default(),
        preempted: state == "stopping",
        attempts: 0,
        last_end_cause: None,
        past: Vec::new(),
        end_cause: (state == "ended").then_some(EndCause::Finished),
        requested_at: Millis(0),
        placed_at: on_node.then_some(Millis(1000)),
        started_at: (state == "running").then_some(Millis(2000)),
        ended_at: (state == "ended").then_some(Millis(3000)),
        lsn: Lsn(9),
        exit: None,
    }
}

const NO: AllocationNo = AllocationNo(77);

fn entry(lsn: u64, fact: impl Into<Event>) -> Entry {
    let (at, lsn, index) = (Millis(lsn as i64 * 1000), Lsn(lsn), 0);
    Entry::new(Position { lsn, index }, at, fact).expect("a fact that explains something")
}

fn explanation(state: &str, history: Vec<Entry>) -> Explanation {
    Explanation {
        allocation: allocation(state),
        history,
        pending_group: None,
        place: None,
        through: Lsn(20),
    }
}

fn waits() -> Explanation {
    let group = PendingGroupExplained {
        pending_group: PendingGroupNo(7),
        queue: token("research"),
        reason: WaitingReason::NoRoomNow,
        head: ANOTHER_TENANTS,
        counts: vec![(Filter::NotReady, 1), (Filter::Cpu, 731)],
        shortfall: vec![(ResourceKind::Cpu, 2000), (ResourceKind::Memory, 1 << 30)],
        share_ppm: 12_345,
        fair_share_ppm: 250_000,
    };
    let told = AllocationWaiting {
        allocation: NO,
        reason: WaitingReason::FairShare,
        pending_group: Some(PendingGroupNo(7)),
    };
    let mut explanation = explanation("queued", vec![entry(4, told)]);
    explanation.pending_group = Some(entry(8, group));
    explanation.place = Some(PlaceInQueue {
        standing: Standing::Queued,
        since: Millis(4000),
        position: 12,
        in_queue: 300,
        position_in_line: Some(3),
        in_line: Some(40),
        ahead: Ahead {
            cpu_milli: 32_000,
            memory_bytes: 64 << 30,
            gpu_milli: 0,
        },
        start: Some(StartEstimate {
            earliest: Millis(60_000),
            latest: Millis(120_000),
            placements: 40,
        }),
        free_from: Some(Millis(90_000)),
    });
    explanation
}

fn preempted() -> Explanation {
    made_to_go(PreemptionCause::Priority)
}

fn made_to_go(cause: PreemptionCause) -> Explanation {
    let placed = AllocationPlaced {
        allocation: NO,
        incarnation: 1,
        node: token("n1"),
        gpus: vec![GpuShare {
            device: 2,
            milli: 500,
        }]
        .into(),
        zones: 0,
        policy: PlacementPolicy::Fgd,
        candidates: vec![Candidate {
            node: token("n1"),
            score: 900,
        }]
        .into(),
    };
    let gone = AllocationPreempted {
        allocation: NO,
        cause,
        by: None,
        grace_until: Millis(60_000),
    };
    explanation("stopping", vec![entry(5, placed), entry(6, gone)])
}

/// The lines between the request and the position.
fn check(explanation: &Explanation, at: Option<u64>, history: bool, expected: &[&str]) {
    let lines = lines(explanation, at.map(Lsn), history);
    assert_eq!(lines[2..lines.len() - 1], *expected);
}

#[test]
fn one_that_waits_is_told_its_place_and_what_is_missing() {
    let lines = lines(&waits(), None, false);
    let expected = [
        "allocation   00000000-0000-0003-0000-00000000004d",
        "asks for     4.000 cores, 1.000 GiB, in queue research, priority 5 (batch)",
        "It waits since 1970-01-01T00:00:04Z, because no node that it may use has enough free now.",
        "place        12 of 300 in queue research, 3 of 40 in pending group 7",
        "ahead        32.000 cores, 64.000 GiB",
        "start        1970-01-01T00:01:00Z to 1970-01-01T00:02:00Z, as 9 of 10 of the last 40 that waited as long",
        "room from    1970-01-01T00:01:30Z, if running allocations end by their run times and time limits",
        "pending group 7       of queue research, explained at 1970-01-01T00:00:08Z with another tenant's allocation at its head: \
         no node that it may use has enough free now",
        "         1 node: not ready",
        "       731 nodes: not enough free cpu",
        "missing      at least 2.000 cores and 1.000 GiB more free on one node",
        "share        1.23 % of the cell; a fair share is 25.00 %",
        "as of lsn    20",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_a_drain_stops_is_evicted() {
    for (cause, why) in [
        (PreemptionCause::Drain, "its node is drained"),
        (
            PreemptionCause::Taint,
            "its node has got a taint that it does not tolerate",
        ),
    ] {
        let lines = lines(&made_to_go(cause), None, false);
        let stops = format!("It was evicted and is stopping on n1, because {why}.");
        assert!(lines.contains(&stops), "{lines:?}");
        let entry = format!("evicted, because {why}; to be gone by 1970-01-01T00:01:00Z");
        assert!(lines.iter().any(|line| line.ends_with(&entry)), "{lines:?}");
    }
}

#[test]
fn one_on_a_node_is_told_why_there_and_what_it_lost() {
    let gone = "  6.0 1970-01-01T00:00:06Z preempted, because one of higher priority takes its place (another tenant's); \
                to be gone by 1970-01-01T00:01:00Z";
    let placed = [
        "node         n1 gpu2:500",
        "policy       fgd",
        "scores       n1 100 % of the best score",
    ];
    let stops =
        ["It was preempted and is stopping on n1, because one of higher priority takes its place."];
    let rest = ["history", gone];
    check(
        &preempted(),
        None,
        false,
        &[&stops[..], &placed, &rest].concat(),
    );
    let all = [
        "history",
        "  5.0 1970-01-01T00:00:05Z placed on n1 by the policy fgd",
        gone,
    ];
    check(
        &preempted(),
        None,
        true,
        &[&stops[..], &placed, &all].concat(),
    );
}

#[test]
fn every_state_is_a_sentence() {
    let sentences = [
        ("requested", "Quota has not decided on it yet."),
        ("queued", "It waits and was not tried yet."),
        (
            "placed",
            "It is placed on n1 since 1970-01-01T00:00:01Z and has not started.",
        ),
        ("running", "It runs on n1 since 1970-01-01T00:00:02Z."),
        (
            "ended",
            "It ended at 1970-01-01T00:00:03Z, because it finished.",
        ),
    ];
    for (state, sentence) in sentences {
        check(&explanation(state, Vec::new()), None, false, &[sentence]);
    }
    let mut pauses = waits();
    pauses.pending_group = None;
    pauses.allocation.pending_group = None;
    pauses.place = pauses.place.map(|place| PlaceInQueue {
        standing: Standing::Paused(Millis(60_000)),
        free_from: None,
        position_in_line: None,
        ahead: Ahead::default(),
        start: None,
        ..place
    });
    let expected = [
        "It pauses since 1970-01-01T00:00:04Z and is not tried before 1970-01-01T00:01:00Z.",
        "place        12 of 300 in queue research",
    ];
    check(&pauses, None, false, &expected);
}

#[test]
fn one_that_lost_a_place_before_is_told_how_often() {
    let mut again = explanation("running", Vec::new());
    again.allocation.attempts = 2;
    again.allocation.last_end_cause = Some(EndCause::NodeLost);
    let expected = [
        "It runs on n1 since 1970-01-01T00:00:02Z.",
        "again        queued again 2 times, the last because its node was lost",
    ];
    check(&again, None, false, &expected);
}

#[test]
fn an_earlier_position_is_told_by_what_was_decided_then() {
    let nothing = explanation("running", Vec::new());
    check(
        &nothing,
        Some(3),
        false,
        &["At lsn 3 nothing was decided about it yet."],
    );
    let requeued = AllocationRequeued {
        allocation: NO,
        cause: EndCause::Failed,
        at: Millis(1),
        not_before: Millis(90_000),
        exit: None,
    };
    let again = "queued again, because its run failed; not tried before 1970-01-01T00:01:30Z";
    let expected = [
        &*format!("At lsn 8, since 1970-01-01T00:00:06Z: {again}."),
        "history",
        &*format!("  6.0 1970-01-01T00:00:06Z {again}"),
    ];
    check(
        &explanation("running", vec![entry(6, requeued)]),
        Some(8),
        false,
        &expected,
    );
}

#[test]
fn programs_get_names_and_numbers() {
    let json = json::explanation(&waits(), None);
    assert_eq!(json["place"]["position_in_line"], 3);
    assert_eq!(json["pending_group_explained"]["reason"], "no_room_now");
    assert_eq!(
        json["pending_group_explained"]["detail"]["counts"]["cpu"],
        731
    );
    assert_eq!(
        json["pending_group_explained"]["detail"]["shortfall"]["memory"],
        1 << 30
    );
    assert!(json["pending_group_explained"]["detail"]["head"].is_null());
    let json = json::explanation(&preempted(), Some(Lsn(6)));
    assert_eq!(json["history"][0]["detail"]["gpus"][0]["device"], 2);
    assert_eq!(json["history"][1]["kind"], "allocation_preempted");
    assert_eq!(json["as_of_lsn"], 6);
}

#[test]
fn one_that_waits_for_quota_is_told_for_which() {
    let refusal = Refusal::over(Rule::QuotaExceeded, "t cpu", 8000, 12_000);
    let waiting = QuotaWaiting {
        allocation: NO,
        refusal: refusal.clone(),
    };
    let mut waits = explanation("awaiting_quota", vec![entry(4, waiting)]);
    waits.allocation.quota = Some(refusal);
    waits.allocation.spec.team = Some(token("team"));
    let text = lines(&waits, None, true);
    assert_eq!(
        text[1..],
        [
            "asks for     4.000 cores, 1.000 GiB, by team, in queue research, priority 5 (batch)",
            "It waits for quota.",
            "quota        cpu of t would come to 12 cores, and it may hold 8 cores now",
            "level        tenant t",
            "missing      4 cores of cpu",
            "passes when  the missing amount is free, or the limit of t is raised by that",
            "history",
            "  4.0 1970-01-01T00:00:04Z waits for quota: cpu of t would come to 12 cores, and it may hold 8 cores now",
            "as of lsn    20",
        ]
    );
    let at = lines(&waits, Some(Lsn(5)), false);
    assert_eq!(
        at[2],
        "At lsn 5, since 1970-01-01T00:00:04Z: waits for quota: cpu of t would come to 12 cores, and it may hold 8 cores now."
    );
    assert_eq!(json::explanation(&waits, None)["quota"]["limit"], 8000);
}
