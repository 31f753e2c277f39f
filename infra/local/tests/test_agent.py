"""A real agent on this machine: commands run, their output and exit codes come back, and nothing runs twice."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
from pathlib import Path

import pytest

from apportion_local import net, paths, users
from apportion_local.breakable import Clocks

from .support import PATIENCE_S, PROGRAMS, Stack, wait

pytestmark = pytest.mark.system

TENANT = "team-a"
ASKS = ("--cpu", "100m", "--memory", "32MiB")

CONFIG = """
[cell]
name = "{cell}"
number = {number}

[nats]
url = "{url}"
creds = "{creds}"

[log]
format = "json"

[service]
node = "{node}"
state_dir = "{state}"
token_file = "{token}"
on_stop = "{on_stop}"
log_bytes_max = 65536
grace_ms = 1000
max_runs = {max_runs}
# The agent takes work however full this machine is.
memory_pressure_percent = 0
disk_pressure_percent = 0
{more}
"""
# Tries to reach everything that is not its own, and writes what it could.
STRANGER = """
find "$1" -type f 2>/dev/null | while read -r file; do
    head -c 1 "$file" > /dev/null 2>&1 && echo "read $file"
done
for process in $PPID "$2" "$3"; do
    for name in environ mem; do
        head -c 1 "/proc/$process/$name" > /dev/null 2>&1 && echo "looked into $process: $name"
    done
    ls "/proc/$process/fd" > /dev/null 2>&1 && echo "looked into $process: fd"
    for signal in STOP KILL; do
        kill -$signal "$process" 2> /dev/null && echo "sent $signal to $process"
    done
done
kill -STOP -1 2> /dev/null
echo "tried all as user $(id -u)"
"""
# Writes a line with the time of the monotonic clock, again and again for as long as it lives.
BEATS = """
import os, sys, time
with open(sys.argv[1], "a", buffering=1) as record:
    while True:
        record.write(f"{os.environ['APPORTION_NODE']} {os.getpid()} {time.monotonic_ns()}\\n")
        time.sleep(0.02)
"""
# Ends only by SIGKILL, and so does its child, which leaves its parent, its session and its standard streams.
DEAF = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for stream in range(3):
        os.close(stream)
with open(sys.argv[1], "a") as record:
    record.write(f"{os.getpid()}\\n")
while True:
    time.sleep(1000)
"""
CLOCK_AHEAD_NS = 600 * 10**9
# Far less than that, and far more than the cell's clock and this machine's ever differ by.
CLOCKS_DIFFER_MS = 60_000
# The cell's clock runs at most a tenth faster or slower while it approaches the machine's. The rest is fractions of milliseconds.
CLOCK_SLEW, ROUNDED_MS = 10, 5


class Way:
    """A connection to the bus that can be cut. Data that is sent meanwhile arrives when it is mended."""

    def __init__(self, url):
        self.target = urllib.parse.urlsplit(url)
        self.stands = threading.Event()
        self.stands.set()
        self.listener = socket.create_server((net.LOOPBACK, net.free_port()))
        self.url = f"nats://{net.LOOPBACK}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection((self.target.hostname, self.target.port))
            except OSError:
                return
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source, sink):
        try:
            while data := source.recv(65536):
                self.stands.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def cut(self):
        self.stands.clear()

    def mend(self):
        self.stands.set()

    def close(self):
        self.mend()
        self.listener.close()


class AgentTest(unittest.TestCase):
    """The tests of a class share a stack. Each has its own directory and its own nodes."""

    numbers = itertools.count(1)

    @classmethod
    def setUpClass(cls):
        cls.stack = Stack()
        cls.addClassCleanup(cls.stack.close)

    def setUp(self):
        self.ask, self.apportion = self.stack.ask, self.stack.apportion
        number = next(self.numbers)
        self.node, self.other = f"machine-{number}-1", f"machine-{number}-2"
        self.directory = self.stack.root / f"test-{number}"
        self.directory.mkdir(mode=0o711)
        self.agents = []
        self.addCleanup(self.end_agents)
        self.addCleanup(self.leave_nothing)

    def submit(self, *words):
        """The ID of a new allocation."""
        return self.apportion("submit", "--tenant", TENANT, *ASKS, *words).split()[0]

    def run_to_its_end(self, *words):
        return self.ask("submit", "--tenant", TENANT, *ASKS, "--follow", *words)

    def token(self, node):
        path = self.directory / f"{node}.token"
        if not path.exists():
            approved = self.apportion("node", "approve", node, "--cpu", "1024", "--memory", "4096GiB")
            path.write_text(approved.rsplit(None, 1)[1], encoding="utf-8")
        return path

    def agent(self, on_stop="drain", node=None, url=None, environment=None, max_runs=512, more=""):
        """Starts an agent, of the test's first node by default. `more`: lines of its settings."""
        node, stack = node or self.node, self.stack.value
        config = self.directory / f"{node}.toml"
        config.write_text(CONFIG.format(
            cell=stack["cell"]["name"], number=stack["cell"]["number"], url=url or stack["nats"]["url"],
            creds=self.stack.creds("join"), node=node, state=self.directory / node, token=self.token(node),
            on_stop=on_stop, max_runs=max_runs, more=more), encoding="utf-8")
        with open(self.directory / f"agent-{len(self.agents)}.log", "wb") as log:
            agent = subprocess.Popen([str(PROGRAMS / "apportion-node-agent"), "--config", str(config)],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env={**os.environ, **(environment or {})})
        self.agents.append(agent)
        return agent

    def joined(self, **options):
        """An agent with a node that is ready."""
        agent = self.agent(**options)
        wait(lambda: self.node_is("ready"), "the node has joined")
        return agent

    def end_agents(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGCONT)
                agent.terminate()
                agent.wait(PATIENCE_S)

    def leave_nothing(self):
        """No allocation is left for the nodes of the next test, and no node for its allocations: until its lease ends, it is ready."""
        for allocation in self.stack.items("list", "--tenant", TENANT):
            self.ask("cancel", "--tenant", TENANT, allocation["allocation_id"])
        for node in (self.node, self.other):
            self.ask("cordon", node)

    def node_is(self, state, node=None):
        lines = [line.split() for line in self.apportion("nodes").splitlines()]
        return any(line[:2] == [node or self.node, state] for line in lines)

    def state_of(self, allocation):
        lines = self.apportion("get", "--tenant", TENANT, allocation).splitlines()
        return dict(line.split(None, 1) for line in lines if not line.startswith("ended by"))["state"]

    def explained(self, allocation):
        return self.apportion("explain", "--tenant", TENANT, allocation)

    def events(self, allocation):
        """The lines of the tenant's feed about an allocation without a name."""
        lines = self.apportion("watch", "--tenant", TENANT, "--once").splitlines()
        return "\n".join(line for line in lines if allocation in line)

    def described(self):
        return self.stack.json("node", "describe", self.node)

    def until_started(self, allocation):
        wait(lambda: self.state_of(allocation) == "started", lambda: f"it runs: {self.explained(allocation)}")

    def until_ended(self, allocation):
        wait(lambda: self.state_of(allocation) == "ended", lambda: f"it has ended: {self.explained(allocation)}")

    def cancel(self, allocation):
        self.apportion("cancel", "--tenant", TENANT, allocation)
        self.until_ended(allocation)

    def select(self, columns, table, where):
        return self.stack.select(f"SELECT {columns} FROM {table} WHERE {where}")


class Commands(AgentTest):
    def test_a_command_runs_and_its_end_comes_back(self):
        self.joined()
        done = self.run_to_its_end("--env", "GREETING=hello", "--", "sh", "-c",
                                   'echo "$GREETING $APPORTION_TENANT on $APPORTION_NODE"; echo oops >&2; exit 7')
        self.assertEqual((done.returncode, done.stdout), (7, f"hello team-a on {self.node}\noops\n"), done.stderr)
        self.assertIn("ended: failed, exit code 7", done.stderr)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]
        self.assertIn("exit code 7", self.explained(allocation))
        self.assertIn("exit code 7", self.apportion("get", "--tenant", TENANT, allocation))
        self.assertIn("ended: failed, exit code 7", self.events(allocation))
        self.assertEqual(self.apportion("logs", "--tenant", TENANT, allocation), done.stdout)
        # Another tenant sees nothing of it.
        other = self.ask("logs", "--tenant", "team-b", allocation)
        self.assertEqual((other.returncode, other.stdout), (3, ""))

        payload = self.directory / "payload"
        payload.write_bytes(b"\x00from standard input\n")
        done = self.run_to_its_end("--payload", str(payload), "--", "cat")
        self.assertEqual((done.returncode, done.stdout), (0, "\x00from standard input\n"), done.stderr)
        for command, code, why in (
                (["no-such-command"], 127, "its command could not be started"),
                (["sh", "-c", "kill -9 $$"], 137, "signal 9")):
            done = self.run_to_its_end("--", *command)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(why, done.stderr)
        refused = self.ask("submit", "--tenant", TENANT, *ASKS, "--env", "1=2", "--", "true")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("name invalid: work.env", refused.stderr)

        allocation = self.submit("--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        self.until_started(allocation)
        wait(lambda: self.apportion("logs", "--tenant", TENANT, allocation) == "up\n", "its output is there")
        self.cancel(allocation)
        self.assertTrue(self.apportion("logs", "--tenant", TENANT, allocation).endswith("bye\n"))

        # Without a command it holds its place. It would fit on the simulated nodes, too.
        for line in self.apportion("nodes").splitlines()[1:-1]:
            name, state = line.split()[:2]
            if name != self.node and state == "ready":
                self.apportion("cordon", name)
                self.addCleanup(self.apportion, "uncordon", name)
        allocation = self.submit()
        self.until_started(allocation)
        self.cancel(allocation)

    def test_one_operation_id_leads_from_the_request_to_the_bill(self):
        self.joined()
        operation = "op-of-the-test"
        done = self.ask("submit", "--tenant", TENANT, "--cpu", "1", "--memory", "64MiB", "--operation-id", operation,
                        "--follow", "--", "sh", "-c", 'echo hi; echo "$APPORTION_OPERATION_ID"; sleep 2')
        self.assertEqual((done.returncode, done.stdout), (0, f"hi\n{operation}\n"), done.stderr)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]

        def charged_for():
            described = self.stack.json("describe", "--tenant", TENANT, allocation)
            return described if described["cost"] and described["cost"]["lines"] else None

        found = wait(charged_for, "it is charged for")
        self.assertEqual(found["used"]["log_bytes"], len(done.stdout))
        self.assertGreater(found["used"]["cpu_us"], 0)
        self.assertGreater(found["used"]["memory_peak_bytes"], 0)
        self.assertEqual(found["operation_id"], operation)
        self.assertEqual(found["request"]["command"][:2], ["sh", "-c"])
        self.assertEqual([(one["node"], one["exit_code"]) for one in found["attempts"]], [(self.node, 0)])
        charged = {line["resource"]: line for line in found["cost"]["lines"]}
        self.assertEqual(sorted(charged), ["cpu", "memory"])
        text = self.apportion("describe", "--tenant", TENANT, allocation)
        self.assertRegex(text, r"cpu +1\.000 cores +- +\d+\.\d{3} CPU seconds +0\.\d+ core-hours +0\.\d+ USD")
        # The same on the bill, by the operation id alone.
        rows = self.select("resource, toString(quantity), toString(amount_micro), toString(allocation)", "run_costs",
                           f"tenant = '{TENANT}' AND operation_id = '{operation}' ORDER BY resource")
        self.assertEqual(rows, [[name, line["quantity"], line["amount_micro"], allocation]
                                for name, line in sorted(charged.items())])
        self.assertGreaterEqual(int(charged["cpu"]["quantity"]), 2000 * 1000)
        measured = self.select("measured, cpu_used_us, memory_peak_bytes, log_bytes", "allocation_intervals",
                               f"operation_id = '{operation}'")
        used = found["used"]
        self.assertEqual(measured, [["true", str(used["cpu_us"]), str(used["memory_peak_bytes"]), str(used["log_bytes"])]])
        other = self.ask("describe", "--tenant", "team-b", allocation)
        self.assertEqual((other.returncode, other.stdout), (3, ""))

    def test_what_does_not_obey_ends_with_its_run(self):
        self.joined()
        record = self.directory / "record"
        allocation = self.submit("--", sys.executable, "-c", DEAF, str(record))

        def pids():
            return record.read_text(encoding="utf-8").split() if record.exists() else []

        wait(lambda: len(pids()) == 2, "the command and what it has started run")
        self.cancel(allocation)
        self.assertEqual([pid for pid in pids() if lives(pid)], [])
        self.assertIn("killed when its grace was over", self.explained(allocation))

        # More than is kept of a log: the newest part is there, and how much is not.
        done = self.run_to_its_end("--", "seq", "-w", "1000000", "1099999")
        self.assertEqual(done.returncode, 0, done.stderr)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]
        done = self.ask("logs", "--tenant", TENANT, allocation)
        dropped = int(re.search(r"\((\d+) bytes were dropped\)", done.stderr)[1])
        self.assertEqual(dropped + len(done.stdout), 800_000)
        self.assertLessEqual(len(done.stdout), 65_536)
        self.assertTrue(done.stdout.endswith("1099998\n1099999\n"), done.stdout[-100:])
        on_disk = self.directory.glob(f"{self.node}/runs/{allocation}.*/log.*")
        self.assertLessEqual(sum(path.stat().st_size for path in on_disk), 65_536)

        # It asks for 256 MiB and was promised 64.
        done = self.ask("submit", "--tenant", TENANT, "--cpu", "100m", "--memory", "64MiB", "--follow", "--",
                        sys.executable, "-c", "print('up', flush=True); bytearray(256 << 20); print('too much')")
        self.assertIn(done.returncode, (1, 137), done.stderr)
        self.assertIn("up\n", done.stdout)
        self.assertNotIn("too much", done.stdout)
        self.assertRegex(done.stdout + done.stderr, "MemoryError|its memory was at its limit")

        # It grows until it has no more, and its end says so, in a cgroup or without one.
        done = self.ask("submit", "--tenant", TENANT, "--cpu", "100m", "--memory", "64MiB", "--follow", "--",
                        sys.executable, "-c", "kept = []\nwhile True: kept.append(bytearray(1 << 20))")
        self.assertIn(done.returncode, (1, 137), done.stderr)
        self.assertIn("its memory was at its limit", done.stderr)

    def test_a_run_that_stops_its_supervisor_is_ended_and_does_not_run_again(self):
        self.joined()
        mark = self.directory / "began"
        harmful = f"echo $$ >> {mark}; kill -STOP $PPID; exec sleep 1000"
        allocation = self.submit("--retries", "5", "--", "sh", "-c", harmful)
        wait(lambda: mark.exists() and mark.read_text(encoding="utf-8"), "it runs")
        process = int(mark.read_text(encoding="utf-8"))
        self.apportion("cancel", "--tenant", TENANT, allocation)
        self.until_ended(allocation)
        self.assertFalse(lives(process))
        # One that is lost is not queued again, though it has retries left and its class may be requeued.
        lost = self.submit("--retries", "5", "--", "sh", "-c", f"echo $$ >> {mark}; kill -KILL $PPID; exec sleep 1000")
        self.until_ended(lost)
        self.assertEqual(len(mark.read_text(encoding="utf-8").splitlines()), 2)
        self.assertIn("its supervisor on the node was lost", self.apportion("get", "--tenant", TENANT, lost))
        done = self.run_to_its_end("--", "sh", "-c", "echo still here")
        self.assertEqual((done.returncode, done.stdout), (0, "still here\n"), done.stderr)

    def test_a_run_that_fills_the_disk_is_ended_with_its_reason_and_leaves_nothing(self):
        work = self.directory / "work"
        self.joined(more=f'work_dir = "{work}"\nwork_bytes_max = 4194304')
        fills = "head -c 8388608 /dev/zero > filled; echo filled; exec sleep 1000"
        done = self.run_to_its_end("--", "sh", "-c", fills)
        self.assertEqual((done.returncode != 0, done.stdout), (True, "filled\n"), done.stderr)
        self.assertIn("it used too much room on the disk of its node", done.stderr)
        wait(lambda: [path.name for path in work.iterdir()] == ["lock"], "its files are removed")

    @unittest.skipIf(users.of_runs(Path("/")) is None, "needs root with all rights over other users")
    def test_a_stranger_reaches_nothing_but_its_own(self):
        work = Path(tempfile.mkdtemp(prefix="apportion-test-"))
        work.chmod(0o711)
        self.addCleanup(paths.remove, work)
        agent = self.joined(more=f'work_dir = "{work}"\n[service.run_users]\nfirst = 2000000000\ncount = 10')
        mark = "echo $$; exec sleep 1000"
        other = self.submit("--", "sh", "-c", mark)
        told = wait(lambda: self.apportion("logs", "--tenant", TENANT, other), "the other run has begun")
        done = self.run_to_its_end("--", "sh", "-c", STRANGER, "stranger", str(self.stack.root), str(agent.pid), told.strip())
        self.assertEqual((done.returncode, done.stdout), (0, "tried all as user 2000000001\n"), done.stderr)
        self.assertTrue(lives(int(told)))
        self.apportion("cancel", "--tenant", TENANT, other)

    def test_a_run_ends_at_its_time_limit_and_what_is_not_placed_expires(self):
        self.joined()
        begun = time.monotonic()
        done = self.run_to_its_end("--time-limit", "3s", "--retries", "3", "--", "sh", "-c",
                                   "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        took = time.monotonic() - begun
        # Some shells report the child that was stopped with them.
        lines = [line for line in done.stdout.splitlines() if line != "Terminated"]
        self.assertEqual(lines, ["up", "bye"], done.stderr)
        self.assertIn("ended: time limit", done.stderr)
        self.assertGreaterEqual(took, 3)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]
        explained = self.explained(allocation)
        self.assertIn("its run had reached its time limit", explained)
        self.assertNotIn("queued again", explained)
        self.assertIn("time limit", self.apportion("get", "--tenant", TENANT, allocation))
        self.assertIn("time limit", self.apportion("list", "--tenant", TENANT, "--all"))

        # A command that ignores SIGTERM is killed after the agent's grace of 1 s. Python has to start before the limit.
        record = self.directory / "record"
        allocation = self.submit("--time-limit", "5s", "--", sys.executable, "-c", DEAF, str(record))
        self.until_ended(allocation)
        self.assertEqual([pid for pid in record.read_text(encoding="utf-8").split() if lives(pid)], [])
        self.assertIn("killed when its grace was over", self.explained(allocation))

        allocation = self.submit("--ttl", "1s", "--node-label", "zone=nowhere")
        self.until_ended(allocation)
        self.assertIn("it had not been placed within its time to live", self.explained(allocation))
        self.assertIn("ended: expired", self.events(allocation))

    def test_a_file_asks_for_many_that_start_after_each_other(self):
        self.joined()
        record = self.directory / "record"
        here = "cpu: 100m\nmemory: 32Mi\n"
        jobs = self.directory / "jobs.yaml"
        jobs.write_text(f"""
name: last
after_success: [first, middle]
{here}command: [sh, -c, "echo last >> {record}"]
---
name: middle
after: first
{here}command: [sh, -c, "echo middle >> {record}"]
---
name: first
{here}command: [sh, -c, "sleep 1; echo first >> {record}"]
""", encoding="utf-8")
        submitted = self.ask("submit", "--tenant", TENANT, "--file", str(jobs), "--operation-id", "jobs")
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.assertEqual([line.split()[0] for line in submitted.stdout.splitlines()], ["first", "middle", "last"])
        self.assertRegex(submitted.stderr, "operation [0-9a-f]{32}: first\n")
        wait(lambda: record.exists() and record.read_text(encoding="utf-8").split() == ["first", "middle", "last"],
             "each has run after the others")
        # Sent again with its operation ID, it gets the same answer.
        repeated = self.ask("submit", "--tenant", TENANT, "--file", str(jobs), "--operation-id", "jobs")
        ids = [[line.split()[1] for line in done.stdout.splitlines()] for done in (submitted, repeated)]
        self.assertEqual(ids[0], ids[1])

        jobs.write_text("name: a\nafter: b\n---\nname: b\nafter: a\n", encoding="utf-8")
        refused = self.ask("submit", "--tenant", TENANT, "--file", str(jobs))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("a -> b -> a", refused.stderr)

        out = self.directory / "out"
        done = self.apportion("submit", "--tenant", TENANT, *ASKS, "--name", "sweep", "--array", "3-7:2", "--",
                              "sh", "-c", f"echo $APPORTION_NAME $APPORTION_ARRAY_INDEX >> {out}")
        titles, elements = zip(*(line.split()[:2] for line in done.splitlines()))
        self.assertEqual(titles, ("sweep-3", "sweep-5", "sweep-7"))
        wait(lambda: out.exists() and sorted(out.read_text(encoding="utf-8").splitlines())
             == ["sweep-3 3", "sweep-5 5", "sweep-7 7"], "all have run")
        # The index is there before and after its end.
        self.assertEqual(self.stack.json("get", "--tenant", TENANT, elements[1])["array_index"], 5)
        wait(lambda: "finished" in self.apportion("get", "--tenant", TENANT, elements[1]), "it has ended")
        self.assertEqual(self.stack.json("get", "--tenant", TENANT, elements[1])["array_index"], 5)

        # The name of an array stands for its elements, and each line of their logs begins with the name of an element.
        self.apportion("submit", "--tenant", TENANT, *ASKS, "--name", "print", "--array", "0-1", "--wait", "ended", "--deadline",
                       f"{PATIENCE_S}s", "--", "sh", "-c", "echo line $APPORTION_ARRAY_INDEX; echo end")
        for follow in ((), ("--follow",)):
            printed = self.apportion("logs", "--tenant", TENANT, "print", *follow)
            self.assertEqual(sorted(printed.splitlines()),
                             ["print-0: end", "print-0: line 0", "print-1: end", "print-1: line 1"])

        # Exit codes of waiting: 0 if all have finished, 1 if one has not, 6 if the deadline has passed.
        waits = ("submit", "--tenant", TENANT, *ASKS, "--array", "0-2", "--wait")
        for limit, code in ((3, 0), (1, 1)):
            done = self.ask(*waits, "ended", "--deadline", f"{PATIENCE_S}s", "--", "sh", "-c", f"test $APPORTION_ARRAY_INDEX -lt {limit}")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stderr.count(" ended: finished"), limit, done.stderr)
        jobs.write_text(f"{here}command: [sh, -c, exit 7]\n", encoding="utf-8")
        done = self.ask("submit", "--tenant", TENANT, "--file", str(jobs), "--wait", "ended", "--deadline", f"{PATIENCE_S}s")
        self.assertEqual(done.returncode, 7, done.stderr)
        # They have to be accepted before the deadline.
        late = self.ask(*waits, "started", "--deadline", "5s", "--node-label", "rack=none")
        self.assertEqual(late.returncode, 6, late.stderr)
        self.assertIn("3 were accepted, but the start of 3 did not come before the deadline", late.stderr)

        nowhere = ("submit", "--tenant", TENANT, *ASKS, "--node-label", "rack=none", "--operation-id", "held")
        held = self.ask(*nowhere, "--array", "0-2")
        self.assertEqual(held.returncode, 0, held.stderr)
        self.assertIn("operation held\n", held.stderr)
        again = self.ask(*nowhere, "--array", "1-3")
        ids = [[line.split()[1] for line in each.stdout.splitlines()] for each in (held, again)]
        self.assertEqual(ids[0][1:], ids[1][:2], "the same operations")
        self.assertNotIn(ids[1][2], ids[0])
        first = ("get", "--tenant", TENANT, ids[0][0])
        wait(lambda: self.stack.json(*first)["state"] == "waiting", "the read model has it")
        self.assertEqual(self.stack.json(*first)["array_index"], 0)
        other = self.ask(*nowhere, "--run-time", "1m", "--array", "0-2")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("3 of 3 were refused", other.stderr)
        long = "o" * 64
        refused = self.ask("submit", "--tenant", TENANT, *ASKS, "--array", "0-2", "--operation-id", long)
        self.assertIn("3 of 3 were refused", refused.stderr)

    def test_the_example_runs_commands(self):
        node = self.node
        with open(self.directory / "example.log", "wb") as log:
            self.agents.append(subprocess.Popen(
                [sys.executable, str(paths.CHECKOUT / "examples/node_agent.py"), "--stack", str(self.stack.state / "stack.json"),
                 "--descriptors", str(self.stack.descriptors()), "--name", node, "--cpu", "4", "--memory-gib", "8",
                 "--gpus", "0", "--gpu-model", "", "--join", self.token(node).read_text(encoding="utf-8").strip()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        wait(lambda: self.node_is("ready"), "the node has joined")
        written = self.directory / "written"
        given = ("--env", f"FILE={written}", "--payload", str(self.token(node)), "--", "sh", "-c")
        for script, how in (('cat > "$FILE"', "ended: finished"), ("exit 7", "ended: failed, exit code 7"),
                            ("kill -9 $$", "ended: failed, signal 9")):
            allocation = self.submit(*given, script)
            self.until_ended(allocation)
            self.assertIn(how, self.events(allocation))
        self.assertEqual(written.read_bytes(), self.token(node).read_bytes())
        pid = self.directory / "pid"
        allocation = self.submit("--", "sh", "-c", f"echo $$ > {pid}; exec sleep 1000")
        wait(lambda: pid.exists() and pid.read_text(encoding="utf-8").endswith("\n"), "it runs")
        self.cancel(allocation)
        self.assertFalse(lives(pid.read_text(encoding="utf-8").strip()))

    def test_a_wrong_clock_of_the_node_bills_nothing_wrongly(self):
        clocks = Clocks(self.directory / "clock")
        file = clocks.file("agent")

        def set_ahead(nanos):
            with open(file, "r+b") as opened:
                opened.write(nanos.to_bytes(8, sys.byteorder, signed=True))

        set_ahead(CLOCK_AHEAD_NS)
        self.joined(environment=clocks.environment("agent"))
        runs = []

        def run(ahead_at_its_end=None):
            """Runs a command until its gate is there, with the machine's clock and the monotonic one on both ends of both."""
            begun, gate = self.directory / f"begun-{len(runs)}", self.directory / f"gate-{len(runs)}"
            moments = [(net.now_ms(), time.monotonic())]

            def note():
                moments.append((net.now_ms(), time.monotonic()))

            allocation = self.submit("--", sys.executable, "-c", "import os, pathlib, sys, time\n"
                                     "pathlib.Path(sys.argv[1]).touch()\n"
                                     "while not os.path.exists(sys.argv[2]): time.sleep(0.01)", str(begun), str(gate))
            wait(begun.exists, "it runs")
            self.until_started(allocation)
            note()
            if ahead_at_its_end is not None:
                set_ahead(ahead_at_its_end)
            note()
            gate.touch()
            self.until_ended(allocation)
            note()
            runs.append((allocation, *moments))

        run()
        run(ahead_at_its_end=-CLOCK_AHEAD_NS)
        run()
        run(ahead_at_its_end=CLOCK_AHEAD_NS)
        for allocation, *moments in runs:
            self.check_billed(allocation, *moments)
            # None began twice, and no clock made the node look lost.
            self.assertNotIn("queued again", self.explained(allocation))

    def check_billed(self, allocation, before, runs, ends, after):
        """
        The moments on the bill lie between these, each a pair of this machine's clock and of the monotonic one. The cell's
        clock may differ from the first a little, so that lengths are compared with the second.
        """
        moments = ", ".join(f"toUnixTimestamp64Milli({name})" for name in ("placed_at", "started_at", "ended_at", "released_at"))
        ((placed, started, ended, released),) = [[int(moment) for moment in row] for row in wait(
            lambda: self.select(moments, "allocation_intervals", f"allocation = '{allocation}'"), "it is on the bill")]
        self.assertTrue(placed <= started <= ended <= released, (placed, started, ended, released))
        self.assertGreaterEqual(placed, before[0] - CLOCKS_DIFFER_MS)
        self.assertLessEqual(released, after[0] + CLOCKS_DIFFER_MS)
        for length, shortest, longest in (
                (started - placed, 0, runs[1] - before[1]), (ended - started, ends[1] - runs[1], after[1] - before[1]),
                (released - ended, 0, after[1] - ends[1])):
            least, most = (1000 * seconds * (1 + sign / CLOCK_SLEW) + sign * ROUNDED_MS
                           for seconds, sign in ((shortest, -1), (longest, 1)))
            self.assertTrue(least <= length <= most, (least, length, most))


class Nodes(AgentTest):
    def test_a_run_outlives_its_agent_and_goes_back_when_it_is_drained(self):
        agent = self.joined()
        gate = self.directory / "gate"
        waits = f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done; exit 5"
        for ends_meanwhile in (False, True):
            allocation = self.submit("--", "sh", "-c", waits)
            self.until_started(allocation)
            agent.kill()
            agent.wait()
            if ends_meanwhile:
                gate.touch()
                wait(lambda: list(self.directory.glob(f"{self.node}/runs/{allocation}.*/end.json")), "it has ended")
            agent = self.agent()
            gate.touch()
            done = self.ask("logs", "--tenant", TENANT, allocation, "--follow")
            self.assertEqual((done.returncode, done.stdout), (5, "up\n"), done.stderr)
            self.assertNotIn("queued again", self.explained(allocation))
            gate.unlink()

        allocation = self.submit("--retries", "1", "--", "sh", "-c", waits)
        self.until_started(allocation)
        agent.terminate()
        self.assertEqual(agent.wait(PATIENCE_S), 0)
        wait(lambda: "queued again" in self.explained(allocation), "it is queued again")

    def test_a_node_has_another_size_and_what_runs_goes_on(self):
        agent = self.joined()
        gate = self.directory / "gate"
        allocation = self.submit("--", "sh", "-c", f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done; exit 5")
        self.until_started(allocation)

        def size():
            described = self.described()
            return described["resources"]["cpu"]["has"], described["max_runs"]

        whole, bound = size()
        self.assertEqual(bound, 512)

        def configured(old, new):
            config = self.directory / f"{self.node}.toml"
            text = config.read_text(encoding="utf-8")
            self.assertIn(old, text)
            config.write_text(text.replace(old, new), encoding="utf-8")

        configured("max_runs = 512", "max_runs = 1\nreserved_cpu_milli = 250")
        agent.send_signal(signal.SIGHUP)
        wait(lambda: size() == (whole - 250, 1), "it has another size")
        # It holds one already, and may hold one.
        waits = self.submit("--", "true")
        wait(lambda: "holds as many allocations as it may" in self.explained(waits), "it waits for the bound")
        # A file that cannot be read changes nothing.
        configured("max_runs = 1", "max_runs = -1")
        agent.send_signal(signal.SIGHUP)
        log = self.directory / "agent-0.log"
        wait(lambda: "the configuration stays as it was" in log.read_text(encoding="utf-8"), "the agent logs it")
        self.assertEqual(size(), (whole - 250, 1))
        configured("max_runs = -1", "max_runs = 2")
        agent.send_signal(signal.SIGHUP)
        wait(lambda: size() == (whole - 250, 2), "it takes two")
        self.until_ended(waits)
        # The same after a restart of the agent alone.
        agent.kill()
        agent.wait()
        self.agent(max_runs=3)
        wait(lambda: size() == (whole, 3), "it has all again")
        self.assertEqual(self.state_of(allocation), "started")
        gate.touch()
        self.assertEqual(self.ask("logs", "--tenant", TENANT, allocation, "--follow").returncode, 5)
        self.assertNotIn("queued again", self.explained(allocation))

    def test_a_node_with_more_than_was_approved_is_seen_with_the_remedy(self):
        token = self.directory / f"{self.node}.token"
        approved = self.apportion("node", "approve", self.node, "--cpu", "1m", "--memory", "1MiB")
        token.write_text(approved.rsplit(None, 1)[1], encoding="utf-8")
        self.agent()

        def refused():
            rows = self.stack.items("node", "list", "--name-prefix", self.node)
            return next((row for row in rows if row["state"] == "refused"), None)

        wait(refused, "the node is refused")
        row = refused()
        self.assertEqual((row["cpu_milli"], row["memory_bytes"]), (1, 1 << 20))
        self.assertGreaterEqual(row["reported_cpu_milli"], 1000)
        self.assertIn("capacity not approved: cpu_milli: it says that it has", row["refused"])
        text = self.apportion("node", "list")
        self.assertIn(f"{self.node} is refused: capacity not approved", text)
        self.assertIn(row["remedy"], text)
        self.assertRegex(self.apportion("nodes"), "nodes? (is|are) refused")
        self.assertIn(self.node, self.stack.json("nodes")["refused"])
        (one,) = self.stack.items("refusals", "--rule", "capacity_not_approved")
        self.assertEqual((one["verb"], one["tenant"], one["limit"]), ("register", None, 1))
        self.assertIn(f"node {self.node}: ", one["explanation"])
        log = (self.directory / "agent-0.log").read_text(encoding="utf-8")
        (said, *_) = (line for line in log.splitlines() if "the cell refuses the node" in line)
        self.assertIn('"WARN"', said)
        self.assertIn(row["remedy"], said)

        # The remedy works.
        words = row["remedy"].replace("FILE", str(token)).split()
        self.assertEqual(words[0], "apportion")
        self.assertNotIn("token", self.apportion(*words[1:]))
        wait(lambda: self.node_is("ready"), "the node has joined")
        self.assertEqual(self.stack.items("node", "list", "--name-prefix", self.node)[0]["state"], "joined")
        self.assertNotIn(self.node, self.stack.json("nodes")["refused"])

    def test_nothing_runs_twice_when_the_node_is_lost(self):
        agent = self.joined()
        # Each attempt records its beginning and, for as long as it lives, beats.
        record = self.directory / "record"
        beats = f"id=$$; echo begin $id >> {record}; while :; do echo beat $id >> {record}; sleep 0.05; done"
        allocation = self.submit("--", "sh", "-c", beats)
        wait(lambda: record.exists() and "beat" in record.read_text(encoding="utf-8"), "it runs")
        agent.send_signal(signal.SIGSTOP)
        wait(lambda: not self.node_is("ready") and self.state_of(allocation) == "waiting", "the node is lost")
        agent.send_signal(signal.SIGCONT)
        wait(lambda: record.read_text(encoding="utf-8").count("begin") == 2, "it runs again")
        ids = record.read_text(encoding="utf-8").split()[1::2]
        first = ids[0]
        self.assertNotIn(first, ids[ids.index(next(one for one in ids if one != first)):], "two at once")
        self.cancel(allocation)

    def test_a_node_that_is_cut_off_stops_what_runs_before_it_runs_elsewhere(self):
        way = Way(self.stack.value["nats"]["url"])
        self.addCleanup(way.close)
        self.joined(url=way.url)
        record = self.directory / "record"

        def beats():
            lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
            return [line.split() for line in lines if line.count(" ") == 2]

        allocation = self.submit("--", sys.executable, "-c", BEATS, str(record))
        wait(beats, "it runs")
        other = self.other
        self.agent(node=other)
        wait(lambda: self.node_is("ready", other), "the other node has joined")
        way.cut()
        wait(lambda: any(node == other for node, _, _ in beats()), "it runs elsewhere")
        recorded = beats()
        first = [int(moment) for node, _, moment in recorded if node == self.node]
        second = [int(moment) for node, _, moment in recorded if node == other]
        self.assertLess(first[-1], second[0], "two at once")
        self.assertEqual([pid for node, pid, _ in recorded if node == self.node and lives(pid)], [])

        way.mend()
        wait(lambda: self.node_is("ready"), "the node is back")
        self.assertEqual([moment for node, _, moment in beats() if node == self.node and int(moment) > first[-1]], [])
        self.cancel(allocation)
        self.apportion("cordon", other)
        done = self.run_to_its_end("--", "sh", "-c", "echo $APPORTION_NODE; exit 3")
        self.assertEqual((done.returncode, done.stdout), (3, f"{self.node}\n"), done.stderr)

    def test_a_node_takes_no_more_runs_than_it_may(self):
        self.joined(max_runs=3)
        gate = self.directory / "gate"
        waits = ("--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
        # They ask for so little that the node has room for all of them.
        asked = [self.apportion("submit", "--tenant", TENANT, "--cpu", "1m", "--memory", "1MiB", *waits).split()[0]
                 for _ in range(5)]

        def states():
            return [self.state_of(allocation) for allocation in asked]

        wait(lambda: states().count("started") == 3, "as many run as may")
        waiting = asked[states().index("waiting")]
        wait(lambda: "holds as many allocations as it may" in self.explained(waiting), "it is explained why the others wait")
        gate.touch()
        wait(lambda: states() == ["ended"] * 5, "the others have run")

    def test_a_node_under_pressure_takes_nothing_new_and_its_samples_are_kept(self):
        self.joined()
        conditions = self.directory / self.node / "conditions"
        # No condition has a dot in its name, so no heartbeat has a half-written one.
        (conditions / "full.new").write_text("a full disk, nearly\n", encoding="utf-8")
        (conditions / "full.new").rename(conditions / "DiskPressure")
        (conditions / "GpuXid").touch()

        def named():
            return [(one["condition"], one["reason"]) for one in self.described()["conditions"]]

        wait(lambda: named() == [("DiskPressure", "a-full-disk--nearly"), ("GpuXid", None)], "they are known")
        self.assertIn("DiskPressure GpuXid", self.apportion("nodes"))
        allocation = self.submit("--", "echo", "hi")

        wait(lambda: "a taint that it does not tolerate" in self.explained(allocation), "it waits")
        (conditions / "DiskPressure").unlink()
        self.until_ended(allocation)
        wait(lambda: named() == [("GpuXid", None)], "it is known")

        sample = wait(lambda: self.described()["sample"], "it is measured")
        self.assertGreater(min(sample["memory_bytes"], sample["disk_used_bytes"], sample["at_ms"]), 0)
        of_node = f"node = '{self.node}'"
        wait(lambda: self.select("count() > 0", "node_samples", of_node) == [["1"]], "samples are kept")

        def history():
            return self.select("condition, status, reason, ends_at IS NULL", "node_condition_history",
                               f"{of_node} AND condition != 'Ready' ORDER BY condition, begins_at")

        wait(lambda: history() == [
            ["DiskPressure", "true", "a-full-disk--nearly", "0"], ["DiskPressure", "false", "", "1"],
            ["GpuXid", "true", "", "1"]], "the history is there")

    def test_a_node_is_drained_and_runs_out_what_does_not_tolerate_its_taint(self):
        self.joined()
        waits = ("--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        allocations = [self.submit(*waits) for _ in range(2)]

        def places():
            page = self.stack.json("list", "--tenant", TENANT)
            found = {one["allocation_id"]: (one["state"], one["node"]) for one in page["items"]}
            return [found.get(one) for one in allocations]

        wait(lambda: places() == [("started", self.node)] * 2, "they run")
        other = self.other
        self.agent(node=other)
        wait(lambda: self.node_is("ready", other), "the other node has joined")
        drained = self.apportion("drain", self.node, "--at-once", "1", "--watch", "--timeout", f"{PATIENCE_S}s")
        self.assertIn(f"{self.node}: empty", drained)
        self.assertNotIn("2 stopping", drained)
        wait(lambda: places() == [("started", other)] * 2, "they run elsewhere")
        self.assertIn("its node is drained", self.explained(allocations[0]))
        described = self.described()
        self.assertEqual((described["drained"], described["allocations"], described["max_runs"]), (True, [], 512))
        self.assertIn("drained", next(line for line in self.apportion("nodes").splitlines() if line.startswith(self.node)))

        self.apportion("uncordon", self.node)
        self.apportion("taint", other, "maintenance=now:NoExecute")
        wait(lambda: places() == [("started", self.node)] * 2, "they are back")
        self.assertIn("a taint that it does not tolerate", self.explained(allocations[0]))
        wait(lambda: self.apportion("taint", other) == "taint\nmaintenance=now:NoExecute\n", "it is known")
        stale = self.ask("taint", other, "maintenance-", "--expected-version", "7")
        self.assertEqual(stale.returncode, 3)
        self.apportion("taint", other, "slow:PreferNoSchedule")
        self.apportion("taint", other, "maintenance-")
        wait(lambda: self.apportion("taint", other) == "taint\nslow:PreferNoSchedule\n", "the other stays")
        late = self.ask("drain", self.node, "--watch", "--timeout", "0ms")
        self.assertEqual(late.returncode, 1)
        self.assertIn("not empty in time", late.stderr)
        for allocation in allocations:
            self.cancel(allocation)


def lives(pid):
    """Whether a process is more than an entry for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rsplit(") ", 1)[1][0] not in "ZX"
