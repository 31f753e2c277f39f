"""ClickHouse's configuration and process."""

import base64
import urllib.request
from pathlib import Path
from xml.sax.saxutils import escape

from . import paths
from .net import LOOPBACK, http_ok
from .supervisor import Spec

DATABASE = "apportion"
MEMORY_BYTES_MAX = 1_500_000_000

# What an owner of tables needs besides its own database. Nobody gets the sources (files, URLs).
ENGINE_GRANTS = ["TABLE ENGINE ON *", "SELECT ON system.*", "CREATE TEMPORARY TABLE ON *.*"]
USER_GRANTS = {
    "analytics": ENGINE_GRANTS + [f"ALL ON {DATABASE}.*"],
    "reader": [f"SELECT ON {DATABASE}.*", "SELECT ON system.*"],
    "test": ENGINE_GRANTS + ["SELECT, INSERT, ALTER, CREATE, DROP, UNDROP TABLE, TRUNCATE, OPTIMIZE, SHOW, dictGet, "
                             "KILL QUERY, SYSTEM ON *.*"],
}
# The engine itself runs as "default", which must exist without a password. Over HTTP it is not let in (see handlers).
DEFAULT_GRANTS = ["SYSTEM LISTEN ON *.*", "READ ON FILE", "CREATE TEMPORARY TABLE ON *.*"]


class ClickHouse:
    def __init__(self, state, port, passwords):
        """`passwords`: user → password; a user of USER_GRANTS without one does not exist."""
        self.port = port
        self.passwords = passwords
        self.home = paths.make_dir(state.path / "clickhouse")
        self.log = state.path / "log" / "clickhouse-server.log"

    def configure(self):
        paths.write_private(self.home / "config.xml", config_xml(self.port, self.home, self.log, self.passwords))
        paths.write_private(self.home / "users.xml", users_xml(self.passwords))

    def spec(self):
        runner = Path(__file__).with_name("clickhouse_runner.py")
        return Spec(
            name="clickhouse",
            argv=[str(paths.VENV_PYTHON), str(runner), str(self.home / "data")],
            # The engine looks for config.xml here.
            cwd=str(self.home),
            env={"TZ": "UTC"},
            ready=self.ready,
            # The pipe also ends when the launcher dies, and then the engine still stops cleanly.
            stop_by_stdin=True,
            stop_grace_s=20.0,
            ready_timeout_s=60.0,
            death_signal=0,
            advice=f"ClickHouse needs about 0.5 GB of memory. Its own log: {self.log}",
        )

    def ready(self):
        return http_ok(self.url() + "/ping")

    def url(self):
        return f"http://{LOOPBACK}:{self.port}"

    def create_database(self):
        """The database exists before its owner connects: who names a missing one in the request gets no session."""
        self.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", next(iter(self.passwords)))

    def query(self, sql, user, **settings):
        """Runs one statement and returns its text."""
        arguments = "&".join(f"{name}={value}" for name, value in settings.items())
        request = urllib.request.Request(
            f"{self.url()}/?{arguments}", data=sql.encode(),
            headers={"X-ClickHouse-User": user, "X-ClickHouse-Key": self.passwords[user]})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.read().decode()


def config_xml(port, home, log, passwords):
    """Sized for a small machine that does other things as well."""
    return f"""<clickhouse>
  <logger>
    <level>information</level>
    <log>{escape(str(log))}</log>
    <size>50M</size>
    <count>2</count>
  </logger>
  <listen_host>{LOOPBACK}</listen_host>
  <http_port>{port}</http_port>
  <path>{escape(str(home / "data"))}/</path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <timezone>UTC</timezone>
  <max_server_memory_usage>{MEMORY_BYTES_MAX}</max_server_memory_usage>
  <mark_cache_size>67108864</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <background_pool_size>2</background_pool_size>
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
    <number_of_free_entries_in_pool_to_lower_max_size_of_merge>2</number_of_free_entries_in_pool_to_lower_max_size_of_merge>
    <number_of_free_entries_in_pool_to_execute_mutation>2</number_of_free_entries_in_pool_to_execute_mutation>
    <number_of_free_entries_in_pool_to_execute_optimize_entire_partition
      >2</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>
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
    for user, password in passwords.items():
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        rules.append(f"<rule><headers><Authorization>Basic {basic}</Authorization></headers>{query}</rule>")
    return "\n".join("    " + rule for rule in rules)


def users_xml(passwords):
    users = [user_xml("default", "", "default", DEFAULT_GRANTS)]
    for user, password in passwords.items():
        users.append(user_xml(user, password, "readonly" if user == "reader" else "default", USER_GRANTS[user]))
    return f"""<clickhouse>
  <profiles>
    <default>
      <max_threads>2</max_threads>
      <max_insert_threads>1</max_insert_threads>
    </default>
    <readonly>
      <!-- 2: no writes, but a client may still choose its output format and the like. -->
      <readonly>2</readonly>
      <max_threads>2</max_threads>
    </readonly>
  </profiles>
  <quotas><default/></quotas>
  <users>
{chr(10).join(users)}
  </users>
</clickhouse>
"""


def user_xml(name, password, profile, grants):
    queries = "".join(f"<query>GRANT {escape(grant)}</query>" for grant in grants)
    return (f"    <{name}>\n      <password>{escape(password)}</password>\n"
            f"      <networks><ip>{LOOPBACK}</ip></networks>\n"
            f"      <profile>{profile}</profile>\n      <quota>default</quota>\n"
            f"      <grants>{queries}</grants>\n    </{name}>")
