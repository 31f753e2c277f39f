"""A bus that comes back without the end of the ledger: services refuse to lead, and a person repairs it."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import net, paths, services

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
COMMAND_TIMEOUT_S = 120
# Against hanging.
PATIENCE_S = 60
APPROVE = re.compile(r"--approve ([0-9a-f]{64})")
SAYS_SO = ("it has lost its end", "it is not the one that was read")


class Repair(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.root.chmod(0o711)
        self.state = self.root / "up"
        self.copy = self.root / "copy"
        self.addCleanup(self.launcher, "down")
        # The ledger is to come to rest: a leader proves twice in a lease that it leads.
        up = self.launcher("up", "--fresh", "--bin-dir", str(PROGRAMS), "--lease-s", "3600")
        self.assertEqual(up.returncode, 0, up.stdout[-4000:] + up.stderr[-4000:])
        self.stack = json.loads((self.state / "stack.json").read_text(encoding="utf-8"))
        self.config = str(self.state / "config" / "bus.toml")

    def launcher(self, *words):
        return subprocess.run([sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state",
                               str(self.state)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)

    def apportion(self, *words):
        return subprocess.run([str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)

    def done(self, *words):
        done = self.apportion(*words)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, *words):
        done = self.apportion(*words)
        self.assertNotEqual(done.returncode, 0, f"{words}: {done.stdout}")
        return done.stdout + done.stderr

    def repair(self, *words):
        return ("repair", "--config", self.config, *words)

    def approve(self, words):
        """A service that tells the others what it has read makes another plan of it, so the next one may be another."""
        approved = None

        def accepted():
            nonlocal approved
            approved = APPROVE.search(self.done(*words))[1]
            return self.apportion(*words, "--approve", approved).returncode == 0

        self.until("no plan holds", accepted)
        return approved

    def control(self, command):
        self.assertEqual(self.answer(command), "ok", command)

    def answer(self, command):
        with socket.socket(socket.AF_UNIX) as launcher:
            launcher.connect(self.stack["control"])
            launcher.sendall(command.encode() + b"\n")
            return launcher.makefile().readline().strip()

    def until(self, what, condition):
        self.assertTrue(net.wait_until(condition, PATIENCE_S, 0.1), what)

    def submit(self):
        return self.done("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB").split()[0]

    def is_ready(self, service):
        return net.http_ok(f"http://{self.stack['services'][service]['http']}/readyz")

    def until_all_ready(self):
        self.until("not every service is ready", lambda: all(map(self.is_ready, services.NAMES)))

    def block(self):
        """The only one that so small a ledger has. Directories elsewhere in the store may go meanwhile."""
        return next(self.state.glob("nats/jetstream/*/streams/APPORTION_*_LEDGER/msgs/1.blk"))

    def cut(self, size):
        """What a disk may do while the server is down."""
        os.truncate(self.block(), size)
        self.block().with_name("index.db").unlink(missing_ok=True)

    def log(self, service):
        return (self.state / "log" / f"{service}.log").read_text(encoding="utf-8")

    def assert_refuses(self, service, since):
        def says_so():
            said = self.log(service)[since:]
            return any(words in said for words in SAYS_SO)

        self.until(f"{service} says nothing", says_so)
        self.assertFalse(self.is_ready(service))

    def grown(self):
        """The ledger's size at a moment, and then some requests that are in all tables, in the feed, and in the copy."""
        self.submit()
        size = self.block().stat().st_size
        allocations = [self.submit() for _ in range(3)]
        for allocation in allocations:
            self.done("cancel", "--tenant", "team-a", allocation)
        before = None

        def settled():
            """Leaders confirm what they have read: the ledger is at rest when two looks, a second apart, find one end."""
            nonlocal before
            self.done("ledger", "copy", "--to", str(self.copy))
            plan = self.apportion(*self.repair("--copy", str(self.copy)))
            reached = re.findall(r"(?:the tables of \w+|the feed|the bill) has read it up to lsn (\d+)", plan.stdout)
            end = re.search(r"ends at lsn (\d+)", plan.stdout)[1]
            before, last = end, before
            return plan.returncode == 0 and len(reached) == 6 and end == last

        self.assertTrue(net.wait_until(settled, PATIENCE_S, 1), "not everybody has read it")
        return size, allocations

    def test_what_was_lost_under_living_services_comes_back_from_a_copy_byte_for_byte(self):
        size, allocations = self.grown()
        self.assertIn("nothing to repair", self.done(*self.repair("--restore", str(self.copy))))
        since = {service: len(self.log(service)) for service in services.NAMES}
        self.control("stop nats")
        self.cut(size)
        self.control("start nats")
        for service in services.NAMES:
            self.assert_refuses(service, since[service])
        self.assertIn("it has lost its end", self.refused("verify"))
        self.assertIn("lacks what is behind lsn", self.refused("ledger", "copy", "--to", str(self.copy)))

        garbage = self.root / "garbage"
        garbage.mkdir()
        (garbage / f"{1:020}.ledger").write_bytes(b"no copy")
        self.assertIn("no copy of a ledger", self.refused(*self.repair("--restore", str(garbage))))

        found = self.refused(*self.repair("--copy", str(self.copy)))
        self.assertIn("BEYOND THE END", found)
        for allocation in allocations:
            self.assertIn(allocation, found)
        restore = self.repair("--restore", str(self.copy))
        self.assertIn("what was approved is not this plan", self.refused(*restore, "--approve", "0" * 64))
        approved = self.approve(restore)

        self.until_all_ready()
        self.assertIn("the copy holds the same", self.done("verify", "--copy", str(self.copy)))
        self.assertIn("nothing to repair", self.done(*restore, "--approve", approved))
        self.submit()
        self.done("verify")

    def test_what_was_lost_under_services_that_were_down_is_given_up_everywhere(self):
        size, allocations = self.grown()
        for service in services.NAMES:
            self.control(f"stop {service}")
        self.control("stop nats")
        self.cut(size)
        self.control("start nats")
        since = {service: len(self.log(service)) for service in services.NAMES}
        for service in services.NAMES:
            # The launcher leaves alone what ends as it is started; what ends later is started again.
            self.answer(f"start {service}")
        for service in services.NAMES:
            self.assert_refuses(service, since[service])

        adopt = self.repair("--adopt-shorter")
        self.assertIn("allocations changed beyond the end", self.done(*adopt))
        self.approve(adopt)
        for service in services.NAMES:
            self.answer(f"start {service}")
        self.until_all_ready()
        for allocation in allocations:
            self.assertIn("has no allocation", self.refused("get", "--tenant", "team-a", allocation))
        self.submit()
        self.done("verify")
        # While a batch is sent, tables are one batch apart.
        self.until("the books do not balance", lambda: self.apportion("conservation").returncode == 0)
        self.assertIn("ledger and copy part", self.refused("verify", "--copy", str(self.copy)))
        self.assertIn("they part at lsn", self.refused("ledger", "copy", "--to", str(self.copy)))
        self.assertIn("parts from the ledger".upper(), self.refused(*self.repair("--copy", str(self.copy))))
        self.assertIn("nothing to repair", self.done(*self.repair()))


if __name__ == "__main__":
    unittest.main()
