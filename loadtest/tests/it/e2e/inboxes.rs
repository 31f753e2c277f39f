//! Bad input through the real bus: each piece gets an answer that names the broken rule, and kills nothing.

use crate::e2e::{
    raw::{field, number},
    suite::{Outcome, Suite, all_decided, eventually, id, small},
};
use async_nats::HeaderMap;
use client::{Client, NoOutcome, Operation, Submit};
use prost::Message;
use schemas::v1::{
    Cancel, FeedPage, FeedQuery, Outcome as Answer, Refusal, Request, Rule, SetTenant,
    outcome::Result as Decided, request::Verb,
};
use vocab::{
    AllocationNo, CellNo,
    subjects::{HEADER_REPLY, HEADER_TRACEPARENT},
};

const REQUEST_MAX: usize = 65_536;
const INBOX_MAX: usize = 96 << 10;
const SERVER_MAX: usize = 8 << 20;

/// A refusal's rule, subject, limit and actual.
type Said = (Rule, &'static str, u64, u64);

fn plain(rule: Rule, subject: &'static str) -> Said {
    (rule, subject, 0, 0)
}

fn check(case: &str, refusal: &Refusal, expected: Said) {
    let said = (
        refusal.rule(),
        refusal.subject.as_str(),
        refusal.limit,
        refusal.actual,
    );
    assert_eq!(said, expected, "{case}");
}

async fn ask(tenant: &Client, case: &str, payload: Vec<u8>) -> Answer {
    let outcome = tenant.call(&Operation::raw(case, payload)).await;
    outcome.unwrap_or_else(|error| panic!("{case}: {error}"))
}

async fn refused(tenant: &Client, case: &str, payload: Vec<u8>, expected: Said) {
    match ask(tenant, case, payload).await.result {
        Some(Decided::Refused(refused)) => {
            check(case, &refused.refusal.unwrap_or_default(), expected);
            let words = match expected.1 {
                "encoding" => "not canonical".to_owned(),
                _ => expected.0.as_str_name().to_lowercase().replace('_', " "),
            };
            assert!(
                refused.explanation.starts_with(&words),
                "{case}: {}",
                refused.explanation
            );
            assert!(!refused.retryable, "{case}");
        }
        other => panic!("{case}: {other:?}"),
    }
}

fn request(operation_id: &str, verb: Verb) -> Vec<u8> {
    let operation_id = operation_id.to_owned();
    let verb = Some(verb);
    Request { operation_id, verb }.encode_to_vec()
}

fn submit(request: Submit) -> Vec<u8> {
    self::request(&id(), Verb::Submit(request))
}

/// A good request of this operation id with a field of one's own behind it.
fn with_extra(extra: &[u8]) -> Vec<u8> {
    [submit(small("extra")), extra.to_vec()].concat()
}

/// A submit whose message is put together here.
fn submit_of(fields: &[u8]) -> Vec<u8> {
    [field(1, id().as_bytes()), field(10, fields)].concat()
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let good = submit(small("good"));
    let malformed = plain(Rule::MalformedMessage, "payload");
    let unknown_verb = plain(Rule::UnknownVerb, "verb");
    let unknown = |field| plain(Rule::UnknownField, field);
    let anew = SetTenant {
        tenant: "tenant-b".to_owned(),
        expected_version: None,
        ..SetTenant::default()
    };
    let nested = [small("n").encode_to_vec(), field(99, b"tenant-b")].concat();
    let table: Vec<(&str, Vec<u8>, Said)> = vec![
        ("no protobuf", b"\xff\xff\xff\xff".to_vec(), malformed),
        ("text", br#"{"operation_id": "x"}"#.to_vec(), malformed),
        ("cut short", good[..good.len() - 3].to_vec(), malformed),
        ("no UTF-8", field(1, b"\xc3\x28"), malformed),
        (
            "a field of another kind",
            [field(1, b"x"), number(10, 5)].concat(),
            malformed,
        ),
        (
            "a length beyond the end",
            [field(1, b"x"), vec![0x52, 0xff, 0x7f]].concat(),
            malformed,
        ),
        (
            "a group without end",
            [field(1, b"x"), vec![0x5b]].concat(),
            malformed,
        ),
        ("nested too deep", [0x5b; 4096].to_vec(), malformed),
        (
            "nothing",
            Vec::new(),
            plain(Rule::OperationIdInvalid, "operation_id"),
        ),
        ("no verb", field(1, id().as_bytes()), unknown_verb),
        (
            "a verb that nobody has",
            [field(1, id().as_bytes()), field(99, b"x")].concat(),
            unknown_verb,
        ),
        (
            "the operators' verb",
            request(&id(), Verb::SetTenant(anew)),
            unknown_verb,
        ),
        (
            "a field that nobody has",
            with_extra(&number(99, 1)),
            unknown("field 99"),
        ),
        (
            "another tenant's name",
            with_extra(&field(2, b"tenant-b")),
            unknown("field 2"),
        ),
        (
            "another tenant's name inside",
            submit_of(&nested),
            unknown("field 10.99"),
        ),
        (
            "a default written out",
            submit_of(&[small("n").encode_to_vec(), number(6, 0)].concat()),
            unknown("encoding"),
        ),
    ];
    for (case, payload, expected) in table {
        refused(&tenant, case, payload, expected).await;
    }
    let long = "x".repeat(65);
    for bad in ["", "a.b", "a b", "*", ">", "nul\0", "оp-1", &long] {
        let payload = request(bad, Verb::Submit(small("x")));
        let expected = plain(Rule::OperationIdInvalid, "operation_id");
        refused(&tenant, &format!("operation id {bad:?}"), payload, expected).await;
    }
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_asked_for_is_refused_by_name() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let base = || Submit {
        gpu_count: 1,
        ..small("asked")
    };
    let zero = |subject| plain(Rule::QuantityZero, subject);
    let negative = |subject| plain(Rule::QuantityNegative, subject);
    let over = |subject, limit, actual| (Rule::QuantityTooLarge, subject, limit, actual);
    let share = plain(Rule::GpuShareInvalid, "gpu_milli");
    let most = i64::MAX as u64;
    let model = || "V100".to_owned();
    let table: Vec<(Submit, Said)> = vec![
        (
            Submit {
                cpu_milli: 0,
                ..base()
            },
            zero("cpu_milli"),
        ),
        (
            Submit {
                cpu_milli: -1,
                ..base()
            },
            negative("cpu_milli"),
        ),
        (
            Submit {
                cpu_milli: i64::MIN,
                ..base()
            },
            negative("cpu_milli"),
        ),
        (
            Submit {
                cpu_milli: 1_000_000_001,
                ..base()
            },
            over("cpu_milli", 1_000_000_000, 1_000_000_001),
        ),
        (
            Submit {
                cpu_milli: i64::MAX,
                ..base()
            },
            over("cpu_milli", 1_000_000_000, most),
        ),
        (
            Submit {
                memory_bytes: 0,
                ..base()
            },
            zero("memory_bytes"),
        ),
        (
            Submit {
                memory_bytes: -5,
                ..base()
            },
            negative("memory_bytes"),
        ),
        (
            Submit {
                memory_bytes: (1 << 50) + 1,
                ..base()
            },
            over("memory_bytes", 1 << 50, (1 << 50) + 1),
        ),
        (
            Submit {
                memory_bytes: i64::MAX,
                ..base()
            },
            over("memory_bytes", 1 << 50, most),
        ),
        (
            Submit {
                gpu_count: -1,
                ..base()
            },
            negative("gpu_count"),
        ),
        (
            Submit {
                gpu_count: 17,
                ..base()
            },
            over("gpu_count", 16, 17),
        ),
        (
            Submit {
                gpu_count: i64::MAX,
                ..base()
            },
            over("gpu_count", 16, most),
        ),
        (
            Submit {
                gpu_count: 0,
                gpu_milli: 500,
                ..base()
            },
            zero("gpu_count"),
        ),
        (
            Submit {
                gpu_count: 0,
                gpu_models: vec![model()],
                ..base()
            },
            zero("gpu_count"),
        ),
        (
            Submit {
                gpu_milli: -1,
                ..base()
            },
            negative("gpu_milli"),
        ),
        (
            Submit {
                gpu_milli: 1001,
                ..base()
            },
            share,
        ),
        (
            Submit {
                gpu_milli: i64::MAX,
                ..base()
            },
            share,
        ),
        (
            Submit {
                gpu_count: 2,
                gpu_milli: 500,
                ..base()
            },
            share,
        ),
        (
            Submit {
                priority: 1_000_001,
                ..base()
            },
            plain(Rule::PriorityOutOfRange, "priority"),
        ),
        (
            Submit {
                priority: i32::MIN,
                ..base()
            },
            plain(Rule::PriorityOutOfRange, "priority"),
        ),
        (
            Submit {
                gpu_models: vec![model(); 17],
                ..base()
            },
            (Rule::TooManyElements, "gpu_models", 16, 17),
        ),
        (
            Submit {
                gpu_models: vec![String::new(); 20_000],
                ..base()
            },
            (Rule::TooManyElements, "gpu_models", 16, 20_000),
        ),
    ];
    for (asked, expected) in table {
        let mut case = format!("{asked:?}");
        case.truncate(200);
        refused(&tenant, &case, submit(asked), expected).await;
    }
    // 300 bytes, look-alikes (Cyrillic, a full-width digit, a dash that is none, an invisible joiner), what a subject
    // would take for more than a name, and what ends a string elsewhere.
    let long = "x".repeat(300);
    for bad in [
        "a.b",
        "*",
        ">",
        "a b",
        "nul\0",
        "\0",
        "раураl",
        "job１",
        "job‐1",
        "a\u{200d}b",
        "a\n",
        "é",
        &long,
    ] {
        let name = |bad: &str| bad.to_owned();
        for (asked, subject) in [
            (
                Submit {
                    job_set: name(bad),
                    ..base()
                },
                "job_set",
            ),
            (
                Submit {
                    name: name(bad),
                    ..base()
                },
                "name",
            ),
            (
                Submit {
                    gpu_models: vec![model(), name(bad)],
                    ..base()
                },
                "gpu_models",
            ),
        ] {
            let case = format!("{subject} {bad:?}");
            refused(
                &tenant,
                &case,
                submit(asked),
                plain(Rule::NameInvalid, subject),
            )
            .await;
        }
    }
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

/// A submit of exactly this many bytes.
fn sized(bytes: usize) -> Vec<u8> {
    let of = |name: usize| {
        let name = "x".repeat(name);
        submit(Submit { name, ..small("") })
    };
    let rest = of(bytes).len() - bytes;
    let payload = of(bytes - rest);
    assert_eq!(payload.len(), bytes);
    payload
}

#[tokio::test]
async fn what_is_too_large_is_refused_where_it_is_noticed() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    // By admission, and not a byte too early.
    refused(
        &tenant,
        "the largest request",
        sized(REQUEST_MAX),
        plain(Rule::NameInvalid, "name"),
    )
    .await;
    let many = |count| {
        submit(Submit {
            gpu_models: vec![String::new(); count],
            ..small("many")
        })
    };
    for payload in [
        sized(REQUEST_MAX + 1),
        many(40_000),
        sized(INBOX_MAX - 4096),
    ] {
        let actual = payload.len() as u64;
        let expected = (Rule::PayloadTooLarge, "payload", REQUEST_MAX as u64, actual);
        refused(&tenant, &format!("{actual} bytes"), payload, expected).await;
    }
    // By the inbox, by the server, by the client's own library: none of them has received it.
    for (payload, expected) in [
        (sized(INBOX_MAX + 1), "message size exceeds maximum allowed"),
        (many(1_000_000), "message size exceeds maximum allowed"),
        (sized(SERVER_MAX + 1), "max payload"),
    ] {
        let bytes = payload.len();
        match tenant.call(&Operation::raw("large", payload)).await {
            Err(NoOutcome::NotReceived { why, retryable }) => {
                let why = why.to_lowercase();
                assert!(why.contains(expected) && !retryable, "{bytes} bytes: {why}");
            }
            other => panic!("{bytes} bytes: {other:?}"),
        }
    }
    // Past the library: the server hangs up, as it does on whoever breaks its protocol.
    let login = suite.servers.held("tenant:tenant-a");
    let mut wire = crate::e2e::raw::Wire::connect(&suite.servers.nats.url, Some(&login)).await?;
    let subject = suite.subjects.ingress("tenant-a");
    let large = vec![b'x'; SERVER_MAX];
    // It may hang up before the last byte.
    let _ = wire.publish(&subject, b"NATS/1.0\r\n\r\n", &large).await;
    if let Ok(said) = wire.flush().await {
        assert!(said.contains("Maximum Payload Violation"), "{said}");
    }
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn an_operation_id_stands_for_one_content() -> Outcome {
    let suite = Suite::start().await;
    let (tenant, other) = (
        suite.tenant("tenant-a").await,
        suite.tenant("tenant-b").await,
    );
    let of = |name: &str| request("once", Verb::Submit(small(name)));
    let original = ask(&tenant, "the first", of("one")).await;
    assert!(
        matches!(original.result, Some(Decided::Submitted(_))),
        "{original:?}"
    );
    assert_eq!(ask(&tenant, "the same again", of("one")).await, original);
    let conflict = plain(Rule::OperationConflict, "operation_id");
    refused(&tenant, "another content", of("two"), conflict).await;
    let cancel = Verb::Cancel(Cancel {
        allocation_id: "x".to_owned(),
    });
    refused(&tenant, "another verb", request("once", cancel), conflict).await;
    assert_eq!(ask(&tenant, "still the same", of("one")).await, original);
    // Another tenant's id is another id.
    let elsewhere = ask(&other, "the other tenant's", of("two")).await;
    assert!(
        matches!(elsewhere.result, Some(Decided::Submitted(_))),
        "{elsewhere:?}"
    );
    // A refusal is an outcome like any other.
    let bad = request("bad", Verb::Submit(Submit::default()));
    let first = ask(&tenant, "refused", bad.clone()).await;
    assert!(matches!(first.result, Some(Decided::Refused(_))));
    assert_eq!(ask(&tenant, "refused again", bad).await, first);
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn only_an_own_live_allocation_can_be_cancelled() -> Outcome {
    let suite = Suite::start().await;
    let (tenant, other) = (
        suite.tenant("tenant-a").await,
        suite.tenant("tenant-b").await,
    );
    let own = tenant.submit(small("own"), id()).await?.allocation_id;
    let theirs = other.submit(small("theirs"), id()).await?.allocation_id;
    let cell = suite.cell_no();
    let not_found = plain(Rule::AllocationNotFound, "allocation_id");
    let invalid = plain(Rule::AllocationIdInvalid, "allocation_id");
    let never = AllocationNo(999_999).id(cell).to_string();
    let foreign = AllocationNo(1).id(CellNo(cell.0 ^ 1)).to_string();
    let table = [
        (theirs.as_str(), not_found),
        (&never, not_found),
        (&foreign, not_found),
        ("", invalid),
        ("1", invalid),
        ("00000000-0000-0000-0000-00000000000g", invalid),
        ("nul\0", invalid),
    ];
    let cancel = |allocation_id: &str| {
        let allocation_id = allocation_id.to_owned();
        request(&id(), Verb::Cancel(Cancel { allocation_id }))
    };
    for (allocation, expected) in table {
        refused(&tenant, allocation, cancel(allocation), expected).await;
    }
    let first = ask(&tenant, "the first cancel", cancel(&own)).await;
    assert!(
        matches!(first.result, Some(Decided::Cancelled(_))),
        "{first:?}"
    );
    // Admission hears of the end from the ledger, and may be asked before.
    eventually("the end to be known", || async {
        let again = ask(&tenant, "the second cancel", cancel(&own)).await;
        match again.result {
            Some(Decided::Cancelled(_)) => None,
            Some(Decided::Refused(refused)) => {
                let ended = plain(Rule::AllocationEnded, "allocation_id");
                check(
                    "the second cancel",
                    &refused.refusal.unwrap_or_default(),
                    ended,
                );
                Some(())
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    let still = ask(&other, "the owner's", cancel(&theirs)).await;
    assert!(
        matches!(still.result, Some(Decided::Cancelled(_))),
        "{still:?}"
    );
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn headers_cannot_hurt_a_request() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let nats = suite.servers.nats("tenant:tenant-a").await;
    let jetstream = async_nats::jetstream::new(nats);
    let long = "x".repeat(100_000);
    let mut sent = Vec::new();
    for (header, values) in [
        (
            HEADER_TRACEPARENT,
            &[
                "",
                "00",
                "zz-zz-zz-zz",
                "00-00000000000000000000000000000000-0000000000000000-01",
                "\u{1F600}",
                &long,
            ][..],
        ),
        (
            HEADER_REPLY,
            &[
                "",
                "a.b",
                "*",
                ">",
                "a b",
                "nul\0",
                "tenant-b.x",
                "раураl",
                &long,
            ],
        ),
        ("X-Whatever", &[&long]),
    ] {
        for value in values {
            let operation_id = id();
            let mut headers = HeaderMap::new();
            headers.insert(header, *value);
            let payload = request(&operation_id, Verb::Submit(small("headers")));
            let subject = suite.subjects.ingress("tenant-a");
            let ack = jetstream
                .publish_with_headers(subject, headers, payload.into())
                .await?;
            // The server may refuse what it takes for its own; then nothing was received.
            if ack.await.is_ok() {
                sent.push(operation_id);
            }
        }
    }
    assert!(sent.len() > 12);
    // Nobody was told where to answer, so the feed is where the outcomes are.
    all_decided(&tenant, &sent).await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn a_bad_query_is_refused_by_name() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let nats = suite.servers.nats("tenant:tenant-a").await;
    let feed = |query: FeedQuery| ("feed", query.encode_to_vec());
    let of_job_set = |job_set: &str| {
        feed(FeedQuery {
            job_set: job_set.to_owned(),
            ..FeedQuery::default()
        })
    };
    let many = FeedQuery {
        limit: 1001,
        ..FeedQuery::default()
    };
    let long = "x".repeat(300);
    let table: Vec<((&str, Vec<u8>), Said)> = vec![
        (
            ("feed", b"\xff\xff".to_vec()),
            plain(Rule::MalformedMessage, "payload"),
        ),
        (("nothing", Vec::new()), plain(Rule::UnknownVerb, "verb")),
        (feed(many), (Rule::QuantityTooLarge, "limit", 1000, 1001)),
        (of_job_set("*"), plain(Rule::NameInvalid, "job_set")),
        (of_job_set(">"), plain(Rule::NameInvalid, "job_set")),
        (of_job_set("a.b"), plain(Rule::NameInvalid, "job_set")),
        (of_job_set("nul\0"), plain(Rule::NameInvalid, "job_set")),
        (of_job_set(&long), plain(Rule::NameInvalid, "job_set")),
    ];
    for ((verb, payload), expected) in table {
        let subject = suite.subjects.query("tenant-a", verb);
        let answer = nats.request(subject, payload.into()).await?;
        let page = FeedPage::decode(answer.payload)?;
        check(verb, &page.refusal.unwrap_or_default(), expected);
        assert!(page.events.is_empty());
    }
    // Nobody to answer to, and nobody answered.
    nats.publish(suite.subjects.query("tenant-a", "feed"), "x".into())
        .await?;
    nats.publish(
        suite.subjects.query("tenant-a", "feed"),
        vec![0xff; INBOX_MAX].into(),
    )
    .await?;
    nats.flush().await?;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}
