"""
The power of a machine that runs everything is cut under load, twice, and it starts again.

Modelled, by power_cut.py:

- NATS syncs each append before it acknowledges it (`sync_interval: always`), so its store is as it was at the cut. It
  promises nothing about its indices, which are older, and about an append that was under way.
- Postgres syncs its log a little after it commits, and its tables at checkpoints, of which one is under way. A
  preloaded library keeps each file as it was when it was last synced. After the cut each page of 4 KiB is the synced or
  the last one, by chance: pages are torn, and the log ends in the middle.
- ClickHouse syncs no rows. The first time, one table has lost all of the last seconds and the others have not. The second
  time, each part of these seconds is whole, absent, or there with empty or short files, by chance, and the records of which
  INSERTs were seen are cut off.

Not modelled: names (a renamed or removed file is so after the cut), stale bytes in a file of the right size, a disk that
reports a sync that it has not done, and files that the launcher writes before it starts anything.
"""

import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import threading
import unittest
import uuid
from collections import Counter

import pytest

from apportion_local import paths, postgres, wheels
from apportion_local.stack import UP_RATES

from . import power_cut
from .support import COMMAND_TIMEOUT_S, PATIENCE_S, Stack, succeeded, wait

sys.path[:0] = [str(paths.CHECKOUT / "examples"), str(paths.CHECKOUT / "loadtest")]

import check_bill  # noqa: E402
import read_frame  # noqa: E402
from apportion_messages import Messages, connect, subject  # noqa: E402

pytestmark = pytest.mark.fault

TENANT = "team-a"
WORKERS = 4
CPU_MILLI, MEMORY_BYTES = 100, 64 << 20
# The number of outcomes before the moment after which nothing is synced, then the numbers of outcomes, and of INSERTs into
# some tables, between that moment and the cut.
BEFORE, UNSYNCED, INSERTS = 60, 300, 3
ACK_TIMEOUT_S, OUTCOME_TIMEOUT_S = 60, 60


class Client:
    """A tenant that remembers the requests that the bus acknowledged, and each outcome."""

    def __init__(self, stack, messages):
        self.stack, self.m = stack, messages
        self.requests, self.outcomes = {}, {}
        self.allocations = []

    async def __aenter__(self):
        async def quiet(_error):
            pass

        creds = f"{self.stack['nats']['creds']}/tenant-{TENANT}.creds"
        self.bus = await connect(self.stack, user_credentials=creds, error_cb=quiet, allow_reconnect=False)
        self.token, self.waiting = uuid.uuid4().hex, {}
        await self.bus.subscribe(subject(self.stack, "reply", TENANT, self.token), cb=self.told)
        return self

    async def __aexit__(self, *_):
        await self.bus.close()

    async def told(self, message):
        for outcome in self.m.Outcomes.FromString(message.data).outcomes:
            waits = self.waiting.pop(outcome.operation_id, None)
            if waits and not waits.done():
                waits.set_result(outcome)

    async def ask(self, request):
        """Sends a request and returns its outcome. As soon as it is acknowledged, it is recorded as that."""
        operation = request.operation_id
        outcome = self.waiting[operation] = asyncio.get_running_loop().create_future()
        answer = await self.bus.request(subject(self.stack, "ingress", TENANT), request.SerializeToString(),
                                        timeout=ACK_TIMEOUT_S, headers={"Apportion-Reply": self.token})
        if "error" in json.loads(answer.data):
            raise RuntimeError(answer.data)
        self.requests[operation] = request
        return await asyncio.wait_for(outcome, OUTCOME_TIMEOUT_S)

    async def decide(self, **verb):
        request = self.m.Request(operation_id=uuid.uuid4().hex, **verb)
        outcome = await self.ask(request)
        self.outcomes[request.operation_id] = outcome
        return outcome

    async def work(self):
        """Starts runs, and ends earlier ones."""
        mine = []
        while True:
            outcome = await self.decide(submit=self.m.Submit(
                job_set="cut", cpu_milli=CPU_MILLI, memory_bytes=MEMORY_BYTES))
            mine.append(outcome.submitted.allocation_id)
            if len(mine) > 5:
                await self.decide(cancel=self.m.Cancel(allocation_id=mine.pop(0)))

    async def load(self, over):
        async with self:
            workers = [asyncio.create_task(self.work()) for _ in range(WORKERS)]
            while not over.is_set():
                await asyncio.sleep(0.01)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def ask_all_again(self):
        """Sends all acknowledged requests again, and returns their outcomes by operation."""
        crowd = asyncio.Semaphore(WORKERS)

        async def again(operation):
            async with crowd:
                return operation, await self.ask(self.requests[operation])

        async with self:
            return dict(await asyncio.gather(*map(again, list(self.requests))))


class PowerCut(unittest.TestCase):
    def setUp(self):
        self.stack = Stack(up=False)
        self.addCleanup(self.stack.close)
        self.synced = power_cut.Synced(self.stack.root, self.stack.state / "postgres" / "data")
        self.stack.environment = self.synced.environment
        self.stack.up()
        self.m = Messages(self.stack.descriptors())
        self.client = Client(self.stack.value, self.m)
        self.chance = random.Random(1)
        self.found = None

    def psql_command(self):
        return [str(wheels.postgres_install() / "bin" / "psql"), "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1",
                self.stack.value["postgres"]["admin_url"]]

    def psql(self, sql):
        return succeeded(subprocess.run(self.psql_command(), input=sql, capture_output=True, text=True,
                                        timeout=COMMAND_TIMEOUT_S))

    # The cut.

    def cut_under_load(self, lose):
        """`lose` removes some of ClickHouse's parts that were not synced."""
        over = threading.Event()
        load = threading.Thread(target=lambda: asyncio.run(self.client.load(over)))
        load.start()
        self.addCleanup(load.join)
        self.addCleanup(over.set)
        self.until_outcomes(BEFORE)
        self.psql("CHECKPOINT")
        parts = power_cut.Parts(self.stack.state / "clickhouse" / "data" / "data" / "apportion")
        streams = power_cut.Streams(self.stack.state / "nats")
        self.until_outcomes(UNSYNCED)
        wait(lambda: all(parts.inserts(table) >= INSERTS for table in ("ledger_ranges", "allocation_intervals", "usage_hourly")),
             "runs are billed")
        with self.checkpoint_under_way():
            power_cut.cut(int((self.stack.state / "launcher.pid").read_text(encoding="ascii")))
        over.set()
        load.join()
        self.assertGreater(power_cut.cut_postgres(self.synced, self.chance), 0)
        self.assertGreater(lose(parts), 0)
        streams.lose_what_was_not_synced()

    @contextlib.contextmanager
    def checkpoint_under_way(self):
        """Writes pages of tables that are not synced yet."""
        def begun():
            return self.stack.log("postgres").count("checkpoint starting")

        before = begun()
        command = subprocess.Popen([*self.psql_command(), "-c", "CHECKPOINT"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait(lambda: begun() > before, "a checkpoint begins", interval_s=0.001)
            yield
        finally:
            command.wait()

    def until_outcomes(self, count):
        before = len(self.client.outcomes)
        wait(lambda: len(self.client.outcomes) >= before + count, "requests are decided")

    # Checks afterwards.

    def assert_the_same_outcomes(self):
        again = asyncio.run(self.client.ask_all_again())
        for operation, outcome in self.client.outcomes.items():
            self.assertEqual(str(again[operation]), str(outcome))
        self.client.outcomes = again

    def assert_healed(self):
        self.stack.until_ready()
        self.until_settled()
        self.stack.apportion("verify")
        self.assertEqual(self.stack.select("SELECT * FROM range_differences WHERE error != 0"), [])
        self.stack.apportion("conservation")
        self.assert_ledger_has_every_request(asyncio.run(self.events()))
        wait(self.is_bill_of_ledger, "the bill is what the ledger's runs come to")

    def until_settled(self):
        """No table has more than the ledger, the ledger is at rest, and the bill has all of it."""
        wait(self.is_settled, lambda: self.repair().stdout)
        self.stack.verify()

    def repair(self):
        return self.stack.ask("repair", "--config", self.stack.state / "config" / "bus.toml")

    def is_settled(self):
        plan = self.repair()
        reached = re.findall(r"(?:tables of \w+|the feed|the bill) has read it up to lsn (\d+): agrees", plan.stdout)
        before, self.found = self.found, (re.findall(r"ends at lsn (\d+)", plan.stdout), reached)
        return plan.returncode == 0 and len(reached) == 6 and self.found == before

    async def events(self):
        """All events of the ledger as (writer, number, event), by a reader that shares no code with the suite."""
        from nats.js.api import AckPolicy, ConsumerConfig

        found = []
        bus = await connect(self.stack.value, user_credentials=str(self.stack.creds("quota")))
        stream = f"APPORTION_{self.stack.value['cell']['name']}_LEDGER"
        left = (await bus.jetstream(timeout=PATIENCE_S).stream_info(stream)).state.messages
        unasked = ConsumerConfig(ack_policy=AckPolicy.NONE)
        frames = await bus.jetstream(timeout=PATIENCE_S).pull_subscribe("", stream=stream, config=unasked)
        while left:
            for message in await frames.fetch(min(left, 200), timeout=PATIENCE_S):
                frame, events = read_frame.read(self.m, message.data)
                writer = message.subject.rsplit(".", 1)[1]
                found += [(writer, number, event) for number, event in enumerate(events, frame.first_event_no)]
                left -= 1
        await bus.close()
        return found

    def assert_ledger_has_every_request(self, events):
        """Each acknowledged request is on the ledger once."""
        kinds = ("allocation_requested", "cancel_requested", "operation_refused")
        events = [(event.WhichOneof("kind"), event) for _, _, event in events]
        asked = Counter(getattr(event, kind).operation.operation_id for kind, event in events if kind in kinds)
        for operation in self.client.requests:
            self.assertEqual(asked[operation], 1, operation)

    def is_bill_of_ledger(self):
        """Whether the bill is what the ledger's runs come to. It is not, if a run ends after one is read and before the other is."""
        runs, begun = [], {}

        def add(started, ended):
            runs.append({"tenant": TENANT, "job_set": "", "started_ms": started, "ended_ms": ended, "gpu_model": "",
                         "cpu_milli": CPU_MILLI, "memory_bytes": MEMORY_BYTES, "gpu_milli": 0})

        for _, _, event in asyncio.run(self.events()):
            kind = event.WhichOneof("kind")
            fact = getattr(event, kind)
            if kind == "allocation_started":
                begun[fact.allocation] = fact.at_ms
            elif kind in ("allocation_ended", "allocation_requeued") and fact.allocation in begun:
                add(begun.pop(fact.allocation), fact.at_ms)
        billed, until = self.billed()
        for started in begun.values():
            add(started, until)
        prices = {resource: [(0, micro)] for resource, micro in UP_RATES.items()}
        return billed == {(tenant, hour, resource): (quantity, check_bill.line_micro(quantity, resource, micro))
                          for (tenant, hour, resource, _, micro), quantity in check_bill.usage(runs, prices).items() if quantity}

    def billed(self):
        """The lines of the bill, and the moment up to which running allocations are in them."""
        while True:
            until = self.known_through()
            rows = self.stack.select("SELECT tenant, intDiv(toUnixTimestamp(hour), 3600), resource, quantity, amount_micro "
                                   "FROM chargeback_hourly WHERE quantity != 0")
            if self.known_through() == until:
                return {(tenant, int(hour), resource): (int(quantity), int(amount))
                        for tenant, hour, resource, quantity, amount in rows}, until

    def known_through(self):
        ((at,),) = self.stack.select("SELECT toUnixTimestamp64Milli(at) FROM known_through")
        return int(at)

    def tables(self):
        return self.psql("SELECT schemaname || '.' || tablename FROM pg_tables "
                         f"WHERE schemaname IN {postgres.SCHEMAS}").split()

    def rows(self):
        """The rows of all tables of warm state, without the tables' positions."""
        return {name: self.psql(f"SELECT t FROM {name} t ORDER BY t::text COLLATE \"C\"")
                for name in self.tables() if not name.endswith(".projection_position")}

    def assert_tables_are_what_a_rebuild_gives(self):
        before = self.rows()
        self.assertGreater(sum(rows.count("\n") for rows in before.values()), UNSYNCED)
        self.psql(f"TRUNCATE {', '.join(self.tables())}")
        self.until_settled()
        after = self.rows()
        for name in sorted(before.keys() | after.keys()):
            self.assertEqual(after.get(name), before.get(name), name)

    def test_nothing_acknowledged_is_lost_and_both_databases_heal(self):
        self.cut_under_load(lambda parts: parts.lose_one_table(self.chance))
        self.stack.up()
        self.assert_the_same_outcomes()
        self.assert_healed()
        self.assertIn("tables emptied that had lost rows", self.stack.log("analytics"))

        self.cut_under_load(lambda parts: parts.lose_some_of_each(self.chance))
        self.stack.up()
        self.assert_the_same_outcomes()
        self.assert_healed()
        self.assert_tables_are_what_a_rebuild_gives()
