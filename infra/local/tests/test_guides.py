"""The runbook and the guides: their commands exist, and the Python program works."""

import itertools
import os
import re
import shlex
import sys
import unittest

import pytest

from apportion_local.paths import CHECKOUT

from .support import PROGRAMS, Stack, run, succeeded

GUIDES = CHECKOUT / "docs" / "guides"
# Documents with commands that have to exist.
DOCUMENTS = [CHECKOUT / "docs" / "runbook.md", *sorted(GUIDES.glob("coming-from-*.md")), *(GUIDES / f"{name}.md" for name in (
    "onboard-a-tenant", "change-prices", "settings-as-files", "read-a-refusal", "connect-from-python"))]


def commands(path):
    """The commands of `apportion` in the indented blocks and in the text of a document."""
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"^    (?:\$ )?(apportion .*)$", text, re.MULTILINE)
    lines += re.findall(r"`(apportion [^`]*)`", text)
    for line in lines:
        yield from (part for part in re.split(r"\s*;\s*|\s+#.*$", line) if part.startswith("apportion "))


@pytest.mark.fast
class Commands(unittest.TestCase):
    """Commands are looked up in the program's help, and not run."""

    @classmethod
    def setUpClass(cls):
        cls.asked = {}

    def test_every_command_of_the_runbook_and_the_guides_exists_with_its_flags(self):
        for path in DOCUMENTS:
            found = list(commands(path))
            self.assertTrue(found, path)
            for line in found:
                with self.subTest(path=path.name, line=line):
                    self.check(line)

    def test_a_command_or_a_flag_that_is_not_there_is_found(self):
        for line in ("apportion quequs", "apportion quota sett team-a", "apportion submit --gpu 1", "apportion bill -x"):
            with self.assertRaises(AssertionError, msg=line):
                self.check(line)

    def check(self, line):
        words = shlex.split(line.replace("…", ""))[1:]
        words = words[:words.index("--")] if "--" in words else words
        names = itertools.takewhile(lambda word: re.fullmatch(r"[a-z][a-z-]+", word), words[:3])
        help_ = self.help(*names)
        for word in words:
            if re.match(r"--?[a-z]", word):
                self.assertRegex(help_, rf"(?m)(^|[ ,]){word.partition('=')[0]}(?![\w-])")

    def help(self, *names):
        """The help of the deepest command that these words name. The other words are arguments."""
        if names not in self.asked:
            done = run(PROGRAMS / "apportion", *names, "--help")
            self.asked[names] = done.stdout if done.returncode == 0 else ""
        if self.asked[names] or not names:
            return self.asked[names]
        found = self.help(*names[:-1])
        self.assertNotIn("\nCommands", found, f"no command {' '.join(names)}")
        return found


@pytest.mark.system
class Python(unittest.TestCase):
    def test_the_program_of_the_guide_is_accepted_and_finds_what_it_asked_for(self):
        stack = Stack()
        self.addCleanup(stack.close)
        text = (GUIDES / "connect-from-python.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        (descriptors,) = re.findall(r"apportion schema descriptors --out (\S+)", text)
        self.assertIn(f'"{descriptors}"', program)
        home = stack.root / "elsewhere"
        (home / descriptors).parent.mkdir(parents=True)
        stack.apportion("schema", "descriptors", "--out", home / descriptors)
        names = {"NATS_URL": stack.value["nats"]["url"], "CELL": stack.value["cell"]["name"], "TENANT": "team-a",
                 "CREDS": str(stack.creds("tenant-team-a"))}
        for name in names:
            self.assertIn(f"APPORTION_{name}=", text)
        variables = {f"APPORTION_{name}": value for name, value in names.items()}
        output = succeeded(run(sys.executable, "-c", program, cwd=home, env={**os.environ, **variables}))
        accepted, found = output.splitlines()
        self.assertEqual(accepted.split()[1], found.split()[0])
        self.assertEqual(found.split()[1], "from-python")
