//! Every instrument of the service.

use chassis::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

/// How far the rows are, and what it took. The `projection_` names are those of every service's projection.
#[derive(Debug, Clone)]
pub struct Instruments {
    pub rows: TableRows,
    pub samples_dropped: Counter,
    pub batches: Counter,
    pub changes: Counter,
    pub retries: Counter,
    pub position: Gauge,
    pub received: Gauge,
    pub lag_ms: Gauge,
}

impl Instruments {
    pub fn register(m: &Metrics) -> Self {
        Self {
            rows: TableRows(m.register(
                "rows_inserted",
                "Rows of applied batches, by table",
                Family::default(),
            )),
            samples_dropped: m.counter(
                "samples_dropped",
                "Samples of nodes that ClickHouse did not take, or that were too many at once",
            ),
            batches: m.counter("batches", "Batches applied"),
            changes: m.counter("projection_changes", "Changes applied by the projection"),
            retries: m.counter(
                "projection_retries",
                "Times that sink or bus were tried again",
            ),
            position: m.gauge("projection_lsn", "Position that the projection has applied"),
            received: m.gauge("received_lsn", "Position of the last frame that was folded"),
            lag_ms: m.gauge(
                "lag_ms",
                "Age of the last applied frame when it was applied, by the recorded clock",
            ),
        }
    }
}

/// Rows by table.
#[derive(Debug, Clone, Default)]
pub struct TableRows(Family<Table, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Table {
    table: &'static str,
}

impl TableRows {
    pub fn inserted(&self, table: &'static str, rows: usize) {
        self.0.get_or_create(&Table { table }).inc_by(rows as u64);
    }
}
