//! Sequences of ledger frames, and the segment files of a ledger copy.

use crate::parts::Parts;
use bytes::Bytes;
use ledger::{Chain, ChainError, Head, Record, Scribe};
use ledger_nats::copy::{MAGIC, Segment};
use prost::Message;
use schemas::v1;
use vocab::{Event, Kinds, Lsn, Millis, Writer};

/// Flag in the tag of a frame: its links to the previous frame are corrected before it is read.
const LINKED: u8 = 0x80;

fn writer(tag: u8) -> Writer {
    Writer::ALL[usize::from(tag & !LINKED) % Writer::ALL.len()]
}

/// Appends records to a chain, one per part; the tag selects the writer. True if any record is accepted.
pub fn chain(input: &[u8]) -> bool {
    let (mut chain, mut bare) = (Chain::default(), Chain::default());
    let mut accepted = false;
    for (tag, bytes) in Parts::of(input) {
        let writer = writer(tag);
        let bytes = match tag & LINKED {
            0 => Bytes::copy_from_slice(bytes),
            _ => linked(bytes, &chain.head(writer)),
        };
        let record = Record::new(Lsn(chain.last().0 + 1), writer, bytes);
        let before = chain.clone();
        match chain.accept(&record, Kinds::ALL) {
            Ok(Some(frame)) => {
                accepted = true;
                let of_prost = v1::Frame::decode(record.frame.clone())
                    .expect("prost decodes an accepted frame");
                let events: Vec<Event> = frame.placed().map(|(_, event)| event.clone()).collect();
                assert_eq!(events.len(), frame.count as usize);
                if of_prost.columns.is_none() {
                    assert_eq!(of_prost.events.len(), events.len());
                }
                assert_eq!(of_prost.resigned, record.resigned());
                // A reader that decodes none of the events reaches the same head.
                let same = Record::new(record.lsn, writer, record.frame.clone());
                let read = bare.accept(&same, Kinds::of(&[]));
                assert!(matches!(read, Ok(Some(_))), "{read:?}");
                assert_eq!(bare, chain);
                again(writer, frame.now, events);
            }
            Ok(None) => panic!("a record after the end of the chain is reported as known"),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(!matches!(error, ChainError::Gap { .. }), "{error}");
                assert_eq!(chain, before, "a rejected record changed the chain");
            }
        }
    }
    accepted
}

/// Asserts that events are unchanged after they are written to a frame and read.
fn again(writer: Writer, now: Millis, events: Vec<Event>) {
    let mut chain = Chain::default();
    let record = Scribe::default().frame(writer, now, events.clone());
    let frame = chain.accept(&record, Kinds::ALL);
    let frame = frame
        .expect("a written frame is readable")
        .expect("the frame is new");
    assert!(frame.placed().map(|(_, event)| event).eq(&events));
}

/// Returns the frame with links that continue `head`; returns the bytes unchanged if they are not a frame.
fn linked(bytes: &[u8], head: &Head) -> Bytes {
    let Ok(mut frame) = v1::Frame::decode(bytes) else {
        return Bytes::copy_from_slice(bytes);
    };
    frame.prev_lsn = head.lsn.0;
    frame.prev_digest = match head.frame_no {
        0 => Vec::new(),
        _ => head.digest.0.to_vec(),
    };
    frame.frame_no = head.frame_no + 1;
    frame.first_event_no = head.next_event.0;
    frame.epoch = frame.epoch.max(head.epoch).max(1);
    frame.now_ms = frame.now_ms.max(head.now.0);
    frame.through_lsn = head.through_lsn.0;
    frame.encode_to_vec().into()
}

/// Parses the input as a segment of a copy. Also writes the input's parts as records of a segment and parses that segment,
/// complete and cut. True if the input contains a record.
pub fn copy(input: &[u8]) -> bool {
    let mut accepted = false;
    for is_last in [true, false] {
        if let Ok(segment) = Segment::parse(input, is_last) {
            assert!(segment.whole <= input.len());
            accepted |= !segment.records.is_empty();
        }
    }
    let mut file = MAGIC.to_vec();
    let (mut ends, mut written) = (vec![file.len()], Vec::new());
    for (lsn, (tag, bytes)) in (1..).zip(Parts::of(input)) {
        let record = Record::new(Lsn(lsn), writer(tag), Bytes::copy_from_slice(bytes));
        Segment::write(&record, &mut file).expect("a record can be serialized");
        ends.push(file.len());
        written.push(record);
    }
    let whole = Segment::parse(&file, false).expect("a written segment is readable");
    let said = |record: &Record| (record.lsn, record.writer, record.frame.clone());
    assert!(whole.records.iter().map(said).eq(written.iter().map(said)));
    // A segment that is cut at any byte contains the records before the cut.
    let cut = input.iter().map(|byte| usize::from(*byte)).sum::<usize>() % (file.len() + 1);
    if let Ok(segment) = Segment::parse(&file[..cut], true) {
        let kept = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(segment.records.len(), kept.saturating_sub(1));
    } else {
        panic!("an unfinished segment is rejected, cut at {cut}");
    }
    accepted
}
