-- Which range of the ledger is in the other tables. A range is recorded as begun before its rows are sent, so that a
-- restart sends exactly the same rows with the same tokens, and as applied after the last of them has landed.
CREATE TABLE IF NOT EXISTS ledger_ranges (
    -- Which ledger: its time of creation, Unix nanoseconds.
    ledger Int64,
    -- The range is (after_lsn, to_lsn].
    after_lsn UInt64,
    to_lsn UInt64,
    -- 'begun' or 'applied'.
    state LowCardinality(String),
    -- Rows of the range, by table.
    allocation_intervals UInt64,
    node_entries UInt64,
    rates UInt64,
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY (to_lsn, state)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;
