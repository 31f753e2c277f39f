-- Verbs about named resources, job sets and priorities, and what their outcomes say.
ALTER TABLE operations
    -- Its retention window is counted in slots and not by the clock.
    ADD COLUMN by_slots       boolean     NOT NULL DEFAULT false,
    -- Of a granted reservation.
    ADD COLUMN reservation_id uuid,
    ADD COLUMN epoch          bigint      CHECK (epoch > 0),
    ADD COLUMN deadline_slot  numeric(20) CHECK (deadline_slot >= 0),
    -- How many a cancel of a job set, or a change of priority, was for.
    ADD COLUMN allocations    bigint      CHECK (allocations >= 0);

ALTER TABLE operations
    DROP CONSTRAINT operations_verb_check,
    DROP CONSTRAINT operations_state_check,
    DROP CONSTRAINT allocation_of_submit_or_cancel,
    DROP CONSTRAINT state_fits_verb,
    ADD CONSTRAINT operations_verb_check
        CHECK (verb IN ('submit', 'cancel', 'cancel_job_set', 'set_priority', 'create_resource', 'reserve', 'confirm',
                        'release', 'revoke', 'reclaim', 'set_tenant', 'set_quota', 'set_rate', 'set_queue',
                        'set_priority_class', 'set_scheduling', 'set_cordon', 'set_reservation', 'set_budget')),
    ADD CONSTRAINT operations_state_check
        CHECK (state IN ('pending', 'placed', 'waiting', 'ended', 'cancelled', 'applied', 'refused',
                         'job_set_cancelled', 'priority_set', 'created', 'reserved', 'confirmed', 'released', 'revoked',
                         'reclaimed')),
    ADD CONSTRAINT allocation_of_submit_or_cancel
        CHECK (verb IS NULL OR (verb IN ('submit', 'cancel')) = (allocation_id IS NOT NULL)),
    ADD CONSTRAINT state_fits_verb
        CHECK (CASE verb
                   WHEN 'submit' THEN state IN ('pending', 'placed', 'waiting', 'ended', 'refused')
                   WHEN 'cancel' THEN state IN ('pending', 'cancelled', 'refused')
                   WHEN 'cancel_job_set' THEN state IN ('pending', 'job_set_cancelled', 'refused')
                   WHEN 'set_priority' THEN state IN ('pending', 'priority_set', 'refused')
                   WHEN 'create_resource' THEN state IN ('pending', 'created', 'refused')
                   WHEN 'reserve' THEN state IN ('pending', 'reserved', 'refused')
                   WHEN 'confirm' THEN state IN ('pending', 'confirmed', 'refused')
                   WHEN 'release' THEN state IN ('pending', 'released', 'refused')
                   WHEN 'revoke' THEN state IN ('pending', 'revoked', 'refused')
                   WHEN 'reclaim' THEN state IN ('pending', 'reclaimed', 'refused')
                   ELSE state IN ('applied', 'refused') END),
    ADD CONSTRAINT reserved_until_a_slot
        CHECK ((state = 'reserved') = (reservation_id IS NOT NULL)
               AND (state = 'reserved') = (deadline_slot IS NOT NULL)),
    ADD CONSTRAINT epoch_of_a_reservation
        CHECK ((state IN ('reserved', 'released', 'revoked')) = (epoch IS NOT NULL)),
    ADD CONSTRAINT counted_allocations
        CHECK ((state IN ('job_set_cancelled', 'priority_set')) = (allocations IS NOT NULL)),
    ADD CONSTRAINT slots_of_resources
        CHECK (NOT by_slots OR verb IN ('create_resource', 'reserve', 'confirm', 'release', 'revoke', 'reclaim'));
