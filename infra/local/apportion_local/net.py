"""Free loopback ports and one-line HTTP checks."""

import os
import random
import socket
import time
import urllib.error
import urllib.request

LOOPBACK = "127.0.0.1"
EPHEMERAL_RANGE_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
PORT_MIN = 12_000
# Limits the ports to choose from: `first-last`. Test runs that are started at the same time get separate ones.
PORTS = "APPORTION_PORTS"

_given = set()


def ephemeral_first():
    """The first port the kernel hands to outgoing connections."""
    try:
        with open(EPHEMERAL_RANGE_FILE, encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def port_range():
    """The first port to choose from, and the one after the last."""
    if text := os.environ.get(PORTS):
        first, last = map(int, text.split("-"))
        return first, last + 1
    return PORT_MIN, max(ephemeral_first(), PORT_MIN + 1_000)


def now_ms():
    return time.time_ns() // 1_000_000


def free_port():
    """
    A port nobody listens on, below the range of outgoing connections.

    A port from that range (what binding to 0 gives) can be lost while its server is stopped: a client that keeps
    reconnecting is sooner or later given the very port it dials, connects to itself, and the server cannot bind again.
    """
    first, end = port_range()
    for _ in range(1_000):
        port = random.randrange(first, end)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port from {first} to {end - 1}")


def take(port):
    """A port that was used before: whether it is free still, and then nobody else gets it."""
    if port in _given or not is_free(port):
        return False
    _given.add(port)
    return True


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def http_text(url, timeout_s=2.0):
    """What a GET is answered with, if with 2xx; else None."""
    try:
        with opened(url, timeout_s) as answer:
            return answer.read().decode("utf-8", "replace") if 200 <= answer.status < 300 else None
    except (OSError, urllib.error.URLError, ValueError):
        return None


def http_ok(url, timeout_s=2.0):
    """Whether a GET is answered with 2xx."""
    return http_text(url, timeout_s) is not None


def get(url, timeout_s=2.0):
    """What a GET is answered with, be it an error. OSError: it is not answered."""
    try:
        with opened(url, timeout_s) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read()


def opened(url, timeout_s):
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=timeout_s)


def port_open(port):
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def wait_until(condition, timeout_s, interval_s=0.05):
    """Polls until the condition holds; False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_s)
