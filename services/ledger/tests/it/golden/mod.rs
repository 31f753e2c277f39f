//! Frames of every version decode for ever. `schemas/golden/events.txt` holds an encoded sample of each event as the first
//! version wrote it; lines are added, never changed. With `APPORTION_WRITE` set, those that are missing are added: what
//! stands in the samples here, and of any other kind of event one that is made of its description.

use schemas::v1;
use vocab::{Event, EventKind};
use wire::{Message as _, Oneof as _};

mod added;
mod frames;
mod samples;

const GOLDEN: &str = include_str!("../../../../../schemas/golden/events.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

#[test]
fn every_golden_event_still_says_what_it_said() {
    let mut samples = samples::samples();
    samples.extend(added::samples());
    let lines: Vec<&str> = GOLDEN.lines().filter(|l| !l.starts_with('#')).collect();
    for line in &lines {
        let (name, bytes) = line.split_once(' ').unwrap();
        let decoded = Event::decode(&unhex(bytes)).unwrap();
        match samples.iter().find(|(n, _)| *n == name) {
            Some((_, expected)) => assert_eq!(&decoded, expected, "{name}"),
            None => assert_eq!(hex(&decoded.encode_to_vec()), bytes, "{name}"),
        }
    }
    let encoded = samples
        .iter()
        .map(|(name, event)| format!("{name} {}", hex(&event.encode_to_vec())));
    let missing = encoded.filter(|line| !lines.contains(&line.as_str()));
    let missing: Vec<String> = missing.chain(plain(&lines)).collect();
    if std::env::var_os("APPORTION_WRITE").is_some() {
        let added = missing.iter().map(|line| format!("{line}\n"));
        let all = GOLDEN.to_owned() + &added.collect::<String>();
        return std::fs::write(
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../schemas/golden/events.txt"
            ),
            all,
        )
        .unwrap();
    }
    assert!(
        missing.is_empty(),
        "no golden sample, run this with APPORTION_WRITE=1:\n{}",
        missing.join("\n")
    );
}

/// The plainest event of each kind that no line is of.
fn plain(lines: &[&str]) -> impl Iterator<Item = String> {
    let kind = |bytes: &[u8]| Event::decode(bytes).map(|event| event.kind());
    let there = lines.iter().filter_map(|line| line.split_once(' '));
    let there: Vec<_> = there.map(|(_, bytes)| kind(&unhex(bytes))).collect();
    let kinds = 0..Event::NUMBERS.len() as u64;
    kinds.filter_map(move |which| {
        let mut choices = [which].into_iter();
        let mut choose = |_| choices.next().unwrap_or(0);
        let bytes = wire::sample(Event::DESCRIPTOR, &mut choose);
        let kind = kind(&bytes);
        let name = kind.as_ref().expect("it is an event").name();
        (!there.contains(&kind)).then(|| format!("{name} {}", hex(&bytes)))
    })
}

#[test]
fn an_event_begins_with_the_number_of_its_kind() {
    let mut samples = samples::samples();
    samples.extend(added::samples());
    for (name, event) in samples {
        let bytes = event.encode_to_vec();
        let key = prost::encoding::decode_varint(&mut &bytes[..]).unwrap();
        let kind = EventKind::from_number(key >> 3).expect(name);
        assert_eq!(kind.writer(), event.writer(), "{name}");
    }
}

#[test]
fn an_event_without_a_kind_or_with_an_unknown_value_is_refused() {
    use v1::event::Kind;
    let bytes = |kind| prost::Message::encode_to_vec(&v1::Event { kind });
    let refused = |kind| Event::decode(&bytes(kind)).is_err();
    assert!(refused(None));
    let waiting = v1::AllocationWaiting {
        allocation: 1,
        reason: 99,
        pending_group: 0,
    };
    assert!(refused(Some(Kind::AllocationWaiting(waiting))));
    let placed = v1::AllocationPlaced {
        node: "a.b".into(),
        ..Default::default()
    };
    assert!(refused(Some(Kind::AllocationPlaced(placed))));
    let placed = v1::AllocationPlaced {
        node: "n".into(),
        zones: 256,
        ..Default::default()
    };
    assert!(refused(Some(Kind::AllocationPlaced(placed))));
    let preempted = v1::AllocationPreempted::default();
    assert!(refused(Some(Kind::AllocationPreempted(preempted))));
    let explained = v1::PendingGroupExplained {
        queue: "q".into(),
        reason: 4,
        counts: vec![v1::FilterCount {
            filter: 99,
            nodes: 1,
        }],
        ..Default::default()
    };
    assert!(refused(Some(Kind::PendingGroupExplained(explained))));
}

#[test]
fn events_are_what_the_schema_says() {
    let found = wire::differences(Event::DESCRIPTOR, schemas::FILE_DESCRIPTOR_SET);
    assert_eq!(found, Ok(Vec::new()));
}
