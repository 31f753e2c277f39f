//! A cell with its five services, in one process.

use crate::e2e::agent::Agent;
use analytics::{AnalyticsService, store::Store};
use chassis::{BootError, Config, Context, Failure, Needs, Service, Shutdown, run_service};
use client::{Client, ConnectOptions, Position, SetQuota, SetRate, SetTenant};
use ledger::{Bus, Chain, Tail};
use ledger_nats::{
    cell::{self, Chosen},
    jetstream::JetStreamBus,
};
use schemas::v1::{NodeCapacity, tenant_event};
use sqlx::{Executor, PgPool, Row, postgres::PgPoolOptions};
use std::{
    collections::BTreeMap, error::Error, future::Future, marker::PhantomData, net::SocketAddr,
    time::Duration,
};
use testkit::{Clickhouse, Servers};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};
use uuid::Uuid;
use vocab::{At, CellNo, Event, Lsn, Token, subjects::Subjects};

pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Only a hung suite takes this long; nothing is measured by it.
pub const DEADLINE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);

pub const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];
pub const GIB: i64 = 1 << 30;

/// Asks until there is an answer.
pub async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(DEADLINE, asking).await {
        Ok(answer) => answer,
        Err(_) => panic!("never came: {what}"),
    }
}

/// What a cell is to be like.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Longer than any test, so that agents without heartbeats stay.
    pub lease_ms: i64,
    /// Whether nodes have to join.
    pub joining: &'static str,
    pub otlp: Option<SocketAddr>,
    /// The length of a slot of leases.
    pub slot_ms: u64,
    /// Tables of a service's configuration, as TOML.
    pub settings: BTreeMap<&'static str, String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            lease_ms: 3_600_000,
            joining: "open",
            otlp: None,
            slot_ms: Chosen::default().slot_ms,
            settings: BTreeMap::new(),
        }
    }
}

/// A cell with its servers' corners, and whichever services were started.
pub struct Suite {
    pub servers: Servers,
    pub subjects: Subjects,
    pub number: u64,
    setup: Setup,
    services: BTreeMap<&'static str, Running>,
    pg: PgPool,
    clickhouse: clickhouse::Client,
}

const UNDEFINED_TABLE: &str = "42P01";
pub const SCHEMAS: [&str; 4] = ["admission", "quota", "scheduler", "node-heartbeat"];

impl Suite {
    /// All five services, ready, with both tenants, their quotas and rates.
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let mut suite = Self::bare(setup).await;
        suite.make_streams().await;
        suite.boot_all().await;
        suite.furnish().await;
        suite
    }

    /// Names, schemas and a database; no streams, no services.
    pub async fn bare(setup: Setup) -> Self {
        let servers = Servers::read();
        let id = Uuid::new_v4().simple().to_string();
        let subjects = Subjects::new(format!("e{}", &id[..12]));
        let pg = PgPoolOptions::new()
            .max_connections(2)
            .connect_lazy(&servers.postgres.admin_url)
            .expect("the launcher writes a URL");
        let server = servers.clickhouse();
        let suite = Self {
            clickhouse: server
                .clone()
                .with_database(format!("e2e_{}", subjects.cell())),
            // A TOML number has 63 bits; ids differ between the cells of one run.
            number: (Uuid::new_v4().as_u64_pair().0 >> 2).max(1),
            servers,
            subjects,
            setup,
            services: BTreeMap::new(),
            pg,
        };
        for service in SCHEMAS {
            let sql = format!("CREATE SCHEMA {}", suite.schema(service));
            suite
                .pg
                .execute(&*sql)
                .await
                .expect("the test role may create schemas");
        }
        let sql = format!("CREATE DATABASE {}", suite.database());
        server
            .query(&sql)
            .execute()
            .await
            .expect("the test user may create databases");
        suite
    }

    pub async fn make_streams(&self) {
        let maker = async_nats::jetstream::new(self.servers.nats("bus").await);
        let chosen = Chosen {
            slot_ms: self.setup.slot_ms,
            ..Chosen::default()
        };
        cell::init(&maker, &self.subjects, chosen)
            .await
            .expect("the operator of the bus may create streams");
    }

    pub async fn boot_all(&mut self) {
        let running = [
            self.boot::<admission::AdmissionService>().await,
            self.boot::<quota::QuotaService>().await,
            self.boot::<scheduler::SchedulerService>().await,
            self.boot::<node_heartbeat::NodeHeartbeatService>().await,
            self.boot::<AnalyticsService>().await,
        ];
        for service in running {
            service.wait_ready().await;
            self.services.insert(service.name, service);
        }
    }

    /// Tenants with room for everything, and a price for everything.
    pub async fn furnish(&self) {
        let operator = self.operator().await;
        for (resource, micro) in RATES {
            let rate = SetRate {
                resource: resource.to_owned(),
                micro_per_unit_hour: micro,
                ..SetRate::default()
            };
            operator.set_rate(rate, id()).await.expect("a first rate");
        }
        for tenant in TENANTS {
            let change = SetTenant {
                tenant: tenant.to_owned(),
                expected_version: None,
                ..SetTenant::default()
            };
            operator
                .set_tenant(change, id())
                .await
                .expect("a new tenant");
            for resource in ["cpu", "memory", "gpu"] {
                set_quota(&operator, tenant, resource, 1 << 53).await;
            }
        }
    }

    /// The service's own schema of this cell.
    pub fn schema(&self, service: &str) -> String {
        format!("e2e_{}_{}", self.subjects.cell(), service.replace('-', "_"))
    }

    fn database(&self) -> String {
        format!("e2e_{}", self.subjects.cell())
    }

    pub fn cell_no(&self) -> CellNo {
        CellNo(self.number)
    }

    /// One more process of a service. It is not one of the five that the suite names.
    pub async fn boot<S: Service>(&self) -> Running {
        Running::start::<S>(&self.config_text(S::NAME, S::NEEDS)).await
    }

    /// Starts a service in the place of one that was taken.
    pub async fn start_again<S: Service>(&mut self) {
        let service = self.boot::<S>().await;
        service.wait_ready().await;
        self.services.insert(service.name, service);
    }

    fn config_text(&self, service: &str, needs: &[Needs]) -> String {
        let key = self
            .servers
            .creds(service)
            .with_file_name("node-signing.nk");
        let signs = match service {
            "node-heartbeat" => format!("signing_key_file = {key:?}\n"),
            _ => String::new(),
        };
        let mut text = format!(
            "[cell]\nname = \"{cell}\"\nnumber = {number}\n\
             [nats]\nurl = \"{url}\"\ncreds = {creds:?}\nmonitor_url = \"{monitor}\"\n{signs}\
             [http]\nlisten = \"127.0.0.1:0\"\n\
             [log]\nformat = \"pretty\"\nfilter = \"{filter}\"\n",
            cell = self.subjects.cell(),
            number = self.number,
            url = self.servers.nats.url,
            creds = self.servers.creds(service),
            monitor = self.servers.nats.monitor_url,
            filter = std::env::var("APPORTION_TEST_LOG").unwrap_or_else(|_| "off".to_owned()),
        );
        if let Some(address) = self.setup.otlp {
            text += &format!("[telemetry]\notlp_endpoint = \"http://{address}\"\n");
        }
        if needs.contains(&Needs::Postgres) {
            let (url, schema) = (&self.servers.postgres.admin_url, self.schema(service));
            text += &format!("[postgres]\nurl = \"{url}\"\nschema = \"{schema}\"\n");
        }
        if needs.contains(&Needs::Clickhouse) {
            let Clickhouse {
                url,
                user,
                password,
            } = &self.servers.clickhouse;
            let database = self.database();
            text += &format!(
                "[clickhouse]\nurl = \"{url}\"\nuser = \"{user}\"\npassword = \"{password}\"\ndatabase = \"{database}\"\n"
            );
        }
        if service == "node-heartbeat" {
            let lease_ms = self.setup.lease_ms;
            text += &format!(
                "[service]\nlease_ms = {lease_ms}\njoining = \"{}\"\n",
                self.setup.joining
            );
        }
        text += self.setup.settings.get(service).map_or("", String::as_str);
        text
    }

    /// Takes one of the five out of the suite's hands, to be stopped or killed.
    pub fn take(&mut self, name: &str) -> Running {
        let taken = self.services.remove(name);
        taken.unwrap_or_else(|| panic!("{name} is not running"))
    }

    pub fn services(&self) -> impl Iterator<Item = &Running> {
        self.services.values()
    }

    /// Every service is alive and ready, and a request still goes through.
    pub async fn assert_healthy(&self, tenant: &Client) {
        for service in self.services() {
            assert!(!service.task.is_finished(), "{} has ended", service.name);
            assert!(
                service.says("/healthz").await,
                "{} is not alive",
                service.name
            );
            service.wait_ready().await;
        }
        let submitted = tenant.submit(small("good"), id()).await;
        assert!(submitted.is_ok(), "{submitted:?}");
    }

    pub async fn operator(&self) -> Client {
        let options = ConnectOptions::operator(&self.servers.nats.url, self.subjects.cell())
            .creds(self.servers.creds("operator"));
        Client::connect(options)
            .await
            .expect("the operator connects")
    }

    pub async fn tenant(&self, name: &str) -> Client {
        self.tenant_with(name, |options| options).await
    }

    /// A tenant's connection with options of the test's own.
    pub async fn tenant_with(
        &self,
        name: &str,
        options: impl FnOnce(ConnectOptions) -> ConnectOptions,
    ) -> Client {
        let creds = self.servers.creds(&format!("tenant:{name}"));
        let plain =
            ConnectOptions::tenant(&self.servers.nats.url, self.subjects.cell(), token(name))
                .creds(creds);
        let connected = Client::connect(options(plain)).await;
        connected.expect("the tenant connects")
    }

    /// A node of its own agent, registered, with 8 GPUs of one model.
    pub async fn node(&self, name: &str) -> Agent {
        self.node_with(name, Agent::capacity()).await
    }

    pub async fn node_with(&self, name: &str, capacity: NodeCapacity) -> Agent {
        let mut agent = Agent::connect(self, name).await;
        agent.capacity = capacity;
        agent.register().await;
        agent
    }

    pub async fn bus(&self, user: &str) -> JetStreamBus {
        let client = self.servers.nats(user).await;
        let bus = JetStreamBus::open(client, self.subjects.clone()).await;
        bus.expect("the bus opens without looking")
    }

    /// All that stands on the ledger now, its chain checked.
    pub async fn events(&self) -> Vec<(At, Event)> {
        let bus = self.bus("analytics").await;
        let end = bus.end().await.expect("the ledger is there");
        let mut chain = Chain::default();
        let mut events = Vec::new();
        if end > Lsn(0) {
            let mut records = bus.follow(Lsn(1)).await.expect("the ledger is there");
            while chain.last() < end {
                let record = records.recv().await.expect("records up to the end");
                if let Some(frame) = chain
                    .accept(&record, vocab::Kinds::ALL)
                    .expect("an unbroken chain")
                {
                    events.extend(frame.placed().map(|(at, event)| (at, event.clone())));
                }
            }
        }
        events
    }

    /// Waits until the ledger holds `count` events that `wanted` picks.
    pub async fn events_of<T>(
        &self,
        what: &str,
        count: usize,
        wanted: impl Fn(&At, &Event) -> Option<T>,
    ) -> Vec<T> {
        eventually(what, || async {
            let all = self.events().await;
            let found: Vec<T> = all
                .iter()
                .filter_map(|(at, event)| wanted(at, event))
                .collect();
            (found.len() >= count).then_some(found)
        })
        .await
    }

    /// The columns as text, in the words of Postgres; no rows while the tables are not there.
    pub async fn rows(&self, service: &str, sql: &str) -> Vec<Vec<Option<String>>> {
        let sql = sql.replace("{}", &self.schema(service));
        let rows = match self.pg.fetch_all(&*sql).await {
            Err(sqlx::Error::Database(error))
                if error.code().as_deref() == Some(UNDEFINED_TABLE) =>
            {
                return Vec::new();
            }
            rows => rows.expect("a query of the test's own"),
        };
        let text = |row: &sqlx::postgres::PgRow| {
            let columns = 0..row.len();
            columns
                .map(|column| row.get::<Option<String>, _>(column))
                .collect()
        };
        rows.iter().map(text).collect()
    }

    /// As an administrator does by hand.
    pub async fn changes_tables(&self, service: &str, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sql.replace("{}", &self.schema(service));
        self.pg.execute(&*sql).await?;
        Ok(())
    }

    pub async fn drops_database(&self) -> Result<(), clickhouse::error::Error> {
        let sql = format!("DROP DATABASE {}", self.database());
        self.clickhouse.query(&sql).execute().await
    }

    pub async fn empties_feeds(&self) {
        let maker = async_nats::jetstream::new(self.servers.nats("bus").await);
        let stream = maker.get_stream(self.subjects.event_stream()).await;
        let purged = stream.expect("it is there").purge().await;
        purged.expect("the operator of the bus may");
    }

    pub fn store(&self) -> Store {
        Store::new(self.clickhouse.clone(), &self.database(), self.cell_no())
    }

    pub fn clickhouse(&self) -> &clickhouse::Client {
        &self.clickhouse
    }

    /// Waits until analytics has everything that stands on the ledger up to `lsn` and made rows of it.
    pub async fn billed_through(&self, lsn: Lsn) {
        let store = self.store();
        eventually("the bill", || async {
            (store.through().await.ok()? >= lsn).then_some(())
        })
        .await;
    }

    pub async fn assert_conserved(&self) {
        let found = self
            .store()
            .conservation()
            .await
            .expect("analytics has made its views");
        assert_eq!(found.conservation_error_ms(), 0, "{:?}", found.imbalances);
    }

    pub async fn assert_verified(&self) {
        let bus = self.bus("analytics").await;
        let verified = ledger_nats::verify(&bus, &[])
            .await
            .expect("an unbroken chain");
        assert!(verified.frames > 0);
    }

    /// Waits until what was decided has left the inboxes: they are trimmed a little later.
    pub async fn inboxes_trimmed(&self) {
        for stream in [
            self.subjects.ingress_stream(),
            self.subjects.report_stream(),
        ] {
            eventually("an empty inbox", || async {
                (self.stored(&stream, ">").await == 0).then_some(())
            })
            .await;
        }
    }

    /// How many messages a stream holds on a subject.
    pub async fn stored(&self, stream: &str, subject: &str) -> usize {
        use futures::TryStreamExt;
        let operator = async_nats::jetstream::new(self.servers.nats("operator").await);
        let stream = operator
            .get_stream(stream)
            .await
            .expect("a stream of the cell");
        let found = stream
            .info_with_subjects(subject)
            .await
            .expect("its subjects");
        let all: Vec<(String, usize)> = found.try_collect().await.expect("its subjects");
        all.into_iter().map(|(_, count)| count).sum()
    }

    /// Stops the services and leaves nothing behind. After a failed test everything stays, for a look.
    pub async fn close(mut self) {
        for (_, service) in std::mem::take(&mut self.services) {
            service.stop().await;
        }
        for service in SCHEMAS {
            let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema(service));
            // A connection of the service's may still be closing, and hold a lock the other way round.
            eventually("its own schema gone", || async {
                self.pg.execute(&*sql).await.ok()
            })
            .await;
        }
        // What analytics was doing when it was stopped may still be under way on the server.
        let sql = format!("DROP DATABASE IF EXISTS {}", self.database());
        eventually("the database gone", || async {
            self.clickhouse.query(&sql).execute().await.ok()
        })
        .await;
        let maker = async_nats::jetstream::new(self.servers.nats("bus").await);
        let snapshots = format!("OBJ_{}", self.subjects.snapshot_bucket());
        let heartbeats = format!("KV_{}", self.subjects.heartbeat_bucket());
        for stream in [
            self.subjects.ledger_stream(),
            self.subjects.ingress_stream(),
            self.subjects.report_stream(),
            self.subjects.event_stream(),
            snapshots,
            heartbeats,
        ] {
            // A test of the boot makes only some of them.
            let _ = maker.delete_stream(stream).await;
        }
    }
}

/// Millionths of the currency per core, GiB and GPU hour: large, so that milliseconds cost something.
pub const RATES: [(&str, i64); 3] = [
    ("cpu", 40_000_000_003),
    ("memory", 5_000_000_017),
    ("gpu", 900_000_000_011),
];

/// Waits until the tenant's feed has an outcome of each of these operations.
pub async fn all_decided(tenant: &Client, sent: &[String]) {
    eventually("all outcomes in the feed", || async {
        let page = tenant.feed_page(Position::default(), None, 0).await.ok()?;
        let decided = page.iter().filter_map(|event| match &event.kind {
            Some(tenant_event::Kind::Outcome(outcome)) => Some(outcome.operation_id.clone()),
            _ => None,
        });
        let decided: Vec<_> = decided.collect();
        sent.iter().all(|id| decided.contains(id)).then_some(())
    })
    .await;
}

/// Waits until admission and the scheduler answer queries about what was submitted.
pub async fn queries_answered(tenant: &Client, operation_id: &str, allocation_id: &str) {
    eventually("an answer of admission", || async {
        tenant.operation(operation_id, 0).await.ok()
    })
    .await;
    eventually("an answer of the scheduler", || async {
        tenant.allocation(allocation_id, 0).await.ok()
    })
    .await;
}

pub async fn set_quota(operator: &Client, tenant: &str, resource: &str, limit: i64) {
    let change = SetQuota {
        tenant: tenant.to_owned(),
        resource: resource.to_owned(),
        limit,
        expected_version: None,
        ..SetQuota::default()
    };
    operator.set_quota(change, id()).await.expect("a quota");
}

pub fn token(text: &str) -> Token {
    Token::new(text).expect("a literal token")
}

/// A fresh operation id.
pub fn id() -> String {
    client::Operation::fresh_id()
}

/// A request that any node has room for.
pub fn small(name: &str) -> client::Submit {
    client::Submit {
        name: name.to_owned(),
        cpu_milli: 100,
        memory_bytes: GIB,
        ..client::Submit::default()
    }
}

tokio::task_local! {
    /// Where a service under [`Seen`] says where its inbox is.
    static INBOX: std::cell::Cell<Option<oneshot::Sender<SocketAddr>>>;
}

/// The service itself; tells its HTTP address on the way in.
struct Seen<S>(PhantomData<fn() -> S>);

impl<S: Service> Service for Seen<S> {
    const NAME: &'static str = S::NAME;
    const NEEDS: &'static [Needs] = S::NEEDS;
    type Settings = S::Settings;

    async fn run(ctx: Context<S::Settings>) -> Result<(), Failure> {
        if let Some(sender) = INBOX.with(std::cell::Cell::take) {
            // Whoever asked may have gone.
            let _ = sender.send(ctx.http_address);
        }
        S::run(ctx).await
    }
}

/// One process' worth of a service. Dropping it is a crash.
pub struct Running {
    pub name: &'static str,
    http: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), BootError>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    async fn start<S: Service>(text: &str) -> Self {
        let config: Config<S::Settings> = Config::from_toml(text).expect("the suite's own words");
        let shutdown = Shutdown::new();
        let (sender, address) = oneshot::channel();
        let inbox = std::cell::Cell::new(Some(sender));
        let task =
            tokio::spawn(INBOX.scope(inbox, run_service::<Seen<S>>(config, shutdown.clone())));
        Self {
            name: S::NAME,
            http: address.await.expect("a service opens its HTTP inbox first"),
            shutdown,
            task,
        }
    }

    /// A plain request on a connection of its own. None when nobody answers.
    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.http).await.ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    pub async fn says(&self, path: &str) -> bool {
        let answer = self.get(path).await.unwrap_or_default();
        answer.split(' ').nth(1) == Some("200")
    }

    pub async fn wait_ready(&self) {
        eventually(&format!("{} ready", self.name), || async {
            assert!(!self.task.is_finished(), "{} has ended instead", self.name);
            self.says("/readyz").await.then_some(())
        })
        .await;
    }

    /// A sample of `/metrics`, by its name after `apportion_`.
    pub async fn metric(&self, name: &str) -> i64 {
        let sample = self.sample(name, "").await;
        sample.unwrap_or_else(|| panic!("no {name}"))
    }

    /// The first of that name whose labels hold these; none before it was counted.
    pub async fn sample(&self, name: &str, labels: &str) -> Option<i64> {
        let name = format!("apportion_{name}{{");
        let text = self
            .get("/metrics")
            .await
            .expect("a running service shows its metrics");
        let line = text
            .lines()
            .find(|line| line.starts_with(&name) && line.contains(labels))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// As SIGTERM does.
    pub async fn stop(mut self) {
        self.shutdown.trigger();
        let ended = (&mut self.task).await.expect("no panic");
        assert!(ended.is_ok(), "{}: {ended:?}", self.name);
    }

    /// As SIGKILL does: nothing is put in order.
    pub async fn kill(mut self) {
        self.task.abort();
        let ended = (&mut self.task).await;
        assert!(
            ended.is_err_and(|error| error.is_cancelled()),
            "it had ended before"
        );
    }

    /// Waits until the service gives up by itself, and tells why, with all causes.
    pub async fn gives_up(mut self) -> String {
        let ended = tokio::time::timeout(DEADLINE, &mut self.task).await;
        let ended = ended.unwrap_or_else(|_| panic!("{} goes on", self.name));
        let error = ended.expect("no panic").expect_err("it does not end well");
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}
