"""The local stack with TLS: everything works by it, and nothing without it or by another authority."""

import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import tomllib
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from .support import PROGRAMS  # (puts the launcher's package on the path, too)
from apportion_local import net, paths, services, tls

TIMEOUT_SECONDS = 200
PATIENCE_SECONDS = 30


class Up(unittest.TestCase):
    """A directory for one stack, and its command line."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        cls.addClassCleanup(directory.cleanup)
        # Under root servers run as users who have to pass.
        Path(directory.name).chmod(0o711)
        cls.home, cls.state = Path(directory.name), Path(directory.name, "up")
        cls.addClassCleanup(cls.launcher, "down")
        cls.other = cls.home / "other"
        tls.init(PROGRAMS / "apportion", cls.other)

    @classmethod
    def launcher(cls, *words):
        return subprocess.run(
            [sys.executable, str(paths.CHECKOUT / "infra/local/stack.py"), *words, "--state", str(cls.state)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    @classmethod
    def up(cls, *options):
        done = cls.launcher("up", "--bin-dir", str(PROGRAMS), *options)
        if done.returncode != 0:
            raise AssertionError(done.stdout[-4000:] + done.stderr[-4000:])
        cls.stack = json.loads((cls.state / "stack.json").read_text(encoding="utf-8"))

    def apportion(self, *words, stack=None):
        command = [str(PROGRAMS / "apportion"), "--stack", str(stack or self.state / "stack.json"), *words]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    def asked(self, *words):
        done = self.apportion(*words)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def submit(self):
        return self.asked("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB").split()[0]

    def billed(self, context):
        """How many runs are on the bill."""
        clickhouse = self.stack["clickhouse"]
        reader = clickhouse["reader"]
        request = urllib.request.Request(
            f"{clickhouse['url']}/", data=b"SELECT count() FROM apportion.allocation_intervals",
            headers={"X-ClickHouse-User": reader["user"], "X-ClickHouse-Key": reader["password"]})
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
            return int(answer.read())


def trusting(ca_file):
    return ssl.create_default_context(cafile=str(ca_file))


def connected(url):
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS)


def read_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        line += connection.recv(1)
    return line


def all_of(connection):
    """What a server says until it closes."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(4096):
            said += data
    return said


class TlsStack(Up):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.up("--fresh", "--tls")

    def test_a_request_is_decided_run_and_billed(self):
        allocation = self.submit()
        self.asked("cancel", "--tenant", "team-a", allocation)
        context = trusting(self.stack["tls"]["ca_file"])
        self.assertTrue(net.wait_until(lambda: self.billed(context) > 0, PATIENCE_SECONDS))
        # From Postgres, from the bill, and from the bus.
        self.assertIn(allocation, self.asked("get", "--tenant", "team-a", allocation))
        self.asked("conservation")
        self.assertIn("every link holds", self.asked("verify"))
        for service in self.stack["services"].values():
            self.assertTrue(net.http_ok(f"http://{service['http']}/readyz"))

    def test_plain_python_gets_an_outcome(self):
        descriptors = self.home / "apportion.binpb"
        self.asked("schema", "descriptors", "--out", str(descriptors))
        command = [str(paths.VENV_PYTHON), str(paths.CHECKOUT / "examples/publish.py"), "--tenant", "team-b",
                   "--stack", str(self.state / "stack.json"), "--descriptors", str(descriptors)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("submitted", done.stdout)

    def test_the_addresses_say_so_and_keys_are_for_their_owner_only(self):
        schemes = [urlsplit(url).scheme for url in (self.stack["nats"]["url"], self.stack["clickhouse"]["url"])]
        self.assertEqual(schemes, ["tls", "https"])
        for url in (self.stack["postgres"]["url"], self.stack["postgres"]["admin_url"]):
            self.assertIn("sslmode=verify-full", url)
        keys = list((self.state / "tls").glob("*.key"))
        self.assertEqual(len(keys), 1 + len(tls.SERVERS))
        self.assertEqual({path.stat().st_mode & 0o777 for path in keys}, {0o600})

    def test_who_speaks_in_the_clear_is_refused_by_each_server(self):
        with connected(self.stack["nats"]["url"]) as bus:
            info = json.loads(read_line(bus).removeprefix(b"INFO "))
            self.assertTrue(info["tls_required"])
            bus.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            self.assertNotIn(b"PONG", all_of(bus))
        with connected(self.stack["postgres"]["url"]) as postgres:
            hello = struct.pack("!I", 196_608) + b"user\0reader\0database\0apportion\0\0"
            postgres.sendall(struct.pack("!I", len(hello) + 4) + hello)
            said = all_of(postgres)
            self.assertEqual(said[:1], b"E")
            self.assertIn(b"28000", said)
        with connected(self.stack["clickhouse"]["url"]) as clickhouse:
            clickhouse.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            self.assertNotIn(b"Ok.", all_of(clickhouse))

    def test_who_believes_another_authority_connects_to_no_server(self):
        other = tls.ca(self.other)
        text = (self.state / "stack.json").read_text(encoding="utf-8")
        misled = self.home / "misled.json"
        paths.write_private(misled, text.replace(self.stack["tls"]["ca_file"], str(other)))
        for words in (["submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB"], ["node", "list"],
                      ["invoice", "export", "2026-11", "--open"]):
            refused = self.apportion(*words, stack=misled)
            self.assertEqual(refused.returncode, 5, words)
            self.assertRegex(refused.stderr, "(?i)certificate|UnknownIssuer|does not vouch", words)
        with self.assertRaises(urllib.error.URLError) as refused:
            self.billed(trusting(other))
        self.assertIsInstance(refused.exception.reason, ssl.SSLCertVerificationError)

    def service(self, name, **changed):
        """A service's process with another configuration, its log and its page."""
        tables = tomllib.loads(Path(self.stack["services"][name]["config"]).read_text(encoding="utf-8"))
        listen = f"127.0.0.1:{net.free_port()}"
        tables["http"]["listen"] = listen
        for table, value in changed.items():
            tables[table]["ca_file"] = str(value)
        config, log = self.home / f"{name}.toml", self.home / f"{name}.log"
        paths.write_private(config, services.to_toml(tables))
        with log.open("w") as out:
            process = subprocess.Popen([str(PROGRAMS / f"apportion-{name}"), "--config", str(config)],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, log, listen

    def test_a_service_that_believes_another_authority_says_which_setting_and_does_not_start(self):
        process, log, _ = self.service("quota", nats=tls.ca(self.other))
        self.assertNotEqual(process.wait(PATIENCE_SECONDS), 0)
        said = log.read_text(encoding="utf-8")
        self.assertIn("nats.ca_file", said)
        self.assertIn(str(tls.ca(self.other)), said)

    def test_a_service_names_the_setting_of_a_database_that_it_does_not_believe(self):
        for name, table in (("quota", "postgres"), ("analytics", "clickhouse")):
            with self.subTest(table):
                _, log, listen = self.service(name, **{table: tls.ca(self.other)})
                said = net.wait_until(lambda: f"{table}.ca_file" in log.read_text(encoding="utf-8"), PATIENCE_SECONDS)
                self.assertTrue(said, log.read_text(encoding="utf-8")[-2000:])

    def test_files_that_are_no_authority_are_refused_with_their_setting(self):
        empty = self.home / "empty.pem"
        empty.write_text("", encoding="utf-8")
        for path, rule in ((self.home / "none.pem", "cannot read"), (empty, "is no PEM file of certificates")):
            process, log, _ = self.service("quota", postgres=path)
            self.assertNotEqual(process.wait(PATIENCE_SECONDS), 0)
            self.assertRegex(log.read_text(encoding="utf-8"), f"`postgres.ca_file`: .*{rule}")

    def test_a_new_certificate_of_the_same_authority_is_taken_without_a_restart(self):
        before = self.shown_by_nats()
        renewed = subprocess.run([str(PROGRAMS / "apportion"), "tls", "renew", "--dir", str(self.state / "tls")],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(renewed.returncode, 0, renewed.stderr)
        pid = json.loads((self.state / "supervisor.json").read_text(encoding="utf-8"))["nats"]["pid"]
        os.kill(pid, signal.SIGHUP)
        self.assertTrue(net.wait_until(lambda: self.shown_by_nats() != before, PATIENCE_SECONDS))
        self.submit()

    def shown_by_nats(self):
        """The certificate, by which a client of the stack's authority has been convinced."""
        with connected(self.stack["nats"]["url"]) as bus:
            read_line(bus)
            context = trusting(self.stack["tls"]["ca_file"])
            with context.wrap_socket(bus, server_hostname="127.0.0.1") as encrypted:
                return encrypted.getpeercert(binary_form=True)


class Switch(Up):
    def test_a_stack_stays_with_tls_until_it_is_told_otherwise_and_keeps_its_data(self):
        self.up("--fresh")
        self.assertNotIn("tls", self.stack)
        allocation = self.submit()
        refused = self.launcher("up", "--tls")
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("runs without TLS", refused.stderr)
        for options, scheme in ((["--tls"], "tls"), ([], "tls"), (["--no-tls"], "nats")):
            self.launcher("down")
            self.up(*options)
            self.assertEqual(urlsplit(self.stack["nats"]["url"]).scheme, scheme, options)
            self.assertIn(allocation, self.asked("get", "--tenant", "team-a", allocation))
            self.submit()


if __name__ == "__main__":
    unittest.main()
