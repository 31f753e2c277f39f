
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
