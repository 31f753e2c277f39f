"""
What lets a stack be broken in ways that processes cannot be by signals alone: services whose clocks can be set wrong, and
a file system of each server's own that can be full. Only for stacks that are started to be broken.
"""

import os
import subprocess

from . import paths
from .paths import CHECKOUT, StackError

SHIM = CHECKOUT / "infra/local/clock_shim.c"
# Far more than a run writes; a file system in memory takes only the memory of its files.
SIZE_MIB = 4096
# The server writes to it meanwhile, and it cannot be made smaller than its files.
FILL_ATTEMPTS = 100


class Clocks:
    """A file for each service, by which its wall clock is ahead; see clock_shim.c."""

    def __init__(self, directory):
        self.directory = paths.make_dir(directory)
        if not paths.runs_programs(self.directory):
            # The dynamic linker would only warn, in the log of each service.
            raise StackError(f"{self.directory} is on a file system without programs (mounted noexec), so the clocks' "
                             "library cannot be loaded from it. Set TMPDIR or use --state: a directory that runs programs.")
        self.library = self.directory / "clock_shim.so"
        built = subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(self.library), str(SHIM), "-ldl"],
                               capture_output=True, text=True)
        if built.returncode != 0:
            raise StackError("The clocks' library cannot be built:\n" + built.stderr.strip())

    def file(self, service):
        path = self.directory / service
        path.write_bytes(bytes(8))
        return path

    def environment(self, service):
        return {"LD_PRELOAD": str(self.library), "APPORTION_CLOCK_OFFSET": str(self.directory / service)}


class Disk:
    """A small file system in memory for a server's data, as whoever may mount one can have it."""

    def __init__(self, directory):
        self.directory = directory
        self.mounted = False

    def mount(self):
        """Whether it worked. What an earlier launcher left behind when it was killed is taken away first."""
        unmount(self.directory)
        # Who might use the directory may use the file system.
        below = os.stat(self.directory)
        options = f"size={SIZE_MIB}m,mode={below.st_mode & 0o777:o},uid={below.st_uid},gid={below.st_gid}"
        self.mounted = run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.directory))
        return self.mounted

    def fill(self):
        """From now on it takes what fits into the pages that its files have already."""
        for _ in range(FILL_ATTEMPTS):
            stat = os.statvfs(self.directory)
            if self._resize((stat.f_blocks - stat.f_bfree) * stat.f_frsize):
                return
        raise StackError(f"{self.directory} cannot be filled.")

    def free(self):
        if not self._resize(SIZE_MIB << 20):
            raise StackError(f"{self.directory} cannot be given more space.")

    def _resize(self, size_bytes):
        return run("mount", "-o", f"remount,size={size_bytes}", str(self.directory))

    def close(self):
        if self.mounted:
            unmount(self.directory)


def unmount(directory):
    while os.path.ismount(directory):
        if not run("umount", str(directory)):
            raise StackError(f"{directory} is still in use.")


def run(*argv):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
