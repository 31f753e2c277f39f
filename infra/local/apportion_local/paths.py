"""Where things are, and how files are written so that no reader sees half of one."""

import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from .net import wait_until

CHECKOUT = Path(__file__).resolve().parents[3]
LOCAL = CHECKOUT / ".local"
VENV = LOCAL / "venv"
VENV_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = CHECKOUT / "infra" / "local" / "requirements.txt"
REQUIREMENTS_SOURCE = REQUIREMENTS.with_name("requirements-source.txt")

# A Unix socket's address holds 108 bytes with the closing zero; Postgres adds ".s.PGSQL.<port>".
SOCKET_PATH_BYTES_MAX = 100
FAILED_RUNS_KEPT = 3


class StackError(Exception):
    """Something the user can act on; printed without a traceback."""


def bin_dir(profile):
    """The directory of the programs that cargo has built by a profile."""
    return target_dir() / profile


@functools.cache
def target_dir():
    """Cargo's target directory. A configuration file of the user can move it (build.target-dir), so cargo is asked."""
    for variable in ("CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"):
        if os.environ.get(variable):
            return CHECKOUT / os.environ[variable]
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version=1", "--no-deps", "--offline"]
    try:
        done = subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True)
        return Path(json.loads(done.stdout)["target_directory"])
    except (OSError, ValueError):
        # Without cargo, the programs were built elsewhere, and are in cargo's default directory.
        return CHECKOUT / "target"


def write_private(path, text, durable=False):
    """Writes a file only its owner can read, in one step. A `durable` one outlives a power cut."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(fd)
    os.replace(part, path)
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def write_json(path, value, durable=False):
    write_private(path, json.dumps(value, indent=2) + "\n", durable)


def make_dir(path, mode=0o700):
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


def try_lock(path):
    """Takes an exclusive lock and returns its open file, or None when somebody holds it."""
    file = open(path, "a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return file


@contextlib.contextmanager
def locked(path):
    """Waits for the lock: for work that two runs at once would spoil."""
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Kept by a stack that continues; each launcher creates the rest. A file `NAME.elsewhere` has the path of a directory.
DATA = ("bus", "tls", "nats", "postgres", "clickhouse", "kept.json", "log.before")
ELSEWHERE = ".elsewhere"
# The time that processes of a killed launcher get to end; ClickHouse still writes rows from memory.
LEFTOVERS_END_S = 30.0


class StateDir:
    """
    A directory that one launcher owns for as long as it lives; the lock says whether that is still so. The data of a
    `lasting` one is for the next launcher as well, which takes it over if it is not to begin `fresh`, with the logs of
    the last time as `log.before`.
    """

    def __init__(self, path, traversable, lasting=False, fresh=True):
        # Postgres refuses root, so under root it runs as another user who has to pass through here to its own
        # directory: 0711 lets it through without letting it list or read anything.
        if path.exists() and any(path.iterdir()) and not (path / "lock").exists():
            raise StackError(f"{path} holds other things; the state directory must be empty or a stack's own.")
        self.path = make_dir(path, 0o711 if traversable else 0o700)
        self.lock = try_lock(self.path / "lock")
        if self.lock is None:
            raise StackError(f"A stack already runs from {self.path}.")
        self.short_dirs = []
        self.lasting = lasting
        try:
            await_leftovers(self.path)
        except StackError:
            self.lock.close()
            raise
        self._clear(fresh)
        # The same for ClickHouse, which writes its own log. Every file in there is private.
        make_dir(self.path / "log", 0o711 if traversable else 0o700)
        for name in ("config", "pids"):
            make_dir(self.path / name)

    def _clear(self, fresh):
        if not fresh and (self.path / "log").exists():
            remove(self.path / "log.before")
            os.replace(self.path / "log", self.path / "log.before")
        for entry in self.path.iterdir():
            if entry.name == "lock" or not fresh and (entry.name in DATA or entry.suffix == ELSEWHERE):
                continue
            if entry.suffix == ELSEWHERE and (directory := elsewhere(entry)) is not None:
                remove(directory)
            remove(entry)

    def log(self, name):
        return self.path / "log" / f"{name}.log"

    def socket_dir(self, name):
        """A directory for Unix sockets: in the state directory if its path is short enough for one."""
        path = self.path / name
        if len(os.fsencode(str(path))) + len("/.s.PGSQL.65535") > SOCKET_PATH_BYTES_MAX:
            path = Path(tempfile.mkdtemp(prefix="apportion-"))
            self.short_dirs.append(path)
        return make_dir(path)

    def dir_elsewhere(self, name, programs=False):
        """
        Returns a directory outside the checkout, which is removed with the state. A lasting state keeps its directory
        until the temporary files are cleaned. `programs`: programs must be able to run from it.
        """
        note = self.path / (name + ELSEWHERE)
        path = elsewhere(note)
        if path is None:
            path = Path(tempfile.mkdtemp(prefix="apportion-", dir=program_place() if programs else None))
            write_private(note, f"{path}\n")
        if not self.lasting:
            self.short_dirs.append(path)
        return path

    def close(self, keep):
        """Removes what is not worth keeping. `keep` is "nothing", "logs" or "everything" (but temporary directories)."""
        for path in self.short_dirs:
            remove(path)
        if keep == "logs":
            for entry in self.path.iterdir():
                if entry.name not in ("log", "lock"):
                    remove(entry)
        elif keep == "nothing":
            remove(self.path)
        self.lock.close()


def program_place():
    """The first directory for temporary files whose file system runs programs; /tmp may be mounted noexec."""
    places = [tempfile.gettempdir(), "/var/tmp"]
    for place in places:
        if os.access(place, os.W_OK) and runs_programs(place):
            return place
    raise StackError(f"No program can run from {' or '.join(places)} (mounted noexec), and the user that Postgres runs as "
                     f"cannot pass through to {CHECKOUT}. Set TMPDIR to a directory that runs programs, or move the "
                     "checkout to a directory that other users can pass through (mode 0711).")


def runs_programs(path):
    return not os.statvfs(path).f_flag & os.ST_NOEXEC


def elsewhere(note):
    """The directory that a note names, unless somebody else has made one of that name meanwhile."""
    try:
        path = Path(note.read_text(encoding="utf-8").strip())
        found = path.lstat()
    except OSError:
        return None
    return path if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() else None


def await_leftovers(directory):
    """Processes of an earlier launcher still have the data open while they end; the kernel has told them to."""
    pids = {int(file.read_text(encoding="ascii")) for file in (directory / "pids").glob("*.pid")}

    def left():
        return {pid for pid in pids if names(pid, directory)}

    if not wait_until(lambda: not left(), LEFTOVERS_END_S):
        still = ", ".join(str(pid) for pid in sorted(left()))
        raise StackError(f"Processes of an earlier stack still use {directory}: {still}. End them, then try again.")


def names(pid, directory):
    """Whether a process runs that has a path in the directory among its arguments; a number is soon given to others."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(os.fsencode(f"{directory}/") in argument for argument in arguments)


def sweep(prefix):
    """
    Clears up after earlier runs: what one that was killed left behind, and all but the newest logs of those that
    failed. Nobody holds the lock of their directories any more.
    """
    ended = []
    for path in LOCAL.glob(prefix + "-*"):
        lock = try_lock(path / "lock") if (path / "lock").exists() else None
        if lock is None:
            continue
        if {entry.name for entry in path.iterdir()} <= {"lock", "log"}:
            ended.append(path)
        else:
            remove(path)
        lock.close()
    for path in sorted(ended, key=lambda path: path.stat().st_mtime)[:-FAILED_RUNS_KEPT]:
        remove(path)


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
