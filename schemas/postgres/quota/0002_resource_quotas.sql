-- Limits and what is taken of them, in the resource's unit: millicores, bytes, thousandths of a GPU.
CREATE TABLE resource_quotas (
    tenant     text   NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    resource   text   NOT NULL CHECK (resource IN ('cpu', 'memory', 'gpu')),
    -- None until an operator sets one. May be lowered below what is in use, so nothing compares the two.
    hard_limit bigint CHECK (hard_limit >= 0),
    -- Of the limit; 0 while there is none.
    version    bigint NOT NULL CHECK (version >= 0),
    -- Granted, not started.
    reserved   bigint NOT NULL CHECK (reserved >= 0),
    -- Running.
    used       bigint NOT NULL CHECK (used >= 0),
    -- The most that was ever in use, and since when.
    used_peak  bigint NOT NULL CHECK (used_peak >= 0),
    peak_at    timestamptz,
    changed_at timestamptz NOT NULL,

    PRIMARY KEY (tenant, resource),
    CONSTRAINT version_counts_limits CHECK ((hard_limit IS NULL) = (version = 0)),
    CONSTRAINT peak_is_the_most CHECK (used_peak >= used),
    CONSTRAINT peak_has_its_time CHECK ((used_peak = 0) = (peak_at IS NULL))
);
