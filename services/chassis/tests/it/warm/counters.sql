CREATE TABLE projection_position (
    name           text   PRIMARY KEY,
    ledger_created bigint NOT NULL,
    lsn            bigint NOT NULL CHECK (lsn >= 0),
    digest         bytea
);

-- Adds up, so that a batch applied twice would show.
CREATE TABLE counters (
    name  text        PRIMARY KEY,
    value bigint      NOT NULL CHECK (value >= 0),
    at    timestamptz NOT NULL
);
