"""The users of a running bus: the changes by `apportion bus` while it runs, and the subjects that users of nodes reach."""

import asyncio
import base64
import json
import secrets
import tempfile
import unittest
from pathlib import Path

import pytest

from apportion_local import bus
from apportion_local.paths import StackError

from .support import PATIENCE_S, PROGRAMS, NatsServer, settle, until

pytestmark = pytest.mark.system

CELL = "cell-1"
PREFIX = f"apportion.v1.{CELL}"
A, B, NEW = "tenant:tenant-a", "tenant:tenant-b", "tenant:new-one"
ALICE, BOB = "operator:alice", "operator:bob"


def claims(token):
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def signed(value, seed):
    """A token as the holder of the operator's key could make it."""
    import nkeys

    def plain(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    value = {**value, "iat": value["iat"] + 1, "jti": secrets.token_hex(16)}
    words = plain(b'{"typ":"JWT","alg":"ed25519-nkey"}') + b"." + plain(json.dumps(value).encode())
    return words + b"." + plain(nkeys.from_seed(bytearray(seed.strip().encode())).sign(words))


async def listen(client, subject):
    heard = []

    async def hear(message):
        heard.append(message.data)

    await client.subscribe(subject, cb=hear)
    await settle(client)
    return heard


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.home = Path(directory.name, "bus")

    def init(self, *tenants, cell=CELL, more=()):
        bus.init(PROGRAMS / "apportion", self.home, cell, tenants, *more)
        return self.files()

    def files(self):
        return {str(path.relative_to(self.home)): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}

    def test_bus_init_twice_changes_nothing_and_makes_what_is_missing(self):
        before = self.init("tenant-a", "tenant-b")
        self.assertEqual(self.init("tenant-a", "tenant-b"), before)
        # Tenants that were added before and are not named stay.
        self.assertEqual(self.init(), before)
        gone = self.home / "creds" / "quota.creds"
        gone.unlink()
        after = self.init("tenant-a", "tenant-b")
        self.assertEqual({name for name in before if before[name] != after[name]}, {"creds/quota.creds"})
        self.assertEqual(set(before), set(after))

    def test_another_tenant_changes_no_account_but_its_own(self):
        before = self.init("tenant-a")
        after = self.init("tenant-b")
        added = {"keys/account-T_tenant-b.nk", "tokens/account-T_tenant-b.jwt", "creds/tenant-tenant-b.creds"}
        self.assertEqual(set(after) - set(before), added)
        self.assertEqual({name for name in before if before[name] != after[name]}, {"plan.json", "bus.conf"})

    def test_keys_and_creds_are_for_their_owner_only(self):
        self.init("tenant-a")
        for path in (self.home, *self.home.rglob("*")):
            self.assertEqual(path.stat().st_mode & 0o777, 0o700 if path.is_dir() else 0o600, path)

    def test_stack_json_does_not_tell_who_may_delete_streams(self):
        """It names the directory with the creds of the parties that work with a cell."""
        self.init("tenant-a")
        names = {path.name for path in (self.home / "creds").iterdir()}
        self.assertEqual(names, {"admission.creds", "quota.creds", "scheduler.creds", "node-heartbeat.creds",
                                 "analytics.creds", "operator.creds", "join.creds", "tenant-tenant-a.creds",
                                 "node-signing.nk"})
        self.assertEqual({path.name for path in (self.home / "admin").iterdir()}, {"bus.creds", "system.creds"})

    def test_what_is_no_tenant_and_another_cell_are_refused(self):
        self.init("tenant-a")
        before = self.files()
        for name in ("", "_operator", "a.b", "a b", "*", ">", "x" * 65):
            with self.assertRaisesRegex(StackError, "no name of a tenant"):
                self.init(name)
        for name in ("", "a.b", "c" * 33, ">"):
            with self.assertRaisesRegex(StackError, "no name of a cell"):
                self.init(cell=name)
        with self.assertRaisesRegex(StackError, "is for the cell cell-1"):
            self.init(cell="other")
        self.assertEqual(self.files(), before)

    def test_everybody_connects_to_a_cell_of_the_longest_name(self):
        server = NatsServer("c" * 32, ["t" * 64])
        self.addCleanup(server.close)

        async def connect(key):
            async with server.connect(key):
                pass

        for path in sorted(server.bus_dir.rglob("*.creds")):
            with self.subTest(path.stem):
                asyncio.run(connect(path.stem.replace("tenant-", "tenant:")))

    def test_a_program_that_is_not_built_is_named_with_how_to_build_it(self):
        with self.assertRaisesRegex(StackError, "Run: make build-debug"):
            bus.init(Path("/nowhere/debug/apportion"), self.home, CELL, [])


class Running(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = NatsServer(CELL, ["tenant-a", "tenant-b"])
        self.addCleanup(self.server.close)

    async def asyncSetUp(self):
        async with self.server.connect("bus") as maker:
            await maker.jetstream().add_stream(name=f"APPORTION_{CELL}_INGRESS",
                                               subjects=[f"{PREFIX}.ingress.*", f"{PREFIX}.admin", f"{PREFIX}.admin.*"])
            await maker.jetstream().add_stream(name=f"APPORTION_{CELL}_REPORT", subjects=[f"{PREFIX}.node.*.report"])

    async def command(self, *words, code=0):
        done = await asyncio.to_thread(self.server.command, *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    async def assert_refused(self, key, creds=None):
        with self.assertRaisesRegex(Exception, "(?i)authorization violation|authentication"):
            async with self.server.connect(key, creds):
                pass

    async def test_a_tenant_added_at_run_time_works_without_a_reload_and_sees_no_others(self):
        pid = self.server.process.pid
        async with self.server.connect(B) as other, self.server.connect("admission") as admission:
            await self.command("tenant", "add", "new-one")
            async with self.server.connect(NEW) as tenant:
                ack = await tenant.jetstream().publish(f"{PREFIX}.ingress.new-one", b"x")
                self.assertEqual(ack.stream, f"APPORTION_{CELL}_INGRESS")
                own = await listen(tenant, f"{PREFIX}.event.new-one.>")

                async def answer(message):
                    await message.respond(b"answer")

                await admission.subscribe(f"{PREFIX}.query.*.*", cb=answer)
                await settle(admission)
                self.assertEqual((await tenant.request(f"{PREFIX}.query.new-one.feed", b"", timeout=PATIENCE_S)).data, b"answer")
                foreign = [f"{PREFIX}.ingress.tenant-b", f"{PREFIX}.query.tenant-b.feed", f"{PREFIX}.admin"]
                for subject in foreign:
                    await tenant.publish(subject, b"intruder")
                stolen = [await listen(tenant, f"{PREFIX}.event.tenant-b.>"), await listen(tenant, f"{PREFIX}.event.>")]
                await until(lambda: len(tenant.refusals) == len(foreign) + len(stolen))
                theirs = await listen(other, f"{PREFIX}.event.tenant-b.>")
                for name in ("tenant-b", "new-one"):
                    await admission.publish(f"{PREFIX}.event.{name}.job", name.encode())
                await settle(admission)
                await until(lambda: own and theirs)
                await settle(tenant)
                self.assertEqual((own, theirs, stolen), ([b"new-one"], [b"tenant-b"], [[], []]))
            # Other connections stay.
            self.assertTrue(other.is_connected and admission.is_connected)
        self.assertEqual((self.server.process.pid, self.server.process.poll()), (pid, None))
        # The tenant is there after a restart, and adding it again changes nothing.
        self.server.stop()
        self.server.start()
        await self.command("tenant", "add", "new-one")
        async with self.server.connect(NEW):
            pass

    async def test_a_removed_tenant_is_cut_off_and_refused(self):
        creds = self.server.home.path / "kept.creds"
        creds.write_bytes(bus.creds(self.server.bus_dir, A).read_bytes())
        async with self.server.connect(A) as tenant, self.server.connect(B) as other:
            await self.command("tenant", "remove", "tenant-a")
            await until(lambda: tenant.is_closed)
            self.assertTrue(other.is_connected)
        await self.assert_refused(A, creds)
        async with self.server.connect(B):
            pass
        self.assertFalse(list(self.server.bus_dir.rglob("*tenant-a*")))
        self.assertIn("there is no tenant", await self.command("tenant", "remove", "tenant-a", code=1))
        self.server.stop()
        self.server.start()
        await self.assert_refused(A, creds)
        # Another tenant of the same name has other creds.
        await self.command("tenant", "add", "tenant-a")
        await self.assert_refused(A, creds)
        async with self.server.connect(A):
            pass

    async def test_an_operator_with_a_name_says_nothing_in_that_of_another_and_is_cut_off_when_it_is_taken_back(self):
        await self.command("operator", "add", "bob")
        await self.command("operator", "add", "alice")
        creds = self.server.home.path / "kept.creds"
        creds.write_bytes(bus.creds(self.server.bus_dir, ALICE).read_bytes())
        self.assertEqual(claims(creds.read_text(encoding="utf-8").splitlines()[1])["name"], ALICE)
        async with self.server.connect(ALICE) as alice, self.server.connect(BOB) as bob, \
                self.server.connect("operator") as common, self.server.connect("admission") as admission:
            for client, subject in ((alice, "admin.alice"), (bob, "admin.bob"), (common, "admin")):
                ack = await client.jetstream().publish(f"{PREFIX}.{subject}", b"x")
                self.assertEqual(ack.stream, f"APPORTION_{CELL}_INGRESS")

            async def answer(message):
                await message.respond(b"answer")

            await admission.subscribe(f"{PREFIX}.query.*.*", cb=answer)
            await settle(admission)
            for whose in ("_operator", "tenant-a"):
                asked = await alice.request(f"{PREFIX}.query.{whose}.settings", b"", timeout=PATIENCE_S)
                self.assertEqual(asked.data, b"answer")
            replies = await listen(alice, f"{PREFIX}.reply._operator.>")
            await admission.publish(f"{PREFIX}.reply._operator.r1", b"outcome")
            await settle(admission)
            await until(lambda: replies == [b"outcome"])
            foreign = {
                alice: ["admin.bob", "admin", "admin.>", "admin.alice.x", "ingress.tenant-a", "ledger.quota"],
                common: ["admin.alice", "admin.bob"],
            }
            for client, subjects in foreign.items():
                for subject in subjects:
                    await client.publish(f"{PREFIX}.{subject}", b"intruder")
                await until(lambda: len(client.refusals) == len(subjects))
            # The server's answers on reply subjects stay in the operator's own account.
            await alice.publish(f"{PREFIX}.query._operator.settings", b"", reply=f"{PREFIX}.admin.bob")
            await alice.publish(f"{PREFIX}.admin.alice", b"x", reply=f"{PREFIX}.admin")
            await settle(alice)
            async with self.server.connect("bus") as maker:
                info = await maker.jetstream().stream_info(f"APPORTION_{CELL}_INGRESS", subjects_filter=">")
            self.assertEqual(info.state.subjects,
                             {f"{PREFIX}.admin": 1, f"{PREFIX}.admin.alice": 2, f"{PREFIX}.admin.bob": 1})
            await self.command("operator", "remove", "alice")
            await until(lambda: alice.is_closed)
            self.assertTrue(bob.is_connected and common.is_connected)
        await self.assert_refused(ALICE, creds)
        self.assertIn("there is no operator alice", await self.command("operator", "remove", "alice", code=1))
        self.assertIn("no name of an operator", await self.command("operator", "add", "_operator", code=1))
        # Another operator of the same name has other creds.
        await self.command("operator", "add", "alice")
        await self.assert_refused(ALICE, creds)
        async with self.server.connect(ALICE):
            pass

    async def test_the_old_creds_of_a_rotated_party_are_refused(self):
        for key in ("quota", A, "operator", "bus", "join"):
            old = self.server.home.path / "old.creds"
            old.write_bytes(bus.creds(self.server.bus_dir, key).read_bytes())
            # One connection uses the file, another one a copy of its old content.
            path = str(bus.creds(self.server.bus_dir, key))
            inbox = "_INBOX.join" if key == "join" else "_INBOX"
            async with self.server.connect(key, old, inbox_prefix=inbox) as holder:
                await self.command("rotate", key)
                await until(lambda: holder.is_closed)
            await self.assert_refused(key, old)
            async with self.server.connect(key, path):
                pass
            self.server.stop()
            self.server.start()
            await self.assert_refused(key, old)
        self.assertIn("there is no party", await self.command("rotate", "nobody", code=1))
        self.assertIn("cannot be replaced", await self.command("rotate", "system", code=1))

    async def test_no_tenant_is_added_while_the_bus_is_away(self):
        self.server.stop()
        conf = bus.configuration(self.server.bus_dir)
        before = conf.read_text(encoding="utf-8")
        self.assertIn("Connection refused", await self.command("tenant", "add", "new-one", code=5))
        self.assertEqual(conf.read_text(encoding="utf-8"), before)
        self.server.start()
        await self.command("tenant", "add", "new-one")
        self.assertIn("accounts are known", await self.command("push"))
        async with self.server.connect(NEW) as tenant:
            ack = await tenant.jetstream().publish(f"{PREFIX}.ingress.new-one", b"x")
            self.assertEqual(ack.seq, 1)

    async def test_an_account_that_nobody_let_in_gets_nowhere_even_if_the_operator_signs_it(self):
        keys, tokens = self.server.bus_dir / "keys", self.server.bus_dir / "tokens"
        token = (tokens / "account-T_tenant-a.jwt").read_text(encoding="utf-8").strip()
        other = claims((tokens / "account-T_tenant-b.jwt").read_text(encoding="utf-8"))

        def without(imports):
            for one in imports:
                del one["token"]

        def of_another(imports):
            for one, theirs in zip(imports, other["nats"]["imports"]):
                one["token"] = theirs["token"]

        def wider(imports):
            for one in imports:
                one["subject"] = one["subject"].replace("tenant-a", "tenant-b")

        for change in (without, of_another, wider):
            value = claims(token)
            change(value["nats"]["imports"])
            async with self.server.connect("system") as system:
                forged = signed(value, (keys / "operator-signing.nk").read_text(encoding="utf-8"))
                await system.request("$SYS.REQ.CLAIMS.UPDATE", forged, timeout=PATIENCE_S)
            with self.subTest(change.__name__):
                async with self.server.connect(A) as tenant:
                    for name in ("tenant-a", "tenant-b"):
                        await tenant.publish(f"{PREFIX}.ingress.{name}", b"x")
                    await settle(tenant)
                async with self.server.connect("operator") as operator:
                    info = await operator.jetstream().stream_info(f"APPORTION_{CELL}_INGRESS")
                    self.assertEqual(info.state.messages, 0)
        await self.command("push")
        async with self.server.connect(A) as tenant:
            await tenant.jetstream().publish(f"{PREFIX}.ingress.tenant-a", b"x")

    async def test_only_the_system_s_user_makes_accounts_known_and_takes_them_back(self):
        token = (self.server.bus_dir / "tokens" / "account-T_tenant-b.jwt").read_bytes()
        for key in ("bus", "operator", "admission", A, "fleet"):
            async with self.server.connect(key) as client:
                await client.publish("$SYS.REQ.CLAIMS.UPDATE", token)
                await client.publish("$SYS.REQ.CLAIMS.DELETE", token)
                await until(lambda: len(client.refusals) == 2)
        async with self.server.connect("system") as system:
            for subject in (f"{PREFIX}.admin", "$SYS.REQ.SERVER.PING", f"{PREFIX}.ingress.tenant-a"):
                await system.publish(subject, b"")
            await until(lambda: len(system.refusals) == 3)

    async def test_a_join_user_asks_to_join_and_nothing_else(self):
        options = {"inbox_prefix": "_INBOX.join"}
        async with self.server.connect("node-heartbeat") as door, self.server.connect("join", **options) as machine:
            async def answer(message):
                await message.respond(b"welcome")

            await door.subscribe(f"{PREFIX}.join", cb=answer)
            beats = await listen(door, f"{PREFIX}.node.*.heartbeat")
            self.assertEqual((await machine.request(f"{PREFIX}.join", b"", timeout=PATIENCE_S)).data, b"welcome")
            said = [f"{PREFIX}.node.join.report", f"{PREFIX}.node.n1.heartbeat", f"{PREFIX}.node.n1.sync",
                    f"{PREFIX}.admin", f"{PREFIX}.ingress.tenant-a", "$JS.API.INFO", "_INBOX.x"]
            for subject in said:
                await machine.publish(subject, b"x")
            heard = [await listen(machine, subject)
                     for subject in (f"{PREFIX}.node.*.assign", f"{PREFIX}.join", "_INBOX.>", ">")]
            await until(lambda: len(machine.refusals) == len(said) + len(heard))
            await settle(door)
            self.assertEqual((beats, heard), ([], [[], [], [], []]))

    async def test_a_machine_that_asks_to_join_has_few_subscriptions_and_small_messages(self):
        options = {"inbox_prefix": "_INBOX.join"}
        async with self.server.connect("join", **options) as machine:
            for no in range(8):
                await machine.subscribe(f"_INBOX.join.{no}")
            await settle(machine)
            # The server closes the connection.
            await machine.subscribe("_INBOX.join.more")
            await until(lambda: machine.is_closed)
        async with self.server.connect("join", **options) as machine:
            await machine.publish(f"{PREFIX}.join", b"x" * 4096)
            await settle(machine)
            await machine.publish(f"{PREFIX}.join", b"x" * 4097)
            await until(lambda: machine.is_closed)

    async def test_a_service_hears_requests_to_join_and_no_other_does(self):
        for key in ("admission", "quota", "operator", A, "fleet"):
            async with self.server.connect(key) as spy:
                await listen(spy, f"{PREFIX}.join")
                await until(lambda: spy.refusals)
