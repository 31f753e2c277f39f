"""The contract is enough to read a frame: the example does it in plain Python."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from .support import PROGRAMS  # (puts the launcher's package on the path, too)

from apportion_local import paths

EXAMPLES = paths.CHECKOUT / "examples"
FRAMES = paths.CHECKOUT / "schemas" / "golden" / "frames.txt"


class ReadFrameTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
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
                # The frame without its events, and a few of these.
                self.assertGreater(printed["messages"].count("\n"), 3)
                self.assertEqual(printed["columns"], printed["messages"])


if __name__ == "__main__":
    unittest.main()
