//! What the nodes' agents measure. It does not come from the ledger: what is lost of it stays lost, and nothing else is wrong then.

use super::{Store, StoreError};
use clickhouse::Row;
use serde::Serialize;
use table::{Table, clickhouse::Seconds};
use vocab::{Millis, Token};

/// Samples are full for an hour, and then one row for each node and five minutes, whose averages count by the samples in them.
const SAMPLES_TTL: &str = "toDateTime(at) + toIntervalHour(1) GROUP BY node, slot SET at = max(at), \
     cpu_milli = toUInt64(avgWeighted(cpu_milli, samples)), \
     memory_bytes = toUInt64(avgWeighted(memory_bytes, samples)), \
     gpus = max(gpus), \
     gpu_busy_milli = toUInt64(avgWeighted(gpu_busy_milli, samples)), \
     gpu_memory_bytes = toUInt64(avgWeighted(gpu_memory_bytes, samples)), \
     disk_used_bytes = max(disk_used_bytes), \
     disk_free_bytes = min(disk_free_bytes), \
     network_received_bytes = max(network_received_bytes), \
     network_sent_bytes = max(network_sent_bytes), \
     load_milli = toUInt64(avgWeighted(load_milli, samples)), \
     oom_kills = max(oom_kills), \
     runs = max(runs), \
     samples = sum(samples), \
     toStartOfDay(at) + toIntervalDay(31)";

/// The server looks for old rows every ten minutes, of which those of a whole day go at once, and is to start with however many parts are broken.
const SAMPLES_SETTINGS: &str =
    "merge_with_ttl_timeout = 600, max_suspicious_broken_parts = 1000000";

/// How busy the nodes were, as their agents measured it: for an hour every sample, then one row for each node and five minutes,
/// for 30 days. Samples may be missing; nothing of the bill is made of them.
#[derive(Debug, Clone, PartialEq, Eq, Table, Row, Serialize)]
#[table(name = "node_samples")]
#[table(clickhouse(
    order_by(node, slot, at),
    ttl = SAMPLES_TTL,
    settings = SAMPLES_SETTINGS
))]
pub struct SampleRow {
    /// When the service heard it, by its own clock; the last one of the row.
    pub at: Millis,
    /// The beginning of the five minutes that it is in.
    pub slot: Seconds,
    /// Whose.
    #[table(low_cardinality)]
    pub node: Token,
    /// How many the row stands for. What is in use is their average, what is counted their greatest.
    pub samples: u32,
    /// In use, thousandths of a core.
    pub cpu_milli: u64,
    /// In use.
    pub memory_bytes: u64,
    /// How many GPUs could be asked.
    pub gpus: u32,
    /// In use, of all GPUs together, thousandths of a GPU.
    pub gpu_busy_milli: u64,
    /// In use, of all GPUs together.
    pub gpu_memory_bytes: u64,
    /// In use of the file system that holds the agent's state and the runs' logs; the most of the row.
    pub disk_used_bytes: u64,
    /// Free of it; the least of the row.
    pub disk_free_bytes: u64,
    /// Since the machine was started.
    pub network_received_bytes: u64,
    /// Since the machine was started.
    pub network_sent_bytes: u64,
    /// The load of the last minute, in thousandths.
    pub load_milli: u64,
    /// Processes that the kernel has killed for want of memory, since the machine was started.
    pub oom_kills: u64,
    /// Runs that are not over; the most of the row.
    pub runs: u32,
}

const SLOT_MS: i64 = 5 * 60 * 1000;

/// The beginning of the five minutes that a moment is in.
pub fn slot(at: Millis) -> Seconds {
    let ms = at.0 - at.0.rem_euclid(SLOT_MS);
    Seconds(u32::try_from(ms / 1000).unwrap_or(0))
}

impl SampleRow {
    pub const NAME: &'static str = <Self as table::clickhouse::Row>::TABLE.name;
}

impl Store {
    /// One INSERT. Rows that come twice are there twice.
    pub async fn insert_samples(&self, rows: &[SampleRow]) -> Result<(), StoreError> {
        // The table remembers no tokens.
        self.insert(rows, "").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_five_minutes() {
        let check = |at, expected| assert_eq!(slot(Millis(at)), Seconds(expected), "{at}");
        check(0, 0);
        check(299_999, 0);
        check(300_000, 300);
        check(1_793_491_200_000 + 61_007, 1_793_491_200);
        check(-1, 0);
    }
}
