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
    assert!(matches!(error.fault, Fault::Malformed(_)), "{error}");
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
    assert!(
        error.to_string().starts_with("Operation: failed to decode"),
        "{error}"
    );
    let error = Operation::decode(&[key(1, 0), 1]).expect_err("it is refused");
    assert!(
        error
            .to_string()
            .starts_with("Operation.tenant: failed to decode"),
        "{error}"
    );
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
    // A group in a group, and so on, that nobody knows.
    let groups = [key(3, 3); 150];
    assert!(Nest::decode(&groups).is_err());
}

/// A length costs nothing before there are bytes for it.
#[test]
fn a_length_is_no_allocation() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for number in [1, 3, 9, 10] {
        let bytes = [&[key(number, 2)], &huge[..]].concat();
        let error = AllocationSpec::decode(&bytes).expect_err("it is refused");
        assert!(
            matches!(error.fault, Fault::Truncated | Fault::Malformed(_)),
            "{error}"
        );
    }
}
