"""`up` after a launcher was killed, and after `down`: the data is there again."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import pytest

from apportion_local import cli, kept, net, paths, postgres, services, sizes
from apportion_local.paths import StackError, StateDir

from .support import Stack, wait


@pytest.mark.fault
class Up(unittest.TestCase):
    """A whole stack. Started as root, its servers run as other users, which may be shut out of the state directory."""

    def stacks(self, mode):
        self.stack = Stack(mode=mode, up=False)
        self.addCleanup(self.stack.close)

    def up(self, *options):
        """What the launcher printed, and the file that describes the stack."""
        printed, value = self.stack.up(*options), self.stack.value
        for word in passwords(value):
            self.assertNotIn(word, printed)
        return printed, value

    def submit(self, tenant="team-a"):
        return self.stack.submit(tenant=tenant, cpu="4", memory="16GiB")

    def assert_there(self, allocation):
        wait(lambda: allocation in self.stack.ask("get", "--tenant", "team-a", allocation).stdout, f"{allocation} is there")

    def kill_all(self):
        """By pid, the launcher first, so that it restarts none."""
        launcher = int((self.stack.state / "launcher.pid").read_text(encoding="utf-8"))
        for pid in [launcher, *(child["pid"] for child in self.stack.supervised().values() if child["pid"])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def test_what_was_submitted_outlives_a_kill_of_everything(self):
        self.stacks(mode=0o711)
        _, first = self.up()
        allocation = self.submit()
        self.stack.apportion("quota", "set", "team-a", "gpu", "7")
        self.kill_all()
        printed, second = self.up()
        self.assertIn("Going on", printed)
        for value in (first, second):
            del value["pids"]
        self.assertEqual(first, second)
        self.assert_there(allocation)
        # The launcher's own limits are not set a second time. Quota shows a limit when it has read it.
        wait(lambda: re.search(r"(?m)^gpu \S+ +7\.000 ", self.stack.apportion("quota", "get", "team-a")),
             lambda: self.stack.apportion("quota", "get", "team-a"))
        self.stack.apportion("verify")
        self.assertNotEqual(self.submit(), allocation)
        self.assertTrue((self.stack.state / "log.before" / "scheduler.log").exists())

        printed, _ = self.up()
        self.assertIn("already runs", printed)
        self.assertEqual(self.stack.launcher("up", "--fresh").returncode, 1)
        self.assert_there(allocation)

        self.stack.down()
        other = self.stack.launcher("up", "--tenants", "3")
        self.assertEqual(other.returncode, 1)
        self.assertIn("--fresh", other.stdout)
        printed, third = self.up("--fresh")
        self.assertNotIn("Going on", printed)
        self.assertNotIn(allocation, self.stack.ask("get", "--tenant", "team-a", allocation).stdout)
        self.assertFalse(set(passwords(first)) & set(passwords(third)))

    def test_creds_are_replaced_and_tenants_come_and_go_while_it_runs(self):
        self.stacks(mode=0o711)
        self.up()
        bus_dir = ("--dir", self.stack.state / "bus")

        def processes():
            return {name: (child["pid"], child["restarts"]) for name, child in self.stack.supervised().items()}

        before = processes()
        # A party that is cut off connects again with the new file.
        for party in (*services.NAMES, "operator", "tenant:team-a", "fleet"):
            self.stack.apportion("bus", "rotate", party, *bus_dir)
        self.stack.until_ready()
        self.assert_there(self.submit())
        self.stack.apportion("bus", "tenant", "add", "team-c", *bus_dir)
        self.stack.apportion("tenant", "team-c")
        self.stack.apportion("quota", "set", "team-c", "cpu", "64")
        self.stack.apportion("quota", "set", "team-c", "memory", "1TiB")
        self.submit(tenant="team-c")
        self.stack.apportion("bus", "tenant", "remove", "team-b", *bus_dir)
        self.assertEqual(processes(), before)
        # The same after a restart.
        self.stack.down()
        self.up()
        self.submit(tenant="team-c")
        self.assertFalse(list((self.stack.state / "bus").rglob("*team-b*")))

    def test_data_that_lies_elsewhere_goes_on_and_what_was_swept_away_is_filled_again(self):
        self.stacks(mode=0o700)
        self.up()
        allocation = self.submit()
        self.kill_all()
        self.up()
        self.assert_there(allocation)
        self.stack.down()
        if os.geteuid() == 0:
            self.assertTrue((self.stack.state / ("postgres" + paths.ELSEWHERE)).exists())
        for note in self.stack.state.glob("*" + paths.ELSEWHERE):
            paths.remove(paths.elsewhere(note))
        self.up()
        self.assert_there(allocation)


def passwords(value):
    """The users' passwords in a stack.json."""
    text = json.dumps(value)
    return re.findall(r'"password": "(\w+)"', text) + re.findall(r"postgres://\w+:(\w+)@", text)


@pytest.mark.fast
class States(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "s"

    def fill(self):
        state = StateDir(self.path, traversable=False, lasting=True)
        (state.path / "nats").mkdir()
        (state.path / "config" / "old").touch()
        state.log("nats").write_text("then", encoding="utf-8")
        things = kept.Kept(state)
        things.begin({"cell": "local"})
        state.close("everything")
        return things

    def test_data_stays_logs_step_back_and_the_rest_is_made_anew(self):
        self.fill()
        state = StateDir(self.path, traversable=False, lasting=True, fresh=False)
        self.addCleanup(state.close, "nothing")
        self.assertTrue((self.path / "nats").exists())
        self.assertFalse((self.path / "config" / "old").exists())
        self.assertEqual((self.path / "log.before" / "nats.log").read_text(encoding="utf-8"), "then")
        self.assertEqual(kept.Kept(state).stack(), {"cell": "local"})

    def test_a_fresh_one_has_nothing_of_the_last(self):
        self.fill()
        note = self.path / ("postgres" + paths.ELSEWHERE)
        directory = Path(tempfile.mkdtemp(prefix="apportion-test-"))
        note.write_text(f"{directory}\n", encoding="utf-8")
        state = StateDir(self.path, traversable=False, lasting=True)
        self.addCleanup(state.close, "nothing")
        self.assertEqual(sorted(entry.name for entry in self.path.iterdir()), ["config", "lock", "log", "pids"])
        self.assertFalse(directory.exists())

    def test_passwords_and_free_ports_are_the_same_again(self):
        first = self.fill()
        words, port, taken = first.passwords("nats", ["a", "b"]), first.port("nats"), first.port("postgres")
        net._given.discard(port)
        state = StateDir(self.path, traversable=False, lasting=True, fresh=False)
        self.addCleanup(state.close, "nothing")
        second = kept.Kept(state)
        self.assertEqual(second.passwords("nats", ["b", "a"]), words)
        self.assertEqual(second.port("nats"), port)
        self.assertNotEqual(second.port("postgres"), taken)
        self.assertEqual(second.path.stat().st_mode & 0o777, 0o600)

    def test_a_broken_memory_is_said_and_not_thrown_away(self):
        self.fill().path.write_text("{", encoding="utf-8")
        state = StateDir(self.path, traversable=False, lasting=True, fresh=False)
        self.addCleanup(state.close, "nothing")
        with self.assertRaisesRegex(StackError, "FRESH=1"):
            kept.Kept(state)

    def test_a_run_leaves_nothing_to_go_on_with(self):
        state = StateDir(self.path, traversable=False)
        self.addCleanup(state.close, "nothing")
        kept.Kept(state).begin({"cell": "local"})
        self.assertFalse((self.path / kept.FILE).exists())

    def test_processes_that_still_use_the_directory_are_waited_for(self):
        self.fill()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"{self.path}/nats"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        (self.path / "pids" / "nats.pid").write_text(f"{child.pid}\n", encoding="utf-8")
        wait(lambda: paths.names(child.pid, self.path), "the child runs")
        self.assertFalse(paths.names(os.getpid(), self.path))
        with unittest.mock.patch.object(paths, "LEFTOVERS_END_S", 0.2):
            with self.assertRaisesRegex(StackError, str(child.pid)):
                StateDir(self.path, traversable=False, lasting=True, fresh=False)
        self.assertTrue((self.path / "nats").exists())
        child.kill()
        child.wait()
        StateDir(self.path, traversable=False, lasting=True, fresh=False).close("nothing")

    def test_another_stack_is_not_made_of_the_one_that_is_there(self):
        for words in (["--tenants", "2"], ["--cell", "x"], ["--operation-window-s", "5"], ["--lease-s", "5"]):
            options = cli.parser().parse_args(["up", "--state", str(self.path), *words])
            with self.assertRaisesRegex(StackError, words[0]):
                cli.refuse_other(options)


@pytest.mark.fast
class Connections(unittest.TestCase):
    def test_no_role_takes_every_connection_and_all_fit(self):
        roles = {name: "pw" for name in (*postgres.SCHEMAS, postgres.READER)}
        limits = re.findall(r"CREATE ROLE (\w+) LOGIN CONNECTION LIMIT (\d+) ", postgres.roles_sql(roles, False))
        self.assertEqual({role for role, _ in limits}, set(roles))
        # Postgres keeps three for the superuser.
        self.assertLessEqual(sum(int(limit) for _, limit in limits), sizes.CONNECTIONS - 3)
