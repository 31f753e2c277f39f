"""A bus that comes back without the end of the ledger: services refuse to lead, and an operator repairs it."""

import os
import re
import unittest

import pytest

from apportion_local import services

from .support import Stack, wait

pytestmark = pytest.mark.fault

APPROVE = re.compile(r"--approve ([0-9a-f]{64})")
REFUSALS = ("it has lost its end", "it is not the one that was read")


class Repair(unittest.TestCase):
    def setUp(self):
        # The ledger has to come to rest, but a leader writes to it twice in a lease.
        self.stack = Stack("--lease-s", "3600")
        self.addCleanup(self.stack.close)
        self.done, self.refused = self.stack.apportion, self.stack.refused
        self.copy = self.stack.root / "copy"

    def repair(self, *words):
        return ("repair", "--config", self.stack.state / "config" / "bus.toml", *words)

    def approve(self, words):
        """A service that reports its progress meanwhile changes the plan, so the next one may be another."""
        approved = None

        def accepted():
            nonlocal approved
            approved = APPROVE.search(self.done(*words))[1]
            return self.stack.ask(*words, "--approve", approved).returncode == 0

        wait(accepted, "a plan is approved")
        return approved

    def block(self):
        """The only block of so small a ledger. Other directories of the store may disappear meanwhile."""
        return next(self.stack.state.glob("nats/jetstream/*/streams/APPORTION_*_LEDGER/msgs/1.blk"))

    def cut(self, size):
        """A loss on the disk while the server is down."""
        os.truncate(self.block(), size)
        self.block().with_name("index.db").unlink(missing_ok=True)

    def logged(self):
        """The length of each service's log."""
        return {service: len(self.stack.log(service)) for service in services.NAMES}

    def assert_refuses(self, service, since):
        wait(lambda: any(words in self.stack.log(service)[since:] for words in REFUSALS), f"{service} refuses")
        self.assertFalse(self.stack.is_ready(service))

    def grown(self):
        """The ledger's size, and allocations that came after it. They are in all tables, in the feed, and in the copy."""
        self.stack.submit()
        size = self.block().stat().st_size
        allocations = [self.stack.submit() for _ in range(3)]
        for allocation in allocations:
            self.done("cancel", "--tenant", "team-a", allocation)
        before = None

        def settled():
            """Leaders write how far they have read. The ledger is at rest if its end is the same a second later."""
            nonlocal before
            self.done("ledger", "copy", "--to", self.copy)
            plan = self.stack.ask(*self.repair("--copy", self.copy))
            reached = re.findall(r"(?:the tables of \w+|the feed|the bill) has read it up to lsn (\d+)", plan.stdout)
            end = re.search(r"ends at lsn (\d+)", plan.stdout)[1]
            before, last = end, before
            return plan.returncode == 0 and len(reached) == 6 and end == last

        wait(settled, lambda: self.refused(*self.repair("--copy", self.copy)), interval_s=1)
        return size, allocations

    def test_what_was_lost_under_living_services_comes_back_from_a_copy_byte_for_byte(self):
        size, allocations = self.grown()
        self.assertIn("nothing to repair", self.done(*self.repair("--restore", self.copy)))
        since = self.logged()
        self.stack.control("stop nats")
        self.cut(size)
        self.stack.control("start nats")
        for service in services.NAMES:
            self.assert_refuses(service, since[service])
        self.assertIn("it has lost its end", self.refused("verify"))
        self.assertIn("lacks what is behind lsn", self.refused("ledger", "copy", "--to", self.copy))

        garbage = self.stack.root / "garbage"
        garbage.mkdir()
        (garbage / f"{1:020}.ledger").write_bytes(b"no copy")
        self.assertIn("no copy of a ledger", self.refused(*self.repair("--restore", garbage)))

        found = self.refused(*self.repair("--copy", self.copy))
        self.assertIn("BEYOND THE END", found)
        for allocation in allocations:
            self.assertIn(allocation, found)
        restore = self.repair("--restore", self.copy)
        self.assertIn("what was approved is not this plan", self.refused(*restore, "--approve", "0" * 64))
        approved = self.approve(restore)

        self.stack.until_ready()
        self.assertIn("the copy holds the same", self.done("verify", "--copy", self.copy))
        self.assertIn("nothing to repair", self.done(*restore, "--approve", approved))
        self.stack.submit()
        self.stack.verify()

    def test_what_was_lost_under_services_that_were_down_is_given_up_everywhere(self):
        size, allocations = self.grown()
        for service in services.NAMES:
            self.stack.control(f"stop {service}")
        self.stack.control("stop nats")
        self.cut(size)
        self.stack.control("start nats")
        since = self.logged()
        for service in services.NAMES:
            # The launcher does not restart a process that ends while it starts. One that ends later is restarted.
            self.stack.answer(f"start {service}")
        for service in services.NAMES:
            self.assert_refuses(service, since[service])

        adopt = self.repair("--adopt-shorter")
        self.assertIn("allocations changed beyond the end", self.done(*adopt))
        self.approve(adopt)
        for service in services.NAMES:
            self.stack.answer(f"start {service}")
        self.stack.until_ready()
        for allocation in allocations:
            self.assertIn("has no allocation", self.refused("get", "--tenant", "team-a", allocation))
        self.stack.submit()
        self.stack.verify()
        self.assertIn("ledger and copy part", self.refused("verify", "--copy", self.copy))
        self.assertIn("they part at lsn", self.refused("ledger", "copy", "--to", self.copy))
        self.assertIn("parts from the ledger".upper(), self.refused(*self.repair("--copy", self.copy)))
        self.assertIn("nothing to repair", self.done(*self.repair()))
