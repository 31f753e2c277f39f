//! The door for tenants and operators, in both directions. The rules are in [`domain`] and [`feed`]; here is the wiring.

pub mod domain;
pub mod feed;
pub mod project;
mod publish;
mod query;
pub mod store;
mod wire;

use chassis::{BootError, Config, Context, Deciding, Failure, Needs, Service, Shutdown};
use domain::{Admission, Rules};
use feed::Feed;
use futures::future::BoxFuture;
use ledger::Door;
use serde::Deserialize;
use std::sync::Arc;

pub use wire::{REQUEST_BYTES_MAX, command};

/// The service, for the chassis.
pub struct AdmissionService;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How long an operation id is remembered, in milliseconds of the cell's clock.
    pub operation_window_ms: i64,
    /// Operations remembered at the same time.
    pub operations_max: u64,
    /// Allocations that have not ended.
    pub allocations_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            operation_window_ms: 24 * vocab::HOUR_MS,
            operations_max: 5_000_000,
            allocations_max: 5_000_000,
        }
    }
}

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<AdmissionService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: Config<Settings>,
    shutdown: Shutdown,
) -> BoxFuture<'static, Result<(), BootError>> {
    Box::pin(chassis::run_service::<AdmissionService>(config, shutdown))
}

impl Service for AdmissionService {
    const NAME: &'static str = "admission";
    const NEEDS: &'static [Needs] = &[Needs::Postgres];
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let rules = Rules {
            cell: ctx.cell_no(),
            operation_window_ms: ctx.settings.operation_window_ms,
            operations_max: ctx.settings.operations_max,
            allocations_max: ctx.settings.allocations_max,
        };
        let deciding = Deciding {
            door: Some((Door::Ingress, Arc::new(wire::command))),
            ..Deciding::on_ledger(rules)
        };
        let feed = publish::FeedSink::new(&bus, ctx.cell_no());
        let warm = store::sink(ctx.postgres()?, ctx.cell_no());
        let client = ctx.nats().await?;
        tokio::try_join!(
            ctx.decide::<Admission>(&bus, deciding),
            ctx.project::<Feed, _>(&bus, feed),
            ctx.project::<project::WarmProjection, _>(&bus, warm),
            query::serve(client, &bus, &ctx.shutdown),
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sample_configuration_is_accepted() {
        chassis::check_sample::<super::Settings>(include_str!("../config.example.toml"));
    }
}
