"""The local stack with TLS: all works with it, and nothing without it or with another authority."""

import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import tomllib
import unittest
import urllib.error
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apportion_local import net, paths, services, tls

from .support import PATIENCE_S, PROGRAMS, Stack, run, succeeded, wait

pytestmark = pytest.mark.system


def trusting(ca_file):
    return ssl.create_default_context(cafile=str(ca_file))


def connected(url):
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)


def read_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        line += connection.recv(1)
    return line


def all_of(connection):
    """All data until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(4096):
            received += data
    return received


class TlsStack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = Stack("--tls")
        cls.addClassCleanup(cls.stack.close)
        cls.home, cls.value = cls.stack.root, cls.stack.value
        cls.other = cls.home / "other"
        tls.init(PROGRAMS / "apportion", cls.other)

    def billed(self, ca_file):
        """The number of runs on the bill."""
        ((count,),) = self.stack.select("SELECT count() FROM allocation_intervals", trusting(ca_file))
        return int(count)

    def test_a_request_is_decided_run_and_billed(self):
        allocation = self.stack.submit()
        self.stack.apportion("cancel", "--tenant", "team-a", allocation)
        wait(lambda: self.billed(self.value["tls"]["ca_file"]) > 0, "it is on the bill")
        # From Postgres, from the bill, and from the bus.
        self.assertIn(allocation, self.stack.apportion("get", "--tenant", "team-a", allocation))
        self.stack.verify()
        self.assertIn("every link holds", self.stack.apportion("verify"))
        for service in services.NAMES:
            self.assertTrue(self.stack.is_ready(service))

    def test_plain_python_gets_an_outcome(self):
        output = succeeded(run(paths.VENV_PYTHON, paths.CHECKOUT / "examples/publish.py", "--tenant", "team-b", "--stack",
                               self.stack.state / "stack.json", "--descriptors", self.stack.descriptors()))
        self.assertIn("submitted", output)

    def test_the_addresses_say_so_and_keys_are_for_their_owner_only(self):
        schemes = [urlsplit(url).scheme for url in (self.value["nats"]["url"], self.value["clickhouse"]["url"])]
        self.assertEqual(schemes, ["tls", "https"])
        for url in (self.value["postgres"]["url"], self.value["postgres"]["admin_url"]):
            self.assertIn("sslmode=verify-full", url)
        keys = list((self.stack.state / "tls").glob("*.key"))
        self.assertEqual(len(keys), 1 + len(tls.SERVERS))
        self.assertEqual({path.stat().st_mode & 0o777 for path in keys}, {0o600})

    def test_who_speaks_in_the_clear_is_refused_by_each_server(self):
        with connected(self.value["nats"]["url"]) as bus:
            info = json.loads(read_line(bus).removeprefix(b"INFO "))
            self.assertTrue(info["tls_required"])
            bus.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            self.assertNotIn(b"PONG", all_of(bus))
        with connected(self.value["postgres"]["url"]) as postgres:
            hello = struct.pack("!I", 196_608) + b"user\0reader\0database\0apportion\0\0"
            postgres.sendall(struct.pack("!I", len(hello) + 4) + hello)
            error = all_of(postgres)
            self.assertEqual(error[:1], b"E")
            self.assertIn(b"28000", error)
        with connected(self.value["clickhouse"]["url"]) as clickhouse:
            clickhouse.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            self.assertNotIn(b"Ok.", all_of(clickhouse))

    def test_who_believes_another_authority_connects_to_no_server(self):
        other = tls.ca(self.other)
        text = (self.stack.state / "stack.json").read_text(encoding="utf-8")
        misled = self.home / "misled.json"
        paths.write_private(misled, text.replace(self.value["tls"]["ca_file"], str(other)))
        for words in (["submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB"], ["node", "list"],
                      ["invoice", "export", "2026-11", "--open"]):
            refused = run(PROGRAMS / "apportion", "--stack", misled, *words)
            self.assertEqual(refused.returncode, 5, words)
            self.assertRegex(refused.stderr, "(?i)certificate|UnknownIssuer|does not vouch", words)
        with self.assertRaises(urllib.error.URLError) as refused:
            self.billed(other)
        self.assertIsInstance(refused.exception.reason, ssl.SSLCertVerificationError)

    def service(self, name, **changed):
        """Starts a service's process with other authorities. Returns the process and its log."""
        tables = tomllib.loads(Path(self.value["services"][name]["config"]).read_text(encoding="utf-8"))
        tables["http"]["listen"] = f"127.0.0.1:{net.free_port()}"
        for table, value in changed.items():
            tables[table]["ca_file"] = str(value)
        config, log = self.home / f"{name}.toml", self.home / f"{name}.log"
        paths.write_private(config, services.to_toml(tables))
        with log.open("w") as out:
            process = subprocess.Popen([str(PROGRAMS / f"apportion-{name}"), "--config", str(config)],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, log

    def test_a_service_that_believes_another_authority_says_which_setting_and_does_not_start(self):
        process, log = self.service("quota", nats=tls.ca(self.other))
        self.assertNotEqual(process.wait(PATIENCE_S), 0)
        text = log.read_text(encoding="utf-8")
        self.assertIn("nats.ca_file", text)
        self.assertIn(str(tls.ca(self.other)), text)

    def test_a_service_names_the_setting_of_a_database_that_it_does_not_believe(self):
        for name, table in (("quota", "postgres"), ("analytics", "clickhouse")):
            with self.subTest(table):
                _, log = self.service(name, **{table: tls.ca(self.other)})
                wait(lambda: f"{table}.ca_file" in log.read_text(encoding="utf-8"),
                     lambda: f"{name} names its setting: {log.read_text(encoding='utf-8')[-2000:]}")

    def test_files_that_are_no_authority_are_refused_with_their_setting(self):
        empty = self.home / "empty.pem"
        empty.write_text("", encoding="utf-8")
        for path, rule in ((self.home / "none.pem", "cannot read"), (empty, "is no PEM file of certificates")):
            process, log = self.service("quota", postgres=path)
            self.assertNotEqual(process.wait(PATIENCE_S), 0)
            self.assertRegex(log.read_text(encoding="utf-8"), f"`postgres.ca_file`: .*{rule}")

    def test_a_new_certificate_of_the_same_authority_is_taken_without_a_restart(self):
        before = self.shown_by_nats()
        self.stack.apportion("tls", "renew", "--dir", self.stack.state / "tls")
        os.kill(self.stack.pid("nats"), signal.SIGHUP)
        wait(lambda: self.shown_by_nats() != before, "NATS shows the new certificate")
        self.stack.submit()

    def shown_by_nats(self):
        """NATS' certificate, verified by a client that trusts the stack's authority."""
        with connected(self.value["nats"]["url"]) as bus:
            read_line(bus)
            context = trusting(self.value["tls"]["ca_file"])
            with context.wrap_socket(bus, server_hostname="127.0.0.1") as encrypted:
                return encrypted.getpeercert(binary_form=True)


class Switch(unittest.TestCase):
    def test_a_stack_stays_with_tls_until_it_is_told_otherwise_and_keeps_its_data(self):
        stack = Stack()
        self.addCleanup(stack.close)
        self.assertNotIn("tls", stack.value)
        allocation = stack.submit()
        refused = stack.launcher("up", "--tls")
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("runs without TLS", refused.stderr)
        for options, scheme in ((["--tls"], "tls"), ([], "tls"), (["--no-tls"], "nats")):
            stack.down()
            stack.up(*options)
            self.assertEqual(urlsplit(stack.value["nats"]["url"]).scheme, scheme, options)
            self.assertIn(allocation, stack.apportion("get", "--tenant", "team-a", allocation))
            stack.submit()
