"""The tutorial: its commands run one after the other in one shell, and print the lines in the text."""

import os
import re
import subprocess
import threading
import time
import unittest

import pytest

from apportion_local.paths import CHECKOUT

from .support import COMMAND_TIMEOUT_S, PATIENCE_S, PROGRAMS, Stack

TUTORIAL = CHECKOUT / "docs" / "tutorial.md"
# Commands that are repeated until they print the lines of the text. Read models and agents' reports follow the ledger, and a
# reader of the tutorial is slower than they are.
FOLLOWS = re.compile(r"apportion (--context \S+ )?"
                     r"(list|get|describe|explain|logs|queue|quota (get|tree)|usage|bill|budgets|refusals|settings)\b")


def steps(text):
    """The commands of the console blocks, each with the lines that it has to print, and its line number."""
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, block.start(1)) + 1
        command, expected, at = None, [], first
        for number, line in enumerate(block.group(1).splitlines(), first):
            if line.startswith("$ "):
                if command:
                    yield command, expected, at
                command, expected, at = line[2:], [], number
            elif command is None:
                raise AssertionError(f"line {number} belongs to no command: {line}")
            elif line.startswith("> ") and not expected:
                command += "\n" + line[2:]
            else:
                expected.append(line)
        yield command, expected, at


def matches(expected, printed):
    """
    Whether lines are those of the tutorial. There, … stands for any part of a line, and alone for any lines. Columns may have
    any width.
    """
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*?".join(re.escape(plain(part)) for part in plain(line).split("…")) + "\n"
    return re.fullmatch(pattern, "".join(plain(line) + "\n" for line in printed)) is not None


def plain(line):
    return re.sub(r"\s+", " ", line).strip() if line.strip() else ""


class Shell:
    """One session of bash."""

    END = "the command of the tutorial is over:"

    def __init__(self, directory, environment):
        self.process = subprocess.Popen(["bash", "--noprofile", "--norc"], cwd=directory, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command):
        """The lines that it prints, and its exit code, which the next one finds in $?."""
        watchdog = threading.Timer(COMMAND_TIMEOUT_S, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(f"{{ {command}\n}} </dev/null; code=$?; printf '%s%s\\n' '{self.END}' $code; (exit $code)\n")
            self.process.stdin.flush()
            lines = []
            for line in self.process.stdout:
                before, end, code = line.partition(self.END)
                if end:
                    return lines + ([before] if before else []), int(code)
                lines.append(line.rstrip("\n"))
        finally:
            watchdog.cancel()
        raise AssertionError(f"{command}: no end in {COMMAND_TIMEOUT_S} s: {lines}")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.mark.system
class Tutorial(unittest.TestCase):
    def test_its_commands_do_what_it_says(self):
        stack = Stack("--agent")
        self.addCleanup(stack.close)
        # A checkout after `make up`.
        checkout, home = stack.root / "checkout", stack.root / "home"
        for link, target in ((checkout / ".local" / "up", stack.state), (checkout / "target" / "quick", PROGRAMS)):
            link.parent.mkdir(parents=True)
            link.symlink_to(target)
        home.mkdir()
        shell = Shell(checkout, {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
        self.addCleanup(shell.close)
        all_steps = list(steps(TUTORIAL.read_text(encoding="utf-8")))
        self.assertTrue(all_steps)
        for (command, expected, at), after in zip(all_steps, [*all_steps[1:], ("", [], 0)]):
            printed, code = self.follow(shell, command, expected)
            where = f"docs/tutorial.md:{at}: $ {command}"
            self.assertTrue(matches(expected, printed), "\n".join([where, "should print", *expected, "and printed", *printed]))
            if not after[0].startswith("echo $?"):
                self.assertEqual(code, 0, where)

    def follow(self, shell, command, expected):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            printed, code = shell.run(command)
            if matches(expected, printed) or not FOLLOWS.match(command) or time.monotonic() > deadline:
                return printed, code
            time.sleep(0.1)


@pytest.mark.fast
class Matching(unittest.TestCase):
    def test_what_differs_is_left_open_and_nothing_else(self):
        for expected, printed, same in (
            (["a  b"], ["a b"], True), (["a …"], ["a 12 s"], True), (["a"], ["a", "b"], False), (["a", "…"], ["a", "b", "c"], True),
            (["a", "…"], ["a"], True), (["…", "z"], ["a", "b", "z"], True), (["a … z"], ["a", "z"], False), (["a."], ["ab"], False),
            ([], [], True), ([], ["a"], False), (["a"], [], False), (["…x"], ["y"], False), (["", "a"], ["", "a"], True),
        ):
            self.assertEqual(matches(expected, printed), same, (expected, printed))

    def test_a_command_goes_on_behind_its_prompt(self):
        text = "```console\n$ cat <<END\n> a\n> END\na\n$ true\n```\n"
        self.assertEqual(list(steps(text)), [("cat <<END\na\nEND", ["a"], 2), ("true", [], 6)])
