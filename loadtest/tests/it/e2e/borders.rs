//! What a user's creds are not good for. Looked at on both sides: nothing arrives, nothing is stored, and whoever
//! tried is told.

use crate::e2e::{
    raw::Wire,
    suite::{DEADLINE, Outcome, Suite, id, small},
};
use async_nats::{Client, Event as NatsEvent, Subscriber};
use client::Operation;
use futures::{FutureExt, StreamExt};
use identity::Creds;
use prost::Message;
use schemas::v1::{Request, request::Verb};
use tokio::sync::mpsc;
use vocab::subjects::HEADER_REPLY;

/// A connection that hears what the server forbids it.
struct Intruder {
    nats: Client,
    denied: mpsc::UnboundedReceiver<String>,
}

impl Intruder {
    async fn connect(suite: &Suite, user: &str) -> Self {
        let (sender, denied) = mpsc::unbounded_channel();
        let nats = identity::connect(suite.servers.creds(user))
            .event_callback(move |event| {
                if let NatsEvent::ServerError(error) = event {
                    // The test may be over.
                    let _ = sender.send(error.to_string());
                }
                std::future::ready(())
            })
            .connect(&suite.servers.nats.url)
            .await
            .expect("its creds are good for connecting");
        Self { nats, denied }
    }

    /// Waits for the server's word against this subject.
    async fn is_denied(&mut self, what: &str, subject: &str) {
        let waiting = async {
            loop {
                let text = self
                    .denied
                    .recv()
                    .await
                    .expect("the connection stands")
                    .to_lowercase();
                // Later denials may come first; each attempt is waited for before the next.
                if text.contains("permissions violation") {
                    return text;
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, waiting).await;
        let text = waited.unwrap_or_else(|_| panic!("{what} {subject} is not denied"));
        assert!(
            text.contains(what) && text.contains(&subject.to_lowercase()),
            "{what} {subject}: {text}"
        );
    }

    async fn cannot_publish(&mut self, subject: &str, payload: &[u8]) {
        let payload = payload.to_vec().into();
        self.nats
            .publish(subject.to_owned(), payload)
            .await
            .expect("it only enqueues");
        self.nats.flush().await.expect("the connection stands");
        self.is_denied("publish", subject).await;
    }

    async fn cannot_subscribe(&mut self, subject: &str) -> Subscriber {
        let subscriber = self
            .nats
            .subscribe(subject.to_owned())
            .await
            .expect("it only enqueues");
        self.nats.flush().await.expect("the connection stands");
        self.is_denied("subscription", subject).await;
        subscriber
    }
}

/// Messages in all streams, by stream.
async fn stored(suite: &Suite) -> Vec<usize> {
    let s = &suite.subjects;
    let mut counts = Vec::new();
    for stream in [
        s.ledger_stream(),
        s.ingress_stream(),
        s.report_stream(),
        s.event_stream(),
    ] {
        counts.push(suite.stored(&stream, ">").await);
    }
    counts
}

/// A request that would be decided anywhere it got to.
fn good_request() -> Vec<u8> {
    Request {
        operation_id: id(),
        verb: Some(Verb::Submit(small("intruder"))),
    }
    .encode_to_vec()
}

/// What a tenant may not say. Streams by name, so that the server's interface would know which.
fn beyond_a_tenant(suite: &Suite) -> Vec<String> {
    let s = &suite.subjects;
    let (ledger, ingress, event) = (s.ledger_stream(), s.ingress_stream(), s.event_stream());
    let heartbeats = s.heartbeat_bucket();
    let mut subjects = vec![
        s.ingress("tenant-b"),
        s.admin(),
        s.event("tenant-a", "default"),
        s.event("tenant-b", "default"),
        s.reply("tenant-a", "x"),
        s.reply("tenant-b", "x"),
        s.reply("_operator", "x"),
        s.query("tenant-b", "feed"),
        s.node("n1", "report"),
        s.node("n1", "heartbeat"),
        s.node("n1", "sync"),
        s.node("n1", "assign"),
        format!("$JS.API.STREAM.INFO.{ledger}"),
        format!("$JS.API.STREAM.DELETE.{ledger}"),
        format!("$JS.API.STREAM.PURGE.{ingress}"),
        format!("$JS.API.STREAM.MSG.GET.{ledger}"),
        format!("$JS.API.STREAM.MSG.DELETE.{ingress}"),
        format!("$JS.API.STREAM.UPDATE.{event}"),
        format!("$JS.API.CONSUMER.CREATE.{event}"),
        format!(
            "$JS.API.CONSUMER.CREATE.{event}.spy.{}",
            s.event("tenant-b", "*")
        ),
        format!("$JS.API.DIRECT.GET.{event}"),
        format!("$JS.ACK.{ingress}.x.1.1.1.1.1"),
        format!("$O.{}.C.x", s.snapshot_bucket()),
        format!("$KV.{heartbeats}.n1"),
        format!("$JS.API.STREAM.INFO.KV_{heartbeats}"),
        format!("$JS.API.DIRECT.GET.KV_{heartbeats}.$KV.{heartbeats}.n1"),
        "$JS.API.INFO".to_owned(),
        "$SYS.REQ.SERVER.PING".to_owned(),
        "elsewhere".to_owned(),
    ];
    let writers = ["admission", "quota", "scheduler", "node-heartbeat"];
    subjects.extend(writers.map(|writer| s.ledger(writer)));
    subjects
}

fn unheard_by_a_tenant(suite: &Suite) -> Vec<String> {
    let s = &suite.subjects;
    let v1 = s.ledger("*").replace(".ledger.*", "");
    vec![
        ">".to_owned(),
        "apportion.>".to_owned(),
        format!("{v1}.>"),
        "apportion.v1.*.event.>".to_owned(),
        s.event("tenant-b", ">"),
        s.event("tenant-b", "default"),
        s.event("*", "*"),
        s.reply("tenant-b", "*"),
        s.reply("_operator", "*"),
        s.ingress("tenant-a"),
        s.ingress("*"),
        s.admin(),
        s.ledger("*"),
        s.query("tenant-b", "*"),
        s.node("*", "assign"),
        "$JS.>".to_owned(),
        "$SYS.>".to_owned(),
        "$SRV.>".to_owned(),
        "*.>".to_owned(),
    ]
}

/// What has been sent so far would have arrived: the server answers a ping behind it.
async fn assert_silent(nats: &Client, subscribers: &mut [Subscriber]) {
    nats.flush().await.expect("the connection stands");
    for subscriber in subscribers {
        // A subscription that the server refused may have been ended, which is as silent as can be.
        if let Some(Some(message)) = subscriber.next().now_or_never() {
            panic!("{} got through", message.subject);
        }
    }
}

#[tokio::test]
async fn a_tenant_says_and_hears_only_its_own() -> Outcome {
    let suite = Suite::start().await;
    let mut intruder = Intruder::connect(&suite, "tenant:tenant-a").await;
    let victim = suite.servers.nats("tenant:tenant-b").await;
    let operator = suite.servers.nats("operator").await;
    let s = &suite.subjects;
    let mut of_victim = vec![
        victim.subscribe(s.event("tenant-b", ">")).await?,
        victim.subscribe(s.reply("tenant-b", "*")).await?,
    ];
    let mut of_operator = vec![
        operator.subscribe(s.event("*", ">")).await?,
        operator.subscribe(s.reply("_operator", "*")).await?,
    ];
    let fleet = suite.servers.nats("fleet").await;
    let mut of_fleet = vec![fleet.subscribe(s.node("*", "assign")).await?];
    for nats in [&victim, &operator, &fleet] {
        nats.flush().await?;
    }

    // Saying.
    suite.inboxes_trimmed().await;
    let before = stored(&suite).await;
    for subject in beyond_a_tenant(&suite) {
        intruder.cannot_publish(&subject, &good_request()).await;
    }
    assert_eq!(stored(&suite).await, before);
    assert_silent(&victim, &mut of_victim).await;
    assert_silent(&operator, &mut of_operator).await;
    assert_silent(&fleet, &mut of_fleet).await;

    // Hearing, while there is something to hear on each of these subjects.
    let mut heard = Vec::new();
    for subject in unheard_by_a_tenant(&suite) {
        heard.push(intruder.cannot_subscribe(&subject).await);
    }
    let other = suite.tenant("tenant-b").await;
    let mut agent = suite.node("n1").await;
    let submitted = other.submit(small("secret"), id()).await?;
    agent.run(&submitted.allocation_id, 1).await;
    crate::e2e::suite::set_quota(&suite.operator().await, "tenant-b", "cpu", 5).await;
    let ended = |_: &_, event: &vocab::Event| {
        matches!(event, vocab::Event::AllocationEnded(_)).then_some(())
    };
    suite.events_of("the end", 1, ended).await;
    let page = other
        .feed_page(client::Position::default(), None, 0)
        .await?;
    assert!(!page.is_empty());
    assert!(of_victim[0].next().await.is_some(), "the owner hears it");
    assert_silent(&intruder.nats, &mut heard).await;

    let tenant = suite.tenant("tenant-a").await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// A reply subject is the sender's choice; it must not carry an answer, or an acknowledgement, to where the sender
/// could not speak.
#[tokio::test]
async fn a_reply_subject_is_no_way_out() -> Outcome {
    let suite = Suite::start().await;
    let s = &suite.subjects;
    let tenant = suite.tenant("tenant-a").await;
    let victim = suite.servers.nats("tenant:tenant-b").await;
    let operator = suite.servers.nats("operator").await;
    let fleet = suite.servers.nats("fleet").await;
    let mut of_victim = vec![
        victim.subscribe(s.event("tenant-b", ">")).await?,
        victim.subscribe(s.reply("tenant-b", "*")).await?,
        victim.subscribe("_INBOX.victim.*").await?,
    ];
    let mut of_operator = vec![
        operator.subscribe(s.reply("_operator", "*")).await?,
        operator.subscribe(s.event("tenant-b", ">")).await?,
        operator.subscribe("_INBOX.victim.*").await?,
    ];
    let mut of_fleet = vec![fleet.subscribe(s.node("*", "assign")).await?];
    for nats in [&victim, &operator, &fleet] {
        nats.flush().await?;
    }
    let untouched = [
        (s.ingress_stream(), s.ingress("tenant-b")),
        (s.ingress_stream(), s.admin()),
        (s.report_stream(), ">".to_owned()),
        (s.event_stream(), s.event("tenant-b", "*")),
        (s.ledger_stream(), s.ledger("scheduler")),
        (s.ledger_stream(), s.ledger("node-heartbeat")),
    ];
    suite.inboxes_trimmed().await;
    let mut before = Vec::new();
    for (stream, subject) in &untouched {
        before.push(suite.stored(stream, subject).await);
    }

    let replies = [
        s.ingress("tenant-b"),
        s.admin(),
        s.ledger("scheduler"),
        s.ledger("admission"),
        s.event("tenant-b", "default"),
        s.reply("tenant-b", "x"),
        s.reply("_operator", "x"),
        s.node("n1", "report"),
        s.node("n1", "assign"),
        format!("$JS.API.STREAM.PURGE.{}", s.ingress_stream()),
        format!("$JS.API.STREAM.DELETE.{}", s.ledger_stream()),
        "_INBOX.victim.x".to_owned(),
    ];
    let nats = suite.servers.nats("tenant:tenant-a").await;
    // Refused before quota, so that the scheduler has nothing to write.
    let request = || Request {
        operation_id: id(),
        verb: Some(Verb::Submit(client::Submit::default())),
    };
    let mut ids = Vec::new();
    for reply in &replies {
        // The server's reply subject, which brings the acknowledgement, and the contract's, which brings the outcome.
        let bare = request();
        ids.push(bare.operation_id.clone());
        let payload = bare.encode_to_vec().into();
        nats.publish_with_reply(s.ingress("tenant-a"), reply.clone(), payload)
            .await?;
        let named = request();
        ids.push(named.operation_id.clone());
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(HEADER_REPLY, reply.as_str());
        let payload = named.encode_to_vec().into();
        let (subject, reply) = (s.ingress("tenant-a"), reply.clone());
        nats.publish_with_reply_and_headers(subject, reply, headers, payload)
            .await?;
        // A question's answer is like an outcome.
        nats.publish_with_reply(
            s.query("tenant-a", "feed"),
            replies[0].clone(),
            Vec::new().into(),
        )
        .await?;
    }
    nats.flush().await?;
    // All of it has been decided, and answered as far as it could be.
    crate::e2e::suite::eventually("all outcomes in the feed", || async {
        let page = tenant
            .feed_page(client::Position::default(), None, 0)
            .await
            .ok()?;
        (page.len() == ids.len()).then_some(())
    })
    .await;
    let outcome = tenant
        .call(&Operation::new(
            id(),
            Verb::Submit(client::Submit::default()),
        ))
        .await;
    assert!(outcome.is_ok());

    for ((stream, subject), before) in untouched.iter().zip(before) {
        assert_eq!(suite.stored(stream, subject).await, before, "{subject}");
    }
    assert_silent(&victim, &mut of_victim).await;
    assert_silent(&operator, &mut of_operator).await;
    assert_silent(&fleet, &mut of_fleet).await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Agents and services have borders as well.
#[tokio::test]
async fn everybody_has_borders() -> Outcome {
    let suite = Suite::start().await;
    let s = &suite.subjects;
    let delete = format!("$JS.API.STREAM.DELETE.{}", s.ledger_stream());
    let table = [
        (
            "fleet",
            vec![
                s.ingress("tenant-a"),
                s.admin(),
                s.ledger("node-heartbeat"),
                s.node("n1", "assign"),
                delete.clone(),
            ],
        ),
        (
            "quota",
            vec![
                s.ledger("scheduler"),
                s.ingress("tenant-a"),
                s.event("tenant-a", "x"),
                delete.clone(),
            ],
        ),
        (
            "analytics",
            vec![
                s.ledger("quota"),
                s.ledger("analytics"),
                s.admin(),
                delete.clone(),
            ],
        ),
        (
            "scheduler",
            vec![s.ledger("quota"), s.node("n1", "assign"), delete.clone()],
        ),
        (
            "node-heartbeat",
            vec![
                s.ledger("scheduler"),
                s.reply("tenant-a", "x"),
                delete.clone(),
            ],
        ),
        (
            "admission",
            vec![
                s.ledger("quota"),
                s.node("n1", "assign"),
                s.admin(),
                delete.clone(),
            ],
        ),
        (
            "operator",
            vec![
                s.ledger("admission"),
                s.ingress("tenant-a"),
                s.reply("tenant-a", "x"),
                delete,
            ],
        ),
        (
            "bus",
            vec![s.ledger("analytics"), s.admin(), s.event("tenant-a", "x")],
        ),
    ];
    suite.inboxes_trimmed().await;
    let before = stored(&suite).await;
    for (user, subjects) in table {
        let mut intruder = Intruder::connect(&suite, user).await;
        for subject in subjects {
            intruder.cannot_publish(&subject, b"x").await;
        }
    }
    assert_eq!(stored(&suite).await, before);
    // Without creds, and with another's token, which anybody may have seen, but not with its key.
    let (tenant, operator) = (
        suite.servers.held("tenant:tenant-a"),
        suite.servers.held("operator"),
    );
    let stolen = Creds::new(operator.token, tenant.into_key());
    for creds in [None, Some(&stolen)] {
        let mut wire = Wire::connect(&suite.servers.nats.url, creds).await?;
        if let Ok(said) = wire.flush().await {
            assert!(
                said.contains("Authorization Violation"),
                "{creds:?}: {said}"
            );
        }
    }
    suite.close().await;
    Ok(())
}
