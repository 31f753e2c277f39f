-- What is made of the tables in 0001_tables.sql: views, one statement each.

-- What the rates of a resource and scope say from a moment on: a price, or that there is none. Of several for one moment the newest
-- counts. Rates that a later withdrawal took back before they began are left out.
CREATE VIEW IF NOT EXISTS rate_changes AS
WITH
    -- With the earliest moment at which a withdrawal counts that was set later.
    set_rates AS (
        SELECT
            *,
            min(if(withdrawn, applied_from, toDateTime64('2200-01-01 00:00:00', 3, 'UTC'))) OVER (
                PARTITION BY resource, tenant, priority_class, pool, cluster ORDER BY lsn, event_index
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
            ) AS ends_at
        FROM rates
    )
SELECT
    toString(r.resource) AS resource,
    toString(r.tenant) AS tenant,
    toString(r.priority_class) AS priority_class,
    toString(r.pool) AS pool,
    toString(r.cluster) AS cluster,
    r.applied_from AS since,
    max(r.lsn) AS lsn,
    argMax(r.micro_per_unit_hour, (r.lsn, r.event_index)) AS micro_per_unit_hour,
    argMax(r.withdrawn, (r.lsn, r.event_index)) AS withdrawn
FROM set_rates AS r
WHERE r.applied_from <= r.ends_at
GROUP BY resource, tenant, priority_class, pool, cluster, since;

-- The moment up to which everything is known: what the ledger said last, or, while nothing happens, what the service said.
CREATE VIEW IF NOT EXISTS known_through AS
SELECT
    greatest(max(clock), assumeNotNull((SELECT max(at) FROM cells))) AS at,
    max(accrued_to) AS accrued_to,
    max(to_lsn) AS lsn
FROM ledger_ranges
WHERE state = 'applied';

-- What allocations that run have used since the last full hour that is in usage_hourly, up to now, in its columns.
CREATE VIEW IF NOT EXISTS running_usage AS
WITH
    assumeNotNull((SELECT at FROM known_through)) AS now_at,
    assumeNotNull((SELECT accrued_to FROM known_through)) AS accrued,
    assumeNotNull((SELECT max(applied_from) FROM rates WHERE applied_from <= accrued)) AS newest,
    (SELECT arraySort(groupUniqArray(applied_from)) FROM rates WHERE applied_from > accrued AND applied_from < now_at) AS begins,
    runs AS (
        SELECT
            *,
            greatest(started_at, accrued) AS from_at,
            -- Cut at the full hours, and where rates begin.
            arraySort(arrayDistinct(arrayConcat(
                [from_at],
                arrayFilter(cut -> cut > from_at, begins),
                arrayFilter(
                    cut -> cut > from_at AND cut < now_at,
                    arrayMap(
                        n -> toDateTime64(toStartOfHour(from_at), 3, 'UTC') + toIntervalHour(n),
                        range(toUInt64(greatest(0, dateDiff('hour', from_at, now_at))) + 1)
                    )
                )
            ))) AS cuts
        FROM running_allocations
        WHERE from_at < now_at
    ),
    pieces AS (
        SELECT
            *,
            piece.1 AS begins_at,
            dateDiff('millisecond', piece.1, piece.2) AS piece_ms
        FROM runs
        ARRAY JOIN arrayZip(cuts, arrayPushBack(arrayPopFront(cuts), now_at)) AS piece
    )
SELECT
    toStartOfMonth(toDate(begins_at)) AS billing_period,
    toString(tenant) AS tenant,
    team,
    namespace,
    queue,
    job_set,
    priority_class,
    cluster,
    pool,
    toStartOfHour(toDateTime(begins_at, 'UTC')) AS hour,
    if(amount.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), amount.1) AS resource,
    arrayLast(cut -> cut <= begins_at, arrayPushFront(begins, newest)) AS since,
    sum(toInt128(amount.2) * piece_ms * sign) AS quantity,
    sum(piece_ms * sign) AS ms
FROM pieces
ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS amount
WHERE amount.2 != 0
GROUP BY billing_period, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, hour, resource, since
HAVING ms != 0;

-- Prices of the use: for each combination of resource, tenant, priority class, pool and cluster in the use, a row for each moment at
-- which a rate of one of these names begins. The same for the capacity, without a tenant and a priority class. A row counts until the
-- next one of its combination, so use is joined with the last row whose `since` is not after its own (ASOF); without a row, and where
-- `has_rate` is 0, there is no price. Of the rates that fit, one for the tenant goes before one for all tenants; then in the same way
-- one for the priority class, the pool, the cluster, and the GPU model. The list price is what the rates say that name neither a tenant
-- nor a priority class; it prices the capacity. `fitting` has all that fit, the one that counts last. Use from before a rate was set has
-- its price only if the rate corrects the past; the price before the correction is that of the last one in the list with a smaller
-- `lsn` than the use.
CREATE VIEW IF NOT EXISTS prices AS
WITH
    used AS (
        SELECT DISTINCT
            toString(resource) AS resource, toString(tenant) AS tenant, toString(priority_class) AS priority_class,
            toString(pool) AS pool, toString(cluster) AS cluster
        FROM usage_hourly
        UNION ALL
        SELECT DISTINCT
            resource, tenant, priority_class, toString(pool) AS pool, toString(cluster) AS cluster
        FROM running_usage
        UNION ALL
        SELECT c.resource AS resource, m.tenant AS tenant, m.priority_class AS priority_class, c.pool AS pool, c.cluster AS cluster
        FROM (
            SELECT DISTINCT toString(resource) AS resource, toString(pool) AS pool, toString(cluster) AS cluster
            FROM capacity_hourly
        ) AS c
        CROSS JOIN (
            -- Columns and not the empty name, so that a condition on the tenant reaches the tables above.
            SELECT DISTINCT toString(tenant) AS tenant, toString(priority_class) AS priority_class
            FROM rates
            WHERE tenant = '' AND priority_class = ''
        ) AS m
    ),
    -- One row for each choice of names that some rate makes and the use has: which rate that would be.
    candidates AS (
        SELECT
            resource, tenant, priority_class, pool, cluster, named,
            if(startsWith(resource, 'gpu:') AND NOT named.5, 'gpu', resource) AS of_resource,
            if(named.1, tenant, '') AS of_tenant,
            if(named.2, priority_class, '') AS of_priority_class,
            if(named.3, pool, '') AS of_pool,
            if(named.4, cluster, '') AS of_cluster
        FROM (SELECT DISTINCT * FROM used) AS u
        ARRAY JOIN (
            SELECT groupUniqArray((tenant != '', priority_class != '', pool != '', cluster != '', startsWith(resource, 'gpu:')))
            FROM rates
        ) AS named
        WHERE named = (of_tenant != '', of_priority_class != '', of_pool != '', of_cluster != '', startsWith(of_resource, 'gpu:'))
    ),
    moments AS (
        SELECT DISTINCT
            c.resource AS resource, c.tenant AS tenant, c.priority_class AS priority_class, c.pool AS pool, c.cluster AS cluster,
            r.since AS since
        FROM candidates AS c
        INNER JOIN rate_changes AS r
            ON c.of_resource = r.resource AND c.of_tenant = r.tenant AND c.of_priority_class = r.priority_class
            AND c.of_pool = r.pool AND c.of_cluster = r.cluster
    )
SELECT
    c.resource AS resource,
    c.tenant AS tenant,
    c.priority_class AS priority_class,
    c.pool AS pool,
    c.cluster AS cluster,
    c.since AS since,
    toUInt8(countIf(NOT r.withdrawn) > 0) AS has_rate,
    argMaxIf(r.micro_per_unit_hour, c.named, NOT r.withdrawn) AS micro_per_unit_hour,
    argMaxIf(r.micro_per_unit_hour, c.named, NOT r.withdrawn AND NOT c.named.1 AND NOT c.named.2) AS list_micro_per_unit_hour,
    arraySort(groupArrayIf((c.named, r.lsn, r.micro_per_unit_hour), NOT r.withdrawn)) AS fitting
FROM (
    SELECT c.*, m.since AS since
    FROM candidates AS c
    INNER JOIN moments AS m ON c.resource = m.resource AND c.tenant = m.tenant AND c.priority_class = m.priority_class
        AND c.pool = m.pool AND c.cluster = m.cluster
) AS c
ASOF INNER JOIN rate_changes AS r
    ON c.of_resource = r.resource AND c.of_tenant = r.tenant AND c.of_priority_class = r.priority_class
    AND c.of_pool = r.pool AND c.of_cluster = r.cluster AND c.since >= r.since
GROUP BY resource, tenant, priority_class, pool, cluster, since;

-- The bill, line by line, up to now: what is over and what runs. A line is what one tenant, team, namespace, queue, job set and
-- priority class used of one resource of one pool in one hour, at one price; its amount is rounded half up, away from zero, to
-- one micro-unit of the currency. The same at the list price, which the capacity costs, is more by the discount; less than 0 is a
-- surcharge. Everything else is a sum of lines. A line of an hour whose month was closed before it was known
-- stands in the first month that was open, as a correction.
CREATE VIEW IF NOT EXISTS chargeback_hourly AS
WITH
    assumeNotNull((SELECT accrued_to FROM known_through)) AS accrued,
    (SELECT groupUniqArray(toStartOfHour(toDateTime(applied_from, 'UTC'))) FROM rates
        WHERE toStartOfHour(toDateTime(applied_from, 'UTC')) != applied_from) AS cut_hours,
    -- Of an hour that is over and in which no rate begins, the rows of a key are a line, and the server puts them together as
    -- they lie, which takes a fraction of the time and memory of a GROUP BY.
    settled AS (
        SELECT
            u.billing_period AS billing_period, u.tenant AS tenant, u.team AS team, u.namespace AS namespace, u.queue AS queue,
            u.job_set AS job_set, u.priority_class AS priority_class, u.cluster AS cluster, u.pool AS pool, u.hour AS hour,
            u.resource AS resource, p.micro_per_unit_hour AS micro_per_unit_hour,
            p.list_micro_per_unit_hour AS list_micro_per_unit_hour, p.has_rate AS has_rate,
            u.quantity AS quantity, u.ms AS ms, u.first_lsn AS first_lsn, u.last_lsn AS last_lsn
        FROM (
            SELECT * FROM usage_hourly FINAL
            WHERE hour < accrued AND NOT has(cut_hours, hour)
        ) AS u
        ASOF LEFT JOIN prices AS p ON u.resource = p.resource AND u.tenant = p.tenant AND u.priority_class = p.priority_class
            AND u.pool = p.pool AND u.cluster = p.cluster AND u.since >= p.since
    ),
    unsettled AS (
        SELECT
            billing_period, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, hour, resource, since,
            quantity, ms, first_lsn, last_lsn
        FROM usage_hourly
        WHERE hour >= accrued OR has(cut_hours, hour)
        UNION ALL
        SELECT
            billing_period, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, hour, resource, since,
            quantity, ms,
            assumeNotNull((SELECT lsn FROM known_through)) AS first_lsn,
            first_lsn AS last_lsn
        FROM running_usage
    ),
    lines AS (
        SELECT
            billing_period, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, hour, resource,
            micro_per_unit_hour, list_micro_per_unit_hour, has_rate, quantity, ms, first_lsn, last_lsn
        FROM settled
        UNION ALL
        SELECT
            u.billing_period AS billing_period, u.tenant AS tenant, u.team AS team, u.namespace AS namespace, u.queue AS queue,
            u.job_set AS job_set, u.priority_class AS priority_class, u.cluster AS cluster, u.pool AS pool, u.hour AS hour,
            u.resource AS resource, p.micro_per_unit_hour AS micro_per_unit_hour,
            p.list_micro_per_unit_hour AS list_micro_per_unit_hour, p.has_rate AS has_rate,
            sum(u.quantity) AS quantity, sum(u.ms) AS ms, min(u.first_lsn) AS first_lsn, max(u.last_lsn) AS last_lsn
        FROM unsettled AS u
        ASOF LEFT JOIN prices AS p ON u.resource = p.resource AND u.tenant = p.tenant AND u.priority_class = p.priority_class
            AND u.pool = p.pool AND u.cluster = p.cluster AND u.since >= p.since
        GROUP BY
            billing_period, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, hour, resource,
            micro_per_unit_hour, list_micro_per_unit_hour, has_rate
    )
SELECT
    billing_period,
    tenant,
    team,
    namespace,
    queue,
    job_set,
    priority_class,
    cluster,
    pool,
    hour,
    resource,
    micro_per_unit_hour,
    list_micro_per_unit_hour,
    has_rate,
    quantity,
    -- Core-hours, GiB-hours or GPU-hours, for people; the bill is made of whole numbers.
    toFloat64(quantity) / toFloat64(per_unit_hour) AS unit_hours,
    ms,
    -- Unit-milliseconds in a billed unit and hour.
    toInt256(if(resource = 'memory', 1073741824, 1000)) * 3600000 AS per_unit_hour,
    toInt128(sign(quantity) * intDiv(abs(toInt256(quantity)) * micro_per_unit_hour * 2 + per_unit_hour, per_unit_hour * 2))
        AS amount_micro,
    toInt128(sign(quantity) * intDiv(abs(toInt256(quantity)) * list_micro_per_unit_hour * 2 + per_unit_hour, per_unit_hour * 2))
        - amount_micro AS discount_micro,
    toUInt8(toStartOfMonth(toDate(hour)) != billing_period) AS is_correction,
    first_lsn,
    last_lsn
FROM lines
WHERE quantity != 0 OR ms != 0;

-- The bill by the month: sums of the lines of chargeback_hourly. `month` is the one in whose bill they stand.
CREATE VIEW IF NOT EXISTS chargeback_monthly AS
SELECT
    tenant,
    billing_period AS month,
    resource,
    sum(amount_micro) AS amount_micro
FROM chargeback_hourly
GROUP BY tenant, month, resource;

-- Use that nobody is charged for because no rate was effective.
CREATE VIEW IF NOT EXISTS unrated_usage AS
SELECT tenant, hour, resource, sum(quantity) AS quantity, sum(ms) AS ms
FROM chargeback_hourly
WHERE has_rate = 0
GROUP BY tenant, hour, resource;

-- What the nodes of a cluster and pool had, by the stretch of an hour in which all list prices are the same, up to now: unit-
-- milliseconds by account, made of their books and of nothing that the bill is made of. What became known of an hour after its
-- month was closed stands in the first month that was open, as a correction of the hour.
CREATE VIEW IF NOT EXISTS cluster_slices AS
WITH
    assumeNotNull((SELECT at FROM known_through)) AS now_at,
    list_moments AS (SELECT DISTINCT 1 AS one, applied_from AS since FROM rates WHERE tenant = '' AND priority_class = ''),
    (SELECT arraySort(groupArray(since)) FROM list_moments) AS begins,
    assumeNotNull((SELECT min(hour) FROM capacity_hourly)) AS first_hour,
    toDate(0) AS of_the_hour,
    -- What corrects a closed month is, from the month that it was known in on, as if it had been so all along.
    changes AS (
        SELECT
            cluster, pool, resource, account, part.1 AS period, part.2 AS begins_at,
            sum(part.3) AS gained,
            sum(part.4) AS weighted
        FROM (
            SELECT c.* EXCEPT (one, since), m.since AS since
            FROM (SELECT *, 1 AS one FROM capacity_hourly) AS c
            ASOF LEFT JOIN list_moments AS m ON c.one = m.one AND c.since >= m.since
        )
        ARRAY JOIN if(
            billing_period = toStartOfMonth(toDate(hour)),
            [(of_the_hour, greatest(toDateTime64(hour, 3, 'UTC'), since), toInt128(risen), toInt128(moment))],
            [
                (billing_period, greatest(toDateTime64(hour, 3, 'UTC'), since), toInt128(risen), toInt128(moment)),
                (of_the_hour, toDateTime64(billing_period, 3, 'UTC'), toInt128(risen), toInt128(0))
            ]
        ) AS part
        GROUP BY cluster, pool, resource, account, period, begins_at
    ),
    hours AS (
        SELECT
            arrayJoin(arrayMap(
                n -> toDateTime64(first_hour, 3, 'UTC') + toIntervalHour(n),
                range(toUInt64(greatest(0, dateDiff('hour', first_hour, now_at))) + 1)
            )) AS hour
    ),
    slices AS (
        SELECT
            hour,
            least(hour + toIntervalHour(1), now_at) AS hour_ends,
            arrayConcat([hour], arrayFilter(cut -> cut > hour AND cut < hour_ends, begins)) AS cuts,
            slice.1 AS begins_at,
            slice.2 AS ends_at
        FROM hours
        ARRAY JOIN arrayZip(cuts, arrayPushBack(arrayPopFront(cuts), hour_ends)) AS slice
        WHERE hour < now_at
    ),
    every_slice AS (
        SELECT k.cluster, k.pool, k.resource, k.account, k.period, s.hour, s.begins_at, s.ends_at
        FROM (
            SELECT cluster, pool, resource, account, period, min(begins_at) AS first_at
            FROM changes
            GROUP BY cluster, pool, resource, account, period
        ) AS k
        CROSS JOIN slices AS s
        WHERE s.begins_at >= k.first_at AND (k.period = of_the_hour OR s.begins_at < toDateTime64(k.period, 3, 'UTC'))
    ),
    integrals AS (
        SELECT
            e.cluster, e.pool, e.resource, e.account, e.period, e.hour, e.begins_at, e.ends_at,
            (sum(c.gained) OVER w - c.gained) * dateDiff('millisecond', e.begins_at, e.ends_at)
                + c.gained * dateDiff('millisecond', e.hour, e.ends_at) - c.weighted AS quantity
        FROM every_slice AS e
        LEFT JOIN changes AS c
            ON e.cluster = c.cluster AND e.pool = c.pool AND e.resource = c.resource AND e.account = c.account
            AND e.period = c.period AND e.begins_at = c.begins_at
        WINDOW w AS (
            PARTITION BY e.cluster, e.pool, e.resource, e.account, e.period ORDER BY e.begins_at
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    )
SELECT
    if(i.period = of_the_hour, toStartOfMonth(toDate(i.hour)), i.period) AS billing_period,
    toString(cluster) AS cluster,
    toString(pool) AS pool,
    toString(resource) AS resource,
    toDateTime(i.hour, 'UTC') AS hour,
    begins_at,
    ends_at,
    sum(toInt256(i.quantity)) AS capacity,
    sumIf(toInt256(i.quantity), account = 'allocated') AS allocated,
    sumIf(toInt256(i.quantity), account = 'reserved') AS reserved,
    sumIf(toInt256(i.quantity), account = 'idle') AS idle,
    sumIf(toInt256(i.quantity), account = 'cordoned') AS cordoned,
    sumIf(toInt256(i.quantity), account = 'unavailable') AS unavailable
FROM integrals AS i
GROUP BY billing_period, cluster, pool, resource, hour, begins_at, ends_at
HAVING capacity != 0 OR allocated != 0 OR reserved != 0 OR idle != 0 OR cordoned != 0 OR unavailable != 0;

-- What the nodes of a cluster and pool had, by the hour, and the list price of it: times a quantity, millionths of the currency times
-- unit-milliseconds. Divide by per_unit_hour.
CREATE VIEW IF NOT EXISTS cluster_hourly AS
WITH
    priced AS (
        SELECT s.*, p.list_micro_per_unit_hour AS micro_per_unit_hour
        FROM cluster_slices AS s
        ASOF LEFT JOIN (SELECT * FROM prices WHERE tenant = '' AND priority_class = '') AS p
            ON s.resource = p.resource AND s.pool = p.pool AND s.cluster = p.cluster AND s.begins_at >= p.since
    )
SELECT
    billing_period,
    cluster,
    pool,
    hour,
    resource,
    micro_per_unit_hour,
    toInt256(if(resource = 'memory', 1073741824, 1000)) * 3600000 AS per_unit_hour,
    sum(p.capacity) AS capacity,
    sum(p.allocated) AS allocated,
    sum(p.reserved) AS reserved,
    sum(p.idle) AS idle,
    sum(p.cordoned) AS cordoned,
    sum(p.unavailable) AS unavailable
FROM priced AS p
GROUP BY billing_period, cluster, pool, hour, resource, micro_per_unit_hour;

-- What the capacity of an hour costs at its list price and no tenant is charged for, by the state that it was in; and the discount:
-- what tenants were charged less than the list price of what they used, or, below 0, more. Amounts are rounded half up; with the
-- lines of the hour they come to the whole capacity's amount, because what is idle takes the rounding of all of them.
CREATE VIEW IF NOT EXISTS platform_cost_hourly AS
WITH
    charged AS (
        SELECT
            billing_period, cluster, pool, hour, resource, list_micro_per_unit_hour,
            sum(amount_micro) AS amount_micro, sum(discount_micro) AS discount_micro
        FROM chargeback_hourly
        GROUP BY billing_period, cluster, pool, hour, resource, list_micro_per_unit_hour
    ),
    amounts AS (
        SELECT
            c.billing_period AS billing_period, c.cluster AS cluster, c.pool AS pool, c.hour AS hour, c.resource AS resource,
            c.micro_per_unit_hour AS micro_per_unit_hour,
            arrayMap(
                quantity -> toInt128(
                    sign(quantity) * intDiv(abs(quantity) * micro_per_unit_hour * 2 + per_unit_hour, per_unit_hour * 2)
                ),
                [capacity, reserved, cordoned, unavailable]
            ) AS micro,
            c.reserved AS reserved, c.cordoned AS cordoned, c.unavailable AS unavailable, c.idle AS idle,
            b.amount_micro AS charged_micro, b.discount_micro AS discount_micro
        FROM cluster_hourly AS c
        LEFT JOIN charged AS b
            ON c.billing_period = b.billing_period AND c.cluster = b.cluster AND c.pool = b.pool AND c.hour = b.hour AND c.resource = b.resource
            AND c.micro_per_unit_hour = b.list_micro_per_unit_hour
    )
SELECT
    billing_period,
    hour,
    cluster,
    pool,
    resource,
    part.1 AS state,
    micro_per_unit_hour,
    part.2 AS quantity,
    part.3 AS amount_micro,
    toUInt8(toStartOfMonth(toDate(hour)) != billing_period) AS is_correction
FROM amounts
ARRAY JOIN [
    ('reserved', reserved, micro[2]),
    ('cordoned', cordoned, micro[3]),
    ('unavailable', unavailable, micro[4]),
    ('discount', toInt256(0), discount_micro),
    ('idle', idle, micro[1] - micro[2] - micro[3] - micro[4] - charged_micro - discount_micro)
] AS part
WHERE part.2 != 0 OR part.3 != 0;

-- Each month's capacity at its list price against what became of it. `variance` is exact, before any rounding: the cost of the
-- capacity less that of what was used, charged and discount together, reserved, idle, cordoned and unavailable, in millionths of
-- the currency times unit-milliseconds; nothing but 0 is right. `rounding_micro` is what the rounded lines come to more than their exact sum.
CREATE VIEW IF NOT EXISTS reconciliation AS
WITH
    had AS (
        SELECT
            billing_period AS month, cluster, pool, resource, any(per_unit_hour) AS per_unit_hour,
            sum(h.capacity * micro_per_unit_hour) AS capacity,
            sum((h.reserved + h.idle + h.cordoned + h.unavailable) * micro_per_unit_hour) AS platform,
            sum(h.reserved * micro_per_unit_hour) AS reserved,
            sum(h.idle * micro_per_unit_hour) AS idle,
            sum(h.cordoned * micro_per_unit_hour) AS cordoned,
            sum(h.unavailable * micro_per_unit_hour) AS unavailable
        FROM cluster_hourly AS h
        GROUP BY month, cluster, pool, resource
    ),
    charged AS (
        SELECT
            billing_period AS month, cluster, pool, resource,
            sum(toInt256(quantity) * micro_per_unit_hour) AS exact,
            sum(toInt256(quantity) * list_micro_per_unit_hour) AS listed,
            sum(amount_micro) AS charged_micro,
            min(first_lsn) AS first_lsn,
            max(last_lsn) AS last_lsn
        FROM chargeback_hourly
        GROUP BY month, cluster, pool, resource
    )
SELECT
    h.month AS month,
    h.cluster AS cluster,
    h.pool AS pool,
    h.resource AS resource,
    toInt128(intDiv(h.capacity * 2 + per_unit_hour, per_unit_hour * 2)) AS capacity_micro,
    c.charged_micro AS charged_micro,
    toInt128(sign(c.listed - c.exact) * intDiv(abs(c.listed - c.exact) * 2 + per_unit_hour, per_unit_hour * 2)) AS discount_micro,
    toInt128(intDiv(h.reserved * 2 + per_unit_hour, per_unit_hour * 2)) AS reserved_micro,
    toInt128(intDiv(h.idle * 2 + per_unit_hour, per_unit_hour * 2)) AS idle_micro,
    toInt128(intDiv(h.cordoned * 2 + per_unit_hour, per_unit_hour * 2)) AS cordoned_micro,
    toInt128(intDiv(h.unavailable * 2 + per_unit_hour, per_unit_hour * 2)) AS unavailable_micro,
    toFloat64(c.charged_micro) - toFloat64(c.exact) / toFloat64(per_unit_hour) AS rounding_micro,
    h.capacity - h.platform - c.listed AS variance,
    c.first_lsn AS first_lsn,
    c.last_lsn AS last_lsn
FROM had AS h
LEFT JOIN charged AS c ON h.month = c.month AND h.cluster = c.cluster AND h.pool = c.pool AND h.resource = c.resource;

-- The bill as rows of the FinOps Open Cost and Usage Specification (FOCUS) 1.2: one row for each line of chargeback_hourly, and
-- one for each line of platform_cost_hourly, which no tenant was charged for.
--
-- BilledCost is the line's amount, to the micro-unit, and 0 for what nobody was charged for; EffectiveCost is the amount of
-- both. ContractedCost is price x quantity and not rounded, because FOCUS wants the exact product; it differs from the amount by
-- half a micro-unit at the most. ListCost is the same with the list price. A correction may differ from the product, so that all
-- its costs are the amount, unless it has a discount. The quantity has 12 decimals, cut off. An amount or quantity that has no room in 38 digits is an error.
--
-- Columns of FOCUS first, by name, then the suite's own, with x_.
CREATE VIEW IF NOT EXISTS focus_charges AS
WITH
    lines AS (
        SELECT
            billing_period,
            toString(tenant) AS tenant,
            team,
            namespace,
            queue,
            job_set,
            priority_class,
            cluster,
            pool,
            hour,
            toString(resource) AS resource,
            'allocated' AS state,
            micro_per_unit_hour,
            list_micro_per_unit_hour,
            has_rate = 1 AS has_rate,
            quantity,
            toNullable(ms) AS ms,
            amount_micro,
            is_correction = 1 AS corrects,
            toNullable(first_lsn) AS first_lsn,
            toNullable(last_lsn) AS last_lsn
        FROM chargeback_hourly
        UNION ALL
        SELECT
            billing_period,
            '' AS tenant,
            '' AS team,
            '' AS namespace,
            '' AS queue,
            '' AS job_set,
            '' AS priority_class,
            cluster,
            pool,
            hour,
            toString(resource) AS resource,
            toString(state) AS state,
            micro_per_unit_hour,
            micro_per_unit_hour AS list_micro_per_unit_hour,
            micro_per_unit_hour != 0 AS has_rate,
            quantity,
            CAST(NULL, 'Nullable(Int64)') AS ms,
            amount_micro,
            is_correction = 1 AS corrects,
            CAST(NULL, 'Nullable(UInt64)') AS first_lsn,
            CAST(NULL, 'Nullable(UInt64)') AS last_lsn
        FROM platform_cost_hourly
        -- It is what list cost and billed cost of the lines differ by.
        WHERE state != 'discount'
    ),
    named AS (
        SELECT
            *,
            state = 'allocated' AS charged,
            if(startsWith(resource, 'gpu:'), substring(resource, 5), '') AS gpu_model,
            multiIf(resource = 'cpu', 'CPU', resource = 'memory', 'Memory', gpu_model = '', 'GPU', 'GPU ' || gpu_model) AS meter,
            multiIf(resource = 'cpu', 'Core-Hours', resource = 'memory', 'GiB-Hours', 'GPU-Hours') AS unit,
            -- Unit-milliseconds in a billed unit and hour, as in chargeback_hourly.
            if(resource = 'memory', 1073741824, 1000) * toDecimal256(3600000, 0) AS per_unit_hour,
            toDecimal128(divideDecimal(toDecimal256(quantity, 0), per_unit_hour, 12), 12) AS units,
            toDecimal128(micro_per_unit_hour, 6) / 1000000 AS price,
            toDecimal128(list_micro_per_unit_hour, 6) / 1000000 AS list_price,
            toDecimal128(amount_micro, 6) / 1000000 AS amount,
            if(corrects, toDecimal128(amount, 18), toDecimal128(toDecimal256(units, 12) * toDecimal256(price, 6), 18)) AS product,
            if(
                corrects AND list_price = price,
                toDecimal128(amount, 18),
                toDecimal128(toDecimal256(units, 12) * toDecimal256(list_price, 6), 18)
            ) AS list_product,
            multiIf(charged AND job_set != '', 'job-set/' || tenant || '/' || job_set,
                    NOT charged AND pool != '', 'pool/' || cluster || '/' || pool, NULL) AS resource_id
        FROM lines
    )
SELECT
    if(charged, amount, toDecimal128(0, 6)) AS BilledCost,
    'apportion' AS BillingAccountId,
    'Apportion' AS BillingAccountName,
    (SELECT argMax(currency, at) FROM cells) AS BillingCurrency,
    toDateTime(addMonths(billing_period, 1), 'UTC') AS BillingPeriodEnd,
    toDateTime(billing_period, 'UTC') AS BillingPeriodStart,
    'Usage' AS ChargeCategory,
    if(corrects, 'Correction', NULL) AS ChargeClass,
    concat(
        if(corrects, 'Correction of ' || formatDateTime(hour, '%Y-%m', 'UTC') || ': ', ''),
        meter, ' ', state,
        if(has_rate, '', ', no rate in force')
    ) AS ChargeDescription,
    'Usage-Based' AS ChargeFrequency,
    hour + INTERVAL 1 HOUR AS ChargePeriodEnd,
    hour AS ChargePeriodStart,
    CAST(NULL, 'Nullable(String)') AS CommitmentDiscountStatus,
    units AS ConsumedQuantity,
    unit AS ConsumedUnit,
    product AS ContractedCost,
    price AS ContractedUnitPrice,
    amount AS EffectiveCost,
    CAST(NULL, 'Nullable(String)') AS InvoiceId,
    'Apportion' AS InvoiceIssuerName,
    list_product AS ListCost,
    list_price AS ListUnitPrice,
    if(has_rate, 'Standard', 'Other') AS PricingCategory,
    BillingCurrency AS PricingCurrency,
    price AS PricingCurrencyContractedUnitPrice,
    amount AS PricingCurrencyEffectiveCost,
    list_price AS PricingCurrencyListUnitPrice,
    units AS PricingQuantity,
    unit AS PricingUnit,
    'Apportion' AS ProviderName,
    'Apportion' AS PublisherName,
    resource_id AS ResourceId,
    multiIf(resource_id IS NULL, NULL, charged, job_set, pool) AS ResourceName,
    multiIf(resource_id IS NULL, NULL, charged, 'Job Set', 'Pool') AS ResourceType,
    'Compute' AS ServiceCategory,
    if(charged, 'Allocations', 'Unallocated Capacity') AS ServiceName,
    'Other (Compute)' AS ServiceSubcategory,
    resource AS SkuId,
    meter AS SkuMeter,
    multiIf(
        resource = 'cpu', '{"CoreCount":1}',
        resource = 'memory', '{"MemorySize":1}',
        gpu_model = '', '{"GpuCount":1}',
        '{"GpuCount":1,"x_GpuModel":' || toJSONString(gpu_model) || '}'
    ) AS SkuPriceDetails,
    resource || '@' || if(has_rate, toString(micro_per_unit_hour), 'unrated') AS SkuPriceId,
    nullIf(tenant, '') AS SubAccountId,
    nullIf(tenant, '') AS SubAccountName,
    toDecimal128(amount_micro, 0) AS x_AmountMicro,
    state AS x_CapacityState,
    nullIf(cluster, '') AS x_Cluster,
    first_lsn AS x_FirstLsn,
    nullIf(job_set, '') AS x_JobSet,
    last_lsn AS x_LastLsn,
    ms AS x_Milliseconds,
    nullIf(namespace, '') AS x_Namespace,
    nullIf(pool, '') AS x_Pool,
    nullIf(priority_class, '') AS x_PriorityClass,
    nullIf(queue, '') AS x_Queue,
    has_rate AS x_Rated,
    nullIf(team, '') AS x_Team,
    nullIf(tenant, '') AS x_Tenant,
    toDecimal128(divideDecimal(toDecimal256(quantity, 0), toDecimal256(1000, 0), 3), 3) AS x_UnitSeconds
FROM named;

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
            sumIf(entry.2, account = 'cordoned') AS d_cordoned,
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
    sum(d_cordoned) OVER before AS cordoned,
    sum(d_unavailable) OVER before AS unavailable
FROM moments
WINDOW
    before AS (PARTITION BY node, incarnation, resource ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
    following AS (PARTITION BY node, incarnation, resource ORDER BY at ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING);

-- What held of a node from when until when: a node is under pressure while status is true, and can be counted on while that of
-- Ready is. What goes on has no end.
CREATE VIEW IF NOT EXISTS node_condition_history AS
SELECT
    toString(node) AS node,
    toString(condition) AS condition,
    toString(status) AS status,
    toString(reason) AS reason,
    at AS begins_at,
    leadInFrame(toNullable(at), 1, NULL) OVER following AS ends_at
FROM node_conditions
WINDOW following AS (
    PARTITION BY node, condition ORDER BY lsn, event_index
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
);

-- What the tables hold and the applied ranges do not say, or the other way: rows by table, sums of tables in which rows of one key
-- become one, positions of the ledger that no range has. The service reads it when it starts and when the server was away, so it
-- counts rows and adds up no more than the ranges and the hours.
CREATE VIEW IF NOT EXISTS range_differences AS
SELECT difference.1 AS resource, abs(difference.2) AS error
FROM (
    SELECT arrayJoin([
        ('allocation_intervals', toInt128((SELECT count() FROM allocation_intervals)) - sum(allocation_intervals)),
        ('running_allocations', toInt128((SELECT sum(toInt128(checksum) * sign) FROM running_allocations)) - sum(running_allocations)),
        ('unplaced_allocations', toInt128((SELECT count() FROM unplaced_allocations)) - sum(unplaced_allocations)),
        ('preemptions', toInt128((SELECT count() FROM preemptions)) - sum(preemptions)),
        ('quota_denials', toInt128((SELECT count() FROM quota_denials)) - sum(quota_denials)),
        ('node_transfers', toInt128((SELECT count() FROM node_transfers)) - sum(node_transfers)),
        ('node_capacities', toInt128((SELECT count() FROM node_capacities)) - sum(node_capacities)),
        ('node_conditions', toInt128((SELECT count() FROM node_conditions)) - sum(node_conditions)),
        ('rates', toInt128((SELECT count() FROM rates)) - sum(rates)),
        ('budgets', toInt128((SELECT count() FROM budgets)) - sum(budgets)),
        ('closed_periods', toInt128((SELECT count() FROM closed_periods)) - sum(closed_periods)),
        ('usage_hourly', toInt128((SELECT sum(ms) FROM usage_hourly)) - sum(usage_ms)),
        ('capacity_hourly', toInt128((SELECT sum(transfers) FROM capacity_hourly)) - sum(capacity_transfers)),
        ('ledger_ranges', toInt128(max(to_lsn)) - sum(to_lsn - after_lsn))
    ]) AS difference
    FROM ledger_ranges
    WHERE state = 'applied'
);

-- What does not add up, in unit-milliseconds by kind and resource; nothing but zeros is right. It is exact when the
-- projection is at rest; while a batch is being sent, tables may be one batch apart.
--   unbalanced      a node's states, by its transfers and whole runs, do not make the capacity that it was said to have
--   overdrawn       a state of a node is below zero: more was given out than there was
--   runs            a run that is not whole in its row: its transfers differ from its interval; and of all runs together,
--                   over or not, what was summed up from their transfers differs from the intervals and from what runs
--   hours           the same sum, hour by hour, differs from the hourly use
--   tenants         what a tenant's job set used by its intervals, and by what runs, differs from its hourly use
--   clusters        an account of all nodes by their timelines differs from what was summed up by the hour
--   rows            the tables differ from what the applied ranges say; see range_differences
CREATE VIEW IF NOT EXISTS conservation AS
WITH
    assumeNotNull((SELECT at FROM known_through)) AS until,
    segments AS (
        SELECT
            resource,
            toInt256(dateDiff('millisecond', started_at, coalesce(ended_at, greatest(until, started_at)))) AS ms,
            -- What is wrong at the very last moment also counts.
            greatest(ms, ended_at IS NULL) AS check_ms,
            capacity, allocated, reserved, idle, cordoned, unavailable
        FROM node_segments
    ),
    running AS (
        SELECT
            allocation, tenant, job_set,
            if(entry.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), entry.1) AS key,
            toInt256(entry.2) * sign AS amount,
            toUnixTimestamp64Milli(started_at) AS started,
            node
        FROM running_allocations
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS entry
    ),
    transferred AS (
        SELECT
            allocation,
            node,
            if(entry.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), entry.1) AS key,
            toInt256(entry.2) * if(to_account = 'allocated', 1, -1) AS amount,
            toUnixTimestamp64Milli(at) AS ms
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
    -- Of what runs, the start is in the transfers and the end is not.
    run_differences AS (
        SELECT key, sum(quantity) AS difference
        FROM (
            SELECT allocation, node, key, quantity FROM billed WHERE NOT whole
            UNION ALL
            SELECT allocation, node, key, amount * ms AS quantity FROM transferred
            UNION ALL
            SELECT allocation, node, key, -amount * started AS quantity FROM running
        )
        GROUP BY allocation, node, key
    ),
    integrals AS (
        SELECT toString(resource) AS key, hour, sum(allocated) AS quantity FROM cluster_slices GROUP BY key, hour
    ),
    used AS (
        SELECT toString(tenant) AS tenant, job_set, toString(resource) AS key, hour, toInt256(quantity) AS quantity
        FROM usage_hourly
        UNION ALL
        SELECT tenant, job_set, resource AS key, hour, toInt256(quantity) AS quantity FROM running_usage
    ),
    ran AS (
        SELECT tenant, job_set, key, quantity FROM billed
        UNION ALL
        SELECT tenant, job_set, key, amount * greatest(0, toUnixTimestamp64Milli(until) - started) AS quantity FROM running
    ),
    total_differences AS (
        SELECT key, sum(quantity) AS difference
        FROM (SELECT key, quantity FROM integrals UNION ALL SELECT key, -quantity AS quantity FROM ran)
        GROUP BY key
    ),
    hour_differences AS (
        SELECT key, hour, sum(quantity) AS difference
        FROM (SELECT key, hour, quantity FROM integrals UNION ALL SELECT key, hour, -quantity AS quantity FROM used)
        GROUP BY key, hour
    ),
    tenant_differences AS (
        SELECT key, sum(quantity) AS difference
        FROM (
            SELECT tenant, job_set, key, quantity FROM ran
            UNION ALL
            SELECT tenant, job_set, key, -quantity AS quantity FROM used
        )
        GROUP BY tenant, job_set, key
    ),
    cluster_differences AS (
        SELECT key, account.1 AS name, sum(account.2) AS difference
        FROM (
            SELECT
                resource AS key,
                [
                    ('allocated', allocated * ms), ('reserved', reserved * ms), ('idle', idle * ms),
                    ('cordoned', cordoned * ms), ('unavailable', unavailable * ms)
                ] AS accounts
            FROM segments
            UNION ALL
            SELECT
                if(startsWith(resource, 'gpu'), 'gpu', resource) AS key,
                [
                    ('allocated', -allocated), ('reserved', -reserved), ('idle', -idle), ('cordoned', -cordoned),
                    ('unavailable', -unavailable)
                ] AS accounts
            FROM cluster_slices
        )
        ARRAY JOIN accounts AS account
        GROUP BY key, name
    )
SELECT kind, resource, toUInt256(error) AS error
FROM (
    SELECT 'unbalanced' AS kind, resource,
        sum(abs(capacity - allocated - reserved - idle - cordoned - unavailable) * check_ms) AS error
    FROM segments GROUP BY resource
    UNION ALL
    SELECT 'overdrawn' AS kind, resource,
        sum((greatest(-allocated, 0) + greatest(-reserved, 0) + greatest(-idle, 0) + greatest(-cordoned, 0)
            + greatest(-unavailable, 0)) * check_ms) AS error
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
    SELECT 'clusters' AS kind, key AS resource, sum(abs(difference)) AS error FROM cluster_differences GROUP BY resource
    UNION ALL
    SELECT 'rows' AS kind, resource, error FROM range_differences
);
