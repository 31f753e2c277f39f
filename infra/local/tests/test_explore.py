"""`make explore`: each part of a round runs something, and one that runs nothing is a failure."""

import importlib.util
import re
import sys

import pytest

from apportion_local import paths

PROGRAM = paths.CHECKOUT / "infra" / "explore.py"


def explore():
    spec = importlib.util.spec_from_file_location("explore", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.fast
class TestExplore:
    def test_what_runs_nothing_fails(self):
        module = explore()

        def ran(text, code, count):
            words = [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]
            return module.ran("a part", words, {}, count)

        for count, something, nothing in (
            (module.tests_passed, "test result: ok. 3 passed; 0 failed", "test result: ok. 0 passed; 0 failed"),
            (module.seeds_simulated, '  "seeds": 17,', '  "seeds": 0,'),
            (module.inputs_run, "stat::number_of_executed_units: 9", "stat::number_of_executed_units: 0"),
        ):
            assert ran(something, 0, count)
            assert not ran(something, 1, count)
            assert not ran(nothing, 0, count)
            assert not ran("", 0, count)

    def test_every_target_of_the_corpus_is_fuzzed(self):
        table = (paths.CHECKOUT / "loadtest/inputs/src/lib.rs").read_text(encoding="utf-8")
        names = re.findall(r'^    \("([a-z]+)", \w+::\w+\),$', table, re.MULTILINE)
        assert len(names) > 10 and sorted(path.name for path in (paths.CHECKOUT / explore().CORPUS).iterdir()) == names

    def test_every_property_names_tests_that_exist(self):
        for name, (_, crate, *words) in explore().PROPERTIES:
            source = paths.CHECKOUT / "services" / crate
            if words[0] == "--test":
                assert words == ["--test", "it"] and (source / "tests" / "it" / "main.rs").is_file(), name
                continue
            target, module = words
            files = (source / "src").rglob(f"{module}.rs")
            assert target == "--lib" and any("#[test]" in path.read_text(encoding="utf-8") for path in files), name
