"""The tutorial: its commands run one after the other, in one shell, and print what it says."""

import os
import re
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from .support import PROGRAMS, Stack  # The launcher is on the path by it.
from apportion_local.paths import CHECKOUT

TUTORIAL = CHECKOUT / "docs" / "tutorial.md"
# Against hanging: of one command, and until what is asked for is there.
COMMAND_SECONDS = 60
PATIENCE_SECONDS = 30
# Read models, and what agents report, follow: somebody who reads what is on the screen is slower than that.
FOLLOWS = re.compile(r"apportion (--context \S+ )?"
                     r"(list|get|describe|explain|logs|queue|quota (get|tree)|usage|bill|budgets|refusals|settings)\b")


def steps(text):
    """The commands of the blocks of a console, each with what it is to print, and its line."""
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, block.start(1)) + 1
        command = None
        for number, line in enumerate(block.group(1).splitlines(), first):
            if line.startswith("$ "):
                if command:
                    yield command, said, at
                command, said, at = line[2:], [], number
            elif command is None:
                raise AssertionError(f"line {number} is of no command: {line}")
            elif line.startswith("> ") and not said:
                command += "\n" + line[2:]
            else:
                said.append(line)
        yield command, said, at


def matches(said, printed):
    """Whether lines are those of the tutorial: … is any part of a line, and alone any lines. Columns are as wide as they are."""
    pattern = ""
    for line in said:
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
        watchdog = threading.Timer(COMMAND_SECONDS, self.process.kill)
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
        raise AssertionError(f"{command}: no end in {COMMAND_SECONDS} s: {lines}")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Tutorial(unittest.TestCase):
    def test_its_commands_do_what_it_says(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        stack = Stack(Path(directory.name), "--agent")
        self.addCleanup(stack.launcher, "down")
        # A checkout after `make up`.
        checkout, home = Path(directory.name, "checkout"), Path(directory.name, "home")
        for link, target in ((checkout / ".local" / "up", stack.state), (checkout / "target" / "release", PROGRAMS)):
            link.parent.mkdir(parents=True)
            link.symlink_to(target)
        home.mkdir()
        shell = Shell(checkout, {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
        self.addCleanup(shell.close)
        all_steps = list(steps(TUTORIAL.read_text(encoding="utf-8")))
        self.assertTrue(all_steps)
        for (command, said, at), after in zip(all_steps, [*all_steps[1:], ("", [], 0)]):
            printed, code = self.follow(shell, command, said)
            where = f"docs/tutorial.md:{at}: $ {command}"
            self.assertTrue(matches(said, printed), "\n".join([where, "says", *said, "and is", *printed]))
            if not after[0].startswith("echo $?"):
                self.assertEqual(code, 0, where)

    def follow(self, shell, command, said):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            printed, code = shell.run(command)
            if matches(said, printed) or not FOLLOWS.match(command) or time.monotonic() > deadline:
                return printed, code
            time.sleep(0.1)


class Matching(unittest.TestCase):
    def test_what_differs_is_left_open_and_nothing_else(self):
        for said, printed, same in (
            (["a  b"], ["a b"], True), (["a …"], ["a 12 s"], True), (["a"], ["a", "b"], False), (["a", "…"], ["a", "b", "c"], True),
            (["a", "…"], ["a"], True), (["…", "z"], ["a", "b", "z"], True), (["a … z"], ["a", "z"], False), (["a."], ["ab"], False),
            ([], [], True), ([], ["a"], False), (["a"], [], False), (["…x"], ["y"], False), (["", "a"], ["", "a"], True),
        ):
            self.assertEqual(matches(said, printed), same, (said, printed))

    def test_a_command_goes_on_behind_its_prompt(self):
        text = "```console\n$ cat <<END\n> a\n> END\na\n$ true\n```\n"
        self.assertEqual(list(steps(text)), [("cat <<END\na\nEND", ["a"], 2), ("true", [], 6)])


if __name__ == "__main__":
    unittest.main()
