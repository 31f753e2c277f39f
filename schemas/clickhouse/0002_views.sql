-- What is made of the tables in 0001_tables.sql: views, one statement each.

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

-- Every entry of the nodes' books, two for a transfer: from a moment on, an account has so much more, or less. A run that
-- is whole in its row is taken apart here.
CREATE VIEW IF NOT EXISTS node_entries AS
SELECT
    lsn,
    event_index,
    node,
    incarnation,
    gpu_model,
    allocation,
    side.1 AS account,
    at,
    side.2 * toInt128(cpu_milli) AS cpu_milli,
    side.2 * toInt128(memory_bytes) AS memory_bytes,
    side.2 * toInt128(gpu_milli) AS gpu_milli
FROM (
    SELECT
        lsn, event_index, node, incarnation, gpu_model, allocation,
        toString(from_account) AS from_account, toString(to_account) AS to_account, at,
        toInt128(cpu_milli) AS cpu_milli, toInt128(memory_bytes) AS memory_bytes, toInt128(gpu_milli) AS gpu_milli
    FROM node_transfers
    UNION ALL
    SELECT
        lsn, event_index, node, incarnation, gpu_model, allocation,
        step.1 AS from_account, step.2 AS to_account, step.3 AS at,
        toInt128(cpu_milli) AS cpu_milli, toInt128(memory_bytes) AS memory_bytes, toInt128(gpu_milli) AS gpu_milli
    FROM allocation_intervals
    ARRAY JOIN [
        ('idle', 'reserved', placed_at),
        ('reserved', 'allocated', started_at),
        ('allocated', 'reserved', ended_at),
        ('reserved', 'idle', released_at)
    ] AS step
    WHERE whole
)
ARRAY JOIN [(from_account, -1), (to_account, 1)] AS side;

-- Every node's timeline, cut wherever something changed. The last segment of a node is open: ended_at is NULL. A run
-- that is not over stands as allocated from its start on; its end is not known yet, so the segments since then may
-- still change from allocated to reserved. The capacity is what the node was said to have, not what the entries come to.
CREATE VIEW IF NOT EXISTS node_segments AS
WITH
    steps AS (
        SELECT node, incarnation, account, at, cpu_milli, memory_bytes, gpu_milli
        FROM node_entries
        WHERE account != 'outside'
        UNION ALL
        SELECT
            node, incarnation, 'capacity' AS account, at,
            toInt128(cpu_milli) - lagInFrame(toInt128(cpu_milli)) OVER said AS cpu_milli,
            toInt128(memory_bytes) - lagInFrame(toInt128(memory_bytes)) OVER said AS memory_bytes,
            toInt128(gpu_milli) - lagInFrame(toInt128(gpu_milli)) OVER said AS gpu_milli
        FROM node_capacities
        WINDOW said AS (
            PARTITION BY node, incarnation ORDER BY lsn, event_index, part
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    ),
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
        FROM steps
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

-- What the tables hold and the applied ranges do not say, or the other way: rows by table, milliseconds of usage_hourly,
-- positions of the ledger that no range has. The service reads it when it starts and when the server was away, so it counts
-- rows and adds up no more than the ranges and the hours.
CREATE VIEW IF NOT EXISTS range_differences AS
SELECT difference.1 AS resource, abs(difference.2) AS error
FROM (
    SELECT arrayJoin([
        ('allocation_intervals', toInt128((SELECT count() FROM allocation_intervals)) - sum(allocation_intervals)),
        ('node_transfers', toInt128((SELECT count() FROM node_transfers)) - sum(node_transfers)),
        ('node_capacities', toInt128((SELECT count() FROM node_capacities)) - sum(node_capacities)),
        ('rates', toInt128((SELECT count() FROM rates)) - sum(rates)),
        ('usage_hourly', toInt128((SELECT sum(ms) FROM usage_hourly)) - sum(usage_ms)),
        ('ledger_ranges', toInt128(max(to_lsn)) - sum(to_lsn - after_lsn))
    ]) AS difference
    FROM ledger_ranges
    WHERE state = 'applied'
);

-- What does not add up, in unit-milliseconds by kind and resource; nothing but zeros is right. It is exact when the
-- projection is at rest; while a batch is being sent, tables may be one batch apart.
--   unbalanced      a node's four states, by its transfers and whole runs, do not make the capacity that it was said to have
--   overdrawn       a state of a node is below zero: more was given out than there was
--   runs            a run that is not whole in its row: its transfers differ from its interval; and of all runs together,
--                   what the fold has summed up from their transfers differs from the intervals
--   hours           the same sum, hour by hour, differs from the hourly use
--   tenants         a tenant's intervals differ from its hourly use
--   rows            the tables differ from what the applied ranges say; see range_differences
CREATE VIEW IF NOT EXISTS conservation AS
WITH
    -- One more millisecond, so that what is wrong at the very last moment also counts.
    (
        SELECT greatest(
            (SELECT max(at) FROM node_transfers),
            (SELECT max(at) FROM node_capacities),
            (SELECT max(released_at) FROM allocation_intervals)
        ) + toIntervalMillisecond(1)
    ) AS until,
    segments AS (
        SELECT
            resource,
            toInt256(dateDiff('millisecond', started_at, coalesce(ended_at, until))) AS ms,
            capacity, allocated, reserved, idle, unavailable
        FROM node_segments
    ),
    -- An allocation that was queued again has several runs, one after the other. Only its last one may be under way, and
    -- is, when something is allocated to it: then its start is not to be compared with anything yet. No such run is whole.
    under_way AS (
        SELECT allocation AS of, max((lsn, event_index)) AS start
        FROM node_transfers
        WHERE from_account = 'allocated' OR to_account = 'allocated'
        GROUP BY allocation
        HAVING sumIf(toInt128(cpu_milli), to_account = 'allocated') > sumIf(toInt128(cpu_milli), from_account = 'allocated')
            OR sumIf(toInt128(memory_bytes), to_account = 'allocated')
                > sumIf(toInt128(memory_bytes), from_account = 'allocated')
            OR sumIf(toInt128(gpu_milli), to_account = 'allocated') > sumIf(toInt128(gpu_milli), from_account = 'allocated')
    ),
    transferred AS (
        SELECT
            allocation,
            node,
            if(entry.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), entry.1) AS key,
            toInt256(entry.2) * if(to_account = 'allocated', 1, -1) AS amount,
            toUnixTimestamp64Milli(at) AS ms,
            (allocation, (lsn, event_index)) IN (SELECT of, start FROM under_way) AS is_under_way
        FROM node_transfers
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS entry
        WHERE from_account = 'allocated' OR to_account = 'allocated'
    ),
    billed AS (
        SELECT
            allocation,
            node,
            tenant,
            job_set,
            whole,
            if(entry.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), entry.1) AS key,
            toInt256(entry.2) * dateDiff('millisecond', started_at, ended_at) AS quantity
        FROM allocation_intervals
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS entry
    ),
    run_differences AS (
        SELECT key, sum(quantity) AS difference
        FROM (
            SELECT allocation, node, key, quantity FROM billed WHERE NOT whole
            UNION ALL
            SELECT allocation, node, key, amount * ms AS quantity FROM transferred WHERE NOT is_under_way
        )
        GROUP BY allocation, node, key
    ),
    -- What the ranges say of all transfers, without the starts of what is under way.
    booked AS (
        SELECT key, hour_no, sum(risen) AS risen, sum(quantity) AS quantity
        FROM (
            SELECT
                booked.1 AS key,
                intDiv(toInt64(toUnixTimestamp(booked.2)), 3600) AS hour_no,
                toInt256(booked.3) AS risen,
                toInt256(booked.4) AS quantity
            FROM ledger_ranges
            ARRAY JOIN allocated AS booked
            WHERE state = 'applied'
            UNION ALL
            SELECT
                key,
                intDiv(ms, 3600000) AS hour_no,
                -amount AS risen,
                -amount * ((hour_no + 1) * 3600000 - ms) AS quantity
            FROM transferred
            WHERE is_under_way
        )
        GROUP BY key, hour_no
    ),
    every_hour AS (
        SELECT key, hour_no, sum(risen) AS risen, sum(quantity) AS quantity
        FROM (
            SELECT key, hour_no, risen, quantity FROM booked
            UNION ALL
            SELECT
                key,
                arrayJoin(range(min(hour_no), max(hour_no) + 1)) AS hour_no,
                toInt256(0) AS risen,
                toInt256(0) AS quantity
            FROM booked
            GROUP BY key
        )
        GROUP BY key, hour_no
    ),
    -- The integral over an hour is what was allocated before it, times its length, and what has changed in it.
    integrals AS (
        SELECT key, hour_no, (sum(risen) OVER w - risen) * 3600000 + quantity AS quantity
        FROM every_hour
        WINDOW w AS (PARTITION BY key ORDER BY hour_no ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    ),
    total_differences AS (
        SELECT key, sum(quantity) AS difference
        FROM (
            SELECT key, quantity FROM integrals
            UNION ALL
            SELECT key, -quantity AS quantity FROM billed
        )
        GROUP BY key
    ),
    hour_differences AS (
        SELECT key, hour_no, sum(quantity) AS difference
        FROM (
            SELECT key, hour_no, quantity FROM integrals
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
    SELECT 'runs' AS kind, key AS resource, sum(abs(difference)) AS error
    FROM (SELECT key, difference FROM run_differences UNION ALL SELECT key, difference FROM total_differences)
    GROUP BY resource
    UNION ALL
    SELECT 'hours' AS kind, key AS resource, sum(abs(difference)) AS error FROM hour_differences GROUP BY resource
    UNION ALL
    SELECT 'tenants' AS kind, key AS resource, sum(abs(difference)) AS error FROM tenant_differences GROUP BY resource
    UNION ALL
    SELECT 'rows' AS kind, resource, error FROM range_differences
);
