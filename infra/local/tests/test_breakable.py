"""The parts of a breakable stack: clocks that can be set wrong from outside, and a disk that can be full."""

import errno
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pytest

from apportion_local.breakable import Clocks, Disk

pytestmark = pytest.mark.fast

HOUR_NS = 3_600 * 10**9
# Prints the wall clock between two readings of the monotonic one, once for each line of its input.
READS_CLOCKS = "import sys, time\nfor _ in sys.stdin: print(time.monotonic_ns(), time.time_ns(), time.monotonic_ns(), flush=True)"


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
                """The least and the most by which the wall clock is ahead of the monotonic one."""
                process.stdin.write("\n")
                process.stdin.flush()
                first, wall, last = (int(number) for number in process.stdout.readline().split())
                return wall - last, wall - first

            least_before, most_before = ahead()
            for offset in (HOUR_NS + 999_999_999, -HOUR_NS - 1, 0):
                with open(file, "r+b") as opened:
                    opened.write(offset.to_bytes(8, sys.byteorder, signed=True))
                least, most = ahead()
                self.assertTrue(least - most_before <= offset <= most - least_before, (offset, least, most))


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
