"""
The power of a machine that runs everything is cut under load, twice, and it starts again.

Modelled, by power_cut.py:

- NATS syncs each append before it acknowledges it (`sync_interval: always`), so its store is as it was at the cut; of
  what it does not promise, indices are older and an append was under way.
- Postgres syncs its log a little after it commits, and its tables at checkpoints, of which one is under way. A
  preloaded library keeps each file as it was when it was last synced. After the cut each page of 4 KiB is the synced or
  the last one, by chance: pages are torn, and the log ends in the middle.
- ClickHouse syncs no rows. First, one table has lost all of the last seconds and the others have not. The second time,
  each part of these seconds is whole, away, or there with empty or short files, by chance, and the records of which
  INSERTs were seen are cut off.

Not modelled: names (what was renamed or removed has been), stale bytes in a file of the right size, a disk that says
that it has synced and has not, and what the launcher itself writes down before it starts anything.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
import uuid
from collections import Counter
from pathlib import Path

from . import power_cut, support  # noqa: F401  (puts the launcher's package on the path)
from apportion_local import net, paths, postgres, services, wheels

sys.path[:0] = [str(paths.CHECKOUT / "examples"), str(paths.CHECKOUT / "loadtest")]

import check_bill  # noqa: E402
import read_frame  # noqa: E402
from apportion_messages import Messages, connect, subject  # noqa: E402
from apportion_local.stack import UP_RATES  # noqa: E402

PROGRAMS = paths.bin_dir("debug")
TENANT = "team-a"
WORKERS = 4
CPU_MILLI, MEMORY_BYTES = 100, 64 << 20
# How many outcomes there are before the moment whose files are on the disk, and how many and how many INSERTs of some
# tables between that and the cut.
BEFORE, UNSYNCED, INSERTS = 60, 300, 3
ACK_TIMEOUT_S, OUTCOME_TIMEOUT_S = 2, 10
COMMAND_TIMEOUT_S = 180
# Against hanging.
PATIENCE_S = 90


class Client:
    """A tenant who remembers what the bus has acknowledged, and each outcome."""

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
        """The outcome of an operation, which is on record as acknowledged as soon as it is."""
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
        """Runs begin, and earlier ones end."""
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
        """The outcome of everything that was acknowledged, by the same operations."""
        crowd = asyncio.Semaphore(WORKERS)

        async def again(operation):
            async with crowd:
                return operation, await self.ask(self.requests[operation])

        async with self:
            return dict(await asyncio.gather(*map(again, list(self.requests))))


class PowerCut(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name).resolve()
        # Passable, so that the servers' data lies where it is.
        self.root.chmod(0o711)
        self.state = self.root / "up"
        self.synced = power_cut.Synced(self.root, self.state / "postgres" / "data")
        self.addCleanup(self.launcher, "down")
        self.up()
        descriptors = self.root / "apportion.binpb"
        self.done("schema", "descriptors", "--out", str(descriptors))
        self.m = Messages(descriptors)
        self.client = Client(self.stack, self.m)
        self.chance = random.Random(1)
        self.found = None

    def launcher(self, *words):
        return subprocess.run([sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state",
                               str(self.state)], env={**os.environ, **self.synced.environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)

    def up(self):
        up = self.launcher("up", "--bin-dir", str(PROGRAMS))
        self.assertEqual(up.returncode, 0, up.stdout[-4000:] + up.stderr[-4000:])
        self.stack = json.loads((self.state / "stack.json").read_text(encoding="utf-8"))

    def apportion(self, *words):
        return subprocess.run([str(PROGRAMS / "apportion"), "--stack", str(self.state / "stack.json"), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)

    def done(self, *words):
        done = self.apportion(*words)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def until(self, what, condition):
        self.assertTrue(net.wait_until(condition, PATIENCE_S, 0.1), what)

    def psql_command(self):
        return [str(wheels.postgres_install() / "bin" / "psql"), "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1",
                self.stack["postgres"]["admin_url"]]

    def psql(self, sql):
        done = subprocess.run(self.psql_command(), input=sql, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def clickhouse(self, sql):
        """The rows of an answer."""
        server = self.stack["clickhouse"]
        request = urllib.request.Request(f"{server['url']}/?database={server['database']}", data=sql.encode(), headers={
            "X-ClickHouse-User": server["reader"]["user"], "X-ClickHouse-Key": server["reader"]["password"]})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return [line.split("\t") for line in answer.read().decode().splitlines()]

    # The cut.

    def cut_under_load(self, lose):
        """`lose` takes away of ClickHouse's parts that were not synced."""
        over = threading.Event()
        load = threading.Thread(target=lambda: asyncio.run(self.client.load(over)))
        load.start()
        self.addCleanup(load.join)
        self.addCleanup(over.set)
        self.until_outcomes(BEFORE)
        self.psql("CHECKPOINT")
        parts = power_cut.Parts(self.state / "clickhouse" / "data" / "data" / "apportion")
        streams = power_cut.Streams(self.state / "nats")
        self.until_outcomes(UNSYNCED)
        self.until("no runs are billed", lambda: all(parts.inserts(table) >= INSERTS for table in (
            "ledger_ranges", "allocation_intervals", "usage_hourly")))
        with self.checkpoint_under_way():
            power_cut.cut(int((self.state / "launcher.pid").read_text(encoding="ascii")))
        over.set()
        load.join()
        self.assertGreater(power_cut.cut_postgres(self.synced, self.chance), 0)
        self.assertGreater(lose(parts), 0)
        streams.lose_what_was_not_synced()

    @contextlib.contextmanager
    def checkpoint_under_way(self):
        """While pages of tables are written that are not synced yet."""
        def begun():
            return self.log("postgres").count("checkpoint starting")

        before = begun()
        command = subprocess.Popen([*self.psql_command(), "-c", "CHECKPOINT"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.assertTrue(net.wait_until(lambda: begun() > before, PATIENCE_S, 0.001))
            yield
        finally:
            command.wait()

    def log(self, name):
        return (self.state / "log" / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def until_outcomes(self, count):
        before = len(self.client.outcomes)
        self.until("nothing is decided", lambda: len(self.client.outcomes) >= before + count)

    # What must hold afterwards.

    def assert_the_same_outcomes(self):
        again = asyncio.run(self.client.ask_all_again())
        for operation, outcome in self.client.outcomes.items():
            self.assertEqual(str(again[operation]), str(outcome))
        self.client.outcomes = again

    def assert_healed(self):
        self.until("not every service is ready", lambda: all(
            net.http_ok(f"http://{self.stack['services'][name]['http']}/readyz") for name in services.NAMES))
        self.until_settled()
        self.done("verify")
        self.assertEqual(self.clickhouse("SELECT * FROM range_differences WHERE error != 0"), [])
        self.done("conservation")
        self.assert_ledger_has_every_request(asyncio.run(self.events()))
        self.until("the bill is not what the ledger's runs come to", self.is_bill_of_ledger)

    def until_settled(self):
        """Nobody has read what the ledger lacks, the ledger is at rest, and the bill has all of it."""
        self.until("the ledger and who has read it disagree", self.is_settled)
        self.until("the books do not balance", lambda: self.apportion("conservation").returncode == 0)

    def is_settled(self):
        plan = self.apportion("repair", "--config", str(self.state / "config" / "bus.toml"))
        reached = re.findall(r"(?:tables of \w+|the feed|the bill) has read it up to lsn (\d+): agrees", plan.stdout)
        before, self.found = self.found, (re.findall(r"ends at lsn (\d+)", plan.stdout), reached)
        return plan.returncode == 0 and len(reached) == 6 and self.found == before

    async def events(self):
        """All of the ledger, by a reader that shares no code with the suite: (writer, number, event)."""
        from nats.js.api import AckPolicy, ConsumerConfig

        found = []
        bus = await connect(self.stack, user_credentials=f"{self.stack['nats']['creds']}/quota.creds")
        stream = f"APPORTION_{self.stack['cell']['name']}_LEDGER"
        left = (await bus.jetstream().stream_info(stream)).state.messages
        unasked = ConsumerConfig(ack_policy=AckPolicy.NONE)
        frames = await bus.jetstream().pull_subscribe("", stream=stream, config=unasked)
        while left:
            for message in await frames.fetch(min(left, 200)):
                frame, events = read_frame.read(self.m, message.data)
                writer = message.subject.rsplit(".", 1)[1]
                found += [(writer, number, event) for number, event in enumerate(events, frame.first_event_no)]
                left -= 1
        await bus.close()
        return found

    def assert_ledger_has_every_request(self, events):
        """What was acknowledged is on the ledger once."""
        kinds = ("allocation_requested", "cancel_requested", "operation_refused")
        said = [(event.WhichOneof("kind"), event) for _, _, event in events]
        asked = Counter(getattr(event, kind).operation.operation_id for kind, event in said if kind in kinds)
        for operation in self.client.requests:
            self.assertEqual(asked[operation], 1, operation)

    def is_bill_of_ledger(self):
        """The bill is what the ledger's runs come to; not while a run ends between two looks at them."""
        runs, begun = [], {}

        def add(started, ended):
            runs.append({"tenant": TENANT, "job_set": "", "started_ms": started, "ended_ms": ended, "gpu_model": "",
                         "cpu_milli": CPU_MILLI, "memory_bytes": MEMORY_BYTES, "gpu_milli": 0})

        for _, _, event in asyncio.run(self.events()):
            kind = event.WhichOneof("kind")
            said = getattr(event, kind)
            if kind == "allocation_started":
                begun[said.allocation] = said.at_ms
            elif kind in ("allocation_ended", "allocation_requeued") and said.allocation in begun:
                add(begun.pop(said.allocation), said.at_ms)
        billed, until = self.billed()
        for started in begun.values():
            add(started, until)
        prices = {resource: [(0, micro)] for resource, micro in UP_RATES.items()}
        return billed == {(tenant, hour, resource): (quantity, check_bill.line_micro(quantity, resource, micro))
                          for (tenant, hour, resource, _, micro), quantity in check_bill.usage(runs, prices).items() if quantity}

    def billed(self):
        """The lines of the bill, and the moment up to which what runs is in them."""
        while True:
            until = self.known_through()
            rows = self.clickhouse("SELECT tenant, intDiv(toUnixTimestamp(hour), 3600), resource, quantity, amount_micro "
                                   "FROM chargeback_hourly WHERE quantity != 0")
            if self.known_through() == until:
                return {(tenant, int(hour), resource): (int(quantity), int(amount))
                        for tenant, hour, resource, quantity, amount in rows}, until

    def known_through(self):
        ((at,),) = self.clickhouse("SELECT toUnixTimestamp64Milli(at) FROM known_through")
        return int(at)

    def tables(self):
        return self.psql("SELECT schemaname || '.' || tablename FROM pg_tables "
                         f"WHERE schemaname IN {postgres.SCHEMAS}").split()

    def rows(self):
        """Of all tables of warm state, but not how far they are."""
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
        self.up()
        self.assert_the_same_outcomes()
        self.assert_healed()
        self.assertIn("tables emptied that had lost rows", self.log("analytics"))

        self.cut_under_load(lambda parts: parts.lose_some_of_each(self.chance))
        self.up()
        self.assert_the_same_outcomes()
        self.assert_healed()
        self.assert_tables_are_what_a_rebuild_gives()


if __name__ == "__main__":
    unittest.main()
