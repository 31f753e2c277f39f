//! Through the bus: many clients on few connections against a running stack.
//!
//! First as fast as it goes: each client asks again as soon as it is answered. Then at half of that rate: chains of
//! acquire, confirm and release begin at moments that were fixed before, and their time is counted from there, so that
//! what is late makes those behind it late, too. In the end everything is compared with the ledger.

mod audit;
mod chain;
mod figures;
mod tally;

pub use audit::AuditError;
pub use figures::Figures;

use crate::kit::usage::{Usage, Used};
use audit::Audit;
use chain::{Clients, Pace};
use chassis::stack::{Stack, StackError};
use replay::{
    command::Size,
    drive::{OperatorError, Settings},
    reach::{ReachError, connect, ledger, operator, tenants},
};
use std::{path::Path, time::Duration};
use tally::Tally;
use vocab::CellNo;

#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// Connections to the bus.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Clients that ask at the same time, on all connections together.
    #[arg(long, default_value_t = 3000, default_value_if("smoke", "true", "30"))]
    clients: usize,
    /// One in this number of chains is about a resource that all clients want.
    #[arg(long, default_value_t = 20)]
    contended_one_in: u64,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 15, default_value_if("smoke", "true", "1"))]
    seconds: u64,
}

/// Before anything is measured.
const WARM_UP: Duration = Duration::from_secs(4);

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Audit(#[from] AuditError),
}

pub async fn measure(path: &Path, load: &Load, size: Size) -> Result<Figures, LoadError> {
    let stack = Stack::read(path)?;
    let tenant = tenants(&stack).into_iter().next();
    let tenant = tenant.ok_or(ReachError::NoTenant)?;
    let settings = Settings {
        tenants: vec![tenant.clone()],
        ..Settings::default()
    };
    settings.apply(&operator(&stack).await?).await?;
    let bus = ledger(&stack).await?;
    let connections = connect(&stack, &tenant, load.connections, None).await?;
    let clients = Clients::new(connections, CellNo(stack.cell.number), load);
    clients.create().await;

    let window = Duration::from_secs(load.seconds);
    let warm_up = size.pick(WARM_UP, Duration::ZERO);
    clients.run(Pace::AsFastAsItGoes, warm_up).await;
    let fast = used(&stack, clients.run(Pace::AsFastAsItGoes, window)).await;
    let ops_per_s = fast.0.answered() as f64 / window.as_secs_f64();
    let half = Pace::ChainsPerSecond(ops_per_s / 2.0 / Clients::OPS_PER_CHAIN);
    let paced = used(&stack, clients.run(half, window)).await;

    let audit = Audit::read(&bus, &tenant, clients.run_id()).await?;
    let audited = audit.compare(&clients.into_answers())?;
    Ok(Figures::of(load, fast, paced, audited))
}

/// A phase with its usage of the machine.
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
