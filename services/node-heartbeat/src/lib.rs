//! The inbox for nodes: is the node there, and what is it to run? The rules are in [`node_heartbeat_rules`]; here is the wiring.

mod agents;
mod line;
pub mod project;
mod query;
pub mod store;
mod wire;

pub use agents::METRICS;

use agents::Agents;
use chassis::{
    BootError, Context, Deciding, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use futures::future::BoxFuture;
use ledger::Inbox;
use ledger_nats::{Questions, jetstream::Readers};
use node_heartbeat_rules::Nodes;
use std::sync::Arc;
use tokio::sync::mpsc;

pub use node_heartbeat_rules::Config;
pub use wire::{RUNS_MAX, assignments, heartbeat, join, push, report};

/// The service, for the chassis.
pub struct NodeHeartbeatService;

/// Heartbeats and questions that the leader may take; more of them wait in line.
const COMMANDS_MAX: usize = 1024;

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<NodeHeartbeatService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: chassis::Config<Config>,
    shutdown: Shutdown,
    readers: Readers,
) -> BoxFuture<'static, Result<(), BootError>> {
    Box::pin(chassis::run_among::<NodeHeartbeatService>(
        config, shutdown, readers,
    ))
}

impl Service for NodeHeartbeatService {
    const NAME: &'static str = "node-heartbeat";
    const NEEDS: &'static [Needs] = &[Needs::Postgres];
    type Settings = Config;

    async fn run(ctx: Context<Config>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let (commands, local) = mpsc::channel(COMMANDS_MAX);
        let (effects_in, effects) = mpsc::unbounded_channel();
        let cell = ctx.cell_no();
        let mark = Mark::default();
        let (questions, asked) = Questions::new();
        let deciding = Deciding {
            inbox: Some((
                Inbox::Report,
                Arc::new(move |m, out| wire::report(m, cell, out)),
            )),
            local: Some(local),
            questions: Some(asked),
            effects: Some(effects_in),
            ..Deciding::on_ledger(ctx.settings, vec![mark.clone()])
        };
        let agents = Agents::new(&ctx, bus.subjects().clone()).await?;
        let logs = query::LogsQueries {
            client: ctx.nats().await?,
            subjects: ctx.subjects(),
            cell,
        };
        let approvals = query::ApprovalsQueries {
            pool: ctx.postgres_for_queries()?,
            questions,
            leading: ctx.leading(),
        };
        let queries = Queries::new(ctx.subjects())
            .on(logs, &mark)
            .on(approvals, &mark);
        let warm = store::sink(ctx.postgres()?).on_drift(ctx.on_drift());
        tokio::try_join!(
            ctx.decide::<Nodes>(&bus, deciding),
            ctx.project::<project::WarmProjection, _>(&bus, warm, &mark),
            agents.serve(commands, effects, &ctx.shutdown),
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
