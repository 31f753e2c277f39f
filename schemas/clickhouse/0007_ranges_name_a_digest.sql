-- What stood on the ledger at to_lsn, SHA-256 as hexadecimal digits; empty in rows of an earlier version.
ALTER TABLE ledger_ranges ADD COLUMN IF NOT EXISTS digest String DEFAULT '';
