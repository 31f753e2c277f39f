-- A row of an operation is written for every request there ever was. An allocation's number is the number of the event
-- that asked for it, so the primary key finds its operation; nothing looks for what is pending.
DROP INDEX operations_by_allocation;
DROP INDEX operations_pending;
