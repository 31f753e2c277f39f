//! What was used, and what does it cost? The fold is in [`domain`], ClickHouse in [`store`]; here is only the wiring.

mod calm;
mod disk;
pub mod domain;
pub mod metrics;
mod observe;
mod query;
mod samples;
mod spending;
pub mod store;
mod wire;

use calm::Calm;
use chassis::{
    Behind, BootError, Config, Context, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use disk::Disk;
use domain::Usage;
use futures::future::BoxFuture;
use ledger::Projection;
use ledger_nats::Projector;
use ledger_nats::jetstream::Readers;
use metrics::Instruments;
use observe::{ResumedThrough, Shell};
use query::Desk;
use samples::Samples;
use serde::Deserialize;
use spending::Spending;
use std::sync::atomic::Ordering;
use store::{Beside, ClickHouseSink, Store};

/// The service, for the chassis.
pub struct AnalyticsService;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What the rates' amounts are millionths of. It is said beside them, and nothing is converted.
    pub currency: Currency,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            currency: Currency("USD".to_owned()),
        }
    }
}

/// A code of ISO 4217: three capital letters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Currency(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("currency is `{0}`, must be three capital letters, as ISO 4217 has them")]
pub struct BadCurrency(String);

impl TryFrom<String> for Currency {
    type Error = BadCurrency;

    fn try_from(text: String) -> Result<Self, BadCurrency> {
        let letters = text.bytes().all(|byte| byte.is_ascii_uppercase());
        match letters && text.len() == 3 {
            true => Ok(Self(text)),
            false => Err(BadCurrency(text)),
        }
    }
}

impl Currency {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

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
        let beside = Beside::default();
        let store = Store::new(server.clone(), &config.database, ctx.cell_no());
        let store = store.beside(beside.clone());
        let component = ctx.health.component("clickhouse_disk");
        let disk = Disk::new(store.clone(), component, &ctx.metrics);
        let mark = Mark::default();
        // Connections are served by the thread that opens them. An answer reads few rows, and others are made at the same time.
        let (server, _) = ctx.clickhouse()?;
        let server = server.with_setting("max_threads", "1");
        let answers = Store::new(server, &config.database, ctx.cell_no()).beside(beside);
        let currency = ctx.settings.currency.as_str();
        let spending = Spending::new(answers.clone(), currency, &ctx.metrics);
        let desk = Desk::new(answers, mark.clone(), &ctx);
        let queries = Queries::new(ctx.subjects())
            .on(query::UsageQueries(desk.clone()), &mark)
            .on(query::BillQueries(desk), &mark);
        let resumed = ResumedThrough::default();
        let told = resumed.clone();
        let sink = ClickHouseSink::new(store.clone(), currency, rows, move |through| {
            told.store(through.0, Ordering::Relaxed);
        })
        .on_drift(config.on_drift);
        let bus = ctx.ledger().await?;
        let samples = Samples::new(&ctx, store.clone(), &instruments);
        let shell = Shell::new(
            instruments,
            health,
            (
                ctx.follower(Usage::NAME, Behind::Degraded),
                ctx.progress(Usage::NAME),
            ),
            (ctx.journey.clone(), ctx.subjects(), ctx.cell_no()),
            ctx.clock.clone(),
            resumed,
            mark,
        );
        let calm = Calm::new(store.clone(), bus.clone(), &ctx);
        let projector: Projector<Usage, _, _, _> =
            Projector::new(bus, ctx.clock.clone(), sink, Box::new(shell));
        tokio::select! {
            outcome = ctx.aside(Usage::NAME, projector.run()) => outcome,
            never = disk.watch() => match never {},
            never = calm.say() => match never {},
            never = spending.export() => match never {},
            outcome = queries.serve(&ctx) => outcome,
            outcome = samples.serve(&ctx) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sample_configuration_is_accepted() {
        chassis::check_sample::<super::Settings>(include_str!("../config.example.toml"));
    }

    #[test]
    fn a_currency_is_three_capital_letters() {
        let sample = include_str!("../config.example.toml");
        for bad in ["usd", "EURO", "", "U$D"] {
            let unfit = sample.replace("\"USD\"", &format!("\"{bad}\""));
            let refusal = chassis::Config::<super::Settings>::from_toml(&unfit).unwrap_err();
            assert!(refusal.to_string().contains("ISO 4217"), "{refusal}");
        }
    }
}
