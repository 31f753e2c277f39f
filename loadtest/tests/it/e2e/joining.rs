//! A machine becomes a node: approved by an operator, let in by its token, known to the bus by its own key; and forgotten.

use crate::e2e::{
    agent::Agent,
    suite::{GIB, Outcome, Setup, Suite, eventually, id, small},
};
use async_nats::Client;
use chassis::Clock;
use client::{NodeApprovalRequest, NodeCapacity, SetNode};
use data_encoding::BASE64URL_NOPAD;
use identity::Creds;
use nkeys::KeyPair;
use prost::Message;
use schemas::v1::{JoinReply, JoinRequest, Rule, RunPhase, join_reply::Answer};
use sha2::{Digest, Sha256};

const HOUR_MS: i64 = 3_600_000;

/// Lets the node join by the token, with half of what its agent is going to say.
fn approval(node: &str, token: &str, cpu_milli: u64) -> SetNode {
    SetNode {
        node: node.to_owned(),
        approved: Some(NodeApprovalRequest {
            capacity: Some(NodeCapacity {
                cpu_milli,
                memory_bytes: 256 * GIB as u64,
                gpus: 8,
                gpu_model: crate::e2e::agent::MODEL.to_owned(),
                ..NodeCapacity::default()
            }),
            token_digest: Sha256::digest(token).to_vec(),
            token_until_ms: Clock::real().now_ms() + HOUR_MS,
        }),
        expected_version: None,
    }
}

/// Asks to join as nobody yet.
async fn join(nobody: &Client, suite: &Suite, token: &str, public_key: &str) -> Answer {
    let asked = JoinRequest {
        node: "n1".to_owned(),
        token: token.as_bytes().to_vec(),
        public_key: public_key.to_owned(),
    };
    let payload = asked.encode_to_vec();
    // Nobody answers before the service leads.
    eventually("an answer", || async {
        let answer = nobody.request(suite.subjects.join(), payload.clone().into());
        let answer = answer.await.ok()?;
        let reply = JoinReply::decode(answer.payload).expect("a reply");
        Some(reply.answer.expect("an answer"))
    })
    .await
}

fn rule(answer: &Answer) -> Rule {
    match answer {
        Answer::Refused(refusal) => refusal.rule(),
        Answer::UserJwt(_) => panic!("it may not join"),
    }
}

#[tokio::test]
async fn a_machine_joins_by_its_token_and_nobody_else_is_its_node() -> Outcome {
    let suite = Suite::with(Setup {
        joining: "required",
        ..Setup::default()
    })
    .await;
    let operator = suite.operator().await;
    let options = identity::connect(suite.servers.creds("join"));
    let options = options.custom_inbox_prefix("_INBOX.join");
    let nobody = options.connect(&suite.servers.nats.url).await?;
    let key = KeyPair::new_user();
    let public = key.public_key();

    let refused = join(&nobody, &suite, "one", &public).await;
    assert_eq!(rule(&refused), Rule::NodeNotApproved);
    operator
        .set_node(approval("n1", "one", 32_000), id())
        .await?;
    let wrong = eventually("the approval is read", || async {
        let refused = join(&nobody, &suite, "two", &public).await;
        (rule(&refused) != Rule::NodeNotApproved).then_some(refused)
    })
    .await;
    assert_eq!(rule(&wrong), Rule::JoinTokenInvalid);
    let garbage = join(&nobody, &suite, "one", "UABC").await;
    assert_eq!(rule(&garbage), Rule::NameInvalid);
    let Answer::UserJwt(first) = join(&nobody, &suite, "one", &public).await else {
        panic!("the token is right");
    };
    let body = first.split('.').nth(1).expect("a token has three parts");
    let body = BASE64URL_NOPAD.decode(body.as_bytes())?;
    let body: serde_json::Value = serde_json::from_slice(&body)?;
    let [issued, until] = ["iat", "exp"].map(|name| body[name].as_i64().expect("a moment"));
    assert_eq!((until - issued) * 1000, HOUR_MS);
    // The answer may have been lost.
    let again = join(&nobody, &suite, "one", &public).await;
    assert!(matches!(again, Answer::UserJwt(_)), "{again:?}");
    let other = KeyPair::new_user().public_key();
    let used = join(&nobody, &suite, "one", &other).await;
    assert_eq!(rule(&used), Rule::JoinTokenInvalid);

    // With its own user of the bus it is a node, with what was approved.
    let creds = Creds::new(first, key);
    let path = std::env::temp_dir().join(format!("apportion-test-{}.creds", id()));
    std::fs::write(&path, creds.text()?)?;
    let options = identity::connect(&path).custom_inbox_prefix("_INBOX.n1");
    let nats = options.connect(&suite.servers.nats.url).await;
    std::fs::remove_file(&path)?;
    let mut agent = Agent::on(nats?, &suite, "n1").await;
    agent.announce().await;
    let refusal = agent.is_refused().await;
    assert_eq!(refusal.rule(), Rule::CapacityNotApproved);
    assert_eq!((refusal.limit, refusal.actual), (32_000, 64_000));
    agent.capacity.cpu_milli = 32_000;
    agent.register().await;
    let tenant = suite.tenant("tenant-a").await;
    let allocation = tenant.submit(small("a"), id()).await?.allocation_id;
    agent.run(&allocation, 5).await;

    // Forgotten, it is lost, and what it says from now on is nobody's word.
    let running = tenant.submit(small("b"), id()).await?.allocation_id;
    let placed = agent.assignment(&running, false).await.placed_ms;
    agent.report(&running, RunPhase::Started, placed).await;
    let forgotten = SetNode {
        node: "n1".to_owned(),
        ..SetNode::default()
    };
    operator.set_node(forgotten, id()).await?;
    agent.is_told_to_register().await;
    agent.boot += 1;
    agent.announce().await;
    assert_eq!(agent.is_refused().await.rule(), Rule::NodeNotApproved);
    // Its user may still be alive, so the next machine of the name waits.
    operator
        .set_node(approval("n1", "two", 64_000), id())
        .await?;
    let held = eventually("the approval is read", || async {
        let refused = join(&nobody, &suite, "two", &other).await;
        (rule(&refused) != Rule::NodeNotApproved).then_some(refused)
    })
    .await;
    assert_eq!(rule(&held), Rule::NodeNameHeld);
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
