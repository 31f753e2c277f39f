//! What one tenant sends is no other tenant's matter, however much it is and whatever the bus would make of it.

use crate::e2e::suite::{DEADLINE, Outcome, Suite, eventually, id, small};
use async_nats::{Client as Nats, HeaderMap};
use futures::StreamExt;
use prost::Message;
use schemas::v1::{
    self, Batch, Outcomes, Request, Rule, outcome::Result as Decided, request::Verb,
};
use vocab::fact::AllocationRequested;
use vocab::{At, Event, Lsn, subjects::HEADER_REPLY};

fn submit() -> Request {
    Request {
        operation_id: id(),
        verb: Some(Verb::Submit(small("flood"))),
    }
}

fn batch(size: usize) -> Vec<u8> {
    let requests = (0..size).map(|_| submit()).collect();
    let batch = Request {
        operation_id: String::new(),
        verb: Some(Verb::Batch(Batch { requests })),
    };
    batch.encode_to_vec()
}

/// Stored at the inbox.
async fn publish(nats: &Nats, subject: String, payload: Vec<u8>) {
    let jetstream = async_nats::jetstream::new(nats.clone());
    let stored = jetstream.publish(subject, payload.into()).await;
    stored
        .expect("the connection stands")
        .await
        .expect("room at the inbox");
}

async fn requested(suite: &Suite, tenant: &str) -> Vec<Lsn> {
    let of = |(at, event): &(At, Event)| match event {
        Event::AllocationRequested(AllocationRequested { operation, .. })
            if operation.tenant.as_str() == tenant =>
        {
            Some(at.lsn)
        }
        _ => None,
    };
    suite.events().await.iter().filter_map(of).collect()
}

const BATCHES: usize = 20;
const BATCH: usize = 200;
/// What a tenant may have unread that is not the only one: `InboxLimits::unread_of_many`.
const SHARE: usize = 512;

/// Nobody reads what admission records, so it takes no more from who floods; what others send gets through, also to a new
/// leader, and nothing is lost or decided twice when the readers are back.
#[tokio::test]
async fn a_flood_waits_at_the_inbox_and_others_pass_it() -> Outcome {
    let mut suite = Suite::start().await;
    // Who has never written is not waited for.
    let tenant = suite.tenant("tenant-b").await;
    suite.assert_healthy(&tenant).await;
    let before = requested(&suite, "tenant-b").await.len();
    let floods = suite.servers.nats("tenant:tenant-a").await;
    let other = suite.servers.nats("tenant:tenant-b").await;
    suite.take("quota").stop().await;
    suite.take("scheduler").stop().await;
    let ingress = |tenant: &str| suite.subjects.ingress(tenant);
    for _ in 0..BATCHES {
        publish(&floods, ingress("tenant-a"), batch(BATCH)).await;
    }
    let taken = eventually("the flood's share", || async {
        let taken = requested(&suite, "tenant-a").await.len();
        (taken >= SHARE).then_some(taken)
    })
    .await;
    assert!(taken < SHARE + BATCH, "{taken}");
    publish(&other, ingress("tenant-b"), submit().encode_to_vec()).await;
    eventually("who passes", || async {
        (requested(&suite, "tenant-b").await.len() == before + 1).then_some(())
    })
    .await;
    assert_eq!(requested(&suite, "tenant-a").await.len(), taken);
    // What a new leader is to know of it stands on the ledger.
    suite.take("admission").kill().await;
    suite.start_again::<admission::AdmissionService>().await;
    suite.start_again::<quota::QuotaService>().await;
    suite.start_again::<scheduler::SchedulerService>().await;
    suite
        .events_of("all reserved", BATCHES * BATCH + before + 1, |_, event| {
            matches!(event, Event::QuotaReserved(_)).then_some(())
        })
        .await;
    assert_eq!(requested(&suite, "tenant-a").await.len(), BATCHES * BATCH);
    assert_eq!(requested(&suite, "tenant-b").await.len(), before + 1);
    suite.inboxes_trimmed().await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// With an id of the bus's own a message could be dropped for another tenant's, so nobody gets used to them.
#[tokio::test]
async fn headers_of_the_bus_are_refused_by_name() -> Outcome {
    let suite = Suite::start().await;
    let nats = suite.servers.nats("tenant:tenant-a").await;
    let check = async |header: &str, value: &str| {
        let token = id();
        let reply = suite.subjects.reply("tenant-a", &token);
        let mut replies = nats.subscribe(reply).await.expect("its own replies");
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_REPLY, token.as_str());
        headers.insert(header, value);
        let ingress = suite.subjects.ingress("tenant-a");
        let request = submit().encode_to_vec();
        let sent = nats.publish_with_headers(ingress, headers, request.into());
        sent.await.expect("its own inbox");
        let reply = tokio::time::timeout(DEADLINE, replies.next()).await;
        let reply = reply.expect("an answer").expect("the connection stands");
        let outcomes = Outcomes::decode(reply.payload).expect("outcomes").outcomes;
        let [
            v1::Outcome {
                result: Some(Decided::Refused(refused)),
                ..
            },
        ] = &outcomes[..]
        else {
            panic!("{header}: {outcomes:?}");
        };
        let refusal = refused.refusal.clone().unwrap_or_default();
        assert_eq!(refusal.rule(), Rule::HeaderReserved, "{header}");
    };
    check("Nats-Msg-Id", "1").await;
    check("nats-msg-id", "1").await;
    check("Nats-Whatever", "").await;
    let tenant = suite.tenant("tenant-a").await;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

/// Undecided messages that one sender may have at an inbox.
const INBOX_BACKLOG: usize = 4096;

/// Sends to an inbox that nobody reads until it takes no more, and says how often it did.
async fn fill(nats: &Nats, subject: &str, payload: Vec<u8>) -> usize {
    let jetstream = async_nats::jetstream::new(nats.clone());
    let mut stored = 0;
    loop {
        let sent = (0..256).map(|_| async {
            let sent = jetstream.publish(subject.to_owned(), payload.clone().into());
            sent.await.expect("the connection stands").await
        });
        for ack in futures::future::join_all(sent).await {
            let Err(error) = ack else {
                stored += 1;
                continue;
            };
            let said = error.to_string();
            assert!(said.contains("maximum messages per subject"), "{said}");
        }
        if stored % 256 != 0 || stored >= INBOX_BACKLOG {
            return stored;
        }
    }
}

/// A sender has so many messages at an inbox, of so many bytes each; the others do not wait for it, and neither does it once
/// somebody decides again.
#[tokio::test]
async fn who_fills_its_part_of_an_inbox_leaves_it_open_for_others() -> Outcome {
    let mut suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let nats = async |user: &str| suite.servers.nats(user).await;
    let (floods, other) = (nats("tenant:tenant-a").await, nats("tenant:tenant-b").await);
    let (operator, fleet) = (nats("operator").await, nats("fleet").await);
    suite.take("admission").stop().await;
    suite.take("node-heartbeat").stop().await;
    let ingress = |tenant: &str| suite.subjects.ingress(tenant);
    // No request, so nobody has to be asked whether there is room for what comes of it.
    let nothing = vec![0xff; 16];
    let stored = fill(&floods, &ingress("tenant-a"), nothing.clone()).await;
    assert_eq!(stored, INBOX_BACKLOG);
    let refused = tenant.submit(small("late"), &id()).await;
    let Err(client::Failed::NoOutcome(refused)) = refused else {
        panic!("{refused:?}");
    };
    assert!(refused.retryable(), "{refused}");
    publish(&other, ingress("tenant-b"), nothing.clone()).await;
    publish(&operator, suite.subjects.admin(), nothing.clone()).await;
    let report = |node: &str| suite.subjects.node(node, "report");
    let stored = fill(&fleet, &report("babbler"), nothing.clone()).await;
    assert_eq!(stored, INBOX_BACKLOG);
    publish(&fleet, report("other"), nothing.clone()).await;
    suite.start_again::<admission::AdmissionService>().await;
    suite
        .start_again::<node_heartbeat::NodeHeartbeatService>()
        .await;
    suite.inboxes_trimmed().await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
