"""Shared by the system tests: stacks and servers in temporary directories, and waits with an end."""

import asyncio
import contextlib
import datetime
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from apportion_local import bus, nats_conf, net, paths, wheels

# The programs under test. Another directory with programs of the same names can be given.
PROGRAMS = Path(os.environ.get("APPORTION_TEST_PROGRAMS") or paths.bin_dir("debug")).resolve()
LAUNCHER = paths.CHECKOUT / "infra" / "local" / "stack.py"
# Limits against hanging only. Nothing here takes that long.
PATIENCE_S = 240
COMMAND_TIMEOUT_S = 900
PORT_ATTEMPTS = 3
# The logs in a home: files of the launcher and of the tests.
LOGS = ("*.log", "log", "supervisor.json")


class Home:
    """
    A temporary directory for servers. It is removed after the report of the test that closed it, so that the logs of a
    failed test can be kept; see conftest.py.
    """

    every = []

    def __init__(self, mode=0o711):
        # With 0711, servers that run as other users reach their data below it. With 0700 they do not.
        self.path = Path(tempfile.mkdtemp(prefix="apportion-test-"))
        self.path.chmod(mode)
        self.on_close = contextlib.ExitStack()
        self.closed = False
        Home.every.append(self)

    def close(self):
        if not self.closed:
            self.closed = True
            self.on_close.close()

    @classmethod
    def remove_closed(cls):
        for home in [home for home in cls.every if home.closed]:
            shutil.rmtree(home.path, ignore_errors=True)
            cls.every.remove(home)

    @classmethod
    def copy_logs(cls, target):
        """Copies the logs of all homes to a directory. Returns whether there were any."""
        copied = False
        for home in cls.every:
            for file in {file for pattern in LOGS for file in home.path.rglob(pattern) if file.is_file()}:
                copy = target / file.relative_to(home.path.parent)
                copy.parent.mkdir(parents=True, exist_ok=True)
                # Servers that still run may rotate a log.
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(file, copy)
                    copied = True
        return copied


def wait(condition, what, timeout_s=PATIENCE_S, interval_s=None):
    """
    Polls until the condition holds and returns its value. `what` describes it in the error, as text or as a function. Without
    an interval, polls become rarer the longer it takes: most conditions run a program, which slows the others down.
    """
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise AssertionError(f"not within {timeout_s} s: {what() if callable(what) else what}")
        time.sleep(interval_s or min(max(waited / 10, 0.02), 0.5))
    return found


async def until(condition, timeout_s=PATIENCE_S):
    """Waits for a condition that other tasks make true."""
    async def poll():
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), timeout_s)


async def settle(client):
    """Waits until the server has everything that was sent. The first ping can overtake messages in the client's buffer."""
    for _ in range(2):
        await client.flush(PATIENCE_S)


def run(*command, **options):
    """A finished command with its output."""
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=COMMAND_TIMEOUT_S, **options)


def succeeded(done):
    """The standard output of a command that ended with 0."""
    if done.returncode != 0:
        raise AssertionError(f"{done.args} ended with {done.returncode}: {done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


class NatsServer:
    """A NATS server with the stack's accounts."""

    def __init__(self, cell, tenants, operators=()):
        self.home = Home()
        self.bus_dir = self.home.path / "bus"
        named = [word for name in operators for word in ("--operator", name)]
        bus.init(PROGRAMS / "apportion", self.bus_dir, cell, tenants, "--simulated-fleet", *named)
        self.config, self.log = self.home.path / "nats.conf", self.home.path / "nats.log"
        self.process = None
        self.home.on_close.callback(self.stop)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.configure()
            try:
                return self.start()
            except OSError:
                if attempt == PORT_ATTEMPTS:
                    self.close()
                    raise

    def configure(self):
        self.port, self.monitor_port = net.free_port(), net.free_port()
        self.config.write_text(nats_conf.render(
            config_dir=self.home.path, port=self.port, monitor_port=self.monitor_port, store_dir=self.home.path / "data",
            bus_conf=bus.configuration(self.bus_dir)), encoding="utf-8")

    def start(self):
        """Starts it on its ports. OSError: it ended, for example because another process has taken a port."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen([str(wheels.nats_server()), "-c", str(self.config)], stderr=log)

        def answers_or_ended():
            return net.http_ok(f"http://{net.LOOPBACK}:{self.monitor_port}/healthz") or self.process.poll() is not None

        wait(answers_or_ended, "NATS answers")
        if self.process.poll() is not None:
            raise OSError(f"NATS ended at once: {self.log.read_text(encoding='utf-8')[-2000:]}")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def command(self, *words):
        """`apportion bus` with this server and its directory."""
        return run(PROGRAMS / "apportion", "bus", *words, "--dir", self.bus_dir, "--url", self.url())

    def url(self):
        return f"nats://{net.LOOPBACK}:{self.port}"

    def close(self):
        self.home.close()

    @contextlib.asynccontextmanager
    async def connect(self, key, creds=None, **options):
        """A connection as one of the users, or with other creds; `.refusals` has the errors that the server reported."""
        import nats

        refusals = []

        async def refused(error):
            refusals.append(str(error))

        client = await nats.connect(
            self.url(), user_credentials=str(creds or bus.creds(self.bus_dir, key)), error_cb=refused,
            **{"allow_reconnect": False, "connect_timeout": PATIENCE_S, **options})
        client.refusals = refusals
        client.jetstream = functools.partial(client.jetstream, timeout=PATIENCE_S)
        try:
            yield client
        finally:
            await client.close()


class Stack:
    """A whole stack with its own state directory: the launcher's commands, the programs' commands, and the files."""

    def __init__(self, *options, mode=0o711, environment=None, up=True):
        """`options` are those of `up`. `environment`: further variables for the launcher. Not `up`: it is not started yet."""
        self.home = Home(mode)
        self.root, self.state = self.home.path, self.home.path / "up"
        self.environment = environment or {}
        self.home.on_close.callback(self.end)
        if up:
            try:
                self.up("--fresh", *options)
            except BaseException:
                self.close()
                raise

    def close(self):
        self.home.close()

    def end(self):
        if self.state.exists():
            self.down()
            for note in self.state.glob("*" + paths.ELSEWHERE):
                paths.remove(paths.elsewhere(note))

    # The launcher.

    def launcher(self, *words):
        """A command of the launcher, finished, with its exit code."""
        programs = ["--bin-dir", PROGRAMS] if words[0] == "up" else []
        return run(sys.executable, LAUNCHER, *words, "--state", self.state, *programs, env={**os.environ, **self.environment})

    def up(self, *options):
        """Starts it. Returns the launcher's output."""
        return succeeded(self.launcher("up", *options))

    def down(self):
        succeeded(self.launcher("down"))

    def answer(self, command):
        """The launcher's answer to a command on its control socket."""
        with socket.socket(socket.AF_UNIX) as launcher:
            launcher.connect(self.value["control"])
            launcher.sendall(command.encode() + b"\n")
            return launcher.makefile().readline().strip()

    def control(self, command):
        """A command on the control socket, which has to succeed."""
        answer = self.answer(command)
        if answer != "ok":
            raise AssertionError(f"{command}: {answer}")

    # The programs.

    def ask(self, *words):
        """A command of `apportion`, finished, with its exit code."""
        return run(PROGRAMS / "apportion", "--stack", self.state / "stack.json", *words)

    def apportion(self, *words):
        """The output of a command, which has to succeed."""
        return succeeded(self.ask(*words))

    def json(self, *words):
        """The same, of a command that prints JSON."""
        answer = json.loads(self.apportion(*words, "-o", "json"))
        # Lists name the ledger position that they are of.
        is_list_of_cell = isinstance(answer, dict) and answer.get("items") and words[0] not in ("context", "schema")
        assert not is_list_of_cell or answer["as_of"], f"{words}: no position"
        return answer

    def items(self, *words):
        """The rows of a list."""
        return self.json(*words)["items"]

    def refused(self, *words):
        """The output of a command, which has to fail."""
        done = self.ask(*words)
        if done.returncode == 0:
            raise AssertionError(f"{words}: {done.stdout}")
        return done.stdout + done.stderr

    def submit(self, *words, tenant="team-a", cpu="1", memory="1GiB"):
        """The ID of a new allocation."""
        return self.apportion("submit", "--tenant", tenant, "--cpu", cpu, "--memory", memory, *words).split()[0]

    def verify(self):
        """Checks the chain of the ledger, and that the tables of the bill balance."""
        self.apportion("verify")
        # While a batch is sent, tables are one batch apart.
        wait(lambda: self.ask("conservation").returncode == 0, lambda: self.refused("conservation"))

    # Its files and pages.

    @property
    def value(self):
        """The file that describes the running stack."""
        return self.read("stack.json")

    def read(self, name):
        return json.loads((self.state / name).read_text(encoding="utf-8"))

    def supervised(self):
        """Each process with its pid, its restarts and its last exit."""
        return self.read("supervisor.json")

    def pid(self, process):
        return self.supervised()[process]["pid"]

    def log(self, process):
        return (self.state / "log" / f"{process}.log").read_text(encoding="utf-8", errors="replace")

    def creds(self, party):
        return Path(self.value["nats"]["creds"]) / f"{party}.creds"

    def page(self, process, path):
        """The URL of a page of a service's process."""
        return f"http://{self.value['services'][process]['http']}{path}"

    def is_ready(self, process):
        return net.http_ok(self.page(process, "/readyz"))

    def until_ready(self):
        """Waits until all processes of services are ready."""
        wait(lambda: all(map(self.is_ready, self.value["services"])), lambda: self.launcher("status").stdout)

    def descriptors(self):
        """A file with the descriptors of all messages."""
        path = self.root / "apportion.binpb"
        if not path.exists():
            self.apportion("schema", "descriptors", "--out", path)
        return path

    def select(self, sql, context=None):
        """The rows of a ClickHouse query of the reader. `context`: the TLS context of a stack with TLS."""
        server = self.value["clickhouse"]
        request = urllib.request.Request(f"{server['url']}/?database={server['database']}", data=sql.encode(), headers={
            "X-ClickHouse-User": server["reader"]["user"], "X-ClickHouse-Key": server["reader"]["password"]})
        handlers = [urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])]
        with urllib.request.build_opener(*handlers).open(request, timeout=PATIENCE_S) as answer:
            return [line.split("\t") for line in answer.read().decode().splitlines()]

    # Usage for a bill.

    def use(self):
        """Two tenants use resources while a rate changes. Waits until both and the currency are in the bill."""
        self.submit("--account", "team-a/ml", "--job-set", "train", "--gpus", "1", cpu="4", memory="16GiB")
        soon = datetime.datetime.now(datetime.timezone.utc) + 2 * datetime.timedelta(seconds=1)
        self.apportion("rates", "set", "cpu", "0.05", "--from", f"{soon:%Y-%m-%dT%H:%M:%S.123Z}")
        wait(self.is_used, lambda: f"in the bill: {self.json('usage')}", interval_s=1)

    def is_used(self):
        # It has no rate, and the time in the bill continues with it.
        self.submit(tenant="team-b", cpu="2")
        usage = self.json("usage")
        return usage["currency"] == "USD" and {"team-a", "team-b"} <= {line["tenant"] for line in usage["items"]}

