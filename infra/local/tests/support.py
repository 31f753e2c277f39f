"""What the black-box tests share: programs of the local stack, each in a directory of its own."""

import asyncio
import contextlib
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apportion_local import bus, nats_conf, paths, wheels  # noqa: E402
from apportion_local.net import free_port, http_ok, wait_until  # noqa: E402


PROGRAMS = paths.bin_dir("debug")
LAUNCHER = paths.CHECKOUT / "infra" / "local" / "stack.py"


class NatsServer:
    """A NATS server with the stack's accounts."""

    def __init__(self, cell, tenants, operators=()):
        self.directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.port, self.monitor_port = free_port(), free_port()
        home = Path(self.directory.name)
        self.bus_dir = home / "bus"
        named = [word for name in operators for word in ("--operator", name)]
        bus.init(PROGRAMS / "apportion", self.bus_dir, cell, tenants, "--simulated-fleet", *named)
        self.config = home / "nats.conf"
        self.config.write_text(nats_conf.render(
            config_dir=home, port=self.port, monitor_port=self.monitor_port, store_dir=home / "data",
            bus_conf=bus.configuration(self.bus_dir)), encoding="utf-8")
        self.log = (home / "log").open("w+")
        self.start()

    def start(self):
        self.process = subprocess.Popen([str(wheels.nats_server()), "-c", str(self.config)], stderr=self.log)
        if not wait_until(lambda: http_ok(f"http://127.0.0.1:{self.monitor_port}/healthz"), 20):
            self.close()
            raise RuntimeError("NATS did not start")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def command(self, *words):
        """`apportion bus` with this server and its directory."""
        command = [str(PROGRAMS / "apportion"), "bus", *words, "--dir", str(self.bus_dir), "--url", self.url()]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def close(self):
        self.stop()
        self.log.close()
        self.directory.cleanup()

    @contextlib.asynccontextmanager
    async def connect(self, key, creds=None, **options):
        """A connection as one of the users, or by other creds; what the server refuses is in `.refusals`."""
        import nats

        refusals = []

        async def refused(error):
            refusals.append(str(error))

        client = await nats.connect(
            self.url(), user_credentials=str(creds or bus.creds(self.bus_dir, key)), error_cb=refused,
            **{"allow_reconnect": False, **options})
        client.refusals = refusals
        try:
            yield client
        finally:
            await client.close()


async def settle(client):
    """Waits until the server has all that was sent. The library's ping overtakes what is still in its buffer once."""
    await client.flush()
    await client.flush()


async def until(condition, timeout_s=10.0):
    """Waits for a condition that other tasks make true."""
    async def poll():
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), timeout_s)


class Stack:
    """A whole stack with a state directory of its own, by the launcher."""

    TIMEOUT_SECONDS = 400
    # Until what runs is in the bill, and the currency.
    PATIENCE_SECONDS = 90

    def __init__(self, directory, *options):
        self.state = directory / "up"
        self.launcher("up", "--fresh", "--bin-dir", str(PROGRAMS), *options)
        self.value = json.loads((self.state / "stack.json").read_text(encoding="utf-8"))

    def run(self, *command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=self.TIMEOUT_SECONDS)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def launcher(self, *words):
        return self.run(sys.executable, str(LAUNCHER), *words, "--state", str(self.state))

    def apportion(self, *words):
        return self.run(str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words)

    def use(self):
        """Two tenants use something, and a rate changes meanwhile. Whether it is in the bill."""
        self.apportion("submit", "--tenant", "team-a", "--account", "team-a/ml", "--job-set", "train", "--cpu", "4",
                       "--memory", "16GiB", "--gpus", "1")
        soon = datetime.datetime.now(datetime.timezone.utc) + 2 * datetime.timedelta(seconds=1)
        self.apportion("rates", "set", "cpu", "0.05", "--from", f"{soon:%Y-%m-%dT%H:%M:%S.123Z}")
        # It has no rate, and time goes on in the bill with it.
        return wait_until(self.is_used, self.PATIENCE_SECONDS, 1)

    def is_used(self):
        self.apportion("submit", "--tenant", "team-b", "--cpu", "2", "--memory", "1GiB")
        lines = json.loads(self.apportion("usage", "-o", "json"))
        return lines["currency"] == "USD" and {"team-a", "team-b"} <= {line["tenant"] for line in lines["lines"]}
