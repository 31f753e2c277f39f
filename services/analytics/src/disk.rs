//! How full ClickHouse's disk is, said before an INSERT fails on it.

use crate::metrics::{CLICKHOUSE_DISK_BYTES, CLICKHOUSE_DISK_USED_BYTES};
use crate::store::{DiskSpace, Store};
use chassis::{ComponentHandle, Metrics};
use prometheus_client::metrics::gauge::Gauge;
use std::{convert::Infallible, time::Duration};

/// Real time between looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub struct Disk {
    store: Store,
    health: ComponentHandle,
    used_bytes: Gauge,
    size_bytes: Gauge,
}

impl Disk {
    pub fn new(store: Store, health: ComponentHandle, metrics: &Metrics) -> Self {
        health.degraded("not looked at yet");
        Self {
            store,
            health,
            used_bytes: metrics.gauge(&CLICKHOUSE_DISK_USED_BYTES),
            size_bytes: metrics.gauge(&CLICKHOUSE_DISK_BYTES),
        }
    }

    pub async fn watch(self) -> Infallible {
        loop {
            self.look().await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&self) {
        match self.store.disk().await {
            Ok(DiskSpace { used, size }) => {
                self.used_bytes.set(i64::try_from(used).unwrap_or(i64::MAX));
                self.size_bytes.set(i64::try_from(size).unwrap_or(i64::MAX));
                self.health.filled("ClickHouse's disk", used, size);
            }
            Err(error) => self
                .health
                .degraded(format!("how full its disk is is not known: {error}")),
        }
    }
}
