"""The launcher without its servers: its configuration files and its supervision of processes."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import pytest

from apportion_local import bus, cli, nats_conf, net, npm, paths, services, stack, wheels
from apportion_local.breakable import Disk
from apportion_local.net import LOOPBACK
from apportion_local.paths import StackError, StateDir
from apportion_local.postgres import roles_sql
from apportion_local.supervisor import LOOK_EVERY_S, Spec, StartError, Supervisor

from .support import LAUNCHER, PATIENCE_S, run, succeeded, wait

pytestmark = pytest.mark.fast

LISTEN = "127.0.0.1:4"


def stack_value():
    return {
        "cell": {"name": "local", "number": 1},
        "nats": {"url": "nats://127.0.0.1:1", "monitor_url": "http://127.0.0.1:2", "creds": "/bus/creds"},
        "postgres": {"urls": {services.schema(name): f"postgres://{name}" for name in services.NAMES}},
        "clickhouse": {"url": "http://127.0.0.1:3", "user": "analytics", "password": "pw", "database": "apportion"},
        "clock": {"origin_ms": 0, "started_ms": 5, "rate": 1000},
        "operation_window_ms": services.OPERATION_WINDOW_MS,
        "lease_ms": services.LEASE_MS,
        "otlp_listen": "127.0.0.1:6",
    }


class ChartLibrary(unittest.TestCase):
    def test_without_npm_the_set_up_says_so_and_goes_on(self):
        said = []
        with (tempfile.TemporaryDirectory(prefix="apportion-test-") as home,
              mock.patch.object(paths, "LOCAL", Path(home)), mock.patch.object(npm, "TARGET", Path(home) / "page"),
              mock.patch.dict(os.environ, PATH=home)):
            npm.setup(said.append)
            self.assertFalse(npm.TARGET.exists())
        self.assertRegex(" ".join(said), "there is no npm")

    def test_its_files_are_named_by_digests_and_by_no_address(self):
        packages = json.loads((npm.SOURCE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        fetched = {name: package for name, package in packages.items() if name}
        self.assertIn("node_modules/chart.js", fetched)
        for name, package in fetched.items():
            self.assertRegex(package["integrity"], r"\Asha512-[A-Za-z0-9+/]{86}==\Z", name)
            self.assertNotIn("resolved", package, name)


class SetUpBesideABuild(unittest.TestCase):
    def check(self, command, expected, page=(), wheels_say=(), error=None):
        """`setup -- COMMAND` with set-ups that print these lines; the wheels then fail with the error, if any."""
        def set_up_page(say):
            for line in page:
                say(line)

        def set_up_wheels(say):
            for line in wheels_say:
                say(line)
            if error is not None:
                raise error

        output, errors = io.StringIO(), io.StringIO()
        with (mock.patch.object(cli, "STOP_SIGNALS", ()), mock.patch.object(npm, "setup", set_up_page),
              mock.patch.object(wheels, "setup", set_up_wheels), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors)):
            code = cli.main(["setup", "--", *command])
        self.assertEqual((code, output.getvalue(), errors.getvalue()), expected)

    def test_the_exit_code_is_the_build_s(self):
        lines = {"page": ["page"], "wheels_say": ["wheels"]}
        self.check(["true"], (0, "page\nwheels\n", ""), **lines)
        self.check(["sh", "-c", "exit 3"], (3, "page\nwheels\n", "\nFailed (exit code 3): sh -c 'exit 3'\n"), **lines)
        self.check(["sh", "-c", "kill -9 $$"], (137, "", "\nFailed (signal SIGKILL): sh -c 'kill -9 $$'\n"))
        self.check(["no-such-program"], (1, "", "\nCannot run no-such-program: No such file or directory\n"))

    def test_a_set_up_that_fails_ends_the_build(self):
        # The build waits for a process of its own, which is ended as well.
        self.check(["sh", "-c", "sleep 600; true"], (1, "wheels\n", "\nno package index\n"), wheels_say=["wheels"],
                   error=StackError("no package index"))

    def test_the_chart_library_is_installed_before_the_build_embeds_it(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as home:
            page = Path(home, "page")
            with (mock.patch.object(cli, "STOP_SIGNALS", ()), mock.patch.object(npm, "setup", lambda _say: page.touch()),
                  mock.patch.object(wheels, "setup", lambda _say: None)):
                self.assertEqual(cli.main(["setup", "--", "test", "-e", str(page)]), 0)


class ClosedPipe(unittest.TestCase):
    def test_a_closed_pipe_changes_no_exit_code(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as home:
            for words, expected in ((["target-dir"], 0), (["status", "--state", home], 1), (["down", "--state", home], 0)):
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run([sys.executable, LAUNCHER, *words], stdin=subprocess.DEVNULL, stdout=writer,
                                      stderr=subprocess.PIPE, text=True)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (expected, ""), words)


class TargetDirectory(unittest.TestCase):
    def test_make_finds_the_programs_that_cargo_builds(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as home:
            Path(home, "config.toml").write_text('[build]\ntarget-dir = "/elsewhere/by-file"\n', encoding="utf-8")
            unset = ("CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
            environment = {name: value for name, value in os.environ.items() if name not in unset}
            # Keeps the toolchain that rustup has chosen.
            environment.setdefault("RUSTUP_HOME", str(Path.home() / ".rustup"))
            for variables, expected in (
                    ({"CARGO_TARGET_DIR": "/elsewhere/by-variable"}, "/elsewhere/by-variable"),
                    ({"CARGO_BUILD_TARGET_DIR": "/elsewhere/by-key"}, "/elsewhere/by-key"),
                    ({"CARGO_TARGET_DIR": "within"}, str(paths.CHECKOUT / "within")),
                    ({"CARGO_HOME": home}, "/elsewhere/by-file")):
                done = run("make", "--dry-run", "sim", "bench-quota", cwd=paths.CHECKOUT, env={**environment, **variables})
                succeeded(done)
                self.assertIn(f"\n{expected}/debug/loadtest simulate", done.stdout)
                self.assertIn(f"\n{expected}/release/loadtest quota", done.stdout)


class NatsConf(unittest.TestCase):
    def test_nobody_is_listened_to_but_on_loopback(self):
        text = nats_conf.render(config_dir="/config", port=1, monitor_port=2, store_dir="/nowhere",
                                bus_conf="/bus/bus.conf")
        self.assertEqual(set(re.findall(r'^(?:listen|https?): "(.*):\d"$', text, re.MULTILINE)), {LOOPBACK})
        self.assertNotIn("0.0.0.0", text)
        self.assertIn('include "../bus/bus.conf"', text)


class Streams(unittest.TestCase):
    def test_what_is_kept_in_accounts_that_there_are_no_more_is_not_passed_over(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as home:
            bus_conf = 'resolver_preload: {\n  AKNOWN: "token"\n}\n'
            stack.refuse_other_accounts(Path(home), bus_conf)
            for name in ("AKNOWN", "$SYS"):
                Path(home, "jetstream", name).mkdir(parents=True)
            stack.refuse_other_accounts(Path(home), bus_conf)
            Path(home, "jetstream", "AOTHER").mkdir()
            with self.assertRaisesRegex(StackError, "AOTHER"):
                stack.refuse_other_accounts(Path(home), bus_conf)


class ServiceConfig(unittest.TestCase):
    def test_each_service_gets_its_tables_and_no_others(self):
        common = {"cell", "nats", "clock", "http", "log", "telemetry"}
        expected = {
            "admission": common | {"postgres", "service"},
            "quota": common | {"postgres"},
            "scheduler": common | {"postgres"},
            "node-heartbeat": common | {"postgres", "service"},
            "analytics": common | {"clickhouse"},
        }
        for service, tables in expected.items():
            config = tomllib.loads(services.to_toml(services.config(service, stack_value(), LISTEN)))
            self.assertEqual(set(config), tables, service)
            self.assertEqual(config["nats"]["creds"], f"/bus/creds/{service}.creds")
            self.assertEqual("signing_key_file" in config["nats"], service == "node-heartbeat")

    def test_lease_and_window_are_scaled_with_the_clock(self):
        window = services.OPERATION_WINDOW_MS
        self.assertEqual(services.config("admission", stack_value(), LISTEN)["service"], {"operation_window_ms": window * 1000})
        self.assertEqual(services.config("node-heartbeat", stack_value(), LISTEN)["service"],
                         {"lease_ms": 15_000_000, "joining": "open"})
        value = {**stack_value(), "clock": None}
        self.assertEqual(services.config("node-heartbeat", value, LISTEN)["service"],
                         {"lease_ms": 15_000, "joining": "open"})
        self.assertNotIn("clock", services.config("quota", value, LISTEN))

    def test_a_measure_may_have_ids_forgotten_sooner(self):
        value = {**stack_value(), "clock": None, "operation_window_ms": 30_000}
        self.assertEqual(services.config("admission", value, LISTEN)["service"], {"operation_window_ms": 30_000})

    def test_the_operator_of_the_bus_gets_only_the_bus(self):
        config = services.bus_config(stack_value(), bus.creds(Path("/bus"), "bus"))
        self.assertEqual(set(config), {"cell", "nats", "log"})
        self.assertEqual(config["nats"]["creds"], "/bus/admin/bus.creds")


class Tenants(unittest.TestCase):
    def test_as_many_as_asked_for_and_names_sort_as_they_are_counted(self):
        names = cli.numbered_tenants(20)
        self.assertEqual((len(set(names)), names), (20, sorted(names)))

    def test_none_is_refused(self):
        for text in ("0", "-1", "x"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                cli.parser().parse_args(["up", "--tenants", text])


class PostgresRoles(unittest.TestCase):
    def test_a_service_is_granted_nothing_of_another_schema(self):
        sql = roles_sql({name: "pw" for name in ("postgres", "reader", "admission", "quota", "scheduler",
                                                 "node_heartbeat", "analytics")}, test_role=False)
        grants = [line for line in sql.splitlines() if "GRANT" in line]
        self.assertTrue(grants)
        for line in grants:
            if not re.match("GRANT CONNECT(, TEMPORARY)? ON DATABASE", line):
                self.assertRegex(line, r"GRANT (USAGE ON SCHEMA \w+|SELECT ON TABLES) TO reader;$")
        owners = [line for line in sql.splitlines() if line.startswith("CREATE SCHEMA")]
        for line in owners:
            self.assertRegex(line, r"^CREATE SCHEMA (\w+) AUTHORIZATION \1;$")


class Ports(unittest.TestCase):
    def test_a_port_is_below_the_outgoing_range_and_can_be_bound(self):
        ports = {net.free_port() for _ in range(50)}
        self.assertEqual(len(ports), 50)
        for port in ports:
            self.assertLess(port, net.ephemeral_first())

    def test_a_listener_makes_its_port_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.assertFalse(net.is_free(server.getsockname()[1]))


class StateDirs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)

    def test_one_owner_at_a_time(self):
        state = StateDir(self.root / "s", traversable=False)
        with self.assertRaisesRegex(StackError, "already runs"):
            StateDir(self.root / "s", traversable=False)
        state.close("everything")
        StateDir(self.root / "s", traversable=False).close("nothing")
        self.assertFalse((self.root / "s").exists())

    def test_a_directory_with_other_things_is_left_alone(self):
        (self.root / "mine").mkdir()
        (self.root / "mine" / "thesis.tex").touch()
        with self.assertRaisesRegex(StackError, "holds other things"):
            StateDir(self.root / "mine", traversable=False)
        self.assertTrue((self.root / "mine" / "thesis.tex").exists())

    def test_files_and_directories_are_private(self):
        state = StateDir(self.root / "s", traversable=False)
        self.addCleanup(state.close, "nothing")
        paths.write_json(state.path / "stack.json", {})
        self.assertEqual(stat.S_IMODE((state.path / "stack.json").stat().st_mode), 0o600)
        for path in (state.path, state.path / "config"):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700)


class Supervision(unittest.TestCase):
    """Small but real processes."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        self.state = StateDir(Path(directory.name) / "s", traversable=False)
        self.addCleanup(self.state.close, "nothing")
        self.supervisor = Supervisor(self.state)
        self.addCleanup(self.supervisor.close)
        self.addCleanup(lambda: self.supervisor.stop_all([list(self.supervisor.children)]))

    def spec(self, code, ready=lambda: True, **more):
        return Spec(name="child", argv=[sys.executable, "-c", code], ready=ready, ready_timeout_s=PATIENCE_S, **more)

    def pid(self):
        return int((self.state.path / "pids" / "child.pid").read_text())

    def poll_until(self, condition):
        self.assertTrue(net.wait_until(lambda: self.supervisor.poll(0.05) or condition(), PATIENCE_S, interval_s=0))

    def test_a_killed_process_comes_back_with_a_new_pid(self):
        self.supervisor.start(self.spec("import time; time.sleep(600)"))
        first = self.pid()
        self.assertEqual(self.supervisor.command("kill child"), "ok")
        self.poll_until(lambda: self.pid() != first)
        seen = json.loads((self.state.path / "supervisor.json").read_text())["child"]
        self.assertEqual((seen["pid"], seen["restarts"], seen["last_exit"]), (self.pid(), 1, "signal SIGKILL"))

    def test_a_stopped_process_stays_down_until_it_is_started(self):
        self.supervisor.start(self.spec("import time; time.sleep(600)"))
        first = self.pid()
        self.assertEqual(self.supervisor.command("stop child"), "ok")
        self.assertIn("error", self.supervisor.command("kill child"))
        self.supervisor.poll(0.2)
        self.assertEqual(self.supervisor.pids(), {})
        self.assertEqual(self.supervisor.command("start child"), "ok")
        self.assertEqual(self.supervisor.command("start child"), "ok")
        self.assertNotEqual(self.pid(), first)

    def test_a_paused_process_stands_still_until_it_is_resumed(self):
        self.supervisor.start(self.spec("import time; time.sleep(600)"))
        status = Path(f"/proc/{self.pid()}/stat")
        self.assertEqual(self.supervisor.command("pause child"), "ok")
        wait(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
        self.assertEqual(self.supervisor.command("resume child"), "ok")
        wait(lambda: status.read_text().rpartition(")")[2].split()[0] == "S", "it continues")

    def test_a_disk_that_a_process_does_not_have_is_not_filled(self):
        self.supervisor.start(self.spec("import time; time.sleep(600)"))
        for verb in ("fill", "free"):
            self.assertIn("no file system of its own", self.supervisor.command(f"{verb} child"))

    def test_a_process_that_ends_at_once_is_an_error_with_its_log(self):
        with self.assertRaisesRegex(StartError, "exit code 3(.|\n)*the reason"):
            self.supervisor.start(self.spec("print('the reason'); exit(3)", ready=lambda: False, advice="Do this."))

    def test_the_backoff_doubles(self):
        self.supervisor.launch(self.spec("exit(1)"))
        child = self.supervisor.children["child"]
        self.poll_until(lambda: child.restarts == 3)
        self.assertGreaterEqual(child.backoff_s, 0.8)

    def test_what_runs_and_does_not_work_is_restarted_and_each_time_left_alone_for_longer(self):
        why = ["its store is closed"]
        self.supervisor.start(self.spec("import time; time.sleep(600)", why_restart=lambda: why[0]))
        child, first = self.supervisor.children["child"], self.pid()
        self.poll_until(lambda: child.restarts == 2)
        self.assertEqual(child.mend_backoff_s, 4 * LOOK_EVERY_S)
        self.assertNotEqual(self.pid(), first)
        why[0] = None
        child.look_at = 0
        self.supervisor.poll(0)
        seen = json.loads((self.state.path / "supervisor.json").read_text())["child"]
        self.assertEqual((seen["restarts"], seen["last_exit"]), (2, "restarted by the launcher: its store is closed"))
        self.assertIn("restarted by the launcher: its store is closed", self.state.log("child").read_text())

    def test_what_was_stopped_by_hand_is_not_restarted_for_not_working(self):
        self.supervisor.start(self.spec("import time; time.sleep(600)", why_restart=lambda: "it does not work"))
        self.assertEqual(self.supervisor.command("stop child"), "ok")
        self.supervisor.poll(0)
        self.assertEqual(self.supervisor.pids(), {})

    def test_a_full_disk_does_not_end_the_launcher(self):
        disk = Disk(self.state.path)
        if not disk.mount():
            self.skipTest("this user may not mount a file system in memory")
        self.addCleanup(disk.close)
        self.addCleanup(lambda: self.supervisor.stop_all([["child"]]))
        for name in ("log", "pids"):
            (self.state.path / name).mkdir()
        self.supervisor.start(self.spec("import time; time.sleep(600)"))
        first = self.supervisor.pids()["child"]
        disk.fill()
        with self.assertRaises(OSError):
            (self.state.path / "more").write_bytes(bytes(1 << 20))
        self.assertEqual(self.supervisor.command("kill child"), "ok")
        self.poll_until(lambda: self.supervisor.pids().get("child", first) != first)
        disk.free()
        self.poll_until(lambda: self.pid() == self.supervisor.pids()["child"])

    def test_a_process_that_ignores_the_signal_is_killed(self):
        ready = self.state.path / "ready"
        self.supervisor.start(self.spec(
            "import pathlib, signal, time; signal.signal(15, signal.SIG_IGN);"
            f"pathlib.Path({str(ready)!r}).touch(); time.sleep(600)", ready=ready.exists, stop_grace_s=0.2))
        self.assertEqual(self.supervisor.command("stop child"), "ok")
        self.assertEqual(self.supervisor.children["child"].last_exit, "signal SIGKILL")

    def test_the_control_socket_speaks_lines(self):
        self.supervisor.start(self.spec("import time; time.sleep(600)"))
        path = self.state.path / "control.sock"
        self.supervisor.listen(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"stop child\nstop nobody\ndance\n")
            client.setblocking(False)
            answer = bytearray()

            def answered():
                try:
                    answer.extend(client.recv(4096))
                except BlockingIOError:
                    pass
                return answer.count(b"\n") == 3

            self.poll_until(answered)
        first, second, third = bytes(answer).decode().splitlines()
        self.assertEqual(first, "ok")
        self.assertIn("no process 'nobody'", second)
        self.assertIn("unknown command 'dance'", third)

    def test_no_child_outlives_a_launcher_that_was_killed(self):
        """Another process supervises a child and is killed. The child ends with it."""
        reader, writer = os.pipe()
        launcher = os.fork()
        if launcher == 0:
            try:
                self.supervisor.launch(self.spec("import time; time.sleep(600)"))
                os.write(writer, f"{self.pid()}\n".encode())
                signal.pause()
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as lines:
            child = int(lines.readline())
        os.kill(launcher, signal.SIGKILL)
        os.waitpid(launcher, 0)
        wait(lambda: not alive(child), "the child has ended")


def alive(pid):
    """Whether a process still runs, and is more than an entry for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
