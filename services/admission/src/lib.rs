//! The inbox for tenants and operators, in both directions. The rules are in [`admission_rules`] and [`feed`]; here is the wiring.

pub mod feed;
pub mod operation;
pub mod project;
pub mod publish;
pub mod query;
pub mod store;
mod wire;

use admission_rules::Admission;
use chassis::{
    BootError, Context, Deciding, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use feed::Feed;
use futures::future::BoxFuture;
use ledger::Inbox;
use ledger_nats::jetstream::Readers;
use std::sync::Arc;
use tokio::sync::mpsc;

pub use admission_rules::Config;
pub use wire::{BATCH_MAX, REQUEST_BYTES_MAX, commands};

/// The service, for the chassis.
pub struct AdmissionService;

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<AdmissionService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: chassis::Config<Config>,
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
    type Settings = Config;

    async fn run(ctx: Context<Config>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let cell = ctx.cell_no();
        let config = Config {
            slot_ms: ctx.slot_ms(&bus).await?,
            cell,
            ..ctx.settings
        };
        let (turned_in, turned) = mpsc::unbounded_channel();
        let (feed_mark, warm_mark) = (Mark::default(), Mark::default());
        let deciding = Deciding {
            inbox: Some((Inbox::Ingress, Arc::new(wire::commands))),
            effects: Some(turned_in),
            ..Deciding::on_ledger(config, vec![feed_mark.clone(), warm_mark.clone()])
        };
        let pool = ctx.postgres_for_queries()?;
        let (feed, warm) = (
            publish::FeedSink::new(publish::JetStreamFeed::new(&bus), cell),
            store::sink(ctx.postgres()?, cell).on_drift(ctx.on_drift()),
        );
        let client = ctx.nats().await?;
        let queries = Queries::new(ctx.subjects())
            .on(query::FeedQueries::new(bus.clone()), &feed_mark)
            .on(query::OperationQueries { pool: pool.clone() }, &warm_mark)
            .on(query::RatesQueries { pool: pool.clone() }, &warm_mark)
            .on(query::RefusalsQueries { pool: pool.clone() }, &warm_mark)
            .on(query::SettingsQueries { pool }, &warm_mark)
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
        chassis::check_sample::<super::Config>(include_str!("../config.example.toml"));
    }
}
