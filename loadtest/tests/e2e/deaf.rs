//! Who sends what no client library can read, again and again: it may make a service hear nothing for a moment, and must
//! neither end it nor keep it from deciding.

use crate::{
    raw::Wire,
    suite::{Outcome, Suite, eventually, id, queries_answered, small},
};
use schemas::subjects::QUERY_VERBS;

/// The client library closes the connection on which one of these comes; the first two end its task.
const BLOCKS: [&[u8]; 5] = [
    b"NATS/1.0\r\nA: x\rB: y\r\n\r\n",
    b"NATS/1.0\r\nA: \r\r\r\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nname: \xff\xfe\r\n\r\n",
    b"\0\0\0\0\r\n\r\n",
];
const ROUNDS: usize = 20;

#[tokio::test]
async fn queries_that_cannot_be_read_keep_nobody_from_deciding() -> Outcome {
    let suite = Suite::start().await;
    let other = suite.tenant("tenant-b").await;
    let login = suite.servers.held("tenant:tenant-a");
    let mut wire = Wire::connect(&suite.servers.nats.url, Some(&login)).await?;
    for round in 0..ROUNDS {
        for verb in QUERY_VERBS {
            let subject = suite.subjects.query("tenant-a", verb);
            wire.publish(&subject, BLOCKS[round % BLOCKS.len()], b"x")
                .await?;
        }
        wire.flush().await?;
        other.submit(small("meanwhile"), id()).await?;
    }
    have_broken_down(&suite, &["admission", "scheduler"]).await;
    let operation_id = id();
    let submitted = other.submit(small("behind"), operation_id.clone()).await?;
    queries_answered(&other, &operation_id, &submitted.allocation_id).await;
    suite.assert_healthy(&other).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn heartbeats_that_cannot_be_read_keep_nobody_from_deciding() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut agent = suite.node("n1").await;
    let mut wire =
        Wire::connect(&suite.servers.nats.url, Some(&suite.servers.held("fleet"))).await?;
    for round in 0..ROUNDS {
        for what in ["heartbeat", "sync"] {
            let subject = suite.subjects.node("n2", what);
            wire.publish(&subject, BLOCKS[round % BLOCKS.len()], b"x")
                .await?;
        }
        wire.flush().await?;
        let submitted = tenant.submit(small("meanwhile"), id()).await?;
        agent.run(&submitted.allocation_id, 1).await;
    }
    have_broken_down(&suite, &["node-heartbeat"]).await;
    let door = suite.services().find(|s| s.name == "node-heartbeat");
    let door = door.expect("it runs");
    let heard = door.metric("heartbeats_total").await;
    eventually("a heartbeat that is heard", || async {
        agent.heartbeat(agent.boot).await;
        (door.metric("heartbeats_total").await > heard).then_some(())
    })
    .await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// That the attack has hit.
async fn have_broken_down(suite: &Suite, names: &[&str]) {
    const LABELS: &str = "connection=\"hearing\",event=\"broken_down\"";
    for service in suite.services().filter(|s| names.contains(&s.name)) {
        eventually("a client that has broken down", || async {
            service.sample("nats_events_total", LABELS).await
        })
        .await;
    }
}
