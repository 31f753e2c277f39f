//! The rows of the tables, as ClickHouse wants them.

use crate::domain::{
    Amounts, Booked, Capacity, Change, Fact, Hour, Interval, Line, Rate, Transfer, Used, booked,
    in_one_row, used,
};
use clickhouse::Row;
use compact_str::CompactString;
use ledger::Batch;
use serde::Serialize;
use std::marker::PhantomData;
use table::{
    Table,
    clickhouse::{Row as _, Seconds, Value},
};
use uuid::Uuid;
use vocab::{CellNo, HOUR_MS, Lsn, Millis, ResourceKey, Token};

/// Without partitions: a block that falls into several lands in several steps, and then a kill could leave half of it. A
/// token is known as long as it is among the last so many blocks. Nothing is synced: what a power cut takes is noticed and
/// comes from the ledger again, and the server is to start with however many parts are broken.
const SETTINGS: &str =
    "non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000";

/// Every table, in the order in which they are made. The two that get rows for each run keep no dictionaries of their texts:
/// making them costs an INSERT more than all the rest.
pub const TABLES: &[&table::clickhouse::Table] = &[
    RangeRow::TABLE,
    IntervalRow::TABLE,
    TransferRow::TABLE,
    CapacityRow::TABLE,
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
    pub node_transfers: u64,
    /// Rows of the range in that table.
    pub node_capacities: u64,
    /// Rows of the range in that table.
    pub rates: u64,
    /// Milliseconds of the range's rows in usage_hourly. Rows of one key become one there, so that rows cannot be counted.
    pub usage_ms: u64,
    /// What the transfers of the range say was allocated, of all nodes: resource, hour, how much more at the end of the hour
    /// than at its beginning, and that times the rest of the hour. Made of the transfers, and not of the runs.
    pub allocated: Allocated,
    /// Of what stands at the end of the range, SHA-256 as hexadecimal digits; empty if nobody knows.
    pub digest: String,
    /// By the server's clock.
    #[serde(skip_serializing)]
    #[table(default = "now64(3)")]
    pub recorded_at: PhantomData<Millis>,
}

/// [`Booked`], by resource and hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Allocated(Vec<(String, u32, i128, i128)>);

impl Value for Allocated {
    const TYPE: &'static str = "Array(Tuple(String, DateTime('UTC'), Int128, Int128))";
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
    pub tenant: Token,
    pub job_set: Token,
    /// Empty when the request had none.
    pub name: CompactString,
    pub node: Token,
    /// Counts the lives of the node.
    pub incarnation: u64,
    /// Of the node; empty when it has none.
    pub gpu_model: CompactString,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Thousandths of a GPU.
    pub gpu_milli: u64,
    /// The first moment that it was reserved.
    pub placed_at: Millis,
    /// The first moment that was used.
    pub started_at: Millis,
    /// The first moment that was not used any more.
    pub ended_at: Millis,
    /// The first moment that was not reserved any more.
    pub released_at: Millis,
    /// The run's transfers, from idle to reserved, to allocated, and back, are in this row and not in node_transfers.
    pub whole: bool,
    /// Why the run ended.
    pub cause: &'static str,
}

/// The books of the nodes, without the runs that are whole in allocation_intervals: from a moment on, so much is no longer
/// in the one account but in the other. The view node_entries has all of them, and node_segments adds them up.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "node_transfers")]
#[table(clickhouse(order_by(node, incarnation, at, lsn, event_index), settings = SETTINGS))]
pub struct TransferRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    pub node: Token,
    /// Counts the lives of the node.
    pub incarnation: u64,
    /// Of the node; empty when it has none.
    pub gpu_model: CompactString,
    /// Whose run it is about; all zeros when it is about none.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// outside, allocated, reserved, idle or unavailable.
    pub from_account: &'static str,
    /// Of the same names.
    pub to_account: &'static str,
    /// From when on.
    pub at: Millis,
    /// Thousandths of a core; less than 0 is the other way.
    pub cpu_milli: i64,
    /// Less than 0 is the other way.
    pub memory_bytes: i64,
    /// Thousandths of a GPU; less than 0 is the other way.
    pub gpu_milli: i64,
}

/// What the nodes have in all, from a moment on: at every moment, allocated, reserved, idle and unavailable of the node add
/// up to it.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "node_capacities")]
#[table(clickhouse(
    order_by(node, incarnation, lsn, event_index, part),
    settings = SETTINGS
))]
pub struct CapacityRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// Counts what is said by the event.
    pub part: u32,
    #[table(low_cardinality)]
    pub node: Token,
    /// Counts the lives of the node. An older one has what is still held of it.
    pub incarnation: u64,
    /// From when on.
    pub at: Millis,
    /// Thousandths of a core.
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// Thousandths of a GPU.
    pub gpu_milli: i64,
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

/// Use by the hour, exact to the millisecond, summed from each batch's intervals. Sum over it: every batch has a row of its
/// own until the server merges them.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
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
#[derive(Debug)]
pub struct Rows {
    pub intervals: Vec<IntervalRow>,
    pub transfers: Vec<TransferRow>,
    pub capacities: Vec<CapacityRow>,
    pub rates: Vec<RateRow>,
    pub usage: Vec<UsageRow>,
    allocated: Allocated,
}

fn text(token: Option<&Token>) -> CompactString {
    token.map_or_else(CompactString::default, |token| token.clone().into())
}

impl Rows {
    /// The same changes give the same rows in the same order.
    pub fn of(cell: CellNo, changes: &[Change]) -> Self {
        let whole = in_one_row(changes);
        let is_interval = |change: &&Change| matches!(change.fact, Fact::Interval(_));
        let mut rows = Self {
            // Room that grows is copied, and new to the system each time.
            intervals: Vec::with_capacity(changes.iter().filter(is_interval).count()),
            transfers: Vec::new(),
            capacities: Vec::new(),
            rates: Vec::new(),
            usage: used(changes).into_iter().map(usage_row).collect(),
            allocated: Allocated(booked(changes).into_iter().map(allocated).collect()),
        };
        for (change, whole) in changes.iter().zip(whole) {
            match &change.fact {
                Fact::Interval(run) => {
                    (rows.intervals).push(interval_row(cell, change, run, whole));
                }
                Fact::Transfer(_) if whole => {}
                Fact::Transfer(transfer) => {
                    rows.transfers.push(transfer_row(cell, change, transfer));
                }
                Fact::Capacity(capacity) => rows.capacities.push(capacity_row(change, capacity)),
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
            node_transfers: self.transfers.len() as u64,
            node_capacities: self.capacities.len() as u64,
            rates: self.rates.len() as u64,
            usage_ms: self.usage.iter().map(|row| row.ms).sum(),
            allocated: self.allocated.clone(),
            digest: batch.digest.map_or_else(String::new, |d| d.to_string()),
            recorded_at: PhantomData,
        }
    }

    /// How many there are, by table.
    pub fn counts(&self) -> [(&'static str, usize); 5] {
        [
            (IntervalRow::TABLE.name, self.intervals.len()),
            (TransferRow::TABLE.name, self.transfers.len()),
            (CapacityRow::TABLE.name, self.capacities.len()),
            (RateRow::TABLE.name, self.rates.len()),
            (UsageRow::TABLE.name, self.usage.len()),
        ]
    }
}

/// What no column holds is cut to the nearest that it holds: an hour before 1970 or after 2106.
fn seconds(hour: Hour) -> u32 {
    let seconds = hour.0.saturating_mul(HOUR_MS / 1000);
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// What a node has and an allocation asks for is at most 2^50, so more than 2^63 would be held of a node by 8,192 of the
/// largest allocations at once. It would be cut, and the node is overdrawn in `conservation` all the same.
fn cut(amounts: &Amounts) -> [i64; 3] {
    [amounts.cpu_milli, amounts.memory_bytes, amounts.gpu_milli].map(|amount| {
        let nearest = if amount < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(amount).unwrap_or(nearest)
    })
}

fn usage_row((line, used): (Line<'_>, Used)) -> UsageRow {
    UsageRow {
        tenant: line.tenant.clone(),
        job_set: line.job_set.clone(),
        hour: Seconds(seconds(line.hour)),
        resource: line.resource.to_string(),
        quantity: used.quantity,
        ms: used.ms,
    }
}

fn allocated(
    ((hour, resource), booked): ((Hour, ResourceKey), Booked),
) -> (String, u32, i128, i128) {
    let Booked { risen, quantity } = booked;
    (resource.to_string(), seconds(hour), risen, quantity)
}

fn interval_row(cell: CellNo, change: &Change, interval: &Interval, whole: bool) -> IntervalRow {
    let Interval { of, moved, .. } = interval;
    // What an allocation asks for is not below 0.
    let [cpu_milli, memory_bytes, gpu_milli] = cut(&moved.amounts).map(i64::unsigned_abs);
    IntervalRow {
        lsn: change.lsn,
        event_index: change.index,
        allocation: interval.allocation.id(cell).0,
        tenant: of.tenant.clone(),
        job_set: of.job_set.clone(),
        name: text(of.name.as_ref()),
        node: moved.node.clone(),
        incarnation: moved.incarnation,
        gpu_model: text(moved.gpu_model.as_ref()),
        cpu_milli,
        memory_bytes,
        gpu_milli,
        placed_at: interval.placed_at,
        started_at: interval.started_at,
        ended_at: interval.ended_at,
        released_at: interval.released_at,
        whole,
        cause: interval.cause.name(),
    }
}

fn transfer_row(cell: CellNo, change: &Change, transfer: &Transfer) -> TransferRow {
    let moved = &transfer.moved;
    let [cpu_milli, memory_bytes, gpu_milli] = cut(&moved.amounts);
    TransferRow {
        lsn: change.lsn,
        event_index: change.index,
        node: moved.node.clone(),
        incarnation: moved.incarnation,
        gpu_model: text(moved.gpu_model.as_ref()),
        allocation: (moved.allocation).map_or(Uuid::nil(), |allocation| allocation.id(cell).0),
        from_account: transfer.from.name(),
        to_account: transfer.to.name(),
        at: transfer.at,
        cpu_milli,
        memory_bytes,
        gpu_milli,
    }
}

fn capacity_row(change: &Change, capacity: &Capacity) -> CapacityRow {
    let [cpu_milli, memory_bytes, gpu_milli] = cut(&capacity.amounts);
    CapacityRow {
        lsn: change.lsn,
        event_index: change.index,
        part: change.part,
        node: capacity.node.clone(),
        incarnation: capacity.incarnation,
        at: capacity.at,
        cpu_milli,
        memory_bytes,
        gpu_milli,
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
