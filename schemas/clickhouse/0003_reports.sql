-- Views for questions that people ask: docs/sql.md has the questions. They stand on the tables and on the views of the
-- bill.

-- The bill by the day, in UTC: sums of the lines of chargeback_hourly.
CREATE VIEW IF NOT EXISTS usage_daily AS
SELECT
    toDate(hour) AS day,
    c.billing_period AS billing_period,
    c.is_correction AS is_correction,
    toString(c.tenant) AS tenant,
    toString(c.team) AS team,
    toString(c.namespace) AS namespace,
    toString(c.queue) AS queue,
    toString(c.job_set) AS job_set,
    toString(c.priority_class) AS priority_class,
    toString(c.cluster) AS cluster,
    toString(c.pool) AS pool,
    toString(c.resource) AS resource,
    sum(c.quantity) AS quantity,
    sumIf(c.quantity, c.has_rate = 0) AS unrated_quantity,
    toFloat64(quantity) / toFloat64(any(c.per_unit_hour)) AS unit_hours,
    sum(c.ms) AS ms,
    sum(c.amount_micro) AS amount_micro
FROM chargeback_hourly AS c
GROUP BY
    day, billing_period, is_correction, tenant, team, namespace, queue, job_set, priority_class, cluster, pool,
    resource;

-- What each run cost, over or not, for each resource that it had: priced to the millisecond as the bill is, and up to
-- now if it still runs. The bill rounds a line of an hour and this rounds a run, so that their sums differ by half a
-- micro-unit for each line and run at the most. What was started and ended in the same millisecond used nothing and is
-- not here.
CREATE VIEW IF NOT EXISTS run_costs AS
WITH
    assumeNotNull((SELECT at FROM known_through)) AS now_at,
    runs AS (
        SELECT
            allocation, operation_id, tenant, team, namespace, queue, job_set, priority_class, gang, name, labels,
            attempt, node, cluster, zone, pool, gpu_model, cpu_milli, memory_bytes, gpu_milli, started_at,
            toNullable(i.ended_at) AS ended_at, i.ended_at AS through, cause, lsn
        FROM allocation_intervals AS i
        UNION ALL
        SELECT
            allocation, operation_id, toString(tenant) AS tenant, team, namespace, queue, job_set, priority_class,
            '' AS gang, name, CAST(map(), 'Map(String, String)') AS labels, toUInt32(0) AS attempt,
            node, cluster, '' AS zone, pool, gpu_model, cpu_milli, memory_bytes, gpu_milli, started_at,
            CAST(NULL, 'Nullable(DateTime64(3, \'UTC\'))') AS ended_at, now_at AS through, '' AS cause,
            toUInt64(0) AS lsn
        FROM running_allocations
        WHERE started_at < now_at
        GROUP BY
            allocation, operation_id, tenant, team, namespace, queue, job_set, priority_class, name, node, cluster, pool,
            gpu_model, cpu_milli, memory_bytes, gpu_milli, started_at
        HAVING sum(sign) > 0
    ),
    uses AS (
        SELECT
            *,
            if(amount.1 = 'gpu' AND gpu_model != '', concat('gpu:', gpu_model), amount.1) AS resource,
            toInt128(amount.2) AS units,
            toUnixTimestamp64Milli(started_at) AS from_ms,
            toUnixTimestamp64Milli(through) AS to_ms
        FROM runs
        ARRAY JOIN [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)] AS amount
        WHERE amount.2 != 0
    ),
    changes AS (
        SELECT
            *,
            toUnixTimestamp64Milli(since) AS since_ms,
            toInt256(micro_per_unit_hour) AS micro,
            micro - lagInFrame(micro, 1, toInt256(0)) OVER w AS risen,
            toInt64(has_rate) AS rated,
            rated - lagInFrame(rated, 1, toInt64(0)) OVER w AS rated_risen
        FROM prices
        WINDOW w AS (
            PARTITION BY resource, tenant, priority_class, pool, cluster ORDER BY since
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    ),
    -- Up to a moment of the step, a unit costs the moment times `micro` less `cost_offset`; the same with the time that has a price.
    steps AS (
        SELECT
            resource, tenant, priority_class, pool, cluster, since, micro, rated,
            sum(risen * since_ms) OVER w AS cost_offset,
            sum(rated_risen * since_ms) OVER w AS rated_offset
        FROM changes
        WINDOW w AS (
            PARTITION BY resource, tenant, priority_class, pool, cluster ORDER BY since
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    ),
    begun AS (
        SELECT u.*, s.micro * u.from_ms - s.cost_offset AS cost_before, s.rated * u.from_ms - s.rated_offset AS rated_before
        FROM uses AS u
        ASOF LEFT JOIN steps AS s ON u.resource = s.resource AND u.tenant = s.tenant AND u.priority_class = s.priority_class
            AND u.pool = s.pool AND u.cluster = s.cluster AND u.started_at >= s.since
    ),
    priced AS (
        SELECT
            u.*,
            s.micro * u.to_ms - s.cost_offset - u.cost_before AS unit_cost,
            s.rated * u.to_ms - s.rated_offset - u.rated_before AS rated_ms
        FROM begun AS u
        ASOF LEFT JOIN steps AS s ON u.resource = s.resource AND u.tenant = s.tenant AND u.priority_class = s.priority_class
            AND u.pool = s.pool AND u.cluster = s.cluster AND u.through >= s.since
    )
SELECT
    allocation,
    operation_id,
    tenant,
    team,
    namespace,
    queue,
    job_set,
    priority_class,
    gang,
    name,
    labels,
    attempt,
    node,
    cluster,
    zone,
    pool,
    gpu_model,
    started_at,
    ended_at,
    cause,
    lsn,
    resource,
    to_ms - from_ms AS ms,
    units * ms AS quantity,
    units * (ms - rated_ms) AS unrated_quantity,
    toInt256(if(resource = 'memory', 1073741824, 1000)) * 3600000 AS per_unit_hour,
    toFloat64(quantity) / toFloat64(per_unit_hour) AS unit_hours,
    units * unit_cost AS cost,
    toInt128(intDiv(cost * 2 + per_unit_hour, per_unit_hour * 2)) AS amount_micro
FROM priced;

-- Every wait that is over: of each run that is over, the wait before it, and of each allocation that ended without a
-- place, its last wait. What waits or runs now is not in it yet.
CREATE VIEW IF NOT EXISTS waits AS
SELECT
    allocation, operation_id, tenant, team, namespace, queue, job_set, priority_class, attempt,
    cpu_milli, memory_bytes, gpu_milli, queued_at, placed_at AS waited_until,
    dateDiff('millisecond', queued_at, placed_at) AS wait_ms,
    wait_reason, true AS placed, '' AS cause
FROM allocation_intervals
UNION ALL
SELECT
    allocation, operation_id, toString(tenant) AS tenant, team, namespace, queue, job_set, priority_class, attempt,
    cpu_milli, memory_bytes, gpu_milli, queued_at, ended_at AS waited_until,
    dateDiff('millisecond', queued_at, ended_at) AS wait_ms,
    wait_reason, false AS placed, cause
FROM unplaced_allocations;

-- How much a tenant had at once, by the hour: SELECT … FROM usage_levels(tenant = 't', from = '…', until = '…'), of at
-- most one tenant and as far as all is known. `scope` says whose level a row has: the tenant's as a whole, a team's, a
-- namespace's or a queue's in it; the columns below the scope are empty. The highest level of a tenant is not the sum
-- of its teams', who have theirs at different moments. The resource gpu has all GPUs together, gpu:<model> those of one
-- model. Of an hour, every millisecond weighs the same, and one in which nothing was allocated has level 0. A quantile
-- is the smallest level such that at least so much of the time is at or below it (quantileExactWeighted). Who had
-- nothing in the whole time has no rows.
CREATE VIEW IF NOT EXISTS usage_levels AS
WITH
    toUnixTimestamp64Milli({from:DateTime64(3, 'UTC')}) AS from_ms,
    least(
        toUnixTimestamp64Milli({until:DateTime64(3, 'UTC')}),
        toUnixTimestamp64Milli(assumeNotNull((SELECT at FROM known_through)))
    ) AS until_ms,
    runs AS (
        SELECT
            team, namespace, queue, gpu_model, cpu_milli, memory_bytes, gpu_milli, toInt8(1) AS sign,
            greatest(toUnixTimestamp64Milli(started_at), from_ms) AS begin_ms,
            least(toUnixTimestamp64Milli(ended_at), until_ms) AS end_ms
        FROM allocation_intervals
        WHERE tenant = {tenant:String} AND begin_ms < end_ms
        UNION ALL
        SELECT
            team, namespace, queue, gpu_model, cpu_milli, memory_bytes, gpu_milli, sign,
            greatest(toUnixTimestamp64Milli(started_at), from_ms) AS begin_ms,
            until_ms AS end_ms
        FROM running_allocations
        WHERE tenant = {tenant:String} AND begin_ms < end_ms
    ),
    held AS (
        SELECT account, has.1 AS resource, toInt128(has.2) * sign AS amount, begin_ms, end_ms
        FROM runs
        ARRAY JOIN [
            ('tenant', '', '', ''), ('team', team, '', ''), ('namespace', team, namespace, ''),
            ('queue', team, namespace, queue)
        ] AS account
        ARRAY JOIN arrayConcat(
            [('cpu', cpu_milli), ('memory', memory_bytes), ('gpu', gpu_milli)],
            if(gpu_model = '', [], [(concat('gpu:', gpu_model), gpu_milli)])
        ) AS has
        WHERE has.2 != 0
    ),
    steps AS (
        SELECT account, resource, step.1 AS at_ms, sum(step.2) AS risen
        FROM held
        ARRAY JOIN [(begin_ms, amount), (end_ms, -amount)] AS step
        GROUP BY account, resource, at_ms
        UNION ALL
        -- Cut at the full hours.
        SELECT
            account, resource,
            arrayJoin(arrayConcat(
                [from_ms], range((intDiv(from_ms, 3600000) + 1) * 3600000, greatest(from_ms, until_ms), 3600000)
            )) AS at_ms,
            toInt128(0) AS risen
        FROM (SELECT DISTINCT account, resource FROM held)
    ),
    levels AS (
        SELECT
            account, resource, at_ms,
            sum(risen) OVER before AS level,
            leadInFrame(at_ms, 1, until_ms) OVER following - at_ms AS level_ms
        FROM steps
        WINDOW
            before AS (
                PARTITION BY account, resource ORDER BY at_ms RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ),
            following AS (
                PARTITION BY account, resource ORDER BY at_ms ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
            )
    )
SELECT
    toDateTime(intDiv(at_ms, 3600000) * 3600, 'UTC') AS hour,
    {tenant:String} AS tenant,
    account.1 AS scope,
    account.2 AS team,
    account.3 AS namespace,
    account.4 AS queue,
    resource,
    sum(level_ms) AS ms,
    sum(level * level_ms) AS quantity,
    toDecimal128(divideDecimal(toDecimal256(quantity, 0), toDecimal256(ms, 0), 3), 3) AS average,
    min(level) AS lowest,
    max(level) AS highest,
    quantileExactWeighted(0.5)(level, toUInt64(level_ms)) AS p50,
    quantileExactWeighted(0.95)(level, toUInt64(level_ms)) AS p95,
    quantileExactWeighted(0.99)(level, toUInt64(level_ms)) AS p99
FROM levels
WHERE level_ms > 0
GROUP BY hour, account, resource;

-- Who bears what a month's capacity costs: SELECT … FROM cost_shares(month = '2026-11-01', method = 'proportional',
-- cost_centre = '', credited = 'preempted,node_lost'). `part` is charged: what the tenant's bill has; reserved, idle, cordoned or
-- unavailable: its share of what nobody is charged for; discount, which stays with nobody; credited: what is given back to it for runs that ended in the month by
-- one of those causes, and that nobody (an empty tenant) bears instead. Methods: none, and it stays with nobody; proportional to
-- what tenants were charged for the same resource of the same pool, and with nobody where that is nothing; equal among all
-- tenants of the month's bill; cost_centre, and it is all the cost centre's. Whatever is chosen, amount_micro comes to the cost of
-- the month's capacity: shares are rounded down, and what is left goes to the largest remainders, a millionth each.
CREATE VIEW IF NOT EXISTS cost_shares AS
WITH
    toUInt8(throwIf(
        {method:String} NOT IN ('none', 'proportional', 'equal', 'cost_centre'),
        'method must be none, proportional, equal or cost_centre'
    )) AS is_known,
    toInt256(1) AS one,
    -- Each view is named once: the server plans and runs a subquery again at each place that names it.
    costs AS (
        SELECT toString(c.cluster) AS cluster, toString(c.pool) AS pool, toString(c.resource) AS resource,
            'charged' AS part, toString(c.tenant) AS tenant, toInt256(sum(c.amount_micro)) AS micro
        FROM chargeback_hourly AS c
        WHERE c.billing_period = {month:Date}
        GROUP BY cluster, pool, resource, tenant
        UNION ALL
        SELECT toString(p.cluster) AS cluster, toString(p.pool) AS pool, toString(p.resource) AS resource,
            toString(p.state) AS part, '' AS tenant, toInt256(sum(p.amount_micro)) AS micro
        FROM platform_cost_hourly AS p
        WHERE p.billing_period = {month:Date} AND is_known = 0
        GROUP BY cluster, pool, resource, part
    ),
    -- Each cost with its bearers and their weights; without any, the empty tenant bears it.
    borne AS (
        SELECT
            cluster, pool, resource, part, micro,
            multiIf(
                part = 'charged', [(tenant, one)],
                part = 'discount', [],
                {method:String} = 'proportional', groupArrayIf((tenant, micro), part = 'charged' AND micro > 0) OVER same_pool,
                {method:String} = 'equal',
                    arrayMap(name -> (name, one), groupUniqArrayIf(tenant, part = 'charged') OVER ()),
                {method:String} = 'cost_centre', [({cost_centre:String}, one)],
                []
            ) AS bearers,
            if(empty(bearers), [('', one)], bearers) AS weights
        FROM costs
        WINDOW same_pool AS (PARTITION BY cluster, pool, resource)
    ),
    shares AS (
        SELECT
            cluster, pool, resource, part, micro,
            arraySum(weights.2) AS weight,
            arrayMap(
                bearer -> (bearer.1, intDiv(abs(micro) * bearer.2, weight), modulo(abs(micro) * bearer.2, weight)), weights
            ) AS parts,
            abs(micro) - arraySum(parts.2) AS left_over,
            -- The largest remainders first.
            arraySort(bearer -> (-bearer.3, bearer.1), parts) AS ordered
        FROM borne
    )
SELECT tenant, cluster, pool, resource, part, amount_micro
FROM (
    SELECT share.1 AS tenant, cluster, pool, resource, part, toInt128(sign(micro) * (share.2 + (place <= left_over))) AS amount_micro
    FROM shares
    ARRAY JOIN ordered AS share, arrayEnumerate(ordered) AS place
    UNION ALL
    SELECT bearer.1 AS tenant, r.cluster AS cluster, r.pool AS pool, r.resource AS resource, 'credited' AS part,
        toInt128(bearer.2 * r.amount_micro) AS amount_micro
    FROM run_costs AS r
    ARRAY JOIN [(r.tenant, -1), ('', 1)] AS bearer
    WHERE toStartOfMonth(toDate(r.ended_at)) = {month:Date} AND has(splitByChar(',', {credited:String}), r.cause)
);

-- Every budget that is in force, in the period that it is in now. `counted_since` is when its counting began, which goes on when
-- only the amount is changed; what had ended before (before the event at `counted_lsn`) does not count, as in quota.
CREATE VIEW IF NOT EXISTS budgets_in_force AS
WITH
    toDateTime(assumeNotNull((SELECT at FROM known_through)), 'UTC') AS now_at,
    said AS (
        SELECT
            tenant, team, namespace, budget_of,
            arraySort(groupArray((b.lsn, b.event_index, toString(b.period), ifNull(b.amount, 0), b.set_at))) AS changes,
            changes[-1] AS newest,
            changes[arrayLastIndex(change -> change.3 != newest.3, changes) + 1] AS first
        FROM budgets AS b
        GROUP BY tenant, team, namespace, budget_of
    )
SELECT
    tenant,
    team,
    namespace,
    budget_of,
    newest.3 AS period,
    newest.4 AS amount,
    multiIf(
        period = 'hour', toStartOfHour(now_at),
        period = 'day', toStartOfDay(now_at),
        period = 'week', toDateTime(toMonday(now_at), 'UTC'),
        toDateTime(toStartOfMonth(now_at), 'UTC')
    ) AS begins_at,
    multiIf(
        period = 'hour', begins_at + toIntervalHour(1),
        period = 'day', begins_at + toIntervalDay(1),
        period = 'week', begins_at + toIntervalWeek(1),
        begins_at + toIntervalMonth(1)
    ) AS ends_at,
    first.5 AS counted_since,
    first.1 AS counted_lsn
FROM said
WHERE period != '';

-- What is forecast of, day by day, and what the method says of each day. A series is what a tenant used of a resource (`kind`
-- tenant), or what a budget in force counts (`kind` budget), as a quantity or as an amount of money. It begins with the tenant's
-- first day, 17 weeks ago at the earliest, has 0 for a day without use, and goes on 35 days from today, which is not known.
--
-- The method is the seasonal naive one with the season of a week, smoothed: the mean of the same weekday in the last 4 weeks that
-- are known, or in as many as there are (Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 5.2). It knows of no
-- trend, holidays or plans, and money is forecast of money, at the prices that were paid.
CREATE VIEW IF NOT EXISTS demand_days AS
WITH
    toDate(assumeNotNull((SELECT at FROM known_through))) AS today,
    today - 119 AS first_day,
    lines AS (
        SELECT
            toString(c.tenant) AS tenant, toString(c.team) AS team, toString(c.namespace) AS namespace,
            toString(c.resource) AS resource, toDate(c.hour) AS day,
            sum(c.quantity) AS quantity, sum(c.amount_micro) AS amount_micro
        FROM chargeback_hourly AS c
        WHERE c.hour >= toDateTime(first_day, 'UTC') AND c.hour < toDateTime(today, 'UTC')
        GROUP BY tenant, team, namespace, resource, day
    ),
    -- The lines are named once: the server plans and runs a subquery again at each place that names it.
    used AS (
        SELECT
            one.1 AS kind, l.tenant AS tenant, one.2 AS team, one.3 AS namespace, one.4 AS resource, one.5 AS measure,
            l.day AS day, one.6 AS used
        FROM lines AS l
        LEFT JOIN (
            SELECT tenant, groupArray((team, namespace, budget_of)) AS budgets FROM budgets_in_force GROUP BY tenant
        ) AS b ON l.tenant = b.tenant
        ARRAY JOIN arrayConcat(
            [
                ('tenant', '', '', l.resource, 'quantity', l.quantity),
                ('tenant', '', '', l.resource, 'amount', l.amount_micro)
            ],
            arrayMap(
                of -> if(
                    of.3 = 'money',
                    ('budget', of.1, of.2, of.3, 'amount', l.amount_micro),
                    ('budget', of.1, of.2, of.3, 'quantity', l.quantity)
                ),
                arrayFilter(
                    of -> of.1 IN ('', l.team) AND of.2 IN ('', l.namespace)
                        AND (of.3 = 'money' OR startsWith(l.resource, of.3)),
                    b.budgets
                )
            )
        ) AS one
        UNION ALL
        -- Of which nothing was used.
        SELECT
            'budget' AS kind, b.tenant AS tenant, b.team AS team, b.namespace AS namespace, b.budget_of AS resource,
            if(b.budget_of = 'money', 'amount', 'quantity') AS measure, first_day AS day, toInt128(0) AS used
        FROM budgets_in_force AS b
    ),
    series AS (
        SELECT
            kind, tenant, team, namespace, resource, measure,
            groupArrayInsertAt(toInt128(0), 119)(used_in_all, toUInt32(day - first_day)) AS known
        FROM (
            SELECT kind, tenant, team, namespace, resource, measure, day, sum(used) AS used_in_all
            FROM used
            GROUP BY kind, tenant, team, namespace, resource, measure, day
        )
        GROUP BY kind, tenant, team, namespace, resource, measure
    ),
    days AS (
        SELECT
            s.kind AS kind, s.tenant AS tenant, s.team AS team, s.namespace AS namespace, s.resource AS resource,
            s.measure AS measure, first_day + place AS day, value
        FROM series AS s
        INNER JOIN (SELECT toString(tenant) AS tenant, toDate(min(hour)) AS since FROM usage_hourly GROUP BY tenant) AS t
            ON s.tenant = t.tenant
        ARRAY JOIN
            arrayConcat(arrayMap(used -> toNullable(used), s.known), arrayWithConstant(35, CAST(NULL, 'Nullable(Int128)'))) AS value,
            range(154) AS place
        WHERE day >= t.since
    )
SELECT
    kind,
    tenant,
    team,
    namespace,
    resource,
    measure,
    day,
    value AS actual,
    [
        intDiv(sum(value) OVER one, nullIf(count(value) OVER one, 0)),
        intDiv(sum(value) OVER two, nullIf(count(value) OVER two, 0)),
        intDiv(sum(value) OVER three, nullIf(count(value) OVER three, 0)),
        intDiv(sum(value) OVER four, nullIf(count(value) OVER four, 0)),
        intDiv(sum(value) OVER five, nullIf(count(value) OVER five, 0))
    ] AS expected
FROM days
WINDOW
    weekdays AS (PARTITION BY kind, tenant, team, namespace, resource, measure, toDayOfWeek(day) ORDER BY day),
    one AS (weekdays ROWS BETWEEN 4 PRECEDING AND 1 PRECEDING),
    two AS (weekdays ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING),
    three AS (weekdays ROWS BETWEEN 6 PRECEDING AND 3 PRECEDING),
    four AS (weekdays ROWS BETWEEN 7 PRECEDING AND 4 PRECEDING),
    five AS (weekdays ROWS BETWEEN 8 PRECEDING AND 5 PRECEDING);

-- The next 35 days of each series of demand_days, today being the first of them, with an 80 % interval. It is made of the method's
-- own errors in the last 28 known days when it said so many weeks before what they would come to: of n errors, the k-th from below
-- and from above are added, k = (n + 1) / 10 rounded down and at least 1 (split conformal prediction: Lei et al.,
-- Distribution-Free Predictive Inference for Regression, 2018, 2.2). With fewer than 14 errors of so many weeks, those of all weeks
-- ahead are taken; with fewer than 9 the interval holds less than 80 %. An interval has the expected value in it and does not go
-- below 0. Where the weekday is not known yet, the mean of all known days is expected; before a day is wholly known, nothing is.
CREATE VIEW IF NOT EXISTS demand_outlook AS
WITH
    toDate(assumeNotNull((SELECT at FROM known_through))) AS today,
    known AS (
        SELECT
            kind, tenant, team, namespace, resource, measure,
            intDiv(sum(d.actual), nullIf(count(d.actual), 0)) AS mean,
            [
                groupArray(d.actual - d.expected[1]), groupArray(d.actual - d.expected[2]), groupArray(d.actual - d.expected[3]),
                groupArray(d.actual - d.expected[4]), groupArray(d.actual - d.expected[5])
            ] AS by_weeks,
            arrayMap(
                errors -> (
                    errors[greatest(1, intDiv(length(errors) + 1, 10))],
                    errors[-greatest(1, intDiv(length(errors) + 1, 10))],
                    length(errors)
                ),
                arrayMap(own -> arraySort(if(length(own) < 14, arrayFlatten(by_weeks), own)), by_weeks)
            ) AS bounds,
            groupArrayIf((d.day, d.expected), d.day >= today) AS coming
        FROM demand_days AS d
        WHERE d.day >= today - 28
        GROUP BY kind, tenant, team, namespace, resource, measure
    )
SELECT
    kind,
    tenant,
    team,
    namespace,
    resource,
    measure,
    next.1 AS day,
    toUInt8(intDiv(day - today, 7) + 1) AS weeks_ahead,
    assumeNotNull(coalesce(next.2[weeks_ahead], mean)) AS expected,
    bounds[weeks_ahead].3 AS errors,
    -- Of a number and NULL, greatest and least take the number.
    if(errors = 0, NULL, greatest(0, expected + least(0, bounds[weeks_ahead].1))) AS low,
    if(errors = 0, NULL, expected + greatest(0, bounds[weeks_ahead].2)) AS high
FROM known
ARRAY JOIN coming AS next
WHERE mean IS NOT NULL;

-- What each tenant will use of each resource, and what that will cost, on each of the next 28 days, with an 80 % interval: see
-- demand_days for the method and demand_outlook for the interval.
CREATE VIEW IF NOT EXISTS demand_forecast AS
SELECT
    tenant,
    resource,
    day,
    any(o.weeks_ahead) AS weeks_ahead,
    any(o.errors) AS errors,
    anyIf(o.expected, o.measure = 'quantity') AS quantity,
    anyIf(o.low, o.measure = 'quantity') AS quantity_low,
    anyIf(o.high, o.measure = 'quantity') AS quantity_high,
    toFloat64(quantity) / (if(resource = 'memory', 1073741824, 1000) * 3600000.) AS unit_hours,
    anyIf(o.expected, o.measure = 'amount') AS amount_micro,
    anyIf(o.low, o.measure = 'amount') AS amount_low_micro,
    anyIf(o.high, o.measure = 'amount') AS amount_high_micro
FROM demand_outlook AS o
WHERE o.kind = 'tenant' AND o.weeks_ahead <= 4
GROUP BY tenant, resource, day;

-- How good the method of demand_forecast was: for each of the last 28 days that are known, what it would have said 7 days before, of
-- what was known then, and what the day came to. In the long run `within` is to be true of at least 80 % of the days. Without rows
-- are days of which nothing could be said: those of a tenant's first week.
CREATE VIEW IF NOT EXISTS demand_backtest AS
WITH
    toDate(assumeNotNull((SELECT at FROM known_through))) AS today,
    said AS (
        SELECT
            d.tenant AS tenant, d.resource AS resource, d.measure AS measure, d.day AS day,
            d.actual AS actual, d.expected[1] AS expected,
            [
                groupArray(d.actual - d.expected[1]) OVER known, groupArray(d.actual - d.expected[2]) OVER known,
                groupArray(d.actual - d.expected[3]) OVER known, groupArray(d.actual - d.expected[4]) OVER known,
                groupArray(d.actual - d.expected[5]) OVER known
            ] AS by_weeks
        FROM demand_days AS d
        WHERE d.kind = 'tenant' AND d.day < today
        WINDOW known AS (PARTITION BY d.tenant, d.resource, d.measure ORDER BY d.day ROWS BETWEEN 34 PRECEDING AND 7 PRECEDING)
    ),
    bounded AS (
        SELECT
            tenant, resource, measure, day, assumeNotNull(s.actual) AS actual, assumeNotNull(s.expected) AS expected,
            arraySort(if(length(by_weeks[1]) < 14, arrayFlatten(by_weeks), by_weeks[1])) AS sorted,
            toUInt64(length(sorted)) AS errors,
            greatest(1, intDiv(errors + 1, 10)) AS place
        FROM said AS s
        WHERE s.day >= today - 28 AND s.expected IS NOT NULL
    )
SELECT
    tenant,
    resource,
    measure,
    day,
    expected,
    if(errors = 0, NULL, greatest(0, expected + least(0, sorted[place]))) AS low,
    if(errors = 0, NULL, expected + greatest(0, sorted[-place])) AS high,
    errors,
    actual,
    actual BETWEEN low AND high AS within
FROM bounded;

-- What each budget in force comes to at the end of the period that it is in now, and when it is exhausted. `spent` is what is billed of
-- the account's uses, and of those below it, in the period, up to now; of a budget that began to be counted within the period,
-- without the runs that had ended by then, of which the part within the period is their cost by time. What is left of the period
-- is that of demand_outlook, evenly spread over each day. `low` and `high` add up the daily ones, as if all days erred the same
-- way, so that they hold more than 80 %; exhausted_early is by the high ones, and exhausted_late by the low ones. Money is that of
-- the bill, so that it may differ from what quota counts by the rounding of lines and by rates that were told late.
CREATE VIEW IF NOT EXISTS budget_forecast AS
WITH
    assumeNotNull((SELECT at FROM known_through)) AS now_at,
    (
        SELECT (min(begins_at), max(counted_lsn), count() > 0) FROM budgets_in_force WHERE counted_since > begins_at
    ) AS partly,
    lines AS (
        SELECT
            toString(c.tenant) AS tenant, toString(c.team) AS team, toString(c.namespace) AS namespace,
            toString(c.resource) AS resource, c.hour AS hour, sum(c.quantity) AS quantity, sum(c.amount_micro) AS amount_micro
        FROM chargeback_hourly AS c
        WHERE c.hour >= least(toDateTime(toStartOfMonth(now_at), 'UTC'), toDateTime(toMonday(now_at), 'UTC'))
        GROUP BY tenant, team, namespace, resource, hour
    ),
    -- Read only if a budget began to be counted within its period.
    ended AS (
        SELECT
            r.tenant AS tenant, r.team AS team, r.namespace AS namespace, r.resource AS resource, r.lsn AS lsn,
            r.started_at AS started_at, assumeNotNull(r.ended_at) AS ended_at, r.ms AS ms, r.quantity AS quantity,
            r.amount_micro AS amount_micro
        FROM run_costs AS r
        WHERE partly.3 AND r.ended_at > partly.1 AND r.lsn < partly.2
            AND r.tenant IN (SELECT tenant FROM budgets_in_force WHERE counted_since > begins_at)
    ),
    counted AS (
        SELECT b.*, toInt256(if(b.budget_of = 'money', l.amount_micro, l.quantity)) AS used
        FROM budgets_in_force AS b
        INNER JOIN lines AS l ON l.tenant = b.tenant
        WHERE l.hour >= b.begins_at AND b.team IN ('', l.team) AND b.namespace IN ('', l.namespace)
            AND (b.budget_of = 'money' OR startsWith(l.resource, b.budget_of))
        UNION ALL
        SELECT
            b.*,
            -intDiv(
                toInt256(if(b.budget_of = 'money', r.amount_micro, r.quantity))
                    * dateDiff('millisecond', greatest(r.started_at, toDateTime64(b.begins_at, 3, 'UTC')), r.ended_at),
                r.ms
            ) AS used
        FROM budgets_in_force AS b
        INNER JOIN ended AS r ON r.tenant = b.tenant
        WHERE r.lsn < b.counted_lsn AND r.ended_at > b.begins_at AND b.team IN ('', r.team)
            AND b.namespace IN ('', r.namespace) AND (b.budget_of = 'money' OR startsWith(r.resource, b.budget_of))
        UNION ALL
        SELECT b.*, toInt256(0) AS used
        FROM budgets_in_force AS b
    ),
    -- In unit-milliseconds, or in millionths of the currency.
    spent AS (
        SELECT
            tenant, team, namespace, budget_of, period, begins_at, ends_at, counted_since, c.amount AS amount,
            if(budget_of = 'money', toInt256(1), 3600000) AS per_unit,
            sum(c.used) AS exact,
            c.amount * per_unit - exact AS left_over
        FROM counted AS c
        GROUP BY tenant, team, namespace, budget_of, period, begins_at, ends_at, counted_since, amount
    ),
    -- The rest of the period by the day, along each of the three paths. A budget without a forecast has one step of NULL.
    steps AS (
        SELECT
            s.*,
            greatest(now_at, toDateTime64(o.day, 3, 'UTC')) AS from_at,
            toInt256(dateDiff('millisecond', from_at, least(toDateTime64(s.ends_at, 3, 'UTC'), toDateTime64(o.day + 1, 3, 'UTC'))))
                AS step_ms,
            one.1 AS path,
            intDiv(one.2 * step_ms, 86400000) AS used,
            sum(used) OVER (PARTITION BY s.tenant, s.team, s.namespace, s.budget_of, path ORDER BY from_at) AS reached
        FROM spent AS s
        LEFT JOIN (SELECT * FROM demand_outlook WHERE kind = 'budget') AS o
            ON s.tenant = o.tenant AND s.team = o.team AND s.namespace = o.namespace AND s.budget_of = o.resource
        ARRAY JOIN [
            ('low', toNullable(toInt256(o.low))),
            ('expected', if(o.kind = '', NULL, toInt256(o.expected))),
            ('high', toInt256(o.high))
        ] AS one
        WHERE o.day < s.ends_at
    ),
    reached AS (
        SELECT
            tenant, team, namespace, budget_of, period, begins_at, ends_at, counted_since, amount, per_unit, exact, left_over, path,
            sum(t.used) AS used,
            -- In the first step that takes all that is left.
            minOrNullIf(
                t.from_at + toIntervalMillisecond(
                    toInt64(intDiv((t.left_over - (t.reached - t.used)) * t.step_ms + t.used - 1, greatest(1, t.used)))
                ),
                t.reached >= t.left_over AND t.reached - t.used < t.left_over
            ) AS empty_at
        FROM steps AS t
        GROUP BY
            tenant, team, namespace, budget_of, period, begins_at, ends_at, counted_since, amount, per_unit, exact, left_over, path
    )
SELECT
    tenant,
    team,
    namespace,
    budget_of,
    period,
    begins_at,
    ends_at,
    counted_since,
    amount,
    toInt128(intDiv(exact, per_unit)) AS spent,
    toInt128(intDiv(exact + maxOrNullIf(r.used, r.path = 'expected'), per_unit)) AS expected,
    toInt128(intDiv(exact + maxOrNullIf(r.used, r.path = 'low'), per_unit)) AS low,
    toInt128(intDiv(exact + maxOrNullIf(r.used, r.path = 'high'), per_unit)) AS high,
    if(left_over <= 0, now_at, maxOrNullIf(r.empty_at, r.path = 'high' AND r.empty_at < ends_at)) AS exhausted_early,
    if(left_over <= 0, now_at, maxOrNullIf(r.empty_at, r.path = 'expected' AND r.empty_at < ends_at)) AS exhausted_at,
    if(left_over <= 0, now_at, maxOrNullIf(r.empty_at, r.path = 'low' AND r.empty_at < ends_at)) AS exhausted_late
FROM reached AS r
GROUP BY tenant, team, namespace, budget_of, period, begins_at, ends_at, counted_since, amount, per_unit, exact, left_over;

-- The amount of each tenant and resource in the current month: up to now, and at its end by the forecast of demand_outlook. The
-- intervals of the days are added up, as if all days and resources erred the same way. NULL until a day of the tenant is wholly
-- known: hours of a day say nothing about a month. judged and within count the days of demand_backtest.
CREATE VIEW IF NOT EXISTS month_forecast AS
WITH
    assumeNotNull((SELECT at FROM known_through)) AS now_at,
    toDateTime(toStartOfMonth(now_at), 'UTC') AS begins_at,
    toDate(begins_at + toIntervalMonth(1)) AS next_month,
    parts AS (
        SELECT
            toString(c.tenant) AS tenant, toString(c.resource) AS resource, toInt128(c.amount_micro) AS so_far,
            [CAST(NULL, 'Nullable(Int256)'), NULL, NULL] AS coming, toUInt64(0) AS judged, toUInt64(0) AS within
        FROM chargeback_hourly AS c
        WHERE c.hour >= begins_at
        UNION ALL
        SELECT
            o.tenant AS tenant, o.resource AS resource, toInt128(0) AS so_far,
            arrayMap(
                of_day -> intDiv(
                    toInt256(of_day) * dateDiff(
                        'millisecond', greatest(now_at, toDateTime64(o.day, 3, 'UTC')), toDateTime64(o.day + 1, 3, 'UTC')
                    ),
                    86400000
                ),
                [toNullable(o.expected), o.low, o.high]
            ) AS coming,
            toUInt64(0) AS judged, toUInt64(0) AS within
        FROM demand_outlook AS o
        WHERE o.kind = 'tenant' AND o.measure = 'amount' AND o.day < next_month
        UNION ALL
        SELECT
            b.tenant AS tenant, b.resource AS resource, toInt128(0) AS so_far, [NULL, NULL, NULL] AS coming,
            toUInt64(b.within IS NOT NULL) AS judged, toUInt64(ifNull(b.within, 0)) AS within
        FROM demand_backtest AS b
        WHERE b.measure = 'amount'
    )
SELECT
    tenant,
    resource,
    sum(p.so_far) AS so_far_micro,
    toInt128(so_far_micro + sum(p.coming[1])) AS expected_micro,
    toInt128(so_far_micro + sum(p.coming[2])) AS low_micro,
    toInt128(so_far_micro + sum(p.coming[3])) AS high_micro,
    sum(p.judged) AS judged,
    sum(p.within) AS within
FROM parts AS p
GROUP BY tenant, resource;
