-- The check of 0005, now by run: an allocation may run several times. The kinds are the same.
-- What does not add up, in unit-milliseconds by kind and resource; nothing but zeros is right. It is exact when the
-- projection is at rest; while a batch is being sent, tables may be one batch apart.
--   unbalanced      a node's four states do not make its capacity
--   overdrawn       a state of a node is below zero: more was given out than there was
--   runs            the nodes' books of the runs that are over differ from the intervals
--   hours           the nodes' books, cut by the hour, differ from the hourly use
--   tenants         a tenant's intervals differ from its hourly use
--   rows            (in rows) a table has another number of rows than the applied ranges say, or ranges do not join
CREATE OR REPLACE VIEW conservation AS
WITH
    -- One more millisecond, so that what is wrong at the very last moment also counts.
    (SELECT max(at) + toIntervalMillisecond(1) FROM node_entries) AS until,
    segments AS (
        SELECT
            resource,
            toInt256(dateDiff('millisecond', started_at, coalesce(ended_at, until))) AS ms,
            capacity, allocated, reserved, idle, unavailable
        FROM node_segments
    ),
    -- An allocation that was queued again has several runs, one after the other. Only its last one may be under way, and
    -- is, when something is allocated to it: then its start is not to be compared with anything yet.
    under_way AS (
        SELECT assumeNotNull(allocation) AS of, max((lsn, event_index)) AS start
        FROM node_entries
        WHERE account = 'allocated'
        GROUP BY allocation
        HAVING sum(cpu_milli) > 0 OR sum(memory_bytes) > 0 OR sum(gpu_milli) > 0
    ),
    booked AS (
        SELECT
            allocation,
            node,
            entry.1 AS resource,
            if(entry.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), entry.1) AS key,
            toInt256(entry.2) AS amount,
            toUnixTimestamp64Milli(at) AS ms
        FROM node_entries
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS entry
        WHERE account = 'allocated'
            AND (assumeNotNull(allocation), (lsn, event_index)) NOT IN (SELECT of, start FROM under_way)
    ),
    billed AS (
        SELECT
            allocation,
            node,
            tenant,
            job_set,
            entry.1 AS resource,
            if(entry.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), entry.1) AS key,
            toInt256(entry.2) * dateDiff('millisecond', started_at, ended_at) AS quantity
        FROM allocation_intervals
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS entry
    ),
    run_differences AS (
        SELECT resource, sum(quantity) AS difference
        FROM (
            SELECT allocation, node, resource, quantity FROM billed
            UNION ALL
            SELECT allocation, node, resource, amount * ms AS quantity FROM booked
        )
        GROUP BY allocation, node, resource
    ),
    -- The integral of a step function up to the end of an hour is end × (sum of steps) − sum of (step × its moment).
    steps AS (
        SELECT key, intDiv(ms, 3600000) AS hour_no, sum(amount) AS step, sum(amount * ms) AS moment
        FROM booked
        GROUP BY key, hour_no
    ),
    every_hour AS (
        SELECT key, hour_no, sum(step) AS step, sum(moment) AS moment
        FROM (
            SELECT key, hour_no, step, moment FROM steps
            UNION ALL
            SELECT
                key,
                arrayJoin(range(min(hour_no), max(hour_no) + 1)) AS hour_no,
                toInt256(0) AS step,
                toInt256(0) AS moment
            FROM steps
            GROUP BY key
        )
        GROUP BY key, hour_no
    ),
    integrals AS (
        SELECT
            key,
            hour_no,
            (hour_no + 1) * toInt256(3600000) * sum(step) OVER w - sum(moment) OVER w AS integral
        FROM every_hour
        WINDOW w AS (PARTITION BY key ORDER BY hour_no ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    ),
    hour_differences AS (
        SELECT key, hour_no, sum(quantity) AS difference
        FROM (
            SELECT
                key,
                hour_no,
                integral - lagInFrame(integral) OVER (
                    PARTITION BY key ORDER BY hour_no ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS quantity
            FROM integrals
            UNION ALL
            SELECT
                toString(resource) AS key,
                intDiv(toInt64(toUnixTimestamp(hour)), 3600) AS hour_no,
                -toInt256(quantity) AS quantity
            FROM usage_hourly
        )
        GROUP BY key, hour_no
    ),
    tenant_differences AS (
        SELECT key, sum(quantity) AS difference
        FROM (
            SELECT tenant, job_set, key, quantity FROM billed
            UNION ALL
            SELECT tenant, job_set, toString(resource) AS key, -toInt256(quantity) AS quantity FROM usage_hourly
        )
        GROUP BY tenant, job_set, key
    ),
    ranges AS (
        SELECT
            after_lsn,
            to_lsn,
            any(allocation_intervals) AS allocation_intervals,
            any(node_entries) AS node_entries,
            any(rates) AS rates
        FROM ledger_ranges
        WHERE state = 'applied'
        GROUP BY after_lsn, to_lsn
    ),
    joints AS (
        SELECT after_lsn, lagInFrame(to_lsn) OVER (
            ORDER BY to_lsn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS previous
        FROM ranges
    )
SELECT kind, resource, toUInt256(error) AS error
FROM (
    SELECT 'unbalanced' AS kind, resource,
        sum(abs(capacity - allocated - reserved - idle - unavailable) * ms) AS error
    FROM segments GROUP BY resource
    UNION ALL
    SELECT 'overdrawn' AS kind, resource,
        sum((greatest(-allocated, 0) + greatest(-reserved, 0) + greatest(-idle, 0) + greatest(-unavailable, 0)) * ms)
            AS error
    FROM segments GROUP BY resource
    UNION ALL
    SELECT 'runs' AS kind, resource, sum(abs(difference)) AS error FROM run_differences GROUP BY resource
    UNION ALL
    SELECT 'hours' AS kind, key AS resource, sum(abs(difference)) AS error FROM hour_differences GROUP BY resource
    UNION ALL
    SELECT 'tenants' AS kind, key AS resource, sum(abs(difference)) AS error FROM tenant_differences GROUP BY resource
    UNION ALL
    SELECT 'rows' AS kind, 'allocation_intervals' AS resource,
        toInt256(abs((SELECT count() FROM allocation_intervals) - toInt64(sum(allocation_intervals)))) AS error
    FROM ranges
    UNION ALL
    SELECT 'rows' AS kind, 'node_entries' AS resource,
        toInt256(abs((SELECT count() FROM node_entries) - toInt64(sum(node_entries)))) AS error
    FROM ranges
    UNION ALL
    SELECT 'rows' AS kind, 'rates' AS resource,
        toInt256(abs((SELECT count() FROM rates) - toInt64(sum(rates)))) AS error
    FROM ranges
    UNION ALL
    SELECT 'rows' AS kind, 'ledger_ranges' AS resource, toInt256(countIf(after_lsn != previous)) AS error
    FROM joints
);
