"""
Runs the tests of infra/local/tests under pytest, in several processes at the same time.

    python3 infra/local/run_tests.py                 all tests
    python3 infra/local/run_tests.py -k NAME         the tests with this part of a name
    python3 infra/local/run_tests.py -m fast         the tests with this marker: fast, system or fault

Test files and the test IDs that this program prints are accepted as well. A process runs one unit: a class, a module with
classes that share servers, or all fast tests. A system or fault test that fails is run once more, alone, when all others
have ended.
"""

import argparse
import collections
import contextlib
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from apportion_local import machine, net, paths, wheels
from apportion_local.paths import StackError
from apportion_local.supervisor import describe_exit
from tests import recording

TESTS = paths.CHECKOUT / "infra" / "local" / "tests"
REPORTS = paths.CHECKOUT / "target" / "test"
# The output of each unit, and the logs of failed tests.
UNITS, FAILED = REPORTS / "units", REPORTS / "failed"
FAST = "all fast tests"
# The longest units, longest first: they start first, so that none is left alone at the end. The others follow by name.
LONGEST = (
    "test_replicas.py::Takeovers", "test_closed_months.py::ClosedMonths", "test_power_cut.py::PowerCut",
    "test_measures.py::TestBench", "test_measures.py::TestChaos", "test_measures.py::TestBenchAnalytics",
)
MEMORY_PER_PROCESS = 1 << 30
# More failures than this are not by chance: nothing is run again.
AGAIN_MAX = 2
SLOWEST_SHOWN = 15
# Each process has its own ports, so that a server that starts again finds its ports free.
PORTS_PER_PROCESS = 500


@dataclass
class Test:
    """A collected test with its results."""

    name: str
    kind: str
    unit: str
    # By phase. The set-up of the first test of a class starts the servers of all.
    seconds: dict = field(default_factory=dict)
    outcomes: set = field(default_factory=set)
    # The phases that failed.
    failed: set = field(default_factory=set)
    logs: str = "none"
    why_skipped: str = ""

    def add(self, result):
        self.seconds[result["when"]] = self.seconds.get(result["when"], 0) + result["seconds"]
        self.outcomes.add(result["outcome"])
        self.why_skipped = result["why"] or self.why_skipped
        if result["outcome"] == "failed":
            self.failed.add(result["when"])
            self.logs = result["logs"] or self.logs

    def state(self):
        return next((outcome for outcome in ("failed", "skipped", "passed") if outcome in self.outcomes), "failed")

    def cause(self):
        """Tests that failed by one cause: a class fails as a whole if its servers do not start."""
        return self.name.rpartition("::")[0] if self.failed == {"setup"} else self.name


def main():
    options = arguments()
    try:
        wheels.setup()
        return run(options)
    except StackError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, metavar="N", help="units at the same time; default: by cores and memory")
    parser.add_argument("-k", metavar="NAME", help="run the tests that match, as pytest has it")
    parser.add_argument("-m", metavar="MARKER", help="run the tests with a marker: fast, system or fault")
    parser.add_argument("tests", nargs="*", help="test files or test IDs; default: all")
    return parser.parse_args()


def run(options):
    began = time.monotonic()
    shutil.rmtree(UNITS, ignore_errors=True)
    shutil.rmtree(FAILED, ignore_errors=True)
    UNITS.mkdir(parents=True)
    # Wrappers note which commands the tests run.
    programs = Path(os.environ.get("APPORTION_TEST_PROGRAMS") or paths.bin_dir("debug"))
    record = UNITS / "record"
    os.environ["APPORTION_TEST_PROGRAMS"] = str(recording.make_wrapper(programs, UNITS / "programs", record).resolve())
    tests = collect(options)
    if any(test.name.startswith("test_focus.py::Validator") for test in tests):
        wheels.setup_focus()
    units = collections.defaultdict(list)
    for test in tests:
        units[test.unit].append(test)
    processes = options.processes or default_processes()
    print(f"{len(tests)} tests in {len(units)} units, {processes} at the same time", flush=True)
    with Pool(processes) as pool:
        pool.run([units[name] for name in ordered(units)])
        flaky = run_again(pool, tests)
    code = report(tests, flaky, time.monotonic() - began)
    if options.k or options.m or options.tests:
        return code
    # Only all tests together run all commands.
    return 0 if recording.check(record, [programs / "apportion"]) and code == 0 else 1


def collect(options):
    selection = [word for option in ("k", "m") if (value := getattr(options, option)) for word in (f"-{option}", value)]
    file = UNITS / "tests"
    done = subprocess.run([*pytest("--collect-only", "--tests-to", file), *selection, *map(located, options.tests or [TESTS])],
                          cwd=paths.CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(f"{done.stdout}{done.stderr}\npytest could not collect the tests; its output is above.")
    tests = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Test(test["test"], test["kind"], FAST if test["kind"] == "fast" else test["unit"]) for test in tests]


def pytest(*options):
    return [str(paths.VENV_PYTHON), "-m", "pytest", "-c", str(TESTS / "pytest.ini"), "--no-header", "-q", *map(str, options)]


def located(test):
    """A file or a test ID, relative to the working directory or to the directory of the tests."""
    file, *names = str(test).split("::")
    return "::".join([str(file if Path(file).exists() else TESTS / file), *names])


def ordered(units):
    if unknown := [name for name in LONGEST if not (TESTS / name.partition("::")[0]).exists()]:
        raise StackError(f"LONGEST in {__file__} names {', '.join(unknown)}, which do not exist. Correct it.")
    return sorted(units, key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))


def default_processes():
    found = machine.found()
    return max(1, min(found.cores, found.memory_bytes // MEMORY_PER_PROCESS))


class Pool:
    """Runs units, each in a process of pytest."""

    def __init__(self, size):
        self.size = size
        self.running = set()

    def __enter__(self):
        # SIGINT is ignored in background jobs of a shell, and would be in the processes of pytest.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        self.reserved = [reserve_ports() for _ in range(self.size)]
        self.ports = queue.SimpleQueue()
        for _, ports in self.reserved:
            self.ports.put(ports)
        self.executor = ThreadPoolExecutor(self.size)
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            # Interrupted: pytest stops the servers of the running tests.
            self.executor.shutdown(wait=False, cancel_futures=True)
            for process in list(self.running):
                process.send_signal(signal.SIGINT)
        self.executor.shutdown()
        for lock, _ in self.reserved:
            lock.close()

    def run(self, units, logs=FAILED):
        """Runs them in this order, as many at a time as the pool has processes. Prints each result."""
        list(self.executor.map(lambda tests: self.run_unit(tests, logs), units))

    def run_unit(self, tests, logs):
        unit, began = tests[0].unit, time.monotonic()
        name = unit.replace("::", ".").replace(" ", "-") + ("" if logs == FAILED else "-again")
        names, results, output = (UNITS / f"{name}.{kind}" for kind in ("args", "results", "txt"))
        names.write_text("".join(f"{TESTS / test.name}\n" for test in tests), encoding="utf-8")
        ports = self.ports.get()
        try:
            with output.open("w") as out:
                process = subprocess.Popen(
                    pytest("--results-to", results, "--logs-to", logs, f"@{names}"), cwd=paths.CHECKOUT,
                    env={**os.environ, net.PORTS: ports}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                    # An interrupt reaches only this program, which interrupts each of them once.
                    start_new_session=True)
                self.running.add(process)
                process.wait()
                self.running.discard(process)
        finally:
            self.ports.put(ports)
        read_results(tests, results)
        if process.returncode != 0 and all(test.state() != "failed" for test in tests):
            # It ended in a way that no test accounts for.
            tests[-1].outcomes.add("failed")
        failed = sum(test.state() == "failed" for test in tests)
        state = f"FAILED {failed} of" if failed else "ok"
        if process.returncode not in (0, 1):
            state = f"pytest ended with {describe_exit(process.returncode)}, {state}"
        text = output.read_text(encoding="utf-8", errors="replace") if failed else ""
        print(f"{time.monotonic() - began:6.1f} s  {unit}: {state} {len(tests)}\n{text}", end="", flush=True)


def read_results(tests, file):
    by_name = {test.name: test for test in tests}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            by_name[result["test"]].add(result)


def reserve_ports():
    """
    A range of ports for one process: `first-last`, and the socket that reserves it. It listens on the port before the first:
    two runs on one machine cannot listen on the same one.
    """
    first, end = net.port_range()
    starts = list(range(first, end - PORTS_PER_PROCESS, PORTS_PER_PROCESS))
    random.shuffle(starts)
    for start in starts:
        with contextlib.suppress(OSError):
            lock = socket.create_server((net.LOOPBACK, start), reuse_port=False)
            return lock, f"{start + 1}-{start + PORTS_PER_PROCESS - 1}"
    raise StackError(f"no {PORTS_PER_PROCESS} free ports between {first} and {end} for another process. Fewer: --processes N")


def run_again(pool, tests):
    """Runs the failed tests once more, alone, if there are few. Returns those that pass now."""
    failed = [test for test in tests if test.state() == "failed"]
    causes = collections.defaultdict(list)
    for test in failed:
        causes[test.cause()].append(test)
    if len(causes) > AGAIN_MAX or any(test.kind == "fast" for test in failed):
        return []
    flaky = []
    for cause, found in causes.items():
        print(f"Once more, alone: {cause}", flush=True)
        again = [Test(test.name, test.kind, test.unit) for test in found]
        pool.run([again], FAILED / "again")
        if all(test.state() == "passed" for test in again):
            flaky += found
    return flaky


def report(tests, flaky, seconds):
    """Prints the summary. Returns the exit code."""
    print(f"\nSlowest {SLOWEST_SHOWN} phases of tests:")
    phases = [(taken, phase, test.name) for test in tests for phase, taken in test.seconds.items()]
    for taken, phase, name in sorted(phases, reverse=True)[:SLOWEST_SHOWN]:
        print(f"{taken:6.1f} s  {phase:<8} {name}")
    counts = collections.Counter()
    for test in tests:
        state = "flaky" if test in flaky else test.state()
        counts[state] += 1
        if state == "skipped":
            print(f"skipped {test.name}: {test.why_skipped.removeprefix('Skipped: ')}")
        elif state != "passed":
            print(f"{state.upper()} {test.name} logs: {test.logs}")
    print(", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "flaky", "skipped")) + f" in {seconds:.0f} s")
    return 1 if counts["failed"] or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
