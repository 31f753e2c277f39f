"""A real agent on this machine: commands run, their output and exit codes come back, and nothing runs twice."""

import json
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
import urllib.request
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import net, paths
from apportion_local.breakable import Clocks

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
TIMEOUT_SECONDS = 400
# Against hanging: a lease lasts 15 s.
PATIENCE_SECONDS = 90
NODE = "machine-1"
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
# However full this machine is.
memory_pressure_percent = 0
disk_pressure_percent = 0
"""
# Says with the monotonic clock when it begins and, for as long as it lives, that it does.
BEATS = """
import os, sys, time
with open(sys.argv[1], "a", buffering=1) as record:
    while True:
        record.write(f"{os.environ['APPORTION_NODE']} {os.getpid()} {time.monotonic_ns()}\\n")
        time.sleep(0.02)
"""
# It hears no signal but one, and so does what it starts, which leaves its parent, its session and its standard streams.
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


class Way:
    """A way to the bus that can be cut: what is said then is held back until it is mended."""

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
            while said := source.recv(65536):
                self.stands.wait()
                sink.sendall(said)
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


class Agent(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.directory.chmod(0o711)
        self.state = self.directory / "up"
        self.agents = []
        self.addCleanup(self.launcher, "down")
        self.addCleanup(self.end_agents)
        done = self.launcher("up", "--fresh", "--bin-dir", str(PROGRAMS))
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        self.stack = json.loads((self.state / "stack.json").read_text(encoding="utf-8"))

    def launcher(self, *words):
        return subprocess.run(
            [sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state", str(self.state)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def ask(self, *words):
        return subprocess.run([str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def apportion(self, *words):
        done = self.ask(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def submit(self, *words):
        """The allocation's id."""
        return self.apportion("submit", "--tenant", "team-a", *ASKS, *words).split()[0]

    def run_to_its_end(self, *words):
        return self.ask("submit", "--tenant", "team-a", *ASKS, "--follow", *words)

    def token(self, node):
        path = self.directory / f"{node}.token"
        if not path.exists():
            approved = self.apportion("node", "approve", node, "--cpu", "1024", "--memory", "4096GiB")
            path.write_text(approved.rsplit(None, 1)[1], encoding="utf-8")
        return path

    def agent(self, on_stop="drain", node=NODE, url=None, environment=None, max_runs=512):
        config = self.directory / f"{node}.toml"
        config.write_text(CONFIG.format(
            cell=self.stack["cell"]["name"], number=self.stack["cell"]["number"],
            url=url or self.stack["nats"]["url"], creds=f"{self.stack['nats']['creds']}/join.creds", node=node,
            state=self.directory / ("agent" if node == NODE else node), token=self.token(node), on_stop=on_stop,
            max_runs=max_runs), encoding="utf-8")
        log = open(self.directory / f"agent-{len(self.agents)}.log", "wb")
        self.addCleanup(log.close)
        agent = subprocess.Popen([str(PROGRAMS / "apportion-node-agent"), "--config", str(config)],
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env={**os.environ, **(environment or {})})
        self.agents.append(agent)
        return agent

    def end_agents(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGCONT)
                agent.terminate()
                agent.wait(PATIENCE_SECONDS)

    def wait(self, condition, what):
        self.assertTrue(net.wait_until(condition, PATIENCE_SECONDS), what)

    def node_is(self, state, node=NODE):
        lines = [line.split() for line in self.apportion("nodes").splitlines()]
        return any(line[:2] == [node, state] for line in lines)

    def state_of(self, allocation):
        lines = self.apportion("get", "--tenant", "team-a", allocation).splitlines()
        return dict(line.split(None, 1) for line in lines if not line.startswith("ended by"))["state"]

    def cancel(self, allocation):
        self.apportion("cancel", "--tenant", "team-a", allocation)
        self.wait(lambda: self.state_of(allocation) == "ended", "it is cancelled")

    def billed(self, allocation):
        """When the run began and ended, Unix ms, as it is billed; none: that is not known yet."""
        moments = ", ".join(f"toUnixTimestamp64Milli({moment})" for moment in ("placed_at", "started_at", "ended_at", "released_at"))
        rows = self.select(moments, "allocation_intervals", f"allocation = '{allocation}'")
        return [int(moment) for moment in rows[0]] if rows else None

    def select(self, columns, table, where):
        server = self.stack["clickhouse"]
        query = f"SELECT {columns} FROM {server['database']}.{table} WHERE {where} FORMAT TSV"
        request = urllib.request.Request(server["url"], data=query.encode(), headers={
            "X-ClickHouse-User": server["reader"]["user"], "X-ClickHouse-Key": server["reader"]["password"]})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
            return [line.split("\t") for line in answer.read().decode().splitlines()]

    def test_a_command_runs_and_its_end_comes_back(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        done = self.run_to_its_end("--env", "GREETING=hello", "--", "sh", "-c",
                                   'echo "$GREETING $APPORTION_TENANT on $APPORTION_NODE"; echo oops >&2; exit 7')
        self.assertEqual((done.returncode, done.stdout), (7, f"hello team-a on {NODE}\noops\n"), done.stderr)
        self.assertIn("ended: failed, exit code 7", done.stderr)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]
        self.assertIn("exit code 7", self.apportion("explain", "--tenant", "team-a", allocation))
        self.assertIn("exit code 7", self.apportion("get", "--tenant", "team-a", allocation))
        self.assertIn("ended: failed, exit code 7", self.apportion("watch", "--tenant", "team-a", "--once"))
        self.assertEqual(self.apportion("logs", "--tenant", "team-a", allocation), done.stdout)
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
        refused = self.ask("submit", "--tenant", "team-a", *ASKS, "--env", "1=2", "--", "true")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("name invalid: work.env", refused.stderr)

        allocation = self.submit("--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        self.wait(lambda: self.apportion("logs", "--tenant", "team-a", allocation) == "up\n"
                  if self.state_of(allocation) == "started" else False, "it runs")
        self.apportion("cancel", "--tenant", "team-a", allocation)
        self.wait(lambda: self.state_of(allocation) == "ended", "it is cancelled")
        self.assertTrue(self.apportion("logs", "--tenant", "team-a", allocation).endswith("bye\n"))

        # Without a command it holds its place, on a simulated node too, which would end it after a while.
        for line in self.apportion("nodes").splitlines()[1:-1]:
            if line.split()[0] != NODE:
                self.apportion("cordon", line.split()[0])
        allocation = self.submit()
        self.wait(lambda: self.state_of(allocation) == "started", "it holds its place")
        self.apportion("cancel", "--tenant", "team-a", allocation)
        self.wait(lambda: self.state_of(allocation) == "ended", "it lets go")

    def test_one_operation_id_leads_from_the_request_to_the_bill(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        operation = "op-of-the-test"
        done = self.ask("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "64MiB", "--operation-id", operation,
                        "--follow", "--", "sh", "-c", 'echo hi; echo "$APPORTION_OPERATION_ID"; sleep 2')
        self.assertEqual((done.returncode, done.stdout), (0, f"hi\n{operation}\n"), done.stderr)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]

        def described():
            return json.loads(self.apportion("describe", "--tenant", "team-a", allocation, "-o", "json"))

        self.wait(lambda: described()["cost"] and described()["cost"]["lines"], "it is charged for")
        said = described()
        self.assertEqual(said["used"]["log_bytes"], len(done.stdout))
        self.assertGreater(said["used"]["cpu_us"], 0)
        self.assertGreater(said["used"]["memory_peak_bytes"], 0)
        self.assertEqual(said["operation_id"], operation)
        self.assertEqual(said["request"]["command"][:2], ["sh", "-c"])
        self.assertEqual([(one["node"], one["exit_code"]) for one in said["attempts"]], [(NODE, 0)])
        charged = {line["resource"]: line for line in said["cost"]["lines"]}
        self.assertEqual(sorted(charged), ["cpu", "memory"])
        text = self.apportion("describe", "--tenant", "team-a", allocation)
        self.assertRegex(text, r"cpu +1\.000 cores +- +\d+\.\d{3} CPU seconds +0\.\d+ core-hours +0\.\d+ USD")
        # The same on the bill, by the operation id alone.
        rows = self.select("resource, toString(quantity), toString(amount_micro), toString(allocation)", "run_costs",
                           f"tenant = 'team-a' AND operation_id = '{operation}' ORDER BY resource")
        self.assertEqual(rows, [[name, line["quantity"], line["amount_micro"], allocation]
                                for name, line in sorted(charged.items())])
        self.assertGreaterEqual(int(charged["cpu"]["quantity"]), 2000 * 1000)
        measured = self.select("measured, cpu_used_us, memory_peak_bytes, log_bytes", "allocation_intervals",
                               f"operation_id = '{operation}'")
        used = said["used"]
        self.assertEqual(measured, [["true", str(used["cpu_us"]), str(used["memory_peak_bytes"]), str(used["log_bytes"])]])
        other = self.ask("describe", "--tenant", "team-b", allocation)
        self.assertEqual((other.returncode, other.stdout), (3, ""))

    def test_a_run_outlives_its_agent_and_goes_back_when_it_is_drained(self):
        agent = self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        gate = self.directory / "gate"
        waits = f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done; exit 5"
        for ends_meanwhile in (False, True):
            allocation = self.submit("--", "sh", "-c", waits)
            self.wait(lambda: self.state_of(allocation) == "started", "it runs")
            agent.kill()
            agent.wait()
            if ends_meanwhile:
                gate.touch()
                self.wait(lambda: list(self.directory.glob(f"agent/runs/{allocation}.*/end.json")), "it has ended")
            agent = self.agent()
            gate.touch()
            done = self.ask("logs", "--tenant", "team-a", allocation, "--follow")
            self.assertEqual((done.returncode, done.stdout), (5, "up\n"), done.stderr)
            self.assertNotIn("queued again", self.apportion("explain", "--tenant", "team-a", allocation))
            gate.unlink()

        allocation = self.submit("--retries", "1", "--", "sh", "-c", waits)
        self.wait(lambda: self.state_of(allocation) == "started", "it runs")
        self.agents[-1].terminate()
        self.assertEqual(self.agents[-1].wait(PATIENCE_SECONDS), 0)
        self.wait(lambda: "queued again" in self.apportion("explain", "--tenant", "team-a", allocation), "it is queued again")

    def test_a_node_has_another_size_and_what_runs_goes_on(self):
        agent = self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        gate = self.directory / "gate"
        allocation = self.submit("--", "sh", "-c", f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done; exit 5")
        self.wait(lambda: self.state_of(allocation) == "started", "it runs")

        def size():
            said = json.loads(self.apportion("node", "describe", NODE, "-o", "json"))
            return said["resources"]["cpu"]["has"], said["max_runs"]

        whole, bound = size()
        self.assertEqual(bound, 512)

        def configured(old, new):
            config = self.directory / f"{NODE}.toml"
            text = config.read_text(encoding="utf-8")
            self.assertIn(old, text)
            config.write_text(text.replace(old, new), encoding="utf-8")

        configured("max_runs = 512", "max_runs = 1\nreserved_cpu_milli = 250")
        agent.send_signal(signal.SIGHUP)
        self.wait(lambda: size() == (whole - 250, 1), "it has another size")
        # It holds one already, and one is the most.
        waits = self.submit("--", "true")
        self.wait(lambda: "holds as many allocations as it may" in self.apportion("explain", "--tenant", "team-a", waits),
                  "it waits for the bound")
        # A file that cannot be read changes nothing.
        configured("max_runs = 1", "max_runs = -1")
        agent.send_signal(signal.SIGHUP)
        log = self.directory / "agent-0.log"
        self.wait(lambda: "the configuration stays as it was" in log.read_text(encoding="utf-8"), "it says so")
        self.assertEqual(size(), (whole - 250, 1))
        configured("max_runs = -1", "max_runs = 2")
        agent.send_signal(signal.SIGHUP)
        self.wait(lambda: size() == (whole - 250, 2), "it takes two")
        self.wait(lambda: self.state_of(waits) == "ended", "the other has run")
        # The same after a restart of the agent alone.
        agent.kill()
        agent.wait()
        self.agent(max_runs=3)
        self.wait(lambda: size() == (whole, 3), "it has all again")
        self.assertEqual(self.state_of(allocation), "started")
        gate.touch()
        self.assertEqual(self.ask("logs", "--tenant", "team-a", allocation, "--follow").returncode, 5)
        self.assertNotIn("queued again", self.apportion("explain", "--tenant", "team-a", allocation))

    def test_nothing_runs_twice_when_the_node_is_lost(self):
        agent = self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        # Each attempt says when it begins and, for as long as it lives, that it does.
        record = self.directory / "record"
        beats = f"id=$$; echo begin $id >> {record}; while :; do echo beat $id >> {record}; sleep 0.05; done"
        allocation = self.submit("--", "sh", "-c", beats)
        self.wait(lambda: record.exists() and "beat" in record.read_text(encoding="utf-8"), "it runs")
        agent.send_signal(signal.SIGSTOP)
        self.wait(lambda: not self.node_is("ready") and self.state_of(allocation) == "waiting", "the node is lost")
        agent.send_signal(signal.SIGCONT)
        self.wait(lambda: record.read_text(encoding="utf-8").count("begin") == 2, "it runs again")
        said = record.read_text(encoding="utf-8").split()
        ids = said[1::2]
        first = ids[0]
        self.assertNotIn(first, ids[ids.index(next(one for one in ids if one != first)):], "two at once")
        self.apportion("cancel", "--tenant", "team-a", allocation)
        self.wait(lambda: self.state_of(allocation) == "ended", "it is cancelled")

    def test_what_does_not_obey_ends_with_its_run(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        record = self.directory / "record"
        allocation = self.submit("--", sys.executable, "-c", DEAF, str(record))

        def pids():
            return record.read_text(encoding="utf-8").split() if record.exists() else []

        self.wait(lambda: len(pids()) == 2, "the command and what it has started run")
        self.cancel(allocation)
        self.assertEqual([pid for pid in pids() if lives(pid)], [])
        self.assertIn("killed when its grace was over", self.apportion("explain", "--tenant", "team-a", allocation))

        # More than is kept of a log: the newest part is there, and how much is not.
        done = self.run_to_its_end("--", "seq", "-w", "1000000", "1099999")
        self.assertEqual(done.returncode, 0, done.stderr)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]
        done = self.ask("logs", "--tenant", "team-a", allocation)
        dropped = int(re.search(r"\((\d+) bytes were dropped\)", done.stderr)[1])
        self.assertEqual(dropped + len(done.stdout), 800_000)
        self.assertLessEqual(len(done.stdout), 65_536)
        self.assertTrue(done.stdout.endswith("1099998\n1099999\n"), done.stdout[-100:])
        on_disk = self.directory.glob(f"agent/runs/{allocation}.*/log.*")
        self.assertLessEqual(sum(path.stat().st_size for path in on_disk), 65_536)

        # It asks for 256 MiB and was promised 64.
        done = self.ask("submit", "--tenant", "team-a", "--cpu", "100m", "--memory", "64MiB", "--follow", "--",
                        sys.executable, "-c", "print('up', flush=True); bytearray(256 << 20); print('too much')")
        self.assertIn(done.returncode, (1, 137), done.stderr)
        self.assertIn("up\n", done.stdout)
        self.assertNotIn("too much", done.stdout)
        self.assertRegex(done.stdout + done.stderr, "MemoryError|it took too much memory")

    def test_a_run_ends_at_its_time_limit_and_what_is_not_placed_expires(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        begun = time.monotonic()
        done = self.run_to_its_end("--time-limit", "2s", "--retries", "3", "--", "sh", "-c",
                                   "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        took = time.monotonic() - begun
        # Some shells tell of the child that was stopped with them.
        said = [line for line in done.stdout.splitlines() if line != "Terminated"]
        self.assertEqual(said, ["up", "bye"], done.stderr)
        self.assertIn("ended: time limit", done.stderr)
        self.assertGreaterEqual(took, 2)
        allocation = re.search(r"(?m)^([0-9a-f-]{36}) ", done.stderr)[1]
        explained = self.apportion("explain", "--tenant", "team-a", allocation)
        self.assertIn("its run had reached its time limit", explained)
        self.assertNotIn("queued again", explained)
        self.assertIn("time limit", self.apportion("get", "--tenant", "team-a", allocation))
        self.assertIn("time limit", self.apportion("list", "--tenant", "team-a", "--all"))

        # What does not obey is killed when the agent's grace of 1 s is over.
        record = self.directory / "record"
        allocation = self.submit("--time-limit", "1s", "--", sys.executable, "-c", DEAF, str(record))
        self.wait(lambda: self.state_of(allocation) == "ended", "it is stopped at its limit")
        self.assertEqual([pid for pid in record.read_text(encoding="utf-8").split() if lives(pid)], [])
        self.assertIn("killed when its grace was over", self.apportion("explain", "--tenant", "team-a", allocation))

        allocation = self.submit("--ttl", "1s", "--node-label", "zone=nowhere")
        self.wait(lambda: self.state_of(allocation) == "ended", "it expires")
        self.assertIn("it had not been placed within its time to live",
                      self.apportion("explain", "--tenant", "team-a", allocation))
        self.assertIn("ended: expired", self.apportion("watch", "--tenant", "team-a", "--once"))

    def test_a_file_asks_for_many_that_start_after_each_other(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
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
        submitted = self.ask("submit", "--tenant", "team-a", "--file", str(jobs), "--operation-id", "jobs")
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.assertEqual([line.split()[0] for line in submitted.stdout.splitlines()], ["first", "middle", "last"])
        self.assertRegex(submitted.stderr, "operation [0-9a-f]{32}: first\n")
        self.wait(lambda: record.exists() and record.read_text(encoding="utf-8").split() == ["first", "middle", "last"],
                  "each has run after the others")
        # The same again is the same.
        repeated = self.ask("submit", "--tenant", "team-a", "--file", str(jobs), "--operation-id", "jobs")
        ids = [[line.split()[1] for line in done.stdout.splitlines()] for done in (submitted, repeated)]
        self.assertEqual(ids[0], ids[1])

        jobs.write_text("name: a\nafter: b\n---\nname: b\nafter: a\n", encoding="utf-8")
        refused = self.ask("submit", "--tenant", "team-a", "--file", str(jobs))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("a -> b -> a", refused.stderr)

        out = self.directory / "out"
        done = self.apportion("submit", "--tenant", "team-a", *ASKS, "--name", "sweep", "--array", "3-7:2", "--",
                              "sh", "-c", f"echo $APPORTION_NAME $APPORTION_ARRAY_INDEX >> {out}")
        titles, elements = zip(*(line.split()[:2] for line in done.splitlines()))
        self.assertEqual(titles, ("sweep-3", "sweep-5", "sweep-7"))
        self.wait(lambda: out.exists() and sorted(out.read_text(encoding="utf-8").splitlines())
                  == ["sweep-3 3", "sweep-5 5", "sweep-7 7"], "all have run")
        # Live and over.
        self.assertEqual(json.loads(self.apportion("get", "--tenant", "team-a", elements[1], "-o", "json"))["array_index"], 5)
        self.wait(lambda: "finished" in self.apportion("get", "--tenant", "team-a", elements[1]), "it is over")
        self.assertEqual(json.loads(self.apportion("get", "--tenant", "team-a", elements[1], "-o", "json"))["array_index"], 5)

        # Waited for: 0 if all have finished, 1 if one has not, 6 if it takes too long.
        waits = ("submit", "--tenant", "team-a", *ASKS, "--array", "0-2", "--wait")
        for limit, code in ((3, 0), (1, 1)):
            done = self.ask(*waits, "ended", "--deadline", "1m", "--", "sh", "-c", f"test $APPORTION_ARRAY_INDEX -lt {limit}")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stderr.count(" ended: finished"), limit, done.stderr)
        jobs.write_text(f"{here}command: [sh, -c, exit 7]\n", encoding="utf-8")
        done = self.ask("submit", "--tenant", "team-a", "--file", str(jobs), "--wait", "ended", "--deadline", "1m")
        self.assertEqual(done.returncode, 7, done.stderr)
        late = self.ask(*waits, "started", "--deadline", "1s", "--node-label", "rack=none")
        self.assertEqual(late.returncode, 6, late.stderr)
        self.assertIn("3 were accepted, but the start of 3 did not come before the deadline", late.stderr)

        nowhere = ("submit", "--tenant", "team-a", *ASKS, "--node-label", "rack=none", "--operation-id", "held")
        held = self.ask(*nowhere, "--array", "0-2")
        self.assertEqual(held.returncode, 0, held.stderr)
        self.assertIn("operation held\n", held.stderr)
        again = self.ask(*nowhere, "--array", "1-3")
        ids = [[line.split()[1] for line in each.stdout.splitlines()] for each in (held, again)]
        self.assertEqual(ids[0][1:], ids[1][:2], "the same operations")
        self.assertNotIn(ids[1][2], ids[0])
        first = ("get", "--tenant", "team-a", ids[0][0], "-o", "json")
        self.wait(lambda: json.loads(self.apportion(*first))["state"] == "waiting", "the read model follows")
        self.assertEqual(json.loads(self.apportion(*first))["array_index"], 0)
        other = self.ask(*nowhere, "--run-time", "1m", "--array", "0-2")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("3 of 3 were refused", other.stderr)
        long = "o" * 64
        refused = self.ask("submit", "--tenant", "team-a", *ASKS, "--array", "0-2", "--operation-id", long)
        self.assertIn("3 of 3 were refused", refused.stderr)

    def test_a_node_that_is_cut_off_stops_what_runs_before_it_runs_elsewhere(self):
        way = Way(self.stack["nats"]["url"])
        self.addCleanup(way.close)
        self.agent(url=way.url)
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        record = self.directory / "record"

        def beats():
            lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
            return [line.split() for line in lines if line.count(" ") == 2]

        allocation = self.submit("--", sys.executable, "-c", BEATS, str(record))
        self.wait(beats, "it runs")
        other = "machine-2"
        self.agent(node=other)
        self.wait(lambda: self.node_is("ready", other), "the other node has joined")
        way.cut()
        self.wait(lambda: any(node == other for node, _, _ in beats()), "it runs elsewhere")
        said = beats()
        first = [int(moment) for node, _, moment in said if node == NODE]
        second = [int(moment) for node, _, moment in said if node == other]
        self.assertLess(first[-1], second[0], "two at once")
        self.assertEqual([pid for node, pid, _ in said if node == NODE and lives(pid)], [])

        way.mend()
        self.wait(lambda: self.node_is("ready"), "the node is back")
        self.assertEqual([moment for node, _, moment in beats() if node == NODE and int(moment) > first[-1]], [])
        self.cancel(allocation)
        self.apportion("cordon", other)
        done = self.run_to_its_end("--", "sh", "-c", "echo $APPORTION_NODE; exit 3")
        self.assertEqual((done.returncode, done.stdout), (3, f"{NODE}\n"), done.stderr)

    def test_a_wrong_clock_of_the_node_bills_nothing_wrongly(self):
        clocks = Clocks(self.directory / "clock")
        file = clocks.file("agent")

        def set_ahead(nanos):
            with open(file, "r+b") as opened:
                opened.write(nanos.to_bytes(8, sys.byteorder, signed=True))

        set_ahead(CLOCK_AHEAD_NS)
        self.agent(environment=clocks.environment("agent"))
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        ran = []

        def run(ahead_at_its_end=None):
            """Lets a command go that says when it began, and ends it when it has run for a while."""
            begun, gate = self.directory / f"begun-{len(ran)}", self.directory / f"gate-{len(ran)}"
            before = net.now_ms()
            allocation = self.submit("--", sys.executable, "-c", "import os, pathlib, sys, time\n"
                                     "pathlib.Path(sys.argv[1]).touch()\n"
                                     "while not os.path.exists(sys.argv[2]): time.sleep(0.01)", str(begun), str(gate))
            self.wait(lambda: begun.exists() and self.state_of(allocation) == "started", "it runs")
            runs = net.now_ms()
            if ahead_at_its_end is not None:
                set_ahead(ahead_at_its_end)
            ends = net.now_ms()
            gate.touch()
            self.wait(lambda: self.state_of(allocation) == "ended", "it has ended")
            ran.append((allocation, before, runs, ends, net.now_ms()))

        run()
        run(ahead_at_its_end=-CLOCK_AHEAD_NS)
        run()
        run(ahead_at_its_end=CLOCK_AHEAD_NS)
        # The cell's clock is that of this machine. Fractions of milliseconds are lost on the way.
        for allocation, before, runs, ends, after in ran:
            self.wait(lambda: self.billed(allocation), "it is on the bill")
            placed, started, ended, released = self.billed(allocation)
            self.assertTrue(before <= placed <= started <= runs, (before, placed, started, runs))
            self.assertTrue(ends - 2 <= ended <= released <= after, (ends, ended, released, after))
        # None of them began twice, and the clock cost the node no life.
        for allocation, *_ in ran:
            self.assertNotIn("queued again", self.apportion("explain", "--tenant", "team-a", allocation))

    def test_a_node_takes_no_more_runs_than_it_may(self):
        self.agent(max_runs=3)
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        gate = self.directory / "gate"
        waits = ("--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
        # They ask for next to nothing: by room alone the node would take all of them.
        asked = [self.apportion("submit", "--tenant", "team-a", "--cpu", "1m", "--memory", "1MiB", *waits).split()[0]
                 for _ in range(5)]

        def states():
            return [self.state_of(allocation) for allocation in asked]

        self.wait(lambda: states().count("started") == 3, "as many run as may")
        waiting = asked[states().index("waiting")]
        self.wait(lambda: "holds as many allocations as it may" in self.apportion("explain", "--tenant", "team-a", waiting),
                  "it says why the others wait")
        gate.touch()
        self.wait(lambda: states() == ["ended"] * 5, "the others came after them")

    def test_a_node_under_pressure_takes_nothing_new_and_its_samples_are_kept(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        conditions = self.directory / "agent" / "conditions"
        # No condition has a dot in its name; a heartbeat may come at any moment.
        (conditions / "full.new").write_text("a full disk, nearly\n", encoding="utf-8")
        (conditions / "full.new").rename(conditions / "DiskPressure")
        (conditions / "GpuXid").touch()

        def described():
            return json.loads(self.apportion("node", "describe", NODE, "-o", "json"))

        def named():
            return [(one["condition"], one["reason"]) for one in described()["conditions"]]

        self.wait(lambda: named() == [("DiskPressure", "a-full-disk--nearly"), ("GpuXid", None)], "they are known")
        self.assertIn("DiskPressure GpuXid", self.apportion("nodes"))
        allocation = self.submit("--", "echo", "hi")

        def explained():
            return self.apportion("explain", "--tenant", "team-a", allocation)

        self.wait(lambda: "a taint that it does not tolerate" in explained(), "it waits")
        (conditions / "DiskPressure").unlink()
        self.wait(lambda: self.state_of(allocation) == "ended", "it ran")
        self.wait(lambda: named() == [("GpuXid", None)], "it is known")

        self.wait(lambda: described()["sample"], "it is measured")
        sample = described()["sample"]
        self.assertGreater(min(sample["memory_bytes"], sample["disk_used_bytes"], sample["at_ms"]), 0)
        of_node = f"node = '{NODE}'"
        self.wait(lambda: self.select("count() > 0", "node_samples", of_node) == [["1"]], "samples are kept")

        def history():
            return self.select("condition, status, reason, ends_at IS NULL", "node_condition_history",
                               f"{of_node} AND condition != 'Ready' ORDER BY condition, begins_at")

        self.wait(lambda: history() == [
            ["DiskPressure", "true", "a-full-disk--nearly", "0"], ["DiskPressure", "false", "", "1"],
            ["GpuXid", "true", "", "1"]], "the history is there")

    def test_a_node_is_drained_and_runs_out_what_does_not_tolerate_its_taint(self):
        self.agent()
        self.wait(lambda: self.node_is("ready"), "the node has joined")
        waits = ("--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        allocations = [self.submit(*waits) for _ in range(2)]

        def places():
            page = json.loads(self.apportion("list", "--tenant", "team-a", "-o", "json"))
            found = {one["allocation_id"]: (one["state"], one["node"]) for one in page["allocations"]}
            return [found.get(one) for one in allocations]

        self.wait(lambda: places() == [("started", NODE)] * 2, "they run")
        other = "machine-2"
        self.agent(node=other)
        self.wait(lambda: self.node_is("ready", other), "the other node has joined")
        drained = self.apportion("drain", NODE, "--at-once", "1", "--watch", "--timeout", "60s")
        self.assertIn(f"{NODE}: empty", drained)
        self.assertNotIn("2 stopping", drained)
        self.wait(lambda: places() == [("started", other)] * 2, "they run elsewhere")
        self.assertIn("its node is drained", self.apportion("explain", "--tenant", "team-a", allocations[0]))
        described = json.loads(self.apportion("node", "describe", NODE, "-o", "json"))
        self.assertEqual((described["drained"], described["allocations"], described["max_runs"]), (True, [], 512))
        self.assertIn("drained", next(line for line in self.apportion("nodes").splitlines() if line.startswith(NODE)))

        self.apportion("uncordon", NODE)
        self.apportion("taint", other, "maintenance=now:NoExecute")
        self.wait(lambda: places() == [("started", NODE)] * 2, "they are back")
        self.assertIn("a taint that it does not tolerate", self.apportion("explain", "--tenant", "team-a", allocations[0]))
        self.wait(lambda: self.apportion("taint", other) == "taint\nmaintenance=now:NoExecute\n", "it is known")
        stale = self.ask("taint", other, "maintenance-", "--expected-version", "7")
        self.assertEqual(stale.returncode, 3)
        self.apportion("taint", other, "slow:PreferNoSchedule")
        self.apportion("taint", other, "maintenance-")
        self.wait(lambda: self.apportion("taint", other) == "taint\nslow:PreferNoSchedule\n", "the other stays")
        late = self.ask("drain", NODE, "--watch", "--timeout", "0ms")
        self.assertEqual(late.returncode, 1)
        self.assertIn("not empty in time", late.stderr)
        for allocation in allocations:
            self.cancel(allocation)

    def test_the_example_runs_commands(self):
        descriptors, node = self.directory / "apportion.binpb", "example-1"
        self.apportion("schema", "descriptors", "--out", str(descriptors))
        agent = subprocess.Popen(
            [sys.executable, str(paths.CHECKOUT / "examples/node_agent.py"), "--stack", str(self.state / "stack.json"),
             "--descriptors", str(descriptors), "--name", node, "--cpu", "4", "--memory-gib", "8", "--gpus", "0",
             "--gpu-model", "", "--join", self.token(node).read_text(encoding="utf-8").strip()],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(agent.stdout.close)
        self.agents.append(agent)
        self.wait(lambda: self.node_is("ready", node), "the node has joined")
        written = self.directory / "written"
        given = ("--env", f"FILE={written}", "--payload", str(self.token(node)), "--", "sh", "-c")
        for script, how in (('cat > "$FILE"', "ended: finished"), ("exit 7", "ended: failed, exit code 7"),
                            ("kill -9 $$", "ended: failed, signal 9")):
            allocation = self.submit(*given, script)
            self.wait(lambda: self.state_of(allocation) == "ended", script)
            self.assertIn(how, self.apportion("watch", "--tenant", "team-a", "--once"))
        self.assertEqual(written.read_bytes(), self.token(node).read_bytes())
        pid = self.directory / "pid"
        allocation = self.submit("--", "sh", "-c", f"echo $$ > {pid}; exec sleep 1000")
        self.wait(lambda: pid.exists() and pid.read_text(encoding="utf-8").endswith("\n"), "it runs")
        self.cancel(allocation)
        self.assertFalse(lives(pid.read_text(encoding="utf-8").strip()))


def lives(pid):
    """Whether the process does anything any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rsplit(") ", 1)[1][0] not in "ZX"


if __name__ == "__main__":
    unittest.main()
