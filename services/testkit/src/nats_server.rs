//! A NATS server for one test.

use serde_json::Value;
use std::{
    fs::{self, File},
    net::TcpListener,
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};
use uuid::Uuid;

/// Ports of these servers: below the range of outgoing connections, so that none of those takes the port while its server
/// is stopped.
const PORTS: Range<u16> = 12_000..32_000;
/// Pause between two checks whether the server listens.
const POLL: Duration = Duration::from_millis(5);

/// A NATS server with JetStream and its own store, killed when dropped.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    home: PathBuf,
    port: u16,
    running: Child,
}

impl NatsServer {
    /// Starts a server. `max_file_store_bytes` bounds its store; `None` leaves the server's default.
    pub fn start(max_file_store_bytes: Option<u64>) -> Self {
        let program = crate::Servers::read().nats.program;
        let home = std::env::temp_dir().join(format!("nats-{}", Uuid::new_v4().simple()));
        fs::create_dir(&home).expect("the name of the directory is new");
        loop {
            let port = free_port();
            write_config(&home, port, max_file_store_bytes);
            // Another process may bind the port first; then another port is chosen.
            if let Some(running) = run(&program, &home) {
                return Self {
                    program,
                    home,
                    port,
                    running,
                };
            }
        }
    }

    pub fn kill(&mut self) {
        self.running.kill().expect("the server is this test's");
        self.running.wait().expect("the server is this test's");
    }

    /// Starts a killed server again, on the same port with the same store.
    pub fn start_again(&mut self) {
        self.running = loop {
            // The port is in use for as long as the kernel closes the killed server's sockets.
            if let Some(running) = run(&self.program, &self.home) {
                break running;
            }
        };
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Directory of the server's store.
    pub fn store(&self) -> PathBuf {
        self.home.join("store")
    }

    /// Path of the server's log.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Address of the monitoring page; another one after each start.
    pub fn monitor_url(&self) -> String {
        let ports = ports(&self.home, &self.running).expect("the server listens");
        let address = ports["monitoring"][0].as_str();
        address.expect("it has a monitoring port").to_owned()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // The test may have killed it already.
        let _ = self.running.kill();
        let _ = self.running.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn free_port() -> u16 {
    // A random start, so that tests that run at the same time probe different ports.
    let start = Uuid::new_v4().as_u128() % PORTS.len() as u128;
    // The remainder is below the length of a range of u16.
    let mut ports = PORTS.cycle().skip(start as usize).take(PORTS.len());
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("not all ports are taken")
}

fn write_config(home: &Path, port: u16, max_file_store_bytes: Option<u64>) {
    let store = home.join("store");
    let limit = max_file_store_bytes.map_or_else(String::new, |bytes| {
        format!(", sync_interval: always, max_file_store: {bytes}")
    });
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:-1\"\nports_file_dir: {home:?}\n\
         jetstream: {{store_dir: {store:?}{limit}}}\n"
    );
    fs::write(home.join("nats.conf"), text).expect("the test's directory is writable");
}

/// Starts the program and waits until it listens; `None` if it ended instead.
fn run(program: &Path, home: &Path) -> Option<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(home.join("log"))
        .expect("the test's directory is writable");
    let mut running = Command::new(program)
        .arg("-c")
        .arg(home.join("nats.conf"))
        .stderr(log)
        .spawn()
        .expect("set-up has installed the program");
    loop {
        if ports(home, &running).is_some() {
            return Some(running);
        }
        let ended = running.try_wait().expect("the server is this test's");
        if ended.is_some() {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Reads the file in which a server that listens names its ports.
fn ports(home: &Path, running: &Child) -> Option<Value> {
    let file = home.join(format!("nats-server_{}.ports", running.id()));
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}
