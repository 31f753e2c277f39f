//! The rows of the tables, as ClickHouse wants them.

use crate::domain::{Change, Entry, Fact, Interval, Rate};
use clickhouse::Row;
use ledger::Batch;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vocab::{CellNo, HOUR_MS, Token};

#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct IntervalRow {
    pub lsn: u64,
    pub event_index: u32,
    #[serde(with = "clickhouse::serde::uuid")]
    pub allocation: Uuid,
    pub tenant: String,
    pub job_set: String,
    pub name: String,
    pub node: String,
    pub incarnation: u64,
    pub gpu_model: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
    /// Unix milliseconds, as all moments of the cell.
    pub started_at: i64,
    pub ended_at: i64,
    pub cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct EntryRow {
    pub lsn: u64,
    pub event_index: u32,
    pub part: u32,
    pub node: String,
    pub incarnation: u64,
    pub gpu_model: String,
    #[serde(with = "clickhouse::serde::uuid::option")]
    pub allocation: Option<Uuid>,
    pub account: String,
    pub at: i64,
    pub cpu_milli: i128,
    pub memory_bytes: i128,
    pub gpu_milli: i128,
}

#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct RateRow {
    pub lsn: u64,
    pub event_index: u32,
    pub resource: String,
    pub effective_from: i64,
    pub version: u64,
    pub micro_per_unit_hour: u64,
}

/// The range of a batch and how many rows it has.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct RangeRow {
    pub ledger: i64,
    pub after_lsn: u64,
    pub to_lsn: u64,
    pub state: String,
    pub allocation_intervals: u64,
    pub node_entries: u64,
    pub rates: u64,
    /// Of what stands at the end of the range; empty if nobody knows.
    pub digest: String,
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

    pub fn range(&self, batch: &Batch<Change>, state: &str) -> RangeRow {
        RangeRow {
            ledger: batch.ledger.0,
            after_lsn: batch.after.0,
            to_lsn: batch.to.0,
            state: state.to_owned(),
            allocation_intervals: self.intervals.len() as u64,
            node_entries: self.entries.len() as u64,
            rates: self.rates.len() as u64,
            digest: batch.digest.map_or_else(String::new, |d| d.to_string()),
        }
    }
}

fn interval_row(cell: CellNo, change: &Change, interval: &Interval) -> IntervalRow {
    IntervalRow {
        lsn: change.lsn.0,
        event_index: change.index,
        allocation: interval.allocation.id(cell).0,
        tenant: interval.tenant.to_string(),
        job_set: interval.job_set.to_string(),
        name: text(interval.name.as_ref()),
        node: interval.node.to_string(),
        incarnation: interval.incarnation,
        gpu_model: text(interval.gpu_model.as_ref()),
        cpu_milli: interval.cpu_milli,
        memory_bytes: interval.memory_bytes,
        gpu_milli: interval.gpu_milli,
        started_at: interval.started_at.0,
        ended_at: interval.ended_at.0,
        cause: interval.cause.name().to_owned(),
    }
}

fn entry_row(cell: CellNo, change: &Change, entry: &Entry) -> EntryRow {
    EntryRow {
        lsn: change.lsn.0,
        event_index: change.index,
        part: change.part,
        node: entry.node.to_string(),
        incarnation: entry.incarnation,
        gpu_model: text(entry.gpu_model.as_ref()),
        allocation: entry.allocation.map(|allocation| allocation.id(cell).0),
        account: entry.account.name().to_owned(),
        at: entry.at.0,
        cpu_milli: entry.amounts.cpu_milli,
        memory_bytes: entry.amounts.memory_bytes,
        gpu_milli: entry.amounts.gpu_milli,
    }
}

fn rate_row(change: &Change, rate: &Rate) -> RateRow {
    RateRow {
        lsn: change.lsn.0,
        event_index: change.index,
        resource: rate.resource.to_string(),
        effective_from: rate.effective_from.0,
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
        let hours = (self.ended_at - 1).div_euclid(HOUR_MS) - self.started_at.div_euclid(HOUR_MS);
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
