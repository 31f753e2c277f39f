#!/usr/bin/env python3
"""
Describes the compile-checked queries against a real Postgres: `prepare` writes .sqlx, `check` says whether .sqlx is
what `prepare` would write. Runs beside the servers: stack.py with-servers -- python3 infra/local/sqlx_queries.py check

sqlx's macros do the work while the crate compiles, so each crate with such queries is checked by cargo with a database
that has its service's migrations and resolves names in its service's schema, as the service itself will.
"""

import contextlib
import filecmp
import os
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote, urlsplit

from apportion_local import paths, wheels
from apportion_local.paths import CHECKOUT, StackError

CACHE = CHECKOUT / ".sqlx"
MIGRATIONS = CHECKOUT / "schemas" / "postgres"
QUERY_MACRO = re.compile(r"\bquery(_as|_scalar|_file|_file_as|_file_scalar)?(_unchecked)?!\s*[({\[]")


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("prepare", "check"):
        sys.exit("usage: sqlx_queries.py prepare|check")
    try:
        return prepare() if sys.argv[1] == "prepare" else check()
    except StackError as error:
        print(error, file=sys.stderr)
        return 1


def prepare():
    if CACHE.exists():
        paths.remove(CACHE)
    CACHE.mkdir()
    describe(CACHE)
    print(f"{len(files(CACHE))} queries in .sqlx. Commit them.")
    return 0


def check():
    with tempfile.TemporaryDirectory(prefix="apportion-sqlx-") as fresh:
        describe(Path(fresh))
        want, have = files(fresh), files(CACHE)
        differing = [name for name in sorted(want | have)
                     if name not in want or name not in have
                     or not filecmp.cmp(CACHE / name, Path(fresh) / name, shallow=False)]
    if differing:
        print("These queries in .sqlx are not what the code and the migrations say; run: make sqlx-prepare\n  "
              + "\n  ".join(differing), file=sys.stderr)
        return 1
    print(f"{len(want)} queries in .sqlx are up to date.")
    return 0


def files(directory):
    return {path.name for path in Path(directory).glob("query-*.json")}


def describe(directory):
    """Writes one file per query into a directory."""
    crates = crates_with_queries()
    with scratch_database() as url:
        for crate, sources in crates.items():
            schema = crate.name.replace("-", "_")
            environment = {
                **os.environ,
                "SQLX_OFFLINE": "false",
                "SQLX_OFFLINE_DIR": str(directory),
                "DATABASE_URL": f"{url}?options={quote('-c search_path=' + schema)}",
            }
            with touched(sources):
                # As `make check` lints: then nothing but this crate is compiled again.
                command = ["cargo", "clippy", "--quiet", "--locked", "--lib",
                           "--manifest-path", str(crate / "Cargo.toml")]
                done = subprocess.run(command, env=environment, cwd=CHECKOUT)
            if done.returncode != 0:
                raise StackError(f"{crate.relative_to(CHECKOUT)} does not compile against its migrations; see above.")


def crates_with_queries():
    """Crate directory → its sources that use a checked query."""
    found = {}
    for manifest in sorted(CHECKOUT.glob("*/Cargo.toml")) + sorted(CHECKOUT.glob("services/*/Cargo.toml")):
        crate = manifest.parent
        sources = [path for path in crate.rglob("*.rs")
                   if "target" not in path.parts and QUERY_MACRO.search(path.read_text(encoding="utf-8"))]
        if sources:
            found[crate] = sources
    return found


@contextlib.contextmanager
def touched(sources):
    """Makes cargo compile these again now, yet leaves nothing for it to compile again afterwards."""
    before = {path: path.stat() for path in sources}
    for path in sources:
        path.touch()
    during = {path: path.stat().st_mtime_ns for path in sources}
    try:
        yield
    finally:
        for path, stat in before.items():
            if path.exists() and path.stat().st_mtime_ns == during[path]:
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@contextlib.contextmanager
def scratch_database():
    """A database with every service's migrations, each in the service's schema."""
    server = os.environ.get("DATABASE_URL")
    if not server:
        raise StackError("No DATABASE_URL. Run this as: stack.py with-servers -- python3 infra/local/sqlx_queries.py")
    name = f"sqlx_{secrets.token_hex(4)}"
    url = urlsplit(server)._replace(path="/" + name).geturl()
    psql(server, f"CREATE DATABASE {name};")
    try:
        for directory in sorted(path for path in MIGRATIONS.iterdir() if path.is_dir()):
            schema = directory.name.replace("-", "_")
            sql = [f"CREATE SCHEMA {schema}; SET search_path = {schema};"]
            sql += [path.read_text(encoding="utf-8") for path in sorted(directory.glob("*.sql"))
                    if not path.name.endswith(".down.sql")]
            psql(url, "\n".join(sql), directory.name)
        yield url
    finally:
        psql(server, f"DROP DATABASE {name} WITH (FORCE);")


def psql(url, sql, what="the scratch database"):
    program = wheels.postgres_install() / "bin" / "psql"
    done = subprocess.run([str(program), "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-d", url],
                          input=sql, capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(f"Postgres refuses the migrations of {what}:\n{done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())
