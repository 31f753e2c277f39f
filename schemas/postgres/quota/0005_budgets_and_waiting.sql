-- Budgets and how fast they are used up, and what waits for quota.

CREATE TABLE quota_budgets (
    tenant       text        NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    team         text        NOT NULL CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    namespace    text        NOT NULL CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    -- money in millionths of the currency; the others in the resource's unit times hours.
    budget_of    text        NOT NULL CHECK (budget_of IN ('money', 'cpu', 'memory', 'gpu')),
    period       text        NOT NULL CHECK (period IN ('hour', 'day', 'week', 'month')),
    amount       bigint      NOT NULL CHECK (amount >= 0),
    version      bigint      NOT NULL CHECK (version > 0),
    -- The period that `as_of` is in, in UTC.
    period_start timestamptz NOT NULL,
    period_end   timestamptz NOT NULL,
    -- Up to `as_of`, rounded down.
    spent        numeric     NOT NULL CHECK (spent >= 0 AND scale(spent) = 0),
    as_of        timestamptz NOT NULL,
    -- What an hour takes of it, by what runs at `as_of`; rounded down.
    burn         numeric     NOT NULL CHECK (burn >= 0 AND scale(burn) = 0),
    -- When nothing is left of it, or has been since; NULL: it lasts for the period.
    exhausted_at timestamptz,

    PRIMARY KEY (tenant, team, namespace, budget_of),
    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT as_of_in_its_period CHECK (period_start <= as_of AND as_of < period_end),
    CONSTRAINT exhausted_in_its_period CHECK (period_start <= exhausted_at AND exhausted_at < period_end),
    CONSTRAINT exhausted_when_spent CHECK (spent < amount OR exhausted_at <= as_of IS TRUE)
);

CREATE TABLE quota_waiting (
    -- Its number in the cell.
    allocation   bigint      PRIMARY KEY CHECK (allocation > 0),
    tenant       text        NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    team         text        NOT NULL CHECK (team ~ '^[A-Za-z0-9_-]{0,64}$'),
    namespace    text        NOT NULL CHECK (namespace ~ '^[A-Za-z0-9_-]{0,64}$'),
    priority     integer     NOT NULL,
    since        timestamptz NOT NULL,
    -- What it waits for; NULL until that is said of one whose quota was taken back.
    rule         text,
    subject      text,
    limit_value  numeric     CHECK (limit_value >= 0 AND scale(limit_value) = 0),
    actual       numeric     CHECK (actual >= 0 AND scale(actual) = 0),
    -- It held quota before, which was taken back.
    reclaimed    boolean     NOT NULL,
    -- For whose sake; NULL: its account's burst was over.
    reclaimed_by bigint      CHECK (reclaimed_by > 0),

    CONSTRAINT namespace_only_with_team CHECK (namespace = '' OR team <> ''),
    CONSTRAINT refusal_whole_or_none CHECK
        ((rule IS NULL) = (subject IS NULL) AND (rule IS NULL) = (limit_value IS NULL)
         AND (rule IS NULL) = (actual IS NULL)),
    CONSTRAINT reclaimed_by_only_when_reclaimed CHECK (reclaimed_by IS NULL OR reclaimed)
);

CREATE INDEX quota_waiting_of_a_tenant ON quota_waiting (tenant, priority DESC, since, allocation);
