"""
Runs ClickHouse in this process until standard input ends. Started by the launcher, by the venv's Python, in a
directory with config.xml: `clickhouse_runner.py DATA_DIR`.

The library has no call that starts a server. But its one-shot query understands SYSTEM START LISTEN, which opens the
real HTTP interface for as long as the query runs; so the last statement reads standard input to its end.
"""

import signal
import sys

# The launcher decides when to stop, by closing the pipe: a signal to the terminal's group must not tear a write.
signal.signal(signal.SIGINT, signal.SIG_IGN)

import chdb._chdb as engine  # noqa: E402

SERVE = """
SYSTEM START LISTEN HTTP;
SELECT count() FROM file('/dev/stdin', 'LineAsString', 'line String');
"""

engine.query(SERVE, "TabSeparated", path=sys.argv[1])
