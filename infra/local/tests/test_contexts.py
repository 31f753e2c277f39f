"""The command line from any directory: contexts of a user's own, the bus and nothing else."""

import json
import os
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from .support import PROGRAMS, Stack  # The launcher is on the path by it.
from apportion_local import net

TIMEOUT_SECONDS = 60


class Contexts(unittest.TestCase):
    """A user who has creds of a tenant, and no file of the stack."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.stack = Stack(Path(cls.directory.name))
        cls.addClassCleanup(cls.stack.launcher, "down")
        cls.home = Path(cls.directory.name) / "home"
        cls.elsewhere = Path(cls.directory.name) / "elsewhere"
        cls.elsewhere.mkdir()
        for tenant in ("team-a", "team-b"):
            creds = cls.home / f"{tenant}.creds"
            creds.parent.mkdir(exist_ok=True)
            shutil.copy(Path(cls.stack.value["nats"]["creds"]) / f"tenant-{tenant}.creds", creds)

    def ask(self, *words, **environment):
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], **environment}
        return subprocess.run([str(PROGRAMS / "apportion"), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=environment, cwd=self.elsewhere, timeout=TIMEOUT_SECONDS)

    def apportion(self, *words, **environment):
        done = self.ask(*words, **environment)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, code, *words, **environment):
        done = self.ask(*words, **environment)
        self.assertEqual((done.returncode, done.stdout), (code, ""), f"{words}: {done.stderr}")
        return done.stderr

    def place(self):
        return ["--nats-url", self.stack.value["nats"]["url"], "--cell", self.stack.value["cell"]["name"]]

    def set_context(self, tenant):
        self.apportion("context", "set", tenant, *self.place(), "--tenant", tenant, "--creds", f"../home/{tenant}.creds")

    def test_a_tenant_needs_its_creds_and_the_bus_alone_and_sees_its_own_alone(self):
        self.assertIn("no context", self.refused(2, "list"))
        self.set_context("team-a")
        self.set_context("team-b")
        contexts = json.loads(self.apportion("context", "list", "-o", "json"))
        self.assertEqual([(it["name"], it["current"]) for it in contexts], [("team-a", True), ("team-b", False)])
        file = self.home / ".config" / "apportion" / "contexts.toml"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        seed = (self.home / "team-a.creds").read_text(encoding="utf-8").splitlines()[-2]
        self.assertNotIn(seed, self.apportion("context", "show", "-o", "json") + file.read_text(encoding="utf-8"))

        asked = ("submit", "--cpu", "0.5", "--memory", "1Gi", "--name", "mine")
        done = self.ask(*asked, "--wait", "started", "--deadline", "30s")
        self.assertEqual(done.returncode, 0, done.stderr)
        allocation = done.stdout.split()[0]
        # Its operation id is told before it is sent; sent again, it gets the same answer.
        operation = done.stderr.splitlines()[0].removeprefix("operation ")
        self.assertEqual(self.apportion(*asked, "--operation-id", operation).split()[0], allocation)
        self.assertIn("operation conflict", self.refused(3, *asked, "--priority", "1", "--operation-id", operation))
        self.assertIn("say of what", self.refused(2, "submit", "--cpu", "1", "--memory", "16"))
        late = self.ask(*asked, "--wait", "ended", "--deadline", "1s")
        self.assertEqual((late.returncode, late.stderr.splitlines()[-1].split("; ")[-1]), (1, "it goes on"), late.stderr)
        # It has the same name, until it is over.
        late = late.stdout.split()[0]
        self.apportion("cancel", late)
        ended = net.wait_until(
            lambda: json.loads(self.apportion("get", late, "-o", "json"))["state"] == "ended", TIMEOUT_SECONDS)
        self.assertTrue(ended)

        self.assertIn(allocation, self.apportion("get", allocation))
        self.assertIn("0.500 cores", self.apportion("describe", allocation))
        # By its name, or the beginning of one that is nobody else's.
        for words in (["get", "mine"], ["describe", "min"], ["get", allocation[:-1].upper() + allocation[-1]]):
            self.assertIn(allocation, self.apportion(*words))
        second = self.apportion("submit", "--cpu", "0.5", "--memory", "1Gi", "--name", "mine-2", "--after", "mine")
        # Names are of the read model, which has it now.
        self.apportion("get", second.split()[0])
        self.assertIn(allocation, self.apportion("get", "mine"))
        unclear = self.refused(3, "get", "min")
        self.assertRegex(unclear, rf"more than one .*{allocation} \(mine\)")
        self.assertIn("(mine-2)", unclear)
        self.assertIn("no allocation", self.refused(3, "get", "nobody"))
        self.apportion("cancel", "mine-2")
        listed = json.loads(self.apportion("list", "-o", "json"))["allocations"]
        self.assertEqual([it["name"] for it in listed if it["allocation_id"] == allocation], ["mine"])
        for form in ("table", "wide", "yaml", "csv"):
            self.assertIn(allocation, self.apportion("list", "-o", form))
        self.assertIn("accepted", self.apportion("watch", "--once"))
        for words in (["usage"], ["bill"], ["budgets"], ["queue"], ["queues"], ["quota", "tree"], ["quota", "get", "team-a"],
                      ["preemptions"], ["reservations"], ["refusals"], ["job-sets"]):
            self.apportion(*words)
        self.assertIn(allocation, self.apportion("explain", "mine"))

        # Another tenant's creds show nothing of it, by whatever name they are used.
        self.assertEqual(json.loads(self.apportion("--context", "team-b", "list", "--all", "-o", "json"))["allocations"], [])
        self.assertEqual(self.apportion("--context", "team-b", "watch", "--once"), "")
        for words in (["get"], ["describe"], ["explain"], ["logs"], ["cancel"], ["priority", "5"]):
            for name in (allocation, "mine"):
                self.refused(3, "--context", "team-b", *words, name)
        for words in (["list"], ["get", allocation], ["usage"]):
            self.assertIn("Permissions Violation", self.refused(3, "--context", "team-b", *words, "--tenant", "team-a"))

        # What reads databases says so.
        self.assertIn("reads the cell's databases", self.refused(2, "quota", "history", "team-a", "cpu"))
        for words in (["cordon", "n1"], ["nodes"], ["tenants"], ["top", "nodes"], ["node", "describe", "n1"]):
            self.assertIn("for the operator", self.refused(2, *words))

        # A reader that goes away.
        program = PROGRAMS / "apportion"
        done = subprocess.run(["sh", "-c", f"{program} list --all | head -1"], capture_output=True, text=True,
                              env={"HOME": str(self.home), "PATH": os.environ["PATH"]}, timeout=TIMEOUT_SECONDS)
        self.assertEqual((len(done.stdout.splitlines()), done.stderr), (1, ""))

        # The environment goes before the context, and a flag before the environment.
        self.assertIn("connecting to nats://127.0.0.1:1", self.refused(5, "list", APPORTION_NATS_URL="nats://127.0.0.1:1"))
        self.assertEqual(json.loads(self.apportion("list", "-o", "json", APPORTION_CONTEXT="team-b"))["allocations"], [])
        self.assertIn("mine", self.apportion("--context", "team-a", "list", APPORTION_CONTEXT="team-b"))
        self.apportion("context", "use", "team-b")
        self.assertNotIn("mine", self.apportion("list"))
        self.apportion("context", "delete", "team-b")
        self.refused(2, "list")
        url, cell = self.place()[1::2]
        self.assertIn("mine", self.apportion(
            "list", APPORTION_NATS_URL=url, APPORTION_CELL=cell, APPORTION_TENANT="team-a",
            APPORTION_CREDS=str(self.home / "team-a.creds")))
        self.apportion("--context", "team-a", "cancel", allocation)


if __name__ == "__main__":
    unittest.main()
