"""
Names the limits that the servers of a stack have reached, by known messages in their logs: the server, the setting with
its value, and how to raise it.
"""

import json
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass

from . import clickhouse, nats_conf, paths, postgres
from .machine import FILE, VARIABLE, Sized, oom_kills, text_of_bytes, variable_bytes

# The end of each log that is read. ClickHouse starts a new file at 50 MB.
LOG_BYTES_MAX = 8 << 20
PARTY = "services/identity/src/domain/party.rs"
LAUNCHER = "infra/local/apportion_local"


@dataclass(frozen=True)
class Limit:
    server: str
    # Regular expression for a line of the server's log, whatever the case of its letters.
    message: str
    # The setting, with its value on the machine.
    setting: Callable
    # The remedy, on the machine.
    remedy: Callable


def memory_of(name, count):
    return lambda sized: f"{name} = {text_of_bytes(count(sized.sizes))}"


def constant(text):
    return lambda _sized: text


def more_memory(sized):
    memory = sized.machine.memory_bytes
    return (f"start the stack with {VARIABLE}=memory={variable_bytes(2 * memory)} (it is sized for {text_of_bytes(memory)}), or use "
            "a machine with more memory")


def more_cores(sized):
    return f"start the stack with {VARIABLE}=cores={2 * sized.machine.cores} (it is sized for {sized.machine.cores})"


def more_connections(sized):
    return more_cores(sized) if sized.for_tests else f"edit CONNECTIONS in {LAUNCHER}/sizes.py"


def more_files(_sized):
    return "run `ulimit -n 65536` before the start of the stack; an administrator can raise the hard limit"


def files_of(_sized):
    return f"open files = {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"


def edit(names, file):
    return constant(f"edit {names} in {file}")


OPEN_FILES = "too many open files"
DISK = "no space left on device|NOT_ENOUGH_SPACE"
FREE_DISK = constant("free space on the disk of the state directory, or use another one by --state")
LIMITS = (
    Limit("clickhouse", r"\(total\) memory limit exceeded", memory_of(
        "max_server_memory_usage", lambda sizes: sizes.clickhouse.memory_bytes), more_memory),
    Limit("clickhouse", r"User memory limit exceeded", memory_of(
        "max_memory_usage_for_user of the reader",
        lambda sizes: clickhouse.reader_limits(sizes.clickhouse)["max_memory_usage_for_user"]), more_memory),
    Limit("clickhouse", r"Query memory limit exceeded", memory_of(
        "max_memory_usage", lambda sizes: clickhouse.reader_limits(sizes.clickhouse)["max_memory_usage"]), more_memory),
    Limit("clickhouse", "TOO_MANY_SIMULTANEOUS_QUERIES", constant("max_concurrent_queries_for_user"),
          edit("owner_limits and reader_limits", f"{LAUNCHER}/clickhouse.py")),
    Limit("clickhouse", OPEN_FILES, files_of, more_files),
    Limit("clickhouse", DISK, constant("disk"), FREE_DISK),
    Limit("postgres", "too many clients already|remaining connection slots are reserved",
          lambda sized: f"max_connections = {sized.sizes.postgres.connections}", more_connections),
    Limit("postgres", "too many connections for role",
          constant(f"CONNECTION LIMIT of a role = {postgres.CONNECTIONS_PER_SERVICE} for a service, "
                   f"{postgres.CONNECTIONS_OF_READERS} for the reader"),
          edit("CONNECTIONS_PER_SERVICE or CONNECTIONS_OF_READERS", f"{LAUNCHER}/postgres.py")),
    Limit("postgres", "out of shared memory", constant(f"max_locks_per_transaction = {postgres.LOCKS_PER_TRANSACTION}"),
          edit("LOCKS_PER_TRANSACTION", f"{LAUNCHER}/postgres.py")),
    Limit("postgres", "could not resize shared memory segment", constant("/dev/shm"),
          constant("mount a larger /dev/shm; for a container: --shm-size=256m")),
    Limit("postgres", OPEN_FILES, files_of, more_files),
    Limit("postgres", DISK, constant("disk"), FREE_DISK),
    Limit("nats", "maximum account active connections exceeded", constant("connections of an account"),
          edit("TENANT_CONNECTIONS_MAX", PARTY)),
    Limit("nats", "maximum subscriptions exceeded", constant("subscriptions of an account"),
          edit("TENANT_SUBSCRIPTIONS_MAX", PARTY)),
    Limit("nats", "maximum payload", constant(f"max_payload = {text_of_bytes(nats_conf.MAX_PAYLOAD_BYTES)}"),
          edit("MAX_PAYLOAD_BYTES", f"{LAUNCHER}/nats_conf.py")),
    Limit("nats", "JetStream memory resource limits exceeded", memory_of(
        "max_memory_store", lambda sizes: sizes.nats.memory_store_bytes), more_memory),
    Limit("nats", "JetStream file resource limits exceeded", constant("max_file_store, by the free space of the disk"), FREE_DISK),
    Limit("nats", "Slow Consumer Detected: MaxPending", constant(
        f"max_pending = {text_of_bytes(nats_conf.MAX_PENDING_BYTES)}"),
          edit("MAX_PENDING_BYTES", f"{LAUNCHER}/nats_conf.py")),
    Limit("nats", "cannot allocate memory|out of memory", memory_of(
        "GOMEMLIMIT", lambda sizes: sizes.nats.heap_bytes), more_memory),
    Limit("nats", OPEN_FILES, files_of, more_files),
    Limit("nats", DISK, constant("disk"), FREE_DISK),
)


def reached(state):
    """Returns a line for each limit in the logs of a state directory, and for processes killed for lack of memory."""
    if not (state / FILE).exists():
        return []
    sized = Sized.read(state)
    texts = {server: "".join(map(end_of, logs(state, server))) for server in ("nats", "postgres", "clickhouse")}
    found = ((limit, re.findall(limit.message, texts[limit.server], re.IGNORECASE)) for limit in LIMITS)
    return [line_of(limit, messages, sized) for limit, messages in found if messages] + killed(state, sized)


def killed(state, sized):
    try:
        children = json.loads((state / "supervisor.json").read_text(encoding="utf-8"))
    except OSError:
        return []
    names = [name for name, child in children.items() if child["last_exit"] == "signal SIGKILL"]
    kills = oom_kills() - sized.machine.oom_kills
    if not names or kills <= 0:
        return []
    return [f"{', '.join(names)}: killed, and the kernel reports {kills} processes killed for lack of memory since the start "
            f"(dmesg). Remedy: end other programs, start the stack with less memory "
            f"({VARIABLE}=memory={variable_bytes(sized.machine.memory_bytes // 2)}), or use a machine with more."]


def line_of(limit, messages, sized):
    times = "once" if len(messages) == 1 else f"{len(messages)} times"
    return f"{limit.server} reached a limit {times}: {limit.setting(sized)}. To raise it: {limit.remedy(sized)}."


def logs(state, server):
    """The output of the process, and the log that ClickHouse writes, perhaps in a directory for temporary files."""
    found = [state / "log" / f"{server}.log"]
    if server == "clickhouse":
        outer = paths.elsewhere(state / f"clickhouse{paths.ELSEWHERE}")
        found.append(clickhouse.log_file(outer / "log" if outer else state / "log" / "clickhouse"))
    return found


def end_of(log):
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_BYTES_MAX))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
