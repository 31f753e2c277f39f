
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
COMMENT ON VIEW queue_order IS 'In which order the scheduler takes what waits in a queue: who is nominated, then by rank, turn and arrival, and last who is paused. The rank is the priority, or with aging the moment of the request moved by the priority.';
