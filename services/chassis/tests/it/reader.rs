//! Readiness says when a follower is behind the ledger, on the servers of `make test`.

use chassis::Behind;
use ledger::Bus;
use std::{net::SocketAddr, time::Duration};
use vocab::{Level, Lsn, Writer};

use crate::common::{get, in_new_cell};

/// Real time after which the test is given up, in place of hanging for ever.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// The status and body of `/readyz`, once they are `wanted`.
async fn ready_when(inbox: SocketAddr, wanted: impl Fn(u16, &str) -> bool) -> (u16, String) {
    let looked = async {
        loop {
            let (status, body) = get(inbox, "/readyz").await;
            if wanted(status, &body) {
                return (status, body);
            }
        }
    };
    tokio::time::timeout(GIVEN_UP, looked)
        .await
        .expect("it never says so")
}

#[tokio::test]
async fn who_has_not_read_what_is_there_makes_the_service_unready() {
    let (running, _) = in_new_cell(Level::KNOWN).await;
    let (context, inbox) = (&running.context, running.context.http_address);
    let bus = context.ledger().await.expect("the ledger is safe");
    ready_when(inbox, |status, body| {
        status == 503 && body.contains("nobody reads it yet")
    })
    .await;
    let leader = context.follower("leader", Behind::NotReady);
    let table = context.follower("warm", Behind::Degraded);
    // Who registers has read nothing yet.
    ready_when(inbox, |status, body| {
        status == 503 && !body.contains("nobody reads it yet")
    })
    .await;
    for reader in ["leader", "warm"] {
        context.health.component(reader).ready();
    }
    ready_when(inbox, |status, _| status == 200).await;

    bus.append(Writer::Quota, Lsn(0), Lsn(0), "x".into())
        .await
        .expect("the ledger is empty");
    let (_, body) = ready_when(inbox, |status, _| status == 503).await;
    assert!(body.contains("leader is behind the ledger"), "{body}");

    leader.read(Lsn(1));
    let (_, body) = ready_when(inbox, |status, _| status == 200).await;
    assert!(body.contains("warm is behind the ledger"), "{body}");

    table.read(Lsn(1));
    ready_when(inbox, |_, body| !body.contains("behind")).await;
    let metrics = get(inbox, "/metrics").await.1;
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("apportion_ledger_end{") && line.ends_with(" 1")),
        "{metrics}"
    );
}
