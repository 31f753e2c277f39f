-- What stood on the ledger at the position that was applied, SHA-256: a ledger that lost its end and grew again is told from
-- the one that was read by it. Unknown until the next batch.
ALTER TABLE projection_position ADD COLUMN digest bytea CHECK (octet_length(digest) = 32);
