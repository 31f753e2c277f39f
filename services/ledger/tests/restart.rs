//! The bus goes away and comes back on the same port with the same store, while somebody waits for it.
//!
//! Time stands still here: no time-out, no heartbeat and no pause ever ends, so whatever goes on does so because the
//! connection was made anew.

use bytes::Bytes;
use ledger::{
    Bus, Door, Tail, cell,
    jetstream::{JetStreamBus, Link, Readers},
};
use schemas::subjects::Subjects;
use serde_json::Value;
use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};
use uuid::Uuid;
use vocab::{Lsn, Writer};

/// A server of the test's own.
struct Server {
    program: String,
    port: u16,
    store: PathBuf,
    running: Child,
}

impl Server {
    fn start() -> Self {
        let path = std::env::var("APPORTION_TEST_STACK")
            .expect("APPORTION_TEST_STACK names no stack: run this through `make test`");
        let stack: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let program = stack["nats"]["program"].as_str().unwrap().to_owned();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let store = std::env::temp_dir().join(format!("nats-{}", Uuid::new_v4().simple()));
        let running = run(&program, port, &store);
        Self {
            program,
            port,
            store,
            running,
        }
    }

    fn kill(&mut self) {
        self.running.kill().unwrap();
        self.running.wait().unwrap();
    }

    fn restart(&mut self) {
        self.kill();
        self.running = run(&self.program, self.port, &self.store);
    }

    /// A client that tells `link` of its connections, and never waits between two tries.
    async fn client(&self, link: &Link) -> async_nats::Client {
        let told = link.clone();
        async_nats::ConnectOptions::new()
            .retry_on_initial_connect()
            .reconnect_delay_callback(|_| Duration::ZERO)
            .event_callback(move |event| {
                told.note(&event);
                std::future::ready(())
            })
            .connect(format!("nats://127.0.0.1:{}", self.port))
            .await
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.running.kill();
        let _ = self.running.wait();
        let _ = std::fs::remove_dir_all(&self.store);
    }
}

fn run(program: &str, port: u16, store: &PathBuf) -> Child {
    Command::new(program)
        .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
        .arg(store)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Keeps the paused clock from running ahead while all wait for the server: it does not as long as a blocking task runs.
struct StandStill {
    _held: mpsc::Sender<()>,
}

impl StandStill {
    fn begin() -> Self {
        let (held, until) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || until.recv());
        Self { _held: held }
    }
}

/// A cell on a server of its own.
async fn cell(server: &Server, link: &Link, cell: &Subjects) -> JetStreamBus {
    let client = server.client(link).await;
    // Not before the server listens.
    client.flush().await.unwrap();
    while cell::init(
        &async_nats::jetstream::new(client.clone()),
        cell,
        cell::Chosen::default(),
    )
    .await
    .is_err()
    {}
    JetStreamBus::open_among(client, link, cell.clone(), &Readers::default())
        .await
        .unwrap()
}

/// Until it is acknowledged. Its retry finds a frame that had landed and is refused.
async fn put(bus: &JetStreamBus, expected: u64) {
    loop {
        let frame = Bytes::from_static(b"x");
        if bus
            .append(Writer::Quota, Lsn(expected), frame)
            .await
            .is_ok()
        {
            return;
        }
        match bus.last(Writer::Quota).await {
            Ok(Some(last)) if last.lsn > Lsn(expected) => return,
            _ => {}
        }
    }
}

/// The next record. A reader that finds the server not ready yet says so, and is asked again.
async fn next(bus: &JetStreamBus, tail: &mut <JetStreamBus as Bus>::Records, lsn: u64) {
    loop {
        match tail.recv().await {
            Ok(record) => return assert_eq!(record.lsn, Lsn(lsn)),
            Err(_) => {
                if let Ok(opened) = bus.follow(Lsn(lsn)).await {
                    *tail = opened;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "time stands still, so a request that the starting server swallows hangs on a loaded machine"]
async fn followers_that_wait_go_on_as_soon_as_the_connection_is_back() {
    let _still = StandStill::begin();
    let mut server = Server::start();
    let link = Link::default();
    let bus = cell(&server, &link, &Subjects::new("c1")).await;
    put(&bus, 0).await;
    let mut first = bus.follow(Lsn(1)).await.unwrap();
    next(&bus, &mut first, 1).await;
    let mut second = bus.follow(Lsn(2)).await.unwrap();
    for lsn in 2..=4 {
        server.restart();
        let appended = async {
            // Both wait while there is nobody.
            tokio::task::yield_now().await;
            put(&bus, lsn - 1).await;
        };
        tokio::join!(
            appended,
            next(&bus, &mut first, lsn),
            next(&bus, &mut second, lsn)
        );
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "time stands still, so a request that the starting server swallows hangs on a loaded machine"]
async fn a_door_that_waits_goes_on_as_soon_as_the_connection_is_back() {
    let _still = StandStill::begin();
    let mut server = Server::start();
    let link = Link::default();
    let bus = cell(&server, &link, &Subjects::new("c1")).await;
    let mut door = bus.door(Door::Ingress, 1).await.unwrap();
    for seq in 1..=3 {
        server.restart();
        let publish = async {
            while !bus
                .door_end(Door::Ingress)
                .await
                .is_ok_and(|end| end >= seq)
            {
                let admin = bus.subjects().admin();
                bus.context()
                    .client()
                    .publish(admin, "x".into())
                    .await
                    .unwrap();
            }
        };
        let read = async {
            loop {
                match door.recv().await {
                    Ok(message) if message.seq >= seq => return,
                    Ok(_) => {}
                    Err(_) => {
                        if let Ok(opened) = bus.door(Door::Ingress, seq).await {
                            door = opened;
                        }
                    }
                }
            }
        };
        tokio::join!(publish, read);
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "time stands still, so a request that the starting server swallows hangs on a loaded machine"]
async fn an_append_whose_acknowledgement_is_lost_is_given_up_as_soon_as_the_connection_is_back() {
    let _still = StandStill::begin();
    let mut server = Server::start();
    let link = Link::default();
    let bus = cell(&server, &link, &Subjects::new("c1")).await;
    put(&bus, 0).await;
    // Sent to a server that is dead, of which the client does not know yet.
    let mut append = Box::pin(bus.append(Writer::Quota, Lsn(1), Bytes::from_static(b"y")));
    server.kill();
    assert!(futures::poll!(&mut append).is_pending());
    server.restart();
    // It may have been sent when the connection was back, or never.
    let _ = append.await;
    put(&bus, 1).await;
    assert_eq!(bus.end().await, Ok(Lsn(2)));
}
