//! What runs where, and when? The rules are in [`domain`]; here is only the wiring.

pub mod domain;
pub mod project;
pub mod query;
pub mod store;

use chassis::{
    BootError, Config, Context, Deciding, Failure, Needs, Service, Shutdown,
    query::{Mark, Queries},
};
use domain::{Bounds, Rules, Scheduler};
use futures::future::BoxFuture;
use ledger::jetstream::Readers;
use query::{AllocationQueries, ReservationQueries, ResourceQueries};
use serde::Deserialize;

/// The service, for the chassis.
pub struct SchedulerService;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub reservations: Reservations,
}

/// Named resources of each tenant, and who may hold how many of them for how long.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reservations {
    /// Resources of one tenant.
    pub resources_max: u64,
    /// Reservations of one tenant: live ones, and ended ones that are remembered.
    pub reservations_max: u64,
    /// Resources in one reservation.
    pub bundle_max: usize,
    /// The longest time to confirm a reservation, in slots; the shortest is 1.
    pub ttl_slots_max: u64,
    /// How long an ended reservation can be looked up, in slots.
    pub history_slots: u64,
    /// Reservations of one tenant with the same deadline.
    pub expirations_per_slot_max: usize,
    /// The length of a slot on the cell's clock, in milliseconds; 0: requests say which slot they are of. Admission's has
    /// to be the same.
    pub slot_ms: u64,
}

impl Default for Reservations {
    fn default() -> Self {
        let Rules { bounds, slot_ms } = Rules::default();
        Self {
            resources_max: bounds.resources_max,
            reservations_max: bounds.reservations_max,
            bundle_max: bounds.bundle_max,
            ttl_slots_max: bounds.ttl_slots_max,
            history_slots: bounds.history_slots,
            expirations_per_slot_max: bounds.expirations_per_slot_max,
            slot_ms,
        }
    }
}

impl Settings {
    pub fn rules(&self) -> Rules {
        let set = &self.reservations;
        Rules {
            bounds: Bounds {
                resources_max: set.resources_max,
                reservations_max: set.reservations_max,
                bundle_max: set.bundle_max,
                ttl_slots_max: set.ttl_slots_max,
                history_slots: set.history_slots,
                expirations_per_slot_max: set.expirations_per_slot_max,
            },
            slot_ms: set.slot_ms,
        }
    }
}

/// The whole process. It stands here, and not in `main.rs`, so that the service is compiled once for all who run it.
pub fn main() -> std::process::ExitCode {
    chassis::main::<SchedulerService>()
}

/// The service inside a process that holds several.
pub fn serve(
    config: Config<Settings>,
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
    type Settings = Settings;

    async fn run(ctx: Context<Settings>) -> Result<(), Failure> {
        let bus = ctx.ledger().await?;
        let (pool, cell) = (ctx.postgres()?, ctx.cell_no());
        let rules = ctx.settings.rules();
        let mark = Mark::default();
        let queries = Queries::new(ctx.nats().await?, ctx.subjects())
            .on(AllocationQueries { pool: pool.clone() }, &mark)
            .on(
                ResourceQueries {
                    pool: pool.clone(),
                    cell,
                },
                &mark,
            )
            .on(
                ReservationQueries {
                    pool: pool.clone(),
                    cell,
                    clock: ctx.clock.clone(),
                    slot_ms: rules.slot_ms,
                },
                &mark,
            );
        let sink = store::sink(pool, cell);
        tokio::try_join!(
            ctx.decide::<Scheduler>(&bus, Deciding::on_ledger(rules)),
            ctx.project_marked::<project::WarmProjection, _>(&bus, sink, &mark),
            queries.serve(&ctx.shutdown),
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

    #[test]
    fn what_is_not_set_is_as_the_rules_have_it() {
        let rules = super::Settings::default().rules();
        assert_eq!(rules, super::domain::Rules::default());
    }
}
