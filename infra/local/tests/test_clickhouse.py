"""The local ClickHouse: the rights and limits of its users, tried out."""

import base64
import contextlib
import http.client
import os
import re
import secrets
import unittest
import urllib.parse
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from apportion_local import clickhouse, confine, paths, postgres, users
from apportion_local.clickhouse import ClickHouse
from apportion_local.net import LOOPBACK, free_port
from apportion_local.supervisor import Supervisor

from .support import PATIENCE_S, Home, wait

pytestmark = [pytest.mark.system, pytest.mark.together]

# Table functions that make their rows from their arguments alone.
PURE = {"SQLStandardValues", "fuzzJSON", "fuzzQuery", "generateRandom", "generateSeries", "generate_series", "null",
        "numbers", "numbers_mt", "primes", "values", "view"}
# Further ones, of a user that may make tables.
PURE_OF_OWNERS = {"format", "viewExplain", "zeros", "zeros_mt"}
# Arguments that each kind of table function takes. The others get all of OTHERS, one after the other.
ARGUMENTS = {
    "SQLStandardValues": ["1"],
    "cluster": ["'default', system.users"],
    "clusterAllReplicas": ["'default', system.users"],
    "executable": ["'/bin/cat', 'LineAsString', 'a String'", "'cat', 'LineAsString', 'a String'"],
    "file": ["'{secret}', 'LineAsString', 'a String'", "'{secret}', 'LineAsString'", "'{secret}'"],
    "filesystem": ["'{directory}'", "''"],
    "format": ["'JSONEachRow', '{{\"a\":1}}'"],
    "fuzzQuery": ["'SELECT 1'"],
    "generateRandom": ["'a UInt8'"],
    "generateSeries": ["1, 3"],
    "generate_series": ["1, 3"],
    "input": ["'a String'"],
    "loop": ["system.users"],
    "merge": ["'system', 'users'", "'system', '.*'", "'', '.*'"],
    "mongodb": ["'{address}', 'd', 't', 'u', 'p', 'a String'"],
    "mysql": ["'{address}', 'd', 't', 'u', 'p'"],
    "null": ["'a String'"],
    "postgresql": ["'{address}', 'd', 't', 'u', 'p'"],
    "python": ["'x'", "x", "'os'", "os"],
    "redis": ["'{address}', 'k', 'k String, v String'"],
    "remote": ["'{address}', system.one", "'127.0.0.1', system.users"],
    "sqlite": ["'{secret}', 't'"],
    "values": ["'a String', 'x'"],
    "view": ["SELECT 1"],
    "viewExplain": ["'EXPLAIN', '', (SELECT 1)"],
}
OTHERS = ["", "1", "3", "'x'", "'{secret}'", "'SELECT 1'", "'{secret}', 'LineAsString', 'a String'",
          "'http://{address}/bucket/x', 'CSV', 'a String'", "'http://{address}/bucket/x'",
          "'default', 'http://{address}/bucket/x', 'CSV', 'a String'", "'x', 'y', 'z'", "'x', 'y', 'z', 'a String'",
          "system, users", "system.users"]
SECRET_TABLES = ("users", "grants", "role_grants", "settings_profiles", "settings_profile_elements", "quotas_usage",
                 "processes", "query_log", "query_cache", "session_log", "text_log", "server_settings", "named_collections",
                 "user_directories", "disks", "merges", "parts", "mutations", "errors", "replicas")
# As services/analytics/src/store.rs has them.
SENT = {"async_insert": 0, "wait_end_of_query": 1, "insert_deduplicate": 1, "max_insert_threads": 1}

# More than the buffers between the server and its client hold, and within the reader's limits.
UNREAD = "SELECT repeat('x', 200) FROM numbers(1000000)"
REFUSED = "Refused: "
# The part of an answer that a failed test shows.
ANSWER_CHARS = 20_000


class Server:
    """A ClickHouse with the users of `up` and the one of the tests."""

    def __init__(self, passable):
        # Under root the engine's user has to pass here, or its files lie elsewhere.
        self.home = Home(0o711 if passable else 0o700)
        os.environ["APPORTION_TEST_MARK"] = "of-the-launcher"
        self.state = paths.StateDir(self.home.path / "s", traversable=True)
        self.home.on_close.callback(self.state.close, "everything")
        # All users may read it, so that it is not the mode alone that keeps the engine out.
        self.secret = self.home.path / "secret.txt"
        self.secret.write_text("hush-hush\n", encoding="utf-8")
        self.secret.chmod(0o644)
        self.server = ClickHouse(self.state, free_port(),
                                 {name: secrets.token_hex(16) for name in ("analytics", "reader", "test")})
        self.server.configure()
        self.supervisor = Supervisor(self.state)
        self.home.on_close.callback(self.supervisor.close)
        self.home.on_close.callback(lambda: self.supervisor.stop_all([list(self.supervisor.children)]))
        try:
            self.supervisor.start(self.server.spec())
        except BaseException:
            self.close()
            raise

    def close(self):
        self.home.close()

    def pid(self):
        return self.supervisor.pids()["clickhouse"]

    def ask(self, sql, user="reader", **settings):
        """The answer, or REFUSED and the reason."""
        try:
            return self.server.query(sql, user, **settings)[:ANSWER_CHARS]
        except urllib.error.HTTPError as error:
            return REFUSED + error.read().decode(errors="replace")


@pytest.fixture(scope="module")
def server():
    """The server of most tests."""
    server = Server(passable=True)
    yield server
    server.close()


class ClickHouseTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def use_server(self, server):
        self.server = server

    def refused(self, sql, why, user="reader", **settings):
        answer = self.server.ask(sql, user, **settings)
        self.assertRegex(answer, rf"^{REFUSED}(?s:.*)({why})", sql)

    def allowed(self, sql, user="reader", **settings):
        answer = self.server.ask(sql, user, **settings)
        self.assertNotRegex(answer, REFUSED, sql)
        return answer


class Sources(ClickHouseTest):
    def test_only_pure_table_functions_answer_and_the_engine_survives_all(self):
        self.survives_all("reader", PURE)

    def test_the_owner_of_the_tables_has_no_others(self):
        self.survives_all("analytics", PURE | PURE_OF_OWNERS)

    def survives_all(self, user, pure):
        place = {"secret": self.server.secret, "directory": self.server.secret.parent, "address": f"{LOOPBACK}:1"}
        names = self.server.ask("SELECT name FROM system.table_functions", "test").split()
        self.assertGreater(len(names), 80)
        pid, answered = self.server.pid(), set()
        for name in names:
            for arguments in ARGUMENTS.get(name, OTHERS):
                answer = self.server.ask(f"SELECT * FROM {name}({arguments.format(**place)}) LIMIT 1", user)
                self.assertNotIn("hush", answer, name)
                if not answer.startswith(REFUSED):
                    answered.add(name)
        self.assertLessEqual(answered, pure)
        self.assertTrue(self.server.server.ready())
        self.assertEqual(self.server.pid(), pid)

    @unittest.skipUnless(confine.version() >= 2, "this kernel has no Landlock, or an early one")
    def test_the_function_that_reads_files_reaches_none_of_the_launchers(self):
        state = self.server.state.path
        paths.write_private(state / "stack.json", '"hush-hush"')
        for user in ("reader", "analytics", "test"):
            for path in (self.server.secret, state / "stack.json", state / "log" / "clickhouse.log", "/etc/passwd",
                         "/etc/hostname", Path.home() / ".bashrc", Path(__file__)):
                with self.subTest(user=user, path=path):
                    self.refused(f"SELECT file('{path}')", "(Permission denied|Cannot open file)", user)

    def test_what_the_process_says_of_itself_is_not_the_launchers(self):
        for path in ("environ", "cmdline"):
            answer = self.server.ask(f"SELECT file('/proc/self/{path}')", "reader")
            self.assertNotIn("of-the-launcher", answer)
        answer = self.server.ask(f"SELECT file('/proc/{os.getpid()}/environ')", "reader")
        self.assertRegex(answer, REFUSED)

    def test_no_table_with_an_engine_that_reaches_out(self):
        for engine in ("File(CSV)", "URL('http://127.0.0.1:1/', CSV)", "Python('x')", "Executable('cat', 'CSV')",
                       "MySQL('127.0.0.1:1', 'd', 't', 'u', 'p')", "SQLite('x', 't')"):
            for user in ("analytics", "test"):
                with self.subTest(engine=engine, user=user):
                    self.refused(f"CREATE TABLE apportion.out (a String) ENGINE = {engine}", "TABLE ENGINE|READ", user)

    def test_the_engine_is_not_root_and_gains_nothing(self):
        status = Path(f"/proc/{self.server.pid()}/status").read_text(encoding="utf-8")
        (uids,) = re.findall(r"^Uid:\t(.*)$", status, re.MULTILINE)
        self.assertNotIn("0", uids.split())
        if os.geteuid() == 0:
            # It is not Postgres' user either, because it could read that one's files.
            self.assertNotIn(str(users.named(postgres.UNPRIVILEGED)[0]), uids.split())
        if confine.version() >= 2:
            self.assertIn("NoNewPrivs:\t1", status)


class Limits(ClickHouseTest):
    def test_no_reader_raises_a_limit(self):
        for name, value in {**clickhouse.READER_LIMITS, **clickhouse.LIBRARY_LIMITS}.items():
            other = value + 1 if value != 1 else 0
            with self.subTest(name):
                self.refused(f"SELECT 1 SETTINGS {name} = {other}", "READONLY|QUERY_IS_PROHIBITED")
                self.refused("SELECT 1", "READONLY|QUERY_IS_PROHIBITED", **{name: other})
                self.refused(f"SET {name} = {other}", "READONLY|QUERY_IS_PROHIBITED")

    def test_no_owner_raises_a_limit(self):
        for name, value in {**clickhouse.OWNER_LIMITS, **clickhouse.LIBRARY_LIMITS}.items():
            with self.subTest(name):
                self.refused("SELECT 1", "SETTING_CONSTRAINT|QUERY_IS_PROHIBITED", "analytics", **{name: value + 1})

    def test_a_reader_chooses_no_file_for_a_format(self):
        self.refused("SELECT 1 FORMAT Template SETTINGS format_template_row = '/etc/passwd'", "READONLY")
        self.refused("SELECT 1 FORMAT Protobuf SETTINGS format_schema = '/etc/passwd:x'", "READONLY")

    def test_what_is_too_much_is_refused(self):
        self.refused("SELECT number FROM numbers(2000000)", "TOO_MANY_ROWS_OR_BYTES", wait_end_of_query=1)
        self.refused("SELECT repeat('x', 1000 + number % 2) FROM numbers(600000)", "TOO_MANY_ROWS_OR_BYTES", wait_end_of_query=1)
        self.refused("SELECT length(groupArray(number)) FROM numbers(1000000000)", "MEMORY_LIMIT_EXCEEDED")
        self.refused("INSERT INTO apportion.x VALUES (1)", "READONLY|ACCESS_DENIED|UNKNOWN_TABLE")

    def test_one_reader_does_not_take_every_connection(self):
        allowed = clickhouse.READER_LIMITS["max_concurrent_queries_for_user"]
        with contextlib.ExitStack() as running:
            for _ in range(allowed):
                running.enter_context(self.endless_query())
            self.refused("SELECT 1", "TOO_MANY_SIMULTANEOUS_QUERIES")
            self.allowed("SELECT 1", "analytics")
        wait(lambda: self.server.ask("SELECT 1") == "1\n", "the reader's queries have ended")

    @contextlib.contextmanager
    def endless_query(self):
        """A query of the reader that runs, because its rows are not read."""
        address = urllib.parse.urlsplit(self.server.server.url())
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("POST", "/", body=UNREAD, headers={
                "X-ClickHouse-User": "reader", "X-ClickHouse-Key": self.server.server.passwords["reader"]})
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            yield


class Rights(ClickHouseTest):
    def test_tables_of_the_server_are_not_for_readers(self):
        for user in ("reader", "analytics"):
            for table in SECRET_TABLES:
                with self.subTest(user=user, table=table):
                    self.refused(f"SELECT * FROM system.{table}", "ACCESS_DENIED|UNKNOWN_TABLE", user)
            self.refused("SHOW CREATE USER reader", "ACCESS_DENIED", user)
            self.refused("SHOW PROCESSLIST", "ACCESS_DENIED", user)

    def test_analytics_makes_its_tables_and_the_reader_reads_what_comes_of_it(self):
        self.make_tables()
        for statement in ("TRUNCATE TABLE usage_hourly", "DROP VIEW unrated_usage", "DROP TABLE rates SYNC",
                          "ALTER TABLE ledger_ranges MODIFY COLUMN recorded_at DEFAULT now64(3)",
                          "ALTER TABLE ledger_ranges COMMENT COLUMN digest ''",
                          "ALTER TABLE ledger_ranges MODIFY COMMENT ''",
                          "ALTER TABLE waits MODIFY COMMENT 'x', COMMENT COLUMN tenant 'y'"):
            self.allowed(statement, "analytics", database="apportion", **SENT)
        self.make_tables()
        catalogue = paths.CHECKOUT / "services" / "analytics" / "src" / "store" / "catalogue.sql"
        facts = catalogue.read_text(encoding="utf-8").replace("$DATABASE", "'apportion'")
        found = self.allowed(f"SELECT * FROM ({facts}) WHERE relation = 'rates'", "analytics")
        self.assertIn("rates\tcomment\t\tPrices.\n", found)
        tables = self.allowed("SELECT name FROM system.tables WHERE database = 'apportion'").split()
        self.assertIn("conservation", tables)
        # Views with parameters.
        asked = {"usage_levels": "tenant = 't', from = '2026-11-01 00:00:00', until = '2026-11-02 00:00:00'",
                 "cost_shares": "month = '2026-11-01', method = 'equal', cost_centre = '', credited = ''"}
        for table in tables:
            source = f"{table}({asked[table]})" if table in asked else table
            self.allowed(f"SELECT * FROM {source}", database="apportion", **SENT)
        self.refused("TRUNCATE TABLE usage_hourly", "READONLY|ACCESS_DENIED", database="apportion")

    def make_tables(self):
        for path in sorted((paths.CHECKOUT / "schemas" / "clickhouse").glob("*.sql")):
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("--")]
            for statement in "\n".join(lines).split(";\n"):
                if statement.strip(" \n;"):
                    self.allowed(statement.rstrip("; \n"), "analytics", database="apportion", **SENT)

    def test_passwords_are_asked_for_and_nowhere_in_the_configuration(self):
        for name, password in self.server.server.passwords.items():
            self.assertEqual(self.basic(f"{name}:{password}"), 200)
            self.assertIn(self.basic(f"{name}:wrong"), (401, 403))
            for file in ("config.xml", "users.xml"):
                text = (self.server.server.home / file).read_text(encoding="utf-8")
                self.assertNotIn(password, text)
                self.assertNotIn(base64.b64encode(f"{name}:{password}".encode()).decode(), text)

    def test_the_user_without_a_password_is_not_served(self):
        for who in ("default:", "default:x", "readers:x", "reader", ":"):
            self.assertEqual(self.basic(who), 404, who)

    def basic(self, who):
        token = base64.b64encode(who.encode()).decode()
        request = urllib.request.Request(self.server.server.url(), data=b"SELECT 1",
                                         headers={"Authorization": f"Basic {token}"})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


class Places(unittest.TestCase):
    def test_it_runs_where_its_user_may_not_pass(self):
        server = Server(passable=False)
        self.addCleanup(server.close)
        self.assertEqual(server.ask("SELECT 1"), "1\n")

    def test_headers_of_other_users_do_not_match(self):
        for user in ("a", "ab", "abc", "reader", "analytics", "test"):
            pattern = re.compile(clickhouse.basic_pattern(user))
            for password in ("x", "xy", "xyz", "ÿÿ", "0f" * 16):
                token = base64.b64encode(f"{user}:{password}".encode()).decode()
                self.assertTrue(pattern.fullmatch(token), (user, password))
                for other in (f"{user}x:{password}", f"x{user}:{password}", f"{user[:-1]}:{password}"):
                    self.assertFalse(pattern.fullmatch(base64.b64encode(other.encode()).decode()), (user, other))
