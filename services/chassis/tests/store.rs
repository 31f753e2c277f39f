//! Readiness says how full the bus's store is, on a server of the test's own that may store little.

mod common;

use async_nats::jetstream;
use chassis::{Behind, Config};
use ledger::{Bus, cell};
use schemas::subjects::Subjects;
use serde_json::Value;
use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};
use uuid::Uuid;
use vocab::{Lsn, Writer};

use self::common::{config, get, start};

/// Real time after which the test is given up, in place of hanging for ever.
const GIVEN_UP: Duration = Duration::from_secs(120);
const LIMIT_BYTES: usize = 1 << 20;

struct Server {
    home: PathBuf,
    running: Child,
}

impl Server {
    fn start() -> Self {
        let path = std::env::var("APPORTION_TEST_STACK")
            .expect("APPORTION_TEST_STACK names no stack: run this through `make test`");
        let stack = std::fs::read(path).expect("the launcher has written it");
        let stack: Value = serde_json::from_slice(&stack).expect("the launcher writes JSON");
        let program = stack["nats"]["program"].as_str().expect("a path");
        let home = std::env::temp_dir().join(format!("nats-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&home).expect("a new directory");
        let text = format!(
            "listen: \"127.0.0.1:-1\"\nhttp: \"127.0.0.1:-1\"\nports_file_dir: {home:?}\n\
             jetstream: {{store_dir: {home:?}, sync_interval: always, max_file_store: {LIMIT_BYTES}}}\n"
        );
        let file = home.join("nats.conf");
        std::fs::write(&file, text).expect("room for a file");
        let mut server = Command::new(program);
        let running = server
            .arg("-c")
            .arg(file)
            .spawn()
            .expect("the program runs");
        Self { home, running }
    }

    /// Where clients and where people are let in.
    async fn addresses(&self) -> (String, String) {
        let file = format!("nats-server_{}.ports", self.running.id());
        let file = self.home.join(file);
        loop {
            let said = std::fs::read(&file).ok();
            let ports: Option<Value> = said.and_then(|said| serde_json::from_slice(&said).ok());
            if let Some(ports) = ports {
                let first = |kind: &str| ports[kind][0].as_str().expect("an address").to_owned();
                return (first("nats"), first("monitoring"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.running.kill();
        let _ = self.running.wait();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

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

async fn fills_up(server: &Server) {
    let (url, monitor_url) = server.addresses().await;
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
        common::creds()
    );
    let mut config = config(1, "");
    let own: Config<common::Settings> =
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
    let server = Server::start();
    tokio::time::timeout(GIVEN_UP, fills_up(&server))
        .await
        .expect("it never says so");
}
