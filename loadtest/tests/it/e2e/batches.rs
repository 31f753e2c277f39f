//! Many operations in one message: each is an operation of its own.

use crate::e2e::{
    raw::field,
    suite::{DEADLINE, Outcome, Suite, id, small},
};
use async_nats::{Client as Nats, HeaderMap, Subscriber};
use client::{NoOutcome, Operation, Pending, Submit};
use futures::{StreamExt, future::join_all};
use prost::Message;
use schemas::v1::{
    self, Acquire, Batch, Cancel, CreateResource, Outcomes, Request, Rule,
    outcome::Result as Decided, request::Verb,
};
use vocab::{Event, subjects::HEADER_REPLY};

fn named(operation_id: &str, verb: Verb) -> Request {
    Request {
        operation_id: operation_id.to_owned(),
        verb: Some(verb),
    }
}

/// What an outcome says, in a word or two.
fn word(outcome: &v1::Outcome) -> String {
    match &outcome.result {
        Some(Decided::Submitted(_)) => "submitted".into(),
        Some(Decided::Cancelled(_)) => "cancelled".into(),
        Some(Decided::ResourceCreated(_)) => "created".into(),
        Some(Decided::LeaseGranted(_)) => "granted".into(),
        Some(Decided::Refused(refused)) => {
            let rule = refused.refusal.as_ref().map(v1::Refusal::rule);
            rule.unwrap_or_default().as_str_name().to_lowercase()
        }
        other => format!("{other:?}"),
    }
}

fn mixed(prefix: &str) -> Vec<Operation> {
    let verbs = [
        Verb::Submit(small("good")),
        Verb::Submit(Submit {
            cpu_milli: -1,
            ..small("negative")
        }),
        Verb::Cancel(Cancel {
            allocation_id: "nobody".to_owned(),
        }),
        Verb::CreateResource(CreateResource {
            resource: format!("{prefix}-desk"),
            slot: None,
        }),
        // In the order of the batch: what was created before can be leased.
        Verb::Acquire(Acquire {
            resource: format!("{prefix}-desk"),
            holder: "h".to_owned(),
            ttl_slots: 1000,
            slot: None,
        }),
        Verb::Acquire(Acquire {
            resource: "never-made".to_owned(),
            holder: "h".to_owned(),
            ttl_slots: 1000,
            slot: None,
        }),
        Verb::SetTenant(v1::SetTenant {
            tenant: "mine".to_owned(),
            ..v1::SetTenant::default()
        }),
        Verb::Submit(small("good-again")),
    ];
    let operation = |(i, verb)| Operation::new(format!("{prefix}-{i}"), verb);
    verbs.into_iter().enumerate().map(operation).collect()
}

async fn accepted(suite: &Suite) -> usize {
    let events = suite.events().await;
    let requested = |event: &Event| matches!(event, Event::AllocationRequested(_));
    events.iter().filter(|(_, event)| requested(event)).count()
}

#[tokio::test]
async fn good_and_bad_operations_of_a_batch_have_each_their_own_outcome() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let operations = mixed("m");
    let outcomes = tenant.call_all(&operations).await;
    let outcomes: Vec<v1::Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let words: Vec<String> = outcomes.iter().map(word).collect();
    assert_eq!(
        words,
        [
            "submitted",
            "quantity_negative",
            "allocation_id_invalid",
            "created",
            "granted",
            "resource_not_found",
            "unknown_verb",
            "submitted",
        ]
    );
    for (operation, outcome) in operations.iter().zip(&outcomes) {
        assert_eq!(operation.id(), outcome.operation_id);
    }
    // The same batch is the same operations, one by one or all at once, from whichever connection.
    let before = accepted(&suite).await;
    assert_eq!(before, 2);
    let other = suite.tenant("tenant-a").await;
    for client in [&tenant, &other] {
        let again = client.call_all(&operations).await;
        let again: Vec<v1::Outcome> = again.into_iter().collect::<Result<_, _>>()?;
        assert_eq!(again, outcomes);
    }
    for (operation, outcome) in operations.iter().zip(&outcomes) {
        assert_eq!(&tenant.call(operation).await?, outcome);
    }
    assert_eq!(accepted(&suite).await, before);
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Publishes bytes and gathers what is answered until there are `count` outcomes.
async fn answers(suite: &Suite, nats: &Nats, payload: Vec<u8>, count: usize) -> Vec<String> {
    let token = id();
    let subject = suite.subjects.reply("tenant-a", &token);
    let mut replies: Subscriber = nats.subscribe(subject).await.expect("its own replies");
    let mut headers = HeaderMap::new();
    headers.insert(HEADER_REPLY, token.as_str());
    let ingress = suite.subjects.ingress("tenant-a");
    let sent = nats.publish_with_headers(ingress, headers, payload.into());
    sent.await.expect("its own inbox");
    let mut words = Vec::new();
    let gathering = async {
        while words.len() < count {
            let reply = replies.next().await.expect("the connection stands");
            let outcomes = Outcomes::decode(reply.payload).expect("outcomes");
            let of = |outcome: &v1::Outcome| format!("{}: {}", outcome.operation_id, word(outcome));
            words.extend(outcomes.outcomes.iter().map(of));
        }
    };
    let done = tokio::time::timeout(DEADLINE, gathering).await;
    assert!(done.is_ok(), "{words:?}");
    words.sort();
    words
}

#[tokio::test]
async fn bytes_that_no_client_would_send_are_refused_one_by_one() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let nats = suite.servers.nats("tenant:tenant-a").await;
    let good = |id: &str| named(id, Verb::Submit(small("x"))).encode_to_vec();
    let of = |requests: &[Vec<u8>]| {
        let requests: Vec<u8> = requests.iter().flat_map(|r| field(1, r)).collect();
        field(12, &requests)
    };
    let nested = of(&[good("inner")]);
    let table: Vec<(Vec<u8>, &[&str])> = vec![
        (
            of(&[good("a1"), b"\xff\xff".to_vec(), good("a2")]),
            &[": malformed_message", "a1: submitted", "a2: submitted"],
        ),
        (
            of(&[good("b1"), [good("b2"), field(99, b"x")].concat()]),
            &["b1: submitted", "b2: unknown_field"],
        ),
        // The same id with the same content, and with other content.
        (
            of(&[
                good("c1"),
                named("c1", Verb::Submit(small("other"))).encode_to_vec(),
            ]),
            &["c1: operation_conflict", "c1: submitted"],
        ),
        (of(&[nested]), &[": operation_id_invalid"]),
        (of(&[]), &[": quantity_zero"]),
        (of(&vec![good("d"); 4200][..]), &[": payload_too_large"]),
        (of(&vec![Vec::new(); 1001][..]), &[": too_many_elements"]),
    ];
    for (payload, expected) in table {
        let said = answers(&suite, &nats, payload, expected.len()).await;
        assert_eq!(said, expected);
    }
    let full = Batch {
        requests: (0..1000)
            .map(|i| Request {
                operation_id: format!("full-{i}"),
                verb: None,
            })
            .collect(),
    };
    let full = named("", Verb::Batch(full)).encode_to_vec();
    let said = answers(&suite, &nats, full, 1000).await;
    assert!(said.iter().all(|said| said.ends_with(": unknown_verb")));
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn concurrent_operations_of_a_connection_share_messages() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite
        .tenant_with("tenant-a", |options| options.batched())
        .await;
    let messages = || async {
        let operator = async_nats::jetstream::new(suite.servers.nats("operator").await);
        let stream = operator.get_stream(suite.subjects.ingress_stream()).await;
        stream.expect("the inbox").cached_info().state.last_sequence
    };
    let before = messages().await;
    let operations: Vec<Operation> = (0..400)
        .map(|i| Operation::new(format!("op-{i}"), Verb::Submit(small("many"))))
        .collect();
    let mut sent = Vec::new();
    for operation in &operations {
        sent.push(tenant.send(operation).await?);
    }
    let outcomes = join_all(sent.into_iter().map(Pending::outcome)).await;
    let mut numbers = Vec::new();
    for (operation, outcome) in operations.iter().zip(outcomes) {
        let outcome = outcome?;
        assert_eq!(outcome.operation_id, operation.id());
        let Some(Decided::Submitted(submitted)) = outcome.result else {
            panic!("{outcome:?}");
        };
        numbers.push(submitted.allocation_id);
    }
    // They were decided in the order in which they were sent.
    assert!(numbers.is_sorted(), "{numbers:?}");
    let used = messages().await - before;
    assert!(used < 50, "{used} messages for 400 operations");
    // A single one is not wrapped, and a refusal by rule is its own.
    let raw = tenant.call(&Operation::raw("r", b"\xff".to_vec())).await?;
    assert_eq!(
        word(&raw),
        Rule::MalformedMessage.as_str_name().to_lowercase()
    );
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_indefinite_is_sent_again_by_itself() -> Outcome {
    let mut suite = Suite::start().await;
    let patience = std::time::Duration::from_millis(300);
    let tenant = suite
        .tenant_with("tenant-a", |options| options.patience(patience))
        .await;
    suite.take("admission").kill().await;
    let operations = mixed("s");
    let none = tenant.call_all(&operations).await;
    let indefinite = |o: &Result<_, _>| matches!(o, Err(NoOutcome::Indefinite { .. }));
    assert!(none.iter().all(indefinite), "{none:?}");
    let settling = tenant.settle_all(&operations, 200, patience);
    let (settled, _admission) = tokio::join!(settling, suite.boot::<admission::AdmissionService>());
    let settled: Vec<v1::Outcome> = settled.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(settled.len(), operations.len());
    assert_eq!(accepted(&suite).await, 2);
    suite.close().await;
    Ok(())
}
