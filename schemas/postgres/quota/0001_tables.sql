-- Made of the rows in services/quota/src/store by APPORTION_WRITE=1 cargo test -p quota --test it the_migration

CREATE TABLE projection_position (
    name text NOT NULL,
    ledger_created bigint NOT NULL,
    lsn bigint NOT NULL,
    digest bytea,
    CONSTRAINT projection_position_pkey PRIMARY KEY (name),
    CONSTRAINT projection_position_lsn_check CHECK (lsn >= 0),
    CONSTRAINT projection_position_digest_check CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE projection_position IS 'How far the read model has applied the ledger. The same table in every service; it moves in the transaction that writes the rows, so the two can never disagree.';
COMMENT ON COLUMN projection_position.ledger_created IS 'Tells this ledger from one that was made anew under the same name: its creation, Unix nanoseconds.';
COMMENT ON COLUMN projection_position.digest IS 'What stood on the ledger at the position that was applied, SHA-256: a ledger that lost its end and grew again is told from the one that was read by it. Unknown until the next batch.';

CREATE TABLE resource_quotas (
    tenant text NOT NULL,
    team text NOT NULL,
    namespace text NOT NULL,
    resource text NOT NULL,
    hard bigint,
    soft bigint,
    burst bigint,
    burst_ms bigint NOT NULL,
    borrow bigint,
    lend bigint,
    version bigint NOT NULL,
    reserved bigint NOT NULL,
    used bigint NOT NULL,
    used_peak bigint NOT NULL,
    peak_at timestamptz,
    soft_since timestamptz,
    over_since timestamptz,
    borrowed bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT resource_quotas_pkey PRIMARY KEY (tenant, team, namespace, resource),
    CONSTRAINT resource_quotas_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT resource_quotas_team_check CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT resource_quotas_namespace_check CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT resource_quotas_resource_check CHECK (resource ~ '^(cpu|memory|gpu|gpu:[A-Za-z0-9_-]{1,64}|storage|pods|extended:[A-Za-z0-9_-]{1,64}|leases)$'),
    CONSTRAINT resource_quotas_hard_check CHECK (hard >= 0),
    CONSTRAINT resource_quotas_soft_check CHECK (soft >= 0),
    CONSTRAINT resource_quotas_burst_ms_check CHECK (burst_ms >= 0),
    CONSTRAINT resource_quotas_borrow_check CHECK (borrow >= 0),
    CONSTRAINT resource_quotas_lend_check CHECK (lend >= 0),
    CONSTRAINT resource_quotas_version_check CHECK (version >= 0),
    CONSTRAINT resource_quotas_reserved_check CHECK (reserved >= 0),
    CONSTRAINT resource_quotas_used_check CHECK (used >= 0),
    CONSTRAINT resource_quotas_used_peak_check CHECK (used_peak >= 0),
    CONSTRAINT resource_quotas_borrowed_check CHECK (borrowed >= 0),
    CONSTRAINT peak_is_the_most CHECK (used_peak >= used),
    CONSTRAINT peak_has_its_time CHECK ((used_peak = 0) = (peak_at IS NULL)),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT limits_have_a_version CHECK (hard IS NULL OR version > 0),
    CONSTRAINT limits_only_with_hard CHECK (hard IS NOT NULL OR (soft IS NULL AND burst IS NULL AND borrow IS NULL AND lend IS NULL)),
    CONSTRAINT soft_not_above_hard CHECK (soft <= hard),
    CONSTRAINT burst_not_below_hard CHECK (burst >= hard),
    CONSTRAINT burst_has_its_time CHECK ((burst IS NULL) = (burst_ms = 0)),
    CONSTRAINT soft_since_while_above CHECK ((soft_since IS NOT NULL) = (soft IS NOT NULL AND reserved::numeric + used > soft)),
    CONSTRAINT over_since_while_above CHECK ((over_since IS NOT NULL) = (hard IS NOT NULL AND reserved::numeric + used > hard)),
    CONSTRAINT borrowed_only_beyond_hard CHECK (borrowed = 0 OR (team = '' AND hard IS NOT NULL AND borrowed::numeric <= reserved::numeric + used - hard)),
    CONSTRAINT borrowed_within_the_most CHECK (borrowed <= borrow)
);
COMMENT ON TABLE resource_quotas IS 'Limits and what is taken of them, in the resource''s unit: millicores, bytes, thousandths of a GPU.';
COMMENT ON COLUMN resource_quotas.team IS ''''' for the tenant''s own account.';
COMMENT ON COLUMN resource_quotas.namespace IS ''''' for the team''s own account, or the tenant''s.';
COMMENT ON COLUMN resource_quotas.hard IS 'None until an operator sets one. May be lowered below what is in use, so nothing compares the two.';
COMMENT ON COLUMN resource_quotas.soft IS 'Above this an account is flagged.';
COMMENT ON COLUMN resource_quotas.burst IS 'Up to this for `burst_ms` at a stretch.';
COMMENT ON COLUMN resource_quotas.borrow IS 'How much of what others of the cohort lend it may take; NULL: all of it.';
COMMENT ON COLUMN resource_quotas.lend IS 'How much of `hard` others of the cohort may take; NULL: all of it.';
COMMENT ON COLUMN resource_quotas.version IS 'Of the limit; 0 while there is none.';
COMMENT ON COLUMN resource_quotas.reserved IS 'Granted, not started.';
COMMENT ON COLUMN resource_quotas.used IS 'Running.';
COMMENT ON COLUMN resource_quotas.used_peak IS 'The most that was ever in use, and since when.';
COMMENT ON COLUMN resource_quotas.soft_since IS 'Above `soft` since then without a break.';
COMMENT ON COLUMN resource_quotas.over_since IS 'The same above `hard`.';
COMMENT ON COLUMN resource_quotas.borrowed IS 'What a tenant of a cohort holds beyond `hard`, as far as it may borrow.';

CREATE TABLE quota_limits_planned (
    tenant text NOT NULL,
    team text NOT NULL,
    namespace text NOT NULL,
    resource text NOT NULL,
    version bigint NOT NULL,
    valid_from timestamptz,
    valid_until timestamptz,
    hard bigint,
    soft bigint,
    burst bigint,
    burst_ms bigint NOT NULL,
    borrow bigint,
    lend bigint,
    CONSTRAINT quota_limits_planned_pkey PRIMARY KEY (tenant, team, namespace, resource, version),
    CONSTRAINT quota_limits_planned_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT quota_limits_planned_team_check CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_limits_planned_namespace_check CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_limits_planned_resource_check CHECK (resource ~ '^(cpu|memory|gpu|gpu:[A-Za-z0-9_-]{1,64}|storage|pods|extended:[A-Za-z0-9_-]{1,64}|leases)$'),
    CONSTRAINT quota_limits_planned_version_check CHECK (version > 0),
    CONSTRAINT quota_limits_planned_hard_check CHECK (hard >= 0),
    CONSTRAINT quota_limits_planned_soft_check CHECK (soft >= 0),
    CONSTRAINT quota_limits_planned_burst_ms_check CHECK (burst_ms >= 0),
    CONSTRAINT quota_limits_planned_borrow_check CHECK (borrow >= 0),
    CONSTRAINT quota_limits_planned_lend_check CHECK (lend >= 0),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT planned_for_a_time CHECK (valid_from IS NOT NULL OR valid_until IS NOT NULL),
    CONSTRAINT begins_before_it_ends CHECK (valid_from < valid_until),
    CONSTRAINT limits_only_with_hard CHECK (hard IS NOT NULL OR (soft IS NULL AND burst IS NULL AND borrow IS NULL AND lend IS NULL)),
    CONSTRAINT soft_not_above_hard CHECK (soft <= hard),
    CONSTRAINT burst_not_below_hard CHECK (burst >= hard),
    CONSTRAINT burst_has_its_time CHECK ((burst IS NULL) = (burst_ms = 0))
);
COMMENT ON TABLE quota_limits_planned IS 'Limits that are to come, and overrides until they are over.';
COMMENT ON COLUMN quota_limits_planned.team IS ''''' for the tenant''s own account.';
COMMENT ON COLUMN quota_limits_planned.namespace IS ''''' for the team''s own account, or the tenant''s.';
COMMENT ON COLUMN quota_limits_planned.version IS 'Of the change that set it.';
COMMENT ON COLUMN quota_limits_planned.valid_from IS 'NULL: at once.';
COMMENT ON COLUMN quota_limits_planned.valid_until IS 'NULL: for good.';
COMMENT ON COLUMN quota_limits_planned.hard IS 'NULL: no limits.';

CREATE TABLE quota_tenants (
    tenant text NOT NULL,
    cohort text,
    preemptible boolean NOT NULL,
    on_exceed text NOT NULL,
    reclaim text NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT quota_tenants_pkey PRIMARY KEY (tenant),
    CONSTRAINT quota_tenants_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT quota_tenants_cohort_check CHECK (cohort ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT quota_tenants_on_exceed_check CHECK (on_exceed IN ('refuse', 'wait')),
    CONSTRAINT quota_tenants_reclaim_check CHECK (reclaim IN ('any', 'lower_priority', 'never')),
    CONSTRAINT quota_tenants_version_check CHECK (version > 0)
);
COMMENT ON TABLE quota_tenants IS 'How quota treats a tenant.';
COMMENT ON COLUMN quota_tenants.cohort IS 'NULL: lends and borrows nothing.';
COMMENT ON COLUMN quota_tenants.preemptible IS 'What it borrows may be taken back; otherwise it cannot borrow.';
CREATE INDEX quota_tenants_of_a_cohort ON quota_tenants (cohort) WHERE cohort IS NOT NULL;

CREATE TABLE quota_usage_history (
    tenant text NOT NULL,
    team text NOT NULL,
    namespace text NOT NULL,
    resource text NOT NULL,
    hour timestamptz NOT NULL,
    hours integer NOT NULL,
    used_min bigint NOT NULL,
    used_max bigint NOT NULL,
    used_ms numeric NOT NULL,
    covered_ms bigint NOT NULL,
    reserved_max bigint NOT NULL,
    hard bigint,
    CONSTRAINT quota_usage_history_pkey PRIMARY KEY (tenant, team, namespace, resource, hour),
    CONSTRAINT quota_usage_history_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT quota_usage_history_team_check CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_usage_history_namespace_check CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_usage_history_resource_check CHECK (resource ~ '^(cpu|memory|gpu|gpu:[A-Za-z0-9_-]{1,64}|storage|pods|extended:[A-Za-z0-9_-]{1,64}|leases)$'),
    CONSTRAINT quota_usage_history_hour_check CHECK (extract(epoch FROM hour) % 3600 = 0),
    CONSTRAINT quota_usage_history_hours_check CHECK (hours > 0),
    CONSTRAINT quota_usage_history_used_min_check CHECK (used_min >= 0),
    CONSTRAINT quota_usage_history_used_ms_check CHECK (used_ms >= 0 AND scale(used_ms) = 0),
    CONSTRAINT quota_usage_history_reserved_max_check CHECK (reserved_max >= 0),
    CONSTRAINT quota_usage_history_hard_check CHECK (hard >= 0),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT least_not_above_most CHECK (used_min <= used_max),
    CONSTRAINT covers_its_hours CHECK (covered_ms BETWEEN 0 AND hours * 3600000::bigint),
    CONSTRAINT many_hours_only_when_over CHECK (hours = 1 OR covered_ms = hours * 3600000::bigint),
    CONSTRAINT many_hours_only_unchanged CHECK (hours = 1 OR used_min = used_max),
    CONSTRAINT average_between_least_and_most CHECK (used_ms BETWEEN used_min::numeric * covered_ms AND used_max::numeric * covered_ms)
);
COMMENT ON TABLE quota_usage_history IS 'What was held in each hour, for trends. An account that held nothing in an hour has no row of it.';
COMMENT ON COLUMN quota_usage_history.team IS ''''' for the tenant''s own account.';
COMMENT ON COLUMN quota_usage_history.namespace IS ''''' for the team''s own account, or the tenant''s.';
COMMENT ON COLUMN quota_usage_history.hour IS 'In UTC.';
COMMENT ON COLUMN quota_usage_history.hours IS 'More than one where nothing has changed for as long, and nothing else happened in the cell.';
COMMENT ON COLUMN quota_usage_history.used_ms IS 'The sum of what was in use, times the milliseconds that it was; over all of the hours.';
COMMENT ON COLUMN quota_usage_history.covered_ms IS 'The milliseconds that the row speaks of: until an hour is over, those up to its last change.';
COMMENT ON COLUMN quota_usage_history.hard IS 'At the end of what the row speaks of; NULL: there was none.';
CREATE INDEX quota_usage_history_by_hour ON quota_usage_history (hour);

CREATE TABLE quota_budgets (
    tenant text NOT NULL,
    team text NOT NULL,
    namespace text NOT NULL,
    budget_of text NOT NULL,
    period text NOT NULL,
    amount bigint NOT NULL,
    version bigint NOT NULL,
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    spent numeric NOT NULL,
    as_of timestamptz NOT NULL,
    burn numeric NOT NULL,
    exhausted_at timestamptz,
    CONSTRAINT quota_budgets_pkey PRIMARY KEY (tenant, team, namespace, budget_of),
    CONSTRAINT quota_budgets_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT quota_budgets_team_check CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_budgets_namespace_check CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_budgets_budget_of_check CHECK (budget_of IN ('money', 'cpu', 'memory', 'gpu')),
    CONSTRAINT quota_budgets_period_check CHECK (period IN ('hour', 'day', 'week', 'month')),
    CONSTRAINT quota_budgets_amount_check CHECK (amount >= 0),
    CONSTRAINT quota_budgets_version_check CHECK (version > 0),
    CONSTRAINT quota_budgets_spent_check CHECK (spent >= 0 AND scale(spent) = 0),
    CONSTRAINT quota_budgets_burn_check CHECK (burn >= 0 AND scale(burn) = 0),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT as_of_in_its_period CHECK (period_start <= as_of AND as_of < period_end),
    CONSTRAINT exhausted_in_its_period CHECK (period_start <= exhausted_at AND exhausted_at < period_end),
    CONSTRAINT exhausted_when_spent CHECK (spent < amount OR exhausted_at <= as_of IS TRUE)
);
COMMENT ON TABLE quota_budgets IS 'Budgets and how fast they are used up.';
COMMENT ON COLUMN quota_budgets.team IS ''''' for the tenant''s own account.';
COMMENT ON COLUMN quota_budgets.namespace IS ''''' for the team''s own account, or the tenant''s.';
COMMENT ON COLUMN quota_budgets.budget_of IS 'money in millionths of the currency; the others in the resource''s unit times hours.';
COMMENT ON COLUMN quota_budgets.period_start IS 'The period that `as_of` is in, in UTC.';
COMMENT ON COLUMN quota_budgets.spent IS 'Up to `as_of`, rounded down.';
COMMENT ON COLUMN quota_budgets.burn IS 'What an hour takes of it, by what runs at `as_of`; rounded down.';
COMMENT ON COLUMN quota_budgets.exhausted_at IS 'When nothing is left of it, or has been since; NULL: it lasts for the period.';

CREATE TABLE quota_waiting (
    allocation bigint NOT NULL,
    tenant text NOT NULL,
    team text NOT NULL,
    namespace text NOT NULL,
    priority integer NOT NULL,
    since timestamptz NOT NULL,
    rule text,
    subject text,
    limit_value numeric,
    actual numeric,
    reclaimed boolean NOT NULL,
    reclaimed_by bigint,
    CONSTRAINT quota_waiting_pkey PRIMARY KEY (allocation),
    CONSTRAINT quota_waiting_allocation_check CHECK (allocation > 0),
    CONSTRAINT quota_waiting_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT quota_waiting_team_check CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_waiting_namespace_check CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    CONSTRAINT quota_waiting_limit_value_check CHECK (limit_value >= 0 AND scale(limit_value) = 0),
    CONSTRAINT quota_waiting_actual_check CHECK (actual >= 0 AND scale(actual) = 0),
    CONSTRAINT quota_waiting_reclaimed_by_check CHECK (reclaimed_by > 0),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT refusal_whole_or_none CHECK ((rule IS NULL) = (subject IS NULL) AND (rule IS NULL) = (limit_value IS NULL)
     AND (rule IS NULL) = (actual IS NULL)),
    CONSTRAINT reclaimed_by_only_when_reclaimed CHECK (reclaimed_by IS NULL OR reclaimed)
);
COMMENT ON TABLE quota_waiting IS 'What waits for quota.';
COMMENT ON COLUMN quota_waiting.allocation IS 'Its number in the cell.';
COMMENT ON COLUMN quota_waiting.team IS ''''' for the tenant''s own account.';
COMMENT ON COLUMN quota_waiting.namespace IS ''''' for the team''s own account, or the tenant''s.';
COMMENT ON COLUMN quota_waiting.rule IS 'What it waits for; NULL until that is said of one whose quota was taken back.';
COMMENT ON COLUMN quota_waiting.reclaimed IS 'It held quota before, which was taken back.';
COMMENT ON COLUMN quota_waiting.reclaimed_by IS 'For whose sake; NULL: its account''s burst was over.';
CREATE INDEX quota_waiting_of_a_tenant ON quota_waiting (tenant, priority DESC, since, allocation);

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
COMMENT ON VIEW quota_cohort IS 'What the tenants of a cohort have together.';
