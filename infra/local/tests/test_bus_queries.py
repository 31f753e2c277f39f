"""
Every query in the reference of the bus, sent by a plain NATS client with messages made from the descriptors: each has a real
answer, and no answer has anything of another tenant.
"""

import asyncio
import json
import re
import sys
import time
import unittest
import uuid

import pytest

from apportion_local.paths import CHECKOUT

from .support import PATIENCE_S, Stack, until

sys.path.insert(0, str(CHECKOUT / "examples"))
import apportion_messages  # noqa: E402
from apportion_messages import Messages  # noqa: E402

pytestmark = pytest.mark.system

REFERENCE = CHECKOUT / "docs" / "bus.md"
SUBJECTS = CHECKOUT / "services" / "vocab" / "src" / "subjects.rs"
ROW = re.compile(r"^\| `apportion\.v1\.<cell>\.query\.(<tenant>|_operator)\.([a-z_]+)` \|.* \[(\w+)\]\(#\w+\), answered by "
                 r"\[(\w+)\]\(#\w+\) \|", re.MULTILINE)
OPERATOR = "_operator"
SERVICES = [f"apportion-{name}" for name in ("admission", "quota", "scheduler", "node-heartbeat", "analytics")]
# Limit against hanging. Most answers take milliseconds.
ANSWER_SECONDS = 60
NODE = "this-machine"
DAY_MS = 86_400_000
# A model that no node has.
NO_MODEL = "no-such-model"
# A node that may join, and does not. The digest of its token is in no answer.
NO_NODE, DIGEST = "may-join", b"digest-of-a-token-of-32-bytes..."


def verbs():
    """From the reference's table of subjects: by verb the messages of its query and its reply, and the verbs of operators alone."""
    rows = ROW.findall(REFERENCE.read_text(encoding="utf-8"))
    if not rows:
        raise AssertionError(f"{REFERENCE} has no queries")
    return ({verb: (query, reply) for _, verb, query, reply in rows},
            {verb for whose, verb, _, _ in rows if whose == OPERATOR})


VERBS, OF_OPERATORS = verbs()


def number(message, field, value):
    """The number of a value of an enumeration."""
    return message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_name[value].number


class Party:
    """A tenant, or the operators, on the bus."""

    def __init__(self, stack, messages, name):
        self.stack, self.m, self.name = stack, messages, name
        self.denied = []
        # A part of all names that only this tenant may learn.
        self.mark = f"own-of-{name}"
        self.serial = 0

    async def connect(self):
        key = "operator" if self.name == OPERATOR else f"tenant-{self.name}"

        async def denied(error):
            self.denied.append(str(error))

        self.bus = await apportion_messages.connect(
            self.stack, user_credentials=f"{self.stack['nats']['creds']}/{key}.creds", error_cb=denied)

    def subject(self, *tokens):
        return apportion_messages.subject(self.stack, *tokens)

    async def send(self, **verb):
        """The outcome of a new operation."""
        self.serial += 1
        request = self.m.Request(operation_id=f"{self.mark}-{self.serial}", **verb)
        token = uuid.uuid4().hex
        reply = await self.bus.subscribe(self.subject("reply", self.name, token), max_msgs=1)
        where = self.subject("admin") if self.name == OPERATOR else self.subject("ingress", self.name)
        await self.bus.request(where, request.SerializeToString(), timeout=ANSWER_SECONDS, headers={"Apportion-Reply": token})
        (outcome,) = self.m.Outcomes.FromString((await reply.next_msg(timeout=ANSWER_SECONDS)).data).outcomes
        return outcome

    async def done(self, **verb):
        outcome = await self.send(**verb)
        if outcome.HasField("refused"):
            raise AssertionError(f"{verb}: {outcome}")
        return outcome

    async def ask_bytes(self, verb, data):
        return (await self.bus.request(self.subject("query", self.name, verb), data, timeout=ANSWER_SECONDS)).data

    def query(self, verb, **fields):
        return getattr(self.m, VERBS[verb][0])(**fields)

    async def ask(self, verb, **fields):
        data = await self.ask_bytes(verb, self.query(verb, **fields).SerializeToString())
        return getattr(self.m, VERBS[verb][1]).FromString(data)

    def rule(self, data):
        """The rule by which a query was refused. None if it was not."""
        reply = self.m.QueryRefused.FromString(data)
        names = self.m.Refusal.DESCRIPTOR.fields_by_name["rule"].enum_type.values_by_number
        return names[reply.refusal.rule].name if reply.HasField("refusal") else None

    async def until(self, verb, good, **fields):
        """The first answer that is good."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            reply = await self.ask(verb, **fields)
            if good(reply):
                return reply
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} {verb} {fields}: {reply}")
            await asyncio.sleep(0.05)


class World:
    """Two tenants that have something of each kind, and the operators that gave it to them."""

    def __init__(self, stack, messages):
        self.m = messages
        self.a, self.b, self.operator = (Party(stack, messages, name) for name in ("team-a", "team-b", OPERATOR))
        self.parties = (self.a, self.b, self.operator)

    async def connect(self):
        await asyncio.gather(*(party.connect() for party in self.parties))

    async def close(self):
        await asyncio.gather(*(party.bus.close() for party in self.parties))

    async def furnish(self):
        m, operator = self.m, self.operator
        for name, preempts in (("spare", False), ("urgent", True)):
            await operator.done(set_priority_class=m.SetPriorityClass(
                priority_class=name, value=10 if preempts else 1, preemptible=not preempts, preempts=preempts))
        for micro, from_ms in ((1, 0), (2, time.time_ns() // 1_000_000 + DAY_MS), (0, 0)):
            await operator.done(set_rate=m.SetRate(
                resource=f"gpu:{NO_MODEL}", micro_per_unit_hour=micro, effective_from_ms=from_ms, withdrawn=micro == 0))
        await operator.done(set_node=m.SetNode(node=NO_NODE, approved=m.NodeApprovalRequest(
            capacity=m.NodeCapacity(cpu_milli=4000, memory_bytes=2**33), token_digest=DIGEST,
            token_until_ms=time.time_ns() // 1_000_000 + DAY_MS)))
        for tenant in (self.a, self.b):
            await self.furnish_tenant(tenant)
        await self.preempt()
        for tenant in (self.a, self.b):
            await self.end(tenant)

    async def furnish_tenant(self, own):
        m, operator, mark = self.m, self.operator, own.mark
        own.queue, own.team, own.resource, own.reservation = (f"{mark}-{it}" for it in ("queue", "team", "resource", "nodes"))
        own.job_set, own.said = f"{mark}-jobs", f"{mark}-said"
        now_ms = time.time_ns() // 1_000_000
        await operator.done(set_queue=m.SetQueue(queue=own.queue, tenants=[own.name]))
        await operator.done(set_quota=m.SetQuota(tenant=own.name, team=own.team, resource="cpu", limit=64_000))
        await operator.done(set_budget=m.SetBudget(
            tenant=own.name, team=own.team, of="money", amount=10**12, period=number(m.SetBudget, "period", "PERIOD_MONTH")))
        wanted = m.ReservationRequest(queue=own.queue, from_ms=now_ms + DAY_MS, until_ms=now_ms + 2 * DAY_MS, nodes=1)
        await operator.done(set_reservation=m.SetReservation(reservation=own.reservation, wanted=wanted))

        own.run = await own.done(submit=self.submit(own, "run", labels=[m.Label(name=mark, value="7")], work=m.Work(
            command="sh", args=["-c", f"echo {own.said}; sleep 1"])))
        own.waits = await own.done(submit=self.submit(own, "waits", queue=own.queue, gpu_count=1, gpu_models=[NO_MODEL]))
        own.refused = await own.send(submit=self.submit(own, "refused", queue=f"{mark}-nowhere"))
        # Quota refuses it a little later.
        own.beyond = await own.send(submit=self.submit(own, "beyond", cpu_milli=64_001))
        await own.done(create_resource=m.CreateResource(resource=own.resource))
        own.leased = await own.done(acquire=m.Acquire(resource=own.resource, holder=f"{mark}-holder", ttl_slots=100))

    def submit(self, own, name, **fields):
        return self.m.Submit(**{"name": f"{own.mark}-{name}", "job_set": own.job_set, "team": own.team, "cpu_milli": 100,
                                "memory_bytes": 32 << 20, **fields})

    def tried(self, own, **fields):
        """The allocation of a trial, as the inbox would get it."""
        return self.m.AllocationSpec(**{"job_set": own.job_set, "team": own.team, "cpu_milli": 100, "memory_bytes": 32 << 20,
                                        **fields})

    async def preempt(self):
        """One tenant loses a place to the other, which loses one to a drain."""
        a, b, m = self.a, self.b, self.m
        whole = {"gpu_count": 2, "priority_class": "spare"}
        for nth in range(2):
            a.lost = await a.done(submit=self.submit(a, f"lost-{nth}", gpu_models=["P100"], **whole))
        b.lost = await b.done(submit=self.submit(b, "lost", gpu_models=["T4"], **whole))
        drained = (await b.until("allocation", lambda it: it.view.node, allocation_id=b.lost.submitted.allocation_id)).view.node
        await b.done(submit=self.submit(b, "takes", gpu_models=["P100"], gpu_count=2, priority_class="urgent"))
        await self.operator.done(set_cordon=m.SetCordon(node=drained, cordoned=True, drain=True))
        for own in (a, b):
            page = await own.until("preemptions", lambda it: it.preemptions)
            own.preemption = page.preemptions[0]

    async def end(self, own):
        """Waits until the run has ended and is in the bill."""
        ended = await own.until("allocation", lambda it: it.view.HasField("ended"), allocation_id=self.id(own.run))
        own.node = ended.view.node
        own.refusal = (await own.until("refusals", lambda it: len(it.refusals) == 2)).refusals[0].number
        await own.until("usage", lambda it: it.lines, allocation_id=self.id(own.run))
        await own.until("bill", lambda it: it.lines)

    @staticmethod
    def id(outcome):
        return outcome.submitted.allocation_id

    def ids(self, own):
        return [*(self.id(it) for it in (own.run, own.waits, own.lost)), own.leased.lease_granted.lease_id]


def questions(world, own):
    """By verb: the fields of a tenant's query, and a check whether the answer is a real one."""
    run, waits = world.id(own.run), world.id(own.waits)

    def names(reply):
        return {it.name for it in reply.allocations}

    return {
        "feed": ({"job_set": own.job_set, "at_lsn": own.run.lsn},
                 lambda it: {event.WhichOneof("kind") for event in it.events} >= {"requested", "started", "ended", "outcome"}),
        "operation": ({"operation_id": own.refused.operation_id, "at_lsn": own.refused.lsn},
                      lambda it: it.view.state == number(it.view, "state", "OPERATION_STATE_DECIDED")
                      and it.view.outcome.refused.refusal.subject == "queue"),
        "refusals": ({"limit": 1000},
                     lambda it: [(one.operation_id, one.broken.subject) for one in it.refusals] == [
                         (own.beyond.operation_id, f"{own.name}/{own.team} cpu"), (own.refused.operation_id, "queue")]
                     and (it.refusals[0].verb, it.refusals[0].broken.limit) == ("submit", 64_000)),
        "allocation": ({"allocation_id": run},
                       lambda it: it.view.ended.started_ms > 0 and it.view.team == own.team and it.view.node == NODE
                       and [(one.node, one.ended_ms) for one in it.attempts] == [(NODE, it.view.ended.ended_ms)]
                       and it.operation_id == own.run.operation_id and it.asked.work.command == "sh"
                       and [(one.name, one.value) for one in it.asked.labels] == [(own.mark, "7")]),
        "allocations": ({"queue": own.queue}, lambda it: names(it) == {f"{own.mark}-waits"}),
        "explain": ({"allocation_id": waits, "at_lsn": own.waits.lsn},
                    lambda it: it.place.position == 1 and it.place.in_queue == 1
                    and any(one.event for one in (*it.history, it.pending_group))),
        "lease": ({"lease_id": own.leased.lease_granted.lease_id},
                  lambda it: list(it.view.resources) == [own.resource] and it.view.holder == f"{own.mark}-holder"),
        "resource": ({"resource": own.resource}, lambda it: it.view.lease_id == own.leased.lease_granted.lease_id),
        "preemptions": ({}, lambda it: it.preemptions and all(
            one.tenant == own.name and one.cause == own.preemption.cause and one.priority == 1 for one in it.preemptions)
            # One made room for an urgent allocation, and the node of the other is drained.
            and {one.by_priority if one.HasField("by_priority") else None for one in it.preemptions}
            == {10 if own is world.a else None}),
        "queue": ({}, lambda it: waits in {one.allocation_id for one in it.waiting}),
        "queues": ({}, lambda it: {own.name, own.queue} <= {one.queue for one in it.queues}),
        "reservations": ({}, lambda it: [one.reservation for one in it.reservations] == [own.reservation]
                         and it.reservations[0].wanted.nodes == 1),
        "budget": ({}, lambda it: [(one.tenant, one.team, one.of) for one in it.budgets] == [(own.name, own.team, "money")]),
        "quota": ({"waiting": 200}, lambda it: it.HasField("treatment") and (own.team, "cpu", 64_000) in {
            (one.team, one.resource, one.limits.hard) for one in it.quotas}),
        "bill": ({}, lambda it: {(one.tenant, one.team) for one in it.lines} == {(own.name, own.team)} and it.currency),
        "usage": ({"allocation_id": run}, lambda it: {one.resource for one in it.lines} >= {"cpu", "memory"}
                  and all(one.tenant == own.name and int(one.quantity) > 0 for one in it.lines)),
        "logs": ({"allocation_id": run, "node": NODE}, lambda it: own.said.encode() in it.data and it.over),
        "job_sets": ({"name_prefix": own.mark}, lambda it: {(one.tenant, one.job_set) for one in it.job_sets} == {
            (own.name, own.job_set)} and [(one.waiting, one.finished) for one in it.job_sets if one.queue == own.queue] == [(1, 0)]
                     and sum(one.finished for one in it.job_sets) >= 1 and sum(one.denied for one in it.job_sets) == 1),
        "try_quota": ({"spec": world.tried(own, cpu_milli=500), "at_lsn": own.run.lsn},
                      lambda it: it.trial.HasField("reserved") and it.lsn >= own.run.lsn
                      and [(one.team, one.resource, one.asked, one.limits.hard, one.fits) for one in it.trial.limits
                           if one.team] == [(own.team, "cpu", 500, 64_000, True)]),
        "try_place": ({"spec": world.tried(own, queue=own.queue, gpu=world.m.GpuRequest(count=1, milli=1000, models=[NO_MODEL]))},
                      lambda it: it.trial.HasField("never") and it.trial.queue == own.queue
                      and {one.reason for one in it.trial.never.kept_off} >= {"gpu_model"}),
        "settings": ({}, lambda it: {one.setting for one in it.settings} == {"tenant", "quota", "budget", "priority_class"}
                     and {one.tenant.tenant for one in it.settings if one.setting == "tenant"} == {own.name}
                     and (own.name, own.team) in {(one.quota.tenant, one.quota.team) for one in it.settings}
                     and {one.key for one in it.settings if one.setting == "priority_class"} >= {"spare", "urgent"}),
        # Tenants have none.
        "rates": ({}, None),
        "tenants": ({}, None),
        "nodes": ({}, None),
        "node": ({"node": NODE}, None),
        "approvals": ({}, None),
        "quota_history": ({"team": own.team, "resource": "cpu"}, lambda it: {one.tenant for one in it.hours} == {own.name}
                          and any(one.used_max and int(one.used_ms) <= one.used_max * one.covered_ms
                                  and one.hard == 64_000 for one in it.hours)),
    }


def tries(world, other):
    """Queries with guessed names, IDs and positions of another tenant, each with the rule by which it is refused."""
    ids, lease = world.ids(other)[:-1], other.leased.lease_granted.lease_id
    lost = other.preemption
    yield "feed", {"after_lsn": other.run.lsn - 1}, None
    yield "feed", {"after_lsn": other.run.lsn, "job_set": other.job_set}, None
    for outcome in (other.run, other.refused):
        yield "operation", {"operation_id": outcome.operation_id}, None
    yield "refusals", {"after": other.refusal + 1}, None
    yield "refusals", {"rule": number(world.m.RefusalsQuery, "rule", "QUEUE_UNKNOWN")}, None
    for one in ids:
        yield "allocation", {"allocation_id": one}, "ALLOCATION_NOT_FOUND"
        yield "explain", {"allocation_id": one}, "ALLOCATION_NOT_FOUND"
        yield "try_quota", {"allocation_id": one}, "ALLOCATION_NOT_FOUND"
        yield "explain", {"allocation_id": one, "as_of_lsn": other.waits.lsn}, "ALLOCATION_NOT_FOUND"
        yield "allocations", {"after": one, "states": range(1, 7)}, None
        yield "usage", {"allocation_id": one}, None
        yield "logs", {"allocation_id": one, "node": NODE}, "LOG_UNAVAILABLE"
    for field, value in (("queue", other.queue), ("queue", other.name), ("job_set", other.job_set), ("team", other.team),
                         ("node", NODE), ("name_prefix", other.mark)):
        yield "allocations", {field: value, "states": range(1, 7)}, None
    for value in ("", "7"):
        label = world.m.Label(name=other.mark, value=value)
        yield "allocations", {"labels": [label], "states": range(1, 7), "oldest_first": True}, None
    for field, value in (("queue", other.queue), ("queue", other.name), ("job_set", other.job_set), ("team", other.team)):
        yield "usage", {field: value}, None
    yield "lease", {"lease_id": lease}, "LEASE_NOT_FOUND"
    # All IDs are of the cell, each of one kind.
    yield "lease", {"lease_id": ids[0]}, "LEASE_NOT_FOUND"
    yield "resource", {"resource": other.resource}, "RESOURCE_NOT_FOUND"
    yield "preemptions", {"after": f"{lost.lsn}.{lost.index + 1}"}, None
    for after in (f"{other.name} cpu", f"{other.name}/{other.team} cpu", "a cpu"):
        yield "quota", {"after": after, "waiting": 200}, None
    for after in ("", f"{other.name} cpu", f"{other.name}/{other.team} cpu", "a cpu"):
        yield "budget", {"after": after}, None
    yield "budget", {"after": other.name}, "SETTING_INVALID"
    for verb in ("queue", "queues", "reservations", "bill"):
        yield verb, {}, None
    for after in (f"{other.name} {other.team} cpu 0 1 0", f"{other.name}  a 0 0 0", "a  a 0 0 0"):
        yield "bill", {"after": after}, None
    yield "bill", {"after": other.name}, "SETTING_INVALID"
    for after in ("", f"{other.name} {other.job_set} {other.queue}", f"{other.name} {other.job_set} a", "a a a"):
        yield "job_sets", {"after": after}, None
    for field, value in (("queue", other.queue), ("name_prefix", other.mark)):
        yield "job_sets", {field: value, "states": range(1, 7)}, None
    yield "job_sets", {"after": other.name}, "SETTING_INVALID"
    for after in (other.name, other.queue, "a"):
        yield "queues", {"after": after}, None
    yield "queues", {"after": f"{other.name} {other.queue}"}, "SETTING_INVALID"
    yield "queues", {"limit": 1001}, "QUANTITY_TOO_LARGE"
    for fields in ({"key_prefix": other.name}, {"setting": "quota", "key_prefix": other.name}, {"setting": "queue"}, {"setting": "node"},
                   {"setting": "tenant", "after": "tenant a"}, {"after": f"quota {other.name} cpu"}, {"after": "budget a"}):
        yield "settings", fields, None
    for fields in ({}, {"resource": "cpu"}, {"after": "cpu 1"}):
        yield "rates", fields, "UNKNOWN_VERB"
    for fields in ({}, {"name_prefix": other.name}, {"after": "a"}):
        yield "tenants", fields, "UNKNOWN_VERB"
    for fields in ({}, {"name_prefix": NODE}, {"after": "a"}):
        yield "nodes", fields, "UNKNOWN_VERB"
    yield "node", {"node": NODE, "limit": 1000}, "UNKNOWN_VERB"
    for fields in ({}, {"name_prefix": NODE}, {"after": "a"}):
        yield "approvals", fields, "UNKNOWN_VERB"
    for after in ("", "a 0", f"{other.name} 0"):
        for team in ("", other.team):
            yield "quota_history", {"team": team, "resource": "cpu", "after": after}, None
    yield "try_quota", {"spec": world.tried(other, cpu_milli=64_001)}, None
    yield "try_quota", {"spec": world.tried(other, queue=other.queue)}, None
    yield "try_place", {"spec": world.tried(other)}, None
    yield "try_place", {"spec": world.tried(other, queue=other.queue)}, "QUEUE_FORBIDDEN"
    yield "try_place", {"spec": world.tried(other, queue=other.name)}, "QUEUE_UNKNOWN"
    yield "quota_history", {"team": other.team, "resource": "cpu", "after": other.name}, "SETTING_INVALID"
    yield "quota_history", {"team": other.team}, "RESOURCE_UNKNOWN"


class Queries(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        stack = Stack("--agent")
        cls.addClassCleanup(stack.close)
        cls.world = World(stack.value, Messages(stack.descriptors()))

        async def furnish():
            await cls.world.connect()
            await cls.world.furnish()
            await cls.world.close()

        asyncio.run(furnish())

    async def asyncSetUp(self):
        for party in self.world.parties:
            party.denied.clear()
        await self.world.connect()
        self.addAsyncCleanup(self.world.close)

    def pairs(self):
        a, b = self.world.a, self.world.b
        return (a, b), (b, a)

    def assert_nothing_of(self, other, data, said):
        self.assertFalse(self.tells_of(other, data), said)

    def tells_of(self, one, data):
        return any(secret.encode() in data for secret in (one.mark, one.name, *self.world.ids(one)))

    def test_every_verb_of_the_reference_has_a_question_and_is_tried_by_another_tenant(self):
        asked = questions(self.world, self.world.a)
        self.assertEqual(set(asked), set(VERBS))
        self.assertEqual({verb for verb, _, _ in tries(self.world, self.world.a)}, set(VERBS))
        # The bus admits the same verbs.
        lists = re.search(r"QUERIES: .*? = \[(.*?)^\];", SUBJECTS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        listed = [re.findall(r'"([a-z_]+)"', verbs) for verbs in re.findall(r"&\[(.*?)\]", lists.group(1), re.DOTALL)]
        self.assertEqual({verb for verbs in listed for verb in verbs}, set(VERBS))

    async def test_a_tenant_has_a_real_answer_of_its_own_to_every_question(self):
        for own, other in self.pairs():
            named = set()
            for verb, (fields, good) in questions(self.world, own).items():
                if good is None:
                    continue
                with self.subTest(tenant=own.name, verb=verb):
                    data = await own.ask_bytes(verb, own.query(verb, **fields).SerializeToString())
                    self.assertIsNone(own.rule(data), data)
                    reply = getattr(self.world.m, VERBS[verb][1]).FromString(data)
                    self.assertTrue(good(reply), reply)
                    self.assert_nothing_of(other, data, reply)
                    named |= {verb} if self.tells_of(own, data) else set()
            # Without a mark in each answer, a mark of another tenant would not be missed.
            self.assertEqual(named, set(VERBS) - OF_OPERATORS)

    async def test_guesses_tell_a_tenant_nothing_of_another(self):
        for asker, other in self.pairs():
            for verb, fields, rule in tries(self.world, other):
                with self.subTest(tenant=asker.name, verb=verb, fields=fields):
                    data = await asker.ask_bytes(verb, asker.query(verb, **fields).SerializeToString())
                    self.assertEqual(asker.rule(data), rule)
                    if verb == "operation":
                        # The answer repeats the operation's ID.
                        view = self.world.m.OperationReply.FromString(data).view
                        self.assertEqual(view.state, number(view, "state", "OPERATION_STATE_UNKNOWN"))
                        self.assertFalse(view.HasField("outcome"))
                    elif verb == "usage":
                        # A line of another tenant would be shown as one of the asker.
                        self.assertFalse(self.world.m.UsagePage.FromString(data).lines)
                    else:
                        self.assert_nothing_of(other, data, data)

    async def test_the_bus_denies_a_question_on_the_subject_of_another(self):
        for asker, other in self.pairs():
            inbox = asker.bus.new_inbox()
            heard = await asker.bus.subscribe(inbox)
            for whose in (other.name, OPERATOR, "*"):
                for verb in VERBS:
                    subject = asker.subject("query", whose, verb)
                    with self.subTest(tenant=asker.name, subject=subject):
                        await asker.bus.publish(subject, b"", reply=inbox)
                        await until(lambda: any(f'"{subject.lower()}"' in it.lower() for it in asker.denied))
            self.assertEqual(heard.pending_msgs, 0)

    async def test_operators_are_told_of_all_tenants_and_what_is_set(self):
        operator, (a, b) = self.world.operator, (self.world.a, self.world.b)
        of_all = {
            "refusals": lambda it: {one.operation_id for one in it.refusals} >= {a.refused.operation_id, b.refused.operation_id},
            "preemptions": lambda it: {one.tenant for one in it.preemptions} == {a.name, b.name},
            "queues": lambda it: {a.name, b.name, a.queue, b.queue} <= {one.queue for one in it.queues},
            "reservations": lambda it: {one.reservation for one in it.reservations} == {a.reservation, b.reservation},
            "quota": lambda it: {(a.name, a.team), (b.name, b.team)} <= {(one.tenant, one.team) for one in it.quotas},
            "budget": lambda it: [(one.tenant, one.team, one.of) for one in it.budgets] == [
                (own.name, own.team, "money") for own in (a, b)],
            "settings": lambda it: {(own.name, own.team) for own in (a, b)} <= {
                (one.quota.tenant, one.quota.team) for one in it.settings if one.WhichOneof("change") == "quota"}
            and {one.setting for one in it.settings} >= {
                "tenant", "quota", "budget", "rate", "queue", "priority_class", "cordon", "reservation"},
            "rates": lambda it: [
                (one.version, one.rate.micro_per_unit_hour, one.rate.withdrawn, one.operation_id[:len(operator.mark)])
                for one in it.rates if one.key == f"gpu:{NO_MODEL}"] == [
                (1, 1, False, operator.mark), (2, 2, False, operator.mark), (3, 0, True, operator.mark)] and all(one.set_at_ms > 0 for one in it.rates),
            "job_sets": lambda it: {(own.name, own.job_set) for own in (a, b)} <= {
                (one.tenant, one.job_set) for one in it.job_sets},
            "usage": lambda it: {one.tenant for one in it.lines} == {a.name, b.name} and it.currency,
            "bill": lambda it: {(own.name, own.team) for own in (a, b)} <= {(one.tenant, one.team) for one in it.lines}
            and it.total_micro == sum(one.amount_micro for one in it.lines),
            "quota_history": lambda it: {a.name, b.name} <= {one.tenant for one in it.hours} and any(
                one.used_max for one in it.hours),
            "tenants": self.has_both_tenants,
            "nodes": lambda it: [one.node for one in it.nodes] == sorted(one.node for one in it.nodes) and it.lsn > 0,
            "approvals": lambda it: [(one.node, one.version, one.capacity.cpu_milli, one.capacity.gpus, one.key)
                                     for one in it.approvals] == [(NO_NODE, 1, 4000, 0, "")]
            and it.approvals[0].token_until_ms > it.approvals[0].approved_ms and DIGEST not in it.SerializeToString(),
            "node": lambda it: it.view.node == NODE and it.history and it.history[-1].change == "registered",
        }
        for verb in VERBS:
            with self.subTest(verb=verb):
                fields = {"limit": 1000} if verb in ("refusals", "quota", "settings", "nodes") else {}
                if verb == "quota_history":
                    fields = {"resource": "memory"}
                elif verb not in of_all or verb == "node":
                    # These queries are about an allocation, operation, lease or resource of the asker. Operators have none.
                    fields = questions(self.world, a)[verb][0]
                data = await operator.ask_bytes(verb, operator.query(verb, **fields).SerializeToString())
                if verb in of_all:
                    reply = getattr(self.world.m, VERBS[verb][1]).FromString(data)
                    self.assertTrue(of_all[verb](reply), reply)
                elif verb != "operation":
                    self.assert_nothing_of(a, data, data)
        # On a tenant's subject they get the tenant's answer.
        fields, good = questions(self.world, a)["allocation"]
        answer = await operator.bus.request(
            a.subject("query", a.name, "allocation"), a.query("allocation", **fields).SerializeToString(), timeout=ANSWER_SECONDS)
        self.assertTrue(good(self.world.m.AllocationReply.FromString(answer.data)))

    async def told_of_services(self, asker, *tokens):
        """The answers to a query of NATS' service API, by service."""
        inbox = asker.bus.new_inbox()
        heard = await asker.bus.subscribe(inbox)
        await asker.bus.publish(".".join(("$SRV", *tokens)), b"", reply=inbox)
        told, wanted = {}, set(SERVICES) if len(tokens) == 1 else {tokens[1]}
        while set(told) != wanted:
            said = json.loads((await heard.next_msg(timeout=ANSWER_SECONDS)).data)
            told[said["name"]] = said
        await heard.unsubscribe()
        return told

    async def test_operators_see_services_as_nats_tools_do(self):
        operator = self.world.operator
        self.assertEqual({it["type"] for it in (await self.told_of_services(operator, "PING")).values()},
                         {"io.nats.micro.v1.ping_response"})
        subjects = {one["name"]: one["subject"]
                    for it in (await self.told_of_services(operator, "INFO")).values() for one in it["endpoints"]}
        self.assertEqual(subjects, {verb: operator.subject("query", "*", verb) for verb in VERBS})
        name = "apportion-quota"

        async def stats(*tokens):
            said = (await self.told_of_services(operator, "STATS", name, *tokens))[name]
            return said["id"], {one["name"]: one for one in said["endpoints"]}

        process, before = await stats()
        await operator.ask("quota")
        again, after = await stats(process)
        self.assertEqual(again, process)
        self.assertGreater(after["quota"]["num_requests"], before["quota"]["num_requests"])
        self.assertGreater(after["quota"]["processing_time"], 0)

    async def test_tenants_are_not_told_of_services(self):
        for asker in (self.world.a, self.world.b):
            await asker.bus.publish("$SRV.PING", b"", reply=asker.bus.new_inbox())
            await until(lambda: any('"$srv.ping"' in it.lower() for it in asker.denied))

    def has_both_tenants(self, reply):
        found = {one.tenant: one for one in reply.tenants}
        for own in (self.world.a, self.world.b):
            one = found[own.name]
            self.assertIn(own.queue, one.queues)
            self.assertGreaterEqual(one.waiting, 1)
            self.assertGreater(reply.capacity.cpu_milli, one.held.cpu_milli)
        return found[self.world.a.name].held.gpu_milli + found[self.world.b.name].held.gpu_milli > 0

    async def all_nodes(self, limit=1000, **fields):
        """Page by page."""
        found, after = [], ""
        while True:
            page = await self.world.operator.ask("nodes", limit=limit, after=after, **fields)
            self.assertLessEqual(len(page.nodes), limit)
            found += page.nodes
            after = page.next
            if not after:
                return found

    def check_nodes(self, nodes):
        """Nodes of the fleet and this machine: their resources, and those that allocations hold."""
        found = {one.node: one for one in nodes}
        ready = number(self.world.m.NodesQuery, "states", "NODE_STANDING_READY")
        for one in found.values():
            self.assertEqual(one.state, ready, one.node)
            for part in ("cpu_milli", "memory_bytes", "gpu_milli"):
                used, free, most = (getattr(of, part) for of in (one.used, one.free, one.allocatable))
                self.assertEqual(free, most - used if one.takes_new else 0, one.node)
        drained = [one for one in found.values() if one.drain]
        self.assertEqual([(one.cordoned, one.takes_new, one.cordon_version) for one in drained], [(True, False, 1)])
        self.assertTrue(any(one.used.gpu_milli and one.allocations for one in found.values()))
        self.assertFalse(found[NODE].capacity.HasField("topology"))

    async def test_operators_ask_for_some_nodes_and_what_is_on_one(self):
        operator, m = self.world.operator, self.world.m
        everything = await self.all_nodes()
        self.check_nodes(everything)
        names = [one.node for one in everything]
        self.assertEqual(names, sorted(set(names)))
        self.assertEqual([one.node for one in await self.all_nodes(limit=5)], names)
        of_model = await self.all_nodes(gpu_model="P100")
        self.assertEqual([one.node for one in of_model], [
            one.node for one in everything if one.capacity.gpu_model == "P100"])
        self.assertFalse(await self.all_nodes(gpu_model=NO_MODEL))
        self.assertEqual([one.node for one in (await operator.ask("nodes", name_prefix=NODE)).nodes], [NODE])
        lost = number(m.NodesQuery, "states", "NODE_STANDING_LOST")
        self.assertFalse(await self.all_nodes(states=[lost]))
        labels = next(one for one in everything if one.node == NODE).capacity.labels
        is_so = number(m.Requirement, "operator", "OPERATOR_IN")
        selector = [m.Requirement(label=label.name, operator=is_so, values=[label.value]) for label in labels]
        self.assertTrue(selector)
        self.assertEqual([one.node for one in await self.all_nodes(selector=selector)], [
            one.node for one in everything if all(label in one.capacity.labels for label in labels)])

        held = next(one for one in everything if one.used.gpu_milli)
        said = await operator.ask("node", node=held.node)
        self.assertEqual(len(said.runs), said.view.allocations)
        self.assertEqual(sum(gpu.milli for run in said.runs for gpu in run.gpus), said.view.used.gpu_milli)
        self.assertTrue({run.tenant for run in said.runs} <= {"team-a", "team-b"})
        for fields, rule in (({"node": "nowhere"}, "NODE_NOT_FOUND"), ({"node": "a.b"}, "NAME_INVALID"),
                             ({"node": NODE, "limit": 1001}, "QUANTITY_TOO_LARGE")):
            data = await operator.ask_bytes("node", operator.query("node", **fields).SerializeToString())
            self.assertEqual(operator.rule(data), rule)

    async def test_what_is_not_understood_is_refused_by_name(self):
        for verb in VERBS:
            asker = self.world.operator if verb in OF_OPERATORS else self.world.a
            # Field 9999, a number, which no version has.
            plain = questions(self.world, self.world.a)[verb][0]
            strange = asker.query(verb, **plain).SerializeToString() + b"\xf8\xf0\x04\x01"
            for data, rule in ((strange, "UNKNOWN_FIELD"), (b"\xff\xff\xff", "MALFORMED_MESSAGE"),
                               (b"no protobuf", "MALFORMED_MESSAGE"), (b"\x00" * 65_537, "PAYLOAD_TOO_LARGE")):
                with self.subTest(verb=verb, rule=rule):
                    self.assertEqual(asker.rule(await asker.ask_bytes(verb, data)), rule)
        for party in self.world.parties:
            self.assertEqual(party.rule(await party.ask_bytes("machines", b"")), "UNKNOWN_VERB")

    async def test_a_position_that_is_not_there_yet_is_refused_by_name(self):
        async def ask(verb):
            asker = self.world.operator if verb in OF_OPERATORS else self.world.a
            query = asker.query(verb, **questions(self.world, self.world.a)[verb][0])
            query.at_lsn = 2**40
            return verb, asker.rule(await asker.ask_bytes(verb, query.SerializeToString()))

        # The output of a run is in no read model.
        asked = [verb for verb in VERBS if "at_lsn" in self.world.a.query(verb).DESCRIPTOR.fields_by_name]
        self.assertEqual(set(VERBS) - set(asked), {"logs"})
        for verb, rule in await asyncio.gather(*(ask(verb) for verb in asked)):
            self.assertEqual(rule, "NOT_APPLIED", verb)
