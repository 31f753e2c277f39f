-- The fleet.
CREATE TABLE nodes (
    node          text        PRIMARY KEY CHECK (node ~ '^[A-Za-z0-9_-]{1,64}$'),
    -- Grows each time the agent starts anew; the agent's own choice of any unsigned 64-bit number.
    incarnation   numeric(20) NOT NULL CHECK (incarnation >= 0),
    state         text        NOT NULL CHECK (state IN ('ready', 'lost')),
    cpu_milli     bigint      NOT NULL CHECK (cpu_milli >= 0),
    memory_bytes  bigint      NOT NULL CHECK (memory_bytes >= 0),
    gpus          integer     NOT NULL CHECK (gpus >= 0),
    gpu_model     text        CHECK (gpu_model IS NULL OR gpus > 0),
    -- When this capacity was registered.
    registered_at timestamptz NOT NULL,
    -- In this state since then.
    since         timestamptz NOT NULL,
    -- The last sign of life that stands on the ledger: of a ready node the one that made it ready, of a lost one the
    -- last before it was lost. Heartbeats in between are not on the ledger.
    last_seen     timestamptz NOT NULL
);

CREATE INDEX nodes_lost ON nodes (since) WHERE state = 'lost';
CREATE INDEX nodes_by_model ON nodes (gpu_model) WHERE gpu_model IS NOT NULL;
