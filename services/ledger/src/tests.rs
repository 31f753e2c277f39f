//! A decider and its replica on a ledger that a scheduler writes as well: all readers of the same records agree.

use super::*;
use crate::{content::Events, frame::Encoded, memory::MemoryBus};
use bus::bears_out;
use std::{
    collections::BTreeSet,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use vocab::{
    AllocationNo, At, EndCause, Event, EventNo, Kinds, Level, Lsn, Millis, Token, Writer,
    fact::{AllocationEnded, QuotaReleased},
};

vocab::inputs! {
    pub enum Input { AllocationEnded }
}

/// Releases ended allocations, at the earliest at 100.
#[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Releases(BTreeSet<AllocationNo>);

impl Decider for Releases {
    type Command = std::convert::Infallible;
    type Config = ();
    type Effect = u64;
    type By = vocab::fact::Quota;
    type Input<'a> = Input<'a>;

    const STATE_VERSION: u32 = 1;

    fn observe(&mut self, _at: &At, input: Input<'_>) -> Result<(), IllegalEvent> {
        let Input::AllocationEnded(fact) = input;
        match self.0.insert(fact.allocation) {
            true => Ok(()),
            false => Err(IllegalEvent::new("ended before", fact)),
        }
    }

    fn evolve(&mut self, _at: &At, fact: OwnFact<'_, Self>) -> Result<(), IllegalEvent> {
        match fact {
            vocab::fact::QuotaFact::QuotaReleased(fact) if self.0.remove(&fact.allocation) => {
                Ok(())
            }
            other => Err(IllegalEvent::new("not ended", &other)),
        }
    }

    fn handle(&mut self, command: Self::Command, _config: &(), _draft: &mut Draft) {
        match command {}
    }

    fn decide(&mut self, _config: &(), draft: &mut Draft) {
        if draft.now < Millis(100) {
            return;
        }
        for allocation in self.0.clone() {
            draft.emit(self, QuotaReleased { allocation });
        }
    }

    fn wake_at(&self) -> Option<Millis> {
        (!self.0.is_empty()).then_some(Millis(100))
    }
}

fn ended(no: u64) -> Event {
    let fact = AllocationEnded {
        allocation: AllocationNo(no),
        cause: EndCause::Finished,
        at: Millis(0),
        exit: None,
    };
    fact.into()
}

/// All records of a ledger, and the last frame of its scheduler.
#[derive(Default)]
struct Ledger {
    records: Vec<Record>,
    scheduler: Head,
}

impl Ledger {
    fn next(&self) -> Lsn {
        Lsn(self.records.len() as u64 + 1)
    }

    /// Appends a frame of the scheduler, which has read up to `through`.
    fn scheduler(&mut self, through: u64, events: &[Event]) -> Record {
        let mut encoded = Encoded::Columns(Box::default());
        let mut written = Events::default();
        for event in events {
            encoded.push(event);
            written.push(event.clone());
        }
        let (lsn, now) = (self.next(), Millis(lsn_ms(self.next())));
        let read = (Lsn(through), Handled::default());
        let events = (written, &mut encoded);
        let (content, head) = frame::write(&self.scheduler, &[2; 16], 1, now, read, events, false);
        self.scheduler = Head { lsn, ..head };
        let record = Record::new(lsn, Writer::Scheduler, content.bytes);
        self.records.push(record.clone());
        record
    }

    fn append(&mut self, sealed: &Sealed) -> Lsn {
        let lsn = self.next();
        let record = Record::new(lsn, Writer::Quota, sealed.bytes().clone());
        self.records.push(record);
        lsn
    }
}

fn lsn_ms(lsn: Lsn) -> i64 {
    10 * lsn.0 as i64
}

const LEADER: [u8; 16] = [1; 16];

/// Decides at `now` and returns the sealed frame.
fn decided(leader: &mut Replica<Releases>, now: i64) -> Option<Sealed> {
    let mut draft = leader.draft(Millis(now), Level::KNOWN);
    leader.state_mut().decide(&(), &mut draft);
    let handled = leader.head().handled;
    let sealed = leader.seal(draft, &LEADER, 1, handled, 2);
    sealed.expect("no poison")
}

#[test]
fn a_leader_a_reader_and_a_restored_one_are_the_same() {
    let mut ledger = Ledger::default();
    let mut leader = Replica::<Releases>::default();
    assert_eq!((leader.next(), leader.newest()), (Lsn(1), Millis(i64::MIN)));
    let record = ledger.scheduler(0, &[ended(5), ended(6)]);
    assert!(leader.receive(&record).unwrap().is_some());
    assert!(leader.has_pending() && !leader.is_unsaid());
    assert_eq!((leader.folded(), leader.next()), (Lsn(0), Lsn(2)));
    leader.fold_all().unwrap();
    assert!(!leader.has_pending() && leader.is_unsaid());
    assert_eq!((leader.folded(), leader.newest()), (Lsn(1), Millis(10)));

    let sealed = decided(&mut leader, 100).expect("two are released");
    assert_eq!((sealed.expected_last, sealed.through), (Lsn(0), Lsn(1)));
    // A frame of the scheduler lands before it.
    let other = ledger.scheduler(1, &[ended(7)]);
    let lsn = ledger.append(&sealed);
    let frame = sealed.at(lsn);
    assert_eq!(
        (frame.lsn, frame.writer, frame.count),
        (Lsn(3), Writer::Quota, 2)
    );
    leader.committed(&sealed, lsn);
    assert!(!leader.is_unsaid());
    let head = leader.head();
    assert_eq!(
        (head.lsn, head.frame_no, head.next_event),
        (Lsn(3), 1, EventNo(3))
    );
    assert_eq!(head.digest, sealed.digest());
    assert_eq!((head.through_lsn, head.now), (Lsn(1), Millis(100)));
    assert_eq!(leader.newest(), Millis(100));
    let witness = leader.witness();
    let digest = Some(sealed.digest());
    assert_eq!(
        (witness.who.as_str(), witness.lsn, witness.digest),
        ("quota", Lsn(3), digest)
    );

    let mut reader = Replica::<Releases>::default();
    for record in &ledger.records {
        reader.receive(record).unwrap();
    }
    assert_eq!((reader.folded(), reader.next()), (Lsn(1), Lsn(4)));
    assert!(reader.has_pending());
    assert_eq!(reader.head(), head);
    let snapshot = leader.snapshot();
    assert_eq!(reader.snapshot(), snapshot);
    assert_eq!(snapshot.chain.head(Writer::Quota), head);
    let scheduler = snapshot.chain.head(Writer::Scheduler);
    assert_eq!((scheduler.lsn, snapshot.position()), (Lsn(1), Lsn(1)));

    let mut restored = Replica::<Releases>::restore(&snapshot).unwrap();
    assert_eq!((restored.head(), restored.next()), (head, Lsn(2)));
    assert!(restored.receive(&other).unwrap().is_some());
    // Its own frame is in the snapshot already.
    assert!(restored.receive(&ledger.records[2]).unwrap().is_none());
    for replica in [&mut leader, &mut reader, &mut restored] {
        if replica.next() == Lsn(2) {
            replica.receive(&other).unwrap();
            replica.receive(&ledger.records[2]).unwrap();
        }
        replica.fold_all().unwrap();
        assert_eq!(replica.state().0, BTreeSet::from([AllocationNo(7)]));
        assert_eq!(replica.folded(), Lsn(3));
        assert_eq!(replica.snapshot(), leader_snapshot(&ledger));
    }
}

/// Returns the snapshot of a replica that has read and folded the whole ledger.
fn leader_snapshot(ledger: &Ledger) -> Snapshot {
    let mut replica = Replica::<Releases>::default();
    for record in &ledger.records {
        replica.receive(record).unwrap();
    }
    replica.fold_all().unwrap();
    replica.snapshot()
}

#[test]
fn a_frame_is_sealed_for_events_for_the_inbox_or_for_readers_who_wait() {
    let mut ledger = Ledger::default();
    let mut leader = Replica::<Releases>::default();
    let first = leader.head();
    let moved = first.handled.moved(3, std::iter::empty()).unwrap();
    let seal = |leader: &Replica<Releases>, handled: &Handled, says_after| {
        let draft = leader.draft(Millis(0), Level::KNOWN);
        let sealed = leader.seal(draft, &LEADER, 1, handled.clone(), says_after);
        sealed.unwrap().is_some()
    };
    assert!(
        !seal(&leader, &first.handled, 0),
        "no reader waits for a first frame"
    );
    assert!(seal(&leader, &moved, u64::MAX));
    let bare = leader.seal_bare(Millis(1), &LEADER, 1, moved.clone(), true);
    assert!(bare.at(Lsn(1)).resigned);
    let lsn = ledger.append(&bare);
    leader.committed(&bare, lsn);
    assert_eq!(leader.head().handled.last(), 3);
    assert!(!seal(&leader, &moved, 1));
    assert!(leader.receive(&ledger.records[0]).unwrap().is_none());
    leader.receive(&ledger.scheduler(1, &[ended(1)])).unwrap();
    leader.receive(&ledger.scheduler(2, &[ended(2)])).unwrap();
    assert!(!seal(&leader, &moved, 1), "not folded");
    leader.fold_all().unwrap();
    assert!(seal(&leader, &moved, 1) && seal(&leader, &moved, 2));
    assert!(!seal(&leader, &moved, 3));
    assert!(leader.is_unsaid());
    let sealed = decided(&mut leader, 50).expect("two events were read");
    assert_eq!(sealed.at(Lsn(4)).count, 0);
    let lsn = ledger.append(&sealed);
    leader.committed(&sealed, lsn);
    assert!(!seal(&leader, &moved, 1));
    // A clock that goes back writes the time of the last frame.
    assert_eq!(leader.draft(Millis(20), Level::KNOWN).now, Millis(50));
    assert_eq!(leader.draft(Millis(60), Level::KNOWN).now, Millis(60));
}

#[test]
fn a_leader_that_was_overtaken_stops() {
    let mut ledger = Ledger::default();
    let mut leader = Replica::<Releases>::default();
    let empty = leader.seal_bare(Millis(0), &LEADER, 2, Handled::default(), false);
    let record = ledger.scheduler(0, &[ended(1)]);
    leader.receive(&record).unwrap();
    leader.fold_all().unwrap();
    let lsn = ledger.append(&empty);
    let found = leader.receive(&ledger.records[1]);
    assert_eq!(found.map(|_| ()), Err(ReplicaError::Overtaken(lsn)));
    // A replica that has not folded that far continues.
    let mut reader = Replica::<Releases>::default();
    reader.receive(&record).unwrap();
    assert!(reader.receive(&ledger.records[1]).unwrap().is_some());
    assert_eq!(reader.folded(), Lsn(0));
}

#[test]
fn a_fact_that_does_not_fit_names_its_position() {
    let mut ledger = Ledger::default();
    let mut reader = Replica::<Releases>::default();
    reader.receive(&ledger.scheduler(0, &[ended(1)])).unwrap();
    reader.receive(&ledger.scheduler(0, &[ended(1)])).unwrap();
    let at = |found: Result<(), ReplicaError>| match found {
        Err(ReplicaError::Illegal { lsn, illegal }) => (lsn, illegal.state),
        other => panic!("{other:?}"),
    };
    assert_eq!(at(reader.fold_all()), (Lsn(2), "ended before"));
}

#[test]
fn a_rehearsal_holds_while_nothing_comes_in_and_nothing_is_due() {
    let mut ledger = Ledger::default();
    let mut leader = Replica::<Releases>::default();
    let rehearse =
        |leader: &Replica<Releases>, now| leader.rehearse(&(), Millis(now), Level::KNOWN);
    let idle = rehearse(&leader, 0).unwrap();
    assert!(idle.holds(Lsn(1), Millis(i64::MAX)));
    assert!(!idle.holds(Lsn(2), Millis(0)) && !idle.is_of(Lsn(2)));
    leader.receive(&ledger.scheduler(0, &[ended(1)])).unwrap();
    leader.fold_all().unwrap();
    let waits = rehearse(&leader, 99).unwrap();
    assert!(waits.holds(Lsn(2), Millis(99)) && !waits.holds(Lsn(2), Millis(100)));
    assert!(waits.is_of(Lsn(2)) && !waits.is_of(Lsn(1)));
    assert!(rehearse(&leader, 100).is_none(), "it would decide");
    assert_eq!(leader.state().0.len(), 1, "a rehearsal changes nothing");
}

#[test]
fn readers_have_read_what_their_last_frames_say() {
    let mut ledger = Ledger::default();
    let mut leader = Replica::<Releases>::default();
    let all = Lsn(u64::MAX);
    let readers = [Writer::Scheduler, Writer::NodeHeartbeat];
    assert_eq!(leader.read_by(&readers), all);
    let empty = leader.seal_bare(Millis(0), &LEADER, 1, Handled::default(), false);
    let lsn = ledger.append(&empty);
    leader.committed(&empty, lsn);
    assert_eq!(leader.read_by(&readers), all);
    leader.receive(&ledger.records[0]).unwrap();
    leader.receive(&ledger.scheduler(1, &[ended(1)])).unwrap();
    assert_eq!(leader.read_by(&readers), Lsn(1));
    assert_eq!(leader.read_by(&[Writer::Scheduler, Writer::Quota]), Lsn(0));
    assert_eq!(leader.read_by(&[]), all);
}

#[test]
fn a_record_continues_the_chain_or_is_refused_by_the_rule_that_it_breaks() {
    let mut ledger = Ledger::default();
    let first = ledger.scheduler(0, &[ended(1)]);
    let second = ledger.scheduler(0, &[ended(2)]);
    let mut chain = Chain::default();
    let accept = |chain: &mut Chain, record: &Record| {
        chain
            .accept(record, Kinds::ALL)
            .map(|frame| frame.is_some())
    };
    let gap = |expected, found| {
        let (expected, found) = (Lsn(expected), Lsn(found));
        Err(ChainError::Gap { expected, found })
    };
    assert_eq!(accept(&mut chain, &second), gap(1, 2));
    assert_eq!(accept(&mut chain, &first), Ok(true));
    assert_eq!(accept(&mut chain, &first), gap(2, 1));
    assert_eq!((chain.last(), chain.furthest()), (Lsn(1), Lsn(1)));
    assert_eq!(chain.digest(), Some(Digest::of(&first.frame)));
    let again = Record::new(Lsn(2), Writer::Scheduler, first.frame.clone());
    let broken = |rule| {
        let (lsn, writer) = (Lsn(2), Writer::Scheduler);
        Err(ChainError::Broken { lsn, writer, rule })
    };
    assert_eq!(
        accept(&mut chain, &again),
        broken("position of the previous frame")
    );
    assert_eq!(accept(&mut chain, &second), Ok(true));
    assert_eq!(
        (chain.last(), chain.head(Writer::Scheduler)),
        (Lsn(2), ledger.scheduler)
    );
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..100 {
        if let Poll::Ready(value) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return value;
        }
    }
    panic!("it waits")
}

#[test]
fn a_bus_bears_a_witness_out_when_it_holds_what_was_read() {
    let bus = MemoryBus::new(1, memory::Faults::default());
    let mut ledger = Ledger::default();
    for no in 1..=3 {
        ledger.scheduler(0, &[ended(no)]);
    }
    bus.loses_its_end(0, ledger.records.clone());
    let check = |lsn: u64, digest: Option<&[u8]>, holds: bool| {
        let witness = Witness {
            who: "w".to_owned(),
            lsn: Lsn(lsn),
            digest: digest.map(Digest::of),
        };
        let (end, read) = (Lsn(3), Lsn(lsn));
        let lost = BusError::Shortened {
            end,
            witness: "w".to_owned(),
            read,
        };
        assert_eq!(
            now(bears_out(&bus, &witness)),
            if holds { Ok(()) } else { Err(lost) }
        );
    };
    let frames = ledger.records.iter().map(|record| record.frame.as_ref());
    let frames: Vec<&[u8]> = frames.collect();
    check(0, None, true);
    check(0, Some(b"other"), true);
    check(3, None, true);
    check(4, None, false);
    for (at, frame) in (1..).zip(&frames) {
        check(at, Some(frame), true);
        check(at, Some(b"other"), false);
    }
    check(4, Some(frames[2]), false);
    assert!(!BusError::Unavailable(String::new()).is_fatal());
    assert!(
        BusError::Foreign {
            lsn: Lsn(1),
            why: String::new()
        }
        .is_fatal()
    );
}

#[test]
fn a_digest_is_read_as_it_is_written() {
    let digest = Digest::of(b"content");
    let text = digest.to_string();
    assert_eq!(text.parse(), Ok(digest));
    assert_eq!(text.to_uppercase().parse(), Ok(digest));
    let short = &text[1..];
    for wrong in [
        "",
        short,
        &format!("{text}0"),
        &format!("g{short}"),
        &format!("+{short}"),
    ] {
        assert_eq!(wrong.parse::<Digest>(), Err(NoDigest), "{wrong}");
    }
    assert_eq!(digest.short()[..], digest.0[..16]);
}

#[test]
fn events_are_numbered_one_after_the_other_and_cost_work() {
    let mut state = Releases((1..=3).map(AllocationNo).collect());
    let mut draft = Draft::new(Millis(7), EventNo(40));
    assert_eq!((draft.count(), draft.is_empty()), (0, true));
    for no in 1..=3 {
        let allocation = AllocationNo(no);
        draft.emit(&mut state, QuotaReleased { allocation });
    }
    assert_eq!((draft.next_no(), draft.count()), (EventNo(43), 3));
    let left = draft.work_left();
    assert_eq!(left, Draft::WORK_MAX - 3 * 12);
    draft.spend_on(2);
    assert_eq!(draft.work_left(), left - 2 * 24);
}

#[test]
fn a_decider_without_more_to_say_has_no_upgrade_and_no_proof() {
    let state = Releases::default();
    assert_eq!(Releases::upgrade(0, &[]), None);
    assert_eq!(
        (state.is_counted_on(), state.proves_every(&())),
        (false, None)
    );
}

#[test]
fn figures_are_the_samples_in_their_order() {
    const METRIC: Metric = Metric::gauge("apportion_x_seconds", "").by(&["queue"]);
    let mut times = Times::default();
    for ms in [5, 5, 20] {
        times.add(ms);
    }
    assert_eq!((times.count(), times.sum_ms()), (3, 30));
    let mut shown = Figures::default();
    shown.whole(&METRIC, &["a"], 2);
    shown.milli(&METRIC, &["b"], 2);
    shown.times(&METRIC, &times);
    let found: Vec<_> = shown
        .all()
        .iter()
        .map(|it| (it.labels.join(","), it.value.clone()))
        .collect();
    let expected = [
        ("a".to_owned(), figures::Value::Milli(2000)),
        ("b".to_owned(), figures::Value::Milli(2)),
        (String::new(), figures::Value::Times(times)),
    ];
    assert_eq!(found, expected);
    assert_eq!(METRIC.labels, ["queue"]);
}

#[test]
fn the_last_handled_message_may_be_of_a_sender_that_is_ahead() {
    let ahead = [("a", 9), ("b", 7)].map(|(who, at)| (Token::new(who).unwrap(), at));
    let handled = Handled::default().moved(5, ahead.into_iter()).unwrap();
    assert_eq!((handled.last(), Handled::default().last()), (9, 0));
}

#[test]
fn a_pause_grows_with_the_changes_up_to_its_maximum() {
    let batching = Batching {
        pause_ms: 150,
        pause_ms_max: 1000,
        ..Batching::BULK
    };
    let table = [(0, 150), (15, 150), (16, 151), (1600, 250), (20_000, 1000)];
    for (changes, expected) in table {
        assert_eq!(batching.pause(changes), expected, "{changes}");
    }
    assert!(Batching::PROMPT.is_prompt() && !batching.is_prompt());
    assert_eq!(Batching::PROMPT.pause(usize::MAX), 0);
}

#[test]
fn a_scribe_writes_frames_that_continue_each_other() {
    let mut scribe = Scribe::default();
    let mut chain = Chain::default();
    let frames = [
        (Writer::Scheduler, 2),
        (Writer::Quota, 0),
        (Writer::Scheduler, 1),
    ];
    for (lsn, (writer, count)) in (1..).zip(frames) {
        let before = scribe.next_event(writer);
        let record = scribe.frame(writer, Millis(lsn), (0..count).map(ended));
        assert_eq!(scribe.next_event(writer), EventNo(before.0 + count));
        let frame = chain.accept(&record, Kinds::ALL).unwrap().unwrap();
        let found = (frame.lsn.0, frame.writer, u64::from(frame.count));
        assert_eq!(found, (lsn as u64, writer, count));
        assert_eq!(frame.through_lsn, Lsn(lsn as u64 - 1));
    }
    assert_eq!(scribe.next_event(Writer::Scheduler), EventNo(4));
}
