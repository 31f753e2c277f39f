-- Made of the rows in services/analytics/src/store by APPORTION_WRITE=1 cargo test -p analytics --test schema

CREATE TABLE IF NOT EXISTS ledger_ranges (
    ledger Int64 COMMENT 'Which ledger: its time of creation, Unix nanoseconds.',
    after_lsn UInt64 COMMENT 'The range begins behind it.',
    to_lsn UInt64 COMMENT 'The last position of the range.',
    state LowCardinality(String) COMMENT 'begun or applied.',
    allocation_intervals UInt64 COMMENT 'Rows of the range in that table.',
    node_transfers UInt64 COMMENT 'Rows of the range in that table.',
    node_capacities UInt64 COMMENT 'Rows of the range in that table.',
    rates UInt64 COMMENT 'Rows of the range in that table.',
    usage_ms UInt64 COMMENT 'Milliseconds of the range''s rows in usage_hourly. Rows of one key become one there, so that rows cannot be counted.',
    allocated Array(Tuple(String, DateTime('UTC'), Int128, Int128)) COMMENT 'What the transfers of the range say was allocated, of all nodes: resource, hour, how much more at the end of the hour than at its beginning, and that times the rest of the hour. Made of the transfers, and not of the runs.',
    digest String COMMENT 'Of what stands at the end of the range, SHA-256 as hexadecimal digits; empty if nobody knows.',
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'By the server''s clock.'
)
ENGINE = MergeTree
ORDER BY (to_lsn, state)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Which range of the ledger is in the other tables. A range is recorded as begun before its rows are sent, so that a restart sends exactly the same rows with the same tokens, and as applied after the last of them has landed.';

CREATE TABLE IF NOT EXISTS allocation_intervals (
    lsn UInt64 COMMENT 'Where in the ledger the end of the run is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    allocation UUID,
    tenant String,
    job_set String,
    name String COMMENT 'Empty when the request had none.',
    node String,
    incarnation UInt64 COMMENT 'Counts the lives of the node.',
    gpu_model String COMMENT 'Of the node; empty when it has none.',
    cpu_milli UInt64 COMMENT 'Thousandths of a core.',
    memory_bytes UInt64,
    gpu_milli UInt64 COMMENT 'Thousandths of a GPU.',
    placed_at DateTime64(3, 'UTC') COMMENT 'The first moment that it was reserved.',
    started_at DateTime64(3, 'UTC') COMMENT 'The first moment that was used.',
    ended_at DateTime64(3, 'UTC') COMMENT 'The first moment that was not used any more.',
    released_at DateTime64(3, 'UTC') COMMENT 'The first moment that was not reserved any more.',
    whole Bool COMMENT 'The run''s transfers, from idle to reserved, to allocated, and back, are in this row and not in node_transfers.',
    cause String COMMENT 'Why the run ended.'
)
ENGINE = MergeTree
ORDER BY (tenant, started_at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Every run that is over: who used what, where, from when to when. The facts of the bill.';

CREATE TABLE IF NOT EXISTS node_transfers (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    node String,
    incarnation UInt64 COMMENT 'Counts the lives of the node.',
    gpu_model String COMMENT 'Of the node; empty when it has none.',
    allocation UUID COMMENT 'Whose run it is about; all zeros when it is about none.',
    from_account String COMMENT 'outside, allocated, reserved, idle or unavailable.',
    to_account String COMMENT 'Of the same names.',
    at DateTime64(3, 'UTC') COMMENT 'From when on.',
    cpu_milli Int64 COMMENT 'Thousandths of a core; less than 0 is the other way.',
    memory_bytes Int64 COMMENT 'Less than 0 is the other way.',
    gpu_milli Int64 COMMENT 'Thousandths of a GPU; less than 0 is the other way.'
)
ENGINE = MergeTree
ORDER BY (node, incarnation, at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'The books of the nodes, without the runs that are whole in allocation_intervals: from a moment on, so much is no longer in the one account but in the other. The view node_entries has all of them, and node_segments adds them up.';

CREATE TABLE IF NOT EXISTS node_capacities (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    part UInt32 COMMENT 'Counts what is said by the event.',
    node LowCardinality(String),
    incarnation UInt64 COMMENT 'Counts the lives of the node. An older one has what is still held of it.',
    at DateTime64(3, 'UTC') COMMENT 'From when on.',
    cpu_milli Int64 COMMENT 'Thousandths of a core.',
    memory_bytes Int64,
    gpu_milli Int64 COMMENT 'Thousandths of a GPU.'
)
ENGINE = MergeTree
ORDER BY (node, incarnation, lsn, event_index, part)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'What the nodes have in all, from a moment on: at every moment, allocated, reserved, idle and unavailable of the node add up to it.';

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
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
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
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Use by the hour, exact to the millisecond, summed from each batch''s intervals. Sum over it: every batch has a row of its own until the server merges them.';
