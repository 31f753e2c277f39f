//! What is refused, and by which name.

use vocab::fact::*;
use vocab::*;
use wire::{Fault, Message, Wire, WireError};

fn key(number: u8, wire: u8) -> u8 {
    number << 3 | wire
}

fn varint(number: u8, value: &[u8]) -> Vec<u8> {
    [&[key(number, 0)], value].concat()
}

fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    [&[key(number, 2), value.len() as u8], value].concat()
}

#[track_caller]
fn refused<T: Message + std::fmt::Debug>(parts: &[Vec<u8>], field: &str, fault: Fault) {
    let error = T::decode(&parts.concat()).expect_err("it is refused");
    assert_eq!((error.field, error.fault), (field, fault));
}

fn operation() -> Vec<Vec<u8>> {
    vec![bytes(1, b"t"), bytes(3, &[7; 16])]
}

fn with(part: Vec<u8>) -> Vec<Vec<u8>> {
    [operation(), vec![part]].concat()
}

#[test]
fn each_bad_value_is_named() {
    use Fault::{Invalid, Missing, Repeated, Truncated};
    assert!(Operation::decode(&operation().concat()).is_ok());
    refused::<Operation>(&[], "Operation.tenant", Missing);
    refused::<Operation>(&with(bytes(1, b"")), "Operation.tenant", Missing);
    refused::<Operation>(&with(bytes(1, b"a.b")), "Operation.tenant", Invalid);
    refused::<Operation>(&with(bytes(1, b"\xff")), "Operation.tenant", Invalid);
    refused::<Operation>(&with(bytes(2, b"a.b")), "Operation.operation_id", Invalid);
    refused::<Operation>(&with(bytes(3, &[7; 15])), "Operation.digest", Invalid);
    refused::<Operation>(&[bytes(1, b"t")], "Operation.digest", Missing);
    refused::<Operation>(&with(bytes(3, b"")), "Operation.digest", Missing);
    let untraced = Operation::decode(&with(bytes(5, b"")).concat());
    assert_eq!(untraced.map(|it| it.trace), Ok(None));
    refused::<Operation>(&with(bytes(5, &[7; 26])), "Operation.trace", Invalid);
    refused::<Operation>(
        &with(vec![key(4, 2), 200, 1]),
        "Operation.reply_to",
        Truncated,
    );
    // 300 for a byte, packed and not; 65,536 for two.
    refused::<Topology>(&[bytes(2, &[0xac, 2])], "Topology.distances", Invalid);
    refused::<Topology>(&[varint(2, &[0xac, 2])], "Topology.distances", Invalid);
    refused::<Zone>(&[varint(3, &[0x80, 0x80, 4])], "Zone.gpus", Invalid);
    refused::<Topology>(
        &[bytes(3, &varint(2, &[0xac, 2]))],
        "DeviceLink.high",
        Invalid,
    );
    // Enums: with a 0 of their own and without.
    refused::<PlacementRules>(&[varint(7, &[3])], "PlacementRules.numa", Invalid);
    let label = bytes(1, b"l");
    refused::<Requirement>(
        std::slice::from_ref(&label),
        "Requirement.operator",
        Missing,
    );
    refused::<Requirement>(
        &[label.clone(), varint(2, &[0])],
        "Requirement.operator",
        Missing,
    );
    refused::<Requirement>(
        &[label.clone(), varint(2, &[9])],
        "Requirement.operator",
        Invalid,
    );
    refused::<Requirement>(&[label, bytes(3, b"")], "Requirement.values", Invalid);
    refused::<PriorityClass>(&[varint(5, &[9])], "PriorityClass.placement", Invalid);
    // Messages: missing, twice, bad inside.
    let operation = bytes(1, &operation().concat());
    type Set = Applied<QuotaSet>;
    let change = |parts: &[Vec<u8>]| bytes(3, &parts.concat());
    refused::<Set>(&[], "QuotaSet.operation", Missing);
    let twice = [operation.clone(), operation.clone()];
    refused::<Set>(&twice, "QuotaSet.operation", Repeated);
    refused::<Set>(&[bytes(1, b"")], "Operation.tenant", Missing);
    refused::<Set>(std::slice::from_ref(&operation), "QuotaSet.change", Missing);
    refused::<QuotaSet>(&[], "QuotaSet.Change.tenant", Missing);
    refused::<Set>(
        &[operation.clone(), change(&[bytes(2, b".")])],
        "QuotaSet.Change.team",
        Invalid,
    );
    refused::<QuotaSet>(&[bytes(4, b"gpus")], "QuotaSet.Change.resource", Invalid);
    let limits = bytes(5, b"");
    refused::<QuotaSet>(
        &[limits.clone(), limits],
        "QuotaSet.Change.limits",
        Repeated,
    );
    // Oneofs.
    let event = |number: u8, body: &[Vec<u8>]| {
        [vec![key(number, 2)], {
            let body = body.concat();
            [vec![body.len() as u8], body].concat()
        }]
        .concat()
    };
    refused::<Event>(&[], "Event.kind", Missing);
    // 39 is no kind.
    refused::<Event>(&[vec![0xb8, 2, 1]], "Event.kind", Missing);
    refused::<Event>(&[event(4, &[])], "AllocationRequested.operation", Missing);
    let long = |number: u16, body: Vec<u8>| {
        let key = number << 3 | 2;
        [
            vec![key as u8 | 0x80, (key >> 7) as u8, body.len() as u8],
            body,
        ]
        .concat()
    };
    refused::<Event>(
        &[long(16, operation.clone())],
        "PriorityRequested.target",
        Missing,
    );
    let cpu = change(&[bytes(1, b"t"), bytes(4, b"cpu")]);
    let set = event(2, &[operation.clone(), cpu]);
    assert!(Event::decode(&set).is_ok());
    refused::<Event>(&[set.clone(), set], "Event.quota_set", Repeated);
    let target = [operation.clone(), bytes(3, b"")].concat();
    refused::<Event>(&[long(16, target)], "PriorityTarget.job_set", Invalid);
    let ask = |part: Vec<u8>| long(17, [operation.clone(), part].concat());
    refused::<Event>(&[ask(bytes(5, b""))], "HolderAsk.holder", Missing);
    refused::<Event>(&[ask(bytes(3, b"*"))], "ResourceAsk.create", Invalid);
    let holder = bytes(5, &bytes(2, b"h"));
    let twice = [holder.clone(), holder].concat();
    refused::<Event>(&[ask(twice)], "ResourceAsk.confirm", Repeated);
    let waiting = [varint(2, &[1]), varint(3, &[0x80])].concat();
    let error = Event::decode(&long(41, waiting)).expect_err("the number does not end");
    assert_eq!(error.field, "AllocationWaiting.pending_group");
    assert_eq!(error.fault, Fault::Varint);
}

#[test]
fn the_last_one_of_a_oneof_counts() {
    let decided = |parts: &[Vec<u8>]| {
        let body = parts.concat();
        let bytes = [vec![0xb2, 3, body.len() as u8], body].concat();
        match Event::decode(&bytes) {
            Ok(Event::ResourceDecided(ResourceDecided { answer, .. })) => answer,
            other => panic!("{other:?}"),
        }
    };
    let granted = |deadline| ResourceAnswer::Granted { deadline };
    assert_eq!(decided(&[varint(3, &[4])]), granted(4));
    assert_eq!(decided(&[varint(3, &[4]), varint(3, &[5])]), granted(5));
    assert_eq!(decided(&[bytes(4, b""), varint(3, &[0])]), granted(0));
    assert_eq!(
        decided(&[varint(3, &[4]), bytes(4, b"")]),
        ResourceAnswer::Confirmed
    );
    // A message may come again after another was chosen: nothing is left to be put together with it.
    let again = [bytes(4, b""), varint(3, &[4]), bytes(4, b"")];
    assert_eq!(decided(&again), ResourceAnswer::Confirmed);
}

#[test]
fn an_error_reads_as_a_sentence() {
    let error: WireError = Operation::decode(&[]).expect_err("it is refused");
    assert_eq!(error.to_string(), "Operation.tenant: missing");
    let error = Operation::decode(&[0xff]).expect_err("it is refused");
    assert_eq!(
        error.to_string(),
        "Operation: varint without an end or above 2^64 - 1"
    );
    let error = Operation::decode(&[key(1, 0), 1]).expect_err("it is refused");
    assert_eq!(error.to_string(), "Operation.tenant: unexpected wire type");
}

#[derive(Debug, Wire)]
struct Nest {
    #[wire(1)]
    inner: Option<Box<Nest>>,
    #[wire(2)]
    all: Vec<Nest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstNest {
    #[prost(message, optional, boxed, tag = "1")]
    inner: Option<Box<ProstNest>>,
    #[prost(message, repeated, tag = "2")]
    all: Vec<ProstNest>,
}

/// At the same depth as prost.
#[test]
fn what_is_nested_too_deep_is_refused() {
    let nested = |number: u8, levels: usize, innermost: &[u8]| {
        (0..levels).fold(innermost.to_vec(), |inner, _| {
            let mut message = vec![key(number, 2)];
            prost::encoding::encode_varint(inner.len() as u64, &mut message);
            [message, inner].concat()
        })
    };
    for number in [1, 2] {
        let deepest = nested(number, 100, &[]);
        let read = Nest::decode(&deepest).expect("prost reads it, too");
        assert_eq!(read.encode_to_vec(), deepest);
        assert_eq!(
            (read.inner.is_some(), read.all.len()),
            (number == 1, number as usize - 1)
        );
        assert!(<ProstNest as prost::Message>::decode(&*deepest).is_ok());
        for too_deep in [
            nested(number, 101, &[]),
            nested(number, 100, &varint(3, &[1])),
        ] {
            let error = Nest::decode(&too_deep).expect_err("it is refused");
            assert_eq!(error.fault, Fault::TooDeep);
            assert!(<ProstNest as prost::Message>::decode(&*too_deep).is_err());
        }
    }
}

/// A key of two bytes, whose number may be 0 and whose wire type may be none.
fn any_key(number: u32, wire: u32) -> Vec<u8> {
    let key = number << 3 | wire;
    vec![key as u8 | 0x80, (key >> 7) as u8]
}

/// Whether a message without known fields skips them, and prost's does.
fn skipped(bytes: &[u8]) -> [bool; 2] {
    let theirs = <() as prost::Message>::decode(bytes).is_ok();
    [Nothing::decode(bytes).is_ok(), theirs]
}

#[derive(Debug, Wire)]
struct Nothing {}

#[test]
fn varints_are_read_as_prost_reads_them() {
    let check = |varint: &[u8]| {
        let mut rest = varint;
        let theirs = prost::encoding::decode_varint(&mut rest);
        let theirs = theirs.ok().map(|number| (number, rest));
        let mut rest = varint;
        let ours = wire::raw::take_varint(&mut rest);
        assert_eq!(ours.ok().map(|number| (number, rest)), theirs, "{varint:?}");
        theirs.is_some()
    };
    let (mut read, mut refused) = (0, 0);
    for len in 0..13 {
        for filling in [0x80, 0x81, 0xff] {
            for last in [0, 1, 2, 3, 0x7f, 0x80, 0xff] {
                for behind in [&[][..], &[0], &[0x80], &[0xff; 9]] {
                    let varint = [&vec![filling; len], &[last][..], behind].concat();
                    match check(&varint) {
                        true => read += 1,
                        false => refused += 1,
                    }
                }
            }
        }
    }
    assert!(!check(&[]));
    assert!(
        read > 400 && refused > 400,
        "{read} read, {refused} refused"
    );
}

#[test]
fn varints_are_written_as_prost_writes_them() {
    let around = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
    for number in around.chain([u64::MAX]) {
        let mut expected = vec![9 << 3];
        prost::encoding::encode_varint(number, &mut expected);
        let mut written = Vec::new();
        wire::Row::behind(&mut written, |out| wire::Out::varint(out, 9, number));
        assert_eq!(written, expected, "{number}");
    }
}

#[test]
fn unknown_fields_are_skipped_as_prost_skips_them() {
    let mut skips = 0;
    for number in [0, 1, 15, 16, 2047] {
        for wire in 0..8 {
            for value in [0, 1, 3, 4, 5, 7, 8, 9, 12] {
                for filling in [0, 2, 4] {
                    let field = [any_key(number, wire), vec![filling; value]].concat();
                    let [ours, theirs] = skipped(&field);
                    assert_eq!(ours, theirs, "{number} {wire} {value} of {filling}");
                    skips += usize::from(ours);
                }
            }
        }
    }
    assert!(skips > 40, "{skips} are skipped");
    for (groups, expected) in [
        (vec![key(3, 3), key(3, 4)], true),
        (vec![key(3, 3), key(2, 0), 1, key(3, 4)], true),
        (vec![key(3, 3), key(4, 3), key(4, 4), key(3, 4)], true),
        (vec![key(3, 3)], false),
        (vec![key(3, 3), key(2, 4)], false),
        (vec![key(3, 4)], false),
        (vec![key(3, 3), key(4, 3), key(3, 4), key(4, 4)], false),
        (vec![0xff, 0xff, 0xff, 0xff, 0x0f, 1], false),
        (vec![0xf8, 0xff, 0xff, 0xff, 0x0f, 1], true),
        (vec![0xf8, 0xff, 0xff, 0xff, 0x1f, 1], false),
    ] {
        assert_eq!(skipped(&groups), [expected; 2], "{groups:?}");
    }
    // Groups nest as deep as messages, also in messages.
    for levels in 98..103 {
        let groups = [vec![key(3, 3); levels], vec![key(3, 4); levels]].concat();
        assert_eq!(skipped(&groups), [levels <= 100; 2], "{levels}");
        let mut nested = Vec::new();
        prost::encoding::bytes::encode(1, &groups, &mut nested);
        let ours = Nest::decode(&nested).is_ok();
        let theirs = <ProstNest as prost::Message>::decode(&*nested).is_ok();
        assert_eq!([ours, theirs], [levels < 100; 2], "{levels} in a message");
    }
}

/// A length costs nothing before there are bytes for it.
#[test]
fn a_length_is_no_allocation() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for number in [1, 3, 9, 10] {
        let bytes = [&[key(number, 2)], &huge[..]].concat();
        let error = AllocationSpec::decode(&bytes).expect_err("it is refused");
        assert!(
            matches!(error.fault, Fault::Truncated | Fault::WireType),
            "{error}"
        );
    }
}
