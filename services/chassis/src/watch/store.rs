//! Whether the bus can store what is published, and how much room it has left. A stream that a full disk has closed answers
//! nobody, so its server is asked.

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;

use crate::health::ComponentHandle;
use crate::metrics::{Metric, Metrics};
use crate::monitor::Monitor;

/// Real time between looks. The server counts its streams for each.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// What its health says of a stream that a failed write has closed, and of storage that it has given up.
const CANNOT_STORE: [&str; 4] = ["write error", "no space left", "not enabled", "disabled"];

pub(crate) const BUS_STORES: Metric = Metric::gauge(
    "apportion_bus_stores",
    "1 while the bus can store what is published, 0 while it cannot",
);
pub(crate) const BUS_STORE_BYTES: Metric =
    Metric::gauge("apportion_bus_store_bytes", "What the bus has stored");
pub(crate) const BUS_STORE_LIMIT_BYTES: Metric =
    Metric::gauge("apportion_bus_store_limit_bytes", "What the bus may store");

pub(super) struct Gauges {
    stores: Gauge,
    bytes: Gauge,
    limit_bytes: Gauge,
}

impl Gauges {
    pub fn new(m: &Metrics) -> Self {
        Self {
            stores: m.gauge(&BUS_STORES),
            bytes: m.gauge(&BUS_STORE_BYTES),
            limit_bytes: m.gauge(&BUS_STORE_LIMIT_BYTES),
        }
    }
}

/// What a look has found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Stores,
    /// The server's words.
    Fails(String),
    /// Publishes are refused until there is room, and then they are not.
    Full,
    /// Something else is wrong with it, by its own words.
    Unwell(String),
}

impl Found {
    fn of(error: Option<String>, bytes: u64, limit_bytes: u64) -> Self {
        match error {
            Some(error) if CANNOT_STORE.iter().any(|words| error.contains(words)) => {
                Self::Fails(error)
            }
            _ if limit_bytes > 0 && bytes >= limit_bytes => Self::Full,
            Some(error) => Self::Unwell(error),
            None => Self::Stores,
        }
    }
}

pub(super) async fn watch(monitor: Monitor, component: ComponentHandle, gauges: Gauges) {
    loop {
        look(&monitor, &component, &gauges).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(monitor: &Monitor, component: &ComponentHandle, gauges: &Gauges) {
    let (Some(health), Some(jetstream)) = (monitor.health().await, monitor.jetstream().await)
    else {
        // Whether it is there at all is said by the connection.
        return component.degraded("the bus's monitoring page does not answer");
    };
    let (bytes, limit_bytes) = (jetstream.storage, jetstream.config.max_storage);
    let found = Found::of(health.error, bytes, limit_bytes);
    let number = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    gauges.bytes.set(number(bytes));
    gauges.limit_bytes.set(number(limit_bytes));
    let stores = !matches!(found, Found::Fails(_) | Found::Full);
    gauges.stores.set(i64::from(stores));
    match found {
        Found::Stores => component.filled("the bus's store", bytes, limit_bytes),
        Found::Fails(why) => component.not_ready(format!("the bus cannot store: {why}")),
        Found::Full => component.not_ready(format!(
            "the bus cannot store: it has the {limit_bytes} bytes that it may (max_file_store)"
        )),
        Found::Unwell(why) => component.degraded(format!("the bus says: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_that_cannot_store_is_told_from_one_that_is_unwell() {
        let full =
            "JetStream stream 'LEDGER > L' write error: write 1.blk: no space left on device";
        let behind = "JetStream is not current with the meta leader";
        let table: [(Option<&str>, u64, u64, Found); 8] = [
            (None, 0, 100, Found::Stores),
            (None, 99, 100, Found::Stores),
            (None, 100, 100, Found::Full),
            (None, 0, 0, Found::Stores),
            (Some(full), 5, 100, Found::Fails(full.to_owned())),
            (Some(full), 100, 100, Found::Fails(full.to_owned())),
            (Some(behind), 5, 100, Found::Unwell(behind.to_owned())),
            (Some(behind), 100, 100, Found::Full),
        ];
        for (error, bytes, limit, expected) in table {
            let found = Found::of(error.map(str::to_owned), bytes, limit);
            assert_eq!(found, expected, "{error:?}, {bytes} of {limit}");
        }
    }
}
