
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
