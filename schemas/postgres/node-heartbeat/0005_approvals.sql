-- The life of the node's agent, by the agent's own count; incarnations are given by the cell. Before they were, the two were
-- the same.
ALTER TABLE nodes ADD COLUMN boot numeric(20) NOT NULL DEFAULT 0 CHECK (boot >= 0);
UPDATE nodes SET boot = incarnation;
ALTER TABLE nodes ALTER COLUMN boot DROP DEFAULT;

-- Which nodes may join, as what at the most, and which have.
CREATE TABLE node_approvals (
    node         text        PRIMARY KEY CHECK (node ~ '^[A-Za-z0-9_-]{1,64}$'),
    version      bigint      NOT NULL CHECK (version > 0),
    cpu_milli    bigint      NOT NULL CHECK (cpu_milli >= 0),
    memory_bytes bigint      NOT NULL CHECK (memory_bytes >= 0),
    gpus         integer     NOT NULL CHECK (gpus >= 0),
    gpu_model    text        CHECK (gpu_model IS NULL OR gpus > 0),
    -- By name: {"zone": "z1"}. It may say these of itself, or fewer.
    labels       jsonb       NOT NULL CHECK (jsonb_typeof(labels) = 'object'),
    -- Amounts by name: {"fpga": 2}.
    extended     jsonb       NOT NULL CHECK (jsonb_typeof(extended) = 'object'),
    approved_at  timestamptz NOT NULL,
    -- From then on nobody joins by the token who has not yet.
    token_until  timestamptz NOT NULL,
    -- SHA-256 of the token.
    token_digest bytea       NOT NULL CHECK (length(token_digest) = 32),
    -- The public key of the user of the bus that speaks for the node.
    key          text,
    joined_at    timestamptz CHECK ((joined_at IS NULL) = (key IS NULL))
);
