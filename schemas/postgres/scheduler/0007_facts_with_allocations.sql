-- What is said of every allocation, once, stands in its own row: its first placement, its end or its denial. A row of
-- `explanations` for each of them cost more than the allocation's own. An element has the place on the ledger, the
-- moment, the reason and the detail, as a row of `explanations` does. What stood there before stays there.
ALTER TABLE allocations
    ADD COLUMN facts jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(facts) = 'array');
