"""The disk of a server is full under load and has room again: the cell goes on by itself, and nothing acknowledged is lost."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import uuid
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import breakable, net, paths, services, wheels

sys.path.insert(0, str(paths.CHECKOUT / "examples"))

from apportion_messages import Messages, subject  # noqa: E402

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", paths.CHECKOUT / "target")) / "debug"
TENANT = "team-a"
PAUSE_S = 0.02
ACK_TIMEOUT_S = 2
# Far more than anything takes.
PATIENCE_S = 60
BALLAST_BYTES = 64 << 20
COMMAND_TIMEOUT_S = 180


class Load:
    """A tenant who asks for allocations without end, never twice for the same, and remembers what was acknowledged."""

    def __init__(self, stack, messages):
        self.stack, self.m = stack, messages
        self.acknowledged = []
        self.refused = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()))
        self.thread.start()

    def end(self):
        self.over.set()
        self.thread.join()

    async def connect(self):
        import nats

        async def quiet(_error):
            pass

        creds = f"{self.stack['nats']['creds']}/tenant-{TENANT}.creds"
        return await nats.connect(self.stack["nats"]["url"], user_credentials=creds,
                                  max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=quiet)

    async def run(self):
        from nats.errors import Error

        bus = await self.connect()
        while not self.over.is_set():
            operation = uuid.uuid4().hex
            request = self.m.Request(operation_id=operation, submit=self.m.Submit(
                job_set="disks", cpu_milli=1, memory_bytes=1 << 20))
            try:
                answer = await bus.request(subject(self.stack, "ingress", TENANT), request.SerializeToString(),
                                           timeout=ACK_TIMEOUT_S)
                ack = json.loads(answer.data)
                if "error" in ack:
                    self.refused.add(ack["error"]["err_code"])
                else:
                    self.acknowledged.append(operation)
            except Error:
                # Nobody knows.
                pass
            await asyncio.sleep(PAUSE_S)
        await bus.close()

    async def undecided(self):
        """Those that were acknowledged and have no outcome."""
        from nats.errors import Error

        async def has_outcome(operation):
            query = self.m.OperationQuery(operation_id=operation).SerializeToString()
            try:
                answer = await bus.request(subject(self.stack, "query", TENANT, "operation"), query, timeout=ACK_TIMEOUT_S)
            except Error:
                return False
            return self.m.OperationReply.FromString(answer.data).view.HasField("outcome")

        bus = await self.connect()
        left = [operation for operation in self.acknowledged if not await has_outcome(operation)]
        await bus.close()
        return left


class Disks(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        # Passable, so that the servers' data lies where it is.
        self.root.chmod(0o711)
        self.state = self.root / "up"
        self.addCleanup(self.launcher, "down")
        up = self.launcher("up", "--breakable", "--bin-dir", str(PROGRAMS))
        self.assertEqual(up.returncode, 0, up.stdout[-4000:] + up.stderr[-4000:])
        self.stack = self.read("stack.json")
        descriptors = self.root / "apportion.binpb"
        self.assertEqual(self.apportion("schema", "descriptors", "--out", str(descriptors)).returncode, 0)
        self.load = Load(self.stack, Messages(descriptors))
        self.addCleanup(self.load.end)

    def launcher(self, *words):
        return subprocess.run([sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state",
                               str(self.state)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)

    def apportion(self, *words):
        return subprocess.run([str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)

    def read(self, name):
        return json.loads((self.state / name).read_text(encoding="utf-8"))

    def control(self, command):
        with socket.socket(socket.AF_UNIX) as launcher:
            launcher.connect(self.stack["control"])
            launcher.sendall(command.encode() + b"\n")
            return launcher.makefile().readline().strip()

    def fill(self, server):
        answer = self.control(f"fill {server}")
        if "no file system of its own" in answer:
            self.skipTest("this user may not mount a file system in memory")
        self.assertEqual(answer, "ok")

    def free(self, server):
        self.assertEqual(self.control(f"free {server}"), "ok")

    def restarts(self, server):
        return self.read("supervisor.json")[server]["restarts"]

    def ready(self, service):
        """The answer of /readyz: whether it is ready, and the standing of each component; nothing if there is none."""
        try:
            answer = json.loads(net.get(f"http://{self.stack['services'][service]['http']}/readyz"))
        except OSError:
            return False, {}
        return answer["ok"], answer["components"]

    def whys(self, service):
        """What each component complains of, however it stands."""
        return [component["why"] for component in self.ready(service)[1].values() if "why" in component]

    def until(self, what, condition, timeout_s=PATIENCE_S):
        self.assertTrue(net.wait_until(condition, timeout_s, 0.1), what)

    def assert_decided(self):
        """Of what was acknowledged before, during and after, everything has an outcome, and the ledger is whole."""
        self.load.end()
        self.until("not all that was acknowledged was decided", lambda: not asyncio.run(self.load.undecided()))
        verified = self.apportion("verify")
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def until_load_goes_on(self, count=50):
        before = len(self.load.acknowledged)
        self.until("nothing is acknowledged", lambda: len(self.load.acknowledged) >= before + count)

    def until_all_ready(self):
        self.until("not every service is ready again", lambda: all(self.ready(name)[0] for name in services.NAMES))

    def until_nothing_is_degraded(self):
        self.until_all_ready()
        self.until("somebody complains still", lambda: not any(self.whys(name) for name in services.NAMES))

    def test_the_bus_goes_on_by_itself_when_its_disk_has_room_again(self):
        self.until_load_goes_on()
        self.fill("nats")

        def says_so(service):
            ok, components = self.ready(service)
            return not ok and "cannot store" in components.get("bus_store", {}).get("why", "")

        for service in services.NAMES:
            self.until(f"{service} does not say that the bus cannot store", lambda: says_so(service))
        # As long as the disk is full a restart would help nobody.
        self.assertEqual(self.restarts("nats"), 0)
        self.free("nats")
        self.until_load_goes_on()
        self.until_all_ready()
        self.assertIn("no space left on device", self.read("supervisor.json")["nats"]["last_exit"])
        self.assert_decided()

    def test_postgres_and_who_writes_to_it_go_on_by_themselves_when_its_disk_has_room_again(self):
        self.until_load_goes_on()
        self.fill("postgres")
        self.until("no service says that Postgres has no space",
                   lambda: any("No space left" in why for name in services.LEDGER_WRITERS for why in self.whys(name)))
        # A write-ahead log that cannot be written ends the server, which cannot start again either.
        self.until("Postgres does not end", self.wal_is_full)
        self.until_load_goes_on()
        self.free("postgres")
        self.until_nothing_is_degraded()
        self.assert_decided()

    def wal_is_full(self):
        subprocess.run([str(wheels.postgres_install() / "bin" / "psql"), "--no-psqlrc", "-c",
                        "SELECT pg_logical_emit_message(true, 'full', 'x'), pg_switch_wal()",
                        self.stack["postgres"]["admin_url"]],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_TIMEOUT_S)
        return "PANIC" in (self.state / "log" / "postgres.log").read_text(encoding="utf-8", errors="replace")

    def test_clickhouse_and_the_bill_go_on_by_themselves_when_its_disk_has_room_again(self):
        self.until_load_goes_on()
        # Beside this, what the server writes and deletes in the meantime is little.
        ballast = Path(self.state, "clickhouse", "data", "ballast")
        if "clickhouse" in self.stack["breakable"]["disks"]:
            ballast.write_bytes(bytes(BALLAST_BYTES))
            self.assertTrue(breakable.run("mount", "-o", f"remount,size={BALLAST_BYTES * 106 // 100}", str(ballast.parent)))
            self.until("analytics does not say that ClickHouse's disk is nearly full",
                       lambda: re.search("ClickHouse's disk is 9[0-9] % full", str(self.whys("analytics"))))
            self.assertTrue(self.ready("analytics")[0])
        self.fill("clickhouse")
        self.until("analytics does not say that it cannot insert",
                   lambda: any("NOT_ENOUGH_SPACE" in why or "No space left" in why for why in self.whys("analytics")))
        self.until_load_goes_on()
        self.free("clickhouse")
        self.until_nothing_is_degraded()
        self.assert_decided()
        checked = self.apportion("conservation")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_parts_of_tables_that_a_full_disk_has_left_empty_are_made_again_from_the_ledger(self):
        """As ClickHouse leaves them whose disk becomes full while it writes them: acknowledged, and all files empty."""
        self.until_load_goes_on()
        self.load.end()
        tables = Path(self.state, "clickhouse", "data", "data", "apportion")
        self.until("there is nothing in the tables", lambda: all(
            list((tables / table).glob("all_*")) for table in ("node_transfers", "rates")))
        self.until_nothing_is_degraded()
        self.assertEqual(self.control("stop clickhouse"), "ok")
        for table in ("node_transfers", "rates"):
            for part in (tables / table).glob("all_*"):
                for file in part.iterdir():
                    file.write_bytes(b"")
        self.assertEqual(self.control("start clickhouse"), "ok")
        self.until("the books do not balance", lambda: self.apportion("conservation").returncode == 0)
        self.assertEqual(list(tables.glob("*/detached/broken*")), [])


if __name__ == "__main__":
    unittest.main()
