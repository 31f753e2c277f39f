"""The sizes of the servers follow the machine, and a limit that a server reaches is named with its remedy."""

import dataclasses
import itertools
import os
import sys
import tempfile
import unittest
import urllib.error
from pathlib import Path

import pytest

from apportion_local import clickhouse, limits, machine, net, paths, sizes, supervisor
from apportion_local.machine import Machine, Sized
from apportion_local.paths import StackError

from .support import LAUNCHER, PROGRAMS, Home, run, succeeded

MIB, GIB = 1 << 20, 1 << 30
# Cores and GiB of the machine. Then of ClickHouse: memory, mark cache (MiB), threads. Of NATS: threads, heap, store in memory
# (MiB). Of Postgres: buffers, memory of a sort, cache, log on disk (MiB), connections.
TABLE = [
    ((1, 4), (1280, 32, 2), (1, 256, 128), (64, 4, 1024, 1024, 100)),
    ((2, 8), (2560, 32, 2), (1, 512, 256), (128, 8, 2048, 1024, 100)),
    ((2, 24), (7680, 96, 2), (1, 1536, 256), (384, 24, 6144, 1536, 100)),
    ((16, 64), (20480, 256, 4), (1, 4096, 256), (1024, 64, 16384, 4096, 100)),
    ((16, 128), (32768, 512, 4), (1, 4096, 256), (2048, 64, 32768, 4096, 100)),
    ((64, 512), (32768, 512, 8), (2, 4096, 256), (2048, 64, 131072, 4096, 100)),
    ((128, 2048), (32768, 512, 8), (4, 4096, 256), (2048, 64, 524288, 4096, 100)),
]
# Those of the servers for tests: memory (MiB) and queries of ClickHouse, connections of Postgres.
TEST_TABLE = [
    ((1, 4), (1280, 32, 300)),
    ((2, 24), (2560, 32, 300)),
    ((16, 128), (2560, 64, 300)),
    ((64, 512), (10240, 256, 868)),
    ((128, 2048), (20480, 512, 1636)),
]
CORES, MEMORY_GIB = (1, 2, 3, 4, 8, 16, 32, 64, 96, 128), (4, 5, 8, 16, 24, 64, 128, 512, 1024, 2048)


def figures(chosen):
    return [value for server in dataclasses.asdict(chosen).values() for value in server.values()]


@pytest.mark.fast
class Table(unittest.TestCase):
    def test_each_row(self):
        for (cores, gib), of_clickhouse, of_nats, of_postgres in TABLE:
            memory, mark_cache, threads = of_clickhouse
            go_threads, heap, store = of_nats
            buffers, work, cache, wal, connections = of_postgres
            wanted = sizes.Sizes(
                sizes.ClickHouseSizes(memory * MIB, mark_cache * MIB, threads, 32),
                sizes.NatsSizes(go_threads, heap * MIB, store * MIB),
                sizes.PostgresSizes(buffers * MIB, work * MIB, cache * MIB, wal * MIB, connections))
            self.assertEqual(sizes.sizes(cores, gib * GIB), wanted, (cores, gib))

    def test_each_row_for_tests(self):
        for (cores, gib), wanted in TEST_TABLE:
            chosen = sizes.for_tests(cores, gib * GIB)
            found = (chosen.clickhouse.memory_bytes // MIB, chosen.clickhouse.owner_queries, chosen.postgres.connections)
            self.assertEqual(found, wanted, (cores, gib))

    def test_the_limits_together_stay_below_half_of_the_memory(self):
        for cores, gib in itertools.product(CORES, MEMORY_GIB):
            for choose in (sizes.sizes, sizes.for_tests):
                self.assertLess(choose(cores, gib * GIB).limit_bytes(), gib * GIB // 2, (cores, gib))

    def test_more_cores_or_memory_give_no_server_less(self):
        for choose in (sizes.sizes, sizes.for_tests):
            steps = [((cores, gib), (more, gib)) for gib in MEMORY_GIB for cores, more in itertools.pairwise(CORES)]
            steps += [((cores, gib), (cores, more)) for cores in CORES for gib, more in itertools.pairwise(MEMORY_GIB)]
            for (cores, gib), (more_cores, more_gib) in steps:
                less, more = figures(choose(cores, gib * GIB)), figures(choose(more_cores, more_gib * GIB))
                self.assertTrue(all(a <= b for a, b in zip(less, more)), (cores, gib, more_cores, more_gib))

    def test_a_machine_outside_the_range_gets_the_nearest_sizes(self):
        self.assertEqual(sizes.sizes(1, 1), sizes.sizes(1, 4 * GIB))
        self.assertEqual(sizes.sizes(1000, 1 << 50), sizes.sizes(128, 2048 * GIB))

    def test_the_limits_of_clickhouse_users_are_the_same_parts_of_its_memory_as_in_the_containers(self):
        for cores, gib in itertools.product(CORES, MEMORY_GIB):
            chosen = sizes.sizes(cores, gib * GIB).clickhouse
            for of, container in ((clickhouse.owner_limits, clickhouse.OWNER_LIMITS),
                                  (clickhouse.reader_limits, clickhouse.READER_LIMITS)):
                for name, value in of(chosen).items():
                    if "memory" in name or "temporary" in name:
                        exact = chosen.memory_bytes * container[name] / clickhouse.CONTAINER.memory_bytes
                        self.assertLess(abs(value - exact), 1, (name, cores, gib))


@pytest.mark.fast
class Variable(unittest.TestCase):
    FOUND = Machine(2, 24 * GIB, ("cgroup",))

    def check(self, text, wanted):
        self.assertEqual(machine.overridden(self.FOUND, text), Machine(*wanted, ("APPORTION_MACHINE",)), text)

    def refused(self, text, message):
        with self.assertRaisesRegex(StackError, message):
            machine.overridden(self.FOUND, text)

    def test_it_replaces_the_figures_that_it_names(self):
        self.check("cores=16,memory=128GiB", (16, 128 * GIB))
        self.check("memory=2TiB, cores=128", (128, 2048 * GIB))
        self.check("memory=512MiB", (2, 512 * MIB))
        self.check("cores=1", (1, 24 * GIB))

    def test_another_text_is_refused_with_an_example(self):
        self.refused("cores=0", "at least 1. Example: APPORTION_MACHINE=cores=16,memory=128GiB")
        self.refused("cores=two", "whole number")
        self.refused("memory=4", "MiB, GiB or TiB")
        self.refused("memory=1.5GiB", "whole number")
        self.refused("disk=1TiB", "'disk' is neither cores nor memory")

    def test_the_line_that_is_printed_has_the_machine_and_the_sizes(self):
        text = str(Sized(machine.overridden(self.FOUND, "cores=1,memory=4GiB")))
        self.assertEqual(text, "Sized for 1 core, 4 GiB (APPORTION_MACHINE): ClickHouse 1.3 GiB, 2 threads; NATS 256 MiB, "
                               "1 thread; Postgres 64 MiB, 100 connections")
        self.assertIn("less than the 4 GiB that a stack needs", str(Sized(Machine(1, 2 * GIB))))


@pytest.mark.fast
class Detection(unittest.TestCase):
    """Directories made like /proc and /sys/fs/cgroup."""

    V1 = ("4:memory:/jobs/7\n1:cpu,cpuacct:/jobs/7\n0::/\n",
          "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
          "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
          "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
          "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
    V2 = ("0::/user.slice/session-1.scope\n", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n")
    # The container sees its own part alone, but the path from the top of the host's hierarchy.
    CONTAINER_V1 = ("4:memory:/docker/f00\n", "35 31 0:32 /docker/f00 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n")
    OUTSIDE = ("0::/../other\n", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")

    def check(self, cgroup, files, wanted, cores=(16, 16)):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as directory:
            root = Path(directory)
            own, mounts = cgroup
            texts = {"proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1 kB\n", "proc/self/cgroup": own,
                     "proc/self/mountinfo": mounts, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}
            for name, text in texts.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="ascii")
            self.assertEqual(machine.detected(root, *cores), Machine(*wanted))

    def test_without_limits_the_machine_counts(self):
        self.check(("", ""), {}, (16, 64 * GIB))
        self.check(self.V2, {"memory.max": "max\n", "cpu.max": "max 100000\n"}, (16, 64 * GIB))
        unlimited = {"memory/memory.limit_in_bytes": "9223372036854771712\n", "cpu/cpu.cfs_quota_us": "-1\n",
                     "cpu/cpu.cfs_period_us": "100000\n"}
        self.check(self.V1, unlimited, (16, 64 * GIB))

    def test_the_affinity_counts(self):
        self.check(("", ""), {}, (1, 64 * GIB, ("affinity",)), cores=(16, 1))

    def test_limits_of_the_own_cgroup_and_of_those_above_count_in_both_versions(self):
        self.check(self.V1, {"memory/jobs/7/memory.limit_in_bytes": "8589934592\n", "cpu/jobs/cpu.cfs_quota_us": "400000\n",
                             "cpu/jobs/cpu.cfs_period_us": "100000\n"}, (4, 8 * GIB, ("cgroup",)))
        self.check(self.V2, {"user.slice/memory.max": "4294967296\n", "user.slice/session-1.scope/memory.max": "max\n",
                             "user.slice/session-1.scope/cpu.max": "150000 100000\n"}, (1, 4 * GIB, ("cgroup",)))

    def test_half_a_core_counts_as_one(self):
        self.check(self.V2, {"cpu.max": "50000 100000\n"}, (1, 64 * GIB, ("cgroup",)))

    def test_a_container_that_sees_only_its_own_part(self):
        self.check(self.CONTAINER_V1, {"memory/memory.limit_in_bytes": "4294967296\n"}, (16, 4 * GIB, ("cgroup",)))
        self.check(self.OUTSIDE, {"memory.max": "4294967296\n"}, (16, 4 * GIB, ("cgroup",)))


# A line of each server's log, and the setting that is to be named.
LINES = [
    ("clickhouse", "2026.11.28 05:35:25.406630 [ 19751 ] {358a594b} <Error> executeQuery: Code: 241. DB::Exception: (total) memory "
     "limit exceeded: would use 1.90 GiB (attempt to allocate chunk of 0.00 B), current RSS: 1.90 GiB, maximum: 1.25 GiB. "
     "(MEMORY_LIMIT_EXCEEDED)", "max_server_memory_usage = 2.5 GiB. To raise it: start the stack with "
     "APPORTION_MACHINE=memory=16GiB (it is sized for 8 GiB)"),
    ("clickhouse", "<Error> executeQuery: Code: 241. DB::Exception: User memory limit exceeded: would use 1.90 GiB, maximum: "
     "1.67 GiB. (MEMORY_LIMIT_EXCEEDED)", "max_memory_usage_for_user of the reader = 1.7 GiB"),
    ("clickhouse", "<Error> executeQuery: Code: 241. DB::Exception: Query memory limit exceeded: would use 1.90 GiB, maximum: "
     "1.67 GiB. (MEMORY_LIMIT_EXCEEDED)", "max_memory_usage = 1.7 GiB"),
    ("clickhouse", "<Error> executeQuery: Code: 202. DB::Exception: Too many simultaneous queries for user reader. "
     "(TOO_MANY_SIMULTANEOUS_QUERIES)", "max_concurrent_queries_for_user. To raise it: edit owner_limits and reader_limits"),
    ("postgres", "2026-11-28 05:10:11.1 UTC [9] quota@apportion FATAL:  sorry, too many clients already",
     "max_connections = 100. To raise it: edit CONNECTIONS in"),
    ("postgres", "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "max_connections"),
    ("postgres", 'FATAL:  too many connections for role "quota"', "12 for a service, 20 for the reader"),
    ("postgres", "ERROR:  out of shared memory", "max_locks_per_transaction = 64"),
    ("postgres", 'ERROR:  could not resize shared memory segment "/PostgreSQL.1" to 8 bytes: No space left on device',
     "/dev/shm"),
    ("postgres", "LOG:  could not accept new connection: Too many open files", "open files = "),
    ("nats", "[9] 2026/11/28 05:10:11.1 [ERR] 127.0.0.1:4 - cid:7 - maximum account active connections exceeded",
     "TENANT_CONNECTIONS_MAX"),
    ("nats", "[ERR] 127.0.0.1:4 - cid:7 - maximum subscriptions exceeded", "TENANT_SUBSCRIPTIONS_MAX"),
    ("nats", "[ERR] 127.0.0.1:4 - cid:7 - maximum payload exceeded: 9000000 vs 8388608", "max_payload = 8 MiB"),
    ("nats", "[INF] 127.0.0.1:4 - cid:7 - Slow Consumer Detected: MaxPending of 67108864 Exceeded", "max_pending = 64 MiB"),
    ("nats", "[ERR] JetStream memory resource limits exceeded for server", "max_memory_store = 256 MiB"),
    ("nats", "[ERR] JetStream file resource limits exceeded for server", "max_file_store"),
    ("nats", "[ERR] write error: write /s/1.blk: no space left on device", "disk. To raise it: free space"),
]


@pytest.mark.fast
class Messages(unittest.TestCase):
    def reached(self, server, text, for_tests=False):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as directory:
            state = Path(directory)
            Sized(Machine(2, 8 * GIB), for_tests).write(state)
            log = clickhouse.log_file(state / "log" / "clickhouse") if server == "clickhouse" else state / f"log/{server}.log"
            log.parent.mkdir(parents=True)
            log.write_text(text, encoding="utf-8")
            return limits.reached(state)

    def test_each_message_names_its_setting(self):
        for server, line, setting in LINES:
            found = self.reached(server, f"first\n{line}\n{line}\n")
            self.assertRegex(found[0], f"^{server} reached a limit 2 times: ", line)
            self.assertIn(setting, found[0])

    def test_the_servers_of_tests_get_more_connections_with_more_cores(self):
        found, = self.reached("postgres", "FATAL:  sorry, too many clients already", for_tests=True)
        self.assertIn("once: max_connections = 300. To raise it: start the stack with APPORTION_MACHINE=cores=4", found)

    def test_other_lines_name_nothing(self):
        for server in ("nats", "postgres", "clickhouse"):
            self.assertEqual(self.reached(server, "all is well\n"), [])

    def test_a_killed_process_is_named_if_the_kernel_has_killed_for_lack_of_memory(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as directory:
            state = Path(directory)
            children = {"clickhouse": {"last_exit": "signal SIGKILL"}, "nats": {"last_exit": None}}
            paths.write_json(state / "supervisor.json", children)
            Sized(Machine(2, 8 * GIB, (), machine.oom_kills())).write(state)
            self.assertEqual(limits.reached(state), [])
            Sized(Machine(2, 8 * GIB, (), machine.oom_kills() - 1)).write(state)
            found, = limits.reached(state)
            self.assertRegex(found, r"^clickhouse: killed, .* 1 processes .*APPORTION_MACHINE=memory=4GiB")

    def test_a_directory_without_sizes_names_nothing(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as directory:
            self.assertEqual(limits.reached(Path(directory)), [])


@pytest.mark.system
class Servers(unittest.TestCase):
    def test_all_start_with_the_sizes_of_the_smallest_and_of_the_largest_machine(self):
        for text, connections in (("cores=1,memory=4GiB", "300"), ("cores=128,memory=2TiB", "1636")):
            home = Home()
            self.addCleanup(home.close)
            done = run(sys.executable, LAUNCHER, "with-servers", "--bin-dir", PROGRAMS, "--state", home.path / "s", "--", "true",
                       env={**os.environ, "APPORTION_MACHINE": text})
            succeeded(done)
            self.assertIn(f"(APPORTION_MACHINE): ClickHouse ", done.stderr)
            self.assertIn(f", {connections} connections", done.stderr)

    def test_a_wrong_variable_is_refused_before_anything_starts(self):
        done = run(sys.executable, LAUNCHER, "with-servers", "--", "true",
                   env={**os.environ, "APPORTION_MACHINE": "cores=none"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("cores must be a whole number", done.stderr)


@pytest.mark.system
class ClickHouseMemory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = Home()
        cls.addClassCleanup(cls.home.close)
        cls.state = paths.StateDir(cls.home.path / "s", traversable=True)
        sized = Sized(Machine(1, 4 * GIB))
        sized.write(cls.state.path)
        cls.server = clickhouse.ClickHouse(cls.state, net.free_port(), {"reader": "pw", "test": "pw"}, sized.sizes.clickhouse)
        cls.server.configure()
        cls.supervisor = supervisor.Supervisor(cls.state)
        cls.addClassCleanup(cls.supervisor.close)
        cls.addClassCleanup(lambda: cls.supervisor.stop_all([["clickhouse"]]))
        cls.supervisor.start(cls.server.spec())

    def test_the_engine_counts_its_own_memory_and_not_that_of_its_cgroup(self):
        settings = self.server.query("SELECT name, value FROM system.server_settings WHERE changed", "test")
        values = dict(line.split("\t") for line in settings.splitlines())
        self.assertEqual((values["memory_worker_use_cgroup"], values["memory_worker_dynamic_hard_limit"]), ("0", "0"))
        self.assertEqual(values["max_server_memory_usage"], str(1280 * MIB))
        self.assertEqual(values["logger.level"], "information")

    def test_a_query_over_the_limit_is_refused_and_the_limit_is_named(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.server.query("SELECT length(groupArray(number)) FROM numbers(1000000000)", "reader")
        with refused.exception as answer:
            self.assertIn("MEMORY_LIMIT_EXCEEDED", answer.read().decode())
        self.assertRegex("\n".join(limits.reached(self.state.path)), "max_memory_usage = 853 MiB. To raise it: ")
