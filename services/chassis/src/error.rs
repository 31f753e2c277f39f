//! Why a service did not start, or did not end well.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use ledger_nats::cell::TooOld;

use crate::config::ConfigError;
use crate::tls::BadAuthority;

/// What a service's `run` may fail with. The boundary is outermost: nobody acts on the kind, it is printed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Ends a service without a word of the bus: a message whose headers the client library cannot read may do it.
#[derive(Debug, thiserror::Error)]
#[error("the bus client has broken down")]
pub(crate) struct BusClientBrokeDown;

/// Why a process is not to go on with its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// What a process knows is of the ledger that it has read, and that one was deleted, has lost its end, or was adopted
    /// without it.
    #[error(
        "the ledger is not the one that was read: another one stands in its place, or it has lost its end"
    )]
    Replaced,
    /// The cell's feature level was raised beyond what this build knows.
    #[error(transparent)]
    Outgrown(#[from] TooOld),
}

/// Why a service did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The async runtime cannot be built.
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot watch signals")]
    Signals(#[source] std::io::Error),
    /// The HTTP address is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The exporter of spans cannot be built.
    #[error("cannot export spans to {endpoint}")]
    Telemetry {
        /// The configured receiver.
        endpoint: String,
        /// What the exporter said.
        source: Failure,
    },
    /// The bus refuses the credentials; trying again would not help.
    #[error("{url} refuses {}", creds.display())]
    NatsRefused {
        /// The bus.
        url: String,
        /// The configured creds.
        creds: PathBuf,
        /// What the client said.
        source: async_nats::ConnectError,
    },
    /// The file of an authority was good and is not any more.
    #[error("cannot use {setting}")]
    Authority {
        /// The setting that names the file.
        setting: &'static str,
        /// What is wrong with it.
        source: BadAuthority,
    },
    /// Who answers is not whom the authority knows: another server, or another authority's file.
    #[error("{url} has no certificate that {} (nats.ca_file) vouches for", ca_file.display())]
    NatsUntrusted {
        /// The bus.
        url: String,
        /// The configured authority.
        ca_file: PathBuf,
        /// What the client said.
        source: async_nats::ConnectError,
    },
    /// The service was asked to stop before it had started; `main` counts that as a clean end.
    #[error("stopped while starting")]
    Stopped,
    /// The Postgres URL is not understood.
    #[error("cannot use postgres.url")]
    Postgres(#[source] sqlx::Error),
    /// The service itself gave up.
    #[error("{service} failed")]
    Service {
        /// The service.
        service: &'static str,
        /// Its reason.
        source: Failure,
    },
}

/// An error with its causes in one line, for the last words of a process.
pub(crate) fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors print their cause themselves.
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line.replace('\n', " ")
}
