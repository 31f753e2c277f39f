"""The accounts on a real server: the messages that cross between tenants, nodes and services, and those that do not."""

import base64
import contextlib
import itertools
import json
import unittest

import pytest

from .support import PATIENCE_S, NatsServer, settle, until

pytestmark = pytest.mark.system

CELL = "cell-1"
PREFIX = f"apportion.v1.{CELL}"
STREAMS = {
    f"APPORTION_{CELL}_LEDGER": [f"{PREFIX}.ledger.*"],
    f"APPORTION_{CELL}_INGRESS": [f"{PREFIX}.ingress.*", f"{PREFIX}.admin", f"{PREFIX}.admin.*"],
    f"APPORTION_{CELL}_REPORT": [f"{PREFIX}.node.*.report"],
    f"APPORTION_{CELL}_EVENT": [f"{PREFIX}.event.*.*"],
}
LEDGER = f"APPORTION_{CELL}_LEDGER"
BUCKET = f"APPORTION_{CELL}_SNAPSHOT"
SNAPSHOT = f"OBJ_{BUCKET}"
HEARTBEATS = f"{PREFIX}.node.*.heartbeat"
HEARTBEAT_BUCKET = f"APPORTION_{CELL}_HEARTBEAT"
# The bucket as `apportion cell init` makes it.
HEARTBEAT = {
    "name": f"KV_{HEARTBEAT_BUCKET}", "subjects": [HEARTBEATS], "storage": "memory", "max_msgs_per_subject": 1,
    "subject_transform": {"src": HEARTBEATS, "dest": f"$KV.{HEARTBEAT_BUCKET}.{{{{wildcard(1)}}}}"},
    "max_age": 40 * 10**9, "max_msg_size": 4096, "no_ack": True, "allow_direct": True, "duplicate_window": 10**8,
}
ALL = (*STREAMS, SNAPSHOT, HEARTBEAT["name"])
WRITERS = ("admission", "quota", "scheduler", "node-heartbeat")
SERVICES = (*WRITERS, "analytics")
# A tenant's limits: connections of the account, and subscriptions of one connection.
CONNECTIONS_MAX, SUBSCRIPTIONS_MAX = 256, 64
# The interval of heartbeats to consumers.
BEAT_NS = 10**8
# A subject without subscribers.
INBOX = "_INBOX.nobody"


def snapshot(name):
    """The subject of the message that makes parts a snapshot of this name."""
    return f"$O.{BUCKET}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


# The subjects of streams that a user may publish to.
STORES = {
    "admission": (f"{PREFIX}.ledger.admission", f"{PREFIX}.event.tenant-a.job"),
    "quota": (f"{PREFIX}.ledger.quota", snapshot("quota")),
    "scheduler": (f"{PREFIX}.ledger.scheduler",),
    "node-heartbeat": (f"{PREFIX}.ledger.node-heartbeat",),
    "analytics": (snapshot("projection-analytics"),),
    "operator": (f"{PREFIX}.admin",),
    "operator:alice": (f"{PREFIX}.admin.alice",),
    "bus": tuple(f"{PREFIX}.ledger.{writer}" for writer in WRITERS),
    "fleet": (f"{PREFIX}.node.n1.report", f"{PREFIX}.node.n1.heartbeat"),
    "tenant:tenant-a": (f"{PREFIX}.ingress.tenant-a",),
}
# Other subjects that a user may publish to. The agents are one user, which receives its own messages.
SAYS = {"admission": (f"{PREFIX}.reply.tenant-b.r1",), "node-heartbeat": (f"{PREFIX}.node.n1.assign",),
        "fleet": (f"{PREFIX}.node.n1.assign",)}
# The streams that a user may purge.
PURGES = {**dict.fromkeys(SERVICES, (SNAPSHOT,)), "node-heartbeat": (f"APPORTION_{CELL}_REPORT", SNAPSHOT),
          "admission": (f"APPORTION_{CELL}_INGRESS", f"APPORTION_{CELL}_EVENT", SNAPSHOT)}


class Collected:
    """The messages of a subscription."""

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
    await settle(client)
    return collected


class Accounts(unittest.IsolatedAsyncioTestCase):
    cell = CELL
    # Whether each stream has its own account.
    apart = True
    numbers = itertools.count()

    @classmethod
    def setUpClass(cls):
        cls.server = NatsServer(cls.cell, ["tenant-a", "tenant-b"], ["alice", "bob"])

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    async def asyncSetUp(self):
        async with self.server.connect("bus") as bus:
            js = bus.jetstream()
            for name, subjects in STREAMS.items():
                await js.add_stream(name=name, subjects=subjects)
            await js.create_object_store(bucket=BUCKET)
            made = await ask(bus, f"STREAM.CREATE.{HEARTBEAT['name']}", HEARTBEAT)
            self.assertNotIn("error", made)

    async def asyncTearDown(self):
        async with self.server.connect("bus") as bus:
            for name in ALL:
                await bus.jetstream().delete_stream(name)

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
            await settle(tenant)
            await until(lambda: len(tenant.refusals) == len(foreign))
            for client in (admission, door, other):
                await settle(client)
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
            await settle(admission)
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
        verbs = {"admission": ("feed", "operation"), "scheduler": ("allocation", "lease", "resource")}
        for service, own in verbs.items():
            async with self.server.connect(service) as answering, self.server.connect("tenant:tenant-a") as tenant:
                async def answer(message):
                    await message.respond(message.subject.encode())

                for verb in own:
                    await answering.subscribe(f"{PREFIX}.query.*.{verb}", queue="query", cb=answer)
                await settle(answering)
                for verb in own:
                    reply = await tenant.request(f"{PREFIX}.query.tenant-a.{verb}", b"", timeout=PATIENCE_S)
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
                await settle(tenant)
                await settle(spy)
                self.assertEqual([item.data for item in heard], [[] for _ in subjects], user)

    async def test_a_service_answers_only_what_it_was_asked(self):
        async with self.server.connect("scheduler") as scheduler, self.server.connect("tenant:tenant-a") as tenant:
            heard = await listen(tenant, f"{PREFIX}.reply.tenant-a.>")
            foreign = [f"{PREFIX}.reply.tenant-a.r1", f"{PREFIX}.event.tenant-a.job", "_INBOX.x"]
            for subject in foreign:
                await scheduler.publish(subject, b"unasked")
            await settle(scheduler)
            await until(lambda: len(scheduler.refusals) == len(foreign))
            await settle(tenant)
            self.assertEqual(heard.data, [])

    async def test_a_tenant_has_so_many_connections_and_subscriptions_and_no_more(self):
        a, b = "tenant:tenant-a", "tenant:tenant-b"
        async with self.server.connect(a) as tenant, self.server.connect(b) as other:
            for no in range(SUBSCRIPTIONS_MAX):
                await tenant.subscribe(f"{PREFIX}.event.tenant-a.{no}")
            await settle(tenant)
            # The server closes the connection.
            await tenant.subscribe(f"{PREFIX}.event.tenant-a.more")
            await until(lambda: tenant.is_closed)
            await other.subscribe(f"{PREFIX}.event.tenant-b.one")
            await settle(other)
            self.assertEqual(other.refusals, [])
        async with contextlib.AsyncExitStack() as clients:
            with self.assertRaisesRegex(Exception, "maximum account active connections"):
                for _ in range(CONNECTIONS_MAX + 1):
                    await clients.enter_async_context(self.server.connect(a))
            await clients.enter_async_context(self.server.connect(b))

    async def test_the_fleet_reports_syncs_beats_and_is_assigned(self):
        async with self.server.connect("node-heartbeat") as door, self.server.connect("fleet") as fleet:
            async def answer(message):
                await message.respond(b"state")

            beats = await listen(door, f"{PREFIX}.node.*.heartbeat")
            await door.subscribe(f"{PREFIX}.node.*.sync", cb=answer)
            await settle(door)
            assigned = await listen(fleet, f"{PREFIX}.node.*.assign")
            await fleet.publish(f"{PREFIX}.node.n1.heartbeat", b"beat")
            ack = await fleet.jetstream().publish(f"{PREFIX}.node.n1.report", b"started")
            self.assertEqual(ack.stream, f"APPORTION_{CELL}_REPORT")
            self.assertEqual((await fleet.request(f"{PREFIX}.node.n1.sync", b"", timeout=PATIENCE_S)).data, b"state")
            await door.publish(f"{PREFIX}.node.n1.assign", b"run")
            await until(lambda: beats.messages and assigned.messages)
            self.assertEqual((beats.data, assigned.data), ([b"beat"], [b"run"]))

    async def test_the_last_heartbeat_of_each_node_is_kept_and_only_node_heartbeat_answers(self):
        async with self.server.connect("node-heartbeat") as door, self.server.connect("fleet") as fleet, \
                self.server.connect("analytics") as analytics, self.server.connect("operator") as operator:
            async def answer(message):
                await message.respond(b"renewed")

            await door.subscribe(HEARTBEATS, cb=answer)
            await settle(door)
            heard, answers = await listen(analytics, HEARTBEATS), await listen(fleet, "_INBOX.answers")
            # The last one is too large for the bucket.
            beats = [("n1", b"one"), ("n2", b"two"), ("n1", b"three"), ("n2", b"x" * 4097)]
            for node, beat in beats:
                await fleet.publish(f"{PREFIX}.node.{node}.heartbeat", beat, reply="_INBOX.answers")
            await until(lambda: len(answers.messages) == len(beats) == len(heard.messages))
            bucket = await operator.jetstream().key_value(HEARTBEAT_BUCKET)
            self.assertEqual([(await bucket.get(node)).value for node in ("n1", "n2")], [b"three", b"two"])
            # Other subscribers cannot answer.
            await analytics.publish(heard.messages[0].reply, b"forged")
            for client in (analytics, fleet):
                await settle(client)
            self.assertEqual(answers.data, [b"renewed"] * len(beats))
            # No user writes the bucket directly, and users without the right to read it get no answer.
            for user in ("operator", "bus", "fleet", "node-heartbeat", "analytics"):
                async with self.server.connect(user) as client:
                    await client.publish(f"$KV.{HEARTBEAT_BUCKET}.n1", b"forged")
                    await settle(client)
                    await until(lambda: len(client.refusals) == 1)
            for user in ("tenant:tenant-a", "fleet"):
                async with self.server.connect(user) as client:
                    for subject in (f"$JS.API.DIRECT.GET.{HEARTBEAT['name']}.$KV.{HEARTBEAT_BUCKET}.n1",
                                    f"$JS.API.STREAM.INFO.{HEARTBEAT['name']}"):
                        await client.publish(subject, b"", reply="_INBOX.x")
                    await settle(client)
                    await until(lambda: len(client.refusals) == 2)
            self.assertEqual((await bucket.get("n1")).value, b"three")

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
            await settle(quota)
            await until(lambda: len(quota.refusals) == len(foreign))
            message = await quota.jetstream().get_msg(f"APPORTION_{CELL}_LEDGER", seq=1)
            self.assertEqual(message.data, b"frame")
        self.assertEqual(await self.messages("LEDGER"), 1)
        self.assertEqual(await self.messages("INGRESS"), 0)

    async def test_a_service_follows_the_ledger(self):
        async with self.server.connect("quota") as quota, self.server.connect("scheduler") as scheduler:
            frames = [b"one", b"two", b"three"]
            for frame in frames:
                await quota.jetstream().publish(f"{PREFIX}.ledger.quota", frame)
            config = {"name": "reader", "ack_policy": "none", "mem_storage": True}
            made = await ask(scheduler, f"CONSUMER.CREATE.{LEDGER}.reader", {"stream_name": LEDGER, "config": config})
            self.assertNotIn("error", made)
            heard = await listen(scheduler, "_INBOX.reader")
            # The answer comes in parts, also with messages that are published later.
            await scheduler.publish(f"$JS.API.CONSUMER.MSG.NEXT.{LEDGER}.reader",
                                    json.dumps({"batch": 10, "expires": 10**10}).encode(), reply="_INBOX.reader")
            await until(lambda: len(heard.messages) == 3)
            await quota.jetstream().publish(f"{PREFIX}.ledger.quota", b"four")
            await until(lambda: len(heard.messages) == 4)
            self.assertEqual(heard.data, [*frames, b"four"])

    async def test_a_service_keeps_snapshots_in_the_object_store(self):
        async with self.server.connect("quota") as quota:
            js = quota.jetstream()
            store = await js.object_store(BUCKET)
            for content in (b"one", b"two" * 100_000):
                await store.put("quota", content)
            info = await store.get_info("quota")
            parts = await js.subscribe(f"$O.{BUCKET}.C.{info.nuid}", stream=SNAPSHOT, ordered_consumer=True)
            content = b"".join([(await parts.next_msg(timeout=PATIENCE_S)).data for _ in range(info.chunks)])
            self.assertEqual(content, b"two" * 100_000)

    async def test_a_snapshot_is_made_by_its_owner_only(self):
        owners = {"admission": "admission", "projection-admission.2": "admission", "projection-feed": "admission",
                  "quota": "quota", "scheduler.2": "scheduler", "node-heartbeat": "node-heartbeat",
                  "projection-analytics": "analytics"}
        for service in SERVICES:
            async with self.server.connect(service) as client:
                foreign = [name for name, owner in owners.items() if owner != service] + ["other", "analytics"]
                for name in foreign:
                    await client.publish(snapshot(name), b"{}")
                await settle(client)
                await until(lambda: len(client.refusals) == len(foreign))
        async with self.server.connect("operator") as operator:
            self.assertEqual((await operator.jetstream().stream_info(SNAPSHOT)).state.messages, 0)
        for name, owner in owners.items():
            async with self.server.connect(owner) as client:
                await client.jetstream().publish(snapshot(name), b"{}")

    async def test_only_the_operator_of_the_bus_changes_streams(self):
        changes = [f"{verb}.{name}" for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT",
                                                 "RESTORE", "PEER.REMOVE", "LEADER.STEPDOWN")
                   for name in ALL]
        # Inboxes and feeds are purged by the service that reads or writes them, snapshots by those that save them.
        own = {"admission": {f"PURGE.APPORTION_{CELL}_{name}" for name in ("INGRESS", "EVENT")},
               "node-heartbeat": {f"PURGE.APPORTION_{CELL}_REPORT"}}
        for user in ("operator", *SERVICES):
            allowed = own.get(user, set()) | ({f"PURGE.{SNAPSHOT}"} if user in SERVICES else set())
            if user in SERVICES and not self.apart:
                allowed = {change for change in changes if change.startswith("PURGE.")}
            foreign = [change for change in changes if change not in allowed]
            async with self.server.connect(user) as client:
                for change in foreign:
                    await client.publish(f"$JS.API.STREAM.{change}", b"")
                await settle(client)
                await until(lambda: len(client.refusals) == len(foreign))
        async with self.server.connect("operator") as operator:
            for name in ALL:
                await operator.jetstream().stream_info(name)
        async with self.server.connect("bus") as bus:
            js = bus.jetstream()
            await js.delete_stream(f"APPORTION_{CELL}_EVENT")
            await js.add_stream(name=f"APPORTION_{CELL}_EVENT", subjects=STREAMS[f"APPORTION_{CELL}_EVENT"])
            await js.purge_stream(f"APPORTION_{CELL}_INGRESS")
            await bus.publish(f"{PREFIX}.admin", b"x")
            await bus.publish(f"{PREFIX}.ledger.analytics", b"x")
            await settle(bus)
            await until(lambda: len(bus.refusals) == 2)

    async def test_the_operator_of_the_bus_puts_back_what_the_ledger_lost(self):
        async with self.server.connect("bus") as bus:
            for writer in WRITERS:
                await bus.jetstream().publish(f"{PREFIX}.ledger.{writer}", b"frame")
        self.assertEqual(await self.messages("LEDGER"), len(WRITERS))

    async def test_nothing_that_the_server_publishes_for_a_user_gets_anywhere(self):
        """A user names the subjects of deliveries and answers, independently of those that it may publish to."""
        targets = [*(f"{PREFIX}.ledger.{writer}" for writer in WRITERS), f"{PREFIX}.ledger.analytics",
                   f"{PREFIX}.ingress.tenant-a", f"{PREFIX}.ingress.tenant-b", f"{PREFIX}.admin", f"{PREFIX}.admin.bob",
                   f"{PREFIX}.node.n1.report", f"{PREFIX}.event.tenant-a.job", snapshot("quota"),
                   snapshot("projection-analytics"), f"{PREFIX}.node.n1.assign", f"{PREFIX}.reply.tenant-b.r1",
                   *(f"$JS.API.STREAM.DELETE.{name}" for name in ALL),
                   *(f"$JS.API.STREAM.PURGE.{name}" for name in ALL if self.apart)]
        async with self.server.connect("quota") as quota, self.server.connect("node-heartbeat") as door, \
                self.server.connect("admission") as admission, self.server.connect("tenant:tenant-a") as tenant, \
                self.server.connect("fleet") as fleet, self.server.connect("tenant:tenant-b") as other:
            # Something to deliver from every stream.
            for client, subject in ((quota, f"{PREFIX}.ledger.quota"), (tenant, f"{PREFIX}.ingress.tenant-a"),
                                    (fleet, f"{PREFIX}.node.n1.report"), (quota, snapshot("quota")),
                                    (admission, f"{PREFIX}.event.tenant-a.job")):
                await client.jetstream().publish(subject, b"{}")
            before = await self.held()
            heard = [await listen(fleet, f"{PREFIX}.node.*.assign"), await listen(other, f"{PREFIX}.reply.tenant-b.>"),
                     await listen(other, f"{PREFIX}.event.tenant-b.>")]

            async def answer(message):
                await message.respond(b"answer")

            await admission.subscribe(f"{PREFIX}.query.*.*", cb=answer)
            await door.subscribe(f"{PREFIX}.node.*.sync", cb=answer)
            for client in (admission, door):
                await settle(client)
            for user in (*SERVICES, "operator", "operator:alice", "bus", "fleet", "tenant:tenant-a"):
                purges = (f"$JS.API.STREAM.PURGE.{name}" for name in PURGES.get(user, ()))
                own = {*STORES[user], *SAYS.get(user, ()), *purges}
                for target in targets:
                    if target in own or user == "bus" and target.startswith("$JS."):
                        continue
                    async with self.server.connect(user) as attacker:
                        await self.misuse(attacker, STORES[user], target)
                    with self.subTest(user=user, target=target):
                        expected, before = before, await self.held()
                        self.assertEqual(before, expected)
            await self.until_heartbeats()
            self.assertEqual(await self.held(), before)
            for client in (fleet, other):
                await settle(client)
            self.assertEqual([item.data for item in heard], [[] for _ in heard])

    async def until_heartbeats(self):
        """Waits for heartbeats of the server to a younger consumer, at the same interval. The others have had theirs by then."""
        async with self.server.connect("scheduler") as scheduler:
            config = {"name": "marker", "ack_policy": "none", "mem_storage": True, "deliver_policy": "new"}
            made = await ask(scheduler, f"CONSUMER.CREATE.{LEDGER}.marker", {"stream_name": LEDGER, "config": config})
            self.assertNotIn("error", made)
            beats = await listen(scheduler, "_INBOX.marker")
            request = {"batch": 1, "expires": PATIENCE_S * 10**9, "idle_heartbeat": BEAT_NS}
            await scheduler.publish(f"$JS.API.CONSUMER.MSG.NEXT.{LEDGER}.marker", json.dumps(request).encode(),
                                    reply="_INBOX.marker")
            await until(lambda: len(beats.messages) >= 3)
            self.assertEqual({message.headers["Status"] for message in beats.messages}, {"100"})

    async def held(self):
        """The number of messages of each stream by subject."""
        found = {}
        async with self.server.connect("bus") as bus:
            for name in ALL:
                info = await ask(bus, f"STREAM.INFO.{name}", {"subjects_filter": ">"})
                found[name] = info.get("error") or info["state"].get("subjects")
        return found

    async def misuse(self, client, stores, target):
        """Sends all requests that might make the server publish on a subject."""
        for name in ALL:
            async def api(what, body, reply=target):
                await client.publish(f"$JS.API.{what}", json.dumps(body).encode() if body else b"", reply=reply)

            async def consumer(consumer, reply=INBOX, **config):
                config |= {"name": consumer, "ack_policy": "none", "mem_storage": True, "inactive_threshold": 10**10}
                await api(f"CONSUMER.CREATE.{name}.{consumer}", {"stream_name": name, "config": config}, reply)

            # Answers.
            for what, body in (("STREAM.INFO", None), ("STREAM.MSG.GET", {"seq": 1}), ("DIRECT.GET", {"seq": 1}),
                               ("STREAM.PURGE", {"filter": "nothing"}), ("CONSUMER.CREATE", {})):
                await api(f"{what}.{name}", body)
            await consumer("answer", reply=target)
            await api(f"CONSUMER.INFO.{name}.answer", None)
            # Requested deliveries, and the status that there are none, which has no payload.
            await consumer("all", headers_only=True)
            await consumer("new", deliver_policy="new")
            for of in ("all", "new"):
                await api(f"CONSUMER.MSG.NEXT.{name}.{of}", {"batch": 1, "no_wait": True})
            # Pushed deliveries, and heartbeats, which have no payload.
            if self.apart:
                # These consumers stay until their heartbeats are due.
                number = next(self.numbers)
                await consumer(f"push-{number}", deliver_subject=target)
                await consumer(f"beat-{number}", deliver_subject=target, deliver_policy="new", idle_heartbeat=BEAT_NS)
            await settle(client)
            for of in ("answer", "all", "new"):
                await api(f"CONSUMER.DELETE.{name}.{of}", None, INBOX)
        # Acknowledgements, and traces of messages. Nothing is stored.
        for subject in (*stores, f"$JS.API.STREAM.INFO.{LEDGER}"):
            headers = {"Nats-Expected-Last-Sequence": "1000000", "Nats-Trace-Dest": target}
            await client.publish(subject, b"", reply=target, headers=headers)
        for subject in ("query.tenant-a.feed", "node.n1.sync"):
            await client.publish(f"{PREFIX}.{subject}", b"", reply=target)
        await settle(client)


async def ask(client, subject, body):
    """JetStream's answer to a request of its API."""
    return json.loads((await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=PATIENCE_S)).data)


class AnyCell(Accounts):
    """
    The same with a server that does not know its cells, as the tests of the services use it. All streams share an account
    there, so that a consumer of one can deliver to the subjects of another, and a user that may purge one may purge all.
    """

    cell = "*"
    apart = False
