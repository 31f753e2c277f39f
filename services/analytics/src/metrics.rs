//! Every instrument of the service.

use chassis::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

/// How far the rows are, and what it took.
#[derive(Debug, Clone)]
pub struct Instruments {
    pub rows: Rows,
    pub batches: Counter,
    pub retries: Counter,
    pub position: Gauge,
    pub received: Gauge,
    pub lag_ms: Gauge,
}

impl Instruments {
    pub fn register(metrics: &Metrics) -> Self {
        Self {
            rows: Rows(metrics.register(
                "rows_inserted",
                "Rows of applied batches, by table",
                Family::default(),
            )),
            batches: metrics.counter("batches", "Batches applied"),
            retries: metrics.counter("retries", "Times that the bus or the sink was tried again"),
            position: metrics.gauge(
                "position_lsn",
                "Ledger position up to which the tables are complete",
            ),
            received: metrics.gauge(
                "received_lsn",
                "Ledger position up to which frames are folded",
            ),
            lag_ms: metrics.gauge(
                "lag_ms",
                "Age of the last applied frame when it was applied, by the recorded clock",
            ),
        }
    }
}

/// Rows by table.
#[derive(Debug, Clone, Default)]
pub struct Rows(Family<Table, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Table {
    table: &'static str,
}

impl Rows {
    pub fn inserted(&self, table: &'static str, rows: u64) {
        self.0.get_or_create(&Table { table }).inc_by(rows);
    }
}
