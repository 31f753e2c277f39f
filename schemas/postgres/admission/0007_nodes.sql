-- The verb by which operators approve and forget nodes.
ALTER TABLE operations
    DROP CONSTRAINT operations_verb_check,
    ADD CONSTRAINT operations_verb_check
        CHECK (verb IN ('submit', 'cancel', 'cancel_job_set', 'set_priority', 'create_resource', 'reserve', 'confirm',
                        'release', 'revoke', 'reclaim', 'set_tenant', 'set_quota', 'set_rate', 'set_queue',
                        'set_priority_class', 'set_scheduling', 'set_cordon', 'set_reservation', 'set_budget',
                        'set_node'));
