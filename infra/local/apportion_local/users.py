"""Users without rights, for servers that must not run as root and must not reach each other's files."""

import os
import pwd

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
