//! Through the bus: many clients on few connections against a running stack.
//!
//! First as fast as it goes: each client asks again as soon as it is answered. Then at half of that rate: chains of
//! reserve, confirm and release begin at moments that were fixed before, and their time is counted from there, so that
//! what is late makes those behind it late, too. In the end everything is compared with the ledger.

mod audit;
mod chain;
mod figures;
mod tally;
pub mod usage;

pub use audit::AuditError;
pub use figures::Figures;
pub use tally::histogram;

use audit::Audit;
use chain::{Clients, Pace};
use chassis::stack::{Stack, StackError};
use client::{Client, ConnectError, ConnectOptions};
use ledger::{BusError, jetstream::JetStreamBus};
use schemas::subjects::Subjects;
use std::{path::Path, time::Duration};
use tally::Tally;
use usage::{Usage, Used};
use vocab::{CellNo, Token};

#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// Connections to the bus.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Clients that ask at the same time, on all connections together.
    #[arg(long, default_value_t = 3000)]
    clients: usize,
    /// Of so many chains one is about a resource that all clients want.
    #[arg(long, default_value_t = 20)]
    contended_one_in: u64,
    /// How long each phase is measured.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
}

/// Before anything is measured.
const WARM_UP: Duration = Duration::from_secs(4);

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the stack has no tenant")]
    NoTenant,
    #[error("looking at the ledger: {0}")]
    Bus(#[from] BusError),
    #[error("connecting to the bus: {0}")]
    Nats(#[from] async_nats::ConnectError),
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// All connections of one run; `patience` is for who does not want to wait long.
pub async fn connect(
    stack: &Stack,
    tenant: &Token,
    count: usize,
    patience: Option<Duration>,
) -> Result<Vec<Client>, LoadError> {
    let user = stack.user(&format!("tenant:{tenant}"))?;
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let (url, cell) = (&stack.nats.url, &stack.cell.name);
        let options = ConnectOptions::tenant(url, cell, tenant.clone())
            .user(&user.user, &user.password)
            .batched();
        let options = match patience {
            Some(patience) => options.patience(patience),
            None => options,
        };
        clients.push(Client::connect(options).await?);
    }
    Ok(clients)
}

/// The tenants that a stack was started for, in the order of their names.
pub fn tenants(stack: &Stack) -> Vec<Token> {
    let users = stack.nats.users.keys();
    let names = users.filter_map(|key| key.strip_prefix("tenant:"));
    names.filter_map(|name| Token::new(name).ok()).collect()
}

/// A connection as any program could make it.
pub async fn plain(stack: &Stack, key: &str) -> Result<async_nats::Client, LoadError> {
    let login = stack.user(key)?;
    let (user, password) = (login.user.clone(), login.password.clone());
    let options = async_nats::ConnectOptions::with_user_and_password(user, password);
    Ok(options.connect(&stack.nats.url).await?)
}

/// A look at the ledger, as the operator has it.
pub async fn ledger(stack: &Stack) -> Result<JetStreamBus, LoadError> {
    let nats = plain(stack, "operator").await?;
    Ok(JetStreamBus::open(nats, Subjects::new(&stack.cell.name)).await?)
}

pub async fn measure(path: &Path, load: &Load) -> Result<Figures, LoadError> {
    let stack = Stack::read(path)?;
    let tenant = tenants(&stack).into_iter().next();
    let tenant = tenant.ok_or(LoadError::NoTenant)?;
    let bus = ledger(&stack).await?;
    let connections = connect(&stack, &tenant, load.connections, None).await?;
    let clients = Clients::new(connections, CellNo(stack.cell.number), load);
    clients.create().await;

    let window = Duration::from_secs(load.seconds);
    clients.run(Pace::AsFastAsItGoes, WARM_UP).await;
    let fast = used(&stack, clients.run(Pace::AsFastAsItGoes, window)).await;
    let ops_per_s = fast.0.answered() as f64 / window.as_secs_f64();
    let half = Pace::ChainsPerSecond(ops_per_s / 2.0 / Clients::OPS_PER_CHAIN);
    let paced = used(&stack, clients.run(half, window)).await;

    let audit = Audit::read(&bus, &tenant, clients.run_id()).await?;
    let audited = audit.compare(&clients.into_answers())?;
    Ok(Figures::of(load, fast, paced, audited))
}

/// A phase, and what it used of the machine.
async fn used(stack: &Stack, phase: impl Future<Output = Phase>) -> (Phase, Used) {
    let usage = Usage::begin(stack).await;
    let phase = phase.await;
    (phase, usage.end(stack).await)
}

/// One phase's tally and how long it took.
pub struct Phase {
    pub tally: Tally,
    pub took: Duration,
}

impl Phase {
    pub fn answered(&self) -> u64 {
        self.tally.answered()
    }
}
