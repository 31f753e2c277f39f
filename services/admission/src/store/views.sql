
CREATE VIEW object_states AS
SELECT tenant AS id,
       'tenant'::text AS type,
       'active'::text AS state,
       changed_at,
       NULL::text AS message
FROM tenants;
COMMENT ON VIEW object_states IS 'Where each thing that this service keeps stands. The views of this name of all services have the same columns.';
COMMENT ON COLUMN object_states.id IS 'The tenant''s name.';
COMMENT ON COLUMN object_states.type IS 'tenant.';
COMMENT ON COLUMN object_states.state IS 'A tenant is active from when it is set; nothing recorded ends or suspends one.';
COMMENT ON COLUMN object_states.changed_at IS 'When its settings were last set, by the clock of the service that recorded it.';
COMMENT ON COLUMN object_states.message IS 'None: the state says all.';

CREATE VIEW operations AS
SELECT event_no, tenant, operation_id, digest, stands, verb, state, allocation_id, version, rule, subject, rule_limit,
       rule_actual, requested_at, decided_at, by_slots, lease_id, fencing_token, deadline_slot, allocations
FROM other_operations
UNION ALL
SELECT event_no, tenant, operation_id, digest, true, 'submit'::text, state, (cell || lpad(to_hex(event_no), 16, '0'))::uuid,
       NULL::bigint, NULL::text, NULL::text, NULL::numeric(20), NULL::numeric(20), requested_at, decided_at, false,
       NULL::uuid, NULL::bigint, NULL::numeric(20), NULL::bigint
FROM answered_submits_1 JOIN submit_window ON event_no > forgotten_through
UNION ALL
SELECT event_no, tenant, operation_id, digest, true, 'submit'::text, state, (cell || lpad(to_hex(event_no), 16, '0'))::uuid,
       NULL::bigint, NULL::text, NULL::text, NULL::numeric(20), NULL::numeric(20), requested_at, decided_at, false,
       NULL::uuid, NULL::bigint, NULL::numeric(20), NULL::bigint
FROM answered_submits_2 JOIN submit_window ON event_no > forgotten_through;
COMMENT ON VIEW operations IS 'What was asked, and what became of it, within its retention window. A query for an operation id uses the indexes of all tables.';
COMMENT ON COLUMN operations.event_no IS 'Number of the event that recorded the operation.';
COMMENT ON COLUMN operations.stands IS 'Whether the operation id stands for this one: a repeat is answered with its outcome.';
COMMENT ON COLUMN operations.allocation_id IS 'The allocation that it made or that it is about.';
COMMENT ON COLUMN operations.version IS 'Of an applied change.';
COMMENT ON COLUMN operations.rule IS 'The broken rule and what it was about.';
COMMENT ON COLUMN operations.by_slots IS 'Its retention window is counted in slots and not by the clock.';
COMMENT ON COLUMN operations.lease_id IS 'Of a granted lease.';
COMMENT ON COLUMN operations.allocations IS 'How many a cancel of a job set, or a change of priority, was for.';
