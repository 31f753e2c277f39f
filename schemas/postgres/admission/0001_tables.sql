-- Made of the rows in services/admission/src/store by APPORTION_WRITE=1 cargo test -p admission --test it the_migration

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

CREATE TABLE tenants (
    tenant text NOT NULL,
    version bigint NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant),
    CONSTRAINT tenants_tenant_check CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    CONSTRAINT tenants_version_check CHECK (version > 0)
);
COMMENT ON TABLE tenants IS 'Who may ask.';

CREATE TABLE settings (
    setting text NOT NULL,
    key text NOT NULL,
    version bigint NOT NULL,
    operation_id text,
    set_by text,
    set_at timestamptz NOT NULL,
    lsn bigint NOT NULL,
    fact bytea NOT NULL,
    CONSTRAINT settings_pkey PRIMARY KEY (setting, key),
    CONSTRAINT settings_setting_check CHECK (setting IN ('budget', 'cordon', 'node', 'period', 'priority_class', 'quota', 'queue', 'rate', 'reservation', 'scheduling', 'taints', 'tenant')),
    CONSTRAINT settings_version_check CHECK (version > 0),
    CONSTRAINT settings_lsn_check CHECK (lsn > 0)
);
COMMENT ON TABLE settings IS 'What was last set of each thing. What was taken back is there, too: its version counts on.';
COMMENT ON COLUMN settings.key IS 'Which one: team-a/ml gpu.';
COMMENT ON COLUMN settings.version IS 'Of the change. The limits of one account and resource share one count, for whichever time they are.';
COMMENT ON COLUMN settings.set_by IS 'The operator, where it is one with a name.';
COMMENT ON COLUMN settings.fact IS 'The fact, as the ledger has it: the message `Event` of the contract.';

CREATE TABLE rates (
    key text NOT NULL,
    version bigint NOT NULL,
    operation_id text,
    set_by text,
    set_at timestamptz NOT NULL,
    lsn bigint NOT NULL,
    fact bytea NOT NULL,
    CONSTRAINT rates_pkey PRIMARY KEY (key, version),
    CONSTRAINT rates_version_check CHECK (version > 0),
    CONSTRAINT rates_lsn_check CHECK (lsn > 0)
);
COMMENT ON TABLE rates IS 'What was set of each rate, also what holds no more: a bill is made of all of them.';
COMMENT ON COLUMN rates.key IS 'Which one, as in `settings`: gpu:A100 tenant=team-a.';
COMMENT ON COLUMN rates.version IS 'Of the change.';
COMMENT ON COLUMN rates.set_by IS 'The operator, where it is one with a name.';
COMMENT ON COLUMN rates.fact IS 'The fact, as the ledger has it: the message `Event` of the contract.';

CREATE TABLE other_operations (
    event_no bigint NOT NULL,
    tenant text NOT NULL,
    operation_id text,
    digest bytea NOT NULL,
    stands boolean NOT NULL,
    verb text,
    state text NOT NULL,
    allocation_id uuid,
    version bigint,
    rule text,
    subject text,
    rule_limit numeric(20),
    rule_actual numeric(20),
    requested_at timestamptz NOT NULL,
    decided_at timestamptz,
    by_slots boolean NOT NULL DEFAULT false,
    lease_id uuid,
    fencing_token bigint,
    deadline_slot numeric(20),
    allocations bigint,
    asked_by text,
    CONSTRAINT other_operations_pkey PRIMARY KEY (event_no),
    CONSTRAINT other_operations_event_no_check CHECK (event_no > 0),
    CONSTRAINT other_operations_digest_check CHECK (octet_length(digest) = 16),
    CONSTRAINT other_operations_verb_check CHECK (verb IN ('submit', 'cancel', 'cancel_job_set', 'set_priority', 'create_resource', 'acquire', 'confirm', 'release', 'revoke', 'reclaim', 'set_tenant', 'set_quota', 'set_rate', 'set_queue', 'set_priority_class', 'set_scheduling', 'set_cordon', 'set_reservation', 'set_budget', 'set_node', 'close_period', 'set_taints')),
    CONSTRAINT other_operations_state_check CHECK (state IN ('pending', 'cancelled', 'applied', 'refused', 'job_set_cancelled', 'priority_set', 'created', 'granted', 'confirmed', 'released', 'revoked', 'reclaimed')),
    CONSTRAINT other_operations_version_check CHECK (version > 0),
    CONSTRAINT other_operations_rule_limit_check CHECK (rule_limit >= 0),
    CONSTRAINT other_operations_rule_actual_check CHECK (rule_actual >= 0),
    CONSTRAINT other_operations_fencing_token_check CHECK (fencing_token > 0),
    CONSTRAINT other_operations_deadline_slot_check CHECK (deadline_slot >= 0),
    CONSTRAINT other_operations_allocations_check CHECK (allocations >= 0),
    CONSTRAINT decided_when_not_pending CHECK ((state = 'pending') = (decided_at IS NULL)),
    CONSTRAINT refused_by_a_rule CHECK (CASE WHEN state = 'refused'
          THEN num_nulls(rule, subject, rule_limit, rule_actual) = 0
          ELSE num_nonnulls(rule, subject, rule_limit, rule_actual) = 0 END),
    CONSTRAINT verb_known_unless_refused CHECK (verb IS NOT NULL OR (state = 'refused' AND allocation_id IS NULL)),
    CONSTRAINT allocation_of_submit_or_cancel CHECK (state = 'refused' OR (verb IN ('submit', 'cancel')) = (allocation_id IS NOT NULL)),
    CONSTRAINT state_fits_verb CHECK (CASE verb
         WHEN 'submit' THEN state IN ('pending', 'refused')
         WHEN 'cancel' THEN state IN ('pending', 'cancelled', 'refused')
         WHEN 'cancel_job_set' THEN state IN ('pending', 'job_set_cancelled', 'refused')
         WHEN 'set_priority' THEN state IN ('pending', 'priority_set', 'refused')
         WHEN 'create_resource' THEN state IN ('pending', 'created', 'refused')
         WHEN 'acquire' THEN state IN ('pending', 'granted', 'refused')
         WHEN 'confirm' THEN state IN ('pending', 'confirmed', 'refused')
         WHEN 'release' THEN state IN ('pending', 'released', 'refused')
         WHEN 'revoke' THEN state IN ('pending', 'revoked', 'refused')
         WHEN 'reclaim' THEN state IN ('pending', 'reclaimed', 'refused')
         ELSE state IN ('applied', 'refused') END),
    CONSTRAINT version_when_applied CHECK ((state = 'applied') = (version IS NOT NULL)),
    CONSTRAINT granted_until_a_slot CHECK ((state = 'granted') = (lease_id IS NOT NULL) AND (state = 'granted') = (deadline_slot IS NOT NULL)),
    CONSTRAINT fencing_token_of_a_lease CHECK ((state IN ('granted', 'released', 'revoked')) = (fencing_token IS NOT NULL)),
    CONSTRAINT counted_allocations CHECK ((state IN ('job_set_cancelled', 'priority_set')) = (allocations IS NOT NULL)),
    CONSTRAINT slots_of_resources CHECK (NOT by_slots OR verb IN ('create_resource', 'acquire', 'confirm', 'release', 'revoke', 'reclaim'))
);
COMMENT ON TABLE other_operations IS 'What was asked, and what became of it, but for submits that are answered. Rows leave when their retention window is over, or when the submit is answered.';
COMMENT ON COLUMN other_operations.event_no IS 'Number of the event that recorded the operation.';
COMMENT ON COLUMN other_operations.operation_id IS 'None when the message could not be read that far.';
COMMENT ON COLUMN other_operations.digest IS 'First 16 bytes of SHA-256 over the request''s canonical content.';
COMMENT ON COLUMN other_operations.stands IS 'Whether the operation id stands for this one: a repeat is answered with its outcome. Not when it was refused for a reason that says nothing of it, such as a conflict with the one that stands.';
COMMENT ON COLUMN other_operations.verb IS 'None when refused at the inbox: it may have had none, or the cell was of feature level 9 or below.';
COMMENT ON COLUMN other_operations.allocation_id IS 'The allocation that it made or that it is about.';
COMMENT ON COLUMN other_operations.version IS 'Of an applied change.';
COMMENT ON COLUMN other_operations.rule IS 'The broken rule and what it was about. A tenant may name any 64-bit number, so these are numeric.';
COMMENT ON COLUMN other_operations.by_slots IS 'Its retention window is counted in slots and not by the clock.';
COMMENT ON COLUMN other_operations.lease_id IS 'Of a granted lease.';
COMMENT ON COLUMN other_operations.allocations IS 'How many a cancel of a job set, or a change of priority, was for.';
COMMENT ON COLUMN other_operations.asked_by IS 'The operator that asked, where it is one with a name.';
CREATE UNIQUE INDEX other_operations_one_stands ON other_operations (tenant, operation_id) WHERE stands AND operation_id IS NOT NULL;
CREATE INDEX other_operations_refused ON other_operations (tenant, event_no DESC) WHERE state = 'refused';

CREATE TABLE answered_submits_1 (
    event_no bigint NOT NULL,
    requested_at timestamptz NOT NULL,
    decided_at timestamptz NOT NULL,
    state text NOT NULL,
    tenant text NOT NULL,
    operation_id text,
    digest bytea NOT NULL,
    CONSTRAINT answered_submits_1_event_no_check CHECK (event_no > 0),
    CONSTRAINT answered_submits_1_state_check CHECK (state IN ('placed', 'waiting', 'ended')),
    CONSTRAINT answered_submits_1_digest_check CHECK (octet_length(digest) = 16)
);
COMMENT ON TABLE answered_submits_1 IS 'A submit that has an allocation. One of two tables that take turns: new rows go into one, until all of the other is forgotten and emptied. The view operations shows what is not forgotten.';
COMMENT ON COLUMN answered_submits_1.event_no IS 'Number of the event that recorded the operation, and of the allocation.';
COMMENT ON COLUMN answered_submits_1.digest IS 'First 16 bytes of SHA-256 over the request''s canonical content.';
CREATE INDEX answered_submits_1_by_operation_id ON answered_submits_1 USING hash (operation_id);

CREATE TABLE answered_submits_2 (
    event_no bigint NOT NULL,
    requested_at timestamptz NOT NULL,
    decided_at timestamptz NOT NULL,
    state text NOT NULL,
    tenant text NOT NULL,
    operation_id text,
    digest bytea NOT NULL,
    CONSTRAINT answered_submits_2_event_no_check CHECK (event_no > 0),
    CONSTRAINT answered_submits_2_state_check CHECK (state IN ('placed', 'waiting', 'ended')),
    CONSTRAINT answered_submits_2_digest_check CHECK (octet_length(digest) = 16)
);
COMMENT ON TABLE answered_submits_2 IS 'A submit that has an allocation. One of two tables that take turns: new rows go into one, until all of the other is forgotten and emptied. The view operations shows what is not forgotten.';
COMMENT ON COLUMN answered_submits_2.event_no IS 'Number of the event that recorded the operation, and of the allocation.';
COMMENT ON COLUMN answered_submits_2.digest IS 'First 16 bytes of SHA-256 over the request''s canonical content.';
CREATE INDEX answered_submits_2_by_operation_id ON answered_submits_2 USING hash (operation_id);

CREATE TABLE submit_window (
    cell text NOT NULL,
    forgotten_through bigint NOT NULL,
    part integer NOT NULL,
    last_in_part bigint NOT NULL,
    last_in_other bigint NOT NULL,
    CONSTRAINT submit_window_pkey PRIMARY KEY (cell),
    CONSTRAINT submit_window_cell_check CHECK (cell ~ '^[0-9a-f]{16}$'),
    CONSTRAINT submit_window_forgotten_through_check CHECK (forgotten_through >= 0),
    CONSTRAINT submit_window_part_check CHECK (part IN (1, 2)),
    CONSTRAINT submit_window_last_in_part_check CHECK (last_in_part >= 0),
    CONSTRAINT submit_window_last_in_other_check CHECK (last_in_other >= 0)
);
COMMENT ON TABLE submit_window IS 'Which of the answered submits are remembered, and where the next ones go. The table has one row.';
COMMENT ON COLUMN submit_window.cell IS 'Its number in 16 hexadecimal digits, as an allocation''s id begins.';
COMMENT ON COLUMN submit_window.forgotten_through IS 'The window of all submits up to this event is over.';
COMMENT ON COLUMN submit_window.part IS 'The part that takes new rows.';
COMMENT ON COLUMN submit_window.last_in_part IS 'The highest number in that part.';
COMMENT ON COLUMN submit_window.last_in_other IS 'The highest number in the other part.';

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
