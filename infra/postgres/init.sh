#!/bin/sh
# Runs once, when the data volume is empty: a role and a schema per service, and a reader of all of them.
# The local stack does the same (infra/local/apportion_local/postgres.py); a test compares the two.
set -eu

owner() {
    # Passwords go through variables of psql, which quotes them.
    psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" \
        -v role="$1" -v password="$2" <<'SQL'
CREATE ROLE :"role" LOGIN CONNECTION LIMIT 12 PASSWORD :'password';
CREATE SCHEMA :"role" AUTHORIZATION :"role";
ALTER ROLE :"role" SET search_path = :"role";
GRANT CONNECT, TEMPORARY ON DATABASE apportion TO :"role";
GRANT USAGE ON SCHEMA :"role" TO reader;
ALTER DEFAULT PRIVILEGES FOR ROLE :"role" IN SCHEMA :"role" GRANT SELECT ON TABLES TO reader;
SQL
}

: "${POSTGRES_USER:=postgres}"
psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" \
    -v password="$POSTGRES_PASSWORD_READER" <<'SQL'
REVOKE ALL ON DATABASE apportion FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE ROLE reader LOGIN CONNECTION LIMIT 20 PASSWORD :'password';
ALTER ROLE reader SET default_transaction_read_only = on;
ALTER ROLE reader SET statement_timeout = '60s';
ALTER ROLE reader SET idle_in_transaction_session_timeout = '60s';
ALTER ROLE reader SET lock_timeout = '10s';
ALTER ROLE reader SET temp_file_limit = '1GB';
ALTER ROLE reader SET search_path = admission, quota, scheduler, node_heartbeat, analytics;
GRANT CONNECT ON DATABASE apportion TO reader;
SQL

owner admission "$POSTGRES_PASSWORD_ADMISSION"
owner quota "$POSTGRES_PASSWORD_QUOTA"
owner scheduler "$POSTGRES_PASSWORD_SCHEDULER"
owner node_heartbeat "$POSTGRES_PASSWORD_NODE_HEARTBEAT"
owner analytics "$POSTGRES_PASSWORD_ANALYTICS"
