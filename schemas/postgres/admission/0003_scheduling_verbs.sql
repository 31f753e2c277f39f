-- What operators set for the scheduler.
ALTER TABLE operations DROP CONSTRAINT operations_verb_check;
ALTER TABLE operations ADD CONSTRAINT operations_verb_check
    CHECK (verb IN ('submit', 'cancel', 'set_tenant', 'set_quota', 'set_rate', 'set_queue', 'set_priority_class',
                    'set_scheduling', 'set_cordon', 'set_reservation'));
