//! Every instrument of the service.

use chassis::{Metric, Metrics, metrics::Fraction};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

const ROWS_INSERTED: Metric = Metric::counter(
    "apportion_rows_inserted_total",
    "Rows of batches that were applied, by table of ClickHouse",
)
.by(&["table"]);
const SAMPLES_DROPPED: Metric = Metric::counter(
    "apportion_samples_dropped_total",
    "Samples of nodes that ClickHouse did not take, or that were too many at once",
);
const BATCHES: Metric = Metric::counter("apportion_batches_total", "Batches applied to ClickHouse");
const RECEIVED_LSN: Metric = Metric::gauge(
    "apportion_received_lsn",
    "Position on the ledger of the last frame that was folded, and need not be applied yet",
);
const APPLIED_AGE_SECONDS: Metric = Metric::gauge(
    "apportion_applied_age_seconds",
    "Age of the last applied frame when it was applied, by the cell's clock",
);
pub(crate) const CLICKHOUSE_DISK_USED_BYTES: Metric = Metric::gauge(
    "apportion_clickhouse_disk_used_bytes",
    "What is used, by whomever, of ClickHouse's disk",
);
pub(crate) const CLICKHOUSE_DISK_BYTES: Metric = Metric::gauge(
    "apportion_clickhouse_disk_bytes",
    "Size of ClickHouse's disk",
);

pub(crate) const BILL_AMOUNT: Metric = Metric::gauge(
    "apportion_bill_amount",
    "Amount of the current month's bill up to now, of all tenants, in the currency",
)
.by(&["currency"]);
pub(crate) const TENANT_BILL_AMOUNT: Metric = Metric::gauge(
    "apportion_tenant_bill_amount",
    "Amount of a tenant's bill of the current month up to now, in the currency; of the 200 tenants with the largest amounts",
)
.by(&["tenant", "currency"]);

/// What this service exports beside what all do.
pub const METRICS: &[&Metric] = &[
    &ROWS_INSERTED,
    &SAMPLES_DROPPED,
    &BATCHES,
    &RECEIVED_LSN,
    &APPLIED_AGE_SECONDS,
    &CLICKHOUSE_DISK_USED_BYTES,
    &CLICKHOUSE_DISK_BYTES,
    &BILL_AMOUNT,
    &TENANT_BILL_AMOUNT,
];

/// How far the rows are, and what it took.
#[derive(Debug, Clone)]
pub struct Instruments {
    pub rows: TableRows,
    pub samples_dropped: Counter,
    pub batches: Counter,
    pub received: Gauge,
    pub applied_age_seconds: Fraction,
}

impl Instruments {
    pub fn register(m: &Metrics) -> Self {
        Self {
            rows: TableRows(m.register(&ROWS_INSERTED, Family::default())),
            samples_dropped: m.counter(&SAMPLES_DROPPED),
            batches: m.counter(&BATCHES),
            received: m.gauge(&RECEIVED_LSN),
            applied_age_seconds: m.fraction(&APPLIED_AGE_SECONDS),
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
