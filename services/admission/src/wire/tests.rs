//! Requests as bytes.

use super::*;
use crate::domain::{ChangeRequest, DependencyRequest, RequirementRequest, SpreadRequest};
use prost::Message as _;
use schemas::v1::{self, request};
use wire::Open;

fn inbox(payload: Vec<u8>) -> InboxMessage {
    InboxMessage {
        seq: 1,
        sender: Token::new("team-a").unwrap(),
        reply_to: None,
        trace: None,
        reserved_header: false,
        payload: payload.into(),
    }
}

fn encoded(verb: request::Verb) -> Vec<u8> {
    let request = v1::Request {
        operation_id: "op".into(),
        verb: Some(verb),
    };
    request.encode_to_vec()
}

fn read(verb: request::Verb) -> Verb {
    commands(&inbox(encoded(verb))).remove(0).verb.unwrap()
}

/// What becomes of a request whose verb has number `field` and these bytes.
fn refused(field: u32, verb: &[u8]) -> Rule {
    let mut payload = vec![0x0a, 2, b'o', b'p'];
    prost::encoding::bytes::encode(field, &verb.to_vec(), &mut payload);
    commands(&inbox(payload)).remove(0).verb.unwrap_err().rule
}

#[test]
fn a_submit_is_read_as_it_was_written() {
    let requirement = v1::Requirement {
        label: "zone".into(),
        operator: 77,
        values: vec!["z1".into()],
    };
    let written = v1::Submit {
        queue: "research".into(),
        priority_class: "high".into(),
        extended: vec![v1::ExtendedRequest {
            name: "fpga".into(),
            amount: -1,
        }],
        rules: Some(v1::PlacementRules {
            selector: vec![requirement],
            spread: vec![v1::Spread {
                topology_key: "zone".into(),
                max_skew: 3,
            }],
            numa: -7,
            ..Default::default()
        }),
        gang: Some(v1::GangRequest {
            name: "g".into(),
            size: -2,
            min: 1,
            uniform_label: "rack".into(),
        }),
        depends_on: vec![v1::DependencyRequest {
            allocation_id: "x".into(),
            success: true,
        }],
        retries: -3,
        never_requeue: true,
        run_time_ms: -4,
        ..Default::default()
    };
    let Verb::Submit(request) = read(request::Verb::Submit(written)) else {
        panic!("another verb");
    };
    assert_eq!(
        (request.queue.as_str(), request.priority_class.as_str()),
        ("research", "high")
    );
    assert_eq!(request.extended, [("fpga".to_owned(), -1)]);
    let rules = request.rules.unwrap();
    let selector = RequirementRequest {
        label: "zone".into(),
        operator: Open::Unknown(77),
        values: vec!["z1".into()],
    };
    let spread = SpreadRequest {
        topology_key: "zone".into(),
        max_skew: 3,
    };
    assert_eq!(
        (rules.selector, rules.numa),
        (vec![selector], Open::Unknown(-7))
    );
    assert_eq!(rules.spread, [spread]);
    let gang = request.gang.unwrap();
    assert_eq!((gang.size, gang.min), (-2, 1));
    let dependency = DependencyRequest {
        allocation_id: "x".into(),
        success: true,
    };
    assert_eq!(request.depends_on, [dependency]);
    assert_eq!(
        (request.retries, request.never_requeue, request.run_time_ms),
        (-3, true, -4)
    );
}

#[test]
fn a_change_is_read_as_it_was_written() {
    let written = v1::SetScheduling {
        fair_share_preemption: Some(false),
        backoff_ms: Some(0),
        expected_version: Some(0),
        ..Default::default()
    };
    let Verb::Admin(ChangeRequest::SetScheduling(policy)) =
        read(request::Verb::SetScheduling(written))
    else {
        panic!("another change");
    };
    assert_eq!(policy.expected_version, Some(0));
    assert_eq!(policy.fair_share_preemption, Some(false));
    assert_eq!(policy.backoff_ms, Some(0));
    assert_eq!(policy.backoff_ms_max, None);
    let back = v1::SetReservation {
        reservation: "demo".into(),
        ..Default::default()
    };
    let expected = ChangeRequest::SetReservation {
        reservation: "demo".into(),
        wanted: None,
        expected_version: None,
    };
    let read = read(request::Verb::SetReservation(back));
    assert_eq!(read, Verb::Admin(expected));
}

#[test]
fn what_is_not_known_is_refused_as_a_whole() {
    // Field 99 of the verb, then of what is inside it.
    let unknown = [0x98, 0x06, 1];
    let inside = |field: u8| [vec![field << 3 | 2, 3], unknown.to_vec()].concat();
    let rules = {
        let inner = inside(12);
        [vec![0x62], vec![inner.len() as u8], inner].concat()
    };
    for (verb, bytes) in [
        (10, unknown.to_vec()),
        (10, inside(11)),
        (10, inside(12)),
        (10, inside(13)),
        (10, inside(14)),
        (10, rules),
        (33, unknown.to_vec()),
        (33, inside(4)),
        (34, unknown.to_vec()),
        (35, unknown.to_vec()),
        (36, unknown.to_vec()),
        (37, unknown.to_vec()),
        (37, inside(2)),
    ] {
        assert_eq!(
            refused(verb, &bytes),
            Rule::UnknownField,
            "{verb} {bytes:?}"
        );
    }
    assert_eq!(refused(40, &[]), Rule::UnknownVerb);
    assert_eq!(refused(10, &[0xff]), Rule::MalformedMessage);
}

#[test]
fn what_is_missing_is_refused_by_name() {
    let check = |payload: &[u8], id: Option<&str>, expected: (Rule, &str)| {
        let command = commands(&inbox(payload.to_vec())).remove(0);
        let refusal = command.verb.expect_err("it is refused");
        assert_eq!((refusal.rule, refusal.subject.as_str()), expected);
        let found = command.operation.operation_id;
        assert_eq!(found.as_ref().map(Token::as_str), id);
    };
    let op = [0x0a, 2, b'o', b'p'];
    let unknown = Rule::UnknownVerb;
    check(&op, Some("op"), (unknown, "verb"));
    // Neither an allocation nor a job set; then a batch in a batch.
    let no_target = [&op[..], &[0x72, 0]].concat();
    check(&no_target, Some("op"), (unknown, "target"));
    let batch = [&op[..], &[0x62, 0]].concat();
    let batch = [
        &[0x62, batch.len() as u8 + 2, 0x0a, batch.len() as u8],
        &*batch,
    ]
    .concat();
    check(&batch, Some("op"), (unknown, "verb"));
    let malformed = Rule::MalformedMessage;
    let not_utf8 = [&op[..], &[0x52, 3, 0x0a, 1, 0xff]].concat();
    check(&not_utf8, None, (malformed, "payload"));
    let twice = [&op[..], &[0x52, 2, 0x6a, 0], &[0x52, 0]].concat();
    check(&twice, None, (malformed, "payload"));
    check(&[0xff], None, (malformed, "payload"));
}

/// The slot is not part of what was asked; everything else is.
#[test]
fn the_same_request_in_another_slot_has_the_same_digest() {
    let digest = |resource: &str, slot| {
        let verb = request::Verb::CreateResource(v1::CreateResource {
            resource: resource.into(),
            slot,
        });
        let command = commands(&inbox(encoded(verb))).remove(0);
        let Ok(Verb::Resource(mut asked)) = command.verb else {
            panic!("another verb");
        };
        assert_eq!(*asked.slot(), slot);
        command.operation.digest
    };
    assert_eq!(digest("r", Some(1)), digest("r", Some(2)));
    assert_eq!(digest("r", Some(1)), digest("r", None));
    assert_ne!(digest("r", Some(1)), digest("s", Some(1)));
}

/// A batch is opened before its requests are read.
#[test]
fn requests_are_those_of_the_contract() {
    let differences = wire::differences(Request::DESCRIPTOR, schemas::FILE_DESCRIPTOR_SET);
    let batch = "Request: `Batch batch = 12 in verb` only in the schema";
    assert_eq!(differences, Ok(vec![batch.to_owned()]));
}
