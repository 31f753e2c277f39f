"""Users without rights, for servers that must not run as root and must not reach each other's files."""

import os
import pwd
import subprocess
import zlib
from pathlib import Path

# systemd gives this range to services that need a user while they run; no files belong to it.
SPARE_UIDS = range(61_184, 65_520)


def named(name):
    """(uid, gid) to run as, or None when the launcher is not root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(name)
    return entry.pw_uid, entry.pw_gid


def spare():
    """(uid, gid) of nobody else, or None when the launcher is not root."""
    if os.geteuid() != 0:
        return None
    uid = next(uid for uid in SPARE_UIDS if not known(uid))
    return uid, uid


# Far above what people, services and containers get.
RUN_UIDS = range(2_000_000_000, 2_100_000_000)
RUN_UIDS_OF_A_STACK = 1_000
# The agent needs them to make a run another user's: chown, dac_override, kill, setgid, setuid, sys_ptrace, sys_admin.
CAPABILITIES = sum(1 << bit for bit in (0, 1, 5, 6, 7, 19, 21))


def of_runs(state):
    """The range of users for the runs of a stack's agent, or None where its launcher may not give them another user."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    mapped = Path("/proc/self/uid_map").read_text(encoding="utf-8").split()
    if effective & CAPABILITIES != CAPABILITIES or mapped != ["0", "0", str(2**32 - 1)]:
        return None
    try:
        if subprocess.run(["unshare", "--mount", "--ipc", "true"], stdin=subprocess.DEVNULL, capture_output=True).returncode != 0:
            return None
    except OSError:
        return None
    place = zlib.crc32(os.fsencode(state)) % (len(RUN_UIDS) // RUN_UIDS_OF_A_STACK) * RUN_UIDS_OF_A_STACK
    return RUN_UIDS[place:place + RUN_UIDS_OF_A_STACK]


def known(uid):
    # One by one: services that systemd runs under such a number are found, but in no list.
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def drop_to(user):
    def setup():
        if user is not None:
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])

    return setup


def reachable(user, path):
    """Whether a user can pass through to a path and use it, found out by being that user."""
    pid = os.fork()
    if pid == 0:
        try:
            drop_to(user)()
            os._exit(0 if os.access(path, os.X_OK) else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
