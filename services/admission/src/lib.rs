//! The inbox for tenants and operators, in both directions. The rules are in [`domain`] and [`feed`]; here is the wiring.

pub mod domain;
pub mod feed;
pub mod operation;
pub mod project;
pub mod publish;
pub mod query;
pub mod store;
mod wire;

use chassis::{
    BootError, Config, Context, Deciding, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use domain::{Admission, Rules, Shares};
use feed::Feed;
use futures::future::BoxFuture;
use ledger::{Inbox, jetstream::Readers};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::mpsc;
use vocab::CellNo;

pub use wire::{BATCH_MAX, REQUEST_BYTES_MAX, commands};

/// The service, for the chassis.
pub struct AdmissionService;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How long an operation id is remembered, and an allocation after its end, in milliseconds of the cell's clock.
    pub operation_window_ms: i64,
    /// Operations of one tenant that are remembered at the same time.
    pub operations_max: u64,
    /// Allocations of one tenant that have not ended.
    pub allocations_max: u64,
    /// Memory of the cell's services that each tenant may take for its operations, whatever the others have, in bytes.
    pub operations_own_bytes: u64,
    /// The same for its allocations.
    pub allocations_own_bytes: u64,
    /// What tenants may take together beyond what each has of its own.
    pub shared_bytes_max: u64,
    /// How long an operation is remembered whose request says its slot, in slots: the longest time to live and the time
    /// for retries after it.
    pub window_slots: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            operation_window_ms: 24 * vocab::HOUR_MS,
            operations_max: 5_000_000,
            allocations_max: 5_000_000,
            operations_own_bytes: 1 << 20,
            allocations_own_bytes: 1 << 20,
            shared_bytes_max: 4 << 30,
            window_slots: 2 * 86_400,
        }
    }
}

impl Settings {
    /// With what is the cell's.
    pub fn rules(&self, cell: CellNo, slot_ms: u64) -> Rules {
        Rules {
            cell,
            operation_window_ms: self.operation_window_ms,
            operations_max: self.operations_max,
            allocations_max: self.allocations_max,
            room: Shares {
                operations_own_bytes: self.operations_own_bytes,
                allocations_own_bytes: self.allocations_own_bytes,
                shared_bytes_max: self.shared_bytes_max,
            },
            slot_ms,
            window_slots: self.window_slots,
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
    readers: Readers,
) -> BoxFuture<'static, Result<(), BootError>> {
    Box::pin(chassis::run_among::<AdmissionService>(
        config, shutdown, readers,
    ))
}

impl Service for AdmissionService {
    const NAME: &'static str = "admission";
    const NEEDS: &'static [Needs] = &[Needs::Postgres];
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let slot_ms = ctx.slot_ms(&bus).await?;
        let rules = ctx.settings.rules(ctx.cell_no(), slot_ms);
        let (turned_in, turned) = mpsc::unbounded_channel();
        let (feed_mark, warm_mark) = (Mark::default(), Mark::default());
        let deciding = Deciding {
            inbox: Some((Inbox::Ingress, Arc::new(wire::commands))),
            effects: Some(turned_in),
            ..Deciding::on_ledger(rules, vec![feed_mark.clone(), warm_mark.clone()])
        };
        let cell = ctx.cell_no();
        let pool = ctx.postgres()?;
        let (feed, warm) = (
            publish::FeedSink::new(publish::JetStreamFeed::new(&bus), cell),
            store::sink(pool.clone(), cell).on_drift(ctx.on_drift()),
        );
        let client = ctx.nats().await?;
        let queries = Queries::new(ctx.subjects())
            .on(query::FeedQueries::new(bus.clone()), &feed_mark)
            .on(query::OperationQueries { pool }, &warm_mark)
            .and_unknown();
        tokio::try_join!(
            ctx.decide::<Admission>(&bus, deciding),
            ctx.project::<Feed, _>(&bus, feed, &feed_mark),
            ctx.project::<project::WarmProjection, _>(&bus, warm, &warm_mark),
            publish::refuse(client, ctx.subjects(), cell, turned, &ctx.shutdown),
            queries.serve(&ctx),
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
