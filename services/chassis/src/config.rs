//! A service's configuration: one TOML file, unknown keys refused, every value checked before anything starts.

mod error;
mod raw;
mod rules;
mod secret;

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use toml::de::DeTable;

pub use self::error::ConfigError;
use self::raw::{Raw, SecretFiles};
pub use self::secret::Secret;
use crate::clock::Clock;
use crate::tls::{self, BadAuthority};
use crate::warm::OnDrift;

/// Everything one service is told; `T` is its own `[service]` table.
#[derive(Clone, Debug)]
pub struct Config<T> {
    /// Where the configuration came from, for messages.
    pub file: String,
    /// The cell that the service belongs to.
    pub cell: Cell,
    /// The bus.
    pub nats: NatsConfig,
    /// The recorded clock; real time when absent.
    pub clock: Option<ClockConfig>,
    /// Health and metrics.
    pub http: HttpConfig,
    /// Logs.
    pub log: LogConfig,
    /// Where spans go; nowhere when absent.
    pub telemetry: Option<TelemetryConfig>,
    /// Warm state.
    pub postgres: Option<PostgresConfig>,
    /// Hourly usage.
    pub clickhouse: Option<ClickhouseConfig>,
    /// The service's own settings.
    pub service: T,
}

/// One control plane: a bus, its ledgers and its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// A token in every subject and stream name.
    #[serde(deserialize_with = "rules::token")]
    pub name: String,
    /// At least 1: the high 64 bits of every id that the cell issues.
    #[serde(deserialize_with = "rules::cell_number")]
    pub number: u64,
}

/// The `[nats]` table.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// `nats://host:port`, without credentials; `tls://host:port` for a connection by TLS or none.
    pub url: String,
    /// Whose certificate the server has, with `tls://`.
    pub ca_file: Option<PathBuf>,
    /// The file by which the service is let in. It is read again at every connection.
    pub creds: PathBuf,
    /// What lets a service sign users of its own: node-heartbeat those of nodes.
    pub signing_key: Option<Secret>,
    /// The server's monitoring page, which tells settings that the bus itself does not.
    pub monitor_url: Option<String>,
}

/// The `[clock]` table: recorded time was `origin_ms` at the real time `started_ms` and runs `rate` times as fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockConfig {
    /// Recorded Unix milliseconds at the start.
    pub origin_ms: i64,
    /// Real Unix milliseconds at the start, the same for all services of a cell.
    pub started_ms: i64,
    /// Recorded milliseconds per real millisecond.
    pub rate: NonZeroU32,
}

/// The `[http]` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Where `/healthz`, `/readyz` and `/metrics` are served; port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Default for HttpConfig {
    /// Any free port of this machine: for programs that nobody asks how they are.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

/// The `[log]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// A level, or a list of `target=level`.
    #[serde(deserialize_with = "rules::log_filter")]
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            format: LogFormat::Json,
            filter: "info".to_owned(),
        }
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, for machines.
    Json,
    /// Coloured text, for people.
    Pretty,
}

/// The `[telemetry]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// The gRPC address of an OTLP receiver.
    pub otlp_endpoint: String,
    /// Whose certificate the receiver has, with `https://`.
    pub ca_file: Option<PathBuf>,
}

/// The `[postgres]` table.
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    /// The address; a secret because it may carry the password.
    pub url: Secret,
    /// The service's own schema, its whole `search_path`.
    pub schema: String,
    /// The password, when it came from a file.
    pub password: Option<Secret>,
    /// Whose certificate the server has. With it a connection is made by TLS or not at all.
    pub ca_file: Option<PathBuf>,
    /// What to do about tables that are not as the service wants them.
    pub on_drift: OnDrift,
}

/// The `[clickhouse]` table.
#[derive(Clone, Debug)]
pub struct ClickhouseConfig {
    /// The HTTP address, without credentials.
    pub url: String,
    /// Whose certificate the server has, with `https://`.
    pub ca_file: Option<PathBuf>,
    /// The service's user.
    pub user: String,
    /// The user's password.
    pub password: Secret,
    /// The database of every table that the service names.
    pub database: String,
    /// What to do about tables that are not as the service wants them.
    pub on_drift: OnDrift,
}

impl NatsConfig {
    /// How to connect. Creds and authority are read for it.
    pub fn options(&self) -> Result<async_nats::ConnectOptions, BadAuthority> {
        tls::trusting(identity::connect(&self.creds), self.ca_file.as_deref())
    }
}

impl PostgresConfig {
    /// How to connect, with the service's schema found first.
    pub fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        let options = PgConnectOptions::from_str(self.url.reveal())?;
        let options = options.options([("search_path", self.schema.as_str())]);
        let options = match &self.password {
            Some(password) => options.password(password.reveal()),
            None => options,
        };
        Ok(match &self.ca_file {
            Some(path) => options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert(path),
            None => options,
        })
    }
}

impl<T: DeserializeOwned + Default> Config<T> {
    /// Reads and checks a file. Paths of secrets start at the file's directory.
    pub fn load(path: &Path) -> Result<Config<T>, ConfigError> {
        let file = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => {
                let base = path.parent().unwrap_or(Path::new(""));
                Config::build(file, &text, SecretFiles::Read(base))
            }
            Err(source) => Err(ConfigError::Unreadable { file, source }),
        }
    }

    /// Checks a text that is in no file; paths of secrets start at the working directory.
    pub fn from_toml(text: &str) -> Result<Config<T>, ConfigError> {
        Config::build(
            "(inline)".to_owned(),
            text,
            SecretFiles::Read(Path::new("")),
        )
    }

    /// Checks a text without reading the files of secrets that it names.
    pub fn check(text: &str) -> Result<Config<T>, ConfigError> {
        Config::build("sample".to_owned(), text, SecretFiles::Skip)
    }

    fn build(file: String, text: &str, secrets: SecretFiles<'_>) -> Result<Config<T>, ConfigError> {
        let document =
            DeTable::parse(text).map_err(|error| ConfigError::syntax(&file, text, &error))?;
        let raw: Raw<T> = toml::from_str(text)
            .map_err(|error| ConfigError::refused(&file, document.get_ref(), &error))?;
        Ok(Config {
            cell: raw.cell,
            nats: raw.nats.resolve(&file, secrets)?,
            clock: raw.clock,
            http: raw.http,
            log: raw.log,
            telemetry: raw
                .telemetry
                .map(|table| table.resolve(&file, secrets))
                .transpose()?,
            postgres: raw
                .postgres
                .map(|table| table.resolve(&file, secrets))
                .transpose()?,
            clickhouse: raw
                .clickhouse
                .map(|table| table.resolve(&file, secrets))
                .transpose()?,
            service: raw.service,
            file,
        })
    }
}

impl<T> Config<T> {
    /// The recorded clock that the file describes.
    pub fn clock(&self) -> Clock {
        match self.clock {
            Some(ClockConfig {
                origin_ms,
                started_ms,
                rate,
            }) => Clock::scaled(origin_ms, started_ms, rate),
            None => Clock::real(),
        }
    }
}

/// For a service's test of its `config.example.toml`: panics with the refusal if the text is not a valid configuration,
/// else gives the settings. Files of secrets are not read, since a sample names files of a real installation.
pub fn check_sample<T: DeserializeOwned + Default>(text: &str) -> T {
    match Config::<T>::check(text) {
        Ok(config) => config.service,
        Err(refusal) => panic!("{refusal}"),
    }
}
