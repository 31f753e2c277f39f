-- Use by the hour, exact to the millisecond. Sum over it: rows of one key may not be merged yet.
CREATE TABLE IF NOT EXISTS usage_hourly (
    tenant LowCardinality(String),
    job_set String,
    hour DateTime('UTC'),
    -- 'cpu', 'memory', 'gpu' or 'gpu:<model>'.
    resource LowCardinality(String),
    -- Millicore-, byte- or milli-GPU-milliseconds.
    quantity UInt128,
    -- Milliseconds of allocations that had some of it.
    ms UInt64
)
ENGINE = SummingMergeTree((quantity, ms))
ORDER BY (tenant, hour, resource, job_set)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

-- Splits an interval at the full hours. Whole numbers of milliseconds only, so the parts add up to the whole.
CREATE MATERIALIZED VIEW IF NOT EXISTS usage_hourly_from_intervals TO usage_hourly AS
WITH 3600000 AS hour_ms
SELECT
    tenant,
    job_set,
    toDateTime(hour_no * 3600, 'UTC') AS hour,
    used.1 AS resource,
    toUInt128(used.2) * ms AS quantity,
    ms
FROM (
    SELECT
        tenant,
        job_set,
        toUnixTimestamp64Milli(started_at) AS from_ms,
        toUnixTimestamp64Milli(ended_at) AS to_ms,
        arrayJoin(range(intDiv(from_ms, hour_ms), intDiv(to_ms - 1, hour_ms) + 1)) AS hour_no,
        toUInt64(least(to_ms, (hour_no + 1) * hour_ms) - greatest(from_ms, hour_no * hour_ms)) AS ms,
        arrayJoin([
            ('cpu', cpu_milli),
            ('memory', memory_bytes),
            (if(gpu_model = '', 'gpu', concat('gpu:', gpu_model)), gpu_milli)
        ]) AS used
    FROM allocation_intervals
)
WHERE used.2 > 0;
