-- A row of an allocation is written for every request there ever was, so what it costs counts. Names are checked where
-- they are read; here by their length alone, which a regular expression took many times as long for. Of the indexes
-- those stay that a query of the suite needs; the others made every change of a row write the whole row anew.
ALTER TABLE allocations
    DROP CONSTRAINT allocations_tenant_check,
    DROP CONSTRAINT allocations_job_set_check,
    ADD CONSTRAINT allocations_tenant_check CHECK (length(tenant) BETWEEN 1 AND 64),
    ADD CONSTRAINT allocations_job_set_check CHECK (length(job_set) BETWEEN 1 AND 64);

DROP INDEX allocations_live;
DROP INDEX allocations_on_node;
