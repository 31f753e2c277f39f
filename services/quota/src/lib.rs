//! May this tenant have it? The rules are in [`quota_rules`]; here is only the wiring.

pub mod project;
pub mod query;
pub mod store;

pub use quota_rules::{Config, METRICS};

use chassis::{
    BootError, Context, Deciding, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use futures::future::BoxFuture;
use ledger_nats::{Questions, jetstream::Readers};
use quota_rules::Quota;

/// The service, for the chassis.
pub struct QuotaService;

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<QuotaService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: chassis::Config<Config>,
    shutdown: Shutdown,
    readers: Readers,
) -> BoxFuture<'static, Result<(), BootError>> {
    Box::pin(chassis::run_among::<QuotaService>(
        config, shutdown, readers,
    ))
}

impl Service for QuotaService {
    const NAME: &'static str = "quota";
    const NEEDS: &'static [Needs] = &[Needs::Postgres];
    type Settings = Config;

    async fn run(ctx: Context<Config>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let pool = ctx.postgres_for_queries()?;
        let mark = Mark::default();
        let budgets = query::BudgetQueries { pool: pool.clone() };
        let history = query::HistoryQueries { pool: pool.clone() };
        let cell = ctx.cell_no();
        let limits = query::QuotaQueries { pool, cell };
        let (questions, asked) = Questions::new();
        let trials = query::TrialQueries { questions, cell };
        let queries = Queries::new(ctx.subjects())
            .on(budgets, &mark)
            .on(history, &mark)
            .on(limits, &mark)
            .on(trials, &mark);
        let sink = store::sink(ctx.postgres()?).on_drift(ctx.on_drift());
        tokio::try_join!(
            ctx.decide::<Quota>(
                &bus,
                Deciding::on_ledger(ctx.settings.clone(), vec![mark.clone()]).asked(asked)
            ),
            ctx.project::<project::WarmProjection, _>(&bus, sink, &mark),
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
