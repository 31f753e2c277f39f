-- Who may ask.
CREATE TABLE tenants (
    tenant     text        PRIMARY KEY CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    version    bigint      NOT NULL CHECK (version > 0),
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL
);

-- What was asked, and what became of it. Rows leave when their retention window is over.
CREATE TABLE operations (
    -- Number of the event that recorded the operation.
    event_no      bigint      PRIMARY KEY CHECK (event_no > 0),
    tenant        text        NOT NULL,
    -- None when the message could not be read that far.
    operation_id  text,
    -- First 16 bytes of SHA-256 over the request's canonical content.
    digest        bytea       NOT NULL CHECK (octet_length(digest) = 16),
    -- Whether the operation id stands for this one: a repeat is answered with its outcome. Not when it was refused for a
    -- reason that says nothing of it, such as a conflict with the one that stands.
    stands        boolean     NOT NULL,
    -- None when refused at the inbox: it may have had none.
    verb          text        CHECK (verb IN ('submit', 'cancel', 'set_tenant', 'set_quota', 'set_rate')),
    state         text        NOT NULL
                              CHECK (state IN ('pending', 'placed', 'waiting', 'ended', 'cancelled', 'applied', 'refused')),
    -- The allocation that it made or that it is about.
    allocation_id uuid,
    -- Of an applied change.
    version       bigint      CHECK (version > 0),
    -- The broken rule and what it was about. A tenant may name any 64-bit number, so these are numeric.
    rule          text,
    subject       text,
    rule_limit    numeric(20) CHECK (rule_limit >= 0),
    rule_actual   numeric(20) CHECK (rule_actual >= 0),
    requested_at  timestamptz NOT NULL,
    decided_at    timestamptz,

    CONSTRAINT decided_when_not_pending
        CHECK ((state = 'pending') = (decided_at IS NULL)),
    CONSTRAINT refused_by_a_rule
        CHECK (CASE WHEN state = 'refused'
                    THEN num_nulls(rule, subject, rule_limit, rule_actual) = 0
                    ELSE num_nonnulls(rule, subject, rule_limit, rule_actual) = 0 END),
    CONSTRAINT verb_known_unless_refused
        CHECK (verb IS NOT NULL OR (state = 'refused' AND allocation_id IS NULL)),
    CONSTRAINT allocation_of_submit_or_cancel
        CHECK (verb IS NULL OR (verb IN ('submit', 'cancel')) = (allocation_id IS NOT NULL)),
    CONSTRAINT state_fits_verb
        CHECK (CASE verb
                   WHEN 'submit' THEN state IN ('pending', 'placed', 'waiting', 'ended', 'refused')
                   WHEN 'cancel' THEN state IN ('pending', 'cancelled', 'refused')
                   ELSE state IN ('applied', 'refused') END),
    CONSTRAINT version_when_applied
        CHECK ((state = 'applied') = (version IS NOT NULL))
);

-- One outcome for an operation id, within its retention window.
CREATE UNIQUE INDEX operations_one_stands ON operations (tenant, operation_id)
    WHERE stands AND operation_id IS NOT NULL;
CREATE INDEX operations_by_tenant ON operations (tenant, event_no DESC);
CREATE INDEX operations_by_allocation ON operations (allocation_id) WHERE allocation_id IS NOT NULL;
CREATE INDEX operations_pending ON operations (event_no) WHERE state = 'pending';
