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
use serde::{Deserialize, Deserializer, de::Error};

/// The service, for the chassis.
pub struct SchedulerService;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    #[serde(deserialize_with = "fit")]
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
}

impl Default for Reservations {
    fn default() -> Self {
        let bounds = Bounds::default();
        Self {
            resources_max: bounds.resources_max,
            reservations_max: bounds.reservations_max,
            bundle_max: bounds.bundle_max,
            ttl_slots_max: bounds.ttl_slots_max,
            history_slots: bounds.history_slots,
            expirations_per_slot_max: bounds.expirations_per_slot_max,
        }
    }
}

impl Reservations {
    fn bounds(&self) -> Bounds {
        Bounds {
            resources_max: self.resources_max,
            reservations_max: self.reservations_max,
            bundle_max: self.bundle_max,
            ttl_slots_max: self.ttl_slots_max,
            history_slots: self.history_slots,
            expirations_per_slot_max: self.expirations_per_slot_max,
        }
    }
}

/// A configuration with bounds that make no sense is refused as one with a key that nobody knows.
fn fit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reservations, D::Error> {
    let set = Reservations::deserialize(deserializer)?;
    set.bounds().validate().map_err(D::Error::custom)?;
    Ok(set)
}

impl Settings {
    /// With slots of this length.
    pub fn rules(&self, slot_ms: u64) -> Rules {
        Rules {
            bounds: self.reservations.bounds(),
            slot_ms,
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
        let rules = ctx.settings.rules(ctx.slot_ms(&bus).await?);
        let mark = Mark::default();
        let queries = Queries::new(ctx.subjects())
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
        let sink = store::sink(pool, cell).on_drift(ctx.on_drift());
        tokio::try_join!(
            ctx.decide::<Scheduler>(&bus, Deciding::on_ledger(rules, vec![mark.clone()])),
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
        chassis::check_sample::<super::Settings>(include_str!("../config.example.toml"));
    }

    #[test]
    fn what_is_not_set_is_as_the_rules_have_it() {
        let default = super::domain::Rules::default();
        let rules = super::Settings::default().rules(default.slot_ms);
        assert_eq!(rules, default);
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused_at_boot_by_name() {
        let sample = include_str!("../config.example.toml");
        let unfit = sample.replace("ttl_slots_max = 86400", "ttl_slots_max = 0");
        let refusal = chassis::Config::<super::Settings>::from_toml(&unfit).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "(inline): `service.reservations`: ttl_slots_max is 0, must be at least 1"
        );
    }
}
