//! Requests as bytes.

use super::*;
use crate::domain::{ChangeRequest, DependencyRequest, RequirementRequest, SpreadRequest};
use v1::request;

fn door(payload: Vec<u8>) -> DoorRecord {
    DoorRecord {
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
    commands(&door(encoded(verb))).remove(0).verb.unwrap()
}

/// What becomes of a request whose verb has number `field` and these bytes.
fn refused(field: u32, verb: &[u8]) -> Rule {
    let mut payload = vec![0x0a, 2, b'o', b'p'];
    prost::encoding::bytes::encode(field, &verb.to_vec(), &mut payload);
    commands(&door(payload)).remove(0).verb.unwrap_err().rule
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
                domain: "zone".into(),
                skew_max: 3,
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
        operator: 77,
        values: vec!["z1".into()],
    };
    let spread = SpreadRequest {
        domain: "zone".into(),
        skew_max: 3,
    };
    assert_eq!((rules.selector, rules.numa), (vec![selector], -7));
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
    let Verb::Admin {
        change: ChangeRequest::Scheduling(policy),
        expected: Some(0),
    } = read(request::Verb::SetScheduling(written))
    else {
        panic!("another change");
    };
    assert_eq!(policy.fair_share_preemption, Some(false));
    assert_eq!(policy.backoff_ms, Some(0));
    assert_eq!(policy.backoff_ms_max, None);
    let back = v1::SetReservation {
        reservation: "demo".into(),
        ..Default::default()
    };
    let Verb::Admin { change, .. } = read(request::Verb::SetReservation(back)) else {
        panic!("another verb");
    };
    let expected = ChangeRequest::Reservation {
        reservation: "demo".into(),
        wanted: None,
    };
    assert_eq!(change, expected);
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
