"""Two processes of each service: what leads is killed, paused and told to end, and the other one goes on."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import net, paths, services

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
TIMEOUT_SECONDS = 400
# Against hanging; how long it takes is printed by `loadtest chaos`.
PATIENCE_SECONDS = 30
TENANTS = 4


class Replicas(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        Path(directory.name).chmod(0o711)
        self.state = Path(directory.name) / "up"
        self.addCleanup(self.launcher, "down")

    def launcher(self, *words):
        return subprocess.run(
            [sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state", str(self.state)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def up(self, *options):
        done = self.launcher("up", "--fresh", "--replicas", "2", "--bin-dir", str(PROGRAMS), *options)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])

    def stack(self):
        return json.loads((self.state / "stack.json").read_text(encoding="utf-8"))

    def run_program(self, program, *words):
        return subprocess.run([str(PROGRAMS / program), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS, cwd=paths.CHECKOUT)

    def apportion(self, *words):
        return self.run_program("apportion", "--stack", str(self.state / "stack.json"), *words)

    def submit(self):
        done = self.apportion("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()[0]

    def control(self, command):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.stack()["control"])
            connection.sendall(command.encode() + b"\n")
            self.assertEqual(connection.recv(1024), b"ok\n", command)

    def role(self, process):
        return services.role(self.stack()["services"][process]["http"])

    def assert_roles(self, leader, standby):
        found = net.wait_until(lambda: (self.role(leader), self.role(standby)) == ("leads", "stands by"), PATIENCE_SECONDS)
        self.assertTrue(found, self.launcher("status").stdout)

    def leader_and_standby(self, service):
        pair = [services.process(service, replica) for replica in (1, 2)]

        def settled():
            return sorted(self.role(process) for process in pair) == ["leads", "stands by"]

        self.assertTrue(net.wait_until(settled, PATIENCE_SECONDS), self.launcher("status").stdout)
        return sorted(pair, key=self.role)

    def test_whatever_leads_is_killed_paused_and_told_to_end_and_nothing_is_lost_doubled_or_billed_wrongly(self):
        self.up("--tenants", str(TENANTS))
        report = self.state / "chaos.json"
        done = self.run_program("loadtest", "chaos", "--stack", str(self.state / "stack.json"), "--takeovers", "1",
                                "--json", str(report))
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-4000:])
        print(done.stdout)
        value = json.loads(report.read_text(encoding="utf-8"))
        self.assertTrue(value["good"])
        self.assertEqual({row["kind"]: row["count"] for row in value["by_kind"]},
                         {f"{what} {service}": 1 for what in ("kill -9", "pause", "restart") for service in services.NAMES})
        for service in services.LEDGER_WRITERS:
            self.leader_and_standby(service)

    def test_a_leader_that_was_paused_finds_that_another_leads_and_stands_by(self):
        self.up()
        self.submit()
        for service in services.LEDGER_WRITERS:
            with self.subTest(service):
                paused, other = self.leader_and_standby(service)
                self.control(f"pause {paused}")
                allocation = self.submit()
                self.assertTrue(net.wait_until(lambda: self.role(other) == "leads", PATIENCE_SECONDS))
                self.control(f"resume {paused}")
                self.assert_roles(leader=other, standby=paused)
                told = self.apportion("get", "--tenant", "team-a", allocation)
                self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(self.apportion("verify").returncode, 0)

    def test_a_leader_that_is_told_to_end_resigns_and_both_answer_queries(self):
        self.up()
        allocation = self.submit()
        for service in services.LEDGER_WRITERS:
            leader, _ = self.leader_and_standby(service)
            os.kill(self.stack()["pids"][leader], signal.SIGTERM)
            log = self.state / "log" / f"{leader}.log"
            resigned = net.wait_until(lambda: '"resigned"' in log.read_text(encoding="utf-8"), PATIENCE_SECONDS)
            self.assertTrue(resigned, log)
            self.submit()
        for _ in range(10):
            self.assertIn(allocation, self.apportion("get", "--tenant", "team-a", allocation).stdout)
        self.assertEqual(self.apportion("verify").returncode, 0)


if __name__ == "__main__":
    unittest.main()
