//! The bus on a real NATS server: each test in a cell of its own.

use bytes::Bytes;
use ledger::{AppendError, Bus, Digest, Inbox, LedgerId, Stored, Tail, Witness};
use ledger_nats::{
    cell,
    jetstream::{JetStreamBus, Link, Program, Readers},
    verify,
};
use std::time::Duration;
use testkit::Servers;
use uuid::Uuid;
use vocab::{
    Level, Lsn, Millis, Writer,
    subjects::{HEADER_REPLY, Subjects},
};

/// Real time after which a test that hangs is given up; no assertion depends on it.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// Connects to the servers of `make test`.
async fn client(user: &str) -> async_nats::Client {
    Servers::read().nats(user).await
}

/// A cell of its own, as its services see it.
struct Cell(Subjects);

impl Cell {
    async fn new() -> Self {
        let subjects = Subjects::new(format!("t{}", Uuid::new_v4().simple()));
        let maker = async_nats::jetstream::new(client("bus").await);
        let chosen = cell::Chosen::default();
        cell::init(&maker, &subjects, chosen).await.unwrap();
        Self(subjects)
    }

    async fn bus(&self, user: &str) -> JetStreamBus {
        JetStreamBus::open(client(user).await, self.0.clone())
            .await
            .unwrap()
    }
}

async fn bus() -> JetStreamBus {
    Cell::new().await.bus("quota").await
}

async fn put(bus: &JetStreamBus, expected: u64, text: &'static str) -> Result<Lsn, AppendError> {
    bus.append(
        Writer::Quota,
        Lsn(expected),
        Lsn(0),
        Bytes::from_static(text.as_bytes()).into(),
    )
    .await
}

#[tokio::test]
async fn an_append_behind_the_wrong_position_is_refused() {
    let cell = Cell::new().await;
    let bus = cell.bus("quota").await;
    assert!(bus.last(Writer::Quota).await.unwrap().is_none());
    assert_eq!(put(&bus, 0, "one").await, Ok(Lsn(1)));
    assert_eq!(put(&bus, 0, "other").await, Err(AppendError::Fenced));
    let scheduler = cell
        .bus("scheduler")
        .await
        .append(
            Writer::Scheduler,
            Lsn(0),
            Lsn(0),
            Bytes::from_static(b"s").into(),
        )
        .await;
    assert_eq!(scheduler, Ok(Lsn(2)));
    assert_eq!(put(&bus, 1, "two").await, Ok(Lsn(3)));
    assert_eq!(put(&bus, 1, "late").await, Err(AppendError::Fenced));
    let last = bus.last(Writer::Quota).await.unwrap().unwrap();
    assert_eq!((last.lsn, &last.frame[..]), (Lsn(3), &b"two"[..]));
    assert_eq!(bus.end().await.unwrap(), Lsn(3));
}

#[tokio::test]
async fn a_tail_reads_all_in_order_and_goes_on() {
    let bus = bus().await;
    put(&bus, 0, "one").await.unwrap();
    let mut tail = bus.follow(Lsn(1)).await.unwrap();
    put(&bus, 1, "two").await.unwrap();
    for (lsn, text) in [(1, "one"), (2, "two")] {
        let record = tail.recv().await.unwrap();
        let found = (record.lsn, record.writer, &record.frame[..]);
        assert_eq!(found, (Lsn(lsn), Writer::Quota, text.as_bytes()));
    }
    let mut later = bus.follow(Lsn(2)).await.unwrap();
    assert_eq!(later.recv().await.unwrap().lsn, Lsn(2));
}

#[tokio::test]
async fn an_inbox_names_its_sender_by_the_subject_alone() {
    let cell = Cell::new().await;
    let (operator, bus) = (cell.bus("operator").await, cell.bus("admission").await);
    let mut headers = async_nats::HeaderMap::new();
    headers.insert(HEADER_REPLY, "r1");
    let publish = |subject: String| {
        let jetstream = operator.context().clone();
        let headers = headers.clone();
        async move {
            let ack = jetstream.publish_with_headers(subject, headers, "x".into());
            ack.await.unwrap().await.unwrap().sequence
        }
    };
    assert_eq!(publish(bus.subjects().admin()).await, 1);
    assert_eq!(publish(bus.subjects().admin()).await, 2);
    let mut inbox = bus.inbox(Inbox::Ingress, 1).await.unwrap();
    let message = inbox.recv().await.unwrap();
    assert_eq!((message.seq, message.sender.as_str()), (1, "_operator"));
    assert_eq!(message.by, None);
    assert_eq!(message.reply_to.unwrap().as_str(), "r1");
    assert_eq!(bus.inbox_end(Inbox::Ingress).await.unwrap(), 2);
}

const LEDGER: LedgerId = LedgerId(77);

fn read(lsn: u64, digest: Option<Digest>) -> Witness {
    Witness {
        who: "a test".to_owned(),
        lsn: Lsn(lsn),
        digest,
    }
}

async fn snapshot(bus: &JetStreamBus, older: usize) -> Option<Stored> {
    bus.load_snapshot("quota", older).await.unwrap()
}

fn whole(bytes: &Bytes) -> Option<Stored> {
    Some(Stored::Whole(bytes.clone()))
}

#[tokio::test]
async fn the_latest_snapshot_and_the_one_before_it_are_kept() {
    let bus = bus().await;
    assert_eq!(snapshot(&bus, 0).await, None);
    let saved = [&b"one"[..], &[7; 3_000_000], b"three", b"four"].map(Bytes::copy_from_slice);
    for (at, bytes) in saved.iter().enumerate() {
        let of = (LEDGER, read(at as u64, Some(Digest([at as u8; 32]))));
        bus.save_snapshot("quota", of, bytes.clone()).await.unwrap();
        assert_eq!(snapshot(&bus, 0).await, whole(bytes));
        let before = at.checked_sub(1).map(|at| &saved[at]);
        assert_eq!(snapshot(&bus, 1).await, before.and_then(whole));
        assert_eq!(snapshot(&bus, 2).await, None);
    }
    // Without loading them, and of this ledger alone.
    let mut found = bus.witnesses(LEDGER).await.unwrap();
    found.sort_by_key(|witness| witness.lsn);
    let said = found.iter().map(|witness| (witness.lsn, witness.digest));
    let said: Vec<_> = said.collect();
    let expected = [2, 3].map(|at| (Lsn(at), Some(Digest([at as u8; 32]))));
    assert_eq!(said, expected);
    assert_eq!(bus.witnesses(LedgerId(78)).await, Ok(Vec::new()));
}

/// The server sends nothing in the place of a part that it has lost. Real time passes until that is given up.
#[tokio::test]
async fn a_snapshot_of_which_a_part_is_lost_is_damaged_and_the_one_before_it_is_there() {
    let cell = Cell::new().await;
    let bus = cell.bus("quota").await;
    let before = Bytes::from_static(b"before");
    let of = || (LEDGER, read(0, None));
    bus.save_snapshot("quota", of(), before.clone())
        .await
        .unwrap();
    let large = Bytes::from(vec![7; 1_000_000]);
    bus.save_snapshot("quota", of(), large).await.unwrap();
    let maker = async_nats::jetstream::new(client("bus").await);
    let bucket = format!("OBJ_{}", bus.subjects().snapshot_bucket());
    let stream = maker.get_stream(bucket).await.unwrap();
    // The parts stand before what describes the whole, which is the last.
    let last = stream.cached_info().state.last_sequence;
    stream.delete_message(last - 2).await.unwrap();
    let damaged = snapshot(&bus, 0).await;
    assert!(matches!(damaged, Some(Stored::Damaged(_))), "{damaged:?}");
    assert_eq!(snapshot(&bus, 1).await, whole(&before));
}

#[tokio::test]
async fn a_ledger_made_anew_has_another_id() {
    let (one, two) = (bus().await, bus().await);
    let id = |bus: JetStreamBus| async move { bus.ledger_id().await.unwrap() };
    let (one, two): (LedgerId, LedgerId) = (id(one).await, id(two).await);
    assert_ne!(one, two);
}

#[tokio::test]
async fn the_server_tells_its_time() {
    let bus = bus().await;
    let before = bus.server_time().await.unwrap().expect("it has a clock");
    put(&bus, 0, "one").await.unwrap();
    let after = bus.server_time().await.unwrap().expect("it has a clock");
    // In milliseconds: of this century.
    assert!(
        Millis(1_700_000_000_000) < before && before <= after && after < Millis(4_000_000_000_000)
    );
}

#[tokio::test]
async fn verify_names_what_does_not_belong() {
    let bus = bus().await;
    assert_eq!(verify(&bus, &[]).await.unwrap().frames, 0);
    put(&bus, 0, "no frame at all").await.unwrap();
    let error = verify(&bus, &[]).await.unwrap_err().to_string();
    assert!(error.contains("not readable"), "{error}");
}

/// What comes next, in order and without a gap.
async fn reads(tail: &mut impl Tail<ledger::Record>, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        assert_eq!(tail.recv().await.unwrap().lsn, Lsn(lsn));
    }
}

#[tokio::test]
async fn followers_of_one_process_read_all_from_wherever_they_begin() {
    let bus = bus().await;
    for lsn in 0..5 {
        put(&bus, lsn, "early").await.unwrap();
    }
    let mut first = bus.follow(Lsn(3)).await.unwrap();
    reads(&mut first, 3..=5).await;
    let mut behind = bus.follow(Lsn(1)).await.unwrap();
    let mut ahead = bus.follow(Lsn(7)).await.unwrap();
    put(&bus, 5, "six").await.unwrap();
    put(&bus, 6, "seven").await.unwrap();
    reads(&mut ahead, 7..=7).await;
    reads(&mut behind, 1..=7).await;
    reads(&mut first, 6..=7).await;
    drop(first);
    put(&bus, 7, "eight").await.unwrap();
    reads(&mut behind, 8..=8).await;
    reads(&mut ahead, 8..=8).await;
}

#[tokio::test]
async fn a_follower_that_does_not_keep_up_holds_up_nobody_and_misses_nothing() {
    const MANY: u64 = 1500;
    let bus = bus().await;
    let mut slow = bus.follow(Lsn(1)).await.unwrap();
    let mut quick = bus.follow(Lsn(1)).await.unwrap();
    for lsn in 0..MANY {
        put(&bus, lsn, "x").await.unwrap();
    }
    reads(&mut quick, 1..=MANY).await;
    reads(&mut slow, 1..=MANY).await;
    put(&bus, MANY, "last").await.unwrap();
    reads(&mut quick, MANY + 1..=MANY + 1).await;
    reads(&mut slow, MANY + 1..=MANY + 1).await;
}

#[tokio::test]
async fn a_follower_that_is_alone_and_full_holds_up_nobody_who_comes_later() {
    const MANY: u64 = 1500;
    let bus = bus().await;
    let mut stalled = bus.follow(Lsn(1)).await.unwrap();
    for lsn in 0..MANY {
        put(&bus, lsn, "x").await.unwrap();
    }
    let mut late = bus.follow(Lsn(MANY + 1)).await.unwrap();
    put(&bus, MANY, "last").await.unwrap();
    let read = tokio::time::timeout(GIVEN_UP, late.recv()).await;
    let read = read.expect("a stalled follower holds up a later one");
    assert_eq!(read.unwrap().lsn, Lsn(MANY + 1));
    reads(&mut stalled, 1..=MANY + 1).await;
}

async fn among(cell: &Cell, user: &str, readers: &Readers) -> JetStreamBus {
    let (client, link) = (client(user).await, Link::default());
    JetStreamBus::open_among(client, &link, cell.0.clone(), readers)
        .await
        .unwrap()
}

/// A shared reader that is there, and does not read as long as nobody drives its runtime.
fn stalled_reader(
    cell: &Cell,
    readers: &Readers,
) -> (tokio::runtime::Runtime, <JetStreamBus as Bus>::Records) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        let begun = scope.spawn(|| {
            let first = runtime.block_on(async {
                let bus = among(cell, "scheduler", readers).await;
                bus.follow(Lsn(1)).await.unwrap()
            });
            (runtime, first)
        });
        begun.join().unwrap()
    })
}

#[tokio::test]
async fn services_that_run_together_go_on_when_the_one_that_reads_is_gone() {
    let cell = Cell::new().await;
    let readers = Readers::default();
    let (runtime, first) = stalled_reader(&cell, &readers);
    let mut second = (among(&cell, "quota", &readers).await)
        .follow(Lsn(1))
        .await
        .unwrap();
    let elsewhere = among(&cell, "quota", &Readers::default()).await;
    put(&elsewhere, 0, "one").await.unwrap();
    // Nobody drives the first one's runtime any more, and what was to be read there is not.
    assert!(second.try_recv().is_none());
    runtime.shutdown_background();
    reads(&mut second, 1..=1).await;
    put(&elsewhere, 1, "two").await.unwrap();
    reads(&mut second, 2..=2).await;
    drop(first);
    // Others of another process read for themselves.
    let mut alone = elsewhere.follow(Lsn(1)).await.unwrap();
    reads(&mut alone, 1..=2).await;
}

#[tokio::test]
async fn what_a_process_has_appended_its_readers_get_from_it_in_its_place() {
    let cell = Cell::new().await;
    let readers = Readers::default();
    let (runtime, _first) = stalled_reader(&cell, &readers);
    let bus = among(&cell, "quota", &readers).await;
    let mut second = bus.follow(Lsn(1)).await.unwrap();
    put(&bus, 0, "one").await.unwrap();
    let one = second.try_recv().expect("it is here").unwrap();
    assert_eq!((one.lsn, &one.frame[..]), (Lsn(1), &b"one"[..]));
    // Not before what others have appended before it.
    let elsewhere = among(&cell, "quota", &Readers::default()).await;
    put(&elsewhere, 1, "two").await.unwrap();
    put(&bus, 2, "three").await.unwrap();
    assert!(second.try_recv().is_none());
    runtime.shutdown_background();
    reads(&mut second, 2..=3).await;
}

#[tokio::test]
async fn own_frames_and_those_of_others_are_read_once_and_in_their_order() {
    const MANY: u64 = 200;
    let cell = Cell::new().await;
    let readers = Readers::default();
    let own = among(&cell, "quota", &readers).await;
    let elsewhere = among(&cell, "quota", &Readers::default()).await;
    let mut first = own.follow(Lsn(1)).await.unwrap();
    let mut second = own.follow(Lsn(1)).await.unwrap();
    for last in 0..MANY {
        let bus = match last % 3 {
            0 => &elsewhere,
            _ => &own,
        };
        put(bus, last, "x").await.unwrap();
    }
    reads(&mut first, 1..=MANY).await;
    reads(&mut second, 1..=MANY).await;
}

#[tokio::test]
async fn who_reads_the_ledger_says_what_it_knows_and_hears_of_a_higher_level() {
    let cell = Cell::new().await;
    let program = |service: &str, level| Program {
        services: vec![service.to_owned()],
        instance: "host/1".to_owned(),
        version: "1.0.0".to_owned(),
        level: Level(level),
    };
    let (old, new) = (program("quota", 1), program("scheduler", 7));
    let among = async |program: &Program| {
        let (user, readers) = (&program.services[0], Readers::in_program(program.clone()));
        let (client, link) = (client(user).await, Link::default());
        JetStreamBus::open_among(client, &link, cell.0.clone(), &readers)
            .await
            .unwrap()
    };
    let operator = cell.bus("bus").await;
    assert_eq!(operator.programs().await.unwrap(), []);
    let (quota, scheduler) = (among(&old).await, among(&new).await);
    let _reading = [
        quota.follow(Lsn(1)).await.unwrap(),
        scheduler.follow(Lsn(1)).await.unwrap(),
        // Somebody who is no service.
        cell.bus("quota").await.follow(Lsn(1)).await.unwrap(),
    ];
    assert_eq!(operator.programs().await.unwrap(), [old, new]);

    assert_eq!(quota.level(), Level::FIRST, "nobody has told it");
    quota.end().await.unwrap();
    assert_eq!(quota.level(), Level::KNOWN);
    let id = quota.ledger_id().await.unwrap();
    let higher = Level(Level::KNOWN.0 + 1);
    assert!(quota.raise(higher).await.is_err(), "no service may");
    operator.raise(higher).await.unwrap();
    quota.stands().await.unwrap();
    assert_eq!((quota.level(), quota.ledger_id().await), (higher, Ok(id)));

    // To make the cell again changes nothing, and neither does an adoption.
    let maker = async_nats::jetstream::new(client("bus").await);
    let again = cell::init(&maker, &cell.0, cell::Chosen::default());
    again.await.unwrap();
    operator.adopt().await.unwrap();
    let config = quota.ledger_config().await.unwrap();
    assert_eq!(cell::level(&config), Ok(higher));
}

#[tokio::test]
async fn a_cell_keeps_the_length_of_its_slots() {
    let cell = Cell::new().await;
    let maker = async_nats::jetstream::new(client("bus").await);
    let again = |slot_ms| {
        let chosen = cell::Chosen {
            slot_ms,
            ..cell::Chosen::default()
        };
        cell::init(&maker, &cell.0, chosen)
    };
    again(1000).await.unwrap();
    let refused = again(10).await.unwrap_err().to_string();
    assert!(refused.contains(&cell.0.ledger_stream()), "{refused}");
    let config = cell.bus("admission").await.ledger_config().await.unwrap();
    assert_eq!(cell::slot_ms(&config), Ok(1000));
}
