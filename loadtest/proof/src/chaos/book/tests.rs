//! Each case is a small story: what was asked, what came back, what the ledger and the feed hold; then what is wrong.

use super::*;
use schemas::v1::{Cancelled, Refused, Requested, Submitted};
use vocab::fact::AllocationRequested;
use vocab::{AllocationNo, AllocationSpec, At, CellNo, Event, EventNo, Lsn, Millis};

const CELL: CellNo = CellNo(1);

fn tenant() -> Token {
    Token::new("t").expect("a token")
}

struct Story {
    book: Book,
    feed: Vec<TenantEvent>,
    ledger: Ledger,
}

impl Story {
    /// `a` was asked to the end, `b` until it was acknowledged; both came to their end, as allocations 1 and 2.
    fn fine() -> Self {
        let mut story = Self {
            book: Book::default(),
            feed: Vec::new(),
            ledger: Ledger::new(CELL),
        };
        let ask = Asked::Submit(Ask {
            cpu_milli: 1,
            memory_bytes: 1,
            gpu_milli: 0,
        });
        let t = tenant();
        story.book.sent("a", &t, ask, Duration::ZERO, true);
        story.book.sent("b", &t, ask, Duration::ZERO, false);
        story.book.acknowledged("b");
        story.requested(10, 1, "a");
        story.requested(20, 2, "b");
        story.tell(11, submitted("a", 1));
        story.tell(21, submitted("b", 2));
        story.reply(submitted("a", 1));
        story
    }

    fn requested(&mut self, lsn: u64, no: u64, id: &str) {
        self.on_ledger(lsn, no, id);
        let mut event = event(lsn, 1, Kind::Requested(Requested::default()));
        event.allocation_id = AllocationNo(no).id(CELL).to_string();
        self.feed.push(event);
        self.feed.sort_by_key(|event| (event.lsn, event.index));
    }

    fn on_ledger(&mut self, lsn: u64, no: u64, id: &str) {
        let operation = vocab::Operation {
            tenant: tenant(),
            operation_id: Some(Token::new(id).expect("a token")),
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let at = At {
            lsn: Lsn(lsn),
            index: 0,
            no: EventNo(no),
            now: Millis(0),
        };
        let spec = AllocationSpec::plain(tenant(), 1, 1);
        let event = Event::AllocationRequested(AllocationRequested { operation, spec });
        self.ledger.see(&at, &event);
    }

    fn tell(&mut self, lsn: u64, outcome: Outcome) {
        self.feed.push(event(lsn, 0, Kind::Outcome(outcome)));
        self.feed.sort_by_key(|event| (event.lsn, event.index));
    }

    fn reply(&mut self, outcome: Outcome) {
        self.book.answered(&outcome, Duration::from_millis(5));
    }

    fn check(self) -> Wrong {
        let feeds = Feeds::from([(tenant(), self.feed)]);
        check(&self.book, &feeds, &self.ledger)
    }
}

fn event(lsn: u64, index: u32, kind: Kind) -> TenantEvent {
    TenantEvent {
        lsn,
        index,
        kind: Some(kind),
        ..TenantEvent::default()
    }
}

fn outcome(id: &str, result: Decided) -> Outcome {
    Outcome {
        operation_id: id.to_owned(),
        lsn: 11,
        result: Some(result),
    }
}

fn submitted(id: &str, no: u64) -> Outcome {
    let submitted = Submitted {
        allocation_id: AllocationNo(no).id(CELL).to_string(),
        state: None,
    };
    outcome(id, Decided::Submitted(submitted))
}

#[test]
fn only_what_is_wrong_is_found_and_by_what_it_breaks() {
    type Change = fn(&mut Story);
    let table: [(&str, Change, [usize; 3]); 16] = [
        ("all is well", |_| {}, [0, 0, 0]),
        (
            "the same reply again",
            |story| story.reply(submitted("a", 1)),
            [0, 0, 0],
        ),
        (
            "never acknowledged, so nothing is owed",
            |story| sent(story, "c", false),
            [0, 0, 0],
        ),
        (
            "acknowledged, and no outcome",
            |story| {
                sent(story, "c", false);
                story.book.acknowledged("c");
            },
            [1, 0, 0],
        ),
        (
            "asked to the end, and no outcome",
            |story| sent(story, "c", true),
            [1, 0, 0],
        ),
        (
            "its outcome is in the feed, and never came as a reply",
            |story| {
                sent(story, "c", true);
                story.tell(30, outcome("c", Decided::Refused(Refused::default())));
            },
            [1, 0, 0],
        ),
        (
            "two replies that differ; the allocation is no matter",
            |story| story.reply(outcome("a", Decided::Refused(Refused::default()))),
            [0, 1, 0],
        ),
        (
            "the feed has the outcome twice",
            |story| story.tell(30, submitted("b", 2)),
            [0, 1, 0],
        ),
        (
            "the feed tells another outcome than the reply",
            |story| {
                sent(story, "c", true);
                story.reply(outcome("c", Decided::Refused(Refused::default())));
                story.tell(30, submitted("c", 3));
            },
            [0, 1, 0],
        ),
        (
            "one allocation answers two operations",
            |story| {
                sent(story, "c", true);
                story.reply(submitted("c", 1));
                story.tell(30, submitted("c", 1));
            },
            [0, 1, 0],
        ),
        (
            "answered as another operation",
            |story| {
                sent(story, "c", true);
                let cancelled = outcome("c", Decided::Cancelled(Cancelled::default()));
                story.reply(cancelled.clone());
                story.tell(30, cancelled);
            },
            [0, 1, 0],
        ),
        (
            "taken up twice",
            |story| story.requested(30, 3, "a"),
            [0, 1, 0],
        ),
        (
            "taken up, and nobody asked",
            |story| story.requested(30, 3, "nobody"),
            [0, 1, 0],
        ),
        (
            "the feed does not tell an outcome that was a reply",
            |story| {
                sent(story, "c", true);
                story.reply(outcome("c", Decided::Refused(Refused::default())));
            },
            [0, 0, 1],
        ),
        (
            "an event is missing in the feed",
            |story| story.feed.retain(|event| event.lsn != 20),
            [0, 0, 1],
        ),
        (
            "the feed goes back",
            |story| story.feed.swap(0, 1),
            [0, 0, 1],
        ),
    ];
    for (case, change, expected) in table {
        let mut story = Story::fine();
        change(&mut story);
        let wrong = story.check();
        let found = [wrong.lost.len(), wrong.doubled.len(), wrong.feed.len()];
        assert_eq!(found, expected, "{case}: {wrong:?}");
    }
}

fn sent(story: &mut Story, id: &str, asks_on: bool) {
    let ask = Asked::Submit(Ask {
        cpu_milli: 1,
        memory_bytes: 1,
        gpu_milli: 0,
    });
    story.book.sent(id, &tenant(), ask, Duration::ZERO, asks_on);
}
