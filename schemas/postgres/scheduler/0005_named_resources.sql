-- Named resources of tenants, and who holds them. Slots go up to 2^64 - 1, which no integer type has.

-- Where one stands follows from the reservation that holds it.
CREATE TABLE named_resources (
    tenant      text   NOT NULL,
    resource    text   NOT NULL,
    -- Counts the changes of its state.
    version     bigint NOT NULL CHECK (version >= 0),
    -- Number of the reservation that holds it; none: it is available.
    reservation bigint CHECK (reservation > 0),

    PRIMARY KEY (tenant, resource)
) WITH (fillfactor = 80);

-- Live ones, and ended ones as long as they are remembered.
CREATE TABLE named_reservations (
    tenant       text        NOT NULL,
    -- Of the event that granted it.
    number       bigint      NOT NULL CHECK (number > 0),
    holder       text        NOT NULL,
    epoch        bigint      NOT NULL CHECK (epoch > 0),
    state        text        NOT NULL CHECK (state IN
                                 ('reserved', 'confirmed', 'revoking', 'released', 'expired', 'revoked')),
    -- Slots.
    deadline     numeric(20) NOT NULL CHECK (deadline >= 0),
    -- The last slot at which an ended one is remembered.
    retire_after numeric(20) CHECK (retire_after >= 0),
    -- As they were asked for.
    resources    text[]      NOT NULL CHECK (cardinality(resources) > 0),

    PRIMARY KEY (tenant, number),
    CONSTRAINT remembered_once_ended
        CHECK ((state IN ('released', 'expired', 'revoked')) = (retire_after IS NOT NULL))
) WITH (fillfactor = 80);

CREATE INDEX named_reservations_ended ON named_reservations (tenant, retire_after) WHERE retire_after IS NOT NULL;

-- Each tenant's time, and how far its reservations are forgotten.
CREATE TABLE reservation_spaces (
    tenant  text        PRIMARY KEY,
    -- The latest that was seen.
    slot    numeric(20) NOT NULL CHECK (slot >= 0),
    -- The highest number that was forgotten; 0: none.
    retired bigint      NOT NULL CHECK (retired >= 0)
) WITH (fillfactor = 50);
