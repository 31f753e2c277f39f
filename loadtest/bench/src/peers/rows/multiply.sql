-- The samples again and again, each time under another id, whatever other columns there are.
INSERT INTO many
SELECT made.*
FROM (SELECT row_no, gen_random_uuid() AS id FROM generate_series(1, $1) AS row_no) AS wanted
JOIN (SELECT row_number() OVER () - 1 AS sample_no, s AS sample FROM samples AS s) AS numbered
    ON sample_no = row_no % (SELECT count(*) FROM samples)
CROSS JOIN LATERAL jsonb_populate_record(sample, jsonb_build_object('allocation_id', id)) AS made
