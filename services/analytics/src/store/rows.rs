//! The rows of the tables, as ClickHouse wants them.

use crate::domain::{Change, Entry, Fact, Interval, Rate};
use clickhouse::Row;
use ledger::Batch;
use serde::Serialize;
use std::marker::PhantomData;
use table::{
    Table,
    clickhouse::{Row as _, Seconds},
};
use uuid::Uuid;
use vocab::{CellNo, HOUR_MS, Lsn, Millis, Token};

/// Without partitions: a block that falls into several lands in several steps, and then a kill could leave half of it. A
/// token is known as long as it is among the last so many blocks.
const SETTINGS: &str =
    "non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1";

/// Every table, in the order in which they are made.
pub const TABLES: &[&table::clickhouse::Table] = &[
    RangeRow::TABLE,
    IntervalRow::TABLE,
    EntryRow::TABLE,
    RateRow::TABLE,
    UsageRow::TABLE,
];

/// Which range of the ledger is in the other tables. A range is recorded as begun before its rows are sent, so that a
/// restart sends exactly the same rows with the same tokens, and as applied after the last of them has landed.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "ledger_ranges")]
#[table(clickhouse(order_by(to_lsn, state), settings = SETTINGS))]
pub struct RangeRow {
    /// Which ledger: its time of creation, Unix nanoseconds.
    pub ledger: i64,
    /// The range begins behind it.
    pub after_lsn: Lsn,
    /// The last position of the range.
    pub to_lsn: Lsn,
    /// begun or applied.
    #[table(low_cardinality)]
    pub state: &'static str,
    /// Rows of the range in that table.
    pub allocation_intervals: u64,
    /// Rows of the range in that table.
    pub node_entries: u64,
    /// Rows of the range in that table.
    pub rates: u64,
    /// Of what stands at the end of the range, SHA-256 as hexadecimal digits; empty if nobody knows.
    pub digest: String,
    /// By the server's clock.
    #[serde(skip_serializing)]
    #[table(default = "now64(3)")]
    pub recorded_at: PhantomData<Millis>,
}

/// Every run that is over: who used what, where, from when to when. The facts of the bill.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "allocation_intervals")]
#[table(clickhouse(order_by(tenant, started_at, lsn, event_index), settings = SETTINGS))]
pub struct IntervalRow {
    /// Where in the ledger the end of the run is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    #[table(low_cardinality)]
    pub tenant: Token,
    pub job_set: Token,
    /// Empty when the request had none.
    pub name: String,
    #[table(low_cardinality)]
    pub node: Token,
    /// Counts the lives of the node.
    pub incarnation: u64,
    /// Of the node; empty when it has none.
    #[table(low_cardinality)]
    pub gpu_model: String,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Thousandths of a GPU.
    pub gpu_milli: u64,
    /// The first moment that was used.
    pub started_at: Millis,
    /// The first moment that was not used any more.
    pub ended_at: Millis,
    /// Why the run ended.
    #[table(low_cardinality)]
    pub cause: &'static str,
}

/// The books of the nodes: from a moment on, an account of the node has this much more. At every moment allocated,
/// reserved, idle and unavailable add up to capacity; the view node_segments adds up the entries.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "node_entries")]
#[table(clickhouse(
    order_by(node, incarnation, at, lsn, event_index, part),
    settings = SETTINGS
))]
pub struct EntryRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// Counts the entries of the event.
    pub part: u32,
    #[table(low_cardinality)]
    pub node: Token,
    /// Counts the lives of the node.
    pub incarnation: u64,
    /// Of the node; empty when it has none.
    #[table(low_cardinality)]
    pub gpu_model: String,
    /// Whose run it is about, if it is about one.
    #[serde(with = "clickhouse::serde::uuid::option")]
    pub allocation: Option<Uuid>,
    /// capacity, allocated, reserved, idle or unavailable.
    #[table(low_cardinality)]
    pub account: &'static str,
    /// From when on.
    pub at: Millis,
    /// Thousandths of a core; less than 0 is taken off.
    pub cpu_milli: i128,
    /// Less than 0 is taken off.
    pub memory_bytes: i128,
    /// Thousandths of a GPU; less than 0 is taken off.
    pub gpu_milli: i128,
}

/// Prices.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "rates")]
#[table(clickhouse(order_by(resource, effective_from, version), settings = SETTINGS))]
pub struct RateRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// cpu, memory, gpu or gpu:<model>.
    #[table(low_cardinality)]
    pub resource: String,
    /// From when on it is the price.
    pub effective_from: Millis,
    /// Of several for one moment, the highest counts.
    pub version: u64,
    /// Millionths of the currency per core, GiB or GPU and hour.
    pub micro_per_unit_hour: u64,
}

/// Use by the hour, exact to the millisecond, made of the intervals by a materialized view. Sum over it: rows of one key
/// may not be merged yet.
#[derive(Debug, Clone, PartialEq, Eq, Table)]
#[table(name = "usage_hourly")]
#[table(clickhouse(
    engine = "SummingMergeTree((quantity, ms))",
    order_by(tenant, hour, resource, job_set),
    settings = SETTINGS
))]
pub struct UsageRow {
    #[table(low_cardinality)]
    pub tenant: Token,
    pub job_set: Token,
    /// Its beginning.
    pub hour: Seconds,
    /// cpu, memory, gpu or gpu:<model>.
    #[table(low_cardinality)]
    pub resource: String,
    /// Millicore-, byte- or milli-GPU-milliseconds.
    pub quantity: u128,
    /// Milliseconds of allocations that had some of it.
    pub ms: u64,
}

/// The rows of one batch, by table.
#[derive(Debug, Default)]
pub struct Rows {
    pub intervals: Vec<IntervalRow>,
    pub entries: Vec<EntryRow>,
    pub rates: Vec<RateRow>,
}

fn text(token: Option<&Token>) -> String {
    token.map_or_else(String::new, Token::to_string)
}

impl Rows {
    pub fn of(cell: CellNo, changes: &[Change]) -> Self {
        let mut rows = Self::default();
        for change in changes {
            match &change.fact {
                Fact::Interval(interval) => {
                    rows.intervals.push(interval_row(cell, change, interval))
                }
                Fact::Entry(entry) => rows.entries.push(entry_row(cell, change, entry)),
                Fact::Rate(rate) => rows.rates.push(rate_row(change, rate)),
            }
        }
        rows
    }

    pub fn range(&self, batch: &Batch<Change>, state: &'static str) -> RangeRow {
        RangeRow {
            ledger: batch.ledger.0,
            after_lsn: batch.after,
            to_lsn: batch.to,
            state,
            allocation_intervals: self.intervals.len() as u64,
            node_entries: self.entries.len() as u64,
            rates: self.rates.len() as u64,
            digest: batch.digest.map_or_else(String::new, |d| d.to_string()),
            recorded_at: PhantomData,
        }
    }
}

fn interval_row(cell: CellNo, change: &Change, interval: &Interval) -> IntervalRow {
    IntervalRow {
        lsn: change.lsn,
        event_index: change.index,
        allocation: interval.allocation.id(cell).0,
        tenant: interval.tenant.clone(),
        job_set: interval.job_set.clone(),
        name: text(interval.name.as_ref()),
        node: interval.node.clone(),
        incarnation: interval.incarnation,
        gpu_model: text(interval.gpu_model.as_ref()),
        cpu_milli: interval.cpu_milli,
        memory_bytes: interval.memory_bytes,
        gpu_milli: interval.gpu_milli,
        started_at: interval.started_at,
        ended_at: interval.ended_at,
        cause: interval.cause.name(),
    }
}

fn entry_row(cell: CellNo, change: &Change, entry: &Entry) -> EntryRow {
    EntryRow {
        lsn: change.lsn,
        event_index: change.index,
        part: change.part,
        node: entry.node.clone(),
        incarnation: entry.incarnation,
        gpu_model: text(entry.gpu_model.as_ref()),
        allocation: entry.allocation.map(|allocation| allocation.id(cell).0),
        account: entry.account.name(),
        at: entry.at,
        cpu_milli: entry.amounts.cpu_milli,
        memory_bytes: entry.amounts.memory_bytes,
        gpu_milli: entry.amounts.gpu_milli,
    }
}

fn rate_row(change: &Change, rate: &Rate) -> RateRow {
    RateRow {
        lsn: change.lsn,
        event_index: change.index,
        resource: rate.resource.to_string(),
        effective_from: rate.effective_from,
        version: rate.version,
        micro_per_unit_hour: rate.micro_per_unit_hour,
    }
}

/// Weighs a row by what its INSERT makes in all tables, so that a chunk stays one block in each of them.
pub trait Weigh {
    fn weight(&self) -> usize {
        1
    }
}

impl Weigh for EntryRow {}
impl Weigh for RateRow {}
impl Weigh for RangeRow {}

impl Weigh for IntervalRow {
    /// Its lines in `usage_hourly`: three per hour that it touches.
    fn weight(&self) -> usize {
        let hours =
            (self.ended_at.0 - 1).div_euclid(HOUR_MS) - self.started_at.0.div_euclid(HOUR_MS);
        usize::try_from(hours.saturating_add(1)).map_or(3, |hours| hours.saturating_mul(3))
    }
}

/// Cuts rows into chunks of at most `weight_max`, or one row. The same rows give the same chunks: a repeat must send
/// what was sent before.
pub fn chunks<R: Weigh>(rows: &[R], weight_max: usize) -> Vec<&[R]> {
    let mut chunks = Vec::new();
    let (mut from, mut weight) = (0, 0usize);
    for (index, row) in rows.iter().enumerate() {
        let next = weight.saturating_add(row.weight());
        if next > weight_max && from < index {
            chunks.push(&rows[from..index]);
            (from, weight) = (index, row.weight());
        } else {
            weight = next;
        }
    }
    if from < rows.len() {
        chunks.push(&rows[from..]);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Weight(usize);

    impl Weigh for Weight {
        fn weight(&self) -> usize {
            self.0
        }
    }

    fn check(weights: &[usize], expected: &[usize]) {
        let rows: Vec<Weight> = weights.iter().copied().map(Weight).collect();
        let lengths: Vec<usize> = chunks(&rows, 10).iter().map(|chunk| chunk.len()).collect();
        assert_eq!(lengths, expected, "{weights:?}");
    }

    #[test]
    fn a_chunk_is_as_full_as_it_may_be() {
        check(&[], &[]);
        check(&[1], &[1]);
        check(&[4, 6, 1], &[2, 1]);
        check(&[4, 7, 3], &[1, 2]);
        // One row cannot be cut.
        check(&[99], &[1]);
        check(&[1, 99, 99, 1], &[1, 1, 1, 1]);
        check(&[10, 10, 1, 9], &[1, 1, 2]);
        check(&[usize::MAX, usize::MAX], &[1, 1]);
    }
}
