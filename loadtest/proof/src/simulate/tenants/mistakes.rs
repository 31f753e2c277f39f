//! Requests that break a rule, and which one.

use super::{Expect, GIB, batch_of, operators, submit, uuid_text};
use ledger::memory::Seeded;
use prost::Message;
use schemas::v1::{GangRequest, Release, Request, Revoke, Submit, request::Verb};

/// A verb that makes the mistake, or the bytes that do.
pub fn mistake(tenant: &str, random: &mut Seeded) -> (Result<Option<Verb>, Vec<u8>>, Expect) {
    let good = Submit {
        priority_class: String::new(),
        priority: -3,
        best_effort: false,
        cpu_milli: 1000,
        memory_bytes: GIB,
        ..submit(random)
    };
    let number = random.below(1000);
    let broken = |verb: Verb, rule| (Ok(Some(verb)), Expect::Breaks(rule));
    let submitted = |submit: Submit, rule| broken(Verb::Submit(submit), rule);
    match random.below(13) {
        0 => (Err(vec![0xff, 0x01, 0x02]), Expect::Unreadable(1)),
        1 => (Ok(None), Expect::Unreadable(2)),
        2 => {
            let mut payload = Request {
                operation_id: format!("odd-{number}"),
                verb: Some(Verb::Submit(good)),
            }
            .encode_to_vec();
            // Field 2000, a varint.
            payload.extend_from_slice(&[0x80, 0x7d, 0x01]);
            (Err(payload), Expect::Unreadable(3))
        }
        3 => {
            let request = Request {
                operation_id: "not a token".into(),
                verb: Some(Verb::Submit(good)),
            };
            (Err(request.encode_to_vec()), Expect::Unreadable(5))
        }
        4 => {
            let job_set = "a.b".into();
            submitted(Submit { job_set, ..good }, 9)
        }
        5 => {
            let (team, namespace) = (String::new(), "dev".into());
            submitted(
                Submit {
                    team,
                    namespace,
                    ..good
                },
                9,
            )
        }
        6 => {
            let memory_bytes = -1;
            submitted(
                Submit {
                    memory_bytes,
                    ..good
                },
                11,
            )
        }
        7 => {
            let share = Submit {
                gpu_count: 2,
                gpu_milli: 500,
                cpu_milli_limit: 0,
                memory_bytes_limit: 0,
                ..good
            };
            submitted(share, 13)
        }
        8 => {
            let asks = GangRequest {
                name: "g".into(),
                size: 2,
                min: 3,
                ..GangRequest::default()
            };
            let gang = Submit {
                gang: Some(asks),
                cpu_milli_limit: 0,
                memory_bytes_limit: 0,
                ..good
            };
            submitted(gang, 29)
        }
        9 => {
            let best_effort = true;
            submitted(
                Submit {
                    best_effort,
                    ..good
                },
                33,
            )
        }
        // An operator's verb from a tenant.
        10 => broken(operators::hard_limit(tenant, "cpu", random), 2),
        11 => {
            let revoke = Revoke {
                lease_id: "not a uuid".into(),
                slot: None,
            };
            broken(Verb::Revoke(revoke), 56)
        }
        // Another cell's.
        _ => {
            let release = Release {
                lease_id: uuid_text(super::CELL + 1, number),
                holder: "h0".into(),
                fencing_token: 1,
                slot: None,
            };
            broken(Verb::Release(release), 50)
        }
    }
}

/// A message that is refused as a whole.
pub fn whole_mistake(random: &mut Seeded) -> (Vec<u8>, Expect) {
    let good = Request {
        operation_id: "in-vain".into(),
        verb: Some(Verb::Submit(submit(random))),
    };
    let good = good.encode_to_vec();
    let named = [
        b"\x0a\x02id".as_slice(),
        &batch_of([good.as_slice()].into_iter()),
    ]
    .concat();
    let mut odd = batch_of([good.as_slice()].into_iter());
    // Field 2000, a varint.
    odd.extend_from_slice(&[0x80, 0x7d, 0x01]);
    match random.below(3) {
        0 => (named, Expect::Nameless(5)),
        1 => (batch_of(std::iter::empty()), Expect::Nameless(10)),
        _ => (odd, Expect::Nameless(3)),
    }
}
