//! Connections to the three servers, made the same way by every service.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, Event};
use ledger_nats::jetstream::Link;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::config::{ClickhouseConfig, NatsConfig, PostgresConfig};
use crate::error::BootError;
use crate::health::ComponentHandle;
use crate::metrics::{Metric, Metrics};
use crate::query;
use crate::shutdown::Shutdown;
use crate::tls;

const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Of each pool: a service has one for what it projects and one for what it is asked.
const POSTGRES_CONNECTIONS_MAX: u32 = 4;
const POSTGRES_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Who asks is told soon that the database is away.
const POSTGRES_QUERY_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) const NATS_EVENTS: Metric = Metric::counter(
    "apportion_nats_events_total",
    "What happened to the bus connections: `connection` is the service's name for one, `event` the client library's for what \
     happened",
)
.by(&["connection", "event"]);

/// How often each thing happened to one of a service's bus connections, and who is told that it broke.
#[derive(Clone, Debug)]
pub(crate) struct NatsEvents {
    connection: &'static str,
    counts: Family<Happening, Counter>,
    pub link: Link,
    /// Made when the client has broken down: it will never connect again.
    pub broken_down: Shutdown,
    /// What it means to the service that the connection is away.
    away: fn(&ComponentHandle, &'static str),
}

/// Lives as long as the client's own task does, which a message that the library cannot read may end.
struct Alive {
    connected: AtomicBool,
    events: NatsEvents,
}

impl Drop for Alive {
    fn drop(&mut self) {
        // A try to connect that failed has an end, too.
        if self.connected.load(Ordering::Relaxed) {
            self.events.broken_down.trigger();
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Happening {
    connection: &'static str,
    event: &'static str,
}

impl NatsEvents {
    pub(crate) fn new(metrics: &Metrics) -> NatsEvents {
        NatsEvents {
            connection: "nats",
            counts: metrics.register(&NATS_EVENTS, Family::default()),
            link: Link::default(),
            broken_down: Shutdown::new(),
            away: |health, why| health.not_ready(why),
        }
    }

    /// Of a connection without which the service decides all the same.
    pub(crate) fn beside(&self, connection: &'static str) -> NatsEvents {
        NatsEvents {
            connection,
            counts: self.counts.clone(),
            link: Link::default(),
            broken_down: Shutdown::new(),
            away: |health, why| health.degraded(why),
        }
    }

    /// Of the next client of the same connection.
    pub(crate) fn renewed(&self) -> NatsEvents {
        NatsEvents {
            broken_down: Shutdown::new(),
            ..self.clone()
        }
    }

    pub(crate) fn count(&self, event: &'static str) {
        let connection = self.connection;
        let happening = Happening { connection, event };
        self.counts.get_or_create(&happening).inc();
    }
}

/// Connects to the bus and keeps trying until it works, the credentials are refused, or the service is to stop.
pub(crate) async fn nats(
    service: &'static str,
    config: &NatsConfig,
    events: &NatsEvents,
    health: ComponentHandle,
    shutdown: &Shutdown,
) -> Result<async_nats::Client, BootError> {
    let mut wait = BACKOFF_FIRST;
    loop {
        let attempt =
            options(service, config, events.clone(), health.clone())?.connect(&config.url);
        let error = tokio::select! {
            () = shutdown.requested() => return Err(BootError::Stopped),
            outcome = attempt => match outcome {
                Ok(client) => return Ok(client),
                Err(error) => error,
            },
        };
        if matches!(
            error.kind(),
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation
        ) {
            return Err(BootError::NatsRefused {
                url: config.url.clone(),
                creds: config.creds.clone(),
                source: error,
            });
        }
        if let Some(ca_file) = &config.ca_file
            && tls::is_distrust(&error)
        {
            return Err(BootError::NatsUntrusted {
                url: config.url.clone(),
                ca_file: ca_file.clone(),
                source: error,
            });
        }
        tracing::warn!(url = config.url, %error, retry_in_ms = wait.as_millis(), "nats unreachable");
        tokio::select! {
            () = shutdown.requested() => return Err(BootError::Stopped),
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(BACKOFF_MAX),
        }
    }
}

/// The inbox carries the service's name, as logs and traces of the server show it.
fn options(
    service: &'static str,
    config: &NatsConfig,
    events: NatsEvents,
    health: ComponentHandle,
) -> Result<ConnectOptions, BootError> {
    let alive = Alive {
        connected: AtomicBool::new(false),
        events,
    };
    let options = config.options().map_err(|source| BootError::Authority {
        setting: "nats.ca_file",
        source,
    })?;
    Ok(options
        .name(service)
        .custom_inbox_prefix(format!("_INBOX.{service}"))
        .event_callback(move |event| {
            if matches!(event, Event::Connected) {
                alive.connected.store(true, Ordering::Relaxed);
            }
            note(&event, &alive.events, &health);
            std::future::ready(())
        }))
}

/// Every event is counted; those that lose something or need a person are logged.
fn note(event: &Event, events: &NatsEvents, health: &ComponentHandle) {
    let name = match event {
        Event::Connected => "connected",
        Event::Disconnected => "disconnected",
        Event::LameDuckMode => "lame_duck",
        Event::Draining => "draining",
        Event::Closed => "closed",
        Event::SlowConsumer(_) => "slow_consumer",
        Event::ServerError(_) => "server_error",
        Event::ClientError(_) => "client_error",
    };
    events.count(name);
    events.link.note(event);
    match event {
        Event::Connected => health.ready(),
        Event::Disconnected => (events.away)(health, "disconnected"),
        Event::Closed => (events.away)(health, "closed"),
        Event::SlowConsumer(subscription) => {
            tracing::warn!(subscription, "nats slow consumer, messages dropped")
        }
        Event::ServerError(error) => tracing::warn!(%error, "nats server error"),
        Event::ClientError(error) => tracing::warn!(%error, "nats client error"),
        Event::LameDuckMode | Event::Draining => tracing::info!(event = name, "nats"),
    }
}

/// A pool that connects when it is first used: decisions do not wait for warm state.
pub(crate) fn postgres(
    service: &'static str,
    config: &PostgresConfig,
) -> Result<PgPool, BootError> {
    let options = config.options().map_err(BootError::Postgres)?;
    let options = options.application_name(&format!("apportion-{service}"));
    Ok(pool(options, POSTGRES_ACQUIRE_TIMEOUT))
}

/// The same for queries, so that none of them keeps the projector waiting for a connection. The server gives a statement up
/// when nobody waits for the answer any more.
pub(crate) fn postgres_for_queries(
    service: &'static str,
    config: &PostgresConfig,
) -> Result<PgPool, BootError> {
    let options = config.options().map_err(BootError::Postgres)?;
    let timeout_ms = query::ANSWER_DEADLINE.as_millis();
    let options = options
        .application_name(&format!("apportion-{service}-queries"))
        .options([("statement_timeout", timeout_ms.to_string())]);
    Ok(pool(options, POSTGRES_QUERY_ACQUIRE_TIMEOUT))
}

fn pool(options: PgConnectOptions, acquire_timeout: Duration) -> PgPool {
    PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS_MAX)
        .acquire_timeout(acquire_timeout)
        .connect_lazy_with(options)
}

/// A client that connects per request.
pub(crate) fn clickhouse(
    service: &'static str,
    config: &ClickhouseConfig,
) -> Result<clickhouse::Client, BootError> {
    let client = tls::clickhouse(&config.url, config.ca_file.as_deref());
    let client = client.map_err(|source| BootError::Authority {
        setting: "clickhouse.ca_file",
        source,
    })?;
    Ok(client
        .with_user(&config.user)
        .with_password(config.password.reveal())
        .with_product_info(format!("apportion-{service}"), env!("CARGO_PKG_VERSION")))
}
