"""The runbook and the guides: their commands exist, and the program for Python does what it says."""

import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from .support import PROGRAMS, Stack  # The launcher is on the path by it.
from apportion_local.paths import CHECKOUT

GUIDES = CHECKOUT / "docs" / "guides"
# Documents whose commands have to exist.
DOCUMENTS = [CHECKOUT / "docs" / "runbook.md", *sorted(GUIDES.glob("coming-from-*.md")), *(GUIDES / f"{name}.md" for name in (
    "onboard-a-tenant", "change-prices", "settings-as-files", "read-a-refusal", "connect-from-python"))]
TIMEOUT_SECONDS = 60


def commands(path):
    """The commands of `apportion` in the indented blocks and in the text of a document."""
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"^    (?:\$ )?(apportion .*)$", text, re.MULTILINE)
    lines += re.findall(r"`(apportion [^`]*)`", text)
    for line in lines:
        yield from (part for part in re.split(r"\s*;\s*|\s+#.*$", line) if part.startswith("apportion "))


class Commands(unittest.TestCase):
    """They are not run: the program is asked for the help of each."""

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
        """Of the deepest command that there is; what follows it are arguments."""
        if names not in self.asked:
            done = subprocess.run([str(PROGRAMS / "apportion"), *names, "--help"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
            self.asked[names] = done.stdout if done.returncode == 0 else ""
        if self.asked[names] or not names:
            return self.asked[names]
        found = self.help(*names[:-1])
        self.assertNotIn("\nCommands:", found, f"no command {' '.join(names)}")
        return found


class Python(unittest.TestCase):
    def test_the_program_of_the_guide_is_accepted_and_finds_what_it_asked_for(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        stack = Stack(Path(directory.name))
        self.addCleanup(stack.launcher, "down")
        text = (GUIDES / "connect-from-python.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        (descriptors,) = re.findall(r"apportion schema descriptors --out (\S+)", text)
        self.assertIn(f'"{descriptors}"', program)
        home = Path(directory.name, "elsewhere")
        (home / descriptors).parent.mkdir(parents=True)
        stack.apportion("schema", "descriptors", "--out", str(home / descriptors))
        names = {"NATS_URL": stack.value["nats"]["url"], "CELL": stack.value["cell"]["name"], "TENANT": "team-a",
                 "CREDS": str(Path(stack.value["nats"]["creds"]) / "tenant-team-a.creds")}
        for name in names:
            self.assertIn(f"APPORTION_{name}=", text)
        done = subprocess.run([sys.executable, "-c", program], cwd=home, capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS,
                              env={**os.environ, **{f"APPORTION_{name}": value for name, value in names.items()}})
        self.assertEqual(done.returncode, 0, done.stderr)
        accepted, found = done.stdout.splitlines()
        self.assertEqual(accepted.split()[1], found.split()[0])
        self.assertEqual(found.split()[1], "from-python")


if __name__ == "__main__":
    unittest.main()
