"""Postgres: a fresh cluster, a role and a schema per service, and a reader of all of them."""

import os
import signal
import subprocess

from . import users, wheels
from .net import LOOPBACK, port_open, wait_until
from .paths import StackError, make_dir, names, remove
from .supervisor import Spec
from .users import drop_to, reachable

DATABASE = "apportion"
SUPERUSER = "postgres"
# Services with warm state, by the name of their schema and role.
SCHEMAS = ("admission", "quota", "scheduler", "node_heartbeat", "analytics")
READER = "reader"
TEST_ROLE = "apportion_test"
# A service's pool has four: room for one that leads, one that stands by, and one that is being replaced.
CONNECTIONS_PER_SERVICE = 12
CONNECTIONS_OF_READERS = 20
# Postgres' default; each connection adds as many to the table of locks.
LOCKS_PER_TRANSACTION = 64
# How long the sessions of a server that was killed may take to end.
SESSIONS_END_S = 10.0
SEGMENTS = "/proc/sysvipc/shm"
# Postgres refuses to run as root.
UNPRIVILEGED = "nobody"


class Postgres:
    def __init__(self, state, port, passwords, sizes, test_role=False, tls_only=False):
        """
        `passwords`: role → password, for the superuser, each schema, the reader and the test role. `tls_only`: it listens
        on its Unix socket alone, and somebody else on the port (see tls_door.py).
        """
        self.durable = state.lasting
        self.port = port
        self.passwords = passwords
        self.sizes = sizes
        self.test_role = test_role
        self.tls_only = tls_only
        self.user = users.named(UNPRIVILEGED)
        self.install = wheels.postgres_install()
        self.home, self.socket_dir = self._directories(state)
        self.data = self.home / "data"

    def _directories(self, state):
        """
        Directories for data and for sockets that the server's user reaches. Under root that user may be shut out of
        the checkout: then they and a copy of the binaries go to a directory elsewhere.
        """
        home, socket_dir = make_dir(state.path / "postgres"), state.socket_dir("postgres-socket")
        if self.user is None:
            return home, socket_dir
        os.chown(home, *self.user)
        os.chown(socket_dir, *self.user)
        if reachable(self.user, home) and reachable(self.user, self.install / "bin" / "postgres"):
            return home, socket_dir
        outer = state.dir_elsewhere("postgres", programs=True)
        outer.chmod(0o711)
        self.install = wheels.copy_postgres(self.install, outer)
        remove(outer / "socket")
        home, socket_dir = make_dir(outer / "postgres"), make_dir(outer / "socket")
        os.chown(home, *self.user)
        os.chown(socket_dir, *self.user)
        return home, socket_dir

    def create(self):
        """initdb, with a password for the superuser and none trusted. What an interrupted one left is thrown away."""
        remove(self.data)
        password_file = self.home / "password"
        fd = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(self.passwords[SUPERUSER] + "\n")
        if self.user is not None:
            os.chown(password_file, *self.user)
        done = subprocess.run(
            [self._bin("initdb"), "-D", str(self.data), "-U", SUPERUSER, "--auth=scram-sha-256",
             "--pwfile", str(password_file), "--encoding=UTF8", "--no-locale", *([] if self.durable else ["--no-sync"])],
            cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=drop_to(self.user))
        password_file.unlink()
        if done.returncode != 0:
            raise StackError("initdb failed:\n" + (done.stderr or done.stdout).strip()
                             + f"\nIs the disk full, or {self.home} not writable?")

    def forget_killed(self):
        """
        Removes the pid file of a server that was killed. Its number may be another process' by now, and then Postgres
        believes that one to be a server on this data. Not while anybody still has the memory of the killed one: a
        session that has not noticed yet may write. The state's lock says that there is no other launcher.
        """
        file = self.data / "postmaster.pid"
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            pid, segment = int(lines[0]), int(lines[6].split()[1])
        except (OSError, ValueError, IndexError):
            return
        if not names(pid, self.home) and wait_until(lambda: attached(segment) == 0, SESSIONS_END_S):
            file.unlink()

    def spec(self):
        settings = {
            "listen_addresses": "" if self.tls_only else LOOPBACK,
            "port": self.port,
            "unix_socket_directories": self.socket_dir,
            "unix_socket_permissions": "0777",
            "max_connections": self.sizes.connections,
            "max_locks_per_transaction": LOCKS_PER_TRANSACTION,
            "shared_buffers": megabytes(self.sizes.shared_buffers_bytes),
            "work_mem": megabytes(self.sizes.work_mem_bytes),
            "effective_cache_size": megabytes(self.sizes.effective_cache_bytes),
            "max_wal_size": megabytes(self.sizes.wal_bytes),
            "wal_level": "minimal",
            "max_wal_senders": 0,
            # Rows are read one by one. Workers would need shared memory of the system, which containers have little of.
            "max_parallel_workers_per_gather": 0,
            "max_parallel_maintenance_workers": 0,
            "log_line_prefix": "%m [%p] %q%u@%d ",
        }
        arguments = [piece for name, value in settings.items() for piece in ("-c", f"{name}={value}")]
        return Spec(
            name="postgres",
            argv=[self._bin("postgres"), "-D", str(self.data)] + arguments,
            ready=self.ready,
            user=self.user,
            # SIGINT is the fast shutdown: sessions end, data is flushed. SIGQUIT leaves recovery to the next start.
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGQUIT,
            advice="If the log shows nothing, look for another Postgres on this port or a full disk.",
        )

    def ready(self):
        if not self.tls_only and not port_open(self.port):
            return False
        done = subprocess.run([self._bin("pg_isready"), "-q", "-h", self.host(), "-p", str(self.port)],
                              stdin=subprocess.DEVNULL)
        return done.returncode == 0

    def host(self):
        """As its own tools have it."""
        return str(self.socket_dir) if self.tls_only else LOOPBACK

    def socket(self):
        return self.socket_dir / f".s.PGSQL.{self.port}"

    def _bin(self, name):
        return str(self.install / "bin" / name)

    def psql(self, sql, database=DATABASE):
        """Runs SQL as the superuser; the text goes through standard input, so passwords are in no argument list."""
        done = subprocess.run(
            [self._bin("psql"), "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-h", self.host(),
             "-p", str(self.port), "-U", SUPERUSER, "-d", database],
            input=sql, capture_output=True, text=True, env={**os.environ, "PGPASSWORD": self.passwords[SUPERUSER]})
        if done.returncode != 0:
            raise StackError("Postgres refused the set-up:\n" + done.stderr.strip())
        return done.stdout

    def create_roles(self):
        self.psql(f"CREATE DATABASE {DATABASE};", database="postgres")
        self.psql(roles_sql(self.passwords, self.test_role))

    def url(self, role):
        return f"postgres://{role}:{self.passwords[role]}@{LOOPBACK}:{self.port}/{DATABASE}"


def megabytes(count):
    """As Postgres has it: its MB is a MiB."""
    return f"{count >> 20}MB"


def attached(segment):
    """How many processes have a segment of shared memory; None if the kernel does not say."""
    try:
        with open(SEGMENTS, encoding="ascii") as file:
            rows = [row.split() for row in file][1:]
    except OSError:
        return None
    return next((int(row[6]) for row in rows if int(row[1]) == segment), 0)


# A reader may raise all but the last of them for itself.
READER_LIMITS = {"statement_timeout": "60s", "idle_in_transaction_session_timeout": "60s", "lock_timeout": "10s",
                 "temp_file_limit": "1GB"}


def roles_sql(passwords, test_role):
    """Each service owns its schema and sees no other; the reader sees all and changes nothing."""
    lines = [
        f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC;",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC;",
        f"CREATE ROLE {READER} LOGIN CONNECTION LIMIT {CONNECTIONS_OF_READERS} PASSWORD '{passwords[READER]}';",
        f"ALTER ROLE {READER} SET default_transaction_read_only = on;",
        *(f"ALTER ROLE {READER} SET {name} = '{value}';" for name, value in READER_LIMITS.items()),
        f"GRANT CONNECT ON DATABASE {DATABASE} TO {READER};",
    ]
    for schema in SCHEMAS:
        lines += [
            f"CREATE ROLE {schema} LOGIN CONNECTION LIMIT {CONNECTIONS_PER_SERVICE} PASSWORD '{passwords[schema]}';",
            f"CREATE SCHEMA {schema} AUTHORIZATION {schema};",
            f"ALTER ROLE {schema} SET search_path = {schema};",
            # What its tables are to be, it makes as temporary tables, to compare.
            f"GRANT CONNECT, TEMPORARY ON DATABASE {DATABASE} TO {schema};",
            f"GRANT USAGE ON SCHEMA {schema} TO {READER};",
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {schema} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {READER};",
        ]
    lines.append(f"ALTER ROLE {READER} SET search_path = {', '.join(SCHEMAS)};")
    if test_role:
        # Tests create schemas, and databases for the check of the queries.
        lines += [
            f"CREATE ROLE {TEST_ROLE} LOGIN CREATEDB PASSWORD '{passwords[TEST_ROLE]}';",
            f"GRANT ALL ON DATABASE {DATABASE} TO {TEST_ROLE};",
        ]
    return "\n".join(lines) + "\n"
