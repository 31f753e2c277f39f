"""ClickHouse's configuration and process."""

import base64
import hashlib
import os
import string
import urllib.request
from pathlib import Path
from xml.sax.saxutils import escape

from . import paths, users
from .net import LOOPBACK, http_ok
from .sizes import MIB, OWNER_QUERIES, ClickHouseSizes
from .supervisor import Spec

DATABASE = "apportion"

# Engines for an owner of tables: none that reaches files or other machines, and none of the sources.
ENGINE_GRANTS = [f"TABLE ENGINE ON {kind}MergeTree" for kind in ("", "Aggregating", "Collapsing", "Replacing")]
# How full the disk is, and what of its tables was found broken.
STATE_GRANTS = ["SELECT(free_space, total_space) ON system.disks",
                "SELECT(database, table, name, reason) ON system.detached_parts"]
USER_GRANTS = {
    # The statements of services/analytics/src/store, and no more. It creates its database again if that was dropped, its
    # tables if a column is missing, defaults and comments; and it discards broken parts (ALTER DELETE).
    "analytics": ENGINE_GRANTS + [f"SELECT, INSERT, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, "
                                  f"TRUNCATE, ALTER DELETE, ALTER MODIFY COLUMN, ALTER COMMENT COLUMN, "
                                  f"ALTER MODIFY COMMENT ON {DATABASE}.*"] + STATE_GRANTS,
    "reader": [f"SELECT ON {DATABASE}.*"],
    "test": ENGINE_GRANTS + ["SELECT, INSERT, ALTER, CREATE, DROP, UNDROP TABLE, TRUNCATE, OPTIMIZE, SHOW, dictGet, "
                             "KILL QUERY, SYSTEM ON *.*"],
}
# The engine itself runs as "default", which must exist without a password. HTTP does not admit it (see handlers).
DEFAULT_GRANTS = [f"CREATE DATABASE ON {DATABASE}.*", "SYSTEM LISTEN ON *.*", "READ ON FILE",
                  "CREATE TEMPORARY TABLE ON *.*"]


def owner_limits(sizes):
    """Limits of the owner's queries, which the owner cannot raise: parts of the server's memory."""
    return {
        "max_memory_usage": sizes.memory_bytes * 2 // 3,
        "max_memory_usage_for_user": sizes.memory_bytes * 4 // 5,
        "max_concurrent_queries_for_user": sizes.owner_queries,
    }


def reader_limits(sizes):
    return {
        # No writes and no settings: the schema or the template that a format reads is a setting, too.
        "readonly": 1,
        "max_memory_usage": sizes.memory_bytes * 2 // 3,
        "max_memory_usage_for_user": sizes.memory_bytes * 2 // 3,
        "max_temporary_data_on_disk_size_for_user": sizes.memory_bytes * 2 // 3,
        "max_execution_time": 60,
        "max_threads": sizes.threads,
        "max_result_rows": 1_000_000,
        "max_result_bytes": 268_435_456,
        "max_concurrent_queries_for_user": 8,
        # Settings that the suite's programs send with every statement (services/analytics/src/store.rs). A setting may be
        # sent if it does not change. None of them affects a SELECT.
        "async_insert": 0,
        "insert_deduplicate": 1,
        "max_insert_threads": 1,
    }


# The containers' sizes do not follow the machine; a test compares their limits (infra/clickhouse/users.d).
CONTAINER = ClickHouseSizes(memory_bytes=1_500_000_000, mark_cache_bytes=64 * MIB, threads=2, owner_queries=OWNER_QUERIES)
OWNER_LIMITS = owner_limits(CONTAINER)
READER_LIMITS = reader_limits(CONTAINER)
# Allowed by the engine as a library and by no server: python(…) runs objects of the process, and ends it if there is none.
LIBRARY_LIMITS = {"allow_python_table_function": 0, "allow_introspection_functions": 0}

class ClickHouse:
    def __init__(self, state, port, passwords, sizes=CONTAINER):
        """`passwords`: user → password; a user of USER_GRANTS without one does not exist."""
        self.port = port
        self.passwords = passwords
        self.sizes = sizes
        self.user = users.spare()
        self.home, self.log = self._directories(state)
        self.data = paths.make_dir(self.home / "data")
        self._give(self.data)

    def _directories(self, state):
        """
        The configuration's directory and the log's. Under root the engine runs as another user, who may be shut out of
        the checkout: then both are in a directory elsewhere.
        """
        home, log = state.path / "clickhouse", state.path / "log" / "clickhouse"
        if self.user is not None and not users.reachable(self.user, state.path):
            outer = state.dir_elsewhere("clickhouse")
            outer.chmod(0o711)
            home, log = outer / "clickhouse", outer / "log"
        home, log = paths.make_dir(home, 0o700 if self.user is None else 0o711), paths.make_dir(log)
        self._give(log)
        return home, log

    def _give(self, path):
        """To the engine's user, with all that is in it."""
        if self.user is not None:
            for entry in (path, *path.rglob("*")):
                os.chown(entry, *self.user, follow_symlinks=False)

    def configure(self):
        """The engine may read its configuration and not change it. No password is in there, only digests."""
        log = log_file(self.log)
        files = {"config.xml": config_xml(self.port, self.data, log, self.passwords, self.sizes),
                 "users.xml": users_xml(self.passwords, self.sizes)}
        for name, text in files.items():
            paths.write_private(self.home / name, text)
            if self.user is not None:
                os.chown(self.home / name, 0, self.user[1])
                os.chmod(self.home / name, 0o640)

    def spec(self):
        runner = Path(__file__).with_name("clickhouse_runner.py")
        user = [] if self.user is None else ["%d:%d" % self.user]
        return Spec(
            name="clickhouse",
            argv=[str(paths.VENV_PYTHON), str(runner), str(self.data), str(self.log), str(self.port), DATABASE, *user],
            # The engine looks for config.xml here.
            cwd=str(self.home),
            # Whoever asks the engine for /proc/self/environ finds nothing of the launcher's.
            env={"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            inherits_env=False,
            ready=self.ready,
            # The pipe also ends when the launcher dies, and then the engine still stops cleanly.
            stop_by_stdin=True,
            stop_grace_s=20.0,
            ready_timeout_s=60.0,
            death_signal=0,
            advice=f"ClickHouse needs about 0.5 GB of memory. Its own log: {log_file(self.log)}",
        )

    def ready(self):
        return http_ok(self.url() + "/ping")

    def url(self):
        return f"http://{LOOPBACK}:{self.port}"

    def query(self, sql, user, **settings):
        """Runs one statement and returns its text."""
        arguments = "&".join(f"{name}={value}" for name, value in settings.items())
        request = urllib.request.Request(
            f"{self.url()}/?{arguments}", data=sql.encode(),
            headers={"X-ClickHouse-User": user, "X-ClickHouse-Key": self.passwords[user]})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.read().decode()


def log_file(directory):
    return directory / "clickhouse-server.log"


def config_xml(port, data, log, passwords, sizes):
    return f"""<clickhouse>
  <!-- The engine as a library overwrites logger.level, with "trace" by default. -->
  <log-level>information</log-level>
  <logger>
    <log>{escape(str(log))}</log>
    <size>50M</size>
    <count>2</count>
  </logger>
  <listen_host>{LOOPBACK}</listen_host>
  <http_port>{port}</http_port>
  <path>{escape(str(data))}/</path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <timezone>UTC</timezone>
  <max_server_memory_usage>{sizes.memory_bytes}</max_server_memory_usage>
  <!-- The cgroup is that of all processes of the stack, or of the machine: their memory would count as the engine's. -->
  <memory_worker_use_cgroup>0</memory_worker_use_cgroup>
  <!-- Otherwise the limit falls with the free memory of the machine. -->
  <memory_worker_dynamic_hard_limit>0</memory_worker_dynamic_hard_limit>
  <mark_cache_size>{sizes.mark_cache_bytes}</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <background_pool_size>{sizes.threads}</background_pool_size>
  <background_merges_mutations_concurrency_ratio>2</background_merges_mutations_concurrency_ratio>
  <background_schedule_pool_size>4</background_schedule_pool_size>
  <background_common_pool_size>2</background_common_pool_size>
  <background_fetches_pool_size>1</background_fetches_pool_size>
  <background_move_pool_size>1</background_move_pool_size>
  <background_buffer_flush_schedule_pool_size>1</background_buffer_flush_schedule_pool_size>
  <background_message_broker_schedule_pool_size>1</background_message_broker_schedule_pool_size>
  <background_distributed_schedule_pool_size>1</background_distributed_schedule_pool_size>
  <merge_tree>
    <!-- These count free entries of the merge pool and must not exceed it; the defaults suit 32. -->
    <number_of_free_entries_in_pool_to_lower_max_size_of_merge
      >{sizes.threads}</number_of_free_entries_in_pool_to_lower_max_size_of_merge>
    <number_of_free_entries_in_pool_to_execute_mutation
      >{sizes.threads}</number_of_free_entries_in_pool_to_execute_mutation>
    <number_of_free_entries_in_pool_to_execute_optimize_entire_partition
      >{sizes.threads}</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>
  </merge_tree>
  <http_handlers>
{http_handlers_xml(passwords)}
  </http_handlers>
</clickhouse>
"""


def http_handlers_xml(passwords):
    """
    Queries are served only to named users, by ClickHouse's headers or by basic authentication. A request that names a
    user in two ways at once is refused by ClickHouse, so "default" cannot slip in beside a named one.
    """
    query = "<handler><type>dynamic_query_handler</type><query_param_name>query</query_param_name></handler>"
    rules = ["<rule><url>/ping</url><methods>GET,HEAD</methods><handler><type>static</type><status>200</status>"
             "<content_type>text/plain</content_type><response_content>Ok.</response_content></handler></rule>"]
    names = "|".join(passwords)
    rules.append(f"<rule><headers><X-ClickHouse-User>regex:^({names})$</X-ClickHouse-User></headers>{query}</rule>")
    for user in passwords:
        rules.append(f"<rule><headers><Authorization>regex:^Basic {basic_pattern(user)}$</Authorization></headers>"
                     f"{query}</rule>")
    return "\n".join("    " + rule for rule in rules)


BASE64 = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def basic_pattern(user):
    """Matches the base64 of "user:" and whatever follows, so that the configuration need not hold the password."""
    text = f"{user}:".encode()
    whole = len(text) // 3 * 3
    pattern, rest = base64.b64encode(text[:whole]).decode(), text[whole:]
    if rest:
        # The characters that the rest fills, then those that begin with the bits that are left of it.
        bits, left = int.from_bytes(rest, "big"), len(rest) * 8
        while left >= 6:
            left -= 6
            pattern += BASE64[bits >> left & 63]
        first = (bits & (1 << left) - 1) << 6 - left
        pattern += f"[{BASE64[first:first + (1 << 6 - left)]}]"
    return pattern.replace("+", "[+]") + ".*"


def users_xml(passwords, sizes=CONTAINER):
    # All but the second follow the cores otherwise.
    defaults = {"max_threads": sizes.threads, "max_insert_threads": 1, "max_final_threads": sizes.threads,
                "max_parsing_threads": sizes.threads}
    owner, reader = owner_limits(sizes), reader_limits(sizes)
    entries = [user_xml("default", "", "default", DEFAULT_GRANTS)]
    for user, password in passwords.items():
        profile = user if user in ("reader", "test") else "owner"
        entries.append(user_xml(user, password, f"{DATABASE}_{profile}", USER_GRANTS[user]))
    profiles = [
        profile_xml("default", {**defaults, **LIBRARY_LIMITS}, LIBRARY_LIMITS),
        profile_xml(f"{DATABASE}_owner", {**defaults, **owner, **LIBRARY_LIMITS}, {**owner, **LIBRARY_LIMITS}),
        # A test asks for less than the owner may have, such as the containers' limits.
        profile_xml(f"{DATABASE}_test", {**defaults, **owner, **LIBRARY_LIMITS}, LIBRARY_LIMITS),
        profile_xml(f"{DATABASE}_reader", {**defaults, **reader, **LIBRARY_LIMITS}, {**reader, **LIBRARY_LIMITS}),
    ]
    return f"""<clickhouse>
  <profiles>
{chr(10).join(profiles)}
  </profiles>
  <quotas><default/></quotas>
  <users>
{chr(10).join(entries)}
  </users>
</clickhouse>
"""


def profile_xml(name, settings, fixed):
    """`fixed`: settings that nobody changes."""
    values = "".join(f"<{setting}>{value}</{setting}>" for setting, value in settings.items())
    constraints = "".join(f"<{setting}><readonly/></{setting}>" for setting in fixed)
    return f"    <{name}>\n      {values}\n      <constraints>{constraints}</constraints>\n    </{name}>"


def user_xml(name, password, profile, grants):
    queries = "".join(f"<query>GRANT {escape(grant)}</query>" for grant in grants)
    digest = hashlib.sha256(password.encode()).hexdigest()
    secret = f"<password_sha256_hex>{digest}</password_sha256_hex>" if password else "<password/>"
    return (f"    <{name}>\n      {secret}\n"
            f"      <networks><ip>{LOOPBACK}</ip></networks>\n"
            f"      <profile>{profile}</profile>\n      <quota>default</quota>\n"
            f"      <grants>{queries}</grants>\n    </{name}>")
