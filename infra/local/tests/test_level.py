"""A cell of the first feature level under load: every process is replaced in turn, and then the level is raised."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import net, paths, services

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
TIMEOUT_SECONDS = 400
# Against hanging: a consumer without a reader is gone after 30 s, a lease after 15.
PATIENCE_SECONDS = 60
REPLICAS = 2
FIRST, NEWEST = 1, 10


class Level(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        Path(directory.name).chmod(0o711)
        self.state = Path(directory.name) / "up"
        self.addCleanup(self.launcher, "down")
        done = self.launcher("up", "--fresh", "--replicas", str(REPLICAS), "--level", str(FIRST), "--bin-dir", str(PROGRAMS))
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        self.stack = json.loads((self.state / "stack.json").read_text(encoding="utf-8"))

    def launcher(self, *words):
        return subprocess.run(
            [sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state", str(self.state)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def apportion(self, *words):
        return subprocess.run([str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def cell(self, *words):
        return self.apportion("cell", *words, "--config", str(self.state / "config" / "bus.toml"))

    def level(self):
        """The cell's level, and its processes as (level that it knows, service)."""
        done = self.cell("level")
        self.assertEqual(done.returncode, 0, done.stderr)
        title, _, *rows = done.stdout.splitlines()
        return int(title.rsplit(" ", 1)[1]), [(int(row.split()[0]), row.split()[-1]) for row in rows]

    def assert_refused(self, why):
        done = self.cell("raise")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(why, done.stderr)
        self.assertEqual(self.level()[0], FIRST)

    def wait(self, condition, what):
        self.assertTrue(net.wait_until(condition, PATIENCE_SECONDS), what)

    def accepted_at_last(self, *words):
        """The command, again and again until it does what it is told."""
        tries = []

        def accepted():
            tries.append(self.apportion(*words))
            return tries[-1].returncode == 0

        if not net.wait_until(accepted, PATIENCE_SECONDS):
            last = tries[-1]
            self.fail(f"{len(tries)} tries; the last ended with {last.returncode}: {last.stdout}{last.stderr}")

    def control(self, command):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.stack["control"])
            connection.sendall(command.encode() + b"\n")
            self.assertEqual(connection.recv(1024), b"ok\n", command)

    def pids(self):
        supervised = json.loads((self.state / "supervisor.json").read_text(encoding="utf-8"))
        return {name: child["pid"] for name, child in supervised.items()}

    def replace(self, process):
        """As an operator does: the next one begins when this one is ready."""
        before = self.pids()[process]
        os.kill(before, signal.SIGTERM)
        self.wait(lambda: self.pids()[process] not in (None, before), process)
        ready = f"http://{self.stack['services'][process]['http']}/readyz"
        self.wait(lambda: net.http_ok(ready), process)

    def verify(self):
        done = self.apportion("verify")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.wait(lambda: self.apportion("conservation").returncode == 0, "conservation")

    # A node of its own, beside those of the simulated fleet, which go on beating.

    def agent(self, name):
        command = [sys.executable, str(paths.CHECKOUT / "examples/node.py"), "--name", name,
                   "--stack", str(self.state / "stack.json"), "--descriptors", str(self.descriptors())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait(lambda: self.node(name) == "ready", name)
        return process

    def descriptors(self):
        path = self.state.parent / "apportion.binpb"
        if not path.exists():
            done = self.apportion("schema", "descriptors", "--out", str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def node(self, name):
        rows = (row.split() for row in self.apportion("nodes").stdout.splitlines())
        return next((row[1] for row in rows if row[0] == name), None)

    def states_until_lost(self, name):
        states = []

        def lost():
            states.append(self.node(name))
            return states[-1] == "lost"

        self.wait(lost, name)
        return sorted(set(states), key=states.index)

    def silence_until_suspected(self, agent, name):
        """A leader hears of a raised level half a second later, and suspects nobody while it hears nobody: then once more."""

        def silent():
            os.kill(agent.pid, signal.SIGSTOP)
            self.wait(lambda: self.node(name) in ("suspect", "lost"), f"{name} is still ready")
            suspected = self.node(name) == "suspect"
            os.kill(agent.pid, signal.SIGCONT)
            self.wait(lambda: self.node(name) == "ready", f"{name} is not ready again")
            return suspected

        self.wait(silent, f"{name} is not suspected")

    async def stands_in(self, level):
        """A process of quota of a version that knows less: what it says on its consumer of the ledger."""
        import nats

        creds = Path(self.stack["nats"]["creds"]) / "quota.creds"
        client = await nats.connect(self.stack["nats"]["url"], user_credentials=str(creds))
        stream = f"APPORTION_{self.stack['cell']['name']}_LEDGER"
        metadata = {"apportion_services": "quota", "apportion_instance": "old/1", "apportion_version": "0.0.1",
                    "apportion_level": str(level)}
        config = {"name": "old", "deliver_policy": "all", "ack_policy": "none", "inactive_threshold": 60_000_000_000,
                  "mem_storage": True, "metadata": metadata}
        try:
            made = await client.request(f"$JS.API.CONSUMER.CREATE.{stream}.old",
                                        json.dumps({"stream_name": stream, "config": config}).encode())
            self.assertNotIn("error", json.loads(made.data))
            self.assert_refused(f"feature level {NEWEST} is not known to quota (old/1, knows {level})")
            gone = await client.request(f"$JS.API.CONSUMER.DELETE.{stream}.old", b"")
            self.assertTrue(json.loads(gone.data)["success"])
        finally:
            await client.close()

    def test_all_are_replaced_under_load_then_the_level_is_raised_and_a_silent_node_is_suspected(self):
        processes = [services.process(name, replica) for name in services.NAMES for replica in (1, REPLICAS)]
        acknowledged, stop = [], threading.Event()

        def load():
            while not stop.is_set():
                done = self.apportion("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB")
                if done.returncode == 0:
                    acknowledged.append(done.stdout.split()[0])

        clients = [threading.Thread(target=load) for _ in range(2)]
        for client in clients:
            client.start()
        try:
            for process in processes:
                self.replace(process)
                # However slow the machine is: what stands then acknowledges, with every version beside every other.
                before = len(acknowledged)
                self.wait(lambda: len(acknowledged) > before, f"nothing is acknowledged behind {process}")
        finally:
            stop.set()
            for client in clients:
                client.join()
        self.assertEqual(len(set(acknowledged)), len(acknowledged))
        for allocation in acknowledged:
            told = self.apportion("get", "--tenant", "team-a", allocation)
            self.assertIn(allocation, told.stdout, told.stderr)
        self.verify()

        # Nothing newer than the first level is written meanwhile, whatever happens; then, frames have columns.
        agent = self.agent("before")
        agent.kill()
        self.assertEqual(self.states_until_lost("before"), ["ready", "lost"])

        level, found = self.level()
        self.assertEqual(level, FIRST)
        self.assertEqual(set(found), {(NEWEST, name) for name in services.NAMES})
        asyncio.run(self.stands_in(FIRST))
        absent = [services.process("analytics", replica) for replica in (1, REPLICAS)]
        for process in absent:
            self.control(f"stop {process}")
        self.wait(lambda: (NEWEST, "analytics") not in self.level()[1], "analytics is still listed")
        self.assert_refused("nobody who reads the ledger is analytics")
        for process in absent:
            self.control(f"start {process}")
        self.wait(lambda: (NEWEST, "analytics") in self.level()[1], "analytics is not listed")

        array = ("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB", "--array", "0-1")
        early = self.apportion(*array)
        self.assertNotEqual(early.returncode, 0, early.stdout)
        self.assertIn("2 of 2 were refused", early.stderr)

        running = self.pids()
        done = self.cell("raise")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.level()[0], NEWEST)
        done = self.cell("raise")
        self.assertIn("already", done.stderr)

        # A leader hears of it some time later.
        self.accepted_at_last(*array)
        agent = self.agent("after")
        self.silence_until_suspected(agent, "after")
        agent.kill()
        # Whether it is suspected on its way depends on whether others are heard just then.
        self.assertIn(self.states_until_lost("after"), (["ready", "suspect", "lost"], ["ready", "lost"]))
        self.assertEqual(self.pids(), running)
        self.verify()


if __name__ == "__main__":
    unittest.main()
