//! What a service is, what it gets, and how one is run.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ledger_nats::jetstream::{Program, Readers};
use serde::de::DeserializeOwned;
use sqlx::PgPool;
use tokio::sync::{OnceCell, watch};
use tracing::Instrument;
use vocab::{CellNo, Level, subjects::Subjects};

use crate::clock::Clock;
use crate::config::{Cell, ClickhouseConfig, Config, ConfigError, NatsConfig, PostgresConfig};
use crate::connect::{self, NatsEvents};
use crate::deciding::JourneyTap;
use crate::error::{BootError, BusClientBrokeDown, Failure, Unfit};
use crate::health::Health;
use crate::http::{Page, Server};
use crate::metrics::Metrics;
use crate::projection::Projections;
use crate::shutdown::Shutdown;
use crate::telemetry::{Journey, init_logs};
use crate::warm::OnDrift;
use crate::watch::{Followers, Watches};

/// Spans that cannot be sent by then are given up.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);

/// An optional table of the configuration that a service cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// `[postgres]`
    Postgres,
    /// `[clickhouse]`
    Clickhouse,
}

/// One of the suite's services. Everything around it is the chassis' work.
pub trait Service: Send + Sync + 'static {
    /// In lower case with hyphens: the name in logs, metrics, spans and on the bus.
    const NAME: &'static str;

    /// Missing tables are refused before anything starts, and by `--check`.
    const NEEDS: &'static [Needs] = &[];

    /// The `[service]` table; let it deny unknown fields.
    type Settings: DeserializeOwned + Default + Send + 'static;

    /// Works until `ctx.shutdown` is requested, then puts its things in order and returns. An early `Ok` ends the
    /// service too.
    fn run(ctx: Context<Self::Settings>) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// What a running service gets.
#[derive(Debug)]
pub struct Context<T> {
    /// [`Service::NAME`].
    pub service: &'static str,
    /// The cell it belongs to.
    pub cell: Cell,
    /// Its own settings.
    pub settings: T,
    /// The recorded time.
    pub clock: Clock,
    /// When to stop; triggering it stops this service alone.
    pub shutdown: Shutdown,
    /// Where components say how they stand.
    pub health: Health,
    /// Its instruments.
    pub metrics: Metrics,
    /// Its spans.
    pub journey: Journey,
    /// What follows sampled requests through it.
    pub tap: JourneyTap,
    /// Where its HTTP inbox really is, also when port 0 was configured.
    pub http_address: SocketAddr,
    /// The servers as configured.
    pub servers: Servers,
    /// Of this process.
    pub(crate) readers: Readers,
    /// How far the projections of this service are.
    pub(crate) projections: Projections,
    /// Who follows the ledger in this service.
    pub(crate) followers: Followers,
    /// What looks after it and stops with it.
    pub(crate) watches: Watches,
    /// Why it is not to go on with its ledger.
    pub(crate) unfit: watch::Sender<Option<Unfit>>,
    /// Whether it has decided and nobody else has since: then its projections are the ones that write.
    pub(crate) leads: watch::Sender<bool>,
    nats: OnceCell<async_nats::Client>,
    pub(crate) nats_events: NatsEvents,
    stopped_early: Arc<AtomicBool>,
}

/// Handle that states whether this process leads its service: it has decided, and no other process has since.
#[derive(Clone, Debug)]
pub struct Leading(watch::Receiver<bool>);

impl Leading {
    pub fn is_leading(&self) -> bool {
        *self.0.borrow()
    }
}

impl<T> Context<T> {
    /// Returns a handle that follows whether this process leads.
    pub fn leading(&self) -> Leading {
        Leading(self.leads.subscribe())
    }
}

/// The servers as configured.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The bus.
    pub nats: NatsConfig,
    /// Warm state.
    pub postgres: Option<PostgresConfig>,
    /// Hourly usage.
    pub clickhouse: Option<ClickhouseConfig>,
    file: String,
}

impl<T> Context<T> {
    /// The connection to the bus, made on the first call and shared by the later ones. It waits for the bus as long as
    /// it takes and shows in the health as the component `nats`.
    pub async fn nats(&self) -> Result<async_nats::Client, BootError> {
        let connect = || {
            let health = self.health.component("nats");
            connect::nats(
                self.service,
                &self.servers.nats,
                &self.nats_events,
                health,
                &self.shutdown,
            )
        };
        let client = self.nats.get_or_try_init(connect).await;
        if let Err(BootError::Stopped) = client {
            return Err(self.stopped());
        }
        client.cloned()
    }

    /// Its settings as the file says them by now.
    pub fn settings_again(&self) -> Result<T, ConfigError>
    where
        T: DeserializeOwned + Default,
    {
        let config = Config::load(Path::new(&self.servers.file))?;
        Ok(config.service)
    }

    /// A small pool on the service's own schema. It connects when it is used, so Postgres may be away now.
    pub fn postgres(&self) -> Result<PgPool, BootError> {
        connect::postgres(self.service, self.postgres_config()?)
    }

    /// Another one, for the answers to queries.
    pub fn postgres_for_queries(&self) -> Result<PgPool, BootError> {
        connect::postgres_for_queries(self.service, self.postgres_config()?)
    }

    fn postgres_config(&self) -> Result<&PostgresConfig, ConfigError> {
        let config = self.servers.postgres.as_ref();
        config.ok_or_else(|| self.missing("postgres"))
    }

    /// What to do about tables of Postgres that are not as the service wants them.
    pub fn on_drift(&self) -> OnDrift {
        let postgres = self.servers.postgres.as_ref();
        postgres.map_or_else(OnDrift::default, |config| config.on_drift)
    }

    /// A client for the configured server, which connects when it is used, and what else is configured.
    pub fn clickhouse(&self) -> Result<(clickhouse::Client, &ClickhouseConfig), BootError> {
        let config = self
            .servers
            .clickhouse
            .as_ref()
            .ok_or_else(|| self.missing("clickhouse"))?;
        Ok((connect::clickhouse(self.service, config)?, config))
    }

    /// For who was waiting for something when the service was asked to stop: counts as a clean end.
    pub(crate) fn stopped(&self) -> BootError {
        self.stopped_early.store(true, Ordering::Relaxed);
        BootError::Stopped
    }

    fn missing(&self, table: &'static str) -> ConfigError {
        ConfigError::MissingTable {
            file: self.servers.file.clone(),
            table,
            service: self.service,
        }
    }
}

/// Refuses a configuration that lacks a table the service needs.
pub(crate) fn check_needs<S: Service>(config: &Config<S::Settings>) -> Result<(), ConfigError> {
    for need in S::NEEDS {
        let (table, given) = match need {
            Needs::Postgres => ("postgres", config.postgres.is_some()),
            Needs::Clickhouse => ("clickhouse", config.clickhouse.is_some()),
        };
        if !given {
            return Err(ConfigError::MissingTable {
                file: config.file.clone(),
                table,
                service: S::NAME,
            });
        }
    }
    Ok(())
}

/// Runs one service from its configuration to its end: used by [`crate::main`] and by tests. Returns when the service has
/// returned, its HTTP inbox is closed and its spans are sent or given up.
pub async fn run_service<S: Service>(
    config: Config<S::Settings>,
    shutdown: Shutdown,
) -> Result<(), BootError> {
    run_among::<S>(config, shutdown, readers(&[S::NAME])).await
}

/// How a process with these services reads its ledgers: once, and by a consumer that says which build it is.
pub fn readers(services: &[&str]) -> Readers {
    Readers::in_program(Program {
        services: services.iter().map(|name| (*name).to_owned()).collect(),
        instance: instance(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        level: Level::KNOWN,
    })
}

/// Which process of all this is: its machine and its number there.
pub fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}/{}", host.trim(), std::process::id())
}

/// The same in a process that holds several: the ledger is read once for all who have the same `readers`.
pub async fn run_among<S: Service>(
    config: Config<S::Settings>,
    shutdown: Shutdown,
    readers: Readers,
) -> Result<(), BootError> {
    init_logs(&config.log);
    check_needs::<S>(&config)?;
    let span = tracing::info_span!("service", service = S::NAME, cell = config.cell.name);
    boot::<S>(config, shutdown, readers).instrument(span).await
}

/// Until it is said, which may be never.
async fn said(mut unfit: watch::Receiver<Option<Unfit>>) -> Unfit {
    if let Ok(said) = unfit.wait_for(Option::is_some).await
        && let Some(unfit) = *said
    {
        return unfit;
    }
    std::future::pending().await
}

async fn boot<S: Service>(
    config: Config<S::Settings>,
    shutdown: Shutdown,
    readers: Readers,
) -> Result<(), BootError> {
    let metrics = Metrics::new(S::NAME, &config.cell.name);
    let health = Health::default();
    let page = Page {
        service: S::NAME,
        cell: config.cell.clone(),
        health: health.clone(),
        metrics: metrics.clone(),
    };
    let server = Server::open(config.http.listen, page).await?;
    tracing::info!(address = %server.address, version = env!("CARGO_PKG_VERSION"), "listening");
    let journey = Journey::start(
        S::NAME,
        (&config.cell.name, &instance()),
        config.telemetry.as_ref(),
        &metrics,
    )?;

    let stopped_early = Arc::new(AtomicBool::new(false));
    let subjects = Subjects::new(&config.cell.name);
    let cell_no = CellNo(config.cell.number);
    let context = Context {
        service: S::NAME,
        tap: JourneyTap::new(S::NAME, &subjects, cell_no, journey.clone()),
        clock: config.clock(),
        cell: config.cell,
        settings: config.service,
        shutdown: shutdown.child(),
        health,
        nats_events: NatsEvents::new(&metrics),
        projections: Projections::new(&metrics),
        metrics,
        journey: journey.clone(),
        http_address: server.address,
        servers: Servers {
            nats: config.nats,
            postgres: config.postgres,
            clickhouse: config.clickhouse,
            file: config.file,
        },
        readers,
        followers: Followers::default(),
        watches: Watches::default(),
        unfit: watch::Sender::new(None),
        leads: watch::Sender::new(false),
        nats: OnceCell::new(),
        stopped_early: stopped_early.clone(),
    };
    let broken_down = context.nats_events.broken_down.clone();
    let unfit = context.unfit.subscribe();
    // A service whose client is gone hears nothing any more, and would not say so.
    let outcome = tokio::select! {
        biased;
        outcome = S::run(context) => outcome,
        () = broken_down.requested() => Err(Failure::from(BusClientBrokeDown)),
        unfit = said(unfit) => Err(Failure::from(unfit)),
    };

    server.stop().await;
    journey.close(FLUSH_DEADLINE).await;
    match outcome {
        Ok(()) => tracing::info!("stopped"),
        Err(_) if stopped_early.load(Ordering::Relaxed) => tracing::info!("stopped while starting"),
        Err(source) => {
            return Err(BootError::Service {
                service: S::NAME,
                source,
            });
        }
    }
    Ok(())
}
