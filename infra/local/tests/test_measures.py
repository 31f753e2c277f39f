"""Each measure of the Makefile, at its smallest size: `make TARGET SMOKE=1`."""

import json
import os
import re
import sys

import pytest

from apportion_local import paths

from .support import PROGRAMS, Home, run, succeeded

# Nothing is built here: `make test` has built the programs.
BUILDS = ("build", "bench-build")
# The outer make passes its own options and variables on by these.
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")
# Counts in the figures of requests without an outcome.
LOSSES = ("errors", "lost", "never_answered", "not_created", "tasks_lost", "unanswered")


class Measure:
    """Each target has its own class: several can run at the same time, because none judges speed."""

    target = None
    # The files with figures.
    figures = None

    def test_it_works_at_its_smallest_size(self):
        home = Home()
        try:
            figures = home.path / "figures"
            options = [word for target in BUILDS for word in ("-o", target)]
            variables = [f"PROGRAMS={PROGRAMS}", f"PYTHON={sys.executable}", f"BENCH={figures}",
                         f"STATE={home.path / 'up'}", "ARGS="]
            environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
            done = run("make", *options, self.target, "SMOKE=1", *variables, cwd=paths.CHECKOUT, env=environment)
            (home.path / "measure.log").write_text(done.stdout + done.stderr, encoding="utf-8")
            succeeded(done)
            found = {file.name: values(file) for file in figures.glob("*.json")}
            assert sorted(found) == sorted(self.figures)
            assert not list(losses(found))
        finally:
            home.close()


class StackMeasure(Measure):
    pytestmark = pytest.mark.system


class TestBench(StackMeasure):
    target = "bench"
    figures = [f"bench-{case}.json" for case in ("batched", "single", "tenants", "deep", "full", "nodes", "live")]


class TestBenchAgent(StackMeasure):
    target, figures = "bench-agent", ["agent.json"]


class TestBenchAnalytics(StackMeasure):
    target, figures = "bench-analytics", ["analytics.json"]


class TestBenchCore(StackMeasure):
    target, figures = "bench-core", ["core.json"]


class TestBenchFlood(StackMeasure):
    target, figures = "bench-flood", ["flood.json"]


class TestBenchHeartbeat(StackMeasure):
    target, figures = "bench-heartbeat", ["heartbeat.json"]


class TestBenchLease(StackMeasure):
    target, figures = "bench-lease", ["lease.json"]


class TestBenchPeers(StackMeasure):
    target, figures = "bench-peers", ["peers.json"]


class TestBenchPlacement(StackMeasure):
    target, figures = "bench-placement", ["placement.json"]


class TestBenchQuery(StackMeasure):
    target, figures = "bench-query", ["query.json"]


class TestBenchQueueing(StackMeasure):
    target, figures = "bench-queueing", ["queueing.json"]


class TestBenchQuota(StackMeasure):
    target, figures = "bench-quota", ["quota.json"]


class TestChaos(Measure):
    pytestmark = pytest.mark.fault
    target, figures = "chaos", ["chaos.json"]


@pytest.mark.fast
def test_each_measure_of_the_makefile_has_a_test():
    makefile = (paths.CHECKOUT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^(bench[a-z-]*|chaos):", makefile, re.MULTILINE)
    tested = [value.target for name, value in globals().items() if name.startswith("Test")]
    assert sorted({*targets} - {*BUILDS}) == sorted(tested)


def values(file):
    """A file with one JSON object, or with one in each line."""
    text = file.read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def losses(value, path=""):
    """The paths of all counts in LOSSES that are not 0."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        if name in LOSSES and child:
            yield f"{path}/{name}: {child}"
        yield from losses(child, f"{path}/{name}")
