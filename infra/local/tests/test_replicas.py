"""Two processes of each service: the leading one is killed, paused and ended, and the other one leads from then on."""

import json
import os
import signal
import unittest

import pytest

from apportion_local import paths, services

from .support import PROGRAMS, Stack, run, succeeded, wait

pytestmark = pytest.mark.fault

TENANTS = 4


class ReplicasTest(unittest.TestCase):
    def role(self, process):
        return services.role(self.stack.value["services"][process]["http"])

    def leader_and_standby(self, service):
        pair = [services.process(service, replica) for replica in (1, 2)]
        wait(lambda: sorted(self.role(process) for process in pair) == ["leads", "stands by"],
             lambda: self.stack.launcher("status").stdout)
        return sorted(pair, key=self.role)


class Takeovers(ReplicasTest):
    def setUp(self):
        self.stack = Stack("--replicas", "2", "--tenants", str(TENANTS))
        self.addCleanup(self.stack.close)

    def test_whatever_leads_is_killed_paused_and_told_to_end_and_nothing_is_lost_doubled_or_billed_wrongly(self):
        report = self.stack.state / "chaos.json"
        succeeded(run(PROGRAMS / "loadtest", "chaos", "--stack", self.stack.state / "stack.json", "--takeovers", "1",
                      "--json", report, cwd=paths.CHECKOUT))
        value = json.loads(report.read_text(encoding="utf-8"))
        self.assertTrue(value["good"])
        self.assertEqual({row["kind"]: row["count"] for row in value["by_kind"]},
                         {f"{what} {service}": 1 for what in ("kill -9", "pause", "restart") for service in services.NAMES})
        for service in services.LEDGER_WRITERS:
            self.leader_and_standby(service)


class Replicas(ReplicasTest):
    @classmethod
    def setUpClass(cls):
        cls.stack = Stack("--replicas", "2")
        cls.addClassCleanup(cls.stack.close)

    def test_a_leader_that_was_paused_finds_that_another_leads_and_stands_by(self):
        self.stack.submit()
        for service in services.LEDGER_WRITERS:
            with self.subTest(service):
                paused, other = self.leader_and_standby(service)
                self.stack.control(f"pause {paused}")
                self.addCleanup(self.stack.answer, f"resume {paused}")
                allocation = self.stack.submit()
                wait(lambda: self.role(other) == "leads", f"{other} leads")
                self.stack.control(f"resume {paused}")
                wait(lambda: (self.role(other), self.role(paused)) == ("leads", "stands by"),
                     lambda: self.stack.launcher("status").stdout)
                self.stack.apportion("get", "--tenant", "team-a", allocation)
        self.stack.apportion("verify")

    def test_a_leader_that_is_told_to_end_resigns_and_both_answer_queries(self):
        allocation = self.stack.submit()
        for service in services.LEDGER_WRITERS:
            leader, _ = self.leader_and_standby(service)
            resigned = self.stack.log(leader).count('"resigned"')
            os.kill(self.stack.pid(leader), signal.SIGTERM)
            wait(lambda: self.stack.log(leader).count('"resigned"') > resigned, f"{leader} has resigned")
            self.stack.submit()
        for _ in range(10):
            self.assertIn(allocation, self.stack.apportion("get", "--tenant", "team-a", allocation))
        self.stack.apportion("verify")
