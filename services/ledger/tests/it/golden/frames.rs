//! Frames of every version decode for ever, too, and have the same bytes on every machine. `schemas/golden/frames.txt` holds a
//! frame of each writer twice: with the golden events as messages, and with the same in columns. Lines are added, never changed;
//! with `APPORTION_WRITE` set, those of a writer that has none.

use super::{GOLDEN, hex, unhex};
use bytes::Bytes;
use ledger::{Chain, Record};
use prost::Message as _;
use schemas::{ToProst, v1};
use vocab::{Event, Kinds, Lsn, Writer};
use wire::{Columns, Message as _};

const FRAMES: &str = include_str!("../../../../../schemas/golden/frames.txt");
/// The number of the events in columns.
const COLUMNS: u32 = 13;

/// A writer's first frame without its events.
fn bare() -> v1::Frame {
    v1::Frame {
        epoch: 1,
        frame_no: 1,
        now_ms: 1_700_000_000_000,
        first_event_no: 1,
        leader: vec![7; 16],
        ..v1::Frame::default()
    }
}

fn as_messages(events: &[Event]) -> Vec<u8> {
    let events = events.iter().map(ToProst::to_prost);
    let frame = v1::Frame {
        events: events.collect(),
        ..bare()
    };
    frame.encode_to_vec()
}

fn in_columns(events: &[Event]) -> Vec<u8> {
    let mut columns = Columns::default();
    events.iter().for_each(|event| columns.push(event));
    let mut frame = bare().encode_to_vec();
    columns.append_field(COLUMNS, &mut frame);
    frame
}

fn read(writer: Writer, bytes: &[u8]) -> Vec<Event> {
    let frame = Bytes::copy_from_slice(bytes);
    let record = Record::new(Lsn(1), writer, frame);
    let frame = Chain::default().accept(&record, Kinds::ALL);
    let frame = frame.expect("a frame").expect("a new one");
    let events = frame.placed().map(|(_, event)| event.clone());
    events.collect()
}

/// None: there is no such line.
fn line(writer: Writer, how: &str) -> Option<Vec<u8>> {
    let mut lines = FRAMES.lines().filter_map(|line| line.rsplit_once(' '));
    let name = format!("{} {how}", writer.name());
    let (_, bytes) = lines.find(|(it, _)| *it == name)?;
    Some(unhex(bytes))
}

#[test]
fn every_golden_frame_still_says_what_it_said() {
    let mut missing = String::new();
    for writer in Writer::ALL {
        if let (Some(messages), Some(columns)) = (line(writer, "messages"), line(writer, "columns"))
        {
            let events = read(writer, &messages);
            assert!(!events.is_empty());
            assert_eq!(read(writer, &columns), events, "{writer:?}");
            assert_eq!(hex(&in_columns(&events)), hex(&columns), "{writer:?}");
            continue;
        }
        let golden = GOLDEN.lines().filter_map(|line| line.split_once(' '));
        let golden = golden.filter(|(name, _)| *name != "#");
        let events = golden.map(|(_, bytes)| Event::decode(&unhex(bytes)).expect("a golden event"));
        let events: Vec<Event> = events.filter(|event| event.writer() == writer).collect();
        for (how, bytes) in [
            ("messages", as_messages(&events)),
            ("columns", in_columns(&events)),
        ] {
            missing += &format!("{} {how} {}\n", writer.name(), hex(&bytes));
        }
    }
    if std::env::var_os("APPORTION_WRITE").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../schemas/golden/frames.txt"
        );
        return std::fs::write(path, FRAMES.to_owned() + &missing).unwrap();
    }
    assert!(
        missing.is_empty(),
        "run this with APPORTION_WRITE=1:\n{missing}"
    );
}

#[test]
fn events_are_in_columns_or_by_themselves() {
    let both = [
        line(Writer::Quota, "messages").expect("a golden frame"),
        line(Writer::Quota, "columns").expect("a golden frame"),
    ];
    let frame = Bytes::from(both.concat());
    let record = Record::new(Lsn(1), Writer::Quota, frame);
    let refused = Chain::default().accept(&record, Kinds::ALL);
    let refused = refused.expect_err("it is refused").to_string();
    assert!(
        refused.contains("both in columns and by themselves"),
        "{refused}"
    );
}
