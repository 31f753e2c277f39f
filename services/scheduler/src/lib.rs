//! What runs where, and when? The rules are in [`domain`]; here is only the wiring.

pub mod domain;
pub mod project;
pub mod store;

use chassis::{Context, Deciding, Failure, Needs, Service};
use domain::Scheduler;
use serde::Deserialize;

/// The service, for the chassis.
pub struct SchedulerService;

/// There is nothing to set yet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {}

impl Service for SchedulerService {
    const NAME: &'static str = "scheduler";
    const NEEDS: &'static [Needs] = &[Needs::Postgres];
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let sink = store::sink(ctx.postgres()?, ctx.cell_no());
        tokio::try_join!(
            ctx.decide::<Scheduler>(&bus, Deciding::on_ledger(())),
            ctx.project::<project::WarmProjection, _>(&bus, sink),
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
