"""The contract is enough to read a frame: the example does it in plain Python."""

import subprocess
import unittest

import pytest

from apportion_local import paths

from .support import PROGRAMS, Home

pytestmark = pytest.mark.fast

EXAMPLES = paths.CHECKOUT / "examples"
FRAMES = paths.CHECKOUT / "schemas" / "golden" / "frames.txt"


class ReadFrameTest(unittest.TestCase):
    def setUp(self):
        home = Home()
        self.addCleanup(home.close)
        self.scratch = home.path
        self.messages = self.scratch / "apportion.binpb"
        command = [str(PROGRAMS / "apportion"), "schema", "descriptors", "--out", str(self.messages)]
        subprocess.run(command, check=True, capture_output=True)

    def printed(self, frame):
        file = self.scratch / "frame"
        file.write_bytes(bytes.fromhex(frame))
        command = [str(paths.VENV_PYTHON), str(EXAMPLES / "read_frame.py"), str(file), "--messages", str(self.messages)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def test_a_frame_says_the_same_in_columns_and_in_messages(self):
        frames = {}
        for line in FRAMES.read_text().splitlines():
            writer, how, frame = line.split(" ")
            frames.setdefault(writer, {})[how] = self.printed(frame)
        self.assertEqual(len(frames), 4)
        for writer, printed in frames.items():
            with self.subTest(writer):
                # A line of the frame itself, and those of a few events.
                self.assertGreater(printed["messages"].count("\n"), 3)
                self.assertEqual(printed["columns"], printed["messages"])
