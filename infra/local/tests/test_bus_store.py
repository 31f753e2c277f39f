"""The limit of the bus's storage, and when the bus is restarted."""

import contextlib
import http.server
import json
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

import pytest

from apportion_local import bus_store
from apportion_local.breakable import Disk
from apportion_local.bus_store import LIMIT_BYTES_MIN, BusStore

from .support import PATIENCE_S

pytestmark = pytest.mark.fast

CLOSED = "JetStream stream 'LEDGER > L' write error: write 1.blk: no space left on device"
BEHIND = "JetStream is not current with the meta leader"


@contextlib.contextmanager
def monitor(error, storage):
    """A monitoring page with this error and this storage."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            health = {"status": "ok"} if error is None else {"status": "unavailable", "error": error}
            body = json.dumps({"/healthz": health, "/jsz": {"storage": storage}}[self.path]).encode()
            self.send_response(200 if error is None else 503)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class WhyRestart(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.home = Path(directory.name)
        # The page answers, however busy the machine is.
        patch = unittest.mock.patch.object(bus_store, "ANSWER_MAX_S", PATIENCE_S)
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, error, storage, limit_bytes, expected):
        with monitor(error, storage) as url:
            store = BusStore(self.home, url)
            store.limit_bytes = limit_bytes
            why = store.why_restart()
        self.assertEqual(expected is None, why is None, why)
        if expected is not None:
            self.assertIn(expected, why)

    def test_it_is_restarted_when_it_cannot_store_and_could(self):
        many = 1 << 50
        self.check(None, 1, many, None)
        self.check(CLOSED, 1, many, "no space left on device")
        self.check(BEHIND, 1, many, None)
        # There is more room than when it was started: at least the minimum.
        self.check(None, 100, 100, "may store")
        self.check(None, many, many, None)

    def test_it_is_left_alone_while_its_disk_is_full(self):
        disk = Disk(self.home)
        if not disk.mount():
            self.skipTest("this user may not mount a file system in memory")
        self.addCleanup(disk.close)
        (self.home / "1.blk").write_bytes(bytes(1 << 20))
        disk.fill()
        self.check(CLOSED, 1, 1 << 50, None)
        disk.free()
        self.check(CLOSED, 1, 1 << 50, "no space left on device")

    def test_a_page_that_does_not_answer_is_no_reason(self):
        store = BusStore(self.home, "http://127.0.0.1:1")
        store.limit_bytes = 1
        self.assertIsNone(store.why_restart())


class Limit(unittest.TestCase):
    def test_it_may_store_what_it_has_and_what_is_free_less_a_reserve(self):
        gib = 1 << 30
        for total, free, has, expected in (
                (1000 * gib, 500 * gib, 100 * gib, 598 * gib),
                (20 * gib, 10 * gib, 5 * gib, 14 * gib),
                (20 * gib, 0, 2 * gib, LIMIT_BYTES_MIN),
                (4 * gib, 4 * gib, 0, LIMIT_BYTES_MIN)):
            with unittest.mock.patch.multiple(bus_store, space=lambda _: (total, free), stored=lambda _: has):
                self.assertEqual(bus_store.limit_bytes("/nowhere"), expected)

    def test_what_it_has_is_what_is_on_disk(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as home:
            Path(home, "below").mkdir()
            Path(home, "below", "1.blk").write_bytes(bytes(1 << 20))
            self.assertEqual(bus_store.stored(home) >> 20, 1)
