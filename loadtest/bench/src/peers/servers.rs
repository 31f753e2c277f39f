//! The peers' servers: of the same programs and settings as the stack's, with nobody else on them.

use super::PeersError;
use crate::kit::usage::Usage;
use chassis::{
    stack::{Stack, StackError},
    tls,
};
use serde::Deserialize;
use sqlx::postgres::PgConnectOptions;
use std::{env, fs, path::PathBuf, str::FromStr, time::Duration};

/// In which the launcher's `with-servers` names the file.
const SERVERS: &str = "APPORTION_TEST_STACK";
/// Of one core, by the whole stack: what it uses when it has nothing to do.
const IDLE_CORES: f64 = 0.15;
const LOOKS_MAX: usize = 120;

/// What the launcher says of servers beyond what a stack's readers need: who may make tables there.
#[derive(Deserialize)]
struct File {
    postgres: Postgres,
    clickhouse: Clickhouse,
}

#[derive(Deserialize)]
struct Postgres {
    admin_url: String,
    socket_dir: PathBuf,
}

#[derive(Deserialize)]
struct Clickhouse {
    url: String,
    user: String,
    password: String,
}

pub struct Servers {
    /// As a stack without services: the bus, and the processes.
    pub stack: Stack,
    file: File,
}

impl Servers {
    pub fn read() -> Result<Self, PeersError> {
        let path = env::var_os(SERVERS).ok_or(PeersError::NoServers(SERVERS))?;
        let path = PathBuf::from(path);
        let text = fs::read_to_string(&path)?;
        Ok(Self {
            stack: Stack::read(&path)?,
            file: serde_json::from_str(&text)?,
        })
    }

    /// By the Unix socket, which costs the peer least. What it has acknowledged is on disk, as with us.
    pub fn postgres(&self) -> Result<PgConnectOptions, PeersError> {
        let Postgres {
            admin_url,
            socket_dir,
        } = &self.file.postgres;
        let options = PgConnectOptions::from_str(admin_url)?;
        Ok(options
            .socket(socket_dir)
            .statement_cache_capacity(1024)
            .options([("synchronous_commit", "on")]))
    }

    pub fn clickhouse(&self) -> Result<clickhouse::Client, PeersError> {
        let Clickhouse {
            url,
            user,
            password,
        } = &self.file.clickhouse;
        Ok(tls::clickhouse(url, self.stack.ca_file())
            .map_err(StackError::from)?
            .with_user(user)
            .with_password(password))
    }
}

/// Waits until the stack has nothing left to do, so that it does not stand in another's way.
pub async fn rest(stack: &Stack) -> Result<(), PeersError> {
    for _ in 0..LOOKS_MAX {
        let usage = Usage::begin(stack).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = usage.end(stack).await;
        let seconds: f64 = used.cpu_s.values().sum();
        if seconds / used.wall_s < IDLE_CORES {
            return Ok(());
        }
    }
    Err(PeersError::NeverAtRest(LOOKS_MAX))
}
