//! Servers of the launcher's `with-servers`: of the same programs and settings as a stack's, with nobody else on them.

use chassis::{
    Clock,
    stack::{Stack, StackError},
    tls,
};
use serde::Deserialize;
use sqlx::postgres::PgConnectOptions;
use std::{env, fs, io, path::PathBuf, str::FromStr};
use vocab::Millis;

/// In which the launcher's `with-servers` names the file.
const SERVERS: &str = "APPORTION_TEST_STACK";

#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    #[error("{0} names no servers: run this by its target of the Makefile")]
    None(&'static str),
    #[error("the servers' file: {0}")]
    Io(#[from] io::Error),
    #[error("the servers' file: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the servers' Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// What the launcher says of servers beyond what a stack's readers need: who may make tables there.
#[derive(Deserialize)]
struct File {
    nats: Nats,
    postgres: Postgres,
    clickhouse: Clickhouse,
}

#[derive(Deserialize)]
struct Nats {
    monitor_url: String,
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
    pub fn read() -> Result<Self, ServersError> {
        let path = env::var_os(SERVERS).ok_or(ServersError::None(SERVERS))?;
        let path = PathBuf::from(path);
        let text = fs::read_to_string(&path)?;
        Ok(Self {
            stack: Stack::read(&path)?,
            file: serde_json::from_str(&text)?,
        })
    }

    /// By the Unix socket, which costs the peer least. What it has acknowledged is on disk, as with us.
    pub fn postgres(&self) -> Result<PgConnectOptions, ServersError> {
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

    /// What analytics is told that has a cell and a database of its own there, and whose clock shows that moment now.
    pub fn analytics_config(
        &self,
        cell: &str,
        database: &str,
        now: Millis,
    ) -> Result<String, ServersError> {
        let creds = self.stack.creds("analytics")?;
        let (nats, monitor) = (&self.stack.nats.url, &self.file.nats.monitor_url);
        let Clickhouse {
            url,
            user,
            password,
        } = &self.file.clickhouse;
        let (origin, started) = (now.0, Clock::real().now_ms());
        Ok(format!(
            "[clock]\norigin_ms = {origin}\nstarted_ms = {started}\nrate = 1\n\
             [cell]\nname = \"{cell}\"\nnumber = 1\n\
             [nats]\nurl = \"{nats}\"\ncreds = {creds:?}\nmonitor_url = \"{monitor}\"\n\
             [http]\nlisten = \"127.0.0.1:0\"\n\
             [log]\nformat = \"pretty\"\nfilter = \"warn\"\n\
             [clickhouse]\nurl = \"{url}\"\nuser = \"{user}\"\npassword = \"{password}\"\ndatabase = \"{database}\"\n"
        ))
    }

    pub fn clickhouse(&self) -> Result<clickhouse::Client, ServersError> {
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
