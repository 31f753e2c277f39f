WITH relation AS (
    SELECT oid, relname::text AS name, relkind, reloptions
    FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE $SCHEMA::text IN (nspname, oid::text))
          AND relkind IN ('r', 'p', 'v', 'm')
)
SELECT name,
       CASE WHEN relkind IN ('v', 'm') THEN 'view' ELSE 'table' END,
       '',
       CASE WHEN relkind IN ('v', 'm') THEN rtrim(pg_get_viewdef(oid), ';') ELSE '' END
FROM relation
UNION ALL
SELECT name, 'storage', '', array_to_string(reloptions, ', ') FROM relation WHERE reloptions IS NOT NULL
UNION ALL
SELECT name, 'comment', '', obj_description(oid, 'pg_class')
FROM relation WHERE obj_description(oid, 'pg_class') IS NOT NULL
UNION ALL
SELECT relation.name, fact.what, attname::text, fact.said
FROM relation
JOIN pg_attribute ON attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = relation.oid AND adnum = attnum
CROSS JOIN LATERAL (VALUES
    ('column', ''),
    ('type', format_type(atttypid, atttypmod)),
    ('nullability', CASE WHEN attnotnull THEN 'NOT NULL' ELSE 'NULL' END),
    ('default', pg_get_expr(adbin, adrelid)),
    ('comment', col_description(relation.oid, attnum))
) AS fact (what, said)
-- A view's columns are what its definition says; only what is said of them is not.
WHERE (relkind IN ('r', 'p') OR fact.what = 'comment') AND fact.said IS NOT NULL
UNION ALL
SELECT relation.name,
       CASE contype WHEN 'p' THEN 'primary_key' WHEN 'c' THEN 'check' WHEN 'u' THEN 'unique' ELSE 'foreign_key' END,
       conname::text,
       pg_get_constraintdef(pg_constraint.oid)
FROM relation JOIN pg_constraint ON conrelid = relation.oid
WHERE contype IN ('p', 'c', 'u', 'f')
UNION ALL
-- Without the schema, which is another where the expected ones are.
SELECT relation.name,
       'index',
       relname::text,
       regexp_replace(pg_get_indexdef(indexrelid), ' ON (ONLY )?[^ ]+ USING ', ' ON ' || relation.name || ' USING ')
FROM relation
JOIN pg_index ON indrelid = relation.oid
JOIN pg_class ON pg_class.oid = indexrelid
WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
