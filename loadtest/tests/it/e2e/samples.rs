//! What agents measure: on the bus as the last heartbeat of each node, and in the tables for longer.

use crate::e2e::{
    agent::Agent,
    suite::{Outcome, Suite, eventually},
};
use analytics::AnalyticsService;
use async_nats::jetstream;
use futures::{FutureExt, StreamExt};
use prost::Message;
use schemas::v1::{GpuSample, Heartbeat, LeaseRenewed, NodeSample};

fn beat(boot: u64, cpu_milli: u64) -> Heartbeat {
    let gpu = |device, busy_milli| GpuSample {
        device,
        busy_milli,
        memory_bytes: 1 << 30,
    };
    Heartbeat {
        boot,
        revision: u64::MAX,
        sample: Some(NodeSample {
            cpu_milli,
            memory_bytes: 5 << 30,
            gpus: vec![gpu(0, 1000), gpu(1, 250)],
            oom_kills: 2,
            runs: 3,
            ..NodeSample::default()
        }),
        ..Heartbeat::default()
    }
}

async fn rows(suite: &Suite) -> Vec<(String, u64, u64)> {
    let query = "SELECT node, cpu_milli, gpu_busy_milli FROM node_samples ORDER BY node, cpu_milli";
    let query = suite.clickhouse().query(query);
    query.fetch_all().await.expect("the table is there")
}

#[tokio::test]
async fn the_last_heartbeat_is_kept_on_the_bus_and_answered_by_the_cell_alone() -> Outcome {
    let suite = Suite::start().await;
    let mut agent = Agent::connect(&suite, "n1").await;
    agent.register().await;
    let nats = suite.servers.nats("fleet").await;
    let mut answers = nats.subscribe("_INBOX.answers").await?;
    let operator = jetstream::new(suite.servers.nats("operator").await);
    let bucket = operator
        .get_key_value(suite.subjects.heartbeat_bucket())
        .await?;
    assert_eq!(bucket.get("n2").await?, None);
    for cpu_milli in [1500, 2500] {
        let sent = beat(agent.boot, cpu_milli);
        nats.publish_with_reply(
            suite.subjects.node("n1", "heartbeat"),
            "_INBOX.answers",
            sent.encode_to_vec().into(),
        )
        .await?;
        let answer = answers.next().await.ok_or("an answer")?;
        assert_eq!(LeaseRenewed::decode(answer.payload)?.boot, agent.boot);
        eventually("it is in the bucket", || async {
            let kept = bucket.get("n1").await.expect("the operator may")?;
            (Heartbeat::decode(kept).ok()? == sent).then_some(())
        })
        .await;
    }
    nats.flush().await?;
    assert!(answers.next().now_or_never().is_none(), "a second answer");
    suite.close().await;
    Ok(())
}

/// Of two processes of the service, each heartbeat is heard by one.
#[tokio::test]
async fn a_sample_is_a_row_once_and_what_is_none_is_nothing() -> Outcome {
    let suite = Suite::start().await;
    let other = suite.boot::<AnalyticsService>().await;
    other.wait_ready().await;
    let nats = suite.servers.nats("fleet").await;
    let says = async |node: &str, payload: Vec<u8>| {
        let subject = suite.subjects.node(node, "heartbeat");
        nats.publish(subject, payload.into()).await
    };
    // Both hear from some moment on.
    eventually("a first row", || async {
        says("first", beat(1, 1).encode_to_vec()).await.ok()?;
        rows(&suite).await.first().map(|_| ())
    })
    .await;
    let nodes: Vec<String> = (100..150).map(|no| format!("n{no}")).collect();
    for node in &nodes {
        let silent = Heartbeat {
            sample: None,
            ..beat(1, 1)
        };
        says("silent", silent.encode_to_vec()).await?;
        says("garbage", b"\xff\xffgarbage".to_vec()).await?;
        says("nothing", Vec::new()).await?;
        says(node, beat(1, 7).encode_to_vec()).await?;
    }
    let expected: Vec<_> = nodes.into_iter().map(|node| (node, 7, 1250)).collect();
    let others = async || {
        let mut rows = rows(&suite).await;
        rows.retain(|(node, ..)| node != "first");
        rows
    };
    eventually("all rows", || async {
        (others().await.len() >= expected.len()).then_some(())
    })
    .await;
    assert_eq!(others().await, expected);
    // The bill is made anew of the ledger, and the samples stay.
    suite.store().wipe().await?;
    assert_eq!(others().await, expected);
    other.stop().await;
    suite.close().await;
    Ok(())
}
