"""A server's disk is full under load and is freed again: the cell recovers without help, and nothing acknowledged is lost."""

import asyncio
import json
import re
import shutil
import sys
import threading
import unittest
import uuid

import pytest

from apportion_local import breakable, net, paths, services, wheels

from .support import Stack, run, wait

sys.path.insert(0, str(paths.CHECKOUT / "examples"))

from apportion_messages import Messages, subject  # noqa: E402

pytestmark = pytest.mark.fault

TENANT = "team-a"
PAUSE_S = 0.02
ACK_TIMEOUT_S = 2
BALLAST_BYTES = 64 << 20


class Load:
    """A tenant that requests allocations without end, each once, and remembers the acknowledged operations."""

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
                # It may have been stored or not.
                pass
            await asyncio.sleep(PAUSE_S)
        await bus.close()

    async def undecided(self):
        """The acknowledged operations that have no outcome."""
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
    """All on one stack: each test waits at its end until everything works again."""

    @classmethod
    def setUpClass(cls):
        cls.stack = Stack("--breakable")
        cls.addClassCleanup(cls.stack.close)
        cls.messages = Messages(cls.stack.descriptors())

    def setUp(self):
        self.until_nothing_is_degraded()
        self.load = Load(self.stack.value, self.messages)
        self.addCleanup(self.load.end)

    def fill(self, server):
        answer = self.stack.answer(f"fill {server}")
        if "no file system of its own" in answer:
            self.skipTest("this user may not mount a file system in memory")
        self.assertEqual(answer, "ok")
        # The tests after a failed one find the disk free.
        self.addCleanup(self.free, server)

    def free(self, server):
        self.stack.control(f"free {server}")

    def restarts(self, server):
        return self.stack.supervised()[server]["restarts"]

    def ready(self, service):
        """The answer of /readyz: whether the service is ready, and the state of each component. Empty if it does not answer."""
        try:
            answer = json.loads(net.get(self.stack.page(service, "/readyz")))
        except OSError:
            return False, {}
        return answer["ok"], answer["components"]

    def whys(self, service):
        """What is wrong with each component, whether or not the service is ready."""
        return [component["why"] for component in self.ready(service)[1].values() if "why" in component]

    def all_whys(self):
        return {service: self.whys(service) for service in services.NAMES}

    def assert_decided(self):
        """All operations that were acknowledged before, during and after have an outcome, and the ledger is whole."""
        self.load.end()
        wait(lambda: not asyncio.run(self.load.undecided()), "each acknowledged operation has an outcome")
        self.stack.verify()

    def until_load_goes_on(self, count=50):
        before = len(self.load.acknowledged)
        wait(lambda: len(self.load.acknowledged) >= before + count, "operations are acknowledged")

    def until_nothing_is_degraded(self):
        self.stack.until_ready()
        wait(lambda: not any(self.all_whys().values()), lambda: f"no component is degraded: {self.all_whys()}")

    def test_the_bus_goes_on_by_itself_when_its_disk_has_room_again(self):
        self.until_load_goes_on()
        restarts = self.restarts("nats")
        self.fill("nats")

        def reports_it(service):
            ok, components = self.ready(service)
            return not ok and "cannot store" in components.get("bus_store", {}).get("why", "")

        for service in services.NAMES:
            wait(lambda: reports_it(service), f"{service} reports that the bus cannot store")
        # A restart does not help while the disk is full.
        self.assertEqual(self.restarts("nats"), restarts)
        self.free("nats")
        self.until_load_goes_on()
        self.stack.until_ready()
        self.assertIn("no space left on device", self.stack.supervised()["nats"]["last_exit"])
        self.assert_decided()

    def test_postgres_and_who_writes_to_it_go_on_by_themselves_when_its_disk_has_room_again(self):
        self.until_load_goes_on()
        panics = self.panics()
        self.fill("postgres")
        wait(lambda: any("No space left" in why for name in services.LEDGER_WRITERS for why in self.whys(name)),
             "a service reports that Postgres has no space")
        # A write-ahead log that cannot be written ends the server, and keeps it from starting again.
        wait(lambda: self.fill_wal() or self.panics() > panics, "Postgres ends")
        self.until_load_goes_on()
        self.free("postgres")
        self.until_nothing_is_degraded()
        self.assert_decided()

    def fill_wal(self):
        run(wheels.postgres_install() / "bin" / "psql", "--no-psqlrc", "-c",
            "SELECT pg_logical_emit_message(true, 'full', 'x'), pg_switch_wal()", self.stack.value["postgres"]["admin_url"])

    def panics(self):
        return self.stack.log("postgres").count("PANIC")

    def test_clickhouse_and_the_bill_go_on_by_themselves_when_its_disk_has_room_again(self):
        self.until_load_goes_on()
        # Compared with this, the server writes and deletes little meanwhile.
        disk = self.stack.state / "clickhouse" / "data"
        if "clickhouse" in self.stack.value["breakable"]["disks"]:
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(BALLAST_BYTES))
            self.addCleanup(ballast.unlink)
            size = shutil.disk_usage(disk).used * 106 // 100
            self.addCleanup(self.free, "clickhouse")
            self.assertTrue(breakable.run("mount", "-o", f"remount,size={size}", str(disk)))
            wait(lambda: re.search("ClickHouse's disk is 9[0-9] % full", str(self.whys("analytics"))),
                 "analytics reports that ClickHouse's disk is nearly full")
            self.assertTrue(self.ready("analytics")[0])
        self.fill("clickhouse")
        wait(lambda: any("NOT_ENOUGH_SPACE" in why or "No space left" in why for why in self.whys("analytics")),
             "analytics reports that it cannot insert")
        self.until_load_goes_on()
        self.free("clickhouse")
        self.until_nothing_is_degraded()
        self.assert_decided()

    def test_parts_of_tables_that_a_full_disk_has_left_empty_are_made_again_from_the_ledger(self):
        """ClickHouse leaves such parts if its disk becomes full while it writes them: acknowledged, with empty files."""
        self.until_load_goes_on()
        self.load.end()
        tables = self.stack.state / "clickhouse" / "data" / "data" / "apportion"
        emptied = [tables / table for table in ("node_transfers", "rates")]
        wait(lambda: all(list(table.glob("all_*")) for table in emptied), "the tables have parts")
        self.until_nothing_is_degraded()
        self.stack.control("stop clickhouse")
        for table in emptied:
            for part in table.glob("all_*"):
                for file in part.iterdir():
                    file.write_bytes(b"")
        self.stack.control("start clickhouse")
        self.stack.verify()
        self.assertEqual(list(tables.glob("*/detached/broken*")), [])
