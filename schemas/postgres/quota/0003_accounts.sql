-- Accounts below the tenant, every resource type that limits speak of, and what operators have set beside the limits.

-- The new columns and tables are of facts that this read model passed by until now: it reads the ledger from its start
-- again. The rows below stay readable until then.
DELETE FROM projection_position WHERE name = 'quota';

ALTER TABLE resource_quotas RENAME COLUMN hard_limit TO hard;
ALTER TABLE resource_quotas
    -- '' for the tenant's own account.
    ADD COLUMN team       text   NOT NULL DEFAULT '' CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    -- '' for the team's own account, or the tenant's.
    ADD COLUMN namespace  text   NOT NULL DEFAULT '' CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    -- Above this an account is flagged.
    ADD COLUMN soft       bigint CHECK (soft >= 0),
    -- Up to this for `burst_ms` at a stretch.
    ADD COLUMN burst      bigint,
    ADD COLUMN burst_ms   bigint NOT NULL DEFAULT 0 CHECK (burst_ms >= 0),
    -- How much of what others of the cohort lend it may take; NULL: all of it.
    ADD COLUMN borrow     bigint CHECK (borrow >= 0),
    -- How much of `hard` others of the cohort may take; NULL: all of it.
    ADD COLUMN lend       bigint CHECK (lend >= 0),
    -- Above `soft`, or above `hard`, since then without a break.
    ADD COLUMN soft_since timestamptz,
    ADD COLUMN over_since timestamptz,
    -- What a tenant of a cohort holds beyond `hard`, as far as it may borrow.
    ADD COLUMN borrowed   bigint NOT NULL DEFAULT 0 CHECK (borrowed >= 0);

-- Limits may have been lowered below what is held; since when was not written down.
UPDATE resource_quotas SET over_since = changed_at WHERE reserved::numeric + used > hard;

ALTER TABLE resource_quotas
    ALTER COLUMN team DROP DEFAULT,
    ALTER COLUMN namespace DROP DEFAULT,
    ALTER COLUMN burst_ms DROP DEFAULT,
    ALTER COLUMN borrowed DROP DEFAULT,
    DROP CONSTRAINT resource_quotas_pkey,
    DROP CONSTRAINT resource_quotas_resource_check,
    DROP CONSTRAINT version_counts_limits,
    ADD PRIMARY KEY (tenant, team, namespace, resource),
    ADD CONSTRAINT resource_quotas_resource_check CHECK
        (resource ~ '^(cpu|memory|gpu|gpu:[A-Za-z0-9_-]{1,64}|storage|pods|extended:[A-Za-z0-9_-]{1,64}|reservations)$'),
    ADD CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    -- A version without limits is of limits that were taken back, or that are yet to come.
    ADD CONSTRAINT limits_have_a_version CHECK (hard IS NULL OR version > 0),
    ADD CONSTRAINT limits_only_with_hard CHECK
        (hard IS NOT NULL OR (soft IS NULL AND burst IS NULL AND borrow IS NULL AND lend IS NULL)),
    ADD CONSTRAINT soft_not_above_hard CHECK (soft <= hard),
    ADD CONSTRAINT burst_not_below_hard CHECK (burst >= hard),
    ADD CONSTRAINT burst_has_its_time CHECK ((burst IS NULL) = (burst_ms = 0)),
    ADD CONSTRAINT soft_since_while_above CHECK
        ((soft_since IS NOT NULL) = (soft IS NOT NULL AND reserved::numeric + used > soft)),
    ADD CONSTRAINT over_since_while_above CHECK
        ((over_since IS NOT NULL) = (hard IS NOT NULL AND reserved::numeric + used > hard)),
    ADD CONSTRAINT borrowed_only_beyond_hard CHECK
        (borrowed = 0 OR (team = '' AND hard IS NOT NULL AND borrowed::numeric <= reserved::numeric + used - hard)),
    ADD CONSTRAINT borrowed_within_the_most CHECK (borrowed <= borrow);

-- Limits that are to come, and overrides until they are over.
CREATE TABLE quota_limits_planned (
    tenant      text   NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    team        text   NOT NULL CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    namespace   text   NOT NULL CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    resource    text   NOT NULL CHECK
        (resource ~ '^(cpu|memory|gpu|gpu:[A-Za-z0-9_-]{1,64}|storage|pods|extended:[A-Za-z0-9_-]{1,64}|reservations)$'),
    -- Of the change that set it.
    version     bigint NOT NULL CHECK (version > 0),
    -- NULL: at once.
    valid_from  timestamptz,
    -- NULL: for good.
    valid_until timestamptz,
    -- NULL: no limits.
    hard        bigint CHECK (hard >= 0),
    soft        bigint CHECK (soft >= 0),
    burst       bigint,
    burst_ms    bigint NOT NULL CHECK (burst_ms >= 0),
    borrow      bigint CHECK (borrow >= 0),
    lend        bigint CHECK (lend >= 0),

    PRIMARY KEY (tenant, team, namespace, resource, version),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT planned_for_a_time CHECK (valid_from IS NOT NULL OR valid_until IS NOT NULL),
    CONSTRAINT begins_before_it_ends CHECK (valid_from < valid_until),
    CONSTRAINT limits_only_with_hard CHECK
        (hard IS NOT NULL OR (soft IS NULL AND burst IS NULL AND borrow IS NULL AND lend IS NULL)),
    CONSTRAINT soft_not_above_hard CHECK (soft <= hard),
    CONSTRAINT burst_not_below_hard CHECK (burst >= hard),
    CONSTRAINT burst_has_its_time CHECK ((burst IS NULL) = (burst_ms = 0))
);

-- How quota treats a tenant.
CREATE TABLE quota_tenants (
    tenant      text    PRIMARY KEY CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    -- NULL: lends and borrows nothing.
    cohort      text    CHECK (cohort ~ '^[A-Za-z0-9_-]{1,64}$'),
    -- What it borrows may be taken back; otherwise it cannot borrow.
    preemptible boolean NOT NULL,
    on_exceed   text    NOT NULL CHECK (on_exceed IN ('refuse', 'wait')),
    reclaim     text    NOT NULL CHECK (reclaim IN ('any', 'lower_priority', 'never')),
    version     bigint  NOT NULL CHECK (version > 0)
);

CREATE INDEX quota_tenants_of_a_cohort ON quota_tenants (cohort) WHERE cohort IS NOT NULL;

-- What the tenants of a cohort have together.
CREATE VIEW quota_cohort AS
SELECT t.cohort,
       q.resource,
       count(*)                             AS tenants,
       coalesce(sum(q.hard), 0)             AS hard,
       coalesce(sum(least(q.lend, q.hard)), 0) AS lendable,
       sum(q.reserved)                      AS reserved,
       sum(q.used)                          AS used,
       sum(q.borrowed)                      AS borrowed
FROM quota_tenants AS t
JOIN resource_quotas AS q ON q.tenant = t.tenant AND q.team = ''
WHERE t.cohort IS NOT NULL
GROUP BY t.cohort, q.resource;
