-- Tables of tasks, partitioned by user: what waits, and what was taken. Each user has tables and functions of its own, so
-- that every statement is planned once per connection.
CREATE SCHEMA tasks;

CREATE FUNCTION tasks.create_user(user_no integer) RETURNS void LANGUAGE plpgsql AS $create$
BEGIN
    EXECUTE format($tables$
        -- No index: the consumer takes whatever comes first.
        CREATE TABLE tasks.queue_%1$s (
            task_id      bigint      GENERATED ALWAYS AS IDENTITY,
            created_at   timestamptz NOT NULL DEFAULT now(),
            job_set      text        NOT NULL,
            name         text        NOT NULL,
            cpu_milli    bigint      NOT NULL,
            memory_bytes bigint      NOT NULL
        );
        CREATE TABLE tasks.history_%1$s (
            task_id      bigint      NOT NULL,
            created_at   timestamptz NOT NULL,
            job_set      text        NOT NULL,
            name         text        NOT NULL,
            cpu_milli    bigint      NOT NULL,
            memory_bytes bigint      NOT NULL,
            taken_at     timestamptz NOT NULL
        );
        -- Rows come nearly in this order, so the smallest of all indexes will do.
        CREATE INDEX ON tasks.history_%1$s USING brin (task_id);
    $tables$, user_no);
    EXECUTE format($functions$
        CREATE FUNCTION tasks.add_%1$s(job_set text, name text, cpu_milli bigint, memory_bytes bigint) RETURNS bigint
        LANGUAGE plpgsql AS $body$
        DECLARE
            id bigint;
        BEGIN
            INSERT INTO tasks.queue_%1$s (job_set, name, cpu_milli, memory_bytes) VALUES ($1, $2, $3, $4)
                RETURNING task_id INTO id;
            RETURN id;
        END $body$;

        CREATE FUNCTION tasks.add_many_%1$s(job_set text, names text[], cpu_milli bigint, memory_bytes bigint)
        RETURNS bigint LANGUAGE plpgsql AS $body$
        DECLARE
            added bigint;
        BEGIN
            INSERT INTO tasks.queue_%1$s (job_set, name, cpu_milli, memory_bytes)
                SELECT $1, one, $3, $4 FROM unnest($2) AS one;
            GET DIAGNOSTICS added = ROW_COUNT;
            RETURN added;
        END $body$;

        -- Moves the first of them to history; one consumer of a user at a time.
        CREATE FUNCTION tasks.take_%1$s(most bigint) RETURNS bigint LANGUAGE plpgsql AS $body$
        DECLARE
            moved bigint;
        BEGIN
            IF NOT pg_try_advisory_xact_lock(%1$s) THEN
                RETURN 0;
            END IF;
            WITH taken AS (
                DELETE FROM tasks.queue_%1$s
                WHERE ctid = ANY (ARRAY(SELECT ctid FROM tasks.queue_%1$s LIMIT $1 FOR UPDATE SKIP LOCKED))
                RETURNING task_id, created_at, job_set, name, cpu_milli, memory_bytes
            )
            INSERT INTO tasks.history_%1$s
                SELECT task_id, created_at, job_set, name, cpu_milli, memory_bytes, now() FROM taken;
            GET DIAGNOSTICS moved = ROW_COUNT;
            RETURN moved;
        END $body$;
    $functions$, user_no);
END $create$;
