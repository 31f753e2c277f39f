//! The bytes are prost's, in both directions. The other side are the messages that prost makes of the .proto files.

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use schemas::v1;
use std::fmt::Debug;
use vocab::fact::*;
use vocab::*;
use wire::{Codec, Fault, Input, Kind, Label, Message, Oneof, Open, Out, Shape, Wire};

/// Values are made of these; a shorter list makes smaller ones.
fn dice() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(any::<u64>(), 0..250)
}

/// A place in the bytes and what is to be there instead; the last part says how.
fn damage() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    proptest::collection::vec((any::<usize>(), any::<u8>(), 0..4u8), 0..4)
}

/// Pairs of a key of a small field and a small varint, now and then any two bytes: many of these are messages.
fn small_fields() -> impl Strategy<Value = Vec<u8>> {
    let wire_type = prop_oneof![4 => Just(0u8), 1 => Just(2u8)];
    let key = (1..7u8, wire_type).prop_map(|(number, wire_type)| number << 3 | wire_type);
    let pair = prop_oneof![9 => (key, 0..3u8), 1 => (0..50u8, 0..50u8)];
    let pair = pair.prop_map(|(key, value)| [key, value]);
    proptest::collection::vec(pair, 0..8).prop_map(|pairs| pairs.concat())
}

/// None: the dice have made a value that the type does not have.
fn random<T: Message>(dice: &[u64]) -> Option<T> {
    let mut dice = dice.iter();
    let mut choose = |sides| dice.next().copied().unwrap_or(0) % sides;
    T::decode(&wire::sample(T::DESCRIPTOR, &mut choose)).ok()
}

/// What we write is what prost writes of what it reads there, and we read it back.
fn agree<T, P>(value: &T) -> Vec<u8>
where
    T: Message + PartialEq + Debug,
    P: prost::Message + Default + Debug,
{
    let bytes = value.encode_to_vec();
    let (mut field, mut their_field) = (vec![7], vec![7]);
    value.append_field(9, &mut field);
    prost::encoding::bytes::encode(9, &bytes, &mut their_field);
    assert_eq!(field, their_field);
    let theirs = P::decode(bytes.as_slice()).expect("prost reads it");
    assert_eq!(theirs.encode_to_vec(), bytes, "{value:?} and {theirs:?}");
    assert_eq!(T::decode(&bytes).as_ref(), Ok(value));
    bytes
}

/// What is no message for prost is none for us; what is one for both is the same. We refuse more.
fn agree_on_any<T: Message + Debug, P: prost::Message + Default + Debug>(bytes: &[u8]) {
    if let Ok(ours) = T::decode(bytes) {
        let theirs = P::decode(bytes).expect("prost refuses what we read");
        assert_eq!(
            theirs.encode_to_vec(),
            ours.encode_to_vec(),
            "{ours:?} and {theirs:?}"
        );
    }
}

fn damaged(mut bytes: Vec<u8>, damage: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(at, byte, how) in damage {
        let at = at % (bytes.len() + 1);
        match how {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte),
            2 if at < bytes.len() => bytes[at] = byte,
            // Fields once more, from anywhere to the end.
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn messages_have_the_bytes_of_prost(dice in dice(), damage in damage()) {
        fn both<T: Message + PartialEq + Debug, P: prost::Message + Default + Debug>(
            dice: &[u64],
            damage: &[(usize, u8, u8)],
        ) {
            if let Some(value) = random::<T>(dice) {
                let bytes = agree::<T, P>(&value);
                agree_on_any::<T, P>(&damaged(bytes, damage));
            }
        }
        both::<Operation, v1::Operation>(&dice, &damage);
        both::<AllocationSpec, v1::AllocationSpec>(&dice, &damage);
        both::<PlacementRules, v1::PlacementRules>(&dice, &damage);
        both::<PriorityClass, v1::PriorityClass>(&dice, &damage);
        both::<Limits, v1::Limits>(&dice, &damage);
        both::<Applied<QuotaSet>, v1::QuotaSet>(&dice, &damage);
        both::<LimitsInForce, v1::LimitsInForce>(&dice, &damage);
        both::<PendingGroupExplained, v1::PendingGroupExplained>(&dice, &damage);
        both::<Topology, v1::Topology>(&dice, &damage);
        both::<Refusal, v1::Refusal>(&dice, &damage);
    }

    #[test]
    fn events_have_the_bytes_of_prost(dice in dice()) {
        if let Some(event) = random::<Event>(&dice) {
            agree::<Event, v1::Event>(&event);
        }
    }

    #[test]
    fn damaged_events_are_read_as_prost_does(dice in dice(), damage in damage()) {
        let Some(event) = random::<Event>(&dice) else {
            return Ok(());
        };
        let bytes = damaged(event.encode_to_vec(), &damage);
        match Event::decode(&bytes) {
            // Settings that were written although they are the default are left out again.
            Ok(Event::TenantSet(set)) if set.change.settings == TenantSettings::default() => {
                prop_assert!(<v1::Event as prost::Message>::decode(bytes.as_slice()).is_ok());
            }
            _ => agree_on_any::<Event, v1::Event>(&bytes),
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        agree_on_any::<AllocationSpec, v1::AllocationSpec>(&bytes);
        agree_on_any::<Topology, v1::Topology>(&bytes);
        agree_on_any::<Limits, v1::Limits>(&bytes);
        agree_on_any::<PriorityClass, v1::PriorityClass>(&bytes);
        agree_on_any::<Event, v1::Event>(&bytes);
    }

    #[test]
    fn few_bytes_are_read_as_prost_does(bytes in small_fields()) {
        agree_on_any::<Topology, v1::Topology>(&bytes);
        agree_on_any::<Limits, v1::Limits>(&bytes);
        agree_on_any::<PriorityClass, v1::PriorityClass>(&bytes);
    }
}

const SAMPLES: usize = 200;

/// Draws the same values in each run.
fn samples<S: Strategy>(strategy: &S) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    let mut sample = || {
        let tree = strategy.new_tree(&mut runner);
        tree.expect("the strategy rejects nothing").current()
    };
    (0..SAMPLES).map(|_| sample()).collect()
}

/// The properties above skip dice that make no value, and bytes that are no message.
#[test]
fn most_dice_make_a_value() {
    fn check<T: Message>(dice: &[Vec<u64>], damage: &[Vec<(usize, u8, u8)>]) {
        let name = std::any::type_name::<T>();
        let (mut made, mut read) = (0, 0);
        for (dice, damage) in dice.iter().zip(damage) {
            if let Some(value) = random::<T>(dice) {
                made += 1;
                let bytes = damaged(value.encode_to_vec(), damage);
                read += usize::from(T::decode(&bytes).is_ok());
            }
        }
        assert!(
            made >= 20 && read >= 10,
            "{name}: {made} values, {read} read"
        );
    }
    let (dice, damage) = (samples(&dice()), samples(&damage()));
    check::<Operation>(&dice, &damage);
    check::<AllocationSpec>(&dice, &damage);
    check::<PlacementRules>(&dice, &damage);
    check::<PriorityClass>(&dice, &damage);
    check::<Limits>(&dice, &damage);
    check::<Applied<QuotaSet>>(&dice, &damage);
    check::<LimitsInForce>(&dice, &damage);
    check::<PendingGroupExplained>(&dice, &damage);
    check::<Topology>(&dice, &damage);
    check::<Refusal>(&dice, &damage);
    check::<Event>(&dice, &damage);
}

#[test]
fn many_small_fields_are_messages() {
    fn check<T: Message>(all: &[Vec<u8>]) {
        let name = std::any::type_name::<T>();
        let not_empty = all.iter().filter(|bytes| !bytes.is_empty());
        let read = not_empty.filter(|bytes| T::decode(bytes).is_ok()).count();
        assert!(read >= 5, "{name}: {read} of {SAMPLES}");
    }
    let all = samples(&small_fields());
    check::<Topology>(&all);
    check::<Limits>(&all);
    check::<PriorityClass>(&all);
}

/// The random ones show that nothing is lost; this shows that it is in its place.
#[test]
fn values_are_where_prost_has_them() {
    let token = |text: &str| Token::new(text).expect("a token");
    let text = |text: &str| text.to_owned();
    let operation = Operation {
        tenant: token("t"),
        operation_id: None,
        digest: [0; 16],
        reply_to: Some(token("r")),
        trace: Some(TraceContext {
            trace_id: [1; 16],
            span_id: [2; 8],
            flags: 3,
        }),
        by: Some(Box::new(token("b"))),
    };
    let trace = [[1; 16].as_slice(), &[2; 8], &[3]].concat();
    let theirs = v1::Operation {
        tenant: text("t"),
        operation_id: text(""),
        digest: vec![0; 16],
        reply_to: text("r"),
        trace,
        by: text("b"),
    };
    let same = |ours: Vec<u8>, theirs: &dyn Fn() -> Vec<u8>| assert_eq!(ours, theirs());
    same(operation.encode_to_vec(), &|| {
        prost::Message::encode_to_vec(&theirs)
    });
    let quota = Applied {
        operation,
        version: 8,
        change: QuotaSet {
            account: Account {
                tenant: token("a"),
                team: Some(token("b")),
                namespace: Some(token("c")),
            },
            resource: QuotaResource::GpuModel(token("T4")),
            limits: Some(Limits {
                hard: 7,
                soft: Some(0),
                burst: None,
                burst_ms: 9,
                borrow: Some(10),
                lend: None,
            }),
            validity: Validity {
                from: Some(Millis(0)),
                until: Some(Millis(-1)),
            },
        },
    };
    let theirs = v1::QuotaSet {
        operation: Some(theirs),
        version: 8,
        change: Some(v1::quota_set::Change {
            tenant: text("a"),
            team: text("b"),
            namespace: text("c"),
            resource: text("gpu:T4"),
            limits: Some(v1::Limits {
                hard: 7,
                soft: Some(0),
                burst: None,
                burst_ms: 9,
                borrow: Some(10),
                lend: None,
            }),
            from_ms: Some(0),
            until_ms: Some(-1),
        }),
    };
    same(quota.encode_to_vec(), &|| {
        prost::Message::encode_to_vec(&theirs)
    });
    let event = Event::QuotaSet(quota);
    let theirs = v1::Event {
        kind: Some(v1::event::Kind::QuotaSet(theirs)),
    };
    same(event.encode_to_vec(), &|| {
        prost::Message::encode_to_vec(&theirs)
    });
    let decided = Event::CancelDecided(CancelDecided {
        request: EventNo(1),
        allocation: AllocationNo(2),
        verdict: CancelVerdict::WasLive,
    });
    let theirs = v1::Event {
        kind: Some(v1::event::Kind::CancelDecided(v1::CancelDecided {
            request: 1,
            allocation: 2,
            was_live: true,
        })),
    };
    same(decided.encode_to_vec(), &|| {
        prost::Message::encode_to_vec(&theirs)
    });
}

#[test]
fn nothing_is_written_where_nothing_is_to_be_said() {
    let bytes = |settings: TenantSettings| {
        let tenant = Token::new("a").expect("a token");
        let set = TenantSet {
            tenant,
            settings,
            closed: false,
            teams: Vec::new(),
        };
        let bytes = set.encode_to_vec();
        assert_eq!(TenantSet::decode(&bytes), Ok(set));
        bytes.len()
    };
    let said = TenantSettings {
        weight_milli: 999,
        ..TenantSettings::default()
    };
    // Key, length, and the three fields that are not 0.
    assert_eq!(
        bytes(said) - bytes(TenantSettings::default()),
        2 + 3 + 2 + 4
    );
    // 0 is no pending group.
    let waiting = |line| {
        Event::AllocationWaiting(AllocationWaiting {
            allocation: AllocationNo(1),
            reason: WaitingReason::Quota,
            pending_group: line,
        })
    };
    let bytes = waiting(Some(PendingGroupNo(0))).encode_to_vec();
    assert_eq!(bytes, waiting(None).encode_to_vec());
    assert_eq!(Event::decode(&bytes), Ok(waiting(None)));
    // It is none where somebody writes it, too.
    let said = [0xca, 2, 6, 8, 1, 16, 15, 24, 0];
    assert_eq!(Event::decode(&said), Ok(waiting(None)));
}

#[test]
fn numbers_are_read_packed_or_one_by_one() {
    let packed = [0x12, 2, 10, 21];
    let single = [0x10, 10, 0x10, 21];
    let both = [packed.as_slice(), &single].concat();
    for (bytes, expected) in [
        (&packed[..], vec![10, 21]),
        (&single, vec![10, 21]),
        (&both, vec![10, 21, 10, 21]),
    ] {
        assert_eq!(Topology::decode(bytes).map(|it| it.distances), Ok(expected));
    }
}

#[derive(Debug, PartialEq, Wire)]
struct Around {
    #[wire(3)]
    between: u32,
    #[wire(oneof(5, 2))]
    chosen: Chosen,
}

#[derive(Debug, PartialEq, Wire)]
#[wire(oneof)]
enum Chosen {
    #[wire(5)]
    High(u32),
    #[wire(2)]
    Low(u32),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstAround {
    #[prost(uint32, tag = "3")]
    between: u32,
    #[prost(oneof = "ProstChosen", tags = "5, 2")]
    chosen: Option<ProstChosen>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ProstChosen {
    #[prost(uint32, tag = "5")]
    High(u32),
    #[prost(uint32, tag = "2")]
    Low(u32),
}

/// As prost has it: all of it stands where the lowest number would.
#[test]
fn a_oneof_stands_at_its_lowest_number() {
    for (chosen, number) in [(Chosen::High(1), 5), (Chosen::Low(1), 2)] {
        let around = Around { between: 9, chosen };
        let bytes = agree::<Around, ProstAround>(&around);
        assert_eq!(bytes, [number << 3, 1, 3 << 3, 9]);
    }
}

#[derive(Debug, PartialEq, Wire)]
struct InParts {
    #[wire(oneof(2, 3, 5))]
    chosen: Part,
    #[wire(7)]
    numa: Open<NumaPolicy>,
    #[wire(8)]
    operator: Open<Operator>,
    #[wire(9, optional)]
    order: Option<Open<QueueOrder>>,
    #[wire(10)]
    orders: Vec<Open<QueueOrder>>,
}

/// A oneof some of whose fields are those of another.
#[derive(Debug, PartialEq, Wire)]
#[wire(oneof)]
enum Part {
    #[wire(oneof(5, 2))]
    Chosen(Chosen),
    #[wire(3)]
    Another(u32),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstInParts {
    #[prost(oneof = "ProstPart", tags = "2, 3, 5")]
    chosen: Option<ProstPart>,
    // An enum's field, as prost has it.
    #[prost(int32, tag = "7")]
    numa: i32,
    #[prost(int32, tag = "8")]
    operator: i32,
    #[prost(int32, optional, tag = "9")]
    order: Option<i32>,
    #[prost(int32, repeated, tag = "10")]
    orders: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ProstPart {
    #[prost(uint32, tag = "2")]
    Low(u32),
    #[prost(uint32, tag = "3")]
    Another(u32),
    #[prost(uint32, tag = "5")]
    High(u32),
}

fn open<E>(number: i32, known: Option<E>) -> Open<E> {
    known.map_or(Open::Unknown(number), Open::Known)
}

#[test]
fn an_unknown_number_is_kept_and_a_part_is_one_of_the_fields() {
    let order = |number| open(number, QueueOrder::from_number(number));
    let numbers = [0, 1, 2, 3, 4, 5, -1, i32::MAX, i32::MIN];
    for (at, number) in numbers.into_iter().enumerate() {
        let chosen = match at % 3 {
            0 => Part::Chosen(Chosen::High(0)),
            1 => Part::Chosen(Chosen::Low(1)),
            _ => Part::Another(2),
        };
        agree::<InParts, ProstInParts>(&InParts {
            chosen,
            numa: open(number, NumaPolicy::from_number(number)),
            operator: open(number, Operator::from_number(number)),
            order: Some(order(number)),
            orders: vec![order(2), order(number), order(0)],
        });
    }
    // The last one counts, whichever part it is of.
    let chosen = |bytes: &[u8]| InParts::decode(bytes).expect("a message").chosen;
    assert_eq!(chosen(&[24, 9, 16, 1]), Part::Chosen(Chosen::Low(1)));
    assert_eq!(chosen(&[16, 1, 24, 9]), Part::Another(9));
    assert_eq!(chosen(&[16, 1, 40, 9]), Part::Chosen(Chosen::High(9)));
}

/// An hour as text, to show a codec by hand.
struct Hour;

impl Codec<u64> for Hour {
    const SHAPE: Shape = Shape {
        label: Label::Implicit,
        kind: Kind::String,
    };

    fn write_field<O: Out>(value: &u64, number: u32, out: &mut O) {
        out.text(number, format!("{value}h").as_bytes());
    }

    fn merge_field(slot: &mut Option<u64>, input: Input) -> wire::Result<()> {
        let hour = input.text()?.strip_suffix('h');
        *slot = Some(hour.and_then(|it| it.parse().ok()).ok_or(Fault::Invalid)?);
        Ok(())
    }

    fn absent() -> Option<u64> {
        None
    }
}

#[derive(Debug, PartialEq, Wire)]
struct Opening {
    #[wire(1, with = Hour)]
    from: u64,
}

#[test]
fn a_codec_may_be_written_by_hand() {
    let bytes = Opening { from: 17 }.encode_to_vec();
    assert_eq!(bytes, [0x0a, 3, b'1', b'7', b'h']);
    assert_eq!(Opening::decode(&bytes), Ok(Opening { from: 17 }));
    for bad in [&[][..], &[0x0a, 1, b'h'], &[0x0a, 2, b'1', b'7'], &[8, 17]] {
        let error = Opening::decode(bad).expect_err("it is refused");
        assert_eq!(error.field, "Opening.from");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Wire)]
enum Side {
    Left = 1,
    Right = 6,
    Both = 16,
}

#[test]
fn enums_know_their_values() {
    assert_eq!(Side::ALL, [Side::Left, Side::Right, Side::Both]);
    assert_eq!(Side::ALL.map(|side| side.number()), [1, 6, 16]);
    assert_eq!(Side::from_number(16), Some(Side::Both));
    assert_eq!(Side::from_number(0), None);
    assert_eq!(NumaPolicy::from_number(0), Some(NumaPolicy::None));
}

#[test]
fn oneofs_know_their_numbers() {
    assert_eq!(ResourceAsk::NUMBERS, [3, 4, 5, 6, 7, 8]);
    let mut numbers: Vec<_> = EventKind::ALL.iter().map(|kind| *kind as u32).collect();
    numbers.sort_unstable();
    assert_eq!(Event::NUMBERS, numbers);
}

/// Parts of the schema, and a name that is wrong on purpose.
mod wrong {
    use wire::Wire;

    #[derive(Wire)]
    #[wire(oneof = "kind", message)]
    pub enum Event {
        #[wire(23)]
        QuotaWaiting(QuotaWaiting),
        #[wire(41)]
        AllocationWaiting(AllocationWaiting),
    }

    #[derive(Wire)]
    pub struct QuotaWaiting {
        #[wire(1)]
        allocation: u64,
        #[wire(2)]
        refusal: Refusal,
    }

    #[derive(Wire)]
    pub struct Refusal {
        #[wire(1)]
        rule: Rule,
        #[wire(2)]
        subject: String,
        #[wire(3)]
        limit: u64,
        #[wire(4)]
        actual: u64,
    }

    #[derive(Clone, Copy, Wire)]
    #[wire(prefix = "")]
    enum Rule {
        MalformedMessage = 1,
    }

    #[derive(Wire)]
    pub struct AllocationWaiting {
        #[wire(1)]
        allocation: u64,
        #[wire(2)]
        reason: WaitingReason,
        #[wire(3)]
        pending_group: u64,
    }

    #[derive(Clone, Copy, Wire)]
    #[wire(prefix = "")]
    enum WaitingReason {
        NoNodeReady = 1,
        TenantQuota = 15,
    }
}

#[test]
fn descriptors_are_the_schema() {
    let check = |message| {
        let found = wire::differences(message, schemas::FILE_DESCRIPTOR_SET);
        assert_eq!(found, Ok(Vec::new()));
    };
    check(Operation::DESCRIPTOR);
    check(AllocationSpec::DESCRIPTOR);
    check(PriorityClass::DESCRIPTOR);
    check(LimitsInForce::DESCRIPTOR);
    check(Topology::DESCRIPTOR);
    check(Event::DESCRIPTOR);
    let found = wire::differences(wrong::Event::DESCRIPTOR, schemas::FILE_DESCRIPTOR_SET).unwrap();
    for line in [
        "Event: `NodeSet node_set = 18 in kind` only in the schema",
        "WaitingReason: `QUOTA = 15` only in the schema",
        "WaitingReason: `TENANT_QUOTA = 15` only in the derived type",
        "Rule: `ALREADY_EXISTS = 43` only in the schema",
    ] {
        assert!(found.iter().any(|it| it == line), "{line}: {found:#?}");
    }
    // Apart from what the parts leave out.
    let left_out = ["Event: ", "Rule: ", "WaitingReason: "];
    let others = found
        .iter()
        .filter(|it| !left_out.iter().any(|name| it.starts_with(name)));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
    let other_event = |it: &String| it.starts_with("Event: ") && it.ends_with("derived type");
    assert!(!found.iter().any(other_event));
}

/// Otherwise the properties above would hold of nothing.
#[test]
fn most_samples_are_events_and_of_every_kind() {
    let mut state = 1_u64;
    let mut choose = |sides: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    let samples = (0..4000).map(|_| wire::sample(Event::DESCRIPTOR, &mut choose));
    let events: Vec<_> = samples
        .filter_map(|bytes| Event::decode(&bytes).ok())
        .collect();
    assert!(events.len() > 2000, "{}", events.len());
    let there = |kind: &EventKind| events.iter().any(|event| event.kind() == *kind);
    let missing: Vec<_> = EventKind::ALL.iter().filter(|kind| !there(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
