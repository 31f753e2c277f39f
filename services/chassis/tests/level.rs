//! A service in a cell whose feature level is beyond what its build knows, on the servers of `make test`.

mod common;

use chassis::{BootError, Config};
use ledger::{cell, jetstream::JetStreamBus};
use schemas::subjects::Subjects;
use serde_json::Value;
use std::error::Error;
use uuid::Uuid;
use vocab::Level;

use self::common::{Running, Settings, config, start};

const BEYOND: Level = Level(Level::KNOWN.0 + 1);

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn refusal() -> String {
    let knows = Level::KNOWN;
    format!(
        "the cell is at feature level {BEYOND}, and this build knows levels up to {knows}: replace it by a version that knows \
         level {BEYOND}; a level is never lowered"
    )
}

/// A cell of that level, a service in it, and the operator of the bus.
async fn cell(number: u64, level: Level) -> (Running, JetStreamBus) {
    let path = std::env::var("APPORTION_TEST_STACK")
        .expect("APPORTION_TEST_STACK names no stack: run this through `make test`");
    let stack = std::fs::read(path).expect("the launcher has written it");
    let stack: Value = serde_json::from_slice(&stack).expect("the launcher writes JSON");
    let nats = &stack["nats"];
    // A name has at most 32 characters.
    let name = Uuid::new_v4().simple().to_string();
    let client = identity::connect(format!("{}/bus.creds", text(&nats["admin"])))
        .connect(text(&nats["url"]))
        .await
        .expect("the bus runs");
    let subjects = Subjects::new(&name);
    let chosen = cell::Chosen {
        level,
        ..cell::Chosen::default()
    };
    cell::init(
        &async_nats::jetstream::new(client.clone()),
        &subjects,
        chosen,
    )
    .await
    .expect("the cell is new");
    let servers = format!(
        "[cell]\nname = \"{name}\"\nnumber = {number}\n[nats]\nurl = {}\ncreds = \"{}/quota.creds\"\nmonitor_url = {}\n",
        nats["url"],
        text(&nats["creds"]),
        nats["monitor_url"]
    );
    let on_stack: Config<Settings> =
        Config::from_toml(&servers).unwrap_or_else(|refusal| panic!("{refusal}"));
    let mut config = config(number, "");
    (config.cell, config.nats) = (on_stack.cell, on_stack.nats);
    let operator = JetStreamBus::open(client, subjects).await;
    (start(config).await, operator.expect("the bus runs"))
}

#[tokio::test]
async fn a_service_that_knows_less_than_the_cell_does_not_start() {
    let (running, _) = cell(1, BEYOND).await;
    let refused = running.context.ledger().await.map(|_| ());
    let refused = refused.expect_err("it is too old");
    assert_eq!(refused.to_string(), refusal());
    running.shutdown.trigger();
}

#[tokio::test]
async fn a_service_ends_when_the_cell_is_raised_beyond_it() {
    let (running, operator) = cell(2, Level::KNOWN).await;
    running.context.ledger().await.expect("it knows the level");
    operator.raise(BEYOND).await.expect("the operator may");
    match running.end.await.expect("it does not panic") {
        Err(BootError::Service { source, .. }) => {
            let source: &dyn Error = &*source;
            assert_eq!(source.to_string(), refusal());
        }
        other => panic!("{other:?}"),
    }
}
