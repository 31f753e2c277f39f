//! Operations that are no submits: which answer goes where, and what a repeat finds.

use super::*;
use vocab::fact::{
    JobSetCancelDecided, JobSetCancelRequested, OperationsForgotten, PriorityDecided,
    PriorityRequested, ResourceAsked, ResourceDecided,
};
use vocab::{LeaseNo, PriorityTarget, ResourceAnswer, ResourceAsk};

/// One step: its event has the number that it says, and a frame of its own.
struct Steps {
    feed: Feed,
    lsn: u64,
}

impl Steps {
    fn new() -> Self {
        Self {
            feed: Feed::default(),
            lsn: 0,
        }
    }

    fn take(&mut self, no: u64, event: Event) -> Vec<FeedItem> {
        self.lsn += 1;
        let at = At {
            lsn: Lsn(self.lsn),
            index: 0,
            no: EventNo(no),
            now: Millis(1),
        };
        let mut items = Vec::new();
        self.feed.project_event(&at, &event, &mut items).unwrap();
        items
    }

    fn check(&mut self, no: u64, event: Event, expected: &str) {
        let said = format!("{event:?}");
        let items = self.take(no, event);
        let words: Vec<String> = items
            .iter()
            .map(|item| {
                let to: Vec<_> = item.reply_to.iter().map(Token::as_str).collect();
                format!("{}[{}]: {}", item.job_set, to.join("+"), words(item))
            })
            .collect();
        assert_eq!(words.join(", "), expected, "{said}");
    }
}

fn operation(reply_to: &str) -> Operation {
    Operation {
        tenant: token("t"),
        operation_id: Some(token("op")),
        digest: [7; 16],
        reply_to: Some(token(reply_to)),
        trace: None,
        by: None,
    }
}

fn repeated(original: u64, reply_to: &str) -> Event {
    Event::OperationRepeated(OperationRepeated {
        tenant: token("t"),
        original: EventNo(original),
        reply_to: Some(token(reply_to)),
    })
}

fn asked(reply_to: &str, by_requests: bool) -> Event {
    Event::ResourceAsked(ResourceAsked {
        operation: operation(reply_to),
        slot: 3,
        by_requests,
        ask: ResourceAsk::Create {
            resource: token("r"),
        },
    })
}

fn answered(request: u64, answer: ResourceAnswer) -> Event {
    Event::ResourceDecided(ResourceDecided {
        request: EventNo(request),
        answer,
    })
}

fn forgotten(through: u64, slots_of: Option<&str>) -> Event {
    Event::OperationsForgotten(OperationsForgotten {
        through: EventNo(through),
        slots_of: slots_of.map(token),
        ended_through: EventNo(0),
        denied_through: EventNo(0),
    })
}

#[test]
fn a_job_set_and_a_priority_are_answered_when_they_are_decided() {
    let mut steps = Steps::new();
    let request = Event::JobSetCancelRequested(JobSetCancelRequested {
        operation: operation("a"),
        job_set: token("j"),
    });
    steps.check(1, request, "");
    steps.check(2, repeated(1, "b"), "");
    let decided = || {
        Event::JobSetCancelDecided(JobSetCancelDecided {
            request: EventNo(1),
            allocations: 4,
        })
    };
    steps.check(9, decided(), "j[a+b]: -> 4 cancelled");
    steps.check(9, decided(), "");
    let request = |no| {
        Event::PriorityRequested(PriorityRequested {
            operation: operation("a"),
            target: PriorityTarget::Allocation(AllocationNo(no)),
            priority: 3,
        })
    };
    let decided = |request, refusal| {
        Event::PriorityDecided(PriorityDecided {
            request: EventNo(request),
            allocations: 1,
            refusal,
        })
    };
    steps.check(3, request(77), "");
    steps.check(9, decided(3, None), "_none[a]: -> 1 set");
    steps.take(5, event("submit", Millis(1)));
    steps.check(6, request(5), "");
    let refusal = Refusal::new(Rule::AllocationEnded, "allocation_id");
    steps.check(
        9,
        decided(6, Some(refusal)),
        "j[a]: -> allocation ended: allocation_id",
    );
}

#[test]
fn resources_have_a_feed_of_their_own() {
    let mut steps = Steps::new();
    let answers = [
        (ResourceAnswer::Created, "-> created"),
        (
            ResourceAnswer::Granted { deadline: 9 },
            "-> granted 52 until 9",
        ),
        (ResourceAnswer::Confirmed, "-> confirmed"),
        (
            ResourceAnswer::Released {
                fencing_token: 2,
                retire_after: 8,
            },
            "-> released fencing_token 2",
        ),
        (
            ResourceAnswer::Revoked { fencing_token: 3 },
            "-> revoked fencing_token 3",
        ),
        (
            ResourceAnswer::Reclaimed { retire_after: 8 },
            "-> reclaimed",
        ),
        (
            ResourceAnswer::Refused(Refusal::new(Rule::ResourceBusy, "resource")),
            "-> resource busy: resource",
        ),
    ];
    for (no, (answer, expected)) in (1..).zip(answers) {
        steps.check(no, asked("a", false), "");
        let decided = answered(no, answer);
        steps.check(50 + no, decided, &format!("_leases[a]: {expected}"));
    }
    let expired = Event::LeaseExpired(LeaseExpired {
        tenant: token("t"),
        lease: LeaseNo(52),
        slot: 9,
        fencing_token: 2,
        retire_after: 20,
    });
    steps.check(60, expired, "_leases[]: expired 52 fencing_token 2");
}

#[test]
fn what_is_counted_in_slots_is_forgotten_by_slots_and_all_else_by_the_clock() {
    let mut steps = Steps::new();
    for (no, by_requests) in [(1, true), (2, false)] {
        steps.take(no, asked("a", by_requests));
        steps.take(50, answered(no, ResourceAnswer::Created));
    }
    let found = |to| format!("_none[{to}]: -> created");
    steps.check(90, forgotten(2, Some("other")), "");
    steps.check(91, repeated(1, "b"), &found("b"));
    steps.check(92, forgotten(2, Some("t")), "");
    steps.check(93, repeated(1, "b"), "");
    steps.check(94, repeated(2, "b"), &found("b"));
    steps.check(95, forgotten(2, None), "");
    steps.check(96, repeated(2, "b"), "");
    assert_eq!(steps.feed, Feed::default());
}
