
-- What the tenants of a cohort have together.
CREATE VIEW quota_cohort AS
SELECT t.cohort,
       q.resource,
       count(*)                             AS tenants,
       coalesce(sum(q.hard), 0)             AS hard,
       coalesce(sum(least(q.lend, q.hard)), 0) AS lendable,
       sum(q.reserved)                      AS reserved,
       sum(q.used)                          AS used,
       sum(q.borrowed)                      AS borrowed
FROM quota_tenants AS t
JOIN resource_quotas AS q ON q.tenant = t.tenant AND q.team = ''
WHERE t.cohort IS NOT NULL
GROUP BY t.cohort, q.resource;
COMMENT ON VIEW quota_cohort IS 'What the tenants of a cohort have together.';
