#!/usr/bin/env python3
"""The local stack: NATS, Postgres, ClickHouse and the five services on loopback. See `stack.py --help`."""

import shutil
import sys

# This much must work on any Python 3.
FIRST, LAST = (3, 11), (3, 14)
if not FIRST <= sys.version_info[:2] <= LAST:
    names = ["python3.%d" % minor for minor in range(LAST[1], FIRST[1] - 1, -1)]
    found = [name for name in names if shutil.which(name)]
    sys.exit("The local stack needs Python 3.11 to 3.14; %s is %s.\n%s" % (
        sys.executable, sys.version.split()[0],
        "Set the variable: export PYTHON=%s" % found[0] if found else
        "Install one, then set the variable: export PYTHON=python3.11\n"
        "  Ubuntu 22.04: sudo apt install python3.11 python3.11-venv\n"
        "  Fedora: sudo dnf install python3.13"))

from apportion_local import cli  # noqa: E402  (after the version check)

sys.exit(cli.main())
