//! The design of partitioned task tables in Postgres: for each user a table of what waits and one of what was taken; a
//! function adds a task, another moves many to history. Adding and taking at the same time, over few connections.

use super::PeersError;
use crate::kit::servers::Servers;
use crate::kit::usage::{Usage, Used};
use chassis::stack::Stack;
use futures::future::try_join_all;
use replay::command::Size;
use serde::Serialize;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, postgres::PgConnectOptions};
use std::{cell::Cell, time::Duration};
use tokio::time::MissedTickBehavior;

const CREATE: &str = include_str!("task_tables/create.sql");
const DROP: &str = include_str!("task_tables/drop.sql");
const CONNECTIONS: usize = 32;
/// Connections that add, of all; the others take.
const GENERATORS: [usize; 3] = [16, 24, 28];
/// Tasks of a call: the design's own, and what a batch would bring it.
const PER_CALL: [usize; 2] = [1, 100];
const TAKEN_MAX: i64 = 500;
const WARM_UP: Duration = Duration::from_millis(1500);
/// A consumer looks at each of its users so often: more often would only make smaller batches of the same tasks.
const CYCLE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Each call adds one task: the design as it is.
    pub single: Vec<Case>,
    /// Each call adds many, which the design does not do.
    pub batched: Vec<Case>,
    pub postgres: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Case {
    pub generators: usize,
    pub consumers: usize,
    pub tasks_per_call: usize,
    pub generated_per_s: f64,
    pub consumed_per_s: f64,
    pub postgres_cpu_us_per_task: f64,
    pub client_cpu_us_per_task: f64,
}

impl Case {
    /// What goes all the way.
    pub fn tasks_per_s(&self) -> f64 {
        self.generated_per_s.min(self.consumed_per_s)
    }
}

impl Figures {
    /// The best division of the connections.
    pub fn best(cases: &[Case]) -> f64 {
        cases.iter().map(Case::tasks_per_s).fold(0.0, f64::max)
    }
}

pub async fn measure(
    servers: &Servers,
    window: Duration,
    size: Size,
) -> Result<Figures, PeersError> {
    // Each connection needs separate users.
    let users = size.pick(200, CONNECTIONS);
    let warm_up = size.pick(WARM_UP, CYCLE);
    let options = servers.postgres()?;
    let mut admin = options.connect().await?;
    let durable: (String, String, String) = sqlx::query_as(
        "SELECT current_setting('synchronous_commit'), current_setting('fsync'), version()",
    )
    .fetch_one(&mut admin)
    .await?;
    if (durable.0.as_str(), durable.1.as_str()) != ("on", "on") {
        return Err(PeersError::NotDurable);
    }
    let mut figures = Figures {
        single: Vec::new(),
        batched: Vec::new(),
        postgres: durable.2,
    };
    for tasks_per_call in PER_CALL {
        for generators in GENERATORS.into_iter().take(size.pick(GENERATORS.len(), 1)) {
            admin.execute(sqlx::raw_sql(DROP)).await?;
            admin.execute(sqlx::raw_sql(CREATE)).await?;
            sqlx::query("SELECT tasks.create_user(no) FROM generate_series(0, $1 - 1) AS no")
                .bind(users as i32)
                .execute(&mut admin)
                .await?;
            let run = Run::connect(&options, users, generators, tasks_per_call).await?;
            let case = run.measure(&servers.stack, warm_up, window).await?;
            let cases = match tasks_per_call {
                1 => &mut figures.single,
                _ => &mut figures.batched,
            };
            cases.push(case);
        }
    }
    admin.execute(sqlx::raw_sql(DROP)).await?;
    admin.close().await?;
    Ok(figures)
}

/// The connections of one case, and what they have done so far. All of it is on one thread.
struct Run {
    users: usize,
    generators: Vec<PgConnection>,
    consumers: Vec<PgConnection>,
    tasks_per_call: usize,
    generated: Cell<u64>,
    consumed: Cell<u64>,
    over: Cell<bool>,
}

impl Run {
    async fn connect(
        options: &PgConnectOptions,
        users: usize,
        generators: usize,
        tasks_per_call: usize,
    ) -> Result<Self, PeersError> {
        let all = (0..CONNECTIONS).map(|_| options.connect());
        let mut generating = try_join_all(all).await?;
        Ok(Self {
            users,
            consumers: generating.split_off(generators),
            generators: generating,
            tasks_per_call,
            generated: Cell::new(0),
            consumed: Cell::new(0),
            over: Cell::new(false),
        })
    }

    async fn measure(
        mut self,
        stack: &Stack,
        warm_up: Duration,
        window: Duration,
    ) -> Result<Case, PeersError> {
        let generating = std::mem::take(&mut self.generators);
        let consuming = std::mem::take(&mut self.consumers);
        let (generators, consumers) = (generating.len(), consuming.len());
        let adding = generating.into_iter().enumerate();
        let adding = try_join_all(adding.map(|(no, c)| self.generate(c, no, generators)));
        let taking = consuming.into_iter().enumerate();
        let taking = try_join_all(taking.map(|(no, c)| self.consume(c, no, consumers)));
        let (_, _, (generated, consumed, used)) =
            tokio::try_join!(adding, taking, self.watch(stack, warm_up, window))?;
        let cpu = |name: &str| used.cpu_s.get(name).copied().unwrap_or(0.0) * 1e6;
        let per_task = |us: f64| us / (generated.min(consumed) as f64).max(1.0);
        Ok(Case {
            generators,
            consumers,
            tasks_per_call: self.tasks_per_call,
            generated_per_s: generated as f64 / used.wall_s,
            consumed_per_s: consumed as f64 / used.wall_s,
            postgres_cpu_us_per_task: per_task(cpu("postgres")),
            client_cpu_us_per_task: per_task(cpu("loadtest")),
        })
    }

    /// Generated and consumed within the window, and what that used.
    async fn watch(
        &self,
        stack: &Stack,
        warm_up: Duration,
        window: Duration,
    ) -> Result<(u64, u64, Used), PeersError> {
        tokio::time::sleep(warm_up).await;
        let before = (self.generated.get(), self.consumed.get());
        let usage = Usage::begin(stack).await;
        tokio::time::sleep(window).await;
        let after = (self.generated.get(), self.consumed.get());
        let used = usage.end(stack).await;
        self.over.set(true);
        Ok((after.0 - before.0, after.1 - before.1, used))
    }

    /// Each connection has users of its own, so that it need not know the others' tables.
    async fn generate(
        &self,
        mut connection: PgConnection,
        no: usize,
        of: usize,
    ) -> Result<(), PeersError> {
        let names: Vec<String> = (0..self.tasks_per_call)
            .map(|task| format!("task-{task}"))
            .collect();
        let statements: Vec<String> = (no..self.users)
            .step_by(of)
            .map(|user| match self.tasks_per_call {
                1 => format!("SELECT tasks.add_{user}($1, $2, $3, $4)"),
                _ => format!("SELECT tasks.add_many_{user}($1, $2, $3, $4)"),
            })
            .collect();
        for statement in statements.iter().cycle() {
            if self.over.get() {
                break;
            }
            let query = sqlx::query(statement).bind("job-set-1");
            let query = match names.as_slice() {
                [name] => query.bind(name),
                many => query.bind(many),
            };
            let query = query.bind(500_i64).bind(1_i64 << 30);
            connection.execute(query).await?;
            self.generated
                .set(self.generated.get() + self.tasks_per_call as u64);
        }
        Ok(connection.close().await?)
    }

    async fn consume(
        &self,
        mut connection: PgConnection,
        no: usize,
        of: usize,
    ) -> Result<(), PeersError> {
        let statements: Vec<String> = (no..self.users)
            .step_by(of)
            .map(|user| format!("SELECT tasks.take_{user}($1)"))
            .collect();
        let mut cycles = tokio::time::interval(CYCLE);
        cycles.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.over.get() {
            cycles.tick().await;
            for statement in &statements {
                let query = sqlx::query_scalar::<_, i64>(statement).bind(TAKEN_MAX);
                let moved = query.fetch_one(&mut connection).await?;
                self.consumed.set(self.consumed.get() + moved as u64);
            }
        }
        Ok(connection.close().await?)
    }
}
