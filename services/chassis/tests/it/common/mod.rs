//! A service that hands its context to the test that runs it, and a one-request HTTP client.
#![allow(dead_code, reason = "each of the two test programs uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chassis::{Config, Context, Failure, Service, Shutdown, run_service};
use ledger_nats::{cell, jetstream::JetStreamBus};
use serde::Deserialize;
use testkit::Servers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use uuid::Uuid;
use vocab::{Level, subjects::Subjects};

/// Contexts on their way from services to tests, by the number of the test's cell.
static MEETINGS: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Context<Settings>>>> =
    Mutex::new(BTreeMap::new());

pub struct Tiny;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Fail with this text instead of waiting for the stop.
    pub fail: Option<String>,
    /// Never end, whoever asks.
    pub stubborn: bool,
}

impl Service for Tiny {
    const NAME: &'static str = "tiny-service";
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        if let Some(reason) = ctx.settings.fail {
            return Err(reason.into());
        }
        let shutdown = ctx.shutdown.clone();
        let stubborn = ctx.settings.stubborn;
        let meeting = MEETINGS
            .lock()
            .expect("no test panics while it holds this")
            .get(&ctx.cell.number)
            .cloned();
        if let Some(meeting) = meeting {
            meeting.send(ctx).map_err(|_| "the test is gone")?;
        }
        shutdown.requested().await;
        if stubborn {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// A file of creds that no server asks for.
pub fn creds() -> PathBuf {
    let creds = identity::Creds::new("none".to_owned(), nkeys::KeyPair::new_user());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tiny.creds");
    // Tests side by side write it each; a reader sees a whole one.
    let part = path.with_extension(format!("{}.part", creds.public_key()));
    let text = creds.text().expect("the key is new");
    std::fs::write(&part, text).expect("the target directory is writable");
    std::fs::rename(&part, &path).expect("the target directory is writable");
    path
}

/// Returns a configuration with a free port and its own cell number; `more` adds tables.
pub fn config(more: &str) -> Config<Settings> {
    static CELLS: AtomicU64 = AtomicU64::new(1);
    let number = CELLS.fetch_add(1, Ordering::Relaxed);
    let text = format!(
        r#"
        [cell]
        name = "test"
        number = {number}
        [nats]
        url = "nats://127.0.0.1:1"
        creds = {creds:?}
        [http]
        listen = "127.0.0.1:0"
        {more}
        "#,
        creds = creds()
    );
    Config::from_toml(&text).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// A running service, its context, and the way to stop it.
pub struct Running {
    pub context: Context<Settings>,
    pub shutdown: Shutdown,
    pub end: tokio::task::JoinHandle<Result<(), chassis::BootError>>,
}

pub async fn start(config: Config<Settings>) -> Running {
    let (sender, mut contexts) = mpsc::unbounded_channel();
    MEETINGS
        .lock()
        .expect("no test panics while it holds this")
        .insert(config.cell.number, sender);
    let shutdown = Shutdown::new();
    let end = tokio::spawn(run_service::<Tiny>(config, shutdown.clone()));
    let context = contexts
        .recv()
        .await
        .expect("the service hands over its context");
    Running {
        context,
        shutdown,
        end,
    }
}

/// Status and body of `GET path`.
pub async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the inbox is open");
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the inbox reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("the inbox answers in UTF-8");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status line");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Creates a cell of that level on the servers of `make test`; returns a service in it, and the operator of the bus.
pub async fn in_new_cell(level: Level) -> (Running, JetStreamBus) {
    let servers = Servers::read();
    // A name has at most 32 characters.
    let name = Uuid::new_v4().simple().to_string();
    let client = servers.nats("bus").await;
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
    let on_servers = format!(
        "[cell]\nname = \"{name}\"\nnumber = 1\n[nats]\nurl = {:?}\ncreds = {:?}\nmonitor_url = {:?}\n",
        servers.nats.url,
        servers.creds("quota"),
        servers.nats.monitor_url
    );
    let on_servers: Config<Settings> =
        Config::from_toml(&on_servers).unwrap_or_else(|refusal| panic!("{refusal}"));
    let mut config = config("");
    (config.cell.name, config.nats) = (on_servers.cell.name, on_servers.nats);
    let operator = JetStreamBus::open(client, subjects).await;
    (start(config).await, operator.expect("the bus runs"))
}
