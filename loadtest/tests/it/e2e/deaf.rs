//! Who sends what no client library can read, as fast as it can: everybody else is heard all the while.

use crate::e2e::{
    queries::submitted,
    raw::Wire,
    suite::{Outcome, Suite, id, small},
};
use std::sync::Arc;
use tokio::{sync::Notify, task::JoinHandle};
use vocab::subjects::QUERIES;

/// The client library of the ledger closes a connection on which one of these comes; the first two end its task.
const BLOCKS: [&[u8]; 5] = [
    b"NATS/1.0\r\nA: x\rB: y\r\n\r\n",
    b"NATS/1.0\r\nA: \r\r\r\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nname: \xff\xfe\r\n\r\n",
    b"\0\0\0\0\r\n\r\n",
];
const ROUNDS: usize = 20;

/// Sends all blocks to all subjects, again and again.
struct Attack {
    task: JoinHandle<std::io::Result<()>>,
    hits: Arc<Notify>,
}

impl Attack {
    async fn begin(suite: &Suite, party: &str, subjects: Vec<String>) -> std::io::Result<Self> {
        let login = suite.servers.held(party);
        let mut wire = Wire::connect(&suite.servers.nats.url, Some(&login)).await?;
        let hits = Arc::new(Notify::new());
        let hit = hits.clone();
        let task = tokio::spawn(async move {
            loop {
                for block in BLOCKS {
                    for subject in &subjects {
                        wire.publish(subject, block, b"x").await?;
                    }
                }
                wire.flush().await?;
                hit.notify_one();
            }
        });
        Ok(Self { task, hits })
    }

    /// Until the server has read another round of it.
    async fn goes_on(&self) {
        self.hits.notified().await;
    }

    async fn end(self) {
        self.task.abort();
        let ended = self.task.await.expect_err("it goes on until it is ended");
        assert!(ended.is_cancelled(), "{ended}");
    }
}

#[tokio::test]
async fn queries_are_answered_while_another_sends_unreadable_ones() -> Outcome {
    let suite = Suite::start().await;
    let other = suite.tenant("tenant-b").await;
    let verbs = QUERIES.iter().flat_map(|(_, verbs)| *verbs);
    let subjects = verbs.map(|verb| suite.subjects.query("tenant-a", verb));
    let attack = Attack::begin(&suite, "tenant:tenant-a", subjects.collect()).await?;
    for _ in 0..ROUNDS {
        attack.goes_on().await;
        let operation_id = id();
        let (allocation, lsn) = submitted(&other, &operation_id).await;
        other.operation(&operation_id, lsn).await?;
        other.allocation(&allocation, lsn).await?;
    }
    attack.end().await;
    never_disconnected(&suite, &["admission", "scheduler"]).await;
    suite.assert_healthy(&other).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn nodes_are_heard_while_another_sends_unreadable_heartbeats() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut agent = suite.node("n1").await;
    let subjects = ["heartbeat", "sync"].map(|what| suite.subjects.node("n2", what));
    let attack = Attack::begin(&suite, "fleet", subjects.into()).await?;
    for _ in 0..ROUNDS {
        attack.goes_on().await;
        let submitted = tenant.submit(small("meanwhile"), id()).await?;
        agent.run(&submitted.allocation_id, 1).await;
        assert!(agent.sync().await.is_some(), "node-heartbeat hears");
    }
    attack.end().await;
    never_disconnected(&suite, &["node-heartbeat"]).await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

async fn never_disconnected(suite: &Suite, names: &[&str]) {
    const CONNECTED: &str = "connection=\"hearing\",event=\"connected\"";
    const DISCONNECTED: &str = "connection=\"hearing\",event=\"disconnected\"";
    let mut found = 0;
    for service in suite.services().filter(|s| names.contains(&s.name)) {
        let times = service.sample("nats_events_total", CONNECTED).await;
        assert!(times >= Some(1), "{}: {times:?}", service.name);
        let times = service.sample("nats_events_total", DISCONNECTED).await;
        assert_eq!(times, None, "{}", service.name);
        found += 1;
    }
    assert_eq!(found, names.len(), "{names:?}");
}
