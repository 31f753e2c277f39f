-- Every allocation, live and ended, as the ledger has it.
CREATE TABLE allocations (
    allocation_id  uuid        PRIMARY KEY,
    tenant         text        NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    job_set        text        NOT NULL CHECK (job_set ~ '^[A-Za-z0-9_-]{1,64}$'),
    -- The tenant's own name for it.
    name           text,
    priority       integer     NOT NULL,
    cpu_milli      bigint      NOT NULL CHECK (cpu_milli >= 0),
    memory_bytes   bigint      NOT NULL CHECK (memory_bytes >= 0),
    -- Devices, and the thousandths of each.
    gpu_count      integer     NOT NULL CHECK (gpu_count >= 0),
    gpu_milli      integer     NOT NULL CHECK (gpu_milli BETWEEN 0 AND 1000),
    -- Allowed models; empty means any.
    gpu_models     text[]      NOT NULL,
    state          text        NOT NULL CHECK (state IN
                                   ('requested', 'queued', 'placed', 'running', 'stopping', 'ended', 'denied')),
    -- None while it was never tried.
    waiting_reason text        CHECK (waiting_reason IN
                                   ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now')),
    node           text,
    -- Its devices on the node and the thousandths taken of each, in the same order.
    gpu_devices    integer[]   NOT NULL,
    gpu_shares     integer[]   NOT NULL,
    end_cause      text        CHECK (end_cause IN
                                   ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node')),
    requested_at   timestamptz NOT NULL,
    placed_at      timestamptz,
    -- By the node's report.
    started_at     timestamptz,
    -- Or denied.
    ended_at       timestamptz,
    -- Ledger position of the last change.
    lsn            bigint      NOT NULL CHECK (lsn > 0),

    CONSTRAINT gpu_is_all_or_none
        CHECK ((gpu_count = 0) = (gpu_milli = 0) AND (gpu_count > 0 OR cardinality(gpu_models) = 0)),
    CONSTRAINT place_is_all_or_none
        CHECK ((node IS NULL) = (placed_at IS NULL) AND (node IS NOT NULL OR cardinality(gpu_devices) = 0)),
    CONSTRAINT placed_with_the_devices_asked_for
        CHECK (node IS NULL OR cardinality(gpu_devices) = gpu_count),
    CONSTRAINT every_device_has_its_share
        CHECK (cardinality(gpu_devices) = cardinality(gpu_shares)
               AND 0 < ALL (gpu_shares) AND 1000 >= ALL (gpu_shares)),
    CONSTRAINT started_only_where_placed
        CHECK (started_at IS NULL OR node IS NOT NULL),
    -- Reports are moved into the time of the placement; requests are on another service's clock.
    CONSTRAINT nothing_before_its_placement
        CHECK (started_at >= placed_at AND ended_at >= placed_at),
    CONSTRAINT waits_only_in_the_queue
        CHECK (waiting_reason IS NULL OR state = 'queued'),
    CONSTRAINT cause_when_ended
        CHECK ((state = 'ended') = (end_cause IS NOT NULL)),
    CONSTRAINT time_of_the_end
        CHECK ((state IN ('ended', 'denied')) = (ended_at IS NOT NULL)),
    CONSTRAINT state_fits_place
        CHECK (CASE state
                   WHEN 'requested' THEN node IS NULL
                   WHEN 'queued' THEN node IS NULL
                   WHEN 'denied' THEN node IS NULL
                   WHEN 'placed' THEN node IS NOT NULL AND started_at IS NULL
                   WHEN 'running' THEN started_at IS NOT NULL
                   WHEN 'stopping' THEN node IS NOT NULL
                   ELSE true END)
);

CREATE INDEX allocations_by_job_set ON allocations (tenant, job_set, requested_at DESC);
CREATE INDEX allocations_live ON allocations (tenant, requested_at) WHERE ended_at IS NULL;
CREATE INDEX allocations_on_node ON allocations (node) WHERE node IS NOT NULL AND ended_at IS NULL;

-- What waits for a place, in the order in which it is tried: priority, then arrival.
CREATE TABLE scheduling_queue (
    allocation_id  uuid        PRIMARY KEY REFERENCES allocations ON DELETE CASCADE,
    tenant         text        NOT NULL,
    priority       integer     NOT NULL,
    -- Number of the request.
    arrival        bigint      NOT NULL CHECK (arrival > 0),
    -- None while it was never tried.
    waiting_reason text        CHECK (waiting_reason IN
                                   ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now')),
    -- In the queue, or waiting for this reason, since then.
    since          timestamptz NOT NULL
);

CREATE INDEX scheduling_queue_order ON scheduling_queue (priority DESC, arrival);
CREATE INDEX scheduling_queue_by_tenant ON scheduling_queue (tenant);
