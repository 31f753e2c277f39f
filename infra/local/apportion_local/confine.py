"""
Shuts the calling thread in, with Landlock: from then on it and all threads that it starts reach only the paths that it
was given, run no program, connect to nobody by TCP and listen on one port. Needs no rights; cannot be undone.

ClickHouse's engine needs it: as a library it lets every user read any file that the process can (`SELECT file('/path')`,
which no grant forbids), and keeps no secrets from who finds a hole in it.
"""

import contextlib
import ctypes
import os

PR_SET_NO_NEW_PRIVS = 38
# The system calls have the same numbers on x86_64 and aarch64.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION = 1
RULE_PATH, RULE_PORT = 1, 2

WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
FS_FIRST = (1 << 13) - 1
REFER, TRUNCATE, IOCTL = 1 << 13, 1 << 14, 1 << 15
READ = READ_FILE | READ_DIR
OF_FILES = WRITE_FILE | READ_FILE | TRUNCATE
BIND_TCP, CONNECT_TCP = 1, 2
# No signals to and no abstract sockets of processes outside.
SCOPES = 3

_libc = ctypes.CDLL(None, use_errno=True)


class Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


class PortRule(ctypes.Structure):
    _fields_ = [("access", ctypes.c_uint64), ("port", ctypes.c_uint64)]


def version():
    """Of the kernel's Landlock; 0 where there is none."""
    return max(0, _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))


def confine(readable, writable, port):
    """Paths that do not exist are passed over. Returns whether the kernel can do this at all; older ones do less."""
    abi = version()
    # The first version forbids to move a file from one directory to another.
    if abi < 2:
        return False
    fs = FS_FIRST | REFER | (TRUNCATE if abi >= 3 else 0) | (IOCTL if abi >= 5 else 0)
    rules = Ruleset(fs, BIND_TCP | CONNECT_TCP if abi >= 4 else 0, SCOPES if abi >= 6 else 0)
    ruleset = call(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    try:
        for path in readable:
            allow(ruleset, path, READ & fs)
        for path in writable:
            # All but running what lies there.
            allow(ruleset, path, fs & ~1)
        if rules.net:
            call(ADD_RULE, ruleset, RULE_PORT, ctypes.byref(PortRule(BIND_TCP, port)), 0)
        if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def allow(ruleset, path, access):
    with contextlib.suppress(FileNotFoundError, PermissionError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            access = access if os.path.isdir(path) else access & OF_FILES
            call(ADD_RULE, ruleset, RULE_PATH, ctypes.byref(PathRule(access, fd)), 0)
        finally:
            os.close(fd)


def call(number, *arguments):
    result = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
