//! The rows of the tables, as ClickHouse wants them.

use super::samples::SampleRow;
use crate::domain::{
    Account, Amounts, Booked, BudgetChange, Capacity, Change, Clock, Closed, Condition, Denial,
    Fact, Hour, Interval, Line, Owner, Payer, Preemption, Rate, Running, Shelf, Transfer, Unplaced,
    Used, in_one_row, key,
};
use clickhouse::Row;
use ledger::Batch;
use serde::Serialize;
use smol_str::SmolStr;
use std::marker::PhantomData;
use table::{
    Table,
    clickhouse::{Day, Greatest, Least, Row as _, Seconds, Sum, Texts},
};
use uuid::Uuid;
use vocab::{AllocationNo, CellNo, DAY_MS, HOUR_MS, Lsn, Millis, Month, ResourceKind, Token};

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
    RunningRow::TABLE,
    UnplacedRow::TABLE,
    PreemptionRow::TABLE,
    DenialRow::TABLE,
    TransferRow::TABLE,
    CapacityRow::TABLE,
    ConditionRow::TABLE,
    RateRow::TABLE,
    BudgetRow::TABLE,
    PeriodRow::TABLE,
    UsageRow::TABLE,
    BookedRow::TABLE,
    CellRow::TABLE,
    SampleRow::TABLE,
];

/// Those that are made of the ledger, and are emptied and filled together.
pub(super) fn of_ledger() -> impl DoubleEndedIterator<Item = &'static table::clickhouse::Table> {
    let all = TABLES.iter().copied();
    all.filter(|table| table.name != SampleRow::NAME)
}

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
    /// Of the range's rows in that table, where two of one run go away together: the sum of sign times the run's checksum.
    pub running_allocations: i128,
    /// Rows of the range in that table.
    pub unplaced_allocations: u64,
    /// Rows of the range in that table.
    pub preemptions: u64,
    /// Rows of the range in that table.
    pub quota_denials: u64,
    /// Rows of the range in that table.
    pub node_transfers: u64,
    /// Rows of the range in that table.
    pub node_capacities: u64,
    /// Rows of the range in that table.
    pub node_conditions: u64,
    /// Rows of the range in that table.
    pub rates: u64,
    /// Rows of the range in that table.
    pub budgets: u64,
    /// Rows of the range in that table.
    pub closed_periods: u64,
    /// Milliseconds of the range's rows in usage_hourly. Rows of one key become one there, so that rows cannot be counted.
    pub usage_ms: i64,
    /// Transfers of the range's rows in capacity_hourly, where rows of one key become one, too.
    pub capacity_transfers: u64,
    /// The latest moment that the ledger has said up to the end of the range; 1970 in a range without an event that counts.
    pub clock: Millis,
    /// A full hour: what runs is in usage_hourly up to here.
    pub accrued_to: Millis,
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
    /// The allocation, as tenants know it.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// Of the request; empty when it had none.
    pub operation_id: SmolStr,
    /// Who pays.
    pub tenant: Token,
    /// Of the tenant; empty when the request had none.
    pub team: SmolStr,
    /// Of the team; empty when the request had none.
    pub namespace: SmolStr,
    /// Where it waited; the tenant's own queue has its name.
    pub queue: Token,
    /// What it is a part of.
    pub job_set: Token,
    /// Empty when the request had none.
    pub priority_class: SmolStr,
    /// Empty when it was in none.
    pub gang: SmolStr,
    /// Empty when the request had none.
    pub name: SmolStr,
    /// The tenant's own words about it, by name.
    pub labels: Texts,
    /// Counts the tries of the allocation, from 1.
    pub attempt: u32,
    /// Where it ran.
    pub node: Token,
    /// Counts the lives of the node.
    pub incarnation: u64,
    /// The node's label cluster; empty when it has none.
    pub cluster: SmolStr,
    /// The node's label zone; empty when it has none.
    pub zone: SmolStr,
    /// The node's label pool; empty when it has none.
    pub pool: SmolStr,
    /// Of the node; empty when it has none.
    pub gpu_model: SmolStr,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Thousandths of a GPU.
    pub gpu_milli: u64,
    /// When it was requested, or queued again after the try before.
    pub queued_at: Millis,
    /// The last that was said of why it waited; empty when it was placed at once.
    pub wait_reason: &'static str,
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
    /// Why the run ended: finished, failed, cancelled, node_lost, rejected_by_node, preempted, dependency_failed, time_limit or evicted.
    pub cause: &'static str,
    /// Exit code of its command, 0 to 255; -1 when the node's agent said none.
    pub exit_code: i16,
    /// Number of the signal that ended its command; 0 when none did.
    pub exit_signal: u8,
    /// Whether the node's agent has measured what the run used.
    pub measured: bool,
    /// CPU time of all its processes, microseconds; 0 when it was not measured.
    pub cpu_used_us: u64,
    /// The most memory that it had at a time, bytes; 0 when it was not measured.
    pub memory_peak_bytes: u64,
    /// What it wrote to its standard output and error, bytes; 0 when it was not measured.
    pub log_bytes: u64,
}

/// Runs that are under way: a row with the sign 1 at the end of the batch in which it began, and the same with -1 when it is
/// over; the server merges the two away. Runs of less than a batch are not here.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "running_allocations")]
#[table(clickhouse(
    engine = "CollapsingMergeTree(sign)",
    order_by(tenant, allocation, started_at),
    settings = SETTINGS
))]
pub struct RunningRow {
    /// The allocation, as tenants know it.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// Of the request; empty when it had none.
    pub operation_id: SmolStr,
    /// Who pays.
    #[table(low_cardinality)]
    pub tenant: Token,
    /// Of the tenant; empty when the request had none.
    pub team: SmolStr,
    /// Of the team; empty when the request had none.
    pub namespace: SmolStr,
    /// Where it waited; the tenant's own queue has its name.
    pub queue: Token,
    /// What it is a part of.
    pub job_set: Token,
    /// Empty when the request had none.
    pub priority_class: SmolStr,
    /// Empty when the request had none.
    pub name: SmolStr,
    /// Where it runs.
    pub node: Token,
    /// The node's label cluster; empty when it has none.
    pub cluster: SmolStr,
    /// The node's label pool; empty when it has none.
    pub pool: SmolStr,
    /// Of the node; empty when it has none.
    pub gpu_model: SmolStr,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Thousandths of a GPU.
    pub gpu_milli: u64,
    /// The first moment that was used.
    pub started_at: Millis,
    /// Differs from run to run, so that a loss of rows shows though their signs come to nothing.
    pub checksum: u64,
    /// 1: it runs; -1: it does not any more.
    pub sign: i8,
}

/// Allocations that waited for a place and ended without one.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "unplaced_allocations")]
#[table(clickhouse(order_by(tenant, queued_at, lsn, event_index), settings = SETTINGS))]
pub struct UnplacedRow {
    /// Where in the ledger its end is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// The allocation, as tenants know it.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// Of the request; empty when it had none.
    pub operation_id: SmolStr,
    /// Whose it was.
    #[table(low_cardinality)]
    pub tenant: Token,
    /// Of the tenant; empty when the request had none.
    pub team: SmolStr,
    /// Of the team; empty when the request had none.
    pub namespace: SmolStr,
    /// Where it waited; the tenant's own queue has its name.
    pub queue: Token,
    /// What it was a part of.
    pub job_set: Token,
    /// Empty when the request had none.
    pub priority_class: SmolStr,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Thousandths of a GPU.
    pub gpu_milli: u64,
    /// Counts the tries of the allocation, from 1.
    pub attempt: u32,
    /// When it was requested, or queued again after the try before.
    pub queued_at: Millis,
    /// When it ended.
    pub ended_at: Millis,
    /// The last that was said of why it waited; empty when nothing was.
    pub wait_reason: &'static str,
    /// Why it ended.
    pub cause: &'static str,
}

/// Allocations that had to make room.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "preemptions")]
#[table(clickhouse(order_by(at, lsn, event_index), settings = SETTINGS))]
pub struct PreemptionRow {
    /// Where in the ledger the decision is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// When it was decided.
    pub at: Millis,
    /// Who had to go.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// Whose it was.
    #[table(low_cardinality)]
    pub tenant: Token,
    /// Its queue.
    pub queue: Token,
    /// What it was a part of.
    pub job_set: Token,
    /// Empty when the request had none.
    pub priority_class: SmolStr,
    /// Where it ran; empty when it was on no node any more.
    pub node: SmolStr,
    /// priority, fair_share, gang, reservation, quota, drain or taint.
    pub cause: &'static str,
    /// Whom it made room for; all zeros for a reservation.
    #[serde(with = "clickhouse::serde::uuid")]
    pub by_allocation: Uuid,
    /// Whose that is; empty when that is not known any more.
    pub by_tenant: SmolStr,
    /// Empty when it has none.
    pub by_priority_class: SmolStr,
}

/// Allocations that quota let never run, and why. What the scheduler had ended before is nobody's here.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "quota_denials")]
#[table(clickhouse(order_by(tenant, at, lsn, event_index), settings = SETTINGS))]
pub struct DenialRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// When it was denied.
    pub at: Millis,
    /// The allocation, as tenants know it.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// Of the request; empty when it had none.
    pub operation_id: SmolStr,
    /// Whose it was.
    pub tenant: SmolStr,
    /// Of the tenant; empty when the request had none.
    pub team: SmolStr,
    /// Of the team; empty when the request had none.
    pub namespace: SmolStr,
    /// Where it waited; the tenant's own queue has its name.
    pub queue: SmolStr,
    /// What it is a part of.
    pub job_set: SmolStr,
    /// Empty when the request had none.
    pub priority_class: SmolStr,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Thousandths of a GPU.
    pub gpu_milli: u64,
    /// The broken rule: quota_exceeded, quota_never_fits, budget_exhausted and others.
    #[table(low_cardinality)]
    pub rule: &'static str,
    /// What the rule was about: of a quota or a budget, the account and the resource or money.
    pub subject: String,
    /// What the rule allows of the subject, in its unit.
    pub rule_limit: u64,
    /// What it would have come to, in the same unit; of a budget, what was used.
    pub rule_actual: u64,
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
    /// Whose books.
    pub node: Token,
    /// Counts the lives of the node.
    pub incarnation: u64,
    /// Of the node; empty when it has none.
    pub gpu_model: SmolStr,
    /// Whose run it is about; all zeros when it is about none.
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    /// outside, allocated, reserved, idle, cordoned or unavailable.
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

/// What the nodes have in all, from a moment on: at every moment, allocated, reserved, idle, cordoned and unavailable of the
/// node add up to it.
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
    /// What has it.
    #[table(low_cardinality)]
    pub node: Token,
    /// Counts the lives of the node. An older one has what is still held of it.
    pub incarnation: u64,
    /// From when on.
    pub at: Millis,
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
    /// Thousandths of a GPU.
    pub gpu_milli: i64,
}

/// When what began to hold of which node, and when it did not any more. The view node_condition_history says until when.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "node_conditions")]
#[table(clickhouse(order_by(node, condition, lsn, event_index), settings = SETTINGS))]
pub struct ConditionRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// What it is of.
    #[table(low_cardinality)]
    pub node: Token,
    /// Ready, by the cell's judgement; or what its agent names: MemoryPressure, DiskPressure, NetworkUnavailable, or a name of the
    /// site's own.
    #[table(low_cardinality)]
    pub condition: SmolStr,
    /// true, false or unknown. Of Ready, unknown is a node that was silent for half a lease.
    #[table(low_cardinality)]
    pub status: &'static str,
    /// Of Ready: registered, heard, silent, lost or forgotten. Of others what the agent says; empty when it says nothing.
    #[table(low_cardinality)]
    pub reason: SmolStr,
    /// From when on.
    pub at: Millis,
}

/// Prices.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "rates")]
#[table(clickhouse(order_by(resource, tenant, priority_class, pool, cluster, applied_from, version), settings = SETTINGS))]
pub struct RateRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// cpu, memory, gpu or gpu:<model>.
    #[table(low_cardinality)]
    pub resource: String,
    /// Whose use it prices; empty: everybody's.
    #[table(low_cardinality)]
    pub tenant: SmolStr,
    /// Use of which priority class it prices; empty: of all.
    #[table(low_cardinality)]
    pub priority_class: SmolStr,
    /// Use of nodes of which pool it prices; empty: of all.
    #[table(low_cardinality)]
    pub pool: SmolStr,
    /// Use of nodes of which cluster it prices; empty: of all.
    #[table(low_cardinality)]
    pub cluster: SmolStr,
    /// From when on it was to be the price.
    pub effective_from: Millis,
    /// From when on it is the price: what was known before the rate keeps its price, which may be some milliseconds more.
    pub applied_from: Millis,
    /// Counts the rates of the resource and scope.
    pub version: u64,
    /// Millionths of the currency per core, GiB or GPU and hour.
    pub micro_per_unit_hour: u64,
    /// From then on there is no price of this resource and scope, and none that was to come.
    pub withdrawn: bool,
}

/// What accounts may use up in every period. Of an account and what is counted, the row of the highest version counts.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "budgets")]
#[table(clickhouse(order_by(tenant, team, namespace, budget_of, version), settings = SETTINGS))]
pub struct BudgetRow {
    /// Where in the ledger the event is.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// Whose uses are counted, with all that is below the account.
    pub tenant: Token,
    /// Of the tenant; empty when the budget is the whole tenant's.
    pub team: SmolStr,
    /// Of the team; empty when the budget is not a namespace's.
    pub namespace: SmolStr,
    /// What is counted: money, cpu, memory or gpu.
    pub budget_of: &'static str,
    /// Millionths of the currency, or thousandths of a core or GPU, or bytes, times hours; NULL: the budget is taken back.
    pub amount: Option<u64>,
    /// hour, day, week (from Monday on) or month, in UTC; empty when the budget is taken back.
    pub period: &'static str,
    /// When it was set, by the ledger's clock.
    pub set_at: Millis,
    /// Counts what was set of it.
    pub version: u64,
}

/// Months whose bill is final.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "closed_periods")]
#[table(clickhouse(order_by(period), settings = SETTINGS))]
pub struct PeriodRow {
    /// Where in the ledger it was closed: its bill is made of what stands before.
    pub lsn: Lsn,
    /// Of the event among those of its frame.
    pub event_index: u32,
    /// The month, as its first day. The first one that was closed closed all before it.
    pub period: Day,
    /// When it was closed.
    pub closed_at: Millis,
    /// Counts the months that were closed.
    pub version: u64,
}

/// Use by the hour, exact to the millisecond, of what is over and, up to the last full hour, of what runs. Sum over it: every
/// batch has a row of its own until the server merges them. A negative row takes back what was accrued beyond a run's end.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "usage_hourly")]
#[table(clickhouse(
    engine = "AggregatingMergeTree",
    order_by(
        tenant,
        hour,
        resource,
        team,
        namespace,
        queue,
        job_set,
        priority_class,
        cluster,
        pool,
        since,
        billing_period
    ),
    settings = SETTINGS
))]
pub struct UsageRow {
    /// The month in whose bill it stands, as its first day: that of the hour, or, if that was closed before this was known,
    /// the first one that was open.
    pub billing_period: Day,
    /// Who pays.
    #[table(low_cardinality)]
    pub tenant: Token,
    /// Of the tenant; empty when the request had none.
    #[table(low_cardinality)]
    pub team: SmolStr,
    /// Of the team; empty when the request had none.
    #[table(low_cardinality)]
    pub namespace: SmolStr,
    /// Where it waited; the tenant's own queue has its name.
    #[table(low_cardinality)]
    pub queue: Token,
    /// What it is a part of.
    pub job_set: Token,
    /// Empty when the request had none.
    #[table(low_cardinality)]
    pub priority_class: SmolStr,
    /// The node's label cluster; empty when it has none.
    #[table(low_cardinality)]
    pub cluster: SmolStr,
    /// The node's label pool; empty when it has none.
    #[table(low_cardinality)]
    pub pool: SmolStr,
    /// Its beginning.
    pub hour: Seconds,
    /// cpu, memory, gpu or gpu:<model>.
    #[table(low_cardinality)]
    pub resource: String,
    /// A moment before the use since when no rate began that fits it; 1970: none had begun. The view prices has the price by it.
    pub since: Millis,
    /// Millicore-, byte- or milli-GPU-milliseconds.
    pub quantity: Sum<i128>,
    /// Milliseconds of allocations that had some of it.
    pub ms: Sum<i64>,
    /// Where in the ledger the first event is that is in it.
    pub first_lsn: Least<Lsn>,
    /// Where in the ledger the last event is that is in it.
    pub last_lsn: Greatest<Lsn>,
}

/// How the nodes' books changed by the hour, summed from each batch's transfers. Sum over it; the view cluster_slices makes
/// integrals of it.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "capacity_hourly")]
#[table(clickhouse(
    engine = "AggregatingMergeTree",
    order_by(cluster, pool, resource, account, hour, since, billing_period),
    settings = SETTINGS
))]
pub struct BookedRow {
    /// The month in whose reconciliation it stands, as its first day: that of the hour, or, if that was closed before this was
    /// known, the first one that was open.
    pub billing_period: Day,
    /// The nodes' label cluster; empty when they have none.
    #[table(low_cardinality)]
    pub cluster: SmolStr,
    /// The nodes' label pool; empty when they have none.
    #[table(low_cardinality)]
    pub pool: SmolStr,
    /// cpu, memory, gpu or gpu:<model>.
    #[table(low_cardinality)]
    pub resource: String,
    /// allocated, reserved, idle, cordoned or unavailable.
    #[table(low_cardinality)]
    pub account: &'static str,
    /// Its beginning.
    pub hour: Seconds,
    /// A moment before the changes since when no list price began; 1970: none had begun.
    pub since: Millis,
    /// How much more is in the account at the end of the hour, or at the next rate, than at its beginning.
    pub risen: Sum<i128>,
    /// The same, each change times its milliseconds since the beginning of the hour.
    pub moment: Sum<i128>,
    /// Transfers that are in it.
    pub transfers: Sum<u64>,
}

/// What the service says of itself, and the ledger does not. Its newest row counts.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "cells")]
#[table(clickhouse(engine = "ReplacingMergeTree(at)", order_by(cell), settings = SETTINGS))]
pub struct CellRow {
    /// The number of the cell.
    pub cell: u64,
    /// By the cell's clock: nothing had happened up to then that is not in the tables.
    pub at: Millis,
    /// What amounts are millionths of, as ISO 4217 has it.
    pub currency: String,
}

/// The rows of one batch, by table.
#[derive(Debug, Default)]
pub struct Rows {
    pub intervals: Vec<IntervalRow>,
    pub running: Vec<RunningRow>,
    pub unplaced: Vec<UnplacedRow>,
    pub preemptions: Vec<PreemptionRow>,
    pub denials: Vec<DenialRow>,
    pub transfers: Vec<TransferRow>,
    pub capacities: Vec<CapacityRow>,
    pub conditions: Vec<ConditionRow>,
    pub rates: Vec<RateRow>,
    pub budgets: Vec<BudgetRow>,
    pub periods: Vec<PeriodRow>,
    pub usage: Vec<UsageRow>,
    pub booked: Vec<BookedRow>,
    clock: Option<Clock>,
}

fn text(token: Option<&Token>) -> SmolStr {
    token.map_or_else(SmolStr::default, |token| token.clone().into())
}

impl Rows {
    /// The same changes give the same rows in the same order.
    pub fn of(cell: CellNo, changes: &[Change]) -> Self {
        let whole = in_one_row(changes);
        let is_interval = |change: &&Change| matches!(change.fact, Fact::Interval(_));
        let mut rows = Self {
            // Room that grows is copied, and new to the system each time.
            intervals: Vec::with_capacity(changes.iter().filter(is_interval).count()),
            ..Self::default()
        };
        for (change, whole) in changes.iter().zip(whole) {
            match &change.fact {
                Fact::Interval(run) => {
                    (rows.intervals).push(interval_row(cell, change, run, whole));
                }
                Fact::Running(run) => rows.running.push(running_row(cell, run)),
                Fact::Unplaced(ended) => rows.unplaced.push(unplaced_row(cell, change, ended)),
                Fact::Preemption(it) => rows.preemptions.push(preemption_row(cell, change, it)),
                Fact::Denial(denial) => rows.denials.push(denial_row(cell, change, denial)),
                Fact::Transfer(_) if whole => {}
                Fact::Transfer(transfer) => {
                    rows.transfers.push(transfer_row(cell, change, transfer));
                }
                Fact::Capacity(capacity) => rows.capacities.push(capacity_row(change, capacity)),
                Fact::Condition(it) => rows.conditions.push(condition_row(change, it)),
                Fact::Rate(rate) => rows.rates.push(rate_row(change, rate)),
                Fact::Budget(budget) => rows.budgets.push(budget_row(change, budget)),
                Fact::Closed(closed) => rows.periods.push(period_row(change, closed)),
                Fact::Sums(sums) => {
                    rows.usage.extend(sums.used.iter().flat_map(usage_rows));
                    rows.booked.extend(sums.booked.iter().flat_map(booked_rows));
                }
                Fact::Clock(clock) => rows.clock = Some(*clock),
                Fact::FirstAttempts(_) => {}
            }
        }
        rows
    }

    pub fn range(&self, batch: &Batch<Change>, state: &'static str) -> RangeRow {
        let (clock, accrued_to) = self
            .clock
            .map_or_else(Default::default, |it| (it.clock, it.accrued_to));
        RangeRow {
            ledger: batch.ledger.0,
            after_lsn: batch.after,
            to_lsn: batch.to,
            state,
            allocation_intervals: self.intervals.len() as u64,
            running_allocations: self.running.iter().map(RunningRow::checked).sum(),
            unplaced_allocations: self.unplaced.len() as u64,
            preemptions: self.preemptions.len() as u64,
            quota_denials: self.denials.len() as u64,
            node_transfers: self.transfers.len() as u64,
            node_capacities: self.capacities.len() as u64,
            node_conditions: self.conditions.len() as u64,
            rates: self.rates.len() as u64,
            budgets: self.budgets.len() as u64,
            closed_periods: self.periods.len() as u64,
            usage_ms: self.usage.iter().map(|row| row.ms.0).sum(),
            capacity_transfers: self.booked.iter().map(|row| row.transfers.0).sum(),
            clock,
            accrued_to,
            digest: batch.digest.map_or_else(String::new, |d| d.to_string()),
            recorded_at: PhantomData,
        }
    }

    /// How many there are, by table.
    pub fn counts(&self) -> [(&'static str, usize); 13] {
        [
            (IntervalRow::TABLE.name, self.intervals.len()),
            (RunningRow::TABLE.name, self.running.len()),
            (UnplacedRow::TABLE.name, self.unplaced.len()),
            (PreemptionRow::TABLE.name, self.preemptions.len()),
            (DenialRow::TABLE.name, self.denials.len()),
            (TransferRow::TABLE.name, self.transfers.len()),
            (CapacityRow::TABLE.name, self.capacities.len()),
            (ConditionRow::TABLE.name, self.conditions.len()),
            (RateRow::TABLE.name, self.rates.len()),
            (BudgetRow::TABLE.name, self.budgets.len()),
            (PeriodRow::TABLE.name, self.periods.len()),
            (UsageRow::TABLE.name, self.usage.len()),
            (BookedRow::TABLE.name, self.booked.len()),
        ]
    }
}

/// What no column holds is cut to the nearest that it holds: an hour before 1970 or after 2106.
fn seconds(hour: Hour) -> Seconds {
    let seconds = hour.0.saturating_mul(HOUR_MS / 1000);
    Seconds(u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
}

/// Its first one; the column ends in 2149.
fn day(month: Month) -> Day {
    let days = month.begin().0.div_euclid(DAY_MS);
    Day(u16::try_from(days.max(0)).unwrap_or(u16::MAX))
}

/// What a node has and an allocation asks for is at most 2^50, so more than 2^63 would be held of a node by 8,192 of the
/// largest allocations at once. It would be cut, and the node is overdrawn in `conservation` all the same.
fn cut(amounts: &Amounts) -> [i64; 3] {
    [amounts.cpu_milli, amounts.memory_bytes, amounts.gpu_milli].map(|amount| {
        let nearest = if amount < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(amount).unwrap_or(nearest)
    })
}

/// What an allocation asks for is not below 0.
fn asked(amounts: &Amounts) -> [u64; 3] {
    cut(amounts).map(i64::unsigned_abs)
}

fn usage_rows((line, used): &(Line, Used)) -> impl Iterator<Item = UsageRow> {
    let Line {
        payer,
        hour,
        since,
        period,
        site,
    } = line;
    let each = ResourceKind::ALL.into_iter().zip(used.quantity.0);
    let each = each.zip(used.ms.0);
    let some = each.filter(|((_, quantity), ms)| *quantity != 0 || *ms != 0);
    some.map(|((kind, quantity), ms)| UsageRow {
        billing_period: day(*period),
        tenant: payer.tenant.clone(),
        team: text(payer.team.as_ref()),
        namespace: text(payer.namespace.as_ref()),
        queue: payer.queue.clone(),
        job_set: payer.job_set.clone(),
        priority_class: text(payer.priority_class.as_ref()),
        cluster: text(site.cluster.as_ref()),
        pool: text(site.pool.as_ref()),
        hour: seconds(*hour),
        resource: key(kind, site.gpu_model.as_ref()).to_string(),
        since: *since,
        quantity: Sum(quantity),
        ms: Sum(ms),
        first_lsn: Least(used.first),
        last_lsn: Greatest(used.last),
    })
}

fn booked_rows(
    (shelf, account, booked): &(Shelf, Account, Booked),
) -> impl Iterator<Item = BookedRow> {
    let Shelf {
        site,
        hour,
        since,
        period,
    } = shelf;
    let each = ResourceKind::ALL.into_iter().zip(booked.risen.0);
    let each = each.zip(booked.moment.0);
    let some = each.filter(|((_, risen), moment)| *risen != 0 || *moment != 0);
    some.map(|((kind, risen), moment)| BookedRow {
        billing_period: day(*period),
        cluster: text(site.cluster.as_ref()),
        pool: text(site.pool.as_ref()),
        resource: key(kind, site.gpu_model.as_ref()).to_string(),
        account: account.name(),
        hour: seconds(*hour),
        since: *since,
        risen: Sum(risen),
        moment: Sum(moment),
        transfers: Sum(booked.transfers),
    })
}

fn interval_row(cell: CellNo, change: &Change, interval: &Interval, whole: bool) -> IntervalRow {
    let Interval {
        of, moved, wait, ..
    } = interval;
    let [cpu_milli, memory_bytes, gpu_milli] = asked(&moved.amounts);
    let Owner {
        payer,
        name,
        operation_id,
        gang,
        labels,
    } = of;
    let used = interval.exit.and_then(|exit| exit.usage);
    IntervalRow {
        lsn: change.lsn,
        event_index: change.index,
        allocation: interval.allocation.id(cell).0,
        operation_id: text(operation_id.as_ref()),
        tenant: payer.tenant.clone(),
        team: text(payer.team.as_ref()),
        namespace: text(payer.namespace.as_ref()),
        queue: payer.queue.clone(),
        job_set: payer.job_set.clone(),
        priority_class: text(payer.priority_class.as_ref()),
        gang: text(gang.as_ref()),
        name: text(name.as_ref()),
        labels: Texts(labels.to_vec()),
        attempt: wait.attempt,
        node: moved.node.clone(),
        incarnation: moved.incarnation,
        cluster: text(moved.site.cluster.as_ref()),
        zone: text(moved.site.zone.as_ref()),
        pool: text(moved.site.pool.as_ref()),
        gpu_model: text(moved.site.gpu_model.as_ref()),
        cpu_milli,
        memory_bytes,
        gpu_milli,
        // The clocks of admission and the scheduler may differ.
        queued_at: wait.since.min(interval.placed_at),
        wait_reason: wait.reason.map_or("", |reason| reason.name()),
        placed_at: interval.placed_at,
        started_at: interval.started_at,
        ended_at: interval.ended_at,
        released_at: interval.released_at,
        whole,
        cause: interval.cause.name(),
        exit_code: interval.exit.map_or(-1, |exit| exit.code.into()),
        exit_signal: interval.exit.map_or(0, |exit| exit.signal),
        measured: used.is_some(),
        cpu_used_us: used.map_or(0, |used| used.cpu_us),
        memory_peak_bytes: used.map_or(0, |used| used.memory_peak_bytes),
        log_bytes: used.map_or(0, |used| used.log_bytes),
    }
}

fn running_row(cell: CellNo, run: &Running) -> RunningRow {
    let Running {
        of:
            Owner {
                payer,
                name,
                operation_id,
                ..
            },
        moved,
        ..
    } = run;
    let [cpu_milli, memory_bytes, gpu_milli] = asked(&moved.amounts);
    RunningRow {
        allocation: run.allocation.id(cell).0,
        operation_id: text(operation_id.as_ref()),
        tenant: payer.tenant.clone(),
        team: text(payer.team.as_ref()),
        namespace: text(payer.namespace.as_ref()),
        queue: payer.queue.clone(),
        job_set: payer.job_set.clone(),
        priority_class: text(payer.priority_class.as_ref()),
        name: text(name.as_ref()),
        node: moved.node.clone(),
        cluster: text(moved.site.cluster.as_ref()),
        pool: text(moved.site.pool.as_ref()),
        gpu_model: text(moved.site.gpu_model.as_ref()),
        cpu_milli,
        memory_bytes,
        gpu_milli,
        started_at: run.started_at,
        checksum: checksum(run),
        sign: if run.under_way { 1 } else { -1 },
    }
}

impl RunningRow {
    fn checked(&self) -> i128 {
        i128::from(self.checksum) * i128::from(self.sign)
    }
}

/// A product with an odd number is another one for each number; a run is told from another of its allocation by its start.
fn checksum(run: &Running) -> u64 {
    let number = run.allocation.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number.wrapping_add(run.started_at.0.unsigned_abs())
}

fn unplaced_row(cell: CellNo, change: &Change, ended: &Unplaced) -> UnplacedRow {
    let Owner {
        payer,
        operation_id,
        ..
    } = &ended.of;
    let [cpu_milli, memory_bytes, gpu_milli] = asked(&ended.amounts);
    UnplacedRow {
        lsn: change.lsn,
        event_index: change.index,
        allocation: ended.allocation.id(cell).0,
        operation_id: text(operation_id.as_ref()),
        tenant: payer.tenant.clone(),
        team: text(payer.team.as_ref()),
        namespace: text(payer.namespace.as_ref()),
        queue: payer.queue.clone(),
        job_set: payer.job_set.clone(),
        priority_class: text(payer.priority_class.as_ref()),
        cpu_milli,
        memory_bytes,
        gpu_milli,
        attempt: ended.wait.attempt,
        queued_at: ended.wait.since.min(ended.ended_at),
        ended_at: ended.ended_at,
        wait_reason: ended.wait.reason.map_or("", |reason| reason.name()),
        cause: ended.cause.name(),
    }
}

fn preemption_row(cell: CellNo, change: &Change, preemption: &Preemption) -> PreemptionRow {
    let payer: &Payer = &preemption.of.payer;
    let by = preemption.by_payer.as_ref();
    let id = |no: AllocationNo| no.id(cell).0;
    PreemptionRow {
        lsn: change.lsn,
        event_index: change.index,
        at: preemption.at,
        allocation: id(preemption.allocation),
        tenant: payer.tenant.clone(),
        queue: payer.queue.clone(),
        job_set: payer.job_set.clone(),
        priority_class: text(payer.priority_class.as_ref()),
        node: text(preemption.node.as_ref()),
        cause: preemption.cause.name(),
        by_allocation: preemption.by.map_or(Uuid::nil(), id),
        by_tenant: text(by.map(|by| &by.tenant)),
        by_priority_class: text(by.and_then(|by| by.priority_class.as_ref())),
    }
}

fn denial_row(cell: CellNo, change: &Change, denial: &Denial) -> DenialRow {
    let of = denial.of.as_ref().map(|(owner, _)| owner);
    let payer = of.map(|owner| &*owner.payer);
    let name = |name: fn(&Payer) -> Option<&Token>| text(payer.and_then(name));
    let amounts = denial.of.as_ref().map(|(_, amounts)| asked(amounts));
    let [cpu_milli, memory_bytes, gpu_milli] = amounts.unwrap_or_default();
    DenialRow {
        lsn: change.lsn,
        event_index: change.index,
        at: denial.at,
        allocation: denial.allocation.id(cell).0,
        operation_id: text(of.and_then(|owner| owner.operation_id.as_ref())),
        tenant: name(|payer| Some(&payer.tenant)),
        team: name(|payer| payer.team.as_ref()),
        namespace: name(|payer| payer.namespace.as_ref()),
        queue: name(|payer| Some(&payer.queue)),
        job_set: name(|payer| Some(&payer.job_set)),
        priority_class: name(|payer| payer.priority_class.as_ref()),
        cpu_milli,
        memory_bytes,
        gpu_milli,
        rule: denial.refusal.rule.name(),
        subject: denial.refusal.subject.clone(),
        rule_limit: denial.refusal.limit,
        rule_actual: denial.refusal.actual,
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
        gpu_model: text(moved.site.gpu_model.as_ref()),
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

fn condition_row(change: &Change, it: &Condition) -> ConditionRow {
    ConditionRow {
        lsn: change.lsn,
        event_index: change.index,
        node: it.node.clone(),
        condition: SmolStr::from(&*it.condition),
        status: it.status.name(),
        reason: SmolStr::from(&*it.reason),
        at: it.at,
    }
}

fn rate_row(change: &Change, rate: &Rate) -> RateRow {
    RateRow {
        lsn: change.lsn,
        event_index: change.index,
        resource: rate.key.resource.to_string(),
        tenant: text(rate.key.scope.tenant.as_ref()),
        priority_class: text(rate.key.scope.priority_class.as_ref()),
        pool: text(rate.key.scope.pool.as_ref()),
        cluster: text(rate.key.scope.cluster.as_ref()),
        effective_from: rate.effective_from,
        applied_from: rate.applied_from,
        version: rate.version,
        micro_per_unit_hour: rate.price.unwrap_or(0),
        withdrawn: rate.price.is_none(),
    }
}

fn budget_row(change: &Change, set: &BudgetChange) -> BudgetRow {
    BudgetRow {
        lsn: change.lsn,
        event_index: change.index,
        tenant: set.account.tenant.clone(),
        team: text(set.account.team.as_ref()),
        namespace: text(set.account.namespace.as_ref()),
        budget_of: set.of.name(),
        amount: set.budget.map(|budget| budget.amount),
        period: set.budget.map_or("", |budget| budget.period.name()),
        set_at: set.at,
        version: set.version,
    }
}

fn period_row(change: &Change, closed: &Closed) -> PeriodRow {
    PeriodRow {
        lsn: change.lsn,
        event_index: change.index,
        period: day(closed.month),
        closed_at: closed.at,
        version: closed.version,
    }
}
