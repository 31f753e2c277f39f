"""
The room that the bus has: how much NATS may store, and when a restart gives it back what a full disk has taken.

A write that the file system refuses closes a stream of NATS 2.15 until the server is restarted: nothing is answered to who
publishes, and neither room, nor a reload, nor an update of the stream opens it again. A publish that would go beyond
`max_file_store` is refused, and the next one is taken as soon as there is room. So NATS is told less than there is.
"""

import json
import os

from .net import get

# The most that is kept free on a large disk, of which a twentieth would be much.
RESERVE_BYTES_MAX = 2 << 30
# NATS does not start when its streams were promised more than it may store. The feeds are promised 4 GiB, and `cell init`,
# which compares with the existing streams, needs room for that promise once more.
LIMIT_BYTES_MIN = 9 << 30
# With less than this the disk is as good as full still.
ROOM_BYTES = 64 << 20
# The growth of the limit that is worth a restart.
GROWN_BYTES = 256 << 20
ANSWER_MAX_S = 0.5
# What /healthz says of a stream that a failed write has closed, and of a server that has given up its storage.
CANNOT_STORE = ("write error", "no space left", "not enabled", "disabled")


class BusStore:
    def __init__(self, directory, monitor_url):
        self.directory = directory
        self.monitor_url = monitor_url
        self.limit_bytes = None

    def set_limit(self):
        """For a server that is about to start."""
        self.limit_bytes = limit_bytes(self.directory)
        return self.limit_bytes

    def why_restart(self):
        """Why NATS, which runs, is to be restarted: it stores nothing, and could. None: it is not."""
        return self._failed_write() or self._limit_outgrown()

    def _failed_write(self):
        said = self._ask("/healthz").get("error", "")
        if not any(words in said for words in CANNOT_STORE):
            return None
        _, free = space(self.directory)
        return f"it says: {said}; now {free >> 20} MiB are free" if free >= ROOM_BYTES else None

    def _limit_outgrown(self):
        if self._ask("/jsz").get("storage", 0) < self.limit_bytes:
            return None
        grown = limit_bytes(self.directory) - self.limit_bytes
        full = f"it is full with {self.limit_bytes >> 20} MiB"
        return f"{full} and may store {grown >> 20} MiB more" if grown >= GROWN_BYTES else None

    def _ask(self, path):
        """What the monitoring page says, whatever its status; nothing if there is no answer."""
        try:
            said = json.loads(get(self.monitor_url + path, ANSWER_MAX_S))
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


def limit_bytes(directory):
    """What NATS may store: what it has stored and what is free, without a reserve."""
    total, free = space(directory)
    reserve = min(total // 20, RESERVE_BYTES_MAX)
    return max(LIMIT_BYTES_MIN, stored(directory) + free - reserve)


def space(directory):
    """Size and free bytes of the file system."""
    stat = os.statvfs(directory)
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def stored(directory):
    """Bytes on disk below a directory in which files come and go meanwhile."""
    total = 0
    for home, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(home, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total
