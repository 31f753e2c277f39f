//! What a service looks at all the time to say how it is: whether it has read what stands on the ledger, whether the bus can
//! store, and whether the machine's clock is believable.

mod clock;
mod reader;
mod store;

pub(crate) use clock::{CLOCK_AHEAD_SECONDS, CLOCK_STEPS};
pub use reader::{Behind, Follower};
pub(crate) use reader::{Followers, LEDGER_END};

pub(crate) use store::{BUS_STORE_BYTES, BUS_STORE_LIMIT_BYTES, BUS_STORES};

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use crate::monitor::Monitor;
use crate::service::Context;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tasks that end with their service.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Vec<AbortOnDropHandle<()>>>);

impl Watches {
    pub(crate) fn begin(&self, watch: impl Future<Output = ()> + Send + 'static) {
        let task = AbortOnDropHandle::new(tokio::spawn(watch));
        // A push leaves it whole.
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
    }
}

impl<T> Context<T> {
    /// Registers one who reads the ledger; whoever is behind for long shows in the component `reader`. A service is not ready
    /// by a ledger that nobody reads yet.
    pub fn follower(&self, name: &'static str, behind: Behind) -> Follower {
        self.health.component(name);
        self.health.component("ledger").ready();
        self.followers.register(name, behind)
    }

    pub(crate) fn watch_reader(&self, bus: &ledger_nats::jetstream::JetStreamBus) {
        let component = self.health.component("reader");
        let watch = reader::watch(
            bus.clone(),
            self.followers.clone(),
            component,
            reader::Gauges {
                ledger_end: self.metrics.gauge(&LEDGER_END),
                lag_seconds: self.projections.lag_seconds.clone(),
            },
            self.unfit.clone(),
        );
        self.watches.begin(watch);
    }

    pub(crate) fn watch_store(&self, monitor: Monitor) {
        let component = self.health.component("bus_store");
        let gauges = store::Gauges::new(&self.metrics);
        self.watches.begin(store::watch(monitor, component, gauges));
    }

    pub(crate) fn watch_clock(&self) {
        let component = self.health.component("clock");
        let ahead = self.metrics.fraction(&CLOCK_AHEAD_SECONDS);
        let steps = self.metrics.counter(&CLOCK_STEPS);
        component.ready();
        let watch = clock::watch(self.clock.clone(), component, ahead, steps);
        self.watches.begin(watch);
    }
}
