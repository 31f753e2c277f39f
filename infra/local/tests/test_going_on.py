"""`up` after a launcher that was killed, and after `down`: what was there is there."""

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

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import cli, kept, net, paths, postgres, services
from apportion_local.paths import StackError, StateDir

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
TIMEOUT_SECONDS = 120


class Up(unittest.TestCase):
    """The whole stack, by its command line."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        # Passable or not: under root servers run as users who may be shut out, and then their data lies elsewhere.
        self.root = Path(directory.name)
        self.state = self.root / "up"
        self.addCleanup(self.forget)

    def forget(self):
        self.launcher("down")
        for note in self.state.glob("*" + paths.ELSEWHERE):
            paths.remove(paths.elsewhere(note))

    def launcher(self, *words):
        options = ["--bin-dir", str(PROGRAMS)] if words[0] == "up" else []
        return subprocess.run(
            [sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state", str(self.state), *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def up(self, *options):
        done = self.launcher("up", *options)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        value = json.loads((self.state / "stack.json").read_text(encoding="utf-8"))
        for word in passwords(value):
            self.assertNotIn(word, done.stdout + done.stderr)
        return done.stdout, value

    def apportion(self, *words):
        return subprocess.run([str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def submit(self):
        done = self.apportion("submit", "--tenant", "team-a", "--cpu", "4", "--memory", "16GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()[0]

    def assert_there(self, allocation):
        found = net.wait_until(lambda: allocation in self.apportion("get", "--tenant", "team-a", allocation).stdout, 20)
        self.assertTrue(found, allocation)

    def kill_all(self):
        """By pid, the launcher first: nobody restarts the rest."""
        launcher = int((self.state / "launcher.pid").read_text(encoding="utf-8"))
        supervised = json.loads((self.state / "supervisor.json").read_text(encoding="utf-8"))
        for pid in [launcher, *(child["pid"] for child in supervised.values() if child["pid"])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def test_what_was_submitted_outlives_a_kill_of_everything(self):
        self.root.chmod(0o711)
        _, first = self.up()
        allocation = self.submit()
        self.assertEqual(self.apportion("quota", "set", "team-a", "gpu", "7").returncode, 0)
        self.kill_all()
        told, second = self.up()
        self.assertIn("Going on", told)
        for value in (first, second):
            del value["pids"]
        self.assertEqual(first, second)
        self.assert_there(allocation)
        # What a person has set is not set back. It is shown once quota has said that it has read it.
        def limited():
            return re.search(r"(?m)^gpu \S+ +7\.000 ", self.apportion("quota", "get", "team-a").stdout)

        self.assertTrue(net.wait_until(limited, 20), self.apportion("quota", "get", "team-a").stdout)
        self.assertEqual(self.apportion("verify").returncode, 0)
        self.assertNotEqual(self.submit(), allocation)
        self.assertTrue((self.state / "log.before" / "scheduler.log").exists())

        told, _ = self.up()
        self.assertIn("already runs", told)
        self.assertEqual(self.launcher("up", "--fresh").returncode, 1)
        self.assert_there(allocation)

        self.assertEqual(self.launcher("down").returncode, 0)
        other = self.launcher("up", "--tenants", "3")
        self.assertEqual(other.returncode, 1)
        self.assertIn("--fresh", other.stdout)
        told, third = self.up("--fresh")
        self.assertNotIn("Going on", told)
        self.assertNotIn(allocation, self.apportion("get", "--tenant", "team-a", allocation).stdout)
        self.assertFalse(set(passwords(first)) & set(passwords(third)))

    def test_creds_are_replaced_and_tenants_come_and_go_while_it_runs(self):
        _, value = self.up()
        bus_dir = str(self.state / "bus")

        def supervised():
            return json.loads((self.state / "supervisor.json").read_text(encoding="utf-8"))

        before = {name: (child["pid"], child["restarts"]) for name, child in supervised().items()}
        # Whoever is cut off comes back by the new file.
        for party in (*services.NAMES, "operator", "tenant:team-a", "fleet"):
            done = self.apportion("bus", "rotate", party, "--dir", bus_dir)
            self.assertEqual(done.returncode, 0, done.stderr)
        ready = [f"http://{service['http']}/readyz" for service in value["services"].values()]
        self.assertTrue(net.wait_until(lambda: all(map(net.http_ok, ready)), 20))
        self.assert_there(self.submit())
        for words in (("bus", "tenant", "add", "team-c", "--dir", bus_dir), ("tenant", "team-c"),
                      ("quota", "set", "team-c", "cpu", "64"), ("quota", "set", "team-c", "memory", "1TiB")):
            done = self.apportion(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
        request = ("submit", "--tenant", "team-c", "--cpu", "4", "--memory", "16GiB")
        done = self.apportion(*request)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.apportion("bus", "tenant", "remove", "team-b", "--dir", bus_dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({name: (child["pid"], child["restarts"]) for name, child in supervised().items()}, before)
        # It stays so.
        self.launcher("down")
        self.up()
        self.assertEqual(self.apportion(*request).returncode, 0)
        self.assertFalse(list((self.state / "bus").rglob("*team-b*")))

    def test_data_that_lies_elsewhere_goes_on_and_what_was_swept_away_is_filled_again(self):
        self.root.chmod(0o700)
        self.up()
        allocation = self.submit()
        self.kill_all()
        self.up()
        self.assert_there(allocation)
        self.launcher("down")
        if os.geteuid() == 0:
            self.assertTrue((self.state / ("postgres" + paths.ELSEWHERE)).exists())
        for note in self.state.glob("*" + paths.ELSEWHERE):
            paths.remove(paths.elsewhere(note))
        self.up()
        self.assert_there(allocation)


def passwords(value):
    """Of the users in a stack.json."""
    text = json.dumps(value)
    return re.findall(r'"password": "(\w+)"', text) + re.findall(r"postgres://\w+:(\w+)@", text)


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
        self.assertTrue(net.wait_until(lambda: paths.names(child.pid, self.path), 5))
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


class Connections(unittest.TestCase):
    def test_no_role_takes_every_connection_and_all_fit(self):
        roles = {name: "pw" for name in (*postgres.SCHEMAS, postgres.READER)}
        limits = re.findall(r"CREATE ROLE (\w+) LOGIN CONNECTION LIMIT (\d+) ", postgres.roles_sql(roles, False))
        self.assertEqual({role for role, _ in limits}, set(roles))
        # Postgres keeps three for the superuser.
        self.assertLessEqual(sum(int(limit) for _, limit in limits), postgres.CONNECTIONS_MAX - 3)


if __name__ == "__main__":
    unittest.main()
