-- Made of the rows in services/node-heartbeat/src/store by APPORTION_WRITE=1 cargo test -p node-heartbeat --test it the_migration

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

CREATE TABLE nodes (
    node text NOT NULL,
    incarnation numeric(20) NOT NULL,
    state text NOT NULL,
    cpu_milli bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    gpus integer NOT NULL,
    gpu_model text,
    registered_at timestamptz NOT NULL,
    since timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    labels jsonb NOT NULL DEFAULT '{}',
    taints jsonb NOT NULL DEFAULT '[]',
    extended jsonb NOT NULL DEFAULT '{}',
    topology jsonb,
    max_runs integer NOT NULL DEFAULT 0,
    boot numeric(20) NOT NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (node),
    CONSTRAINT nodes_node_check CHECK (node ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT nodes_incarnation_check CHECK (incarnation >= 0),
    CONSTRAINT nodes_state_check CHECK (state IN ('ready', 'lost', 'suspect')),
    CONSTRAINT nodes_cpu_milli_check CHECK (cpu_milli >= 0),
    CONSTRAINT nodes_memory_bytes_check CHECK (memory_bytes >= 0),
    CONSTRAINT nodes_gpus_check CHECK (gpus >= 0),
    CONSTRAINT nodes_labels_check CHECK (jsonb_typeof(labels) = 'object'),
    CONSTRAINT nodes_taints_check CHECK (jsonb_typeof(taints) = 'array'),
    CONSTRAINT nodes_extended_check CHECK (jsonb_typeof(extended) = 'object'),
    CONSTRAINT nodes_topology_check CHECK (jsonb_typeof(topology) = 'object'),
    CONSTRAINT nodes_max_runs_check CHECK (max_runs >= 0),
    CONSTRAINT nodes_boot_check CHECK (boot >= 0),
    CONSTRAINT nodes_check CHECK (gpu_model IS NULL OR gpus > 0)
);
COMMENT ON TABLE nodes IS 'The fleet.';
COMMENT ON COLUMN nodes.incarnation IS 'Given by the cell; grows each time the agent starts anew.';
COMMENT ON COLUMN nodes.registered_at IS 'When this capacity was registered.';
COMMENT ON COLUMN nodes.since IS 'In this state since then.';
COMMENT ON COLUMN nodes.last_seen IS 'The last sign of life that stands on the ledger: of a ready node the one that made it ready, of a lost or suspected one the last before that. Heartbeats in between are not on the ledger.';
COMMENT ON COLUMN nodes.labels IS 'By name: {"zone": "z1"}.';
COMMENT ON COLUMN nodes.taints IS 'Its own: [{"key": "maintenance", "value": null, "effect": "NoSchedule"}]';
COMMENT ON COLUMN nodes.extended IS 'Amounts by name: {"fpga": 2}.';
COMMENT ON COLUMN nodes.topology IS 'Its NUMA zones and device links, as registered; NULL when not known.';
COMMENT ON COLUMN nodes.max_runs IS 'Allocations that it holds at once, at the most; 0: as many as there is room for.';
COMMENT ON COLUMN nodes.boot IS 'The life of the node''s agent, by the agent''s own count; any unsigned 64-bit number.';
CREATE INDEX nodes_lost ON nodes (since) WHERE state = 'lost';
CREATE INDEX nodes_by_model ON nodes (gpu_model) WHERE gpu_model IS NOT NULL;
CREATE INDEX nodes_by_label ON nodes USING gin (labels jsonb_path_ops);

CREATE TABLE node_approvals (
    node text NOT NULL,
    version bigint NOT NULL,
    cpu_milli bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    gpus integer NOT NULL,
    gpu_model text,
    labels jsonb NOT NULL,
    extended jsonb NOT NULL,
    approved_at timestamptz NOT NULL,
    token_until timestamptz NOT NULL,
    token_digest bytea NOT NULL,
    key text,
    joined_at timestamptz,
    CONSTRAINT node_approvals_pkey PRIMARY KEY (node),
    CONSTRAINT node_approvals_node_check CHECK (node ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT node_approvals_version_check CHECK (version > 0),
    CONSTRAINT node_approvals_cpu_milli_check CHECK (cpu_milli >= 0),
    CONSTRAINT node_approvals_memory_bytes_check CHECK (memory_bytes >= 0),
    CONSTRAINT node_approvals_gpus_check CHECK (gpus >= 0),
    CONSTRAINT node_approvals_labels_check CHECK (jsonb_typeof(labels) = 'object'),
    CONSTRAINT node_approvals_extended_check CHECK (jsonb_typeof(extended) = 'object'),
    CONSTRAINT node_approvals_token_digest_check CHECK (length(token_digest) = 32),
    CONSTRAINT node_approvals_check CHECK (gpu_model IS NULL OR gpus > 0),
    CONSTRAINT node_approvals_check1 CHECK ((joined_at IS NULL) = (key IS NULL))
);
COMMENT ON TABLE node_approvals IS 'Which nodes may join, as what at the most, and which have.';
COMMENT ON COLUMN node_approvals.labels IS 'By name: {"zone": "z1"}. It may say these of itself, or fewer.';
COMMENT ON COLUMN node_approvals.extended IS 'Amounts by name: {"fpga": 2}.';
COMMENT ON COLUMN node_approvals.token_until IS 'From then on nobody joins by the token who has not yet.';
COMMENT ON COLUMN node_approvals.token_digest IS 'SHA-256 of the token.';
COMMENT ON COLUMN node_approvals.key IS 'The public key of the user of the bus that speaks for the node.';

CREATE TABLE node_conditions (
    node text NOT NULL,
    condition text NOT NULL,
    reason text,
    since timestamptz NOT NULL,
    CONSTRAINT node_conditions_pkey PRIMARY KEY (node, condition),
    CONSTRAINT node_conditions_node_check CHECK (node ~ '^[A-Za-z0-9_-]{1,64}$')
);
COMMENT ON TABLE node_conditions IS 'What holds of the nodes by the word of their agents. MemoryPressure, DiskPressure and NetworkUnavailable keep new allocations away.';
COMMENT ON COLUMN node_conditions.reason IS 'NULL when its agent says none.';
COMMENT ON COLUMN node_conditions.since IS 'It holds for this reason since then.';

CREATE VIEW object_states AS
SELECT node AS id,
       'node'::text AS type,
       state,
       since AS changed_at,
       CASE WHEN state = 'lost' THEN 'no_sign_of_life' END AS message
FROM nodes;
COMMENT ON VIEW object_states IS 'Where each thing that this service keeps stands. The views of this name of all services have the same columns.';
COMMENT ON COLUMN object_states.id IS 'The node''s name.';
COMMENT ON COLUMN object_states.type IS 'node.';
COMMENT ON COLUMN object_states.state IS 'ready or lost. Whether it is cordoned, the scheduler says in its table nodes.';
COMMENT ON COLUMN object_states.changed_at IS 'When it came into this state, by the clock of the service that recorded it.';
COMMENT ON COLUMN object_states.message IS 'Why a node is lost; none while it is ready.';
