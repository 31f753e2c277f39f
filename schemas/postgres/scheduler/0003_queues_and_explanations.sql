-- Queues, nominations, runs that are queued again, and why each thing was decided.

ALTER TABLE allocations
    ADD COLUMN queue          text,
    ADD COLUMN priority_class text,
    -- The name of its gang, among the tenant's.
    ADD COLUMN gang           text,
    -- None while it is in no line, as during a pause.
    ADD COLUMN line           bigint  CHECK (line > 0),
    -- How often it was queued again.
    ADD COLUMN attempts       integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- What ended the run before the last time it was queued again.
    ADD COLUMN last_end_cause text    CHECK (last_end_cause IN
                                  ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node', 'preempted',
                                   'dependency_failed')),
    -- As the tenant believes; 0: not known.
    ADD COLUMN run_time_ms    bigint  NOT NULL DEFAULT 0 CHECK (run_time_ms >= 0),
    -- Is being cleared for it.
    ADD COLUMN nominated_node text,
    -- It has to go for another.
    ADD COLUMN preempted      boolean NOT NULL DEFAULT false;

-- Before there were queues, each tenant had its own, and no other.
UPDATE allocations SET queue = tenant;

ALTER TABLE allocations
    ALTER COLUMN queue SET NOT NULL,
    DROP CONSTRAINT allocations_state_check,
    DROP CONSTRAINT allocations_waiting_reason_check,
    DROP CONSTRAINT allocations_end_cause_check,
    DROP CONSTRAINT state_fits_place,
    ADD CONSTRAINT allocations_state_check CHECK (state IN
        ('requested', 'queued', 'nominated', 'placed', 'running', 'stopping', 'ended', 'denied')),
    ADD CONSTRAINT allocations_waiting_reason_check CHECK (waiting_reason IN
        ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share',
         'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'gang_over_limit',
         'no_uniform_label', 'nominated')),
    ADD CONSTRAINT allocations_end_cause_check CHECK (end_cause IN
        ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node', 'preempted', 'dependency_failed')),
    ADD CONSTRAINT state_fits_place
        CHECK (CASE state
                   WHEN 'requested' THEN node IS NULL
                   WHEN 'queued' THEN node IS NULL
                   WHEN 'nominated' THEN node IS NULL
                   WHEN 'denied' THEN node IS NULL
                   WHEN 'placed' THEN node IS NOT NULL AND started_at IS NULL
                   WHEN 'running' THEN started_at IS NOT NULL
                   WHEN 'stopping' THEN node IS NOT NULL
                   ELSE true END),
    ADD CONSTRAINT in_line_only_in_the_queue
        CHECK (line IS NULL OR state = 'queued'),
    ADD CONSTRAINT nominated_for_a_node
        CHECK ((state = 'nominated') = (nominated_node IS NOT NULL)),
    ADD CONSTRAINT queued_again_for_a_cause
        CHECK ((attempts = 0) = (last_end_cause IS NULL)),
    ADD CONSTRAINT preempted_from_its_node
        CHECK (NOT preempted OR state = 'stopping');

-- What each queue holds.
CREATE INDEX allocations_held ON allocations (queue) WHERE node IS NOT NULL AND ended_at IS NULL;

ALTER TABLE scheduling_queue
    ADD COLUMN queue        text,
    ADD COLUMN line         bigint      CHECK (line > 0),
    -- Nominated: its node is being cleared. Paused: not tried before `not_before`.
    ADD COLUMN state        text        NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'nominated', 'paused')),
    ADD COLUMN not_before   timestamptz,
    ADD COLUMN requested_at timestamptz,
    ADD COLUMN run_time_ms  bigint      NOT NULL DEFAULT 0 CHECK (run_time_ms >= 0),
    -- In milli-GPUs, or in millicores when it asks for no GPU.
    ADD COLUMN size         bigint      NOT NULL DEFAULT 0 CHECK (size >= 0);

UPDATE scheduling_queue AS q
SET queue = a.queue,
    requested_at = a.requested_at,
    size = CASE WHEN a.gpu_count > 0 THEN a.gpu_count::bigint * a.gpu_milli ELSE a.cpu_milli END
FROM allocations AS a
WHERE a.allocation_id = q.allocation_id;

ALTER TABLE scheduling_queue
    ALTER COLUMN queue SET NOT NULL,
    ALTER COLUMN requested_at SET NOT NULL,
    DROP CONSTRAINT scheduling_queue_waiting_reason_check,
    ADD CONSTRAINT scheduling_queue_waiting_reason_check CHECK (waiting_reason IN
        ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share',
         'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'gang_over_limit',
         'no_uniform_label', 'nominated')),
    ADD CONSTRAINT paused_until_a_moment CHECK ((state = 'paused') = (not_before IS NOT NULL)),
    ADD CONSTRAINT in_line_only_when_queued CHECK (line IS NULL OR state = 'queued');

DROP INDEX scheduling_queue_order;
CREATE INDEX scheduling_queue_by_queue ON scheduling_queue (queue);
CREATE INDEX scheduling_queue_by_line ON scheduling_queue (line) WHERE line IS NOT NULL;

-- What operators have set, each with the version of its last change.
CREATE TABLE queues (
    queue              text        PRIMARY KEY,
    parent             text        CHECK (parent <> queue),
    weight_milli       integer     NOT NULL CHECK (weight_milli > 0),
    -- None: as much as there is.
    cpu_milli_limit    bigint      CHECK (cpu_milli_limit >= 0),
    memory_bytes_limit bigint      CHECK (memory_bytes_limit >= 0),
    gpu_milli_limit    bigint      CHECK (gpu_milli_limit >= 0),
    -- Who may submit to it beside the tenant of its name.
    tenants            text[]      NOT NULL,
    queue_order        text        NOT NULL CHECK (queue_order IN ('fcfs', 'sjf', 'smallest_area')),
    -- None: the cell's.
    placement          text        CHECK (placement IN ('default', 'best_fit', 'spread', 'gpu_packing', 'fgd')),
    version            bigint      NOT NULL CHECK (version > 0),
    changed_at         timestamptz NOT NULL
);

CREATE TABLE priority_classes (
    priority_class text        PRIMARY KEY,
    value          integer     NOT NULL,
    preemptible    boolean     NOT NULL,
    preempts       boolean     NOT NULL,
    grace_ms       bigint      NOT NULL CHECK (grace_ms >= 0),
    -- None: the queue's.
    placement      text        CHECK (placement IN ('default', 'best_fit', 'spread', 'gpu_packing', 'fgd')),
    version        bigint      NOT NULL CHECK (version > 0),
    changed_at     timestamptz NOT NULL
);

-- One row, once somebody has set it.
CREATE TABLE scheduling_policy (
    one                    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    placement              text        NOT NULL
                                       CHECK (placement IN ('default', 'best_fit', 'spread', 'gpu_packing', 'fgd')),
    half_life_ms           bigint      NOT NULL CHECK (half_life_ms >= 0),
    fair_share_preemption  boolean     NOT NULL,
    protected_milli        integer     NOT NULL CHECK (protected_milli BETWEEN 0 AND 1000),
    preemptions_per_minute bigint      NOT NULL CHECK (preemptions_per_minute >= 0),
    aging_ms               bigint      NOT NULL CHECK (aging_ms >= 0),
    backfill               boolean     NOT NULL,
    backoff_ms             bigint      NOT NULL CHECK (backoff_ms >= 0),
    backoff_ms_max         bigint      NOT NULL CHECK (backoff_ms_max >= 0),
    version                bigint      NOT NULL CHECK (version > 0),
    changed_at             timestamptz NOT NULL
);

CREATE TABLE cordons (
    node       text        PRIMARY KEY,
    cordoned   boolean     NOT NULL,
    version    bigint      NOT NULL CHECK (version > 0),
    changed_at timestamptz NOT NULL
);

CREATE TABLE reservations (
    reservation  text        PRIMARY KEY,
    queue        text        NOT NULL,
    starts_at    timestamptz NOT NULL,
    ends_at      timestamptz NOT NULL CHECK (ends_at > starts_at),
    nodes_wanted bigint      NOT NULL CHECK (nodes_wanted >= 0),
    -- What the nodes must be like.
    selector     jsonb       NOT NULL CHECK (jsonb_typeof(selector) = 'array'),
    state        text        NOT NULL CHECK (state IN ('asked', 'granted', 'refused', 'withdrawn', 'over')),
    nodes        text[]      NOT NULL,
    version      bigint      NOT NULL CHECK (version > 0),
    changed_at   timestamptz NOT NULL,

    CONSTRAINT granted_with_nodes CHECK ((state = 'granted') = (cardinality(nodes) > 0))
);

-- In which order the scheduler takes what waits in a queue: who is nominated, then by `rank`, `turn` and arrival, and
-- last who is paused. The rank is the priority, or with aging the moment of the request moved by the priority.
CREATE VIEW queue_order AS
SELECT q.*,
       CASE q.state WHEN 'nominated' THEN 0 WHEN 'queued' THEN 1 ELSE 2 END AS standing,
       CASE WHEN coalesce(p.aging_ms, 0) = 0 THEN -q.priority::numeric
            ELSE floor(extract(epoch FROM q.requested_at) * 1000) - q.priority::numeric * p.aging_ms END AS rank,
       CASE WHEN coalesce(s.queue_order, 'fcfs') = 'fcfs' THEN floor(extract(epoch FROM q.requested_at) * 1000)
            -- Without an estimate it may be the longest.
            WHEN q.run_time_ms = 0 THEN 'Infinity'
            WHEN s.queue_order = 'sjf' THEN q.run_time_ms
            -- Ten seconds at least, as in bounded slowdown.
            ELSE greatest(q.run_time_ms, 10000)::numeric * q.size END AS turn
FROM scheduling_queue AS q
LEFT JOIN queues AS s ON s.queue = q.queue
LEFT JOIN scheduling_policy AS p ON true;

-- Who had to go from its node for the sake of another, and what that freed. The key is the fact's place on the ledger.
CREATE TABLE preemption_events (
    lsn               bigint      NOT NULL CHECK (lsn > 0),
    event_index       integer     NOT NULL CHECK (event_index >= 0),
    -- The victim.
    allocation_id     uuid        NOT NULL REFERENCES allocations ON DELETE CASCADE,
    tenant            text        NOT NULL,
    queue             text        NOT NULL,
    node              text        NOT NULL,
    cause             text        NOT NULL CHECK (cause IN ('priority', 'fair_share', 'gang', 'reservation')),
    -- Whom it makes room for; none for a reservation.
    by_allocation_id  uuid,
    at                timestamptz NOT NULL,
    -- It should have stopped by then.
    grace_until       timestamptz NOT NULL CHECK (grace_until >= at),
    outcome           text        NOT NULL CHECK (outcome IN ('stopping', 'stopped', 'node_lost', 'rejected_by_node')),
    -- By the node's report, whose clock may be behind the decision's.
    stopped_at        timestamptz,
    -- It waits again; otherwise it has ended.
    requeued          boolean,
    freed_cpu_milli    bigint     CHECK (freed_cpu_milli >= 0),
    freed_memory_bytes bigint     CHECK (freed_memory_bytes >= 0),
    freed_gpu_milli    bigint     CHECK (freed_gpu_milli >= 0),

    PRIMARY KEY (lsn, event_index),
    CONSTRAINT over_is_all_or_none
        CHECK (num_nulls(stopped_at, requeued, freed_cpu_milli, freed_memory_bytes, freed_gpu_milli)
               = CASE outcome WHEN 'stopping' THEN 5 ELSE 0 END)
);

CREATE INDEX preemption_events_of_tenant ON preemption_events (tenant, lsn DESC, event_index DESC);
CREATE INDEX preemption_events_of_allocation ON preemption_events (allocation_id);
CREATE INDEX preemption_events_open ON preemption_events (grace_until) WHERE outcome = 'stopping';

-- What was decided about an allocation or a line, and why, in the order of the ledger.
CREATE TABLE explanations (
    lsn           bigint      NOT NULL CHECK (lsn > 0),
    event_index   integer     NOT NULL CHECK (event_index >= 0),
    at            timestamptz NOT NULL,
    kind          text        NOT NULL CHECK (kind IN
                                  ('waiting', 'line', 'placed', 'nominated', 'preempted', 'requeued', 'ended')),
    allocation_id uuid,
    -- The line that is explained, or that the allocation waits in.
    line          bigint      CHECK (line > 0),
    -- The line's.
    queue         text,
    -- Why it waits, had to go, or ended.
    reason        text,
    -- Numbers and names of that kind of fact.
    detail        jsonb       NOT NULL CHECK (jsonb_typeof(detail) = 'object'),

    PRIMARY KEY (lsn, event_index),
    CONSTRAINT of_an_allocation_or_of_a_line
        CHECK ((kind = 'line') = (allocation_id IS NULL) AND (kind = 'line') = (queue IS NOT NULL)),
    CONSTRAINT line_of_what_waits
        CHECK (CASE kind WHEN 'line' THEN line IS NOT NULL WHEN 'waiting' THEN true ELSE line IS NULL END),
    CONSTRAINT reason_fits_kind
        CHECK (coalesce(CASE kind
                   WHEN 'placed' THEN reason IS NULL
                   WHEN 'nominated' THEN reason IS NULL
                   WHEN 'preempted' THEN reason IN ('priority', 'fair_share', 'gang', 'reservation')
                   WHEN 'requeued' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                                   'preempted', 'dependency_failed')
                   WHEN 'ended' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                                'preempted', 'dependency_failed')
                   ELSE reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now',
                                   'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency',
                                   'gang_incomplete', 'gang_no_room', 'gang_over_limit', 'no_uniform_label',
                                   'nominated') END, false))
);

CREATE INDEX explanations_of_allocation ON explanations (allocation_id, lsn DESC, event_index DESC)
    WHERE allocation_id IS NOT NULL;
CREATE INDEX explanations_of_line ON explanations (line, lsn DESC, event_index DESC) WHERE kind = 'line';
CREATE INDEX explanations_of_queue ON explanations (queue, lsn DESC, event_index DESC) WHERE kind = 'line';
