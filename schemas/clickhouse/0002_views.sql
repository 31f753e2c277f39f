-- What is made of the tables in 0001_tables.sql: views, one statement each.

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

-- The bill. Each line is one tenant's use of one resource in one hour, rounded half up to one micro-unit of the
-- currency; everything else is a sum of lines. The rate of an hour is the newest one that was effective when it began:
-- for the exact resource, else for 'gpu'.
CREATE VIEW IF NOT EXISTS chargeback_hourly AS
WITH
    prices AS (
        SELECT
            resource AS priced,
            effective_from,
            argMax(micro_per_unit_hour, (version, lsn, event_index)) AS micro,
            toUInt8(1) AS found
        FROM rates
        GROUP BY resource, effective_from
    ),
    used AS (
        SELECT
            tenant,
            hour,
            resource,
            toDateTime64(hour, 3, 'UTC') AS began,
            if(startsWith(resource, 'gpu'), 'gpu', toString(resource)) AS kind,
            sum(quantity) AS quantity,
            sum(ms) AS ms
        FROM usage_hourly
        GROUP BY tenant, hour, resource
    ),
    exact AS (
        SELECT u.*, p.micro AS exact_micro, p.found AS exact_found
        FROM used AS u
        ASOF LEFT JOIN prices AS p ON u.resource = p.priced AND u.began >= p.effective_from
    ),
    rated AS (
        SELECT
            e.*,
            if(exact_found = 1, exact_micro, g.micro) AS micro_per_unit_hour,
            if(exact_found = 1 OR g.found = 1, 1, 0) AS has_rate,
            -- Unit-milliseconds in a billed unit and hour.
            toUInt256(if(kind = 'memory', 1073741824, 1000)) * 3600000 AS per_unit_hour
        FROM exact AS e
        ASOF LEFT JOIN prices AS g ON e.kind = g.priced AND e.began >= g.effective_from
    )
SELECT
    tenant,
    hour,
    resource,
    quantity,
    ms,
    micro_per_unit_hour,
    has_rate,
    toUInt128(intDiv(toUInt256(quantity) * micro_per_unit_hour * 2 + per_unit_hour, per_unit_hour * 2)) AS amount_micro
FROM rated;

CREATE VIEW IF NOT EXISTS chargeback_monthly AS
SELECT
    tenant,
    toStartOfMonth(hour) AS month,
    resource,
    sum(amount_micro) AS amount_micro
FROM chargeback_hourly
GROUP BY tenant, month, resource;

-- Use that nobody is charged for because no rate was effective.
CREATE VIEW IF NOT EXISTS unrated_usage AS
SELECT tenant, hour, resource, quantity, ms
FROM chargeback_hourly
WHERE has_rate = 0;

-- Every node's timeline, cut wherever something changed. The last segment of a node is open: ended_at is NULL. A run
-- that is not over stands as allocated from its start on; its end is not known yet, so the segments since then may
-- still change from allocated to reserved.
CREATE VIEW IF NOT EXISTS node_segments AS
WITH
    moments AS (
        SELECT
            node,
            incarnation,
            entry.1 AS resource,
            at,
            sumIf(entry.2, account = 'capacity') AS d_capacity,
            sumIf(entry.2, account = 'allocated') AS d_allocated,
            sumIf(entry.2, account = 'reserved') AS d_reserved,
            sumIf(entry.2, account = 'idle') AS d_idle,
            sumIf(entry.2, account = 'unavailable') AS d_unavailable
        FROM node_entries
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS entry
        GROUP BY node, incarnation, resource, at
    )
SELECT
    node,
    incarnation,
    resource,
    at AS started_at,
    leadInFrame(toNullable(at)) OVER following AS ended_at,
    sum(d_capacity) OVER before AS capacity,
    sum(d_allocated) OVER before AS allocated,
    sum(d_reserved) OVER before AS reserved,
    sum(d_idle) OVER before AS idle,
    sum(d_unavailable) OVER before AS unavailable
FROM moments
WINDOW
    before AS (PARTITION BY node, incarnation, resource ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
    following AS (PARTITION BY node, incarnation, resource ORDER BY at ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING);

-- What does not add up, in unit-milliseconds by kind and resource; nothing but zeros is right. It is exact when the
-- projection is at rest; while a batch is being sent, tables may be one batch apart.
--   unbalanced      a node's four states do not make its capacity
--   overdrawn       a state of a node is below zero: more was given out than there was
--   runs            the nodes' books of the runs that are over differ from the intervals
--   hours           the nodes' books, cut by the hour, differ from the hourly use
--   tenants         a tenant's intervals differ from its hourly use
--   rows            (in rows) a table has another number of rows than the applied ranges say, or ranges do not join
CREATE VIEW IF NOT EXISTS conservation AS
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
