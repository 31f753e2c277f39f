-- Who could come if others went, and waits because as many had to go in the last minute as may, is told so.
ALTER TABLE allocations
    DROP CONSTRAINT allocations_waiting_reason_check,
    ADD CONSTRAINT allocations_waiting_reason_check CHECK (waiting_reason IN
        ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share',
         'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label',
         'nominated', 'quota', 'preemption_limit'));

ALTER TABLE scheduling_queue
    DROP CONSTRAINT scheduling_queue_waiting_reason_check,
    ADD CONSTRAINT scheduling_queue_waiting_reason_check CHECK (waiting_reason IN
        ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now', 'no_node_matches', 'fair_share',
         'queue_limit', 'backoff', 'dependency', 'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label',
         'nominated', 'preemption_limit'));

ALTER TABLE explanations
    DROP CONSTRAINT reason_fits_kind,
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
                                   'quota', 'preemption_limit') END, false));
