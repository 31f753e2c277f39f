"""A closed month's exports are the same bytes after ClickHouse was killed, stopped, emptied on disk and filled anew.

The recorded workload runs through several months. Meanwhile analytics is killed and ClickHouse is away; the months are closed
while the clock goes on and nodes are lost; then ClickHouse loses all its files, and analytics is killed while it fills the
tables from the ledger.
"""

import hashlib
import json
import shutil
import socket
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

from . import support
from apportion_local import net, paths

LOADTEST = str(support.PROGRAMS / "loadtest")
WORKLOAD = str(paths.CHECKOUT / "loadtest/workloads/openb")
SELECTION = ("--limit-pods", "600", "--limit-nodes", "250")
REPLAY_SECONDS = "20"
FAULTS = ("kill:analytics@0.3", "stop:clickhouse@0.5:5s", "kill:analytics@0.8")
FORMATS = ("csv", "focus-csv", "focus-parquet")
# Against hanging.
PATIENCE_SECONDS = 120


class Replayed(support.Stack):
    """A stack on the workload's clock."""

    def __init__(self, root):
        self.root = root
        plan = self.run(LOADTEST, "plan", "--workload", WORKLOAD, *SELECTION, "--replay-seconds", REPLAY_SECONDS)
        super().__init__(root, "--workload", WORKLOAD, "--rate", str(json.loads(plan)["rate"]))

    def control(self, command):
        with socket.socket(socket.AF_UNIX) as launcher:
            launcher.connect(self.value["control"])
            launcher.sendall(command.encode() + b"\n")
            answer = launcher.makefile().readline().strip()
        if answer != "ok":
            raise AssertionError(f"{command}: {answer}")

    def through(self):
        """The position of the ledger up to which ClickHouse has it; 0 while it has none or is away."""
        server = self.value["clickhouse"]
        request = urllib.request.Request(
            server["url"], data=b"SELECT max(to_lsn) FROM apportion.ledger_ranges WHERE state = 'applied'",
            headers={"X-ClickHouse-User": server["reader"]["user"], "X-ClickHouse-Key": server["reader"]["password"]})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
                return int(answer.read())
        except OSError:
            return 0

    def replay(self):
        """The report, of a bill that a program has checked that shares no code with the suite."""
        report = self.root / "report.json"
        faults = [word for fault in FAULTS for word in ("--fault", fault)]
        self.run(LOADTEST, "drive", "--stack", str(self.state / "stack.json"), "--workload", WORKLOAD, *SELECTION,
                 "--report", str(report), "--quiet", *faults)
        self.run(sys.executable, str(paths.CHECKOUT / "loadtest/check_bill.py"), "--report", str(report))
        return json.loads(report.read_text(encoding="utf-8"))

    def exports(self, months):
        """The digest of each export of each month."""
        digests = {}
        for month in months:
            for form in FORMATS:
                path = self.root / f"{month}.{form}"
                self.apportion("invoice", "export", month, "--format", form, "--to", str(path))
                digests[month, form] = (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        return digests

    def lose_all_files(self):
        self.control("stop clickhouse")
        data = self.state / "clickhouse" / "data"
        held = list(data.iterdir())
        if not held:
            raise AssertionError(f"nothing in {data}")
        for entry in held:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.control("start clickhouse")


class ClosedMonths(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        root = Path(directory.name)
        # Passable, so that ClickHouse's files lie in the state directory.
        root.chmod(0o711)
        self.stack = Replayed(root)
        self.addCleanup(self.stack.launcher, "down")

    def test_a_closed_month_is_the_same_bytes_after_everything_was_lost(self):
        report = self.stack.replay()
        self.assertEqual((report["problems"], report["lost"], report["duplicated"]), ([], 0, 0))
        months = [line["month"] for line in report["months"] if line["closed"]]
        self.assertGreaterEqual(len(months), 3, report["months"])
        self.assertEqual({line["variance"] for line in report["months"]}, {"0"})
        self.assertTrue(all(line["charged_micro"] > 0 for line in report["months"]), report["months"])
        before, position = self.stack.exports(months), self.stack.through()
        self.assertGreater(min(size for size, _ in before.values()), 1000)

        self.stack.lose_all_files()
        filled = net.wait_until(lambda: self.stack.through() > 0, PATIENCE_SECONDS)
        self.assertTrue(filled, "nothing is filled again")
        self.stack.control("kill analytics")
        filled = net.wait_until(lambda: self.stack.through() >= position, PATIENCE_SECONDS)
        self.assertTrue(filled, "it is not filled again")
        self.assertEqual(self.stack.exports(months), before)
        # It fails if any month does not add up.
        self.stack.apportion("invoice", "reconcile")


if __name__ == "__main__":
    unittest.main()
