"""
The sizes of the three servers, by the cores and the memory that they share with the services. Pure: whole numbers in,
whole numbers out. The limits together stay below half of the memory (`Sizes.limit_bytes`); the rest is for the services,
the load, the caches of the file system and a build.
"""

from dataclasses import dataclass, replace

MIB = 1 << 20
GIB = 1 << 30
# The range that the sizes follow; a machine outside of it gets those of the nearest one inside.
CORES_MAX = 128
MEMORY_MIN, MEMORY_MAX = 4 * GIB, 2048 * GIB

# The limits of roles, which the containers have as well, add up to 80 (postgres.py).
CONNECTIONS = 100
# Connections that sort or build a hash at the same time: the pools of all services with a standby each, and readers.
SESSIONS_BUSY = 64
OWNER_QUERIES = 32
# The tests of a crate run on all cores at once, each with its own connections, queries and streams. Their data are small.
TEST_CONNECTIONS_MIN, TEST_CONNECTIONS_PER_CORE = 300, 12
TEST_QUERIES_PER_CORE = 4
TEST_MEMORY_MIN, TEST_MEMORY_PER_CORE = 8 * GIB, GIB // 2


@dataclass(frozen=True)
class ClickHouseSizes:
    # max_server_memory_usage; the limits of users are parts of it (clickhouse.py).
    memory_bytes: int
    mark_cache_bytes: int
    # Threads of one query, and merges at the same time.
    threads: int
    # Queries of the owner of the tables at the same time.
    owner_queries: int


@dataclass(frozen=True)
class NatsSizes:
    # GOMAXPROCS and GOMEMLIMIT.
    threads: int
    heap_bytes: int
    memory_store_bytes: int


@dataclass(frozen=True)
class PostgresSizes:
    shared_buffers_bytes: int
    work_mem_bytes: int
    # Guides the planner; Postgres allocates none of it.
    effective_cache_bytes: int
    # On disk.
    wal_bytes: int
    connections: int


@dataclass(frozen=True)
class Sizes:
    clickhouse: ClickHouseSizes
    nats: NatsSizes
    postgres: PostgresSizes

    def limit_bytes(self):
        """The most memory that the servers take together, by their settings."""
        return (self.clickhouse.memory_bytes + self.nats.heap_bytes + self.nats.memory_store_bytes
                + self.postgres.shared_buffers_bytes + SESSIONS_BUSY * self.postgres.work_mem_bytes)


def sizes(cores, memory_bytes):
    cores = bounded(cores, 1, CORES_MAX)
    memory_bytes = bounded(memory_bytes, MEMORY_MIN, MEMORY_MAX)

    def part(numerator, denominator, least, most):
        return bounded(memory_bytes * numerator // denominator // MIB * MIB, least, most)

    return Sizes(
        clickhouse=ClickHouseSizes(
            # The engine alone takes 0.4 to 0.6 GB under load; the rest is for questions and merges.
            memory_bytes=part(5, 16, GIB, 32 * GIB),
            mark_cache_bytes=part(1, 256, 32 * MIB, 512 * MIB),
            threads=bounded(cores // 4, 2, 8),
            owner_queries=OWNER_QUERIES,
        ),
        nats=NatsSizes(
            # One thread costs least and is enough for 200,000 tasks a second (nats_conf.py).
            threads=bounded(cores // 32, 1, 4),
            heap_bytes=part(1, 16, 256 * MIB, 4 * GIB),
            memory_store_bytes=part(1, 32, 128 * MIB, 256 * MIB),
        ),
        postgres=PostgresSizes(
            shared_buffers_bytes=part(1, 64, 64 * MIB, 2 * GIB),
            work_mem_bytes=part(1, 1024, 4 * MIB, 64 * MIB),
            effective_cache_bytes=part(1, 4, GIB, MEMORY_MAX),
            wal_bytes=part(1, 16, GIB, 4 * GIB),
            connections=CONNECTIONS,
        ),
    )


def for_tests(cores, memory_bytes):
    """Small servers for many connections: those of a machine with 8 GiB, or half a GiB per core."""
    cores = bounded(cores, 1, CORES_MAX)
    small = sizes(cores, min(memory_bytes, max(TEST_MEMORY_MIN, cores * TEST_MEMORY_PER_CORE)))
    return Sizes(
        clickhouse=replace(small.clickhouse, owner_queries=max(OWNER_QUERIES, cores * TEST_QUERIES_PER_CORE)),
        nats=small.nats,
        postgres=replace(small.postgres, connections=max(
            TEST_CONNECTIONS_MIN, CONNECTIONS + cores * TEST_CONNECTIONS_PER_CORE)),
    )


def bounded(value, least, most):
    return max(least, min(most, value))
