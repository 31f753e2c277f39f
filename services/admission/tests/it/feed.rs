//! The feed on a real NATS server: each event once, whoever dies where, and pages that any reader can go on from.

use admission::{
    feed::{FeedItem, FeedKind, FeedPosition},
    publish::{FeedSink, JetStreamFeed},
    query::FeedQueries,
};
use async_nats::{HeaderMap, jetstream};
use chassis::query::{Asked, Verb};
use ledger::{Batch, LedgerId, Resume, Sink, SinkError};
use ledger_nats::{cell, jetstream::JetStreamBus};
use prost::Message;
use schemas::v1::{FeedQuery, TenantEvents};
use testkit::Servers;
use uuid::Uuid;
use vocab::{
    AllocationNo, CellNo, Lsn, Millis, Token,
    subjects::{HEADER_PART, HEADER_POSITION, Subjects},
};

const LEDGER: LedgerId = LedgerId(77);
const CELL: CellNo = CellNo(1);

/// Connects to the servers of `make test`.
async fn client(user: &str) -> async_nats::Client {
    Servers::read().nats(user).await
}

/// A message of the EVENT stream, without what is another each time.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    subject: String,
    headers: HeaderMap,
    payload: Vec<u8>,
}

/// A cell of its own.
struct Cell {
    subjects: Subjects,
    maker: jetstream::Context,
    bus: JetStreamBus,
}

impl Cell {
    async fn new() -> Self {
        let subjects = Subjects::new(format!("f{}", Uuid::new_v4().simple()));
        let maker = jetstream::new(client("bus").await);
        let chosen = cell::Chosen::default();
        cell::init(&maker, &subjects, chosen).await.unwrap();
        let bus = JetStreamBus::open(client("admission").await, subjects.clone());
        Self {
            bus: bus.await.unwrap(),
            subjects,
            maker,
        }
    }

    fn sink(&self) -> FeedSink<JetStreamFeed> {
        FeedSink::new(JetStreamFeed::new(&self.bus), CELL)
    }

    /// A sink that has looked where it stands.
    async fn resumed(&self) -> (FeedSink<JetStreamFeed>, Resume) {
        let mut sink = self.sink();
        let resume = sink.resume(LEDGER).await.unwrap();
        (sink, resume)
    }

    async fn stored(&self) -> Vec<Stored> {
        let name = self.subjects.event_stream();
        let stream = self.maker.get_stream(name).await.unwrap();
        let state = &stream.cached_info().state;
        let mut all = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let mut headers = HeaderMap::new();
            for (name, values) in message.headers.iter() {
                if !name.to_string().starts_with("Nats-") {
                    headers.insert(name.clone(), values[0].clone());
                }
            }
            all.push(Stored {
                subject: message.subject.to_string(),
                headers,
                payload: message.payload.to_vec(),
            });
        }
        all
    }

    /// The stream as it was when only these had arrived.
    async fn restore(&self, messages: &[Stored]) {
        let name = self.subjects.event_stream();
        let info = self.maker.get_stream(&name).await.unwrap();
        let config = info.cached_info().config.clone();
        self.maker.delete_stream(&name).await.unwrap();
        self.maker.create_stream(config).await.unwrap();
        let publisher = self.bus.context();
        for message in messages {
            let Stored {
                subject,
                headers,
                payload,
            } = message.clone();
            let ack = publisher.publish_with_headers(subject, headers, payload.into());
            ack.await.unwrap().await.unwrap();
        }
    }

    async fn page(&self, tenant: &str, query: FeedQuery) -> (Vec<(u64, u32)>, bool) {
        let queries = FeedQueries::new(self.bus.clone());
        let asked = Asked {
            tenant: token(tenant),
            applied: Lsn(0),
            query,
        };
        let page = queries.answer(asked).await.unwrap();
        let positions = page.events.iter().map(|event| (event.lsn, event.index));
        (positions.collect(), page.more)
    }

    async fn close(self) {
        for stream in [
            self.subjects.ledger_stream(),
            self.subjects.ingress_stream(),
            self.subjects.report_stream(),
            self.subjects.event_stream(),
            format!("OBJ_{}", self.subjects.snapshot_bucket()),
        ] {
            self.maker.delete_stream(stream).await.unwrap();
        }
    }
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn item(tenant: &str, job_set: &str, lsn: u64, index: u32) -> FeedItem {
    FeedItem {
        position: FeedPosition {
            lsn: Lsn(lsn),
            index,
        },
        now: Millis(5),
        tenant: token(tenant),
        job_set: token(job_set),
        allocation: Some(AllocationNo(lsn)),
        name: None,
        kind: FeedKind::Stopping { time_limit: false },
        reply_to: Vec::new(),
        in_feed: true,
    }
}

fn batch(after: u64, to: u64, changes: Vec<FeedItem>) -> Batch<FeedItem> {
    Batch {
        ledger: LEDGER,
        after: Lsn(after),
        to: Lsn(to),
        digest: None,
        changes,
    }
}

/// Three feeds, turn by turn.
fn first() -> Batch<FeedItem> {
    let feeds = [("a", "x"), ("a", "y"), ("b", "x")];
    let items = (1..=9).map(|lsn| {
        let (tenant, job_set) = feeds[lsn as usize % 3];
        item(tenant, job_set, lsn, 1)
    });
    batch(0, 9, items.collect())
}

/// Four feeds, one of them too large for one message; one answer that goes to its asker only.
fn second() -> Batch<FeedItem> {
    let mut items = Vec::new();
    for index in 0..1500 {
        items.push(item("a", "x", 11, 2 * index));
        if index % 500 == 0 {
            items.push(item("a", "y", 11, 2 * index + 1));
        }
    }
    items.push(item("b", "x", 12, 0));
    items.push(item("b", "z", 12, 2));
    let private = item("b", "x", 12, 4);
    items.push(FeedItem {
        in_feed: false,
        ..private
    });
    batch(9, 12, items)
}

fn header(message: &Stored, name: &str) -> String {
    message.headers.get(name).unwrap().as_str().to_owned()
}

/// What fails on the way is begun again, as the projector does: other tests change accounts of the same server meanwhile.
async fn sent(sink: &mut FeedSink<JetStreamFeed>, batch: &Batch<FeedItem>) {
    loop {
        match sink.apply(batch).await {
            Ok(()) => return,
            Err(SinkError::Moved) => {
                if sink.resume(LEDGER).await.unwrap().through >= batch.to {
                    return;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_batch_is_one_message_per_job_set() {
    let cell = Cell::new().await;
    let (mut sink, resume) = cell.resumed().await;
    let nothing = Resume {
        through: Lsn(0),
        digest: None,
        begun: None,
    };
    assert_eq!(resume, nothing);
    sent(&mut sink, &first()).await;
    sent(&mut sink, &second()).await;
    let stored = cell.stored().await;
    let seen: Vec<String> = stored
        .iter()
        .map(|message| {
            let events = TenantEvents::decode(&*message.payload).unwrap().events;
            let feed: Vec<_> = message.subject.rsplit('.').take(2).collect();
            let (range, part) = (
                header(message, HEADER_POSITION),
                header(message, HEADER_PART),
            );
            let count = events.len();
            assert!(events.is_sorted_by_key(|event| (event.lsn, event.index)));
            format!("{}/{} {range} {part} {count}", feed[1], feed[0])
        })
        .collect();
    assert_eq!(
        seen,
        [
            "a/y 1-9 1/3 3",
            "b/x 1-9 2/3 3",
            "a/x 1-9 3/3 3",
            "a/x 10-12 1/5 1000",
            "a/y 10-12 2/5 3",
            "a/x 10-12 3/5 500",
            "b/x 10-12 4/5 1",
            "b/z 10-12 5/5 1",
        ]
    );
    cell.close().await;
}

#[tokio::test]
async fn a_crash_anywhere_in_a_batch_leaves_each_message_once() {
    let cell = Cell::new().await;
    let (mut sink, _) = cell.resumed().await;
    sent(&mut sink, &first()).await;
    sent(&mut sink, &second()).await;
    let all = cell.stored().await;
    for landed in 0..=all.len() {
        cell.restore(&all[..landed]).await;
        let (mut sink, resume) = cell.resumed().await;
        let expected = match landed {
            0 => (0, None),
            1..3 => (0, Some(9)),
            3 => (9, None),
            4..8 => (9, Some(12)),
            _ => (12, None),
        };
        let found = (resume.through.0, resume.begun.map(|to| to.0));
        assert_eq!(found, expected, "{landed} landed");
        for batch in [first(), second()] {
            if resume.through < batch.to {
                sink.apply(&batch).await.unwrap();
            }
        }
        assert!(cell.stored().await == all, "{landed} landed");
    }
    cell.close().await;
}

#[tokio::test]
async fn of_two_projectors_one_goes_on() {
    let cell = Cell::new().await;
    let (mut sink, _) = cell.resumed().await;
    sent(&mut sink, &first()).await;
    sent(&mut sink, &second()).await;
    let all = cell.stored().await;
    for landed in [3, 4, 6] {
        cell.restore(&all[..landed]).await;
        let ((mut one, _), (mut other, before)) = (cell.resumed().await, cell.resumed().await);
        one.apply(&second()).await.unwrap();
        // With the same bounds, and with others if none were begun.
        let late = match before.begun {
            Some(_) => second(),
            None => batch(9, 11, vec![item("a", "x", 11, 0)]),
        };
        assert_eq!(other.apply(&late).await, Err(SinkError::Moved), "{landed}");
        assert_eq!(other.apply(&late).await, Err(SinkError::Moved), "{landed}");
        let resume = other.resume(LEDGER).await.unwrap();
        assert_eq!((resume.through, resume.begun), (Lsn(12), None), "{landed}");
        let third = batch(12, 13, vec![item("a", "x", 13, 0)]);
        other.apply(&third).await.unwrap();
        assert_eq!(one.apply(&third).await, Err(SinkError::Moved), "{landed}");
        assert!(cell.stored().await[..8] == all, "{landed}");
    }
    // Both at the same time, again and again: whoever loses begins anew.
    cell.restore(&[]).await;
    let race = || async {
        let (mut sink, mut resume) = cell.resumed().await;
        loop {
            let next = [first(), second()];
            let next = next.into_iter().find(|batch| batch.to > resume.through);
            let Some(next) = next else {
                return;
            };
            match sink.apply(&next).await {
                Ok(()) => resume.through = next.to,
                Err(_) => resume = sink.resume(LEDGER).await.unwrap(),
            }
        }
    };
    tokio::join!(race(), race(), race());
    assert!(cell.stored().await == all);
    cell.close().await;
}

#[tokio::test]
async fn a_feed_of_another_ledger_or_version_is_made_anew() {
    let cell = Cell::new().await;
    let (mut sink, _) = cell.resumed().await;
    sent(&mut sink, &first()).await;
    let all = cell.stored().await;
    let mut foreign = cell.sink();
    let resume = foreign.resume(LedgerId(78)).await.unwrap();
    assert_eq!((resume.through, resume.begun), (Lsn(0), None));
    assert!(is_beginning(&cell.stored().await));
    // Its batch was cut in another way.
    cell.restore(&all[..2]).await;
    let (mut sink, resume) = cell.resumed().await;
    assert_eq!(resume.begun, Some(Lsn(9)));
    let otherwise = batch(0, 9, vec![item("a", "x", 3, 0)]);
    assert_eq!(sink.apply(&otherwise).await, Err(SinkError::Moved));
    let resume = sink.resume(LEDGER).await.unwrap();
    assert_eq!((resume.through, resume.begun), (Lsn(0), None));
    sink.apply(&otherwise).await.unwrap();
    let stored = cell.stored().await;
    assert!(is_beginning(&stored[..1]));
    assert_eq!(stored.len(), 2);
    // What an older version has written has no range.
    let mut old = all.clone();
    old[1].headers = HeaderMap::new();
    cell.restore(&old[..2]).await;
    let (_, resume) = cell.resumed().await;
    assert_eq!((resume.through, resume.begun), (Lsn(0), None));
    cell.close().await;
}

/// Nothing but what a feed begins with that was made anew.
fn is_beginning(stored: &[Stored]) -> bool {
    matches!(stored, [one] if one.payload.is_empty() && header(one, HEADER_POSITION) == "1-0")
}

#[tokio::test]
async fn what_follows_a_refused_message_is_refused() {
    let cell = Cell::new().await;
    let (mut sink, _) = cell.resumed().await;
    sent(&mut sink, &first()).await;
    // The other's messages take the sequences that all but the first of this one's expect.
    for taken in 1..4 {
        let (mut one, before) = cell.resumed().await;
        let (mut other, _) = cell.resumed().await;
        let after = before.through.0;
        let job_sets = ["x", "y", "z"];
        let items = job_sets[..taken]
            .iter()
            .map(|job_set| item("a", job_set, after + 1, 0));
        other
            .apply(&batch(after, after + 1, items.collect()))
            .await
            .unwrap();
        let stored = cell.stored().await;
        let late = batch(after, after + 4, second().changes);
        assert_eq!(one.apply(&late).await, Err(SinkError::Moved), "{taken}");
        assert!(cell.stored().await == stored, "{taken}");
    }
    cell.close().await;
}

#[tokio::test]
async fn nobody_goes_on_behind_an_end_that_was_made_anew() {
    let cell = Cell::new().await;
    let (mut old, _) = cell.resumed().await;
    old.apply(&first()).await.unwrap();
    let mut anew = cell.sink();
    anew.resume(LedgerId(78)).await.unwrap();
    assert_eq!(old.apply(&second()).await, Err(SinkError::Moved));
    assert!(is_beginning(&cell.stored().await));
    // A kill before what is old was dropped.
    let (mut old, _) = cell.resumed().await;
    old.apply(&first()).await.unwrap();
    let all = cell.stored().await;
    let beginning = all[..1].to_vec();
    cell.restore(&[&all[1..], &beginning].concat()).await;
    let (_, resume) = cell.resumed().await;
    assert_eq!((resume.through, resume.begun), (Lsn(0), None));
    assert!(is_beginning(&cell.stored().await));
    cell.close().await;
}

#[tokio::test]
async fn an_emptied_feed_is_noticed_and_made_anew() {
    let cell = Cell::new().await;
    let (mut sink, _) = cell.resumed().await;
    sent(&mut sink, &first()).await;
    let (mut other, resume) = cell.resumed().await;
    assert_eq!(resume.through, Lsn(9));
    let stream = cell.maker.get_stream(cell.subjects.event_stream());
    stream.await.unwrap().purge().await.unwrap();
    // The other has not looked, and goes on.
    other.apply(&second()).await.unwrap();
    let (mut sink, resume) = cell.resumed().await;
    assert_eq!((resume.through, resume.begun), (Lsn(0), None));
    // Nor does it afterwards.
    let third = batch(12, 13, vec![item("a", "x", 13, 0)]);
    assert_eq!(other.apply(&third).await, Err(SinkError::Moved));
    // It finds the feed begun anew, and leaves it at that.
    let resume = other.resume(LEDGER).await.unwrap();
    assert_eq!((resume.through, resume.begun), (Lsn(0), None));
    other.apply(&first()).await.unwrap();
    let stored = cell.stored().await;
    assert!(is_beginning(&stored[..1]));
    assert_eq!(stored.len(), 4);
    assert_eq!(sink.resume(LEDGER).await.unwrap().through, Lsn(9));
    cell.close().await;
}

#[tokio::test]
async fn pages_go_on_from_anywhere_in_order_and_show_no_half_batch() {
    let cell = Cell::new().await;
    let (mut sink, _) = cell.resumed().await;
    sent(&mut sink, &first()).await;
    sent(&mut sink, &second()).await;
    let items = [first(), second()].map(|batch| batch.changes).concat();
    let of = |tenant: &str, job_set: Option<&str>| -> Vec<(u64, u32)> {
        let wanted = |item: &&FeedItem| {
            item.in_feed
                && item.tenant.as_str() == tenant
                && job_set.is_none_or(|name| item.job_set.as_str() == name)
        };
        let position = |item: &FeedItem| (item.position.lsn.0, item.position.index);
        items.iter().filter(wanted).map(position).collect()
    };
    for (tenant, job_set, limit) in [
        ("a", None, 0),
        ("a", None, 7),
        ("a", None, 400),
        ("a", Some("x"), 0),
        ("a", Some("y"), 1),
        ("b", None, 1),
        ("b", Some("none"), 5),
        ("c", None, 5),
    ] {
        let mut found: Vec<(u64, u32)> = Vec::new();
        let mut after = (0, 0);
        loop {
            let query = FeedQuery {
                after_lsn: after.0,
                after_index: after.1,
                job_set: job_set.unwrap_or_default().to_owned(),
                limit,
                at_lsn: 0,
            };
            let (page, more) = cell.page(tenant, query).await;
            assert!(page.len() <= if limit == 0 { 1000 } else { limit as usize });
            found.extend(page.iter().copied());
            match page.last() {
                Some(last) if more => after = *last,
                _ => break,
            }
        }
        assert_eq!(found, of(tenant, job_set), "{tenant} {job_set:?} {limit}");
    }
    let all = cell.stored().await;
    for landed in 4..8 {
        cell.restore(&all[..landed]).await;
        let (page, more) = cell.page("a", FeedQuery::default()).await;
        let last = of("a", None).into_iter().rfind(|position| position.0 <= 9);
        assert_eq!((page.last().copied(), more), (last, false), "{landed}");
    }
    cell.close().await;
}
