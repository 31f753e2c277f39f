-- Made of the rows in services/scheduler/src/store by APPORTION_WRITE=1 cargo test -p scheduler --test it the_migration

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

CREATE TABLE live_allocations (
    allocation_id uuid NOT NULL,
    tenant text NOT NULL,
    job_set text NOT NULL,
    name text,
    priority integer NOT NULL,
    cpu_milli bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    gpu_count integer NOT NULL,
    gpu_milli integer NOT NULL,
    state text NOT NULL,
    since timestamptz NOT NULL,
    waiting_reason text,
    node text,
    gpu_devices integer[] NOT NULL,
    gpu_shares integer[] NOT NULL,
    requested_at timestamptz NOT NULL,
    placed_at timestamptz,
    started_at timestamptz,
    lsn bigint NOT NULL,
    queue text NOT NULL,
    pending_group bigint,
    attempts integer NOT NULL DEFAULT 0,
    last_end_cause text,
    nominated_node text,
    preempted boolean NOT NULL DEFAULT false,
    quota_rule text,
    quota_subject text,
    quota_limit bigint,
    quota_actual bigint,
    quota_flags integer NOT NULL DEFAULT 0,
    facts bytea NOT NULL DEFAULT '',
    operation_id text,
    spec bytea NOT NULL,
    past bytea NOT NULL DEFAULT '',
    CONSTRAINT live_allocations_pkey PRIMARY KEY (allocation_id),
    CONSTRAINT live_allocations_tenant_check CHECK (length(tenant) BETWEEN 1 AND 64),
    CONSTRAINT live_allocations_job_set_check CHECK (length(job_set) BETWEEN 1 AND 64),
    CONSTRAINT live_allocations_cpu_milli_check CHECK (cpu_milli >= 0),
    CONSTRAINT live_allocations_memory_bytes_check CHECK (memory_bytes >= 0),
    CONSTRAINT live_allocations_gpu_count_check CHECK (gpu_count >= 0),
    CONSTRAINT live_allocations_gpu_milli_check CHECK (gpu_milli BETWEEN 0 AND 1000),
    CONSTRAINT live_allocations_state_check CHECK (state IN ('requested', 'awaiting_quota', 'queued', 'nominated', 'placed', 'running', 'stopping')),
    CONSTRAINT live_allocations_waiting_reason_check CHECK (waiting_reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label', 'nominated', 'quota', 'preemption_limit')),
    CONSTRAINT live_allocations_lsn_check CHECK (lsn > 0),
    CONSTRAINT live_allocations_pending_group_check CHECK (pending_group > 0),
    CONSTRAINT live_allocations_attempts_check CHECK (attempts >= 0),
    CONSTRAINT live_allocations_last_end_cause_check CHECK (last_end_cause IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node', 'preempted', 'dependency_failed', 'expired', 'time_limit', 'evicted')),
    CONSTRAINT live_allocations_quota_limit_check CHECK (quota_limit >= 0),
    CONSTRAINT live_allocations_quota_actual_check CHECK (quota_actual >= 0),
    CONSTRAINT live_allocations_quota_flags_check CHECK (quota_flags BETWEEN 0 AND 7),
    CONSTRAINT gpu_is_all_or_none CHECK ((gpu_count = 0) = (gpu_milli = 0)),
    CONSTRAINT place_is_all_or_none CHECK ((node IS NULL) = (placed_at IS NULL) AND (node IS NOT NULL OR cardinality(gpu_devices) = 0)),
    CONSTRAINT placed_with_the_devices_asked_for CHECK (node IS NULL OR cardinality(gpu_devices) = gpu_count),
    CONSTRAINT every_device_has_its_share CHECK (cardinality(gpu_devices) = cardinality(gpu_shares) AND 0 < ALL (gpu_shares) AND 1000 >= ALL (gpu_shares)),
    CONSTRAINT started_only_where_placed CHECK (started_at IS NULL OR node IS NOT NULL),
    CONSTRAINT nothing_before_its_placement CHECK (started_at >= placed_at),
    CONSTRAINT waits_only_in_the_queue CHECK (waiting_reason IS NULL OR state = 'queued'),
    CONSTRAINT state_fits_place CHECK (CASE state
         WHEN 'requested' THEN node IS NULL
         WHEN 'awaiting_quota' THEN node IS NULL
         WHEN 'queued' THEN node IS NULL
         WHEN 'nominated' THEN node IS NULL
         WHEN 'placed' THEN node IS NOT NULL AND started_at IS NULL
         WHEN 'running' THEN started_at IS NOT NULL
         WHEN 'stopping' THEN node IS NOT NULL
         ELSE true END),
    CONSTRAINT in_a_group_only_in_the_queue CHECK (pending_group IS NULL OR state = 'queued'),
    CONSTRAINT nominated_for_a_node CHECK ((state = 'nominated') = (nominated_node IS NOT NULL)),
    CONSTRAINT queued_again_for_a_cause CHECK ((attempts = 0) = (last_end_cause IS NULL)),
    CONSTRAINT preempted_from_its_node CHECK (NOT preempted OR state = 'stopping'),
    CONSTRAINT refusal_is_all_or_none CHECK (num_nulls(quota_rule, quota_subject, quota_limit, quota_actual) IN (0, 4)),
    CONSTRAINT refused_by_quota_only CHECK ((quota_rule IS NOT NULL) = (state = 'awaiting_quota'))
) WITH (fillfactor = 70);
COMMENT ON TABLE live_allocations IS 'Every allocation that is not over, as the ledger has it. One that is over is in `ended_allocations`; most are over before they would be written here.';
COMMENT ON COLUMN live_allocations.name IS 'The tenant''s own name for it.';
COMMENT ON COLUMN live_allocations.gpu_count IS 'Devices, and in `gpu_milli` the thousandths of each.';
COMMENT ON COLUMN live_allocations.since IS 'In this state since then.';
COMMENT ON COLUMN live_allocations.waiting_reason IS 'None while it was never tried.';
COMMENT ON COLUMN live_allocations.gpu_devices IS 'Its devices on the node and in `gpu_shares` the thousandths taken of each, in the same order.';
COMMENT ON COLUMN live_allocations.started_at IS 'By the node''s report.';
COMMENT ON COLUMN live_allocations.lsn IS 'Ledger position of the last change.';
COMMENT ON COLUMN live_allocations.pending_group IS 'None while it is in no pending group, as during a pause.';
COMMENT ON COLUMN live_allocations.attempts IS 'How often it was queued again.';
COMMENT ON COLUMN live_allocations.last_end_cause IS 'What ended the run before the last time it was queued again.';
COMMENT ON COLUMN live_allocations.nominated_node IS 'Is being cleared for it.';
COMMENT ON COLUMN live_allocations.preempted IS 'It has to go for another.';
COMMENT ON COLUMN live_allocations.quota_rule IS 'Which rule keeps it waiting for quota: about what, the limit, and what use would come to.';
COMMENT ON COLUMN live_allocations.quota_flags IS 'What is remarkable about the quota that it has, as bits: 1 it was granted above a soft limit, 2 above a hard one for as long as a burst lasts, 4 of what others of the cohort lend.';
COMMENT ON COLUMN live_allocations.facts IS 'What is said of every allocation, once: its first placement, its end or its denial. A row of `explanations` for each of them cost more than the allocation''s own. Field 1 for each, of a message with `position`, `at_ms` and `fact`, as a row of `explanations` has them.';
COMMENT ON COLUMN live_allocations.operation_id IS 'The tenant''s id of the operation that asked for it.';
COMMENT ON COLUMN live_allocations.spec IS 'What it asked for, as the message `AllocationSpec` of the contract, but for the priority, which can change.';
COMMENT ON COLUMN live_allocations.past IS 'The places that it had before it was queued again, the last 32 of them: field 1 for each, of a message with `node`, `gpus`, `placed_at_ms`, `started_at_ms`, `ended_at_ms`, `cause` and `exit`.';
CREATE INDEX live_allocations_of_tenant ON live_allocations (tenant, allocation_id);
CREATE INDEX live_allocations_on_node ON live_allocations (node) WHERE node IS NOT NULL;
CREATE INDEX live_allocations_waiting_for_quota ON live_allocations (tenant, requested_at) WHERE quota_rule IS NOT NULL;

CREATE TABLE ended_allocations (
    allocation_id uuid NOT NULL,
    tenant text NOT NULL,
    job_set text NOT NULL,
    name text,
    queue text NOT NULL,
    state text NOT NULL,
    end_cause text,
    quota_rule text,
    node text,
    cpu_milli bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    gpu_milli bigint NOT NULL,
    requested_at timestamptz NOT NULL,
    placed_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    since timestamptz NOT NULL,
    lsn bigint NOT NULL,
    spec bytea NOT NULL,
    rest bytea NOT NULL,
    facts bytea NOT NULL,
    CONSTRAINT ended_allocations_pkey PRIMARY KEY (allocation_id),
    CONSTRAINT ended_allocations_state_check CHECK (state IN ('ended', 'denied')),
    CONSTRAINT ended_allocations_end_cause_check CHECK (end_cause IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node', 'preempted', 'dependency_failed', 'expired', 'time_limit', 'evicted')),
    CONSTRAINT ended_for_a_cause_or_denied_by_a_rule CHECK ((state = 'ended') = (end_cause IS NOT NULL) AND (state = 'denied') = (quota_rule IS NOT NULL)),
    CONSTRAINT nothing_before_its_placement CHECK (started_at >= placed_at AND ended_at >= placed_at)
);
COMMENT ON TABLE ended_allocations IS 'Every allocation that is over: it has ended, or quota has denied it.';
COMMENT ON COLUMN ended_allocations.name IS 'The tenant''s own name for it.';
COMMENT ON COLUMN ended_allocations.quota_rule IS 'The rule by which quota has denied it.';
COMMENT ON COLUMN ended_allocations.node IS 'Its last one.';
COMMENT ON COLUMN ended_allocations.gpu_milli IS 'Thousandths of a GPU, of all its devices together.';
COMMENT ON COLUMN ended_allocations.placed_at IS 'For the last time, as what follows.';
COMMENT ON COLUMN ended_allocations.started_at IS 'By the node''s report.';
COMMENT ON COLUMN ended_allocations.ended_at IS 'By the node''s report, or when it was denied.';
COMMENT ON COLUMN ended_allocations.since IS 'When the end was recorded.';
COMMENT ON COLUMN ended_allocations.lsn IS 'Ledger position of the end.';
COMMENT ON COLUMN ended_allocations.spec IS 'What it asked for, with its last priority: the message `AllocationSpec` of the contract.';
COMMENT ON COLUMN ended_allocations.rest IS 'What else is known of it: field 1 for each device of its last place, 2 how often it was queued again, 3 what ended the run before the last time, 4 the refusal by quota, 5 how the command of the last run ended, 6 what was remarkable about its quota, as `quota_flags` of `live_allocations`, 7 the tenant''s id of the operation that asked for it, 8 its places before the last one, as field 1 of `past` of `live_allocations`.';
COMMENT ON COLUMN ended_allocations.facts IS 'What is said of every allocation, once: its first placement, its end or its denial. Field 1 for each, of a message with `position`, `at_ms` and `fact`, as a row of `explanations` has them.';
CREATE INDEX ended_allocations_by_job_set ON ended_allocations (job_set);
CREATE INDEX ended_allocations_of_tenant ON ended_allocations (tenant, allocation_id);

CREATE TABLE scheduling_queue (
    allocation_id uuid NOT NULL,
    tenant text NOT NULL,
    priority integer NOT NULL,
    arrival bigint NOT NULL,
    waiting_reason text,
    since timestamptz NOT NULL,
    queue text NOT NULL,
    pending_group bigint,
    state text NOT NULL DEFAULT 'queued',
    not_before timestamptz,
    requested_at timestamptz NOT NULL,
    run_time_ms bigint NOT NULL DEFAULT 0,
    size bigint NOT NULL DEFAULT 0,
    CONSTRAINT scheduling_queue_pkey PRIMARY KEY (allocation_id),
    CONSTRAINT scheduling_queue_arrival_check CHECK (arrival > 0),
    CONSTRAINT scheduling_queue_waiting_reason_check CHECK (waiting_reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label', 'nominated', 'quota', 'preemption_limit')),
    CONSTRAINT scheduling_queue_pending_group_check CHECK (pending_group > 0),
    CONSTRAINT scheduling_queue_state_check CHECK (state IN ('queued', 'nominated', 'paused', 'awaiting_quota')),
    CONSTRAINT scheduling_queue_run_time_ms_check CHECK (run_time_ms >= 0),
    CONSTRAINT scheduling_queue_size_check CHECK (size >= 0),
    CONSTRAINT paused_until_a_moment CHECK ((state = 'paused') = (not_before IS NOT NULL)),
    CONSTRAINT in_a_group_only_when_queued CHECK (pending_group IS NULL OR state = 'queued')
);
COMMENT ON TABLE scheduling_queue IS 'Allocations that wait for a place, in the order in which they are tried: priority, then arrival; and those that wait for quota.';
COMMENT ON COLUMN scheduling_queue.arrival IS 'Number of the request.';
COMMENT ON COLUMN scheduling_queue.waiting_reason IS 'None while it was never tried.';
COMMENT ON COLUMN scheduling_queue.since IS 'In the queue, or waiting for this reason, since then.';
COMMENT ON COLUMN scheduling_queue.state IS 'Nominated: its node is being cleared. Paused: not tried before `not_before`. Awaiting quota: of quota''s refusal, its row in live_allocations has the rule.';
COMMENT ON COLUMN scheduling_queue.size IS 'In milli-GPUs, or in millicores when it asks for no GPU.';
CREATE INDEX scheduling_queue_by_tenant ON scheduling_queue (tenant);
CREATE INDEX scheduling_queue_by_queue ON scheduling_queue (queue, requested_at);
CREATE INDEX scheduling_queue_by_pending_group ON scheduling_queue (pending_group) WHERE pending_group IS NOT NULL;

CREATE TABLE queue_counts (
    queue text NOT NULL,
    state text NOT NULL,
    pending_group bigint NOT NULL,
    waiting_reason text NOT NULL,
    allocations bigint NOT NULL,
    cpu_milli numeric NOT NULL,
    memory_bytes numeric NOT NULL,
    gpu_milli numeric NOT NULL,
    CONSTRAINT queue_counts_pkey PRIMARY KEY (queue, state, pending_group, waiting_reason),
    CONSTRAINT queue_counts_state_check CHECK (state IN ('held', 'waiting')),
    CONSTRAINT queue_counts_pending_group_check CHECK (pending_group >= 0),
    CONSTRAINT queue_counts_allocations_check CHECK (allocations > 0),
    CONSTRAINT waits_in_a_group_for_a_reason CHECK (state = 'waiting' OR (pending_group = 0 AND waiting_reason = ''))
) WITH (fillfactor = 50);
COMMENT ON TABLE queue_counts IS 'How many allocations a queue holds and has waiting, and what they ask for together: what a look at all rows of live_allocations and scheduling_queue would come to.';
COMMENT ON COLUMN queue_counts.state IS 'Held: on a node, and not being preempted. Waiting: in scheduling_queue.';
COMMENT ON COLUMN queue_counts.pending_group IS '0: none.';
COMMENT ON COLUMN queue_counts.waiting_reason IS 'As scheduling_queue has it; empty where that has none.';
COMMENT ON COLUMN queue_counts.gpu_milli IS 'Milli-GPUs.';

CREATE TABLE node_counts (
    node text NOT NULL,
    stopping boolean NOT NULL,
    allocations bigint NOT NULL,
    cpu_milli numeric NOT NULL,
    memory_bytes numeric NOT NULL,
    gpu_milli numeric NOT NULL,
    CONSTRAINT node_counts_pkey PRIMARY KEY (node, stopping),
    CONSTRAINT node_counts_allocations_check CHECK (allocations > 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE node_counts IS 'How many allocations are on a node, and what they ask for together: what a look at all rows of live_allocations would come to.';
COMMENT ON COLUMN node_counts.stopping IS 'They were told to stop, or are being preempted.';
COMMENT ON COLUMN node_counts.gpu_milli IS 'Milli-GPUs.';

CREATE TABLE queues (
    queue text NOT NULL,
    parent text,
    weight_milli integer NOT NULL,
    cpu_milli_limit bigint,
    memory_bytes_limit bigint,
    gpu_milli_limit bigint,
    tenants text[] NOT NULL,
    queue_order text NOT NULL,
    placement text,
    version bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT queues_pkey PRIMARY KEY (queue),
    CONSTRAINT queues_weight_milli_check CHECK (weight_milli > 0),
    CONSTRAINT queues_cpu_milli_limit_check CHECK (cpu_milli_limit >= 0),
    CONSTRAINT queues_memory_bytes_limit_check CHECK (memory_bytes_limit >= 0),
    CONSTRAINT queues_gpu_milli_limit_check CHECK (gpu_milli_limit >= 0),
    CONSTRAINT queues_queue_order_check CHECK (queue_order IN ('fcfs', 'sjf', 'smallest_area')),
    CONSTRAINT queues_placement_check CHECK (placement IN ('default', 'best_fit', 'spread', 'gpu_packing', 'fgd')),
    CONSTRAINT queues_version_check CHECK (version > 0),
    CONSTRAINT queues_check CHECK (parent <> queue)
);
COMMENT ON TABLE queues IS 'Queues.';
COMMENT ON COLUMN queues.cpu_milli_limit IS 'None: as much as there is.';
COMMENT ON COLUMN queues.tenants IS 'Who may submit to it beside the tenant of its name.';
COMMENT ON COLUMN queues.placement IS 'None: the cell''s.';

CREATE TABLE scheduling_policy (
    one boolean NOT NULL DEFAULT true,
    placement text NOT NULL,
    half_life_ms bigint NOT NULL,
    fair_share_preemption boolean NOT NULL,
    protected_milli integer NOT NULL,
    preemptions_per_minute bigint NOT NULL,
    aging_ms bigint NOT NULL,
    backfill boolean NOT NULL,
    backoff_ms bigint NOT NULL,
    backoff_ms_max bigint NOT NULL,
    version bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT scheduling_policy_pkey PRIMARY KEY (one),
    CONSTRAINT scheduling_policy_one_check CHECK (one),
    CONSTRAINT scheduling_policy_placement_check CHECK (placement IN ('default', 'best_fit', 'spread', 'gpu_packing', 'fgd')),
    CONSTRAINT scheduling_policy_half_life_ms_check CHECK (half_life_ms >= 0),
    CONSTRAINT scheduling_policy_protected_milli_check CHECK (protected_milli BETWEEN 0 AND 1000),
    CONSTRAINT scheduling_policy_preemptions_per_minute_check CHECK (preemptions_per_minute >= 0),
    CONSTRAINT scheduling_policy_aging_ms_check CHECK (aging_ms >= 0),
    CONSTRAINT scheduling_policy_backoff_ms_check CHECK (backoff_ms >= 0),
    CONSTRAINT scheduling_policy_backoff_ms_max_check CHECK (backoff_ms_max >= 0),
    CONSTRAINT scheduling_policy_version_check CHECK (version > 0)
);
COMMENT ON TABLE scheduling_policy IS 'One row, once somebody has set it.';

CREATE TABLE nodes (
    node text NOT NULL,
    state text,
    since timestamptz,
    last_seen timestamptz,
    registered_at timestamptz,
    incarnation numeric(20),
    cpu_milli bigint NOT NULL DEFAULT 0,
    memory_bytes bigint NOT NULL DEFAULT 0,
    gpu_milli bigint NOT NULL DEFAULT 0,
    gpu_model text,
    capacity bytea NOT NULL,
    cordoned boolean NOT NULL DEFAULT false,
    drain boolean NOT NULL DEFAULT false,
    at_once integer NOT NULL DEFAULT 0,
    cordon_version bigint NOT NULL DEFAULT 0,
    taints jsonb NOT NULL DEFAULT '[]',
    taints_version bigint NOT NULL DEFAULT 0,
    conditions jsonb NOT NULL DEFAULT '[]',
    history jsonb NOT NULL DEFAULT '[]',
    CONSTRAINT nodes_pkey PRIMARY KEY (node),
    CONSTRAINT nodes_state_check CHECK (state IN ('ready', 'suspect', 'lost')),
    CONSTRAINT nodes_cpu_milli_check CHECK (cpu_milli >= 0),
    CONSTRAINT nodes_memory_bytes_check CHECK (memory_bytes >= 0),
    CONSTRAINT nodes_gpu_milli_check CHECK (gpu_milli >= 0),
    CONSTRAINT nodes_at_once_check CHECK (at_once >= 0),
    CONSTRAINT nodes_cordon_version_check CHECK (cordon_version >= 0),
    CONSTRAINT nodes_taints_check CHECK (jsonb_typeof(taints) = 'array'),
    CONSTRAINT nodes_taints_version_check CHECK (taints_version >= 0),
    CONSTRAINT nodes_conditions_check CHECK (jsonb_typeof(conditions) = 'array'),
    CONSTRAINT nodes_history_check CHECK (jsonb_typeof(history) = 'array'),
    CONSTRAINT registered_as_a_whole CHECK (num_nulls(state, since, last_seen, registered_at, incarnation) IN (0, 5))
);
COMMENT ON TABLE nodes IS 'The nodes that are there or were, and those that an operator has said something of.';
COMMENT ON COLUMN nodes.state IS 'None: it was never registered, or is forgotten.';
COMMENT ON COLUMN nodes.since IS 'In this state since then.';
COMMENT ON COLUMN nodes.last_seen IS 'The last sign of life that stands on the ledger: of a ready node the one that made it ready, of others the last before that.';
COMMENT ON COLUMN nodes.registered_at IS 'When this capacity was registered.';
COMMENT ON COLUMN nodes.incarnation IS 'Given by the cell; grows each time the agent starts anew.';
COMMENT ON COLUMN nodes.gpu_milli IS 'Thousandths of a GPU, of all its devices together.';
COMMENT ON COLUMN nodes.capacity IS 'All that it has: the message `NodeCapacity` of the contract.';
COMMENT ON COLUMN nodes.cordoned IS 'By an operator: nothing new comes.';
COMMENT ON COLUMN nodes.drain IS 'What runs there is told to stop, and placed elsewhere.';
COMMENT ON COLUMN nodes.at_once IS 'So many of its allocations are on their way out at once, at the most; 0: all.';
COMMENT ON COLUMN nodes.cordon_version IS '0: nobody has set one.';
COMMENT ON COLUMN nodes.taints IS 'Those that an operator has given to it, beside its own: [{"key": "maintenance", "value": null, "effect": "NoExecute"}]';
COMMENT ON COLUMN nodes.taints_version IS '0: nobody has set any.';
COMMENT ON COLUMN nodes.conditions IS 'What holds of it by the word of its agent.';
COMMENT ON COLUMN nodes.history IS 'The last 20 changes, the oldest first.';

CREATE TABLE tenant_weights (
    tenant text NOT NULL,
    weight_milli integer NOT NULL,
    version bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT tenant_weights_pkey PRIMARY KEY (tenant),
    CONSTRAINT tenant_weights_weight_milli_check CHECK (weight_milli > 0),
    CONSTRAINT tenant_weights_version_check CHECK (version > 0)
);
COMMENT ON TABLE tenant_weights IS 'The weight of a tenant''s own queue, where nobody has set that queue.';

CREATE TABLE job_sets (
    tenant text NOT NULL,
    job_set text NOT NULL,
    queue text NOT NULL,
    requested bigint NOT NULL,
    waiting bigint NOT NULL,
    placed bigint NOT NULL,
    running bigint NOT NULL,
    stopping bigint NOT NULL,
    finished bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    denied bigint NOT NULL,
    first_requested_at timestamptz NOT NULL,
    last_change_at timestamptz NOT NULL,
    CONSTRAINT job_sets_pkey PRIMARY KEY (tenant, job_set, queue)
) WITH (fillfactor = 70);
COMMENT ON TABLE job_sets IS 'How many allocations of a job set, of those in one queue, stand where; those that are over, too.';
COMMENT ON COLUMN job_sets.waiting IS 'Queued or nominated.';
COMMENT ON COLUMN job_sets.failed IS 'Over for any cause but `finished` and `cancelled`.';
COMMENT ON COLUMN job_sets.denied IS 'By quota.';

CREATE TABLE tenant_tallies (
    tenant text NOT NULL,
    requested bigint NOT NULL,
    waiting bigint NOT NULL,
    placed bigint NOT NULL,
    running bigint NOT NULL,
    stopping bigint NOT NULL,
    cpu_milli bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    gpu_milli bigint NOT NULL,
    CONSTRAINT tenant_tallies_pkey PRIMARY KEY (tenant)
) WITH (fillfactor = 70);
COMMENT ON TABLE tenant_tallies IS 'How many allocations of a tenant stand where, and what it holds on nodes.';
COMMENT ON COLUMN tenant_tallies.waiting IS 'Queued or nominated.';

CREATE TABLE reservations (
    reservation text NOT NULL,
    queue text NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    nodes_wanted bigint NOT NULL,
    selector jsonb NOT NULL,
    state text NOT NULL,
    nodes text[] NOT NULL,
    version bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT reservations_pkey PRIMARY KEY (reservation),
    CONSTRAINT reservations_nodes_wanted_check CHECK (nodes_wanted >= 0),
    CONSTRAINT reservations_selector_check CHECK (jsonb_typeof(selector) = 'array'),
    CONSTRAINT reservations_state_check CHECK (state IN ('asked', 'granted', 'refused', 'withdrawn', 'over')),
    CONSTRAINT reservations_version_check CHECK (version > 0),
    CONSTRAINT reservations_check CHECK (ends_at > starts_at),
    CONSTRAINT granted_with_nodes CHECK ((state = 'granted') = (cardinality(nodes) > 0))
);
COMMENT ON TABLE reservations IS 'Advance reservations of nodes.';
COMMENT ON COLUMN reservations.selector IS 'What the nodes must be like.';

CREATE TABLE preemption_events (
    lsn bigint NOT NULL,
    event_index integer NOT NULL,
    allocation_id uuid NOT NULL,
    tenant text NOT NULL,
    queue text NOT NULL,
    node text NOT NULL,
    cause text NOT NULL,
    priority integer NOT NULL,
    by_allocation_id uuid,
    by_priority integer,
    at timestamptz NOT NULL,
    grace_until timestamptz NOT NULL,
    outcome text NOT NULL,
    stopped_at timestamptz,
    requeued boolean,
    freed_cpu_milli bigint,
    freed_memory_bytes bigint,
    freed_gpu_milli bigint,
    CONSTRAINT preemption_events_pkey PRIMARY KEY (lsn, event_index),
    CONSTRAINT preemption_events_lsn_check CHECK (lsn > 0),
    CONSTRAINT preemption_events_event_index_check CHECK (event_index >= 0),
    CONSTRAINT preemption_events_cause_check CHECK (cause IN ('priority', 'fair_share', 'gang', 'reservation', 'quota', 'drain', 'taint')),
    CONSTRAINT preemption_events_outcome_check CHECK (outcome IN ('stopping', 'stopped', 'node_lost', 'rejected_by_node')),
    CONSTRAINT preemption_events_freed_cpu_milli_check CHECK (freed_cpu_milli >= 0),
    CONSTRAINT preemption_events_freed_memory_bytes_check CHECK (freed_memory_bytes >= 0),
    CONSTRAINT preemption_events_freed_gpu_milli_check CHECK (freed_gpu_milli >= 0),
    CONSTRAINT preemption_events_check CHECK (grace_until >= at),
    CONSTRAINT over_is_all_or_none CHECK (num_nulls(stopped_at, requeued, freed_cpu_milli, freed_memory_bytes, freed_gpu_milli)
     = CASE outcome WHEN 'stopping' THEN 5 ELSE 0 END)
);
COMMENT ON TABLE preemption_events IS 'Who had to go from its node for the sake of another, and what that freed. The key is the fact''s place on the ledger.';
COMMENT ON COLUMN preemption_events.allocation_id IS 'The victim.';
COMMENT ON COLUMN preemption_events.priority IS 'Its own when it was decided, and in `by_priority` that of the one that it makes room for.';
COMMENT ON COLUMN preemption_events.by_allocation_id IS 'Whom it makes room for; none for a reservation.';
COMMENT ON COLUMN preemption_events.grace_until IS 'It should have stopped by then.';
COMMENT ON COLUMN preemption_events.stopped_at IS 'By the node''s report, whose clock may be behind the decision''s.';
COMMENT ON COLUMN preemption_events.requeued IS 'It waits again; otherwise it has ended.';
CREATE INDEX preemption_events_of_tenant ON preemption_events (tenant, lsn DESC, event_index DESC);
CREATE INDEX preemption_events_of_allocation ON preemption_events (allocation_id);
CREATE INDEX preemption_events_open ON preemption_events (grace_until) WHERE outcome = 'stopping';

CREATE TABLE explanations (
    lsn bigint NOT NULL,
    event_index integer NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    allocation_id uuid,
    pending_group bigint,
    queue text,
    reason text,
    fact bytea NOT NULL,
    CONSTRAINT explanations_pkey PRIMARY KEY (lsn, event_index),
    CONSTRAINT explanations_lsn_check CHECK (lsn > 0),
    CONSTRAINT explanations_event_index_check CHECK (event_index >= 0),
    CONSTRAINT explanations_kind_check CHECK (kind IN ('allocation_waiting', 'pending_group_explained', 'allocation_placed', 'allocation_nominated', 'allocation_preempted', 'allocation_requeued', 'allocation_ended', 'quota_waiting', 'quota_denied', 'quota_reclaimed', 'allocation_reprioritised')),
    CONSTRAINT explanations_pending_group_check CHECK (pending_group > 0),
    CONSTRAINT of_an_allocation_or_of_a_pending_group CHECK ((kind = 'pending_group_explained') = (allocation_id IS NULL) AND (kind = 'pending_group_explained') = (queue IS NOT NULL)),
    CONSTRAINT pending_group_of_what_waits CHECK (CASE kind WHEN 'pending_group_explained' THEN pending_group IS NOT NULL WHEN 'allocation_waiting' THEN true ELSE pending_group IS NULL END),
    CONSTRAINT reason_fits_kind CHECK (coalesce(CASE kind
           WHEN 'allocation_placed' THEN reason IS NULL
           WHEN 'allocation_nominated' THEN reason IS NULL
           WHEN 'quota_reclaimed' THEN reason IS NULL
           WHEN 'allocation_reprioritised' THEN reason IS NULL
           WHEN 'quota_waiting' THEN reason IS NOT NULL
           WHEN 'quota_denied' THEN reason IS NOT NULL
           WHEN 'allocation_preempted' THEN reason IN ('priority', 'fair_share', 'gang', 'reservation', 'quota', 'drain', 'taint')
           WHEN 'allocation_requeued' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                           'preempted', 'dependency_failed', 'expired', 'time_limit', 'evicted')
           WHEN 'allocation_ended' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                        'preempted', 'dependency_failed', 'expired', 'time_limit', 'evicted')
           ELSE reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now',
                           'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency',
                           'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label', 'nominated',
                           'quota', 'preemption_limit') END, false))
);
COMMENT ON TABLE explanations IS 'What was decided about an allocation or a pending group, and why, in the order of the ledger. The same entry comes again when a batch does; it says the same then.';
COMMENT ON COLUMN explanations.pending_group IS 'The pending group that is explained, or that the allocation waits in.';
COMMENT ON COLUMN explanations.queue IS 'The pending group''s.';
COMMENT ON COLUMN explanations.reason IS 'Why it waits, had to go, or ended.';
COMMENT ON COLUMN explanations.fact IS 'The fact, as the ledger has it: the message `Event` of the contract.';
CREATE INDEX explanations_of_allocation ON explanations (allocation_id, lsn DESC, event_index DESC) WHERE allocation_id IS NOT NULL;
CREATE INDEX explanations_of_pending_group ON explanations (pending_group, lsn DESC, event_index DESC) WHERE kind = 'pending_group_explained';
CREATE INDEX explanations_of_queue ON explanations (queue, lsn DESC, event_index DESC) WHERE kind = 'pending_group_explained';

CREATE TABLE named_resources (
    tenant text NOT NULL,
    resource text NOT NULL,
    version bigint NOT NULL,
    lease bigint,
    CONSTRAINT named_resources_pkey PRIMARY KEY (tenant, resource),
    CONSTRAINT named_resources_version_check CHECK (version >= 0),
    CONSTRAINT named_resources_lease_check CHECK (lease > 0)
) WITH (fillfactor = 80);
COMMENT ON TABLE named_resources IS 'Where one stands follows from the lease that holds it.';
COMMENT ON COLUMN named_resources.version IS 'Counts the changes of its state.';
COMMENT ON COLUMN named_resources.lease IS 'Number of the lease that holds it; none: it is available.';

CREATE TABLE leases (
    tenant text NOT NULL,
    number bigint NOT NULL,
    holder text NOT NULL,
    fencing_token bigint NOT NULL,
    state text NOT NULL,
    since timestamptz NOT NULL,
    deadline numeric(20) NOT NULL,
    retire_after numeric(20),
    resources text[] NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (tenant, number),
    CONSTRAINT leases_number_check CHECK (number > 0),
    CONSTRAINT leases_fencing_token_check CHECK (fencing_token > 0),
    CONSTRAINT leases_state_check CHECK (state IN ('granted', 'confirmed', 'revoking', 'released', 'expired', 'revoked')),
    CONSTRAINT leases_deadline_check CHECK (deadline >= 0),
    CONSTRAINT leases_retire_after_check CHECK (retire_after >= 0),
    CONSTRAINT leases_resources_check CHECK (cardinality(resources) > 0),
    CONSTRAINT remembered_once_ended CHECK ((state IN ('released', 'expired', 'revoked')) = (retire_after IS NOT NULL))
) WITH (fillfactor = 80);
COMMENT ON TABLE leases IS 'Live ones, and ended ones as long as they are remembered.';
COMMENT ON COLUMN leases.number IS 'Of the event that granted it.';
COMMENT ON COLUMN leases.since IS 'In this state since then.';
COMMENT ON COLUMN leases.deadline IS 'Slots, which no integer type has all of.';
COMMENT ON COLUMN leases.retire_after IS 'The last slot at which an ended one is remembered.';
COMMENT ON COLUMN leases.resources IS 'As they were asked for.';
CREATE INDEX leases_ended ON leases (tenant, retire_after) WHERE retire_after IS NOT NULL;

CREATE TABLE lease_spaces (
    tenant text NOT NULL,
    slot numeric(20) NOT NULL,
    retired bigint NOT NULL,
    CONSTRAINT lease_spaces_pkey PRIMARY KEY (tenant),
    CONSTRAINT lease_spaces_slot_check CHECK (slot >= 0),
    CONSTRAINT lease_spaces_retired_check CHECK (retired >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE lease_spaces IS 'Each tenant''s time, and how far its leases are forgotten.';
COMMENT ON COLUMN lease_spaces.slot IS 'The latest that was seen.';
COMMENT ON COLUMN lease_spaces.retired IS 'The highest number that was forgotten; 0: none.';

CREATE VIEW queue_order AS
SELECT q.*,
       CASE q.state WHEN 'nominated' THEN 0 WHEN 'queued' THEN 1 WHEN 'paused' THEN 2 ELSE 3 END AS standing,
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
COMMENT ON VIEW queue_order IS 'Order in which the scheduler takes waiting allocations: nominated allocations, then queued ones by rank, turn and arrival, then paused ones, and last those that wait for quota. The rank is the priority, or with aging the moment of the request moved by the priority.';

-- A type is a branch, so a query that names it reads one table, by that table's indexes.
CREATE VIEW object_states AS
SELECT allocation_id::text AS id,
       'allocation'::text AS type,
       state,
       since AS changed_at,
       coalesce(waiting_reason, quota_rule, CASE WHEN preempted THEN 'preempted' END) AS message
FROM live_allocations
UNION ALL
SELECT allocation_id::text, 'allocation'::text, state, since, coalesce(end_cause, quota_rule) FROM ended_allocations
UNION ALL
SELECT queue, 'queue'::text, 'active'::text, changed_at, NULL::text FROM queues
UNION ALL
SELECT reservation, 'advance_reservation'::text, state, changed_at, NULL::text FROM reservations
UNION ALL
SELECT number::text, 'lease'::text, state, since, NULL::text FROM leases;
COMMENT ON VIEW object_states IS 'Where each thing that this service keeps stands. The views of this name of all services have the same columns.';
COMMENT ON COLUMN object_states.id IS 'An allocation''s id, a queue''s or an advance reservation''s name, or the number of a lease of named resources.';
COMMENT ON COLUMN object_states.type IS 'allocation, queue, advance_reservation, or lease (of named resources).';
COMMENT ON COLUMN object_states.state IS 'By the name that its table has for it. A queue is active from when it is set.';
COMMENT ON COLUMN object_states.changed_at IS 'When it came into this state, by the clock of the service that recorded it; of a queue, when it was last set.';
COMMENT ON COLUMN object_states.message IS 'The name of what ended it, of what it waits for, or of the limit that it is over; none where the state says all.';

CREATE VIEW allocations AS
SELECT allocation_id, tenant, job_set, name, queue, state, NULL::text AS end_cause, quota_rule, node, cpu_milli, memory_bytes,
       gpu_count::bigint * gpu_milli AS gpu_milli, requested_at, placed_at, started_at, NULL::timestamptz AS ended_at, since,
       lsn
FROM live_allocations
UNION ALL
SELECT allocation_id, tenant, job_set, name, queue, state, end_cause, quota_rule, node, cpu_milli, memory_bytes, gpu_milli,
       requested_at, placed_at, started_at, ended_at, since, lsn
FROM ended_allocations;
COMMENT ON VIEW allocations IS 'Every allocation there ever was: what live_allocations and ended_allocations have both. A query by id uses the indexes of both, one by job set that of those that are over.';
