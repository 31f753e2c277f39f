"""Whole replays with something killed or stopped on the way: nothing is lost, doubled or billed wrongly."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import paths, services

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
# Enough of the recorded workload for every kind of pod, and still a replay of a quarter of a minute.
PODS, NODES, REPLAY_SECONDS, LEAD_SECONDS = 600, 250, 20, 8
TIMEOUT_SECONDS = 240


class Faults(unittest.TestCase):
    """The launcher's supervisor restarts what was killed; the control socket stops and starts the databases."""

    def replay(self, *faults):
        with tempfile.TemporaryDirectory(prefix="apportion-faults-") as directory:
            report = Path(directory) / "report.json"
            command = [
                sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), "run", "--bin-dir", str(PROGRAMS),
                "--report", str(report), "--limit-pods", str(PODS), "--limit-nodes", str(NODES),
                "--replay-seconds", str(REPLAY_SECONDS), "--lead-seconds", str(LEAD_SECONDS), "--", "--quiet",
            ]
            for fault in faults:
                command += ["--fault", fault]
            run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=TIMEOUT_SECONDS)
            self.assertEqual(run.returncode, 0, run.stdout[-4000:] + run.stderr[-4000:])
            self.check_report(json.loads(report.read_text(encoding="utf-8")), len(faults))
            self.check_bill(report)

    def check_report(self, report, faults):
        self.assertEqual(len(report["faults"]), faults)
        self.assertGreaterEqual(report["requests"], PODS)
        self.assertEqual(report["requests"], report["outcomes"])
        self.assertEqual((report["lost"], report["duplicated"], report["conservation_error_ms"]), (0, 0, 0))
        self.assertGreater(report["finished"], PODS // 2)
        self.assertEqual(report["problems"], [])

    def check_bill(self, report):
        """By a program that shares no code with the suite."""
        script = paths.CHECKOUT / "loadtest/check_bill.py"
        done = subprocess.run([sys.executable, str(script), "--report", str(report)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


def add(name, *faults):
    def test(self):
        self.replay(*faults)
    setattr(Faults, f"test_{name}", test)


for service in services.NAMES:
    add(f"{service.replace('-', '_')}_killed", f"kill:{service}@0.4")
add("postgres_stopped", "stop:postgres@0.3:10s")
add("clickhouse_stopped", "stop:clickhouse@0.3:10s")

if __name__ == "__main__":
    unittest.main()
