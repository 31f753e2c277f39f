"""The accounts on a real server: what crosses between tenants, nodes and services, and what does not."""

import unittest

from .support import NatsServer, until

CELL = "cell-1"
PREFIX = f"apportion.v1.{CELL}"


class Collected:
    """A subscription that keeps what it hears."""

    def __init__(self):
        self.messages = []

    async def hear(self, message):
        self.messages.append(message)

    @property
    def data(self):
        return [message.data for message in self.messages]


async def listen(client, subject):
    collected = Collected()
    await client.subscribe(subject, cb=collected.hear)
    await client.flush()
    return collected


class Accounts(unittest.IsolatedAsyncioTestCase):
    cell = CELL

    @classmethod
    def setUpClass(cls):
        cls.server = NatsServer(cls.cell, ["tenant-a", "tenant-b"])

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    async def asyncSetUp(self):
        async with self.server.connect("operator") as operator:
            js = operator.jetstream()
            for name, subjects in ((f"APPORTION_{CELL}_INGRESS", [f"{PREFIX}.ingress.*", f"{PREFIX}.admin"]),
                                   (f"APPORTION_{CELL}_LEDGER", [f"{PREFIX}.ledger.*"]),
                                   (f"APPORTION_{CELL}_REPORT", [f"{PREFIX}.node.*.report"])):
                await js.add_stream(name=name, subjects=subjects)

    async def asyncTearDown(self):
        async with self.server.connect("operator") as operator:
            for info in await operator.jetstream().streams_info():
                await operator.jetstream().delete_stream(info.config.name)

    async def messages(self, kind):
        async with self.server.connect("operator") as operator:
            return (await operator.jetstream().stream_info(f"APPORTION_{CELL}_{kind}")).state.messages

    async def test_a_tenant_gets_the_acknowledgement_of_the_ingress_stream(self):
        async with self.server.connect("tenant:tenant-a") as tenant:
            ack = await tenant.jetstream().publish(f"{PREFIX}.ingress.tenant-a", b"hello")
        self.assertEqual((ack.stream, ack.seq), (f"APPORTION_{CELL}_INGRESS", 1))

    async def test_nothing_of_a_tenant_reaches_what_is_not_its_own(self):
        foreign = [f"{PREFIX}.ingress.tenant-b", f"{PREFIX}.admin", f"{PREFIX}.ledger.quota",
                   f"{PREFIX}.node.n1.report", f"{PREFIX}.node.n1.assign", f"{PREFIX}.event.tenant-b.job",
                   f"{PREFIX}.query.tenant-b.get", f"$JS.API.STREAM.DELETE.APPORTION_{CELL}_INGRESS",
                   f"$JS.API.CONSUMER.CREATE.APPORTION_{CELL}_LEDGER", f"{PREFIX}.event.tenant-a.job"]
        async with self.server.connect("admission") as admission, \
                self.server.connect("node-heartbeat") as door, \
                self.server.connect("tenant:tenant-b") as other, \
                self.server.connect("tenant:tenant-a") as tenant:
            heard = [await listen(admission, f"{PREFIX}.query.*.*"), await listen(door, f"{PREFIX}.node.*.heartbeat"),
                     await listen(other, f"{PREFIX}.event.tenant-b.>"), await listen(other, "_INBOX.>")]
            for subject in foreign:
                await tenant.publish(subject, b"intruder")
            await tenant.flush()
            await until(lambda: len(tenant.refusals) == len(foreign))
            for client in (admission, door, other):
                await client.flush()
        self.assertEqual([item.data for item in heard], [[], [], [], []])
        for kind in ("INGRESS", "LEDGER", "REPORT"):
            self.assertEqual(await self.messages(kind), 0, kind)

    async def test_a_tenant_hears_its_own_events_and_replies_only(self):
        foreign = [f"{PREFIX}.event.tenant-b.>", f"{PREFIX}.event.>", f"{PREFIX}.reply.tenant-b.>", ">",
                   f"{PREFIX}.ingress.*", f"{PREFIX}.ledger.>", f"{PREFIX}.node.*.assign", "$JS.>"]
        async with self.server.connect("admission") as admission, \
                self.server.connect("tenant:tenant-a") as tenant:
            own = [await listen(tenant, f"{PREFIX}.event.tenant-a.>"),
                   await listen(tenant, f"{PREFIX}.reply.tenant-a.>")]
            stolen = [await listen(tenant, subject) for subject in foreign]
            await until(lambda: len(tenant.refusals) == len(foreign))
            for name in ("tenant-b", "tenant-a"):
                await admission.publish(f"{PREFIX}.event.{name}.job", name.encode())
                await admission.publish(f"{PREFIX}.reply.{name}.r1", name.encode())
            await admission.flush()
            await until(lambda: all(item.messages for item in own))
        self.assertEqual([item.data for item in own], [[b"tenant-a"], [b"tenant-a"]])
        self.assertEqual([item.data for item in stolen], [[] for _ in foreign])

    async def test_a_reply_subject_of_the_cell_injects_nothing_into_the_cell(self):
        """JetStream answers a publish on its reply subject: a tenant that names a ledger subject gets nowhere."""
        for reply in (f"{PREFIX}.ledger.quota", f"{PREFIX}.admin", f"{PREFIX}.node.n1.report"):
            async with self.server.connect("tenant:tenant-a") as tenant:
                await tenant.publish(f"{PREFIX}.ingress.tenant-a", b"x", reply=reply)
                # The second publish is answered after the first was stored.
                await tenant.jetstream().publish(f"{PREFIX}.ingress.tenant-a", b"y")
        self.assertEqual(await self.messages("INGRESS"), 6)
        self.assertEqual(await self.messages("LEDGER"), 0)
        self.assertEqual(await self.messages("REPORT"), 0)

    async def test_queries_are_answered_across_accounts_by_whose_they_are(self):
        verbs = {"admission": ("feed", "operation"), "scheduler": ("allocation", "reservation", "resource")}
        for service, own in verbs.items():
            async with self.server.connect(service) as answering, self.server.connect("tenant:tenant-a") as tenant:
                async def answer(message):
                    await message.respond(message.subject.encode())

                for verb in own:
                    await answering.subscribe(f"{PREFIX}.query.*.{verb}", queue="query", cb=answer)
                await answering.flush()
                for verb in own:
                    reply = await tenant.request(f"{PREFIX}.query.tenant-a.{verb}", b"", timeout=5)
                    self.assertEqual(reply.data, f"{PREFIX}.query.tenant-a.{verb}".encode())

    async def test_nobody_hears_what_others_are_asked(self):
        foreign = {"scheduler": [f"{PREFIX}.query.*.feed", f"{PREFIX}.query.*.operation", f"{PREFIX}.query.*.*"],
                   "quota": [f"{PREFIX}.query.*.allocation"], "analytics": [f"{PREFIX}.query.>"],
                   "tenant:tenant-a": [f"{PREFIX}.query.tenant-a.feed", f"{PREFIX}.query.*.allocation"]}
        for user, subjects in foreign.items():
            async with self.server.connect(user) as spy, self.server.connect("tenant:tenant-b") as tenant:
                heard = [await listen(spy, subject) for subject in subjects]
                await until(lambda: len(spy.refusals) == len(subjects))
                for verb in ("feed", "operation", "allocation"):
                    await tenant.publish(f"{PREFIX}.query.tenant-b.{verb}", b"secret")
                await tenant.flush()
                await spy.flush()
                self.assertEqual([item.data for item in heard], [[] for _ in subjects], user)

    async def test_a_service_answers_only_what_it_was_asked(self):
        async with self.server.connect("scheduler") as scheduler, self.server.connect("tenant:tenant-a") as tenant:
            heard = await listen(tenant, f"{PREFIX}.reply.tenant-a.>")
            foreign = [f"{PREFIX}.reply.tenant-a.r1", f"{PREFIX}.event.tenant-a.job", "_INBOX.x"]
            for subject in foreign:
                await scheduler.publish(subject, b"unasked")
            await scheduler.flush()
            await until(lambda: len(scheduler.refusals) == len(foreign))
            await tenant.flush()
            self.assertEqual(heard.data, [])

    async def test_the_fleet_reports_syncs_beats_and_is_assigned(self):
        async with self.server.connect("node-heartbeat") as door, self.server.connect("fleet") as fleet:
            async def answer(message):
                await message.respond(b"state")

            beats = await listen(door, f"{PREFIX}.node.*.heartbeat")
            await door.subscribe(f"{PREFIX}.node.*.sync", cb=answer)
            await door.flush()
            assigned = await listen(fleet, f"{PREFIX}.node.*.assign")
            await fleet.publish(f"{PREFIX}.node.n1.heartbeat", b"beat")
            ack = await fleet.jetstream().publish(f"{PREFIX}.node.n1.report", b"started")
            self.assertEqual(ack.stream, f"APPORTION_{CELL}_REPORT")
            self.assertEqual((await fleet.request(f"{PREFIX}.node.n1.sync", b"", timeout=5)).data, b"state")
            await door.publish(f"{PREFIX}.node.n1.assign", b"run")
            await until(lambda: beats.messages and assigned.messages)
            self.assertEqual((beats.data, assigned.data), ([b"beat"], [b"run"]))

    async def test_a_service_writes_its_own_ledger_subject_only(self):
        async with self.server.connect("quota") as quota:
            ack = await quota.jetstream().publish(f"{PREFIX}.ledger.quota", b"frame")
            self.assertEqual(ack.seq, 1)
            foreign = [f"{PREFIX}.ledger.scheduler", f"{PREFIX}.admin", f"{PREFIX}.ingress.tenant-a",
                       f"{PREFIX}.event.tenant-a.job", f"{PREFIX}.node.n1.assign",
                       f"$JS.API.STREAM.DELETE.APPORTION_{CELL}_LEDGER",
                       f"$JS.API.STREAM.UPDATE.APPORTION_{CELL}_LEDGER"]
            for subject in foreign:
                await quota.publish(subject, b"x")
            await quota.flush()
            await until(lambda: len(quota.refusals) == len(foreign))
            message = await quota.jetstream().get_msg(f"APPORTION_{CELL}_LEDGER", seq=1)
            self.assertEqual(message.data, b"frame")
        self.assertEqual(await self.messages("LEDGER"), 1)
        self.assertEqual(await self.messages("INGRESS"), 0)

    async def test_a_service_follows_the_ledger_by_push_and_by_pull(self):
        async with self.server.connect("quota") as quota, self.server.connect("scheduler") as scheduler:
            await quota.jetstream().publish(f"{PREFIX}.ledger.quota", b"frame")
            js = scheduler.jetstream()
            push = await js.subscribe(f"{PREFIX}.ledger.>", stream=f"APPORTION_{CELL}_LEDGER", ordered_consumer=True)
            self.assertEqual((await push.next_msg(timeout=5)).data, b"frame")
            pull = await js.pull_subscribe(f"{PREFIX}.ledger.>", durable="scheduler", stream=f"APPORTION_{CELL}_LEDGER")
            (message,) = await pull.fetch(1, timeout=5)
            await message.ack_sync()

    async def test_a_service_keeps_snapshots_in_the_object_store(self):
        async with self.server.connect("operator") as operator:
            await operator.jetstream().create_object_store(bucket=f"APPORTION_{CELL}_SNAPSHOT")
        async with self.server.connect("quota") as quota:
            store = await quota.jetstream().object_store(f"APPORTION_{CELL}_SNAPSHOT")
            for content in (b"one", b"two" * 100_000):
                await store.put("quota", content)
            self.assertEqual((await store.get("quota")).data, b"two" * 100_000)


class AnyCell(Accounts):
    """The same with a server that does not know its cells, as the tests of the services use it."""

    cell = "*"


if __name__ == "__main__":
    unittest.main()
