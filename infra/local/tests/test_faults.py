"""Whole replays with faults: nothing is lost, doubled or billed wrongly."""

import json
import sys
import unittest

import pytest

from apportion_local import paths, services

from .support import LAUNCHER, PROGRAMS, Home, run, succeeded

pytestmark = pytest.mark.fault

# Enough of the recorded workload for every kind of pod.
PODS, NODES, REPLAY_SECONDS, LEAD_SECONDS = 600, 250, 20, 8
# One after the other, each when this part of the pods has been submitted.
KILLS = [f"kill:{service}@{0.2 + 0.12 * number:.2f}" for number, service in enumerate(services.NAMES)]
STOPS = ["stop:postgres@0.05:10s", "stop:clickhouse@0.55:10s"]


class Faults(unittest.TestCase):
    """The launcher's supervisor restarts killed services. The control socket stops and starts the databases."""

    def replay(self, faults):
        home = Home()
        self.addCleanup(home.close)
        report = home.path / "report.json"
        given = [word for fault in faults for word in ("--fault", fault)]
        succeeded(run(sys.executable, LAUNCHER, "run", "--bin-dir", PROGRAMS, "--state", home.path / "run", "--report", report,
                      "--limit-pods", PODS, "--limit-nodes", NODES, "--replay-seconds", REPLAY_SECONDS,
                      "--lead-seconds", LEAD_SECONDS, "--", "--quiet", *given))
        self.check_report(json.loads(report.read_text(encoding="utf-8")), len(faults))
        # A program that shares no code with the suite checks the bill.
        succeeded(run(sys.executable, paths.CHECKOUT / "loadtest/check_bill.py", "--report", report))

    def check_report(self, report, faults):
        self.assertEqual(len(report["faults"]), faults)
        self.assertGreaterEqual(report["requests"], PODS)
        self.assertEqual(report["requests"], report["outcomes"])
        self.assertEqual((report["lost"], report["duplicated"], report["conservation_error_ms"]), (0, 0, 0))
        self.assertGreater(report["finished"], PODS // 2)
        self.assertEqual(report["problems"], [])

    def test_every_service_killed_one_after_the_other(self):
        self.replay(KILLS)

    def test_both_databases_stopped(self):
        self.replay(STOPS)
