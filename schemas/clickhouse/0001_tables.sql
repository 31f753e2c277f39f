-- Made of the rows in services/analytics/src/store by APPORTION_WRITE=1 cargo test -p analytics --test schema

CREATE TABLE IF NOT EXISTS ledger_ranges (
    ledger Int64 COMMENT 'Which ledger: its time of creation, Unix nanoseconds.',
    after_lsn UInt64 COMMENT 'The range begins behind it.',
    to_lsn UInt64 COMMENT 'The last position of the range.',
    state LowCardinality(String) COMMENT 'begun or applied.',
    allocation_intervals UInt64 COMMENT 'Rows of the range in that table.',
    node_entries UInt64 COMMENT 'Rows of the range in that table.',
    rates UInt64 COMMENT 'Rows of the range in that table.',
    digest String COMMENT 'Of what stands at the end of the range, SHA-256 as hexadecimal digits; empty if nobody knows.',
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'By the server''s clock.'
)
ENGINE = MergeTree
ORDER BY (to_lsn, state)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Which range of the ledger is in the other tables. A range is recorded as begun before its rows are sent, so that a restart sends exactly the same rows with the same tokens, and as applied after the last of them has landed.';

CREATE TABLE IF NOT EXISTS allocation_intervals (
    lsn UInt64 COMMENT 'Where in the ledger the end of the run is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    allocation UUID,
    tenant LowCardinality(String),
    job_set String,
    name String COMMENT 'Empty when the request had none.',
    node LowCardinality(String),
    incarnation UInt64 COMMENT 'Counts the lives of the node.',
    gpu_model LowCardinality(String) COMMENT 'Of the node; empty when it has none.',
    cpu_milli UInt64 COMMENT 'Thousandths of a core.',
    memory_bytes UInt64,
    gpu_milli UInt64 COMMENT 'Thousandths of a GPU.',
    started_at DateTime64(3, 'UTC') COMMENT 'The first moment that was used.',
    ended_at DateTime64(3, 'UTC') COMMENT 'The first moment that was not used any more.',
    cause LowCardinality(String) COMMENT 'Why the run ended.'
)
ENGINE = MergeTree
ORDER BY (tenant, started_at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Every run that is over: who used what, where, from when to when. The facts of the bill.';

CREATE TABLE IF NOT EXISTS node_entries (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    part UInt32 COMMENT 'Counts the entries of the event.',
    node LowCardinality(String),
    incarnation UInt64 COMMENT 'Counts the lives of the node.',
    gpu_model LowCardinality(String) COMMENT 'Of the node; empty when it has none.',
    allocation Nullable(UUID) COMMENT 'Whose run it is about, if it is about one.',
    account LowCardinality(String) COMMENT 'capacity, allocated, reserved, idle or unavailable.',
    at DateTime64(3, 'UTC') COMMENT 'From when on.',
    cpu_milli Int128 COMMENT 'Thousandths of a core; less than 0 is taken off.',
    memory_bytes Int128 COMMENT 'Less than 0 is taken off.',
    gpu_milli Int128 COMMENT 'Thousandths of a GPU; less than 0 is taken off.'
)
ENGINE = MergeTree
ORDER BY (node, incarnation, at, lsn, event_index, part)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'The books of the nodes: from a moment on, an account of the node has this much more. At every moment allocated, reserved, idle and unavailable add up to capacity; the view node_segments adds up the entries.';

CREATE TABLE IF NOT EXISTS rates (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    resource LowCardinality(String) COMMENT 'cpu, memory, gpu or gpu:<model>.',
    effective_from DateTime64(3, 'UTC') COMMENT 'From when on it is the price.',
    version UInt64 COMMENT 'Of several for one moment, the highest counts.',
    micro_per_unit_hour UInt64 COMMENT 'Millionths of the currency per core, GiB or GPU and hour.'
)
ENGINE = MergeTree
ORDER BY (resource, effective_from, version)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Prices.';

CREATE TABLE IF NOT EXISTS usage_hourly (
    tenant LowCardinality(String),
    job_set String,
    hour DateTime('UTC') COMMENT 'Its beginning.',
    resource LowCardinality(String) COMMENT 'cpu, memory, gpu or gpu:<model>.',
    quantity UInt128 COMMENT 'Millicore-, byte- or milli-GPU-milliseconds.',
    ms UInt64 COMMENT 'Milliseconds of allocations that had some of it.'
)
ENGINE = SummingMergeTree((quantity, ms))
ORDER BY (tenant, hour, resource, job_set)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Use by the hour, exact to the millisecond, made of the intervals by a materialized view. Sum over it: rows of one key may not be merged yet.';
