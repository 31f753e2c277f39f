"""What makes a stack breakable: clocks that can be set wrong from outside, a disk that can be full."""

import errno
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from . import support  # noqa: F401  (puts the launcher on the path)
from apportion_local.breakable import Clocks, Disk

HOUR_NS = 3_600 * 10**9
# Both clocks as often as it is asked to.
READS_CLOCKS = "import sys, time\nfor _ in sys.stdin: print(time.time_ns(), time.monotonic_ns(), flush=True)"


class ClocksSetWrong(unittest.TestCase):
    def test_the_wall_clock_of_a_running_process_steps_and_the_monotonic_one_does_not(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as directory:
            clocks = Clocks(Path(directory) / "clock")
            file = clocks.file("quota")
            process = subprocess.Popen([sys.executable, "-c", READS_CLOCKS], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True,
                                       env={**os.environ, **clocks.environment("quota")})
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.stdin.close)

            def ahead():
                process.stdin.write("\n")
                process.stdin.flush()
                wall, monotonic = (int(number) for number in process.stdout.readline().split())
                return wall - monotonic

            before = ahead()
            for offset in (HOUR_NS + 999_999_999, -HOUR_NS - 1, 0):
                with open(file, "r+b") as opened:
                    opened.write(offset.to_bytes(8, sys.byteorder, signed=True))
                # Between the two readings of one line there is next to nothing.
                self.assertLess(abs(ahead() - before - offset), 10**9, offset)


class FullDisk(unittest.TestCase):
    def test_a_disk_is_full_until_it_is_freed(self):
        directory = tempfile.TemporaryDirectory(prefix="apportion-test-")
        self.addCleanup(directory.cleanup)
        disk = Disk(Path(directory.name))
        if not disk.mount():
            self.skipTest("this user may not mount a file system")
        self.addCleanup(disk.close)
        file = Path(directory.name) / "file"
        file.write_bytes(bytes(1 << 20))
        disk.fill()
        with self.assertRaises(OSError) as full:
            file.write_bytes(bytes(2 << 20))
        self.assertEqual(full.exception.errno, errno.ENOSPC)
        disk.free()
        file.write_bytes(bytes(2 << 20))
