
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
