"""The exports of a closed month are the same bytes after ClickHouse was killed, stopped, and filled again after losing its files.

The recorded workload runs through several months. Meanwhile analytics is killed and ClickHouse is stopped, and the months
are closed while nodes are lost. Then ClickHouse loses all its files, and analytics is killed while it fills the tables from
the ledger.
"""

import hashlib
import itertools
import json
import shutil
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

import pytest

from apportion_local import paths

from .support import PROGRAMS, Stack, run, succeeded, wait

pytestmark = pytest.mark.fault

LOADTEST = PROGRAMS / "loadtest"
WORKLOAD = paths.CHECKOUT / "loadtest/workloads/openb"
SELECTION = ("--limit-pods", "600", "--limit-nodes", "250")
REPLAY_SECONDS = 20
FAULTS = ("kill:analytics@0.3", "stop:clickhouse@0.5:5s", "kill:analytics@0.8")
EXPORTS_AT_ONCE = 4
FORMATS = ("csv", "focus-csv", "focus-parquet")


class ClosedMonths(unittest.TestCase):
    def setUp(self):
        # A stack on the workload's clock.
        plan = succeeded(run(LOADTEST, "plan", "--workload", WORKLOAD, *SELECTION, "--replay-seconds", REPLAY_SECONDS))
        self.stack = Stack("--workload", WORKLOAD, "--rate", json.loads(plan)["rate"])
        self.addCleanup(self.stack.close)

    def through(self):
        """The position of the ledger up to which ClickHouse has it. 0 if it has none of it, or does not answer."""
        try:
            ((through,),) = self.stack.select("SELECT max(to_lsn) FROM ledger_ranges WHERE state = 'applied'")
            return int(through)
        except OSError:
            return 0

    def replay(self):
        """The report of a replay. A program that shares no code with the suite has checked its bill."""
        report = self.stack.root / "report.json"
        faults = [word for fault in FAULTS for word in ("--fault", fault)]
        succeeded(run(LOADTEST, "drive", "--stack", self.stack.state / "stack.json", "--workload", WORKLOAD, *SELECTION,
                      "--report", report, "--quiet", *faults))
        succeeded(run(sys.executable, paths.CHECKOUT / "loadtest/check_bill.py", "--report", report))
        return json.loads(report.read_text(encoding="utf-8"))

    def exports(self, months):
        """The size and the digest of each export of each month."""
        def export(month, form):
            path = self.stack.root / f"{month}.{form}"
            self.stack.apportion("invoice", "export", month, "--format", form, "--to", path)
            return path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()

        wanted = list(itertools.product(months, FORMATS))
        with ThreadPoolExecutor(EXPORTS_AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(lambda one: export(*one), wanted)))

    def lose_all_files(self):
        self.stack.control("stop clickhouse")
        data = self.stack.state / "clickhouse" / "data"
        entries = list(data.iterdir())
        self.assertTrue(entries, data)
        for entry in entries:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.stack.control("start clickhouse")

    def test_a_closed_month_is_the_same_bytes_after_everything_was_lost(self):
        report = self.replay()
        self.assertEqual((report["problems"], report["lost"], report["duplicated"]), ([], 0, 0))
        months = [line["month"] for line in report["months"] if line["closed"] and line["charged_micro"] > 0]
        self.assertGreaterEqual(len(months), 3, report["months"])
        self.assertEqual({line["variance"] for line in report["months"]}, {"0"})
        # On a slow machine the recorded clock may reach the second month before the first request.
        self.assertTrue(all(line["charged_micro"] > 0 for line in report["months"][1:]), report["months"])
        before, position = self.exports(months), self.through()
        self.assertGreater(min(size for size, _ in before.values()), 1000)

        self.lose_all_files()
        wait(lambda: self.through() > 0, "the tables are filled again")
        self.stack.control("kill analytics")
        wait(lambda: self.through() >= position, lambda: f"the tables are full again: {self.through()} of {position}")
        self.assertEqual(self.exports(months), before)
        # It fails if any month does not add up.
        self.stack.apportion("invoice", "reconcile")
