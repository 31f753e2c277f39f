"""A cell of the first feature level under load: every process is replaced in turn, then the level is raised."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import unittest

import pytest

from apportion_local import paths, services

from .support import PATIENCE_S, Stack, wait

pytestmark = pytest.mark.fault

REPLICAS = 2
FIRST, NEWEST = 1, 12
# More than two clients request in this test.
LISTED_MAX = 100_000


class Level(unittest.TestCase):
    def setUp(self):
        self.stack = Stack("--replicas", str(REPLICAS), "--level", str(FIRST))
        self.addCleanup(self.stack.close)
        self.ask = self.stack.ask

    def cell(self, *words):
        return self.ask("cell", *words, "--config", self.stack.state / "config" / "bus.toml")

    def level(self):
        """The cell's level, and its processes, each as (the newest level that it knows, its service)."""
        done = self.cell("level")
        self.assertEqual(done.returncode, 0, done.stderr)
        title, _, *rows = done.stdout.splitlines()
        return int(title.rsplit(" ", 1)[1]), [(int(row.split()[0]), row.split()[-1]) for row in rows]

    def assert_refused(self, why):
        done = self.cell("raise")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(why, done.stderr)
        self.assertEqual(self.level()[0], FIRST)

    def accepted_at_last(self, *words):
        """Repeats a command until it succeeds."""
        wait(lambda: self.ask(*words).returncode == 0, lambda: self.stack.refused(*words))

    def pids(self):
        return {name: child["pid"] for name, child in self.stack.supervised().items()}

    def replace(self, process):
        """Ends a process and waits until its successor is ready, as an operator does."""
        before = self.stack.pid(process)
        os.kill(before, signal.SIGTERM)
        wait(lambda: self.stack.pid(process) not in (None, before), f"{process} is started again")
        wait(lambda: self.stack.is_ready(process), f"{process} is ready")

    # A node that is none of the simulated fleet, which keeps sending heartbeats.

    def agent(self, name):
        command = [sys.executable, str(paths.CHECKOUT / "examples/node.py"), "--name", name,
                   "--stack", str(self.stack.state / "stack.json"), "--descriptors", str(self.stack.descriptors())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait(lambda: self.node(name) == "ready", name)
        return process

    def node(self, name):
        rows = (row.split() for row in self.stack.apportion("nodes").splitlines())
        return next((row[1] for row in rows if row[0] == name), None)

    def states_until_lost(self, name):
        states = []

        def lost():
            states.append(self.node(name))
            return states[-1] == "lost"

        wait(lost, name)
        return sorted(set(states), key=states.index)

    def silence_until_suspected(self, agent, name):
        """
        A leader learns of a raised level half a second later, and suspects no node while it receives no heartbeats at all.
        Then the node is lost without being suspected, and falls silent again.
        """

        def silent():
            os.kill(agent.pid, signal.SIGSTOP)
            wait(lambda: self.node(name) in ("suspect", "lost"), f"{name} is not ready any more")
            suspected = self.node(name) == "suspect"
            os.kill(agent.pid, signal.SIGCONT)
            wait(lambda: self.node(name) == "ready", f"{name} is ready again")
            return suspected

        wait(silent, f"{name} is suspected")

    async def stands_in(self, level):
        """A quota process of a version that knows less, as far as others see it: by its consumer of the ledger."""
        import nats

        stack = self.stack.value
        client = await nats.connect(stack["nats"]["url"], user_credentials=str(self.stack.creds("quota")),
                                    connect_timeout=PATIENCE_S)
        stream = f"APPORTION_{stack['cell']['name']}_LEDGER"
        metadata = {"apportion_services": "quota", "apportion_instance": "old/1", "apportion_version": "0.0.1",
                    "apportion_level": str(level)}
        config = {"name": "old", "deliver_policy": "all", "ack_policy": "none", "inactive_threshold": 60_000_000_000,
                  "mem_storage": True, "metadata": metadata}
        try:
            made = await client.request(f"$JS.API.CONSUMER.CREATE.{stream}.old",
                                        json.dumps({"stream_name": stream, "config": config}).encode(), timeout=PATIENCE_S)
            self.assertNotIn("error", json.loads(made.data))
            self.assert_refused(f"feature level {NEWEST} is not known to quota (old/1, knows {level})")
            gone = await client.request(f"$JS.API.CONSUMER.DELETE.{stream}.old", b"", timeout=PATIENCE_S)
            self.assertTrue(json.loads(gone.data)["success"])
        finally:
            await client.close()

    def test_all_are_replaced_under_load_then_the_level_is_raised_and_a_silent_node_is_suspected(self):
        processes = [services.process(name, replica) for name in services.NAMES for replica in (1, REPLICAS)]
        acknowledged, stop = [], threading.Event()

        def load():
            while not stop.is_set():
                done = self.ask("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB")
                if done.returncode == 0:
                    acknowledged.append(done.stdout.split()[0])

        clients = [threading.Thread(target=load) for _ in range(2)]
        for client in clients:
            client.start()
        try:
            for process in processes:
                self.replace(process)
                # Old and new processes together acknowledge, however slow the machine is.
                before = len(acknowledged)
                wait(lambda: len(acknowledged) > before, f"a request is acknowledged after {process} was replaced")
        finally:
            stop.set()
            for client in clients:
                client.join()
        self.assertEqual(len(set(acknowledged)), len(acknowledged))
        listed = self.stack.items("list", "--tenant", "team-a", "--all", "--limit", str(LISTED_MAX))
        self.assertLess(len(listed), LISTED_MAX)
        self.assertEqual(set(acknowledged) - {allocation["allocation_id"] for allocation in listed}, set())
        self.stack.verify()

        # At the first level no node is suspected.
        agent = self.agent("before")
        agent.kill()
        self.assertEqual(self.states_until_lost("before"), ["ready", "lost"])

        level, found = self.level()
        self.assertEqual(level, FIRST)
        self.assertEqual(set(found), {(NEWEST, name) for name in services.NAMES})
        asyncio.run(self.stands_in(FIRST))
        absent = [services.process("analytics", replica) for replica in (1, REPLICAS)]
        for process in absent:
            self.stack.control(f"stop {process}")
        wait(lambda: (NEWEST, "analytics") not in self.level()[1], "analytics is not listed any more")
        self.assert_refused("nobody who reads the ledger is analytics")
        for process in absent:
            self.stack.control(f"start {process}")
        wait(lambda: (NEWEST, "analytics") in self.level()[1], "analytics is listed again")

        array = ("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB", "--array", "0-1")
        early = self.ask(*array)
        self.assertNotEqual(early.returncode, 0, early.stdout)
        self.assertIn("2 of 2 were refused", early.stderr)

        running = self.pids()
        done = self.cell("raise")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.level()[0], NEWEST)
        done = self.cell("raise")
        self.assertIn("already", done.stderr)

        # A leader learns of it some time later.
        self.accepted_at_last(*array)
        agent = self.agent("after")
        self.silence_until_suspected(agent, "after")
        agent.kill()
        # It is suspected first, if the leader receives heartbeats of other nodes at that time.
        self.assertIn(self.states_until_lost("after"), (["ready", "suspect", "lost"], ["ready", "lost"]))
        self.assertEqual(self.pids(), running)
        self.stack.verify()
