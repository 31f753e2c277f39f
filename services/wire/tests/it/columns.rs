//! Messages come back out of columns as they were, and columns that do not fit are refused.

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::collections::BTreeMap;
use vocab::Event;
use wire::{Columns, Fault, Message, Result, Rows, Wire};

/// What is in a field of this number.
fn columns(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    let key = prost::encoding::decode_varint(&mut rest).unwrap();
    let length = prost::encoding::decode_varint(&mut rest).unwrap();
    assert_eq!((key, length), (1 << 3 | 2, rest.len() as u64));
    rest
}

fn encode<T: wire::Oneof>(messages: &[T], columns: &mut Columns) -> Vec<u8> {
    columns.clear();
    messages.iter().for_each(|message| columns.push(message));
    assert!(columns.fit());
    let mut bytes = Vec::new();
    columns.append_field(1, &mut bytes);
    bytes
}

/// All of them, in their order.
fn decode<T: wire::Oneof>(bytes: &[u8]) -> Result<Vec<T>> {
    let rows = Rows::parse(bytes)?;
    let runs = rows.runs()?;
    let mut found: BTreeMap<u32, std::vec::IntoIter<T>> = BTreeMap::new();
    for (number, _) in &runs {
        let mut messages = Vec::new();
        rows.read(*number, &mut messages)?;
        found.insert(*number, messages.into_iter());
    }
    let mut all = Vec::new();
    for (number, count) in runs {
        let messages = found.get_mut(&number).ok_or(Fault::Columns)?;
        let before = all.len();
        all.extend(messages.take(count as usize));
        if all.len() != before + count as usize {
            return Err(Fault::Columns.into());
        }
    }
    Ok(all)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = proptest::collection::vec(any::<u64>(), 0..80).prop_map(|dice| {
        let mut dice = dice.into_iter();
        let mut choose = |sides| dice.next().unwrap_or(0) % sides;
        Event::decode(&wire::sample(Event::DESCRIPTOR, &mut choose)).ok()
    });
    // Some of them more than once, as it is on a ledger.
    let again = (event, 1..4_usize).prop_map(|(event, times)| vec![event; times]);
    proptest::collection::vec(again, 0..12).prop_map(|events| {
        let events = events.into_iter().flatten();
        events.flatten().collect()
    })
}

fn damage() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    proptest::collection::vec((any::<usize>(), any::<u8>(), 0..4u8), 1..4)
}

/// Returns the columns of the events, damaged; the last part of each step says how.
fn damaged(events: &[Event], damage: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = columns(&encode(events, &mut Columns::default())).to_vec();
    for &(at, byte, how) in damage {
        let at = at % (bytes.len() + 1);
        match how {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte),
            2 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

/// The properties below skip dice that make no event, and columns that cannot be read.
#[test]
fn most_samples_have_events_and_some_are_read_after_damage() {
    const SAMPLES: usize = 200;
    let mut runner = TestRunner::deterministic();
    let strategy = (events(), damage());
    let (mut filled, mut read) = (0, 0);
    for _ in 0..SAMPLES {
        let tree = strategy.new_tree(&mut runner);
        let (events, damage) = tree.expect("the strategy rejects nothing").current();
        filled += usize::from(!events.is_empty());
        let found = decode::<Event>(&damaged(&events, &damage));
        read += usize::from(found.is_ok_and(|found| !found.is_empty()));
    }
    assert!(
        filled >= 100 && read >= 5,
        "{filled} have events, {read} are read"
    );
}

proptest! {
    #[test]
    fn events_come_back_out_of_columns(first in events(), second in events()) {
        let mut used = Columns::default();
        for events in [&first, &second] {
            let bytes = encode(events, &mut used);
            prop_assert_eq!(&decode::<Event>(columns(&bytes)), &Ok(events.clone()));
            // What was in them before is not in the bytes.
            prop_assert_eq!(bytes, encode(events, &mut Columns::default()));
        }
    }

    #[test]
    fn damaged_columns_are_read_or_refused(
        events in events(),
        damage in damage(),
    ) {
        if let Ok(events) = decode::<Event>(&damaged(&events, &damage)) {
            let again = encode(&events, &mut Columns::default());
            prop_assert_eq!(decode::<Event>(columns(&again)), Ok(events));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode::<Event>(&bytes);
    }

    /// Nothing but small varints: these are columns far more often.
    #[test]
    fn few_bytes_are_read_or_refused(bytes in proptest::collection::vec(0..40u8, 0..60)) {
        let _ = decode::<Thing>(&[&[8, 4, 42, bytes.len() as u8], &bytes[..]].concat());
    }
}

#[derive(Debug, Clone, PartialEq, Wire)]
#[wire(oneof)]
enum Thing {
    #[wire(1)]
    Bought(Bought),
    #[wire(4)]
    Sold(u64),
}

#[derive(Debug, Clone, PartialEq, Default, Wire)]
struct Bought {
    #[wire(1)]
    at: u64,
    #[wire(2)]
    name: String,
    #[wire(3)]
    prices: Vec<u32>,
    #[wire(4)]
    part: Option<Box<Part>>,
    #[wire(5, optional)]
    limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Wire)]
struct Part {
    #[wire(1)]
    of: u64,
}

/// A field with its bytes.
fn field(number: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    [&[number << 3 | 2, body.len() as u8], &body[..]].concat()
}

#[test]
fn columns_are_what_the_schema_says() {
    let bought = |at, name: &str| {
        Thing::Bought(Bought {
            at,
            name: name.into(),
            ..Bought::default()
        })
    };
    let things = [
        bought(1_000, "oil"),
        Thing::Sold(7),
        Thing::Sold(7),
        bought(1_001, "oil"),
        bought(1_002, "corn"),
    ];
    let bytes = encode(&things, &mut Columns::default());
    let at = field(10, &[&[8, 1], &field(5, &[&[0xd0, 0x0f, 2]])]);
    let name = [
        &[8, 2][..],
        &field(6, &[&[1, 1, 0]]),
        &field(7, &[&[4]]),
        &field(9, &[b"corn"]),
    ];
    let bought = [
        &[8, 1][..],
        &field(2, &[&[0, 1, 2, 2]]),
        &at,
        &field(10, &name),
    ];
    let sold = [&[8, 4][..], &field(2, &[&[1, 2]]), &field(4, &[&[7]])];
    let words = [field(2, &[&[3]]), field(4, &[b"oil"])].concat();
    let expected = [&[8, 5], &words[..], &field(5, &bought), &field(5, &sold)].concat();
    assert_eq!(columns(&bytes), expected);
    assert_eq!(decode::<Thing>(&expected), Ok(things.to_vec()));
}

/// Three rows of `Bought` with these columns.
fn three(columns: &[Vec<u8>]) -> Vec<u8> {
    [vec![8, 3], field(5, &[&[8, 1], &columns.concat()])].concat()
}

fn column(number: u8, lists: &[Vec<u8>]) -> Vec<u8> {
    field(10, &[&[8, number], &lists.concat()])
}

#[test]
fn ids_of_digits_take_half() {
    let things = |name: fn(u64) -> String| {
        let bought = |no: u64| {
            Thing::Bought(Bought {
                name: name(no.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                ..Bought::default()
            })
        };
        let things: Vec<_> = (1..=100).map(bought).collect();
        let bytes = encode(&things, &mut Columns::default());
        assert_eq!(decode(columns(&bytes)), Ok(things));
        bytes.len()
    };
    assert!(things(|no| format!("{no:016x}")) < 830);
    assert!(things(|no| format!("{no:016X}")) > 1_600);
    assert!(things(|no| format!("{no:x}g")) > 1_600);
}

#[test]
fn lists_go_on_as_they_end() {
    let check = |columns: &[Vec<u8>], expected: fn(&Bought) -> u64, values: [u64; 3]| {
        let things = decode::<Thing>(&three(columns)).expect("they are columns");
        let found = things.iter().map(|thing| match thing {
            Thing::Bought(bought) => expected(bought),
            Thing::Sold(_) => panic!("{thing:?}"),
        });
        assert_eq!(found.collect::<Vec<_>>(), values);
    };
    let list = |number, numbers: &[u8]| field(number, &[numbers]);
    check(&[], |it| it.at, [0; 3]);
    check(&[column(1, &[list(4, &[7])])], |it| it.at, [7; 3]);
    check(&[column(1, &[list(4, &[7, 8])])], |it| it.at, [7, 8, 8]);
    check(&[column(1, &[list(5, &[8, 1])])], |it| it.at, [4, 3, 2]);
    let some = [list(2, &[1, 1]), list(4, &[7])];
    check(&[column(1, &some)], |it| it.at, [0, 7, 0]);
    let lists = [list(3, &[2]), list(4, &[1, 2, 3])];
    let sum = |it: &Bought| it.prices.iter().map(|it| u64::from(*it)).sum();
    check(&[column(3, &lists)], sum, [3, 6, 6]);
    let there = |it: &Bought| u64::from(it.limit.is_some());
    let zero = [list(2, &[0, 2]), list(4, &[0])];
    check(&[column(5, &zero)], there, [1, 1, 0]);
    let name = |it: &Bought| u64::from_str_radix(&it.name, 16).unwrap_or(0);
    let digits = [list(7, &[2]), field(11, &[&[0x0f, 0xa0, 0x11]])];
    check(&[column(2, &digits)], name, [15, 160, 17]);
    // What is not known is passed over, whatever it is of.
    check(
        &[column(7, &[list(4, &[1])]), column(8, &[list(7, &[0])])],
        there,
        [0; 3],
    );
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let check = |columns: &[Vec<u8>]| {
        let read = decode::<Thing>(&three(columns));
        assert_eq!(
            read.map_err(|error| error.fault),
            Err(Fault::Columns),
            "{columns:?}"
        );
    };
    let list = |number, numbers: &[u8]| field(number, &[numbers]);
    // More values than rows, none for rows, rows or counts beyond the rows.
    check(&[column(1, &[list(4, &[1, 2, 3, 4])])]);
    check(&[column(1, &[list(4, &[])])]);
    check(&[column(1, &[list(2, &[2, 2]), list(4, &[1])])]);
    check(&[column(1, &[list(3, &[1, 1, 1, 1]), list(4, &[1])])]);
    // A few bytes for a million prices and more.
    check(&[column(3, &[list(3, &[0xff, 0xff, 0x7f]), list(4, &[1])])]);
    check(&[column(
        3,
        &[
            list(
                3,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
            list(4, &[1]),
        ],
    )]);
    // Texts that are too short or too long, and a word that is not there.
    check(&[column(2, &[list(7, &[2]), field(9, &[b"abcde"])])]);
    check(&[column(2, &[list(7, &[1]), field(9, &[b"abcd"])])]);
    check(&[column(2, &[field(9, &[b"abc"])])]);
    check(&[column(2, &[list(6, &[1])])]);
    // Texts that share more than they have, than the one before has, or than 64 bytes.
    let texts = |lengths: &[u8], shared: &[u8], count| {
        let texts = field(9, &[&vec![b'a'; count]]);
        column(2, &[list(7, lengths), list(8, shared), texts])
    };
    check(&[texts(&[1], &[0, 2], 3)]);
    check(&[texts(&[1, 2], &[0, 2, 1], 2)]);
    check(&[texts(&[80], &[0, 65], 110)]);
    check(&[texts(&[2], &[1], 3)]);
    assert!(decode::<Thing>(&three(&[texts(&[80], &[0, 64], 112)])).is_ok());
    // Half a byte of digits, too few of them, and digits beside texts.
    let digits = |lengths: &[u8], bytes: &[u8]| [list(7, lengths), field(11, &[bytes])];
    check(&[column(2, &digits(&[1, 1, 2], &[1, 2]))]);
    check(&[column(2, &digits(&[4], &[1, 2, 3, 4, 5]))]);
    let [lengths, bytes] = digits(&[2], &[1, 2, 3]);
    check(&[column(2, &[lengths.clone(), list(8, &[0]), bytes.clone()])]);
    check(&[column(2, &[lengths, field(9, &[b"ab"]), bytes])]);
    // Two contents, none that is known, and a column that is there twice.
    check(&[column(1, &[list(4, &[1]), list(5, &[1])])]);
    check(&[column(1, &[list(4, &[1]), list(7, &[0])])]);
    check(&[column(1, &[list(4, &[1]), list(11, &[1])])]);
    let again = || column(1, &[list(4, &[1])]);
    check(&[again(), again()]);

    let check = |bytes: &[u8], fault| {
        let read = decode::<Thing>(bytes).map_err(|error| error.fault);
        assert_eq!(read, Err(fault), "{bytes:?}");
    };
    let sold = |lists: &[Vec<u8>]| field(5, &[&[8, 4], &lists.concat()]);
    // Rows of no kind, of two, more than there may be; a column of none; nothing.
    check(&[8, 1], Fault::Columns);
    let both = [vec![8, 1], field(5, &[&[8, 1]]), sold(&[list(4, &[1])])].concat();
    check(&both, Fault::Columns);
    let many = [vec![8, 0x81, 0x80, 4], sold(&[list(4, &[1])])].concat();
    check(&many, Fault::Columns);
    check(&[vec![8, 1], field(5, &[])].concat(), Fault::Columns);
    check(&[], Fault::Columns);
    // Lengths of words that there are no texts of, and the other way round.
    let words = |words: Vec<u8>| [vec![8, 1], words, sold(&[list(4, &[1])])].concat();
    check(&words(list(2, &[2])), Fault::Columns);
    check(&words(field(4, &[b"ab"])), Fault::Columns);
    check(
        &words([list(2, &[0]), field(4, &[b"ab"])].concat()),
        Fault::Columns,
    );
    // A message where a number is, a text where a message is, and a value that the type does not have.
    let invalid = |columns: &[Vec<u8>], field| {
        let error = decode::<Thing>(&three(columns)).expect_err("it is refused");
        assert_eq!(error.field, field);
    };
    invalid(&[column(1, &[])], "Bought.at");
    invalid(&[column(4, &[list(7, &[0])])], "Bought.part");
    invalid(&[column(4, &[list(3, &[2])])], "Bought.part");
    invalid(
        &[column(2, &[list(7, &[1]), field(9, &[b"ab\xff"])])],
        "Bought.name",
    );
}

#[test]
fn there_may_be_no_more_rows_than_a_reader_believes() {
    let mut columns = Columns::default();
    for no in 0..=1 << 16 {
        assert!(columns.fit());
        columns.push(&Thing::Sold(no));
    }
    assert!(!columns.fit());
    columns.clear();
    assert!(columns.fit());
}
