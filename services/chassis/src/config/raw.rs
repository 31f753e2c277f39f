//! The file as it is written: one struct per table, unknown keys refused in each.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{
    Cell, ClickhouseConfig, ClockConfig, ConfigError, HttpConfig, LogConfig, NatsConfig,
    PostgresConfig,
};
use super::{Secret, TelemetryConfig, rules};
use crate::tls;
use crate::warm::OnDrift;

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    bound(deserialize = "T: DeserializeOwned + Default")
)]
pub(super) struct Raw<T> {
    /// The cell that the service belongs to.
    pub cell: Cell,
    /// The bus.
    pub nats: RawNats,
    /// A clock that runs at another rate, for simulated time: it was `origin_ms` at the real time `started_ms`. Without it, real time.
    pub clock: Option<ClockConfig>,
    /// Health and metrics. Without it, any free port of this machine.
    #[serde(default)]
    pub http: HttpConfig,
    /// Logs, on the standard output.
    #[serde(default)]
    pub log: LogConfig,
    /// Where spans go. Without it, nowhere.
    pub telemetry: Option<RawTelemetry>,
    /// Warm state, where a service has some. The tables are made by the service.
    pub postgres: Option<RawPostgres>,
    /// Hourly usage, where a service has some. The database is there already, the tables are made by the service.
    pub clickhouse: Option<RawClickhouse>,
    /// The service's own settings.
    #[serde(default)]
    pub service: T,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNats {
    /// `nats://host:port`, without credentials; `tls://host:port` for a connection by TLS or none.
    #[serde(deserialize_with = "rules::nats_url")]
    url: String,
    /// Whose certificate the server has: with `tls://` required, and otherwise refused.
    ca_file: Option<PathBuf>,
    /// The creds by which the service is let in, as `apportion bus init` has made them. They are read again at every connection.
    creds: PathBuf,
    /// What node-heartbeat signs the users of nodes with; no other service reads it.
    signing_key_file: Option<PathBuf>,
    /// The server's monitoring page, which tells whether the server syncs what it writes. Without it, a ledger on a single replica is
    /// refused.
    #[serde(default, deserialize_with = "rules::http_url_option")]
    monitor_url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTelemetry {
    /// The gRPC address of an OTLP receiver.
    #[serde(deserialize_with = "rules::http_url")]
    otlp_endpoint: String,
    /// Whose certificate the receiver has: with `https://` required, and otherwise refused.
    ca_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPostgres {
    /// `postgres://user@host:port/database`; it may carry the password.
    #[serde(deserialize_with = "rules::postgres_url")]
    url: Secret,
    /// The service's own schema, in which alone its names are looked for.
    #[serde(deserialize_with = "rules::schema")]
    schema: String,
    /// A file with the password, instead of the address.
    password_file: Option<PathBuf>,
    /// Whose certificate the server has. With it, a connection is made by TLS or not at all.
    ca_file: Option<PathBuf>,
    /// What to do about tables that are not as this version wants them.
    #[serde(default)]
    on_drift: OnDrift,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawClickhouse {
    /// The HTTP address, without credentials.
    #[serde(deserialize_with = "rules::http_url")]
    url: String,
    /// Whose certificate the server has: with `https://` required, and otherwise refused.
    ca_file: Option<PathBuf>,
    /// The service's user.
    #[serde(deserialize_with = "rules::not_empty")]
    user: String,
    /// The user's password; either this or its file.
    password: Option<Secret>,
    /// A file with the password.
    password_file: Option<PathBuf>,
    /// The database of every table that the service names.
    #[serde(deserialize_with = "rules::not_empty")]
    database: String,
    /// What to do about tables that are not as this version wants them.
    #[serde(default)]
    on_drift: OnDrift,
}

/// Whether the files of secrets are read, or only checked to be named: a sample is checked where they do not exist.
#[derive(Clone, Copy)]
pub(super) enum SecretFiles<'a> {
    /// Read them; a relative path starts at this directory.
    Read(&'a Path),
    /// Leave them alone.
    Skip,
}

impl SecretFiles<'_> {
    fn read(self, file: &str, key: &'static str, path: &Path) -> Result<Secret, ConfigError> {
        let SecretFiles::Read(base) = self else {
            return Ok(Secret::new("skipped"));
        };
        let path = base.join(path);
        let text = fs::read_to_string(&path).map_err(|source| ConfigError::UnreadableSecret {
            file: file.to_owned(),
            key,
            path,
            source,
        })?;
        // Editors and `docker secret create` leave a newline that is not part of the password.
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(bad(file, key, "must name a file that is not empty"));
        }
        Ok(Secret::new(text))
    }

    /// The path of creds that can be read now; whoever connects reads them again.
    fn creds(self, file: &str, key: &'static str, path: &Path) -> Result<PathBuf, ConfigError> {
        let SecretFiles::Read(base) = self else {
            return Ok(path.to_owned());
        };
        let text = self.read(file, key, path)?;
        match identity::Creds::parse(text.reveal()) {
            Ok(_) => Ok(base.join(path)),
            Err(error) => Err(bad(
                file,
                key,
                &format!("must name a file of creds, and {error}"),
            )),
        }
    }

    /// The authority's file of an address that may be one of TLS: both or neither. Without the file nobody would say whose
    /// certificate is good, and without TLS nobody would ask for one.
    fn authority(
        self,
        file: &str,
        [key, url_key]: [&'static str; 2],
        (url, scheme): (&str, &str),
        path: Option<PathBuf>,
    ) -> Result<Option<PathBuf>, ConfigError> {
        let secure = url
            .split_once("://")
            .is_some_and(|(given, _)| given.eq_ignore_ascii_case(scheme));
        match path {
            None if secure => Err(bad(
                file,
                key,
                &format!("must be given where {url_key} is {scheme}://"),
            )),
            None => Ok(None),
            Some(_) if !secure => Err(bad(
                file,
                key,
                &format!("must not be given where {url_key} is not {scheme}://"),
            )),
            Some(path) => self.certificates(file, key, &path).map(Some),
        }
    }

    /// The path of an authority that can be read now; whoever connects reads it again.
    fn certificates(
        self,
        file: &str,
        key: &'static str,
        path: &Path,
    ) -> Result<PathBuf, ConfigError> {
        let SecretFiles::Read(base) = self else {
            return Ok(path.to_owned());
        };
        let path = base.join(path);
        match tls::client_config(&path) {
            Ok(_) => Ok(path),
            Err(source) => Err(ConfigError::Authority {
                file: file.to_owned(),
                key,
                source,
            }),
        }
    }

    fn either(
        self,
        file: &str,
        keys: [&'static str; 2],
        password: Option<Secret>,
        path: Option<PathBuf>,
    ) -> Result<Secret, ConfigError> {
        match (password, path) {
            (Some(password), None) => Ok(password),
            (None, Some(path)) => self.read(file, keys[1], &path),
            (Some(_), Some(_)) => Err(bad(
                file,
                keys[1],
                "must not be given together with password",
            )),
            (None, None) => Err(bad(
                file,
                keys[0],
                "must be given, or password_file in its place",
            )),
        }
    }
}

impl RawNats {
    pub(super) fn resolve(
        self,
        file: &str,
        secrets: SecretFiles<'_>,
    ) -> Result<NatsConfig, ConfigError> {
        let creds = secrets.creds(file, "nats.creds", &self.creds)?;
        let signing_key = self
            .signing_key_file
            .map(|path| secrets.read(file, "nats.signing_key_file", &path))
            .transpose()?;
        let keys = ["nats.ca_file", "nats.url"];
        let ca_file = secrets.authority(file, keys, (&self.url, "tls"), self.ca_file)?;
        Ok(NatsConfig {
            url: self.url,
            ca_file,
            creds,
            signing_key,
            monitor_url: self.monitor_url,
        })
    }
}

impl RawTelemetry {
    pub(super) fn resolve(
        self,
        file: &str,
        secrets: SecretFiles<'_>,
    ) -> Result<TelemetryConfig, ConfigError> {
        let keys = ["telemetry.ca_file", "telemetry.otlp_endpoint"];
        let address = (self.otlp_endpoint.as_str(), "https");
        let ca_file = secrets.authority(file, keys, address, self.ca_file)?;
        Ok(TelemetryConfig {
            otlp_endpoint: self.otlp_endpoint,
            ca_file,
        })
    }
}

impl RawPostgres {
    pub(super) fn resolve(
        self,
        file: &str,
        secrets: SecretFiles<'_>,
    ) -> Result<PostgresConfig, ConfigError> {
        let key = "postgres.password_file";
        let password = match self.password_file {
            Some(_) if carries_password(self.url.reveal()) => {
                return Err(bad(
                    file,
                    key,
                    "must not be given together with a password in postgres.url",
                ));
            }
            Some(path) => Some(secrets.read(file, key, &path)?),
            None => None,
        };
        let key = "postgres.ca_file";
        let ca_file = match self.ca_file {
            Some(_) if says_how_to_encrypt(self.url.reveal()) => {
                return Err(bad(
                    file,
                    key,
                    "must not be given together with ssl settings in postgres.url",
                ));
            }
            Some(path) => Some(secrets.certificates(file, key, &path)?),
            None => None,
        };
        Ok(PostgresConfig {
            url: self.url,
            schema: self.schema,
            password,
            ca_file,
            on_drift: self.on_drift,
        })
    }
}

impl RawClickhouse {
    pub(super) fn resolve(
        self,
        file: &str,
        secrets: SecretFiles<'_>,
    ) -> Result<ClickhouseConfig, ConfigError> {
        let keys = ["clickhouse.password", "clickhouse.password_file"];
        let password = secrets.either(file, keys, self.password, self.password_file)?;
        let keys = ["clickhouse.ca_file", "clickhouse.url"];
        let ca_file = secrets.authority(file, keys, (&self.url, "https"), self.ca_file)?;
        Ok(ClickhouseConfig {
            url: self.url,
            ca_file,
            user: self.user,
            password,
            database: self.database,
            on_drift: self.on_drift,
        })
    }
}

fn carries_password(url: &str) -> bool {
    let authority = url
        .split_once("://")
        .map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
    authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'))
        || url.contains("password=")
}

fn says_how_to_encrypt(url: &str) -> bool {
    url.split_once('?')
        .is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("ssl")))
}

fn bad(file: &str, key: &str, rule: &str) -> ConfigError {
    ConfigError::BadValue {
        file: file.to_owned(),
        key: key.to_owned(),
        rule: rule.to_owned(),
    }
}
