//! What runs where, and when? The rules are in [`scheduler_rules`]; here is only the wiring.

pub mod project;
pub mod query;
pub mod start_estimate;
pub mod store;

pub use scheduler_rules::{Config, METRICS};

use chassis::{
    BootError, Context, Deciding, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use futures::future::BoxFuture;
use ledger_nats::{Questions, jetstream::Readers};
use query::{
    AllocationQueries, AllocationsQueries, ExplainQueries, JobSetsQueries, LeaseQueries,
    NodeQueries, NodesQueries, PreemptionsQueries, QueueQueries, QueuesQueries,
    ReservationsQueries, ResourceQueries, TenantsQueries, TrialQueries,
};
use scheduler_rules::Scheduler;

/// The service, for the chassis.
pub struct SchedulerService;

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<SchedulerService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: chassis::Config<Config>,
    shutdown: Shutdown,
    readers: Readers,
) -> BoxFuture<'static, Result<(), BootError>> {
    Box::pin(chassis::run_among::<SchedulerService>(
        config, shutdown, readers,
    ))
}

impl Service for SchedulerService {
    const NAME: &'static str = "scheduler";
    const NEEDS: &'static [Needs] = &[Needs::Postgres];
    type Settings = Config;

    async fn run(ctx: Context<Config>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let (pool, cell) = (ctx.postgres_for_queries()?, ctx.cell_no());
        let config = Config {
            slot_ms: ctx.slot_ms(&bus).await?,
            ..ctx.settings.clone()
        };
        let mark = Mark::default();
        let (questions, asked) = Questions::new();
        let queries = Queries::new(ctx.subjects())
            .on(AllocationQueries { pool: pool.clone() }, &mark)
            .on(AllocationsQueries { pool: pool.clone() }, &mark)
            .on(
                ExplainQueries {
                    pool: pool.clone(),
                    clock: ctx.clock.clone(),
                    questions: questions.clone(),
                },
                &mark,
            )
            .on(JobSetsQueries { pool: pool.clone() }, &mark)
            .on(NodeQueries { pool: pool.clone() }, &mark)
            .on(NodesQueries { pool: pool.clone() }, &mark)
            .on(PreemptionsQueries { pool: pool.clone() }, &mark)
            .on(QueueQueries { pool: pool.clone() }, &mark)
            .on(QueuesQueries { pool: pool.clone() }, &mark)
            .on(ReservationsQueries { pool: pool.clone() }, &mark)
            .on(TenantsQueries { pool: pool.clone() }, &mark)
            .on(TrialQueries { questions }, &mark)
            .on(
                ResourceQueries {
                    pool: pool.clone(),
                    cell,
                },
                &mark,
            )
            .on(
                LeaseQueries {
                    pool,
                    cell,
                    clock: ctx.clock.clone(),
                    slot_ms: config.slot_ms,
                },
                &mark,
            );
        let sink = store::sink(ctx.postgres()?, cell).on_drift(ctx.on_drift());
        tokio::try_join!(
            ctx.decide::<Scheduler>(
                &bus,
                Deciding::on_ledger(config, vec![mark.clone()]).asked(asked)
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

    #[test]
    fn bounds_that_make_no_sense_are_refused_at_boot_by_name() {
        let sample = include_str!("../config.example.toml");
        let unfit = sample.replace("ttl_slots_max = 86400", "ttl_slots_max = 0");
        let refusal = chassis::Config::<super::Config>::from_toml(&unfit).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "(inline): `service.leases`: ttl_slots_max is 0, must be at least 1"
        );
    }
}
