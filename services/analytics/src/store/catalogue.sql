-- Everything that the tables and views of a database are, one fact a row.
SELECT relation, fact.1 AS what, '' AS part, fact.2 AS said
FROM (
    SELECT
        name AS relation,
        splitByString(' SETTINGS ', engine_full)[1] AS before_settings,
        splitByString(' SETTINGS ', engine_full)[2] AS settings,
        splitByString(' TTL ', before_settings)[2] AS ttl,
        arrayJoin(if(
            endsWith(engine, 'View'),
            [('view', as_select), ('comment', comment)],
            [
                ('table', ''),
                ('engine', concat(splitByRegexp(' (PARTITION BY|PRIMARY KEY|ORDER BY) ', before_settings)[1],
                                  if(ttl = '', '', concat(' TTL ', ttl)))),
                ('order_by', sorting_key),
                ('partition_by', partition_key),
                ('primary_key', if(primary_key = sorting_key, '', primary_key)),
                -- The server adds what it would take anyway.
                ('storage', replaceRegexpOne(settings, '(, )*index_granularity = 8192$', '')),
                ('comment', comment)
            ]
        )) AS fact
    FROM system.tables
    WHERE database = $DATABASE
)
WHERE said != '' OR what NOT IN ('partition_by', 'primary_key', 'comment')
UNION ALL
SELECT relation, fact.1 AS what, part, fact.2 AS said
FROM (
    SELECT
        table AS relation,
        name AS part,
        -- What else is to be said of a view's column follows from the view.
        arrayJoin(if(
            table IN (SELECT name FROM system.tables WHERE database = $DATABASE AND endsWith(engine, 'View')),
            [('column', ''), ('comment', comment)],
            [
                ('column', ''),
                ('type', trim(concat(type, ' ', compression_codec))),
                ('default', if(default_kind IN ('', 'DEFAULT'), default_expression, concat(default_kind, ' ', default_expression))),
                ('comment', comment)
            ]
        )) AS fact
    FROM system.columns
    WHERE database = $DATABASE
)
WHERE said != '' OR what = 'column'
