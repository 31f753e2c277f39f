//! Readiness reports how full the bus's store is, on a separate server with a small store.

use async_nats::jetstream;
use chassis::{Behind, Config};
use ledger::Bus;
use ledger_nats::cell;
use std::{net::SocketAddr, time::Duration};
use testkit::NatsServer;
use vocab::{Lsn, Writer, subjects::Subjects};

use crate::common::{config, get, start};

/// Real time after which the test is given up, in place of hanging for ever.
const GIVEN_UP: Duration = Duration::from_secs(120);
const LIMIT_BYTES: usize = 1 << 20;

async fn ready_when(inbox: SocketAddr, status: u16, words: &str) {
    loop {
        let (found, body) = get(inbox, "/readyz").await;
        if found == status && body.contains(words) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn stored(bus: &jetstream::Context) -> bool {
    let ballast = vec![7; LIMIT_BYTES / 20];
    let sent = bus.publish("ballast", ballast.into()).await;
    sent.expect("it is connected").await.is_ok()
}

async fn fills_up(server: &NatsServer) {
    let (url, monitor_url) = (server.url(), server.monitor_url());
    let client = async_nats::connect(&url).await.expect("the bus runs");
    let bus = jetstream::new(client);
    let ledger = cell::ledger_config(&Subjects::new("c1"), cell::Chosen::default());
    bus.create_stream(ledger).await.expect("there is room");
    let ballast = jetstream::stream::Config {
        name: "BALLAST".to_owned(),
        subjects: vec!["ballast".to_owned()],
        ..Default::default()
    };
    let ballast = bus.create_stream(ballast).await.expect("there is room");

    let text = format!(
        "[cell]\nname = \"c1\"\nnumber = 1\n[nats]\nurl = {url:?}\ncreds = {:?}\nmonitor_url = {monitor_url:?}\n",
        crate::common::creds()
    );
    let mut config = config("");
    let own: Config<crate::common::Settings> =
        Config::from_toml(&text).unwrap_or_else(|refusal| panic!("{refusal}"));
    (config.cell, config.nats) = (own.cell, own.nats);
    let running = start(config).await;
    let inbox = running.context.http_address;
    let records = running.context.ledger().await.expect("the ledger is safe");
    let _reader = running.context.follower("warm", Behind::Degraded);
    running.context.health.component("warm").ready();
    ready_when(inbox, 200, "\"bus_store\":{\"state\":\"ready\"}").await;

    for _ in 0..18 {
        assert!(stored(&bus).await);
    }
    ready_when(inbox, 200, "the bus's store is 9").await;

    while stored(&bus).await {}
    let why = format!("the bus cannot store: it has the {LIMIT_BYTES} bytes that it may");
    ready_when(inbox, 503, &why).await;
    let refused = records
        .append(Writer::Quota, Lsn(0), Lsn(0), "x".into())
        .await;
    refused.expect_err("it is full");
    let metrics = get(inbox, "/metrics").await.1;
    let stores = |line: &str| line.starts_with("apportion_bus_stores{") && line.ends_with(" 0");
    assert!(metrics.lines().any(stores), "{metrics}");

    ballast.purge().await.expect("it may be emptied");
    let first = records
        .append(Writer::Quota, Lsn(0), Lsn(0), "x".into())
        .await;
    first.expect("there is room again");
    ready_when(inbox, 200, "\"bus_store\":{\"state\":\"ready\"}").await;
}

#[tokio::test]
async fn a_store_that_fills_up_is_told_of_before_it_refuses_and_takes_again_what_has_room() {
    let server = NatsServer::start(Some(LIMIT_BYTES as u64));
    tokio::time::timeout(GIVEN_UP, fills_up(&server))
        .await
        .expect("it never says so");
}
