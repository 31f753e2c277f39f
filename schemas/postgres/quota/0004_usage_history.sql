-- What was held in each hour, for trends. An account that held nothing in an hour has no row of it.
CREATE TABLE quota_usage_history (
    tenant       text        NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    team         text        NOT NULL CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    namespace    text        NOT NULL CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    resource     text        NOT NULL CHECK
        (resource ~ '^(cpu|memory|gpu|gpu:[A-Za-z0-9_-]{1,64}|storage|pods|extended:[A-Za-z0-9_-]{1,64}|reservations)$'),
    -- In UTC.
    hour         timestamptz NOT NULL CHECK (extract(epoch FROM hour) % 3600 = 0),
    -- More than one where nothing has changed for as long, and nothing else happened in the cell.
    hours        integer     NOT NULL CHECK (hours > 0),
    used_min     bigint      NOT NULL CHECK (used_min >= 0),
    used_max     bigint      NOT NULL,
    -- The sum of what was in use, times the milliseconds that it was; over all of the hours.
    used_ms      numeric     NOT NULL CHECK (used_ms >= 0 AND scale(used_ms) = 0),
    -- The milliseconds that the row speaks of: until an hour is over, those up to its last change.
    covered_ms   bigint      NOT NULL,
    reserved_max bigint      NOT NULL CHECK (reserved_max >= 0),
    -- At the end of what the row speaks of; NULL: there was none.
    hard         bigint      CHECK (hard >= 0),

    PRIMARY KEY (tenant, team, namespace, resource, hour),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT least_not_above_most CHECK (used_min <= used_max),
    CONSTRAINT covers_its_hours CHECK (covered_ms BETWEEN 0 AND hours * 3600000::bigint),
    CONSTRAINT many_hours_only_when_over CHECK (hours = 1 OR covered_ms = hours * 3600000::bigint),
    CONSTRAINT many_hours_only_unchanged CHECK (hours = 1 OR used_min = used_max),
    CONSTRAINT average_between_least_and_most CHECK
        (used_ms BETWEEN used_min::numeric * covered_ms AND used_max::numeric * covered_ms)
);

-- For what is too old.
CREATE INDEX quota_usage_history_by_hour ON quota_usage_history (hour);
