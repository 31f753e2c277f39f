//! The file in which the local launcher says how to reach a running stack: for the command line and the load tests.

use crate::clock::Clock;
use crate::monitor::get;
use crate::tls::{self, BadAuthority};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

/// Real time that a service's page may take.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What is read here; the file holds more.
#[derive(Debug, Clone, Deserialize)]
pub struct Stack {
    pub cell: Cell,
    /// Whom it was started for.
    pub tenants: Vec<String>,
    pub nats: Nats,
    pub postgres: Postgres,
    pub clickhouse: Clickhouse,
    #[serde(default)]
    pub services: BTreeMap<String, ServiceAddress>,
    /// Absent: recorded time is real time.
    pub clock: Option<ClockLine>,
    pub otlp_listen: SocketAddr,
    /// Absent: its servers speak without TLS.
    pub tls: Option<Tls>,
    pub control: Option<PathBuf>,
    pub state_dir: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Cell {
    pub name: String,
    pub number: u64,
}

/// Who vouches for the servers.
#[derive(Debug, Clone, Deserialize)]
pub struct Tls {
    pub ca_file: PathBuf,
    /// What the receiver of spans shows: the driver is one.
    pub otlp: Option<ServerFiles>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ServerFiles {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Nats {
    pub url: String,
    /// Where the creds of those are who work with the cell; one who is added later finds its place there, too.
    pub creds: PathBuf,
    /// Where those of `bus` are, who may make streams and delete them: said by the stack of tests and measures only.
    pub admin: Option<PathBuf>,
}

#[derive(Clone, Deserialize)]
pub struct User {
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for User {
    /// Without the password: this may end up in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.user)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Clickhouse {
    pub url: String,
    pub database: String,
    pub reader: User,
}

/// Where services' warm state can be read; the URL holds the reader's password.
#[derive(Clone, Deserialize)]
pub struct Postgres {
    pub url: String,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Postgres")
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct ServiceAddress {
    pub http: SocketAddr,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct ClockLine {
    pub origin_ms: i64,
    pub started_ms: i64,
    pub rate: NonZeroU32,
}

#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error("{path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is no stack's file: {source}", path = .path.display())]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("the stack has no creds of {key}{}", named(.others))]
    NoCreds { key: String, others: Vec<String> },
    #[error(transparent)]
    Authority(#[from] BadAuthority),
}

/// So many names, as many as a person reads.
fn named(names: &[String]) -> String {
    const SHOWN: usize = 8;
    const REMEDY: &str = "`apportion bus tenant add` makes those of another";
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len() {
        0 => "; was it started for this workload?".to_owned(),
        all if all > SHOWN => format!("; it has those of {all} tenants, as {shown}; {REMEDY}"),
        _ => format!("; it has those of the tenants {shown}; {REMEDY}"),
    }
}

impl Stack {
    pub fn read(path: &Path) -> Result<Self, StackError> {
        let text = fs::read_to_string(path).map_err(|source| StackError::Read {
            path: path.to_owned(),
            source,
        })?;
        serde_json::from_str(&text).map_err(|source| StackError::Json {
            path: path.to_owned(),
            source,
        })
    }

    /// The creds of `operator`, `fleet` or `tenant:<name>`; and of `bus`, where the stack says where they are.
    pub fn creds(&self, key: &str) -> Result<PathBuf, StackError> {
        let place = match key {
            "bus" => self.nats.admin.as_ref(),
            _ => Some(&self.nats.creds),
        };
        let name = key.replace(':', "-");
        let path = place.map(|place| place.join(format!("{name}.creds")));
        path.filter(|path| path.exists())
            .ok_or_else(|| StackError::NoCreds {
                key: key.to_owned(),
                others: match key.starts_with("tenant:") {
                    true => self.tenants_with_creds(),
                    false => Vec::new(),
                },
            })
    }

    /// By name.
    fn tenants_with_creds(&self) -> Vec<String> {
        let files = fs::read_dir(&self.nats.creds).into_iter().flatten();
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let names = names.filter_map(|name| {
            let name = name.strip_prefix("tenant-")?.strip_suffix(".creds")?;
            Some(name.to_owned())
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Whose certificates its servers have.
    pub fn ca_file(&self) -> Option<&Path> {
        self.tls.as_ref().map(|tls| tls.ca_file.as_path())
    }

    /// What who listens on `otlp_listen` shows.
    pub fn otlp(&self) -> Option<&ServerFiles> {
        self.tls.as_ref()?.otlp.as_ref()
    }

    /// How to connect to the bus as `operator`, `fleet` or `tenant:<name>`.
    pub fn bus(&self, key: &str) -> Result<async_nats::ConnectOptions, StackError> {
        let options = identity::connect(self.creds(key)?);
        Ok(tls::trusting(options, self.ca_file())?)
    }

    /// The tables of usage and the bill, with the reader's rights.
    pub fn bill(&self) -> Result<clickhouse::Client, StackError> {
        let Clickhouse {
            url,
            database,
            reader,
        } = &self.clickhouse;
        Ok(tls::clickhouse(url, self.ca_file())?
            .with_database(database)
            .with_user(&reader.user)
            .with_password(&reader.password))
    }

    pub fn clock(&self) -> Clock {
        match self.clock {
            None => Clock::real(),
            Some(ClockLine {
                origin_ms,
                started_ms,
                rate,
            }) => Clock::scaled(origin_ms, started_ms, rate),
        }
    }

    /// Recorded milliseconds per real one.
    pub fn rate(&self) -> u32 {
        self.clock.map_or(1, |clock| clock.rate.get())
    }

    /// The services that lead at this moment, as their pages say. Who does not answer does not lead for long.
    pub async fn leaders(&self) -> Vec<String> {
        let mut leaders = Vec::new();
        for (name, service) in &self.services {
            let address = service.http.to_string();
            let page = get(&address, "/metrics");
            let page = tokio::time::timeout(ANSWER_MAX, page).await;
            let page = page.ok().and_then(Result::ok).unwrap_or_default();
            let leads = |line: &str| line.starts_with("apportion_leading{") && line.ends_with(" 1");
            if String::from_utf8_lossy(&page).lines().any(leads) {
                leaders.push(name.clone());
            }
        }
        leaders
    }

    /// The processes that run now, by name. The launcher rewrites a file when it restarts its process.
    pub fn pids(&self) -> Vec<(String, u32)> {
        let Ok(entries) = fs::read_dir(self.state_dir.join("pids")) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let name = path.file_name()?.to_str()?.strip_suffix(".pid")?.to_owned();
                let pid = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
                Some((name, pid))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launchers_file_is_read_and_its_passwords_are_not_shown() {
        let text = r#"{
            "cell": {"name": "c1", "number": 1}, "tenants": ["a"], "unknown": 1,
            "nats": {"url": "nats://127.0.0.1:4222", "monitor_url": "x", "creds": "/none"},
            "postgres": {"url": "postgres://reader:hush@127.0.0.1/apportion"}, "services": {"quota": {"http": "127.0.0.1:9", "config": "x"}},
            "clickhouse": {"url": "http://127.0.0.1:8123", "user": "analytics", "password": "hush",
                           "database": "apportion", "reader": {"user": "reader", "password": "hush"}},
            "clock": {"origin_ms": 5, "started_ms": 7, "rate": 100},
            "otlp_listen": "127.0.0.1:4317", "control": "c.sock", "state_dir": "state"
        }"#;
        let stack: Stack = serde_json::from_str(text).expect("a launcher's file");
        assert_eq!(stack.tenants, ["a"]);
        let missing = stack.creds("tenant:a").expect_err("there is no such file");
        assert!(matches!(missing, StackError::NoCreds { key, .. } if key == "tenant:a"));
        let missing = stack.creds("bus").expect_err("the stack does not say");
        assert!(matches!(missing, StackError::NoCreds { key, .. } if key == "bus"));
        assert_eq!(stack.rate(), 100);
        assert!(!format!("{stack:?}").contains("hush"));
    }
}
