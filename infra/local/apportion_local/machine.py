"""
Finds the processor cores and the memory that the stack may use: those of the machine, or fewer if the affinity of the
launcher or its cgroup says so. APPORTION_MACHINE replaces both, for tests and for machines that other programs share.
"""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from . import paths, sizes
from .paths import StackError

VARIABLE = "APPORTION_MACHINE"
EXAMPLE = f"{VARIABLE}=cores=16,memory=128GiB"
FILE = "machine.json"
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class Machine:
    cores: int
    memory_bytes: int
    # The sources of limits below those of the machine itself: "affinity", "cgroup", the variable.
    bound_by: tuple = ()
    # Processes that the kernel has killed for lack of memory since it started.
    oom_kills: int = 0

    def __str__(self):
        text = f"{self.cores} core{'' if self.cores == 1 else 's'}, {text_of_bytes(self.memory_bytes)}"
        return f"{text} ({', '.join(self.bound_by)})" if self.bound_by else text


@dataclass(frozen=True)
class Sized:
    """A machine with the sizes that the servers of a stack get on it. The launcher keeps it in the state directory."""

    machine: Machine
    for_tests: bool = False

    @property
    def sizes(self):
        choose = sizes.for_tests if self.for_tests else sizes.sizes
        return choose(self.machine.cores, self.machine.memory_bytes)

    def __str__(self):
        clickhouse, nats, postgres = self.sizes.clickhouse, self.sizes.nats, self.sizes.postgres
        less = self.machine.memory_bytes < sizes.MEMORY_MIN
        warning = f", less than the {text_of_bytes(sizes.MEMORY_MIN)} that a stack needs" if less else ""
        return (f"Sized for {self.machine}{warning}: ClickHouse {text_of_bytes(clickhouse.memory_bytes)}, "
                f"{clickhouse.threads} threads; NATS {text_of_bytes(nats.heap_bytes)}, {nats.threads} thread{'' if nats.threads == 1 else 's'}; "
                f"Postgres {text_of_bytes(postgres.shared_buffers_bytes)}, {postgres.connections} connections")

    def write(self, directory):
        paths.write_json(directory / FILE, asdict(self))

    @classmethod
    def read(cls, directory):
        value = json.loads((directory / FILE).read_text(encoding="utf-8"))
        return cls(Machine(**value["machine"]), value["for_tests"])


def found(environment=os.environ):
    machine = detected(Path("/"), os.cpu_count() or 1, len(os.sched_getaffinity(0)))
    text = environment.get(VARIABLE)
    return overridden(machine, text) if text else machine


def overridden(machine, text):
    """Replaces the figures that the text names; it is the value of the variable."""
    figures = {"cores": machine.cores, "memory": machine.memory_bytes}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in figures:
            raise StackError(f"{VARIABLE} is {text!r}: {name!r} is neither cores nor memory. Example: {EXAMPLE}")
        figures[name] = cores_of(text, value) if name == "cores" else bytes_of(text, value)
    return Machine(figures["cores"], figures["memory"], (VARIABLE,), machine.oom_kills)


def cores_of(text, value):
    if not re.fullmatch(r"[1-9][0-9]{0,3}", value):
        raise StackError(f"{VARIABLE} is {text!r}: cores must be a whole number of at least 1. Example: {EXAMPLE}")
    return int(value)


def bytes_of(text, value):
    match = re.fullmatch(r"([1-9][0-9]{0,8})(MiB|GiB|TiB)", value)
    if match is None:
        raise StackError(f"{VARIABLE} is {text!r}: memory must be a whole number of at least 1 with MiB, GiB or TiB. "
                         f"Example: {EXAMPLE}")
    return int(match[1]) * UNITS[match[2]]


def text_of_bytes(count):
    """Two or three digits and the largest unit that fits: "376 MiB", "7.3 GiB"."""
    unit = next((unit for unit in ("TiB", "GiB") if count >= UNITS[unit]), "MiB")
    tenths = (count * 10 + UNITS[unit] // 2) // UNITS[unit]
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth} {unit}" if tenth and whole < 100 else f"{(tenths + 5) // 10} {unit}"


def variable_bytes(count):
    """As the variable has it, in whole GiB if that is exact."""
    return f"{count >> 30}GiB" if count % UNITS["GiB"] == 0 else f"{count >> 20}MiB"


# The machine, its affinity and its cgroups. `root` is "/", or a directory that a test has made like it.


def detected(root, cores_of_machine, cores_allowed):
    bound_by = ["affinity"] if cores_allowed < cores_of_machine else []
    memory_bytes = memory_total(root)
    cores = min([cores_allowed, *cpu_limits(root)])
    limit_bytes = min([memory_bytes, *memory_limits(root)])
    if cores < cores_allowed or limit_bytes < memory_bytes:
        bound_by.append("cgroup")
    return Machine(cores, limit_bytes, tuple(bound_by), oom_kills(root))


def oom_kills(root=Path("/")):
    found = re.search(r"^oom_kill (\d+)$", text_of(root / "proc/vmstat") or "", re.MULTILINE)
    return int(found[1]) if found else 0


def memory_total(root):
    text = (root / "proc/meminfo").read_text(encoding="ascii")
    return int(re.search(r"^MemTotal:\s+(\d+) kB$", text, re.MULTILINE)[1]) * 1024


def memory_limits(root):
    """Version 1 writes a number near 2^63 where there is no limit, version 2 the word max."""
    for directory in cgroup_directories(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (text := text_of(directory / name)) and text.isdigit():
                yield int(text)


def cpu_limits(root):
    """Whole cores, at least one: a quota of one and a half cores counts as one."""
    for directory in cgroup_directories(root, "cpu"):
        quota, period = (text_of(directory / "cpu.max") or "max").partition(" ")[::2]
        if quota == "max":
            quota, period = text_of(directory / "cpu.cfs_quota_us"), text_of(directory / "cpu.cfs_period_us")
        # Version 1 writes -1 where there is no quota.
        if quota and period and quota.isdigit():
            yield max(1, int(quota) // int(period))


def cgroup_directories(root, controller):
    """The launcher's directories of a controller, from its own up to the top of what is mounted; each may have a limit."""
    own = own_cgroups(root)
    for kind, controllers, shown, point in cgroup_mounts(root):
        path = own.get("" if kind == "cgroup2" else controller if controller in controllers else None)
        if path is None:
            continue
        top = root / point.lstrip("/")
        directory = top / below(path, shown)
        yield directory
        while directory != top:
            directory = directory.parent
            yield directory


def below(path, shown):
    """The path below the part of the hierarchy that is mounted; a container may see nothing else of it."""
    path, shown = PurePosixPath(path), PurePosixPath(shown)
    return path.relative_to(shown) if path.is_relative_to(shown) and ".." not in path.parts else PurePosixPath()


def own_cgroups(root):
    """The path by controller; version 2 has one hierarchy, without a name."""
    paths = {}
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def cgroup_mounts(root):
    """Kind, controllers, mounted part and mount point of each hierarchy."""
    for line in (text_of(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        shown, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            yield kind, options.split(","), shown, point


def text_of(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
