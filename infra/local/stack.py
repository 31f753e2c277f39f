#!/usr/bin/env python3
"""The local stack: NATS, Postgres, ClickHouse and the five services on loopback. See `stack.py --help`."""

import sys

if sys.version_info < (3, 10):
    sys.exit("The local stack needs Python 3.10 or newer; this is %s." % sys.version.split()[0])

from apportion_local import cli  # noqa: E402  (after the version check, which must work on any Python 3)

sys.exit(cli.main())
