-- What the ledger says, one row per fact. No partitions: a block that falls into several lands in several steps, and
-- then a kill could leave half of it.

-- Every run that is over: who used what, where, from when to when. The bill's raw facts.
CREATE TABLE IF NOT EXISTS allocation_intervals (
    lsn UInt64,
    event_index UInt32,
    allocation UUID,
    tenant LowCardinality(String),
    job_set String,
    -- Empty when the request had none.
    name String,
    node LowCardinality(String),
    incarnation UInt64,
    -- Of the node; empty when it has none.
    gpu_model LowCardinality(String),
    cpu_milli UInt64,
    memory_bytes UInt64,
    gpu_milli UInt64,
    -- Used in [started_at, ended_at).
    started_at DateTime64(3, 'UTC'),
    ended_at DateTime64(3, 'UTC'),
    cause LowCardinality(String)
)
ENGINE = MergeTree
ORDER BY (tenant, started_at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

-- The nodes' books: from `at` on, `account` of the node has this much more. At every moment allocated + reserved +
-- idle + unavailable = capacity; the view node_segments adds it up.
CREATE TABLE IF NOT EXISTS node_entries (
    lsn UInt64,
    event_index UInt32,
    part UInt32,
    node LowCardinality(String),
    incarnation UInt64,
    gpu_model LowCardinality(String),
    allocation Nullable(UUID),
    -- 'capacity', 'allocated', 'reserved', 'idle' or 'unavailable'.
    account LowCardinality(String),
    at DateTime64(3, 'UTC'),
    cpu_milli Int128,
    memory_bytes Int128,
    gpu_milli Int128
)
ENGINE = MergeTree
ORDER BY (node, incarnation, at, lsn, event_index, part)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

-- Prices in millionths of the currency per core, GiB or GPU and hour.
CREATE TABLE IF NOT EXISTS rates (
    lsn UInt64,
    event_index UInt32,
    -- 'cpu', 'memory', 'gpu' or 'gpu:<model>'.
    resource LowCardinality(String),
    effective_from DateTime64(3, 'UTC'),
    version UInt64,
    micro_per_unit_hour UInt64
)
ENGINE = MergeTree
ORDER BY (resource, effective_from, version)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;
