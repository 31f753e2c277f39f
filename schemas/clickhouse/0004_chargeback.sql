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
