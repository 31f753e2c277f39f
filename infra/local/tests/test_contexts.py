"""The command line from any directory, with a user's own contexts, and with the bus alone."""

import contextlib
import csv
import io
import json
import os
import pty
import shutil
import stat
import subprocess
import termios
import unittest

import pytest

from apportion_local import net, wheels

from .support import COMMAND_TIMEOUT_S, PATIENCE_S, PORT_ATTEMPTS, PROGRAMS, Home, Stack, wait

pytestmark = pytest.mark.system


class Contexts(unittest.TestCase):
    """A user that has creds of a tenant, and no file of the stack. Tests share the stack, and each deletes its contexts."""

    @classmethod
    def setUpClass(cls):
        cls.stack = Stack()
        cls.addClassCleanup(cls.stack.close)
        cls.home, cls.elsewhere = cls.stack.root / "home", cls.stack.root / "elsewhere"
        cls.home.mkdir()
        cls.elsewhere.mkdir()
        for tenant in ("team-a", "team-b"):
            shutil.copy(cls.stack.creds(f"tenant-{tenant}"), cls.home / f"{tenant}.creds")

    def ask(self, *words, **environment):
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], **environment}
        return subprocess.run([str(PROGRAMS / "apportion"), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=environment, cwd=self.elsewhere, timeout=COMMAND_TIMEOUT_S)

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

    def test_what_operators_with_names_set_says_who_set_it(self):
        bus_dir = self.stack.creds("operator").parents[1]
        file = str(self.stack.state / "stack.json")

        def bus(*words):
            return self.apportion("--stack", file, "bus", *words, "--dir", str(bus_dir))

        for name in ("alice", "bob"):
            creds = bus("operator", "add", name).removeprefix(f"operator {name}: ").strip()
            shutil.copy(creds, self.home / f"{name}.creds")
        # One has a context. The other replaces its creds on the command line.
        self.apportion("context", "set", "alice", *self.place(), "--creds", "../home/alice.creds")
        self.addCleanup(self.apportion, "context", "delete", "alice")
        self.assertIn("operator alice", self.apportion("context", "show", "alice"))
        by_alice, by_bob = ("--context", "alice"), ("--context", "alice", "--creds", "../home/bob.creds")
        self.apportion(*by_alice, "quota", "set", "team-b", "cpu", "200")
        self.apportion(*by_bob, "quota", "set", "team-b", "gpu", "16")
        self.apportion("--stack", file, "--creds", "../home/bob.creds", "cordon", "this-machine", "--unknown")
        self.apportion(*by_bob, "uncordon", "this-machine", "--unknown")
        self.apportion(*by_bob, "rates", "set", "gpu:T4", "3")

        def until_listed(expected, *words):
            """The read model follows the ledger."""
            def listed():
                rows = json.loads(self.apportion(*by_bob, *words, "-o", "json"))["items"]
                return {it["key" if "key" in it else "resource"]: it["by"] for it in rows}

            wait(lambda: expected.items() <= listed().items(), lambda: f"{expected} in {listed()}")

        until_listed({"gpu:T4": "bob", "cpu": None}, "rates", "list")
        until_listed({"team-b cpu": "alice", "team-b gpu": "bob", "team-b memory": None},
                     "settings", "list", "quota", "--prefix", "team-b ")
        self.assertRegex(self.apportion(*by_alice, "settings", "list", "-o", "wide"), r"(?m)^kind .* by +value$")
        self.assertIn("by alice's operation", self.apportion(*by_alice, "settings", "get", "quota", "team-b", "cpu"))
        # The form for `apply` does not have it.
        self.assertNotIn("alice", self.apportion(*by_alice, "settings", "get", "quota", "team-b", "cpu", "-o", "yaml"))

        bus("operator", "remove", "alice")
        self.refused(3, *by_alice, "quota", "set", "team-b", "cpu", "1")
        self.apportion(*by_bob, "quota", "set", "team-b", "cpu", "256")
        until_listed({"team-b cpu": "bob"}, "settings", "list", "quota", "--prefix", "team-b cpu")

    def test_a_command_reads_what_the_commands_before_it_have_changed(self):
        self.apportion("context", "set", "operator", *self.place(), "--creds", str(self.stack.creds("operator")))
        self.addCleanup(self.apportion, "context", "delete", "operator")
        self.set_context("team-b")
        self.addCleanup(self.apportion, "context", "delete", "team-b")
        operator, tenant = ("--context", "operator"), ("--context", "team-b")
        file = self.home / "own-writes.yaml"
        for round_ in range(1, 9):
            with self.subTest(round=round_):
                self.apportion(*operator, "quota", "set", "team-b/own", "pods", str(round_))
                found = json.loads(self.apportion(*tenant, "quota", "get", "team-b/own", "-o", "json"))
                self.assertEqual([it["limits"]["hard"] for it in found["resources"] if it["resource"] == "pods"], [round_], found)

                file.write_text(f"kind: Cordon\nnode: own-{round_}\n---\nkind: Queue\nqueue: own\nweight: {round_}\n", "utf-8")
                self.apportion(*operator, "apply", "-f", str(file))
                found = json.loads(self.apportion(*operator, "settings", "get", "queue", "own", "-o", "json"))
                self.assertEqual(float(found["weight"]), round_, found)
                # Applied settings are not applied again, and a new change is one of the newest version.
                self.assertIn("2 unchanged", self.apportion(*operator, "apply", "-f", str(file)))
                file.write_text(f"kind: Queue\nqueue: own\nweight: {round_}.5\n", "utf-8")
                self.apportion(*operator, "apply", "-f", str(file))

                identifier = f"own-writes-{round_}"
                self.refused(3, *operator, "reserve", "own", "--queue", "nosuch", "--until", "2099-01-01T00:00:00Z", "--nodes", "1",
                             "--operation-id", identifier)
                found = json.loads(self.apportion(*operator, "refusals", "-o", "json"))
                self.assertIn(identifier, [it["operation_id"] for it in found["items"]], found)

    def test_an_operator_changes_what_it_names_and_reads_what_a_tenant_has(self):
        creds = self.stack.creds("operator")
        self.apportion("context", "set", "operator", *self.place(), "--creds", str(creds))
        self.addCleanup(self.apportion, "context", "delete", "operator")
        by_operator = ("--context", "operator")

        def settings():
            return json.loads(self.apportion(*by_operator, "settings", "get", "tenant", "team-a", "-o", "json"))

        before = settings()
        # Each sees the change before it, although the read model follows the ledger.
        changes = (["--backlog", "9000"], ["--priority-max", "7"], ["--weight", "3"], ["--clear", "priority-max"], ["--closed=false"])
        for change in changes:
            self.apportion(*by_operator, "tenant", "team-a", *change)
        expected = {**before, "backlog": 9000, "weight": 3}
        wait(lambda: settings() == expected, lambda: f"{settings()} is {expected}")
        self.assertIn("fields are cohort", self.refused(2, *by_operator, "tenant", "team-a", "--clear", "nosuch"))
        stale = self.refused(3, *by_operator, "tenant", "team-a", "--weight", "4", "--expected-version", "1")
        self.assertIn("version conflict", stale)
        self.assertIn("no version 99", self.refused(3, *by_operator, "tenant", "team-a", "--weight", "4", "--expected-version", "99"))
        # Sent again with its operation ID, it gets the same answer, and is not done twice.
        again = (*by_operator, "tenant", "team-a", "--weight", "5", "--operation-id", "of-weight", "-o", "json")
        self.assertEqual(self.apportion(*again), self.apportion(*again))
        self.apportion(*by_operator, "tenant", "team-a", "--weight", "3")
        self.assertIn("operation conflict", self.refused(3, *again))

        # An unknown node needs an option.
        for words in (["cordon"], ["uncordon"], ["drain"], ["taint"]):
            self.assertIn("no such node", self.refused(3, *by_operator, *words, "nosuch"))
        self.apportion(*by_operator, "taint", "to-come", "new:NoSchedule", "--unknown")

        self.set_context("team-a")
        self.addCleanup(self.apportion, "context", "delete", "team-a")
        allocation = self.apportion("--context", "team-a", "submit", "--cpu", "0.5", "--memory", "1Gi").split()[0]
        self.apportion("--context", "team-a", "get", allocation)
        of_team = (*by_operator, "list", "--tenant", "team-a", "-o", "json")
        wait(lambda: allocation in self.apportion(*of_team), "the operator's list has it")
        for words in (["get"], ["describe"], ["explain"]):
            self.assertIn(allocation, self.apportion(*by_operator, *words, "--tenant", "team-a", allocation))
        self.apportion(*by_operator, "queue", "team-a")
        self.assertIn("--tenant", self.refused(2, *by_operator, "list"))
        # Only the tenant changes its allocations.
        self.assertIn("acts as an operator", self.refused(2, *by_operator, "cancel", "--tenant", "team-a", allocation))

        # It repeats until its reader is gone.
        watch = f"{PROGRAMS / 'apportion'} --context team-a list --watch=500ms -o csv | head -4"
        done = subprocess.run(["sh", "-c", watch], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S,
                              env={"HOME": str(self.home), "PATH": os.environ["PATH"]})
        lines = done.stdout.splitlines()
        self.assertEqual((len(lines), done.stderr), (4, ""))
        self.assertGreater(lines.count(lines[0]), 1)
        self.apportion("--context", "team-a", "cancel", allocation)

    def test_a_team_that_is_not_on_the_list_is_refused_and_told(self):
        creds = self.stack.creds("operator")
        self.apportion("context", "set", "of-teams", *self.place(), "--creds", str(creds))
        self.addCleanup(self.apportion, "context", "delete", "of-teams")
        by_operator, by_tenant = ("--context", "of-teams"), ("--context", "team-c")
        # Other tests use the other tenants.
        self.stack.apportion("bus", "tenant", "add", "team-c", "--dir", creds.parents[1])
        shutil.copy(self.stack.creds("tenant-team-c"), self.home / "team-c.creds")
        self.set_context("team-c")
        self.addCleanup(self.apportion, "context", "delete", "team-c")
        task = ("submit", "--cpu", "0.5", "--memory", "1Gi", "--account")

        self.apportion(*by_operator, "tenant", "team-c", "--team", "ml", "--team", "web/front")
        self.apportion(*by_operator, "quota", "set", "team-c", "cpu", "4")
        self.apportion(*by_operator, "quota", "set", "team-c", "memory", "8GiB")
        for account in ("team-c", "team-c/ml/train", "team-c/web/front"):
            self.apportion(*by_tenant, *task, account)
        refused = self.refused(3, *by_tenant, *task, "team-c/lm")
        self.assertIn("team unknown: team", refused)
        self.assertIn("among the teams of team-c, which are ml, web/front; did you mean ml?", refused)
        # The tenant reads the list, and only its own settings, as does an operator that asks for the tenant.
        self.assertIn("its teams are ml, web/front", self.apportion(*by_tenant, "quota", "get", "team-c"))
        self.assertIn("did you mean ml?", self.apportion(*by_tenant, "quota", "get", "team-c/lm"))
        own = json.loads(self.apportion(*by_tenant, "settings", "get", "tenant", "team-c", "-o", "json"))
        self.assertEqual(own["teams"], ["ml", "web/front"])
        listed = self.apportion(*by_tenant, "settings", "list", "-o", "csv")
        self.assertEqual({row["key"] for row in csv.DictReader(io.StringIO(listed)) if row["kind"] != "priority-class"},
                         {"team-c", "team-c cpu", "team-c memory"})
        self.assertEqual(self.apportion(*by_operator, "settings", "list", "--tenant", "team-c", "-o", "csv"), listed)
        self.assertIn("others are for the operator", self.refused(2, *by_tenant, "settings", "list", "queue"))
        self.assertIn("team-a", self.apportion(*by_operator, "settings", "export", "tenant"))
        self.assertIn("team unknown: namespace", self.refused(3, *by_tenant, *task, "team-c/web/back"))
        self.assertIn("team unknown: team", self.refused(3, *by_operator, "quota", "set", "team-c/lm", "gpu", "1"))
        self.assertIn("priority class unknown", self.refused(3, *by_operator, "tenant", "team-c", "--class", "nosuch"))

        file = self.home / "teams.yaml"
        file.write_text("{kind: Quota, account: team-c/lm, resource: gpu, hard: 1}")
        plan = ("plan", "-f", "../home/teams.yaml")
        self.assertIn("teams.yaml:1: document 1, Quota: account: it is not among the teams of team-c, which are ml, web/front; did",
                      self.refused(2, *by_operator, *plan))
        # In any order of the documents.
        file.write_text(file.read_text() + "\n---\n{kind: Tenant, tenant: team-c, teams: [ml, lm, web/front]}\n")
        self.apportion(*by_operator, "apply", "-f", "../home/teams.yaml")
        self.apportion(*by_tenant, *task, "team-c/lm")
        self.assertIn("nothing to change", self.apportion(*by_operator, *plan))

        # One operation ID stands for an array or a file.
        self.apportion(*by_tenant, *task, "team-c/ml", "--array", "0-1", "--operation-id", "of-array")
        became = ("operation", "of-array", "--array", "0-2", "-o", "json")
        became = [(it["of"], it["state"], it["outcome"]) for it in json.loads(self.apportion(*by_tenant, *became))["items"]]
        self.assertEqual(became, [("0", "decided", "accepted"), ("1", "decided", "accepted"), ("2", "unknown", None)])
        file.write_text("{name: x, cpu: 0.1, memory: 64Mi, account: ml}\n---\n{name: y, cpu: 0.1, memory: 64Mi, after: x, account: ml}\n")
        self.apportion(*by_tenant, "submit", "--file", "../home/teams.yaml", "--operation-id", "of-file")
        became = json.loads(self.apportion(*by_tenant, "operation", "of-file", "--file", "../home/teams.yaml", "-o", "json"))["items"]
        self.assertEqual([(it["of"], it["state"]) for it in became], [("x", "decided"), ("y", "decided")])

        # A refusal of admission has the verb and the subject of the request.
        def refusals():
            refusals = json.loads(self.apportion(*by_operator, "refusals", "-o", "json"))["items"]
            return {(it["verb"], it["rule"], it["subject"]) for it in refusals}

        expected = {(verb, "team_unknown", subject)
                    for verb, subject in (("submit", "team"), ("submit", "namespace"), ("set_quota", "team"))}
        wait(lambda: expected <= refusals(), lambda: f"{expected} in {refusals()}")
        self.assertIn("did you mean team-c?", self.refused(3, *by_operator, "bill", "--tenant", "teamc"))

    def test_a_tenant_needs_its_creds_and_the_bus_alone_and_sees_its_own_alone(self):
        self.assertIn("no context", self.refused(2, "list"))
        self.set_context("team-a")
        self.set_context("team-b")
        contexts = json.loads(self.apportion("context", "list", "-o", "json"))["items"]
        self.assertEqual([(it["name"], it["current"]) for it in contexts], [("team-a", True), ("team-b", False)])
        file = self.home / ".config" / "apportion" / "contexts.toml"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        seed = (self.home / "team-a.creds").read_text(encoding="utf-8").splitlines()[-2]
        self.assertNotIn(seed, self.apportion("context", "show", "-o", "json") + file.read_text(encoding="utf-8"))

        asked = ("submit", "--cpu", "0.5", "--memory", "1Gi", "--name", "mine")
        done = self.ask(*asked, "--wait", "started", "--deadline", f"{PATIENCE_S}s")
        self.assertEqual(done.returncode, 0, done.stderr)
        allocation = done.stdout.split()[0]
        # The operation ID is printed before the request is sent. Sent again with it, the request gets the same answer.
        operation = done.stderr.splitlines()[0].removeprefix("operation ")
        self.assertEqual(self.apportion(*asked, "--operation-id", operation).split()[0], allocation)
        self.assertIn("operation conflict", self.refused(3, *asked, "--priority", "1", "--operation-id", operation))
        found = json.loads(self.apportion("operation", operation, "-o", "json"))
        self.assertEqual((found["state"], found["allocation_id"]), ("decided", allocation))
        found = json.loads(self.apportion("--context", "team-b", "operation", operation, "-o", "json"))
        self.assertEqual((found["state"], found["allocation_id"]), ("unknown", None))
        self.assertIn("say of what", self.refused(2, "submit", "--cpu", "1", "--memory", "16"))
        # It has to be accepted before the deadline.
        late = self.ask(*asked, "--wait", "ended", "--deadline", "5s")
        self.assertEqual((late.returncode, late.stderr.splitlines()[-1].split("; ")[-1]), (6, "it goes on"), late.stderr)
        # It has the same name, until it has ended.
        late = late.stdout.split()[0]
        self.assertIn(allocation, self.apportion("wait", allocation, late, "--for", "started", "--timeout", f"{PATIENCE_S}s"))
        self.assertEqual(self.ask("wait", late, allocation, "--timeout", "1s").returncode, 6)
        self.apportion("cancel", late)
        wait(lambda: json.loads(self.apportion("get", late, "-o", "json"))["state"] == "ended", "it has ended")
        done = self.ask("wait", late, "-o", "json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["items"][0]["state"]), (1, "ended: cancelled"), done.stderr)
        self.refused(3, "wait", "nobody")

        # The refusal names the account in quota's form.
        refused = self.refused(2, *asked, "--account", "team-b/ml")
        self.assertIn("team-a/team-b/ml", refused)

        self.assertIn(allocation, self.apportion("get", allocation))
        self.assertIn("0.500 cores", self.apportion("describe", allocation))
        # By its name, or by the beginning of an unambiguous one.
        for words in (["get", "mine"], ["describe", "min"], ["get", allocation[:-1].upper() + allocation[-1]]):
            self.assertIn(allocation, self.apportion(*words))
        second = self.apportion("submit", "--cpu", "0.5", "--memory", "1Gi", "--name", "mine-2", "--after", "mine").split()[0]
        # The next command sees the decision.
        listed = json.loads(self.apportion("list", "--sort", "name", "-o", "json"))["items"]
        self.assertIn(second, [it["allocation_id"] for it in listed])
        self.assertIn(allocation, self.apportion("get", "mine"))
        # Its request can be changed and sent, or sent again without the allocations that it waits for.
        request = json.loads(self.apportion("describe", "mine-2", "-o", "json"))["request"]
        self.assertEqual((request["cpu"], request["memory"], request["after"]), ("500m", "1Gi", [allocation]))
        file = self.home / "again.json"
        file.write_text(json.dumps({**request, "name": "mine-3"}) + "\n", encoding="utf-8")
        self.apportion("submit", "--file", str(file))
        self.assertEqual(json.loads(self.apportion("describe", "mine-3", "-o", "json"))["request"], {**request, "name": "mine-3"})
        self.apportion("cancel", "mine-3")
        again = self.apportion("submit", "--again", "mine-2").split()[0]
        del request["after"]
        self.assertEqual(json.loads(self.apportion("describe", again, "-o", "json"))["request"], request)
        self.apportion("cancel", again)
        # Options take the place of the fields of the request.
        again = json.loads(self.apportion("submit", "--again", "mine-2", "--memory", "2Gi", "-o", "json"))["allocation_id"]
        described = json.loads(self.apportion("describe", again, "-o", "json"))["request"]
        self.assertEqual(described, {**request, "memory": "2Gi"})
        self.apportion("cancel", again)
        self.refused(3, "--context", "team-b", "submit", "--again", allocation)
        unclear = self.refused(3, "get", "min")
        self.assertRegex(unclear, rf"more than one .*{allocation} \(mine, ")
        self.assertIn("(mine-2, ", unclear)
        self.assertIn("no allocation", self.refused(3, "get", "nobody"))
        self.apportion("cancel", "mine-2")
        listed = json.loads(self.apportion("list", "-o", "json"))["items"]
        self.assertEqual([it["name"] for it in listed if it["allocation_id"] == allocation], ["mine"])
        for form in ("table", "wide", "yaml", "csv"):
            self.assertIn(allocation, self.apportion("list", "-o", form))
        self.assertIn("accepted", self.apportion("watch", "--once"))
        for words in (["usage"], ["bill"], ["budgets"], ["queue"], ["queues"], ["quota", "tree"], ["quota", "get", "team-a"],
                      ["quota", "get"], ["quota", "history", "cpu"], ["quota", "history", "team-a", "cpu"], ["preemptions"], ["reservations"], ["refusals"], ["job-sets"]):
            self.apportion(*words)
        self.assertIn(allocation, self.apportion("explain", "mine"))

        # Another tenant's creds show nothing of it, by any name.
        self.assertEqual(json.loads(self.apportion("--context", "team-b", "list", "--all", "-o", "json"))["items"], [])
        self.assertEqual(self.apportion("--context", "team-b", "watch", "--once"), "")
        for words in (["get"], ["describe"], ["explain"], ["logs"], ["cancel"], ["priority", "5"]):
            for name in (allocation, "mine"):
                self.refused(3, "--context", "team-b", *words, name)
        for words in (["list"], ["get", allocation], ["usage"]):
            # The bus denies the query. One without an answer would end with another code.
            self.assertIn("Permissions Violation", self.refused(3, "--context", "team-b", *words, "--tenant", "team-a"))

        # Commands that read databases, and those for operators, are refused with the reason.
        self.assertIn("reads the cell's databases", self.refused(2, "report", "top"))
        for words in (["cordon", "n1"], ["nodes"], ["tenants"], ["top", "nodes"], ["node", "describe", "n1"]):
            self.assertIn("is for operators", self.refused(2, *words))

        # The reader may end first.
        program = PROGRAMS / "apportion"
        done = subprocess.run(["sh", "-c", f"{program} list --all | head -1"], capture_output=True, text=True,
                              env={"HOME": str(self.home), "PATH": os.environ["PATH"]}, timeout=COMMAND_TIMEOUT_S)
        self.assertEqual((len(done.stdout.splitlines()), done.stderr), (1, ""))

        # The environment goes before the context, and a flag before the environment.
        self.assertIn("connecting to nats://127.0.0.1:1", self.refused(5, "list", APPORTION_NATS_URL="nats://127.0.0.1:1"))
        self.assertEqual(json.loads(self.apportion("list", "-o", "json", APPORTION_CONTEXT="team-b"))["items"], [])
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


class Logins(unittest.TestCase):
    """A bus with a server that has its own users. No service answers there: the test is which users may connect."""

    @classmethod
    def setUpClass(cls):
        directory = Home()
        cls.addClassCleanup(directory.close)
        cls.home = directory.path
        for name, secret in (("password", "hush"), ("wrong", "loud"), ("token", "s3cret")):
            (cls.home / name).write_text(f"{secret}\n", encoding="utf-8")
        cls.by_password = cls.server('user: "anna", password: "hush"')
        cls.by_token = cls.server('token: "s3cret"')

    @classmethod
    def server(cls, authorization):
        """Starts a server. Returns its URL."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port, monitor = net.free_port(), net.free_port()
            config = cls.home / f"{port}.conf"
            config.write_text(f"listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitor}\nauthorization {{ {authorization} }}\n",
                              encoding="utf-8")
            with config.with_suffix(".log").open("w") as log:
                process = subprocess.Popen([str(wheels.nats_server()), "-c", str(config)], stderr=log)
            cls.addClassCleanup(process.wait)
            cls.addClassCleanup(process.kill)
            wait(lambda: net.http_ok(f"http://127.0.0.1:{monitor}/healthz") or process.poll() is not None, "NATS answers")
            # Another process may have taken a port.
            if process.poll() is None or attempt == PORT_ATTEMPTS:
                return f"nats://127.0.0.1:{port}"

    def environment(self, **more):
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **more}

    def ask(self, *words, **environment):
        return subprocess.run([str(PROGRAMS / "apportion"), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self.environment(**environment), cwd=self.home, timeout=COMMAND_TIMEOUT_S)

    def is_let_in(self, *words, **environment):
        """Whether the user may connect: then the query fails because no service answers."""
        done = self.ask(*words, **environment)
        self.assertIn(done.returncode, (3, 5), done.stderr)
        self.assertIn("no responders" if done.returncode == 5 else "uthorization", done.stderr)
        return done.returncode == 5

    def set(self, name, url, *words):
        done = self.ask("context", "set", name, "--nats-url", url, "--cell", "c", "--tenant", "t", *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_password_or_a_token_lets_in_from_a_file(self):
        self.set("right", self.by_password, "--user", "anna", "--password-file", "password")
        self.set("wrong", self.by_password, "--user", "anna", "--password-file", "wrong")
        self.set("token", self.by_token, "--token-file", "token")
        self.set("other", self.by_token, "--token-file", "wrong")
        found = {name: self.is_let_in("--context", name, "list") for name in ("right", "wrong", "token", "other")}
        self.assertEqual(found, {"right": True, "wrong": False, "token": True, "other": False})
        # The environment replaces the login of the context as a whole.
        self.assertTrue(self.is_let_in("--context", "other", "list", APPORTION_TOKEN_FILE=str(self.home / "token")))
        self.assertTrue(self.is_let_in("--context", "other", "list", APPORTION_NATS_URL=self.by_password,
                                       APPORTION_USER="anna", APPORTION_PASSWORD_FILE=str(self.home / "password")))
        done = self.ask("--context", "right", "list", APPORTION_USER="anna")
        self.assertEqual((done.returncode, "--password-file" in done.stderr), (2, True), done.stderr)
        done = self.ask("context", "show", "right", "-o", "json")
        self.assertNotIn("hush", done.stdout)
        self.assertEqual(json.loads(done.stdout)["user"], "anna")

    def test_a_secret_is_asked_at_the_terminal_and_not_shown(self):
        words = ["context", "set", "asked", "--nats-url", self.by_password, "--cell", "c", "--tenant", "t", "--user", "anna", "--prompt"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.home)
            os.execve(str(PROGRAMS / "apportion"), ["apportion", *words], self.environment())
        shown = b""
        with contextlib.suppress(OSError):  # The terminal is gone with the program.
            while chunk := os.read(terminal, 1024):
                shown += chunk
                if shown.endswith(b"password of anna: "):
                    # The terminal shows letters that are typed before the program hides them.
                    wait(lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO, "letters are hidden")
                    os.write(terminal, b"hush\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, shown)
        self.assertNotIn(b"hush", shown)
        self.assertTrue(self.is_let_in("--context", "asked", "list"))
        secret = self.home / ".config" / "apportion" / "asked.secret"
        self.assertEqual((stat.S_IMODE(secret.stat().st_mode), secret.read_text(encoding="utf-8")), (0o600, "hush\n"))
        self.assertEqual(self.ask("context", "delete", "asked").returncode, 0)
        self.assertFalse(secret.exists())
