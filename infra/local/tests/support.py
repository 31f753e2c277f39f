"""What the black-box tests share: programs of the local stack, each in a directory of its own."""

import asyncio
import contextlib
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apportion_local import nats_conf, services, wheels  # noqa: E402
from apportion_local.net import free_port, http_ok, wait_until  # noqa: E402


class NatsServer:
    """A NATS server with the stack's accounts."""

    def __init__(self, cell, tenants):
        self.directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.users = services.nats_users(tenants)
        self.passwords = {key: secrets.token_hex(8) for key in self.users}
        self.port, monitor_port = free_port(), free_port()
        home = Path(self.directory.name)
        config = home / "nats.conf"
        config.write_text(nats_conf.render(
            port=self.port, monitor_port=monitor_port, store_dir=home / "data", cell=cell, tenants=tenants,
            passwords=self.passwords), encoding="utf-8")
        self.log = (home / "log").open("w+")
        self.process = subprocess.Popen([str(wheels.nats_server()), "-c", str(config)], stderr=self.log)
        if not wait_until(lambda: http_ok(f"http://127.0.0.1:{monitor_port}/healthz"), 20):
            self.close()
            raise RuntimeError("NATS did not start")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.directory.cleanup()

    @contextlib.asynccontextmanager
    async def connect(self, key):
        """A connection as one of the users; errors the server reports are collected in `.refusals`."""
        import nats

        refusals = []

        async def refused(error):
            refusals.append(str(error))

        client = await nats.connect(
            f"nats://127.0.0.1:{self.port}", user=self.users[key], password=self.passwords[key],
            error_cb=refused, allow_reconnect=False)
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
