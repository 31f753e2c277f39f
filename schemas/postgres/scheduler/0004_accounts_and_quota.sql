-- Accounts below the tenant, what a run may take at the most, waiting for quota, and quota that is taken back.

ALTER TABLE allocations
    -- The account below the tenant that its quota is of.
    ADD COLUMN team              text,
    ADD COLUMN namespace         text,
    ADD COLUMN qos               text   NOT NULL DEFAULT 'guaranteed'
                                        CHECK (qos IN ('guaranteed', 'burstable', 'best_effort')),
    -- 0: no more than it asks for.
    ADD COLUMN cpu_milli_most    bigint NOT NULL DEFAULT 0 CHECK (cpu_milli_most >= 0),
    ADD COLUMN memory_bytes_most bigint NOT NULL DEFAULT 0 CHECK (memory_bytes_most >= 0),
    -- Which rule keeps it waiting for quota, or has denied it: about what, the limit, and what use would come to.
    ADD COLUMN quota_rule        text,
    ADD COLUMN quota_subject     text,
    ADD COLUMN quota_limit       bigint CHECK (quota_limit >= 0),
    ADD COLUMN quota_actual      bigint CHECK (quota_actual >= 0),
    ADD CONSTRAINT namespace_of_a_team
        CHECK (namespace IS NULL OR team IS NOT NULL),
    ADD CONSTRAINT refusal_is_all_or_none
        CHECK (num_nulls(quota_rule, quota_subject, quota_limit, quota_actual) IN (0, 4)),
    ADD CONSTRAINT refused_by_quota_only
        CHECK (quota_rule IS NULL OR state IN ('requested', 'denied')),
    DROP CONSTRAINT allocations_waiting_reason_check;

-- A single allocation can be over a limit, too.
UPDATE allocations SET waiting_reason = 'over_limit' WHERE waiting_reason = 'gang_over_limit';

ALTER TABLE allocations
    ADD CONSTRAINT allocations_waiting_reason_check CHECK (waiting_reason IN
        ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share',
         'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label',
         'nominated', 'quota'));

-- What waits for quota, for the operator's eye.
CREATE INDEX allocations_waiting_for_quota ON allocations (tenant, requested_at) WHERE quota_rule IS NOT NULL AND ended_at IS NULL;

ALTER TABLE scheduling_queue DROP CONSTRAINT scheduling_queue_waiting_reason_check;

UPDATE scheduling_queue SET waiting_reason = 'over_limit' WHERE waiting_reason = 'gang_over_limit';

ALTER TABLE scheduling_queue
    ADD CONSTRAINT scheduling_queue_waiting_reason_check CHECK (waiting_reason IN
        ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share',
         'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label',
         'nominated'));

ALTER TABLE preemption_events
    DROP CONSTRAINT preemption_events_cause_check,
    ADD CONSTRAINT preemption_events_cause_check
        CHECK (cause IN ('priority', 'fair_share', 'gang', 'reservation', 'quota'));

ALTER TABLE explanations
    DROP CONSTRAINT explanations_kind_check,
    DROP CONSTRAINT reason_fits_kind;

UPDATE explanations SET reason = 'over_limit' WHERE reason = 'gang_over_limit';

ALTER TABLE explanations
    ADD CONSTRAINT explanations_kind_check CHECK (kind IN
        ('waiting', 'line', 'placed', 'nominated', 'preempted', 'requeued', 'ended', 'quota_waiting', 'quota_denied',
         'quota_reclaimed', 'reprioritised')),
    ADD CONSTRAINT reason_fits_kind
        CHECK (coalesce(CASE kind
                   WHEN 'placed' THEN reason IS NULL
                   WHEN 'nominated' THEN reason IS NULL
                   WHEN 'quota_reclaimed' THEN reason IS NULL
                   WHEN 'reprioritised' THEN reason IS NULL
                   -- The rule that was broken, which the contract names.
                   WHEN 'quota_waiting' THEN reason IS NOT NULL
                   WHEN 'quota_denied' THEN reason IS NOT NULL
                   WHEN 'preempted' THEN reason IN ('priority', 'fair_share', 'gang', 'reservation', 'quota')
                   WHEN 'requeued' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                                   'preempted', 'dependency_failed')
                   WHEN 'ended' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                                'preempted', 'dependency_failed')
                   ELSE reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now',
                                   'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency',
                                   'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label', 'nominated',
                                   'quota') END, false));

-- The weight of a tenant's own queue, where nobody has set that queue.
CREATE TABLE tenant_weights (
    tenant       text        PRIMARY KEY,
    weight_milli integer     NOT NULL CHECK (weight_milli > 0),
    version      bigint      NOT NULL CHECK (version > 0),
    changed_at   timestamptz NOT NULL
);
