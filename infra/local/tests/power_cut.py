"""The files that a power cut leaves of the three servers, made from their files at the cut and from the synced ones."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from apportion_local import cli, net, paths

SHIM = paths.CHECKOUT / "infra/local/sync_shim.c"
PAGE = 4096
# Limit against hanging, for the kernel to end processes.
END_S = 120
RANGES = "ledger_ranges"
TABLES = (RANGES, "allocation_intervals", "running_allocations", "node_transfers", "node_capacities", "rates", "usage_hourly",
          "capacity_hourly")


class Synced:
    """The files below a directory as they were last synced, by processes that are started with this environment."""

    def __init__(self, home, root):
        self.root, self.kept, library = root, home / "kept", home / "sync_shim.so"
        # Postgres may run as another user.
        self.kept.mkdir()
        self.kept.chmod(0o777)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SHIM), "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "APPORTION_SYNC_ROOT": str(root),
                            "APPORTION_SYNC_KEPT": str(self.kept)}

    def content(self, file):
        """A file's content at its last sync. None if it was never synced."""
        kept = self.kept / str(file.relative_to(self.root)).replace("/", "%")
        return kept.read_bytes() if kept.exists() else None


def cut(launcher):
    """Ends a launcher and its descendants at one moment: all are stopped before the first one is killed."""
    every, found = [], [launcher]
    while found:
        every += found
        signal_all(found, signal.SIGSTOP)
        # A stopped process starts no other.
        found = [pid for pid in cli.descendants(launcher) if pid not in every]
    signal_all(every, signal.SIGKILL)
    if not net.wait_until(lambda: not any(map(runs, every)), END_S):
        raise RuntimeError("processes outlive SIGKILL")


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cut_postgres(synced, chance):
    """
    Gives each page of a file the content of the file's last sync, or that of the cut. A file that was never synced is
    removed, or made empty, or gets pages of zeros. Returns the number of files that differ from those at the cut.
    """
    lost = 0
    for file in sorted(path for path in synced.root.rglob("*") if path.is_file() and not path.is_symlink()):
        now, then = file.read_bytes(), synced.content(file)
        if now == then:
            continue
        if then is None and chance.random() < 0.3:
            lost += 1
            file.unlink()
            continue
        content = mixed(now, then or b"", chance)
        lost += content != now
        with open(file, "r+b") as there:
            there.truncate(0)
            there.write(content)
    return lost


def mixed(now, then, chance):
    """Pages of the one and of the other, as long as one of them. Pages that neither has are zeros."""
    size = len(chance.choice((now, then)))
    pages = (chance.choice((now, then))[at:at + PAGE] for at in range(0, size, PAGE))
    return b"".join(page.ljust(PAGE, b"\0") for page in pages)[:size]


class Parts:
    """ClickHouse's tables, with the parts that were on the disk at one moment, when the kernel had written all of them."""

    def __init__(self, tables):
        self.tables = tables
        self.there = {table: set(self.parts(table)) for table in TABLES}
        self.logged = {log: log.stat().st_size for table in TABLES for log in self.logs(table)}

    def parts(self, table):
        return (self.tables / table).glob("all_*")

    def logs(self, table):
        """The tokens that the table has seen."""
        return (self.tables / table / "deduplication_logs").glob("*.txt")

    def new(self, table):
        """The parts since that moment, none of which was synced."""
        return sorted(set(self.parts(table)) - self.there[table])

    def inserts(self, table):
        """The number of new parts with rows that are in no other part. The others were merged from parts."""
        blocks = (part.name.split("_")[1:3] for part in self.new(table))
        return sum(first == last for first, last in blocks)

    def lose_one_table(self, chance):
        """Removes all new parts of one table. Returns the number of INSERTs that are lost."""
        table = chance.choice([table for table in TABLES if table != RANGES and self.inserts(table)])
        lost = self.inserts(table)
        for part in self.new(table):
            shutil.rmtree(part)
        return lost

    def lose_some_of_each(self, chance):
        """
        Leaves new parts whole, removes them, or makes some of their files empty or short, and cuts off the logs of tokens.
        Returns the number of parts that are not whole.
        """
        lost = 0
        for part in [part for table in TABLES for part in self.new(table)]:
            fate = chance.choice(("whole", "away", "broken"))
            lost += fate != "whole"
            if fate == "away":
                shutil.rmtree(part)
            elif fate == "broken":
                files = sorted(part.iterdir())
                for file in chance.sample(files, chance.randint(1, len(files))):
                    os.truncate(file, chance.choice((0, file.stat().st_size // 2)))
        for log in [log for table in TABLES for log in self.logs(table)]:
            os.truncate(log, chance.randint(self.logged.get(log, 0), log.stat().st_size))
        return lost


class Streams:
    """NATS' streams, with their indices at one moment."""

    def __init__(self, store):
        self.store = store
        self.indices = {index: index.read_bytes() for index in self._indices()}

    def _indices(self):
        return self.store.glob("jetstream/*/streams/*/msgs/index.db")

    def lose_what_was_not_synced(self):
        """
        Restores the earlier indices, and removes those that are newer. Appends the beginning of a message, which was not
        acknowledged, to each stream.
        """
        for index in self._indices():
            index.unlink()
        for index, content in self.indices.items():
            index.write_bytes(content)
        for messages in {block.parent for block in self.store.glob("jetstream/*/streams/*/msgs/*.blk")}:
            block = max(messages.glob("*.blk"), key=lambda block: int(block.stem))
            content = block.read_bytes()
            if content:
                length = int.from_bytes(content[:4], "little") & 0x3FFFFFFF
                with open(block, "ab") as file:
                    file.write(content[:length // 2])
