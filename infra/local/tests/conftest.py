"""Checks the markers of the tests, keeps the logs of failed ones, and writes down results for ../run_tests.py."""

import json
import re
from pathlib import Path

import pytest

from apportion_local import paths

from .support import Home

KINDS = ("fast", "system", "fault")
FAILED = paths.CHECKOUT / "target" / "test" / "failed"


def pytest_addoption(parser):
    parser.addoption("--tests-to", metavar="FILE", help="Write the collected tests to a file, one JSON object a line.")
    parser.addoption("--results-to", metavar="FILE", help="Append each result to a file, one JSON object a line.")
    parser.addoption("--logs-to", metavar="DIR", type=Path, default=FAILED,
                     help="Directory for the logs of failed tests. Default: target/test/failed.")


def pytest_configure(config):
    config.pluginmanager.register(Logs(config.getoption("--logs-to")))
    if file := config.getoption("--results-to"):
        config.pluginmanager.register(Results(Path(file)))


def pytest_collection_finish(session):
    if wrong := [item.nodeid for item in session.items if len(kinds(item)) != 1]:
        raise pytest.UsageError(f"each test needs exactly one of the markers {', '.join(KINDS)}: {', '.join(wrong)}")
    if file := session.config.getoption("--tests-to"):
        tests = [{"test": item.nodeid, "kind": kinds(item)[0], "unit": unit(item)} for item in session.items]
        Path(file).write_text("".join(json.dumps(test) + "\n" for test in tests), encoding="utf-8")


def kinds(item):
    return [kind for kind in KINDS if item.get_closest_marker(kind)]


def unit(item):
    """What one process runs: a class, or a module with classes that share servers."""
    module, *names = item.nodeid.split("::")
    return module if len(names) == 1 or item.get_closest_marker("together") else f"{module}::{names[0]}"


def pytest_sessionfinish():
    """An interrupted test has closed nothing."""
    for home in Home.every:
        home.close()
    Home.remove_closed()


class Logs:
    """Keeps the logs of all servers that a failed test has used."""

    def __init__(self, directory):
        self.directory = directory
        # By test.
        self.kept = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self):
        result = yield
        Home.remove_closed()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        if report.failed:
            if item.nodeid not in self.kept:
                target = self.directory / re.sub(r"[^\w.-]+", ".", item.nodeid)
                self.kept[item.nodeid] = str(target) if Home.copy_logs(target) else "none"
            report.sections.append(("logs", self.kept[item.nodeid]))
        return report


class Results:
    """Writes down the result of each phase of each test."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        result = {"test": report.nodeid, "when": report.when, "outcome": report.outcome, "seconds": report.duration,
                  "logs": dict(report.sections).get("logs"),
                  "why": report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else None}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
