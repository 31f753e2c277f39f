//! What was used, and what does it cost? The fold is in [`domain`], ClickHouse in [`store`]; here is only the wiring.

mod disk;
pub mod domain;
pub mod metrics;
mod observe;
pub mod store;

use chassis::{Behind, BootError, Config, Context, Failure, Needs, Service, Shutdown};
use disk::Disk;
use domain::Usage;
use futures::future::BoxFuture;
use ledger::jetstream::Readers;
use ledger::{Projection, Projector};
use metrics::Instruments;
use observe::{ResumedThrough, Shell};
use serde::Deserialize;
use std::sync::atomic::Ordering;
use store::{ClickHouseSink, Store};

/// The service, for the chassis.
pub struct AnalyticsService;

/// There is nothing to set yet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {}

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<AnalyticsService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: Config<Settings>,
    shutdown: Shutdown,
    readers: Readers,
) -> BoxFuture<'static, Result<(), BootError>> {
    Box::pin(chassis::run_among::<AnalyticsService>(
        config, shutdown, readers,
    ))
}

impl Service for AnalyticsService {
    const NAME: &'static str = "analytics";
    const NEEDS: &'static [Needs] = &[Needs::Clickhouse];
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        let health = ctx.health.component(Usage::NAME);
        let instruments = Instruments::register(&ctx.metrics);
        let rows = instruments.rows.clone();
        let (server, config) = ctx.clickhouse()?;
        let store = Store::new(server, &config.database, ctx.cell_no());
        let component = ctx.health.component("clickhouse_disk");
        let disk = Disk::new(store.clone(), component, &ctx.metrics);
        let resumed = ResumedThrough::default();
        let told = resumed.clone();
        let sink = ClickHouseSink::new(store.clone(), rows, move |through| {
            told.store(through.0, Ordering::Relaxed);
        })
        .on_drift(config.on_drift);
        let bus = ctx.ledger().await?;
        let shell = Shell::new(
            instruments,
            health,
            ctx.follower(Usage::NAME, Behind::Degraded),
            ctx.journey.clone(),
            ctx.clock.clone(),
            resumed,
        );
        let projector: Projector<Usage, _, _, _> =
            Projector::new(bus, ctx.clock.clone(), sink, Box::new(shell));
        tokio::select! {
            outcome = ctx.aside(Usage::NAME, projector.run()) => outcome,
            never = disk.watch() => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sample_configuration_is_accepted() {
        chassis::check_sample::<super::Settings>(include_str!("../config.example.toml"));
    }
}
