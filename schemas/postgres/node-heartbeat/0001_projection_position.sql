-- How far the read model has applied the ledger. The same shape in every service; it moves in the transaction that
-- writes the rows, so the two can never disagree.
CREATE TABLE projection_position (
    name           text   PRIMARY KEY,
    -- Tells this ledger from one that was made anew under the same name: its creation, Unix nanoseconds.
    ledger_created bigint NOT NULL,
    lsn            bigint NOT NULL CHECK (lsn >= 0)
);
