"""
Runs ClickHouse in this process until standard input ends. Started by the launcher, by the venv's Python, in a
directory with config.xml: `clickhouse_runner.py DATA_DIR LOG_DIR PORT DATABASE [UID:GID]`.

The library has no call that starts a server. But its one-shot query understands SYSTEM START LISTEN, which opens the
real HTTP interface for as long as the query runs; so the last statement reads standard input to its end.

The engine reaches its own directories and nothing else: see confine.py. Started by root it runs as another user, and
becomes that only when the library is loaded, because that user may be shut out of where the library lies.
"""

import importlib.util
import os
import signal
import sys

import confine

# Files of the system that the engine reads; none is secret.
SYSTEM = ["/proc", "/sys/devices/system", "/sys/fs/cgroup", "/dev/null", "/dev/urandom", "/etc/localtime",
          "/usr/share/zoneinfo"]

# The database exists before its owner connects: a request that names a missing one gets no session.
SERVE = """
CREATE DATABASE IF NOT EXISTS {database};
SYSTEM START LISTEN HTTP;
SELECT count() FROM file('/dev/stdin', 'LineAsString', 'line String');
"""


def main(data, log, port, database, user=None):
    # The launcher decides when to stop, by closing the pipe: a signal to the terminal's group must not tear a write.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    engine = load()
    # From here on there is one thread still; those that the engine starts are shut in like it.
    if user is not None:
        become(*(int(number) for number in user.split(":")))
    if not confine.confine([*SYSTEM, os.getcwd()], [data, log], int(port)):
        print("This kernel has no Landlock: ClickHouse's users can read what its process can.", file=sys.stderr)
    served = engine.query(SERVE.format(database=database), "TabSeparated", path=data)
    if served.has_error():
        sys.exit(served.error_message())


def load():
    """The library without its package, which begins by starting an engine of its own."""
    package, = importlib.util.find_spec("chdb").submodule_search_locations
    spec = importlib.util.spec_from_file_location("_chdb", os.path.join(package, "_chdb.abi3.so"))
    engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engine)
    return engine


def become(uid, gid):
    # The pipe is root's, and the engine opens it by its name.
    os.fchown(0, uid, gid)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


main(*sys.argv[1:])
